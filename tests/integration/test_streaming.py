"""A dataset built from files that arrive one by one equals one built from all at once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from dsp_gym.cli import app
from dsp_gym.config.files import parse
from dsp_gym.datasets.manifest import DatasetManifest, PartitionRecord
from dsp_gym.datasets.reader import Dataset
from dsp_gym.errors import DatasetError
from dsp_gym.metrics.samples import Samples
from tests.dataset_inputs import (
    archive_file,
    day_of_samples,
    job_file,
    recording,
    write_journal,
)

pytestmark = [pytest.mark.slow, pytest.mark.spark]

pytest.importorskip("pyspark")

from spark_pipelines import streaming  # noqa: E402
from spark_pipelines.build import build, source_record  # noqa: E402
from spark_pipelines.config import DatasetConfig  # noqa: E402
from spark_pipelines.plan import closed_days, inputs_of, plan_of, specs_of  # noqa: E402
from spark_pipelines.sources import archives  # noqa: E402
from spark_pipelines.streaming import follow  # noqa: E402

DAY_S = 86_400.0


def config(folder: Path, *kinds: str) -> DatasetConfig:
    sources = {
        "archives": {"kind": "archives", "folder": str(folder / "archive")},
        "journals": {"kind": "journals", "folder": str(folder / "journal")},
        "recordings": {"kind": "recordings", "folder": str(folder / "recording")},
    }
    folder.mkdir(exist_ok=True)
    job = job_file(folder)
    named = [sources[kind] | ({} if kind == "recordings" else {"job": job}) for kind in kinds]
    document = {"name": "live", "sources": named}
    return parse(DatasetConfig, document, "test")


def shuffled(samples: Samples, parts: int) -> list[Samples]:
    """The samples in files whose times overlap, each in no order."""
    order = np.random.default_rng(3).permutation(len(samples))
    return [Samples(*(c[rows] for c in columns(samples))) for rows in np.array_split(order, parts)]


def columns(samples: Samples) -> list[np.ndarray]:
    return [getattr(samples, name) for name in ("t_s", "vertex", "subtask", "metric", "value")]


def everything(folder: Path) -> Path:
    """All files of all sources, as they are in the end."""
    for day in range(2):
        for part, samples in enumerate(shuffled(day_of_samples(day), 3)):
            archive_file(folder / "archive" / f"{part}-of-day-{day}.parquet", samples)
        write_journal(folder / "journal", day + 4, turns=10)
    recording(folder / "recording", seconds=300)
    return folder


def arrive(origin: Path, folder: Path, *names: str) -> None:
    """Files come in whole: written under another name, then renamed."""
    for name in names:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        hidden = target.with_name(f".{target.name}")
        shutil.copyfile(origin / name, hidden)
        hidden.rename(target)


def tables(out: Path) -> dict[str, pa.Table]:
    dataset = Dataset.open(out)
    return {name: pa.Table.from_batches(dataset.table(name)) for name in dataset.manifest.tables}


def same(one: Path, other: Path) -> None:
    """Row for row, and by the hash of the content."""
    first, second = tables(one), tables(other)
    assert first.keys() & {"windows", "transitions"}
    assert first.keys() == second.keys()
    for key, table in first.items():
        assert table.schema.equals(second[key].schema)
        # NaN is not equal to itself; bit by bit it is.
        assert [repr(row) for row in table.to_pylist()] == [
            repr(row) for row in second[key].to_pylist()
        ]
    manifests = [DatasetManifest.read(out) for out in (one, other)]
    assert manifests[0].content_sha256 == manifests[1].content_sha256
    assert manifests[0].accounting == manifests[1].accounting


TOLD = ("manifest.json", "events.jsonl", "job.yaml", "env.yaml")
"""What of a recording says of its samples what they are."""


def files_of(origin: Path, kinds: tuple[str, ...]) -> list[str]:
    """Names of the files a stream waits for: archives, then runs; or segments."""
    patterns = {
        "archives": "archive/*.parquet",
        "journals": "journal/*.jsonl",
        "recordings": "recording/samples/*.parquet",
    }
    return [
        str(file.relative_to(origin))
        for kind in kinds
        for file in sorted(origin.glob(patterns[kind]))
    ]


class Crash(Exception):
    pass


# What was there at first: out of order, the second half of a journal still to come.
FIRST = {
    "journals": (0, 1),
    "samples": (5, 0, 7),  # the second day's last file, the first day's first, and one of two runs
}


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(("journals",), id="journals"),
        pytest.param(
            ("archives", "recordings"), id="archives+recordings", marks=pytest.mark.validate
        ),
    ],
)
def test_batch_streaming_and_incremental_builds_are_equal_row_for_row(
    kinds, spark, tmp_path, monkeypatch
):
    origin, folder = everything(tmp_path / "origin"), tmp_path / "arriving here"
    build(config(origin, *kinds), tmp_path / "batch")
    files = files_of(origin, kinds)
    live = config(folder, *kinds)
    for name in ("archive", "journal"):
        (folder / name).mkdir()
    arrive(origin, folder, *(f"recording/{name}" for name in TOLD))

    first = [files[n] for n in FIRST["journals" if kinds == ("journals",) else "samples"]]
    arrive(origin, folder, *first)
    if kinds == ("journals",):
        growing = folder / files[2]
        content = (origin / files[2]).read_bytes()
        growing.write_bytes(content[: len(content) // 2])  # its writer is at work still
    (one,) = follow(live, tmp_path / "stream")
    assert one.built is not None
    assert one.arrived >= len(first)

    # The process dies after the stream has told of all files, before any is built.
    arrive(origin, folder, *files)

    def dies(*_, **__):
        raise Crash("killed")

    with monkeypatch.context() as patched:
        patched.setattr(streaming, "build", dies)
        with pytest.raises(Crash):
            list(follow(live, tmp_path / "stream"))
    (two,) = follow(live, tmp_path / "stream")
    assert two.arrived == 0
    assert two.built is not None
    same(tmp_path / "stream", tmp_path / "batch")
    if kinds == ("journals",):  # for samples, the tests of builds show it
        part = tmp_path / "part"
        arrive(origin, part, *files[:2])
        build(config(part, *kinds), tmp_path / "incremental")
        arrive(origin, part, *files)
        build(config(part, *kinds), tmp_path / "incremental")
        same(tmp_path / "incremental", tmp_path / "batch")

    # Nothing has arrived since: nothing is published.
    file = tmp_path / "live.yaml"
    file.write_text(live.model_dump_json())  # JSON is YAML
    arguments = [str(file), "--out", str(tmp_path / "stream"), "--follow", "0", "--json"]
    result = CliRunner().invoke(app, ["dataset", "build", *arguments])
    assert result.exit_code == 0, result.output
    again = json.loads(result.stdout)
    assert (again["arrived"], again["published"]) == (0, False)


def planned(folder, published: DatasetManifest | None, late_s: float = 2 * DAY_S):
    """What a build of the archive makes, keeps, and leaves for days that are closed."""
    wanted = config(folder, "archives")
    facts = [archives.survey(wanted.sources[0], "archives", folder)]
    inputs = inputs_of(facts, wanted, specs_of(facts))
    plan = plan_of(inputs, published, closed=closed_days(facts, published, late_s))
    return facts, inputs, plan


def published(facts, inputs) -> DatasetManifest:
    records = [
        PartitionRecord(job=job, day=day, inputs_sha256=sha256, revision=1, tables={})
        for (job, day), sha256 in inputs.items()
    ]
    return DatasetManifest(
        name="live", revision=1, content_sha256="", config={}, tables={}, jobs={},
        sources=tuple(map(source_record, facts)), partitions=tuple(records),
    )  # fmt: skip


def test_the_watermark_closes_days_and_what_comes_for_them_is_told(tmp_path):
    folder = tmp_path / "archive"
    for day in (5, 3):  # in any order at first
        archive_file(folder / f"{day}.parquet", day_of_samples(day, 60))
    facts, inputs, plan = planned(tmp_path, None)
    assert [day for _, day in plan.stale] == ["2026-03-04", "2026-03-06"]
    last = published(facts, inputs)
    archive_file(folder / "0.parquet", day_of_samples(0, 60))
    _, _, plan = planned(tmp_path, last)
    assert not plan.stale
    assert [day for _, day in plan.late] == ["2026-03-01"]
    _, _, plan = planned(tmp_path, last, late_s=5 * DAY_S)
    assert [day for _, day in plan.stale] == ["2026-03-01"]
    # A closed day whose files go one by one stays as it was; an open one is made of what is left.
    archive_file(folder / "5.parquet", day_of_samples(5, 30))
    (folder / "3.parquet").unlink()
    (folder / "0.parquet").unlink()
    _, _, plan = planned(tmp_path, last)
    assert [day for _, day in plan.stale] == ["2026-03-06"]
    assert [p.day for p in plan.kept] == ["2026-03-04"]


def test_a_file_that_is_being_written_is_not_read(tmp_path):
    archive_file(tmp_path / "archive" / "good.parquet", day_of_samples(0, 60))
    (tmp_path / "archive" / ".growing.parquet").write_bytes(b"PAR1")
    facts, _, _ = planned(tmp_path, None)
    assert [piece.name for piece in facts[0].pieces] == ["good.parquet"]


def test_a_file_that_cannot_be_read_is_told_and_tried_again(spark, tmp_path):
    bad = tmp_path / "archive" / "bad.parquet"
    bad.parent.mkdir()
    looks = follow(config(tmp_path, "archives"), tmp_path / "out", every_s=0.01)
    assert next(looks).built is None  # nothing has arrived
    bad.write_bytes(b"PAR1 and no more")
    for arrived in (1, 0):  # again, though no other file has come
        found = next(looks)
        assert (found.arrived, found.built) == (arrived, None)
        assert str(bad) in found.problem
        assert "is not a Parquet file, or is truncated" in found.problem
    # So is a dataset that cannot be read for a while.
    log = tmp_path / "out" / "revisions" / "_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json").write_text("half a lo")
    assert "the log of the table cannot be read" in next(looks).problem
    shutil.rmtree(log.parent)
    assert "is not a Parquet file, or is truncated" in next(looks).problem
    looks.close()
    with pytest.raises(DatasetError, match="is truncated"):
        list(follow(config(tmp_path, "archives"), tmp_path / "out"))


def test_only_one_command_follows_a_dataset(spark, tmp_path):
    (tmp_path / "archive").mkdir()
    first = follow(config(tmp_path, "archives"), tmp_path / "out", every_s=1)
    assert next(first).built is None  # nothing has arrived
    with pytest.raises(DatasetError, match="is followed already"):
        next(follow(config(tmp_path, "archives"), tmp_path / "out"))
    first.close()


def test_a_dataset_that_cannot_grow_by_files_is_refused(tmp_path):
    series = {"kind": "series", "file": "x.csv", "job": job_file(tmp_path)}
    with pytest.raises(DatasetError, match="no source of this dataset grows by files"):
        next(follow(parse(DatasetConfig, {"name": "d", "sources": [series]}, "x"), tmp_path))
