"""Publication: the dataset is complete, however a build ends."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import pyarrow as pa
import pytest

from dsp_gym.datasets.manifest import DatasetManifest, PartitionRecord, content_of
from dsp_gym.datasets.reader import Dataset
from dsp_gym.errors import DatasetError, StorageError
from dsp_gym.records.parquet import write_parquet
from spark_pipelines.store import Store, partitions_in, record

PARTITIONS = 6


def publish(folder: Path, value: int, build_id: str = "one") -> DatasetManifest:
    """Builds a revision whose every partition says `value`, half of them taken over."""
    store = Store(folder)
    with store.locked():
        last = store.current()
        building = store.begin(build_id)
        records = []
        for n in range(PARTITIONS):
            day = f"2026-03-{n + 1:02d}"
            if last is not None and n % 2:
                kept = last.partition("q", day)
                for table in kept.tables.values():
                    for file in table.files:
                        store.link(file, last.revision, building)
                records.append(kept)
                continue
            place = building / "tables" / "windows" / "job=q" / f"day={day}"
            write_parquet(place / "part-0.parquet", pa.table({"x": [value] * 1000}))
            tables = {"windows": record(building, place)}
            records.append(
                PartitionRecord(
                    job="q", day=day, inputs_sha256=str(value), revision=1, tables=tables
                )
            )
        manifest = DatasetManifest(
            name="d", revision=1 if last is None else last.revision + 1,
            content_sha256=content_of(records), config={}, sources=(), jobs={},
            partitions=tuple(records),
        )  # fmt: skip
        store.publish(building, manifest)
    return manifest


def test_what_was_published_is_what_is_read(tmp_path) -> None:
    publish(tmp_path, 1)
    publish(tmp_path, 2)
    dataset = Dataset.open(tmp_path)
    assert dataset.manifest.revision == 2
    assert dataset.problems() == []
    rows = pa.Table.from_batches(dataset.table("windows"))
    assert rows.num_rows == 1000 * PARTITIONS
    assert sorted(set(rows["x"].to_pylist())) == [1, 2]
    assert set(rows["job"].to_pylist()) == {"q"}


def test_a_column_that_no_file_has_is_refused(tmp_path) -> None:
    publish(tmp_path, 1)
    dataset = Dataset.open(tmp_path)
    with pytest.raises(DatasetError, match=r"'windows' has no column 'dai'.*Did you mean 'day'"):
        dataset.table("windows", columns=["x", "dai"])  # before any row is asked for
    with pytest.raises(DatasetError, match="no table 'window'"):
        dataset.table("window")
    new = pa.Table.from_batches(dataset.table("windows", columns=["x", "new"], lenient=True))
    assert new["new"].null_count == new.num_rows == 1000 * PARTITIONS


def test_a_column_that_some_files_were_written_without_is_null_there(tmp_path) -> None:
    publish(tmp_path, 1)
    file = next(tmp_path.rglob("day=2026-03-05/*.parquet"))
    write_parquet(file, pa.table({"x": [1] * 1000, "later": ["y"] * 1000}))
    batches = list(Dataset.open(tmp_path).table("windows", columns=["job", "day", "later"]))
    known = [batch for batch in batches if batch["later"].null_count == 0]
    assert {day for batch in known for day in batch["day"].to_pylist()} == {"2026-03-05"}
    assert sum(map(len, batches)) == 1000 * PARTITIONS


def test_partitions_that_are_kept_are_not_copied(tmp_path) -> None:
    publish(tmp_path, 1)
    file = next((tmp_path / "revisions" / "1").rglob("day=2026-03-02/*.parquet"))
    inode = file.stat().st_ino
    publish(tmp_path, 2)
    publish(tmp_path, 3)
    file = next((tmp_path / "revisions" / "3").rglob("day=2026-03-02/*.parquet"))
    assert file.stat().st_ino == inode
    kept = sorted(f.name for f in (tmp_path / "revisions").iterdir())
    assert kept == ["2", "3"]


def test_a_reader_of_the_revision_before_goes_on(tmp_path) -> None:
    publish(tmp_path, 1)
    opened = Dataset.open(tmp_path)
    publish(tmp_path, 2)
    assert opened.problems() == []


def test_one_build_at_a_time(tmp_path) -> None:
    store = Store(tmp_path)
    with (
        store.locked(),
        pytest.raises(DatasetError, match="another build"),
        Store(tmp_path).locked(),
    ):
        pass


def test_a_damaged_partition_is_named(tmp_path) -> None:
    publish(tmp_path, 1)
    file = next(tmp_path.rglob("day=2026-03-05/*.parquet"))
    write_parquet(file, pa.table({"x": [9] * 1000}))
    (problem,) = Dataset.open(tmp_path).problems()
    assert "day 2026-03-05" in problem
    file.unlink()
    (problem,) = Dataset.open(tmp_path).problems()
    assert "cannot be read" in problem


def test_a_folder_that_cannot_be_written_is_named(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file"), Store(tmp_path / "file" / "d").locked():
        pass


def test_the_folders_of_partitions_tell_job_and_day(tmp_path) -> None:
    place = tmp_path / "tables" / "windows" / "job=a%3Db c" / "day=2026-03-01"
    place.mkdir(parents=True)
    assert partitions_in(tmp_path, "windows") == {("a=b c", "2026-03-01"): place}


def _forever(folder: Path, started) -> None:
    value = 10
    while True:
        value += 1
        publish(folder, value, f"build-{value}")
        started.set()


@pytest.mark.slow
def test_killed_at_random_moments_it_is_whole_and_the_next_build_finishes(tmp_path) -> None:
    publish(tmp_path, 1)
    # Of a server that has imported all this: a process of its own per build is started at once.
    moments, context = random.Random(5), multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    revisions = set()
    for _ in range(4):
        started = context.Event()
        builder = context.Process(target=_forever, args=(tmp_path, started))
        builder.start()
        assert started.wait(60)
        time.sleep(moments.uniform(0.0, 0.2))
        os.kill(builder.pid, signal.SIGKILL)
        builder.join()
        dataset = Dataset.open(tmp_path)
        assert dataset.problems() == []
        revisions.add(dataset.manifest.revision)
        finished = publish(tmp_path, 2)
        assert Dataset.open(tmp_path).manifest == finished
        assert Dataset.open(tmp_path).problems() == []
        assert not list(tmp_path.glob(".building-*"))
    assert len(revisions) == 4
