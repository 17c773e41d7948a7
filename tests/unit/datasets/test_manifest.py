from __future__ import annotations

import json

import pytest

from dsp_gym.datasets.delta import DatasetHome
from dsp_gym.datasets.manifest import (
    DatasetManifest,
    PartitionRecord,
    TableRecord,
    content_of,
)
from dsp_gym.errors import SchemaError, StorageError
from spark_pipelines.publication import Publication

SHA = "0" * 64


def partition(job="q", day="2026-03-01", sha256=SHA, rows=3) -> PartitionRecord:
    table = TableRecord(rows=rows, sha256=sha256, splits={"train": rows})
    return PartitionRecord(
        job=job, day=day, inputs_sha256=SHA, revision=1, tables={"windows": table}
    )


def manifest(*partitions: PartitionRecord) -> DatasetManifest:
    return DatasetManifest(
        name="d", revision=1, content_sha256=SHA, config={}, sources=(), jobs={},
        tables={"windows": 4}, partitions=partitions,
    )  # fmt: skip


def test_a_manifest_is_read_as_it_was_published(tmp_path) -> None:
    written = manifest(partition())
    Publication(DatasetHome.of(tmp_path), None).publish(written, {})
    assert DatasetManifest.read(tmp_path) == written
    assert json.loads((tmp_path / "reports" / "1" / "manifest.json").read_text())["name"] == "d"
    assert written.rows("windows") == 3
    assert written.partition("q", "2026-03-01") == partition()
    assert written.partition("q", "2026-03-02") is None


def test_a_folder_without_a_published_revision_is_no_dataset(tmp_path) -> None:
    with pytest.raises(StorageError, match="is not a dataset"):
        DatasetManifest.read(tmp_path)


def test_content_is_told_by_rows_alone() -> None:
    one, other = partition(), partition(day="2026-03-02")
    assert content_of([one, other]) == content_of([other, one])
    later = one.model_copy(update={"revision": 7, "inputs_sha256": "1" * 64})
    assert content_of([later]) == content_of([one])
    assert content_of([partition(sha256="2" * 64)]) != content_of([one])
    empty = partition(day="2026-03-03", rows=0)
    assert content_of([one, empty]) == content_of([one])


@pytest.mark.parametrize("schema", ["dsp-gym/dataset/3", "dsp-gym/dataset/1", None, 1])
def test_another_version_is_refused(schema) -> None:
    with pytest.raises(SchemaError, match="not read here"):
        DatasetManifest.parsed(json.dumps({"schema": schema}), "somewhere")
