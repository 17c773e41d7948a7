"""Manifests of recordings, datasets and rollouts are read, refused, migrated and written alike."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from dsp_gym.datasets.manifest import DatasetManifest, PartitionRecord, TableRecord
from dsp_gym.datasets.rollouts.format import CellRecord, RolloutManifest
from dsp_gym.errors import SchemaError, StorageError
from dsp_gym.records.base import MANIFEST
from dsp_gym.records.hashes import file_sha256
from dsp_gym.records.manifest import RecordedLoad, RecordingManifest, RunRecord
from tests.simulating import line

LOAD = RecordedLoad(name="steady", steps=((0.0, 1500.0), (60.0, 20.5)))
RUN = RunRecord(
    name="run-0",
    parallelism={"source": 1, "map": 2},
    memory_level={"source": -1, "map": 0},
    load=LOAD,
    t_begin_s=0.0,
    t_load_s=1.5,
    t_running_s=None,
    t_end_s=99.25,
    samples="samples/run-0.parquet",
    rows=7,
    sha256="0" * 64,
)
TABLE = TableRecord(rows=3, sha256="0" * 64, splits={"train": 3})
CELL = CellRecord(
    run="line/steady/0/ds2",
    job="line",
    load="steady",
    seed=0,
    simulation_seed=1,
    policy="ds2",
    guardrails=None,
    end="truncated",
    file="cells/a.parquet",
    rows=2,
    sha256="0" * 64,
)
MANIFESTS = {
    "recording": RecordingManifest(
        job="line", versions={"dsp-gym": "0.1.0"}, populated={"bytes": 3}, events=2, runs=(RUN,)
    ),
    "dataset": DatasetManifest(
        name="d",
        revision=1,
        content_sha256="0" * 64,
        config={"name": "d", "windows": {"window_s": 60}},
        sources=(),
        tables={"windows": 0},
        jobs={"line": {"job": "line"}},
        partitions=(
            PartitionRecord(
                job="line",
                day="2026-03-01",
                inputs_sha256="0" * 64,
                revision=1,
                tables={"windows": TABLE},
            ),
        ),
    ),
    "rollout": RolloutManifest(
        config={"policies": ["ds2"], "epsilon": 0.1},
        versions={"dsp-gym": "0.1.0"},
        policies={"ds2": {"policy": "ds2", "params": {}}},
        jobs=(line(),),
        complete=False,
        cells=(CELL,),
    ),
}
WRITTEN = {
    "recording": "c56bcf7c288a2b36dad74d77db646173e4074224b84b2cce70b1d574f19b84db",
    "dataset": "a6c9bfdd1be4a0135a1ea467b1e696cb151d8bf90b37b0f1e94c2ccf66240b28",
    "rollout": "b6fc7f071498174ec1234d45c787d3ae540716ad8277e47a5e427ed920fc266c",
}
"""SHA-256 of the texts that the first release with their versions wrote of these."""

each = pytest.mark.parametrize("kind", MANIFESTS)


def put(kind, folder, document):
    """Writes a document where the manifest's `read` looks for it; returns the folder to name."""
    text = document if isinstance(document, str) else json.dumps(document)
    if kind == "dataset":
        write_deltalake(folder / "revisions", pa.table({"manifest": [text]}))
    else:
        (folder / MANIFEST).write_text(text)
    return folder


def document_of(kind):
    return json.loads(MANIFESTS[kind].text())


@each
def test_a_manifest_comes_back_and_its_text_is_the_one_of_its_version(kind, tmp_path):
    manifest = MANIFESTS[kind]
    file = manifest.write(tmp_path)
    assert file.name == "manifest.json"
    assert file_sha256(file) == manifest.sha256() == WRITTEN[kind]
    assert type(manifest).read(put(kind, tmp_path, manifest.text())) == manifest


@each
@pytest.mark.parametrize("version", ["3", "0", "one"])
def test_another_version_is_refused_with_the_one_that_is_read(kind, version, tmp_path):
    schema = f"dsp-gym/{kind}/{version}"
    folder = put(kind, tmp_path, document_of(kind) | {"schema": schema})
    with pytest.raises(SchemaError, match=f"reads '{type(MANIFESTS[kind]).SCHEMA}'") as error:
        type(MANIFESTS[kind]).read(folder)
    assert (error.value.key, error.value.value) == ("schema", schema)


@each
@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_what_is_no_manifest_is_refused_with_its_file(kind, text, tmp_path):
    with pytest.raises((SchemaError, StorageError)) as error:
        type(MANIFESTS[kind]).read(put(kind, tmp_path, text))
    place = "revisions" if kind == "dataset" else "manifest.json"
    assert str(error.value.file).endswith(place)
    assert error.value.remedy or text == "[]"


@each
def test_a_folder_without_a_manifest_is_refused_with_the_command_that_makes_one(kind, tmp_path):
    with pytest.raises(StorageError) as error:
        type(MANIFESTS[kind]).read(tmp_path)
    wanted = {"recording": "record", "dataset": "dataset build", "rollout": "rollout"}[kind]
    assert f"dsp-gym {wanted}" in str(error.value)
