"""Publication: the dataset is complete, however a build ends."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import threading
from collections import Counter
from ctypes import c_int
from pathlib import Path
from types import FrameType, SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import dsp_gym.datasets
from dsp_gym.datasets.delta import DatasetHome, parts_of
from dsp_gym.datasets.manifest import DatasetManifest, PartitionRecord, content_of
from dsp_gym.datasets.reader import Dataset
from dsp_gym.errors import DatasetError, StorageError
from dsp_gym.records.parquet import write_parquet
from spark_pipelines.publication import Publication
from spark_pipelines.store import Store, partitions_in
from tests import delta_log

PARTITIONS = 6

KILLS = int(os.environ.get("DSP_GYM_KILLS", "16"))
"""How often; `make validate` asks for ten of real builds."""

TRACED = ("spark_pipelines/publication.py", "spark_pipelines/store.py", "config/temporary.py")


def publish(
    place: Path | str, value: int, build_id: str = "one", **more: pa.Array
) -> DatasetManifest:
    """Builds a revision whose every partition says `value`, half of them taken over."""
    store = Store(place)
    with store.locked():
        last = store.current()
        building = store.begin(build_id)
        publication = Publication(store.home, last)
        days = [f"2026-03-{n + 1:02d}" for n in range(PARTITIONS)]
        kept = {("q", day) for day in days[1::2]} if last is not None else set()
        folders = {}
        for n, day in enumerate(days):
            if ("q", day) not in kept:
                folders["q", day] = building / "tables" / "windows" / "job=q" / f"day={day}"
                rows = {"x": [value] * 1000, "part": [n] * 1000, **more}
                write_parquet(folders["q", day] / "part-0.parquet", pa.table(rows))
        version, told = publication.commit("windows", folders, kept)
        records = [
            PartitionRecord(
                job="q", day=day, inputs_sha256=str(value), revision=1,
                tables={"windows": told["q", day]},
            )
            if ("q", day) in told
            else last.partition("q", day)
            for day in days
        ]  # fmt: skip
        manifest = DatasetManifest(
            name="d", revision=1 if last is None else last.revision + 1,
            content_sha256=content_of(records), config={}, sources=(), jobs={},
            tables={"windows": version}, partitions=tuple(records),
        )  # fmt: skip
        publication.publish(manifest, {"quality.json": f"{value}\n"})
        store.clean()
    return manifest


def killed(*_: object) -> None:
    raise KeyboardInterrupt


def seen(rows: list[dict]) -> list[tuple]:
    """What rows of `windows` hold, whatever their order is."""
    return sorted((row["day"], row["part"], row["x"]) for row in rows)


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


def test_a_reader_of_the_log_and_every_engine_see_the_same_rows(tmp_path, monkeypatch) -> None:
    import duckdb
    import polars as pl

    monkeypatch.chdir(tmp_path)
    place = tmp_path / "runs" / "datasets" / "named"
    publish(place, 1)
    publish(place, 2)
    dataset = dsp_gym.datasets.read("named")
    table = dataset.delta("windows")
    log = place / "tables" / "windows"
    expected = seen(delta_log.rows(log, table.version()))
    assert len(expected) == 1000 * PARTITIONS
    assert delta_log.bounds_hold(log)
    whole = pa.Table.from_batches(dataset.table("windows"))
    assert seen(whole.to_pylist()) == expected
    assert seen(table.to_pyarrow_table().to_pylist()) == expected
    assert seen(table.to_pandas().to_dict("records")) == expected
    assert seen(pl.read_delta(table).to_dicts()) == expected
    assert pl.scan_delta(table).filter(pl.col("x") == 1).select(pl.len()).collect().item() == 3000
    windows = table.to_pyarrow_dataset()
    found = duckdb.query("select day, part, x from windows").fetchall()
    assert sorted(found) == expected
    # A file that the statistics rule out is not opened.
    next((log / "job=q" / "day=2026-03-02").glob("*.parquet")).unlink()
    assert len(windows.to_table(filter=pa.compute.field("x") == 2)) == 3000


def test_the_row_of_revisions_tells_anybody_which_versions_belong_together(tmp_path) -> None:
    publish(tmp_path, 1)
    second = publish(tmp_path, 2)
    (row,) = DeltaTable(tmp_path / "revisions").to_pyarrow_table().to_pylist()
    assert (row["revision"], row["content_sha256"]) == (2, second.content_sha256)
    assert row["tables"] == [{"name": "windows", "version": second.tables["windows"]}]
    kinds = pa.schema(DeltaTable(tmp_path / "revisions").schema().to_arrow())
    assert kinds.field("published_at").type == pa.timestamp("us", tz="UTC")
    (told,) = delta_log.rows(tmp_path / "revisions")
    assert told == row


def test_a_build_that_was_killed_after_its_tables_changes_nothing(tmp_path, monkeypatch) -> None:
    publish(tmp_path, 1)
    with monkeypatch.context() as patched:
        patched.setattr(Publication, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            publish(tmp_path, 7)
    newest = DeltaTable(tmp_path / "tables" / "windows").to_pyarrow_table()
    assert 7 in newest["x"].to_pylist()  # bare paths may show what no revision holds
    dataset = Dataset.open(tmp_path)
    assert dataset.problems() == []
    assert set(pa.Table.from_batches(dataset.table("windows"))["x"].to_pylist()) == {1}
    publish(tmp_path, 2)
    rows = delta_log.rows(tmp_path / "tables" / "windows")
    assert {row["x"] for row in rows} == {1, 2}
    held = {str(f.relative_to(tmp_path)) for f in (tmp_path / "tables").rglob("*.parquet")}
    assert len(held) == PARTITIONS + PARTITIONS // 2  # of this revision and the one before


def test_of_two_builds_at_once_one_is_refused_and_nothing_is_mixed(tmp_path) -> None:
    publish(tmp_path, 1)
    last = Store(tmp_path).current()
    slow = Publication(Store(tmp_path).home, last)  # on another machine: no lock keeps it out
    fast = publish(tmp_path, 2)
    late = fast.model_copy(update={"content_sha256": "f" * 64})
    with pytest.raises(DatasetError, match="another build of this dataset has published"):
        slow.publish(late, {})
    first = Publication(Store(tmp_path / "new").home, None)
    publish(tmp_path / "new", 1)
    with pytest.raises(DatasetError, match="another build of this dataset has published"):
        first.publish(late, {})
    for place in (tmp_path, tmp_path / "new"):
        assert Dataset.open(place).problems() == []
    assert Dataset.open(tmp_path).manifest == fast


def test_another_type_of_a_column_needs_a_whole_build(tmp_path) -> None:
    publish(tmp_path, 1, later=pa.array([1] * 1000))
    with pytest.raises(StorageError, match=r"'windows' cannot be written.*build with --rebuild"):
        publish(tmp_path, 2, later=pa.array(["y"] * 1000))
    assert Dataset.open(tmp_path).problems() == []


def test_rows_of_a_partition_keep_their_order_whatever_files_spark_cut_them_into(tmp_path) -> None:
    folder = tmp_path / "built" / "job=it's a%3Db" / "day=2026-03-01"
    parts = np.array_split(np.arange(1_500_000), 3)
    for number, rows in enumerate(parts):
        write_parquet(folder / f"part-0-uuid.c00{number}.parquet", pa.table({"x": rows}))
    publication = Publication(DatasetHome.of(tmp_path), None)
    of = ("it's a=b", "2026-03-01")
    for version, again in enumerate(({}, {}, {("q", "2026-03-01"): folder})):
        last = None if not version else SimpleNamespace(tables={"windows": version - 1})
        publication.last = last
        assert publication.commit("windows", {of: folder, **again}, ())[0] == version
    opened = publication.home.table("tables", "windows").to_pyarrow_dataset()
    found = [part.read("x", opened.schema) for part in parts_of(opened) if part.job == of[0]]
    assert np.array_equal(pa.concat_tables(found)["x"], np.arange(1_500_000))
    publication.last = SimpleNamespace(tables={"windows": 2})
    publication.commit("windows", {}, {("q", "2026-03-01")})  # what no source holds is dropped
    (part,) = parts_of(publication.home.table("tables", "windows").to_pyarrow_dataset())
    assert part.job == "q"


def test_a_column_that_no_file_has_is_refused(tmp_path) -> None:
    publish(tmp_path, 1)
    dataset = Dataset.open(tmp_path)
    with pytest.raises(DatasetError, match=r"'windows' has no column 'dai'.*Did you mean 'day'"):
        dataset.table("windows", columns=["x", "dai"])  # before any row is asked for
    with pytest.raises(DatasetError, match="no table 'window'"):
        dataset.table("window")
    new = pa.Table.from_batches(dataset.table("windows", columns=["x", "new"], lenient=True))
    assert new["new"].null_count == new.num_rows == 1000 * PARTITIONS


def test_a_column_that_kept_files_were_written_without_is_null_there(tmp_path) -> None:
    publish(tmp_path, 1)
    publish(tmp_path, 2, later=pa.array(["y"] * 1000))
    batches = list(Dataset.open(tmp_path).table("windows", columns=["job", "day", "later"]))
    known = [batch for batch in batches if batch["later"].null_count == 0]
    days = {day for batch in known for day in batch["day"].to_pylist()}
    assert days == {"2026-03-01", "2026-03-03", "2026-03-05"}
    assert sum(map(len, batches)) == 1000 * PARTITIONS
    read = Dataset.open(tmp_path).delta("windows").to_pyarrow_table()
    assert read["later"].null_count == 3000


def test_partitions_that_are_kept_are_not_written_again(tmp_path) -> None:
    publish(tmp_path, 1)
    (file,) = tmp_path.rglob("tables/windows/job=q/day=2026-03-02/*.parquet")
    publish(tmp_path, 2)
    publish(tmp_path, 3)
    assert list(tmp_path.rglob("tables/windows/job=q/day=2026-03-02/*.parquet")) == [file]
    assert len(list(tmp_path.rglob("tables/windows/job=q/day=2026-03-01/*.parquet"))) == 2
    assert sorted(f.name for f in (tmp_path / "reports").iterdir()) == ["2", "3"]


def test_a_reader_of_the_revision_before_goes_on(tmp_path) -> None:
    publish(tmp_path, 1)
    opened = Dataset.open(tmp_path)
    publish(tmp_path, 2)
    assert opened.problems() == []


def test_a_dataset_of_an_earlier_release_becomes_one_of_delta_tables(tmp_path, monkeypatch) -> None:
    new, old = tmp_path / "new", tmp_path / "old" / "revisions" / "7"
    document = publish(new, 1).model_dump(mode="json", by_alias=True)
    document |= {"schema": "dsp-gym/dataset/1", "revision": 7}
    del document["tables"]
    for partition in document["partitions"]:
        file = Path(f"tables/windows/job=q/day={partition['day']}/part-00000.parquet")
        (origin,) = new.glob(f"{file.parent}/*.parquet")
        (old / file.parent).mkdir(parents=True)
        shutil.copyfile(origin, old / file)
        partition["tables"]["windows"]["files"] = [str(file)]
    (old / "manifest.json").write_text(json.dumps(document))
    (old / "quality.json").write_text("{}")
    (tmp_path / "old" / "CURRENT").write_text("7\n")
    with pytest.raises(StorageError, match="of an earlier release"):
        Dataset.open(tmp_path / "old")

    with monkeypatch.context() as patched:  # killed before it is over: the old one is there still
        patched.setattr(Publication, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            Store(tmp_path / "old").current()
    found = Store(tmp_path / "old").current()
    assert (found.revision, found.content_sha256) == (7, document["content_sha256"])
    assert Dataset.open(tmp_path / "old").problems() == []
    assert (tmp_path / "old" / "reports" / "7" / "quality.json").read_text() == "{}"
    assert publish(tmp_path / "old", 2).revision == 8
    assert Dataset.open(tmp_path / "old").problems() == []
    assert not list(old.rglob("*.parquet"))


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


def _killed_at(folder: Path, value: int, line: int, after_s: float, lines: c_int) -> None:
    """Publishes, and is killed so soon after the so many-th line of the publication."""

    def traced(frame: FrameType, event: str, _: object) -> object:
        if not frame.f_code.co_filename.endswith(TRACED):
            return None
        if event == "line":
            lines.value += 1
            if lines.value == line and after_s:  # inside what it calls, too: most of that is Rust
                threading.Timer(after_s, os.kill, (os.getpid(), signal.SIGKILL)).start()
            elif lines.value == line:
                os.kill(os.getpid(), signal.SIGKILL)
        return traced

    sys.settrace(traced)
    publish(folder, value, f"build-{value}")


@pytest.mark.slow
def test_killed_before_any_line_of_publication_it_is_whole_and_the_next_build_finishes(
    tmp_path,
) -> None:
    # Of a server that has imported all this: a process of its own per build is started at once.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    lines = context.RawValue("i", 0)

    def run(value: int, line: int, after_s: float = 0.0) -> int | None:
        lines.value = 0
        told = (tmp_path, value, line, after_s, lines)
        builder = context.Process(target=_killed_at, args=told)
        builder.start()
        builder.join()
        return builder.exitcode

    assert run(1, -1) == 0
    assert run(2, -1) == 0  # as each of those to be killed: half of it is kept
    count, before = lines.value, Dataset.open(tmp_path).manifest
    assert count > 300
    ends, moments = Counter[int](), random.Random(5)
    for value in range(3, 3 + KILLS):
        after_s = value % 2 * moments.uniform(0.0, 0.02)
        # The row is replaced in the last tenth: as many kills come before it as around it.
        line = moments.randint(1 if value % 4 < 2 else count - count // 8, count)
        assert run(value, line, after_s) in (-signal.SIGKILL, 0)
        dataset = Dataset.open(tmp_path)
        assert dataset.problems() == []
        rows = seen(
            delta_log.rows(tmp_path / "tables" / "windows", dataset.manifest.tables["windows"])
        )
        is_new = dataset.manifest.revision > before.revision
        assert dataset.manifest.revision - before.revision in (0, 1)
        assert is_new or dataset.manifest == before
        made = value if is_new else int(before.partitions[0].inputs_sha256)
        assert {x for _, _, x in rows} == {1, made}
        ends[is_new] += 1
        before = dataset.manifest
    assert ends[False] > 0 < ends[True]
    finished = publish(tmp_path, 99)
    assert Dataset.open(tmp_path).manifest == finished
    assert Dataset.open(tmp_path).problems() == []
    assert not list(tmp_path.glob(".building-*"))
    held = list((tmp_path / "tables").rglob("*.parquet"))
    assert len(held) == PARTITIONS + PARTITIONS // 2  # of this revision and the one before
