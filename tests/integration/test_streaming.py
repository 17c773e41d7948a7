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
from dsp_gym.datasets.manifest import DatasetManifest, read_files
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

from spark_pipelines import landing as landing_module  # noqa: E402
from spark_pipelines.build import build  # noqa: E402
from spark_pipelines.config import DatasetConfig  # noqa: E402
from spark_pipelines.landing import Landing, watched  # noqa: E402
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


def tables(out: Path) -> dict[tuple[str, str, str], pa.Table]:
    manifest = DatasetManifest.read(out)
    revision = out / "revisions" / str(manifest.revision)
    return {
        (name, p.job, p.day): read_files(revision / file for file in record.files)
        for p in manifest.partitions
        for name, record in p.tables.items()
        if record.rows
    }


def same(one: Path, other: Path) -> None:
    """Row for row, and by the hash of the content."""
    first, second = tables(one), tables(other)
    assert {name for name, _, _ in first} & {"windows", "transitions"}
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


# What was there at first, and how a crash finds it: out of order, a journal with a hole in it.
FIRST = {
    "journals": (0, 2),
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
        content = growing.read_bytes()
        growing.write_bytes(content[: len(content) // 2])  # its writer is at work still
    (one,) = follow(live, tmp_path / "stream")
    assert one.built is not None
    assert one.arrived == len(first)

    # The stream dies in the middle of its batches, between a copy and its record.
    arrive(origin, folder, *files)
    original, written = landing_module.write_atomic, []

    def dies(path, content):
        written.append(path)
        if len(written) == 2:
            raise Crash("killed")
        return original(path, content)

    monkeypatch.setattr(landing_module, "write_atomic", dies)
    with pytest.raises(Crash):
        list(follow(live, tmp_path / "stream", files_per_batch=1))
    monkeypatch.setattr(landing_module, "write_atomic", original)
    (two,) = follow(live, tmp_path / "stream", files_per_batch=1)
    assert 0 < two.arrived < len(files) - len(first)
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


def landing_of(folder: Path, late_s: float) -> Landing:
    wanted = config(folder, "archives")
    sources = watched(zip(wanted.source_names(), wanted.sources, strict=True))
    return Landing(folder / ".follow", sources, late_s)


def put(landing: Landing, batch: int, *files: Path) -> list[str]:
    return [f.status for f in landing.put(batch, [("archives", f) for f in files]).files]


def test_a_file_of_closed_days_is_set_aside_and_counted(tmp_path):
    files = {
        day: archive_file(tmp_path / "archive" / f"{day}.parquet", day_of_samples(day, 60))
        for day in (0, 3, 5)
    }
    landing = landing_of(tmp_path, 2 * DAY_S)
    # Within a batch the order of files does not matter: the watermark moves between batches.
    assert put(landing, 0, files[5], files[3]) == ["taken", "taken"]
    assert put(landing, 1, files[0]) == ["late"]
    assert landing.count("late") == 1
    assert [f.name for f in (tmp_path / ".follow" / "arrived" / "archives").glob("*")] != []
    assert not (tmp_path / ".follow" / "arrived" / "archives" / "0.parquet").exists()
    # One that is repeated after a crash finds the watermark as it was.
    assert put(landing_of(tmp_path, 2 * DAY_S), 0, files[5], files[3]) == ["taken", "taken"]


def test_a_file_that_cannot_be_read_stops_nobody(tmp_path):
    good = archive_file(tmp_path / "archive" / "good.parquet", day_of_samples(0, 60))
    bad = tmp_path / "archive" / "bad.parquet"
    bad.write_bytes(good.read_bytes()[:100])
    landing = landing_of(tmp_path, DAY_S)
    made = landing.put(0, [("archives", bad), ("archives", good)])
    assert [f.status for f in made.files] == ["refused", "taken"]
    assert "is not a Parquet file, or is truncated" in (made.files[0].reason or "")
    assert str(bad) in (made.files[0].reason or "")
    shown = landing.show()["archives"]
    assert [f.name for f in Path(shown.folder).glob("*")] == ["good.parquet"]


def test_only_one_command_follows_a_dataset(spark, tmp_path):
    (tmp_path / "archive").mkdir()
    first = follow(config(tmp_path, "archives"), tmp_path / "out", every_s=1)
    assert next(first).built is None  # nothing has arrived
    with pytest.raises(DatasetError, match="is followed already"):
        next(follow(config(tmp_path, "archives"), tmp_path / "out"))
    first.close()


def test_a_dataset_that_cannot_grow_by_files_is_refused(tmp_path):
    with pytest.raises(DatasetError, match="no source of this dataset grows by files"):
        watched([])
