"""Every kind of source becomes rows of one schema; defects of a source are reported."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import csv, parquet

from dsp_gym.config.files import parse
from dsp_gym.datasets.rollouts.plan import RolloutConfig
from dsp_gym.datasets.rollouts.run import rollout
from dsp_gym.envs.core import EnvCore
from dsp_gym.errors import DatasetError, DspGymError
from dsp_gym.job.catalog import load_job
from dsp_gym.metrics.samples import Samples
from dsp_gym.records.journal import Journal
from dsp_gym.records.journal import read as read_journal
from dsp_gym.records.recording import Recording
from spark_pipelines.config import DatasetConfig
from spark_pipelines.scan import chunks_of
from spark_pipelines.scan import rows_of as rows_of_chunk
from spark_pipelines.sources import archives, reader_of
from spark_pipelines.sources.staging import stage_rows
from tests.dataset_inputs import (
    DAY_S,
    MARCH_1,
    archive,
    archive_file,
    day_of_samples,
    job_file,
    line_names,
    recording,
    write_journal,
)
from tests.simulating import line

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COLUMNS = ("t_s", "vertex", "subtask", "metric", "value")


def source_of(**source):
    return parse(DatasetConfig, {"name": "d", "sources": [source]}, "test").sources[0]


def surveyed(tmp_path, **source):
    return reader_of(source["kind"]).survey(source_of(**source), "s", tmp_path / ".staging" / "s")


def read(spark, facts, only=None):
    return reader_of(facts.kind).read(spark, facts, only)


def rows_of(frame, *order) -> list[dict]:
    return [row.asDict(recursive=True) for row in frame.orderBy(*order).collect()]


def raw_of(frame) -> Samples:
    return Samples.of(tuple(row[c] for c in COLUMNS) for row in frame.collect())


def same(one: Samples, other: Samples) -> None:
    for column in COLUMNS:
        np.testing.assert_array_equal(getattr(one, column), getattr(other, column))


def test_a_recording_is_read_as_it_was_recorded(spark, tmp_path) -> None:
    folder = recording(tmp_path / "recording")
    facts = surveyed(tmp_path, kind="recordings", folder=str(folder))
    assert facts.clock == "run"
    assert facts.partitions() == {("line", "0000-00-00")}
    assert facts.loads == {"run-0": "steady", "run-1": "steady"}
    inputs = read(spark, facts)
    for run in Recording.open(folder).runs:
        same(raw_of(inputs.rows().where(f"run = '{run.name}'")), run.samples())
    events = rows_of(inputs.events, "run", "t_s")
    assert [event["kind"] for event in events] == ["running", "running"]
    told = json.loads(events[0]["body"])["parallelism"]
    assert told == {"source": 4, "map": 2, "sink": 1}
    assert facts.rows() == inputs.rows().count()


def test_only_the_runs_that_were_named_are_read(spark, tmp_path) -> None:
    folder = recording(tmp_path / "recording")
    facts = surveyed(tmp_path, kind="recordings", folder=str(folder), runs=["*-1"])
    assert [piece.run for piece in facts.pieces] == ["run-1"]
    with pytest.raises(DatasetError, match=r"no complete run .* It has run-0, run-1"):
        surveyed(tmp_path, kind="recordings", folder=str(folder), runs=["x"])


def test_a_recording_in_unix_time_is_cut_at_midnight(spark, tmp_path) -> None:
    folder = recording(tmp_path / "recording", seconds=1200, runs=1)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["started_unix_s"] = MARCH_1 + DAY_S - 600
    (folder / "manifest.json").write_text(json.dumps(manifest))
    facts = surveyed(tmp_path, kind="recordings", folder=str(folder))
    assert facts.partitions() == {("line", "2026-03-01"), ("line", "2026-03-02")}
    inputs = read(spark, facts, [("line", "2026-03-02")])
    (run,) = {row["run"] for row in inputs.rows().select("run").distinct().collect()}
    assert run == "run-0@2026-03-02"
    assert inputs.rows().agg({"t_s": "min"}).first()[0] == MARCH_1 + DAY_S
    events = rows_of(inputs.events, "t_s")
    assert [(e["run"], e["t_s"]) for e in events] == [
        ("run-0@2026-03-01", MARCH_1 + DAY_S - 600),
        ("run-0@2026-03-02", MARCH_1 + DAY_S),
    ]
    assert events[0]["body"] == events[1]["body"]


def test_a_recording_that_was_changed_is_refused(tmp_path) -> None:
    folder = recording(tmp_path / "recording", runs=1)
    file = next(folder.glob("samples/*.parquet"))
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(DatasetError, match=r"run 'run-0' of job 'line'.*sha256"):
        surveyed(tmp_path, kind="recordings", folder=str(folder))


def test_rollouts_are_read_as_they_were_kept(spark, tmp_path) -> None:
    small = {
        "policies": ["static", "ds2"],
        "jobs": ["nexmark-q11"],
        "loads": {"train": {"loads": ["diurnal-bursts"], "seeds": {"from": 0, "to": 2}}},
        "env": {"episode_s": 600},
    }
    manifest = rollout(parse(RolloutConfig, small, "test"), tmp_path / "rollouts")
    facts = surveyed(tmp_path, kind="rollouts", folder=str(tmp_path / "rollouts"))
    assert set(facts.loads.values()) == {"diurnal-bursts"}
    decisions = read(spark, facts).decisions
    rows = rows_of(decisions, "run", "step")
    assert len(rows) == sum(cell.rows for cell in manifest.cells) == 4 * 11
    assert {row["source"] for row in rows} == {"s"}
    assert rows[0]["snapshot"]["t_s"] == rows[0]["t_s"]
    assert rows[10]["parallelism"] is None  # how the episode ended
    (tmp_path / "rollouts" / manifest.cells[0].file).unlink()
    with pytest.raises(DatasetError, match="sha256"):
        surveyed(tmp_path, kind="rollouts", folder=str(tmp_path / "rollouts"))


def test_a_journal_becomes_decisions_day_by_day(spark, tmp_path) -> None:
    for day in (0, 1):
        write_journal(tmp_path / "journal", day)
    source = {"kind": "journals", "folder": str(tmp_path / "journal"), "job": job_file(tmp_path)}
    facts = surveyed(tmp_path, **source)
    assert facts.partitions() == {("line", "2026-03-01"), ("line", "2026-03-02")}
    assert len(list((tmp_path / "journal").glob("journal-*"))) > 2  # of several segments
    rows = rows_of(read(spark, facts, [("line", "2026-03-02")]).decisions, "step")
    assert [row["step"] for row in rows] == list(range(8))
    at = line_names().index("map")
    assert [row["parallelism"] and row["parallelism"][at] for row in rows] == [
        *(rows[0]["snapshot"]["parallelism"][at],) * 2,
        *(3,) * 5,
        None,
    ]
    assert {row["policy"] for row in rows[:-1]} == {"scaler"}
    assert rows[3]["reward_source"] == "metrics"
    assert rows[2]["rescale"] == 1.0
    entry = json.loads(
        next(
            line
            for segment in sorted((tmp_path / "journal").glob("journal-*"))
            for line in segment.read_text().splitlines()
            if '"kind":"snapshot"' in line and '"t_s":17724132' in line
        )
    )
    assert rows[0]["t_s"] == entry["t_s"]
    assert rows[0]["snapshot"]["window_fill"] == entry["body"]["metrics"]["window_fill"]


def test_a_planner_learns_from_a_journals_snapshots(spark, tmp_path) -> None:
    from agents.planning.history import pasts
    from dsp_gym.sizing.service import SizingConfig
    from spark_pipelines.build import build

    for day in (0, 1):
        write_journal(tmp_path / "journal", day)
    file = job_file(tmp_path)
    source = {"kind": "journals", "folder": str(tmp_path / "journal"), "job": file}
    made = {"name": "d", "sources": [source], "tables": ["snapshots"]}
    build(parse(DatasetConfig, made, "test"), tmp_path / "dataset")
    spec = load_job(file)
    past = pasts(tmp_path / "dataset", [spec], SizingConfig(), filed=True)["line"]
    assert [len(load) for load in past.loads] == [
        6,
        6,
    ]  # eight looks a minute apart, one of them in an outage
    assert all((load > 0).all() for load in past.loads)
    assert past.vertices == tuple(line_names())
    assert past.service["tried"].sum() > 0
    with pytest.raises(DatasetError, match="no snapshots of nexmark-q1"):
        pasts(tmp_path / "dataset", [load_job("nexmark-q1")], SizingConfig(), filed=True)


def test_the_reference_cost_of_a_journal_is_the_environments(spark, tmp_path) -> None:
    from dsp_gym.envs.config import EnvConfig
    from dsp_gym.job.sizing import reference_cost_per_s
    from dsp_gym.loop.topology import Topology
    from spark_pipelines.sources.journals import HEADROOM

    topology = Topology.of([load_job("nexmark-q11"), line()])
    expected = EnvCore(topology, EnvConfig()).reference_cost_per_s
    for row in range(2):
        alone = Topology.of([topology.spec(row)])
        (unit,) = reference_cost_per_s(alone.tables, alone.row, HEADROOM)
        assert unit == expected[row]


def test_what_was_not_enacted_is_told_by_what_ran_next(spark, tmp_path) -> None:
    write_journal(tmp_path / "journal", 0, applied=False)
    facts = surveyed(
        tmp_path, kind="journals", folder=str(tmp_path / "journal"), job=job_file(tmp_path)
    )
    rows = rows_of(read(spark, facts).decisions, "step")
    at = line_names().index("map")
    assert {row["policy"] for row in rows[:-1]} == {"observed"}
    runs = rows[0]["snapshot"]["parallelism"][at]
    assert {row["proposed_parallelism"][at] for row in rows[:-1]} == {runs}


def test_a_journal_may_begin_after_its_first_segment(spark, tmp_path) -> None:
    write_journal(tmp_path / "journal", 0)
    segments = sorted((tmp_path / "journal").glob("journal-*"))
    segments[0].unlink()
    source = {"kind": "journals", "folder": str(tmp_path / "journal"), "job": job_file(tmp_path)}
    assert 0 < surveyed(tmp_path, **source).rows() < 8


def test_a_journal_of_another_job_is_refused(tmp_path) -> None:
    write_journal(tmp_path / "journal", 0, applied=False)
    source = {"kind": "journals", "folder": str(tmp_path / "journal"), "job": job_file(tmp_path)}
    with pytest.raises(DatasetError, match=r"no snapshot of a job 'lime'.*'line'"):
        surveyed(tmp_path, **source, key="lime")
    with pytest.raises(DatasetError, match=r"has the vertices .*; its job file has"):
        surveyed(tmp_path, **source | {"job": "nexmark-q11"}, key="line")
    # It began as the job of the file, and went on as another.
    entries = list(read_journal(tmp_path / "journal"))
    last = max(n for n, entry in enumerate(entries) if entry.kind == "snapshot")
    with Journal(tmp_path / "grown") as journal:
        for n, entry in enumerate(entries):
            body = json.loads(json.dumps(entry.body).replace('"map"', '"mop"'))
            journal.append(
                entry.kind, entry.t_s, entry.job, entry.policy, body if n >= last else entry.body
            )
    with pytest.raises(DatasetError, match=r"has the vertices .*mop.*; its job file has"):
        surveyed(tmp_path, **source | {"folder": str(tmp_path / "grown")})
    Journal(tmp_path / "empty").close()
    with pytest.raises(DatasetError, match="no snapshot"):
        surveyed(tmp_path, **source | {"folder": str(tmp_path / "empty")})


def test_series_become_counters_gauges_and_outages(spark, tmp_path, data_folder) -> None:
    name = "demeter_cars_flink_operator_autoscaler"
    facts = surveyed(
        tmp_path, kind="series", file=str(data_folder / f"{name}.csv"), job="demeter-cars"
    )
    inputs = read(spark, facts)
    raw = raw_of(inputs.rows())
    times, _, counted = raw.grid("log", "records_out_total")
    assert times[0] == 30
    assert counted[0, 0] == 22147.0 * 30
    assert counted[1, 0] - counted[0, 0] == 33978.0 * 30
    assert raw.grid("main", "latency_p95_ms")[2][0, 0] == pytest.approx(780.0)
    assert raw.grid("log", "pending_records")[2][0, 0] == 531.0 * 24
    events = rows_of(inputs.events, "t_s")
    assert [event["t_s"] for event in events[:3]] == [0.0, 152.0, 191.0]
    assert json.loads(events[2]["body"])["parallelism"] == {"log": 12, "main": 12}


def test_measured_runs_become_raw_rows(spark, tmp_path, data_folder) -> None:
    facts = surveyed(
        tmp_path, kind="flink_runs", folder=str(data_folder / "flink_runs"),
        job="flink-runs-update", runs=["dyn-*"],
    )  # fmt: skip
    inputs = read(spark, facts)
    assert {piece.run for piece in facts.pieces} == {"dyn-a-0", "dyn-a-1", "dyn-a-2"}
    assert inputs.rows().count() == facts.rows()
    with gzip.open(data_folder / "flink_runs" / "samples.csv.gz", "rt") as stream:
        first = next(row.split(",") for row in stream if row.startswith("dyn-a-0,"))
    found = raw_of(inputs.rows().where(f"run = 'dyn-a-0' and t_s = {first[1]}"))
    assert first[2] in found.vertices()


@pytest.mark.parametrize("left", ["", '{"rows": 1, "da', None])
def test_a_staged_file_whose_facts_were_cut_off_is_staged_again(tmp_path, left) -> None:
    rows = [(MARCH_1, "map", 0, "busy_ms_per_s", 1.0), (MARCH_1 + DAY_S, "map", 0, "x", 2.0)]
    first = stage_rows(tmp_path, "s", "line", "run", "a" * 64, rows)
    assert (first.rows, len(first.partitions)) == (2, 2)
    facts = first.file.with_suffix(".json")
    facts.unlink() if left is None else facts.write_text(left)
    assert stage_rows(tmp_path, "s", "line", "run", "a" * 64, rows) == first
    assert stage_rows(tmp_path, "s", "line", "run", "a" * 64, []) == first  # as it was kept


def test_archives_long_and_wide_tell_the_same(spark, tmp_path) -> None:
    samples = day_of_samples(0, 60)
    archive_file(tmp_path / "long" / "a.parquet", samples)
    job = job_file(tmp_path)
    long = surveyed(tmp_path, kind="archives", folder=str(tmp_path / "long"), job=job)
    same(raw_of(read(spark, long).rows()), samples)
    wide: dict[tuple, dict] = {}
    for t_s, vertex, subtask, metric, value in samples.rows():
        wide.setdefault((t_s, vertex, subtask), {})[f"m_{metric}"] = value
    table = [{"when": k[0], "vertex": k[1], "subtask": k[2], **found} for k, found in wide.items()]
    names = sorted({name for row in table for name in row})
    (tmp_path / "wide").mkdir()
    lines = [",".join(names)]
    lines += [",".join(str(row.get(name, "")) for name in names) for row in table]
    (tmp_path / "wide" / "a.csv").write_text("\n".join(lines) + "\n")
    columns = {"t_s": "when"} | {metric: f"m_{metric}" for metric in set(samples.metric.tolist())}
    other = surveyed(
        tmp_path, kind="archives", folder=str(tmp_path / "wide"), files="*.csv", job=job,
        layout="wide", columns=columns,
    )  # fmt: skip
    same(raw_of(read(spark, other).rows()), samples)


def test_a_row_without_a_time_is_of_its_files_first_day_whatever_its_path(spark, tmp_path) -> None:
    for number, name in enumerate(("day=2026-03-01", "day=2026-03-02", "a b+c%41ü/d,e;f&g'h")):
        samples = day_of_samples(number, 60)
        t_s = pa.array([None, *samples.t_s[1:]], pa.float64())
        archive_file(tmp_path / "archive" / name / "part 1.parquet", samples, t_s=t_s)
    source = {"kind": "archives", "folder": str(tmp_path / "archive"), "job": job_file(tmp_path)}
    facts = surveyed(tmp_path, **source)
    days = {piece.partitions for piece in facts.pieces}
    assert len(days) == 3
    inputs = read(spark, facts)
    timeless = inputs.rows().where("t_s is null").collect()
    assert {((row["job"], row["day"]),) for row in timeless} == days
    chunks = [chunk for bundle in chunks_of([inputs.scan], 3) for chunk in bundle]
    scanned = {rows.runs[rows.run[0]][2] for chunk in chunks for rows in rows_of_chunk(chunk)}
    assert scanned == {day for ((_, day),) in days}  # a run is a day


def test_csv_files_of_whole_numbers_and_of_fractions_are_one_archive(spark, tmp_path) -> None:
    (tmp_path / "archive").mkdir()
    source = {"kind": "archives", "folder": str(tmp_path / "archive"), "job": job_file(tmp_path)}
    for layout, (first, *lines) in {
        "long": (
            "t_s,vertex,subtask,metric,value",
            "{},map,0,busy_ms_per_s,100",
            "{}.5,map,0,busy_ms_per_s,100.5",
            "{},map,0,busy_ms_per_s,",
        ),
        "wide": (
            "t_s,vertex,subtask,busy_ms_per_s,pending_records",
            "{},map,0,100,7",
            "{}.5,map,0,100.5,",
            "{},map,0,,8",
        ),
    }.items():
        for number, text in enumerate(lines):
            written = f"{first}\n{text.format(int(MARCH_1) + number)}\n"
            (tmp_path / "archive" / f"{number}.csv").write_text(written)
        inputs = read(spark, surveyed(tmp_path, **source, files="*.csv", layout=layout))
        found = {(r["t_s"] - MARCH_1, r["metric"]): r["value"] for r in inputs.rows().collect()}
        assert found[0, "busy_ms_per_s"] == 100.0
        assert found[1.5, "busy_ms_per_s"] == 100.5
        if layout == "wide":
            assert found[2, "pending_records"] == 8.0
    (tmp_path / "archive" / "2.csv").write_text("t_s,vertex,subtask,metric,value\n1,map,0,x,ten\n")
    with pytest.raises(DatasetError, match=r"2\.csv.*read as CSV.*'ten'.*numbers as times"):
        surveyed(tmp_path, **source, files="2.csv")


def test_files_of_a_wide_archive_may_have_different_columns_and_types(spark, tmp_path) -> None:
    folder = tmp_path / "archive"
    folder.mkdir()
    keys = {"vertex": ["map"], "subtask": [0]}
    for name, columns in {
        "a": {"t_s": [MARCH_1], "busy_ms_per_s": [100]},
        "b": {"t_s": [int(MARCH_1) + 5], "busy_ms_per_s": [100.5], "pending_records": [7]},
        "c": {"pending_records": [8.5], "t_s": [MARCH_1 + 10], "note": ["no metric"]},
    }.items():
        parquet.write_table(pa.table(keys | columns), folder / f"{name}.parquet")
    source = {"kind": "archives", "folder": str(folder), "job": job_file(tmp_path)}
    inputs = read(spark, surveyed(tmp_path, **source, layout="wide"))
    assert inputs.metrics == {"busy_ms_per_s", "pending_records"}
    found = [(r["t_s"] - MARCH_1, r["metric"], r["value"]) for r in inputs.rows().collect()]
    assert sorted(found) == [
        (0, "busy_ms_per_s", 100.0),
        (5, "busy_ms_per_s", 100.5),
        (5, "pending_records", 7.0),
        (10, "pending_records", 8.5),
    ]
    for file in folder.iterdir():
        parquet.write_table(pa.table(keys | {"t_s": [MARCH_1], "note": ["x"]}), file)
    with pytest.raises(DatasetError, match="no column is a metric, found vertex, subtask, t_s, no"):
        read(spark, surveyed(tmp_path, **source, layout="wide"))


def test_a_file_of_an_archive_is_read_only_for_its_days(spark, tmp_path) -> None:
    folder = archive(tmp_path / "archive", days=3, seconds=60)
    facts = surveyed(tmp_path, kind="archives", folder=str(folder), job=job_file(tmp_path))
    assert [piece.name for piece in facts.holding([("line", "2026-03-02")])] == ["day-1.parquet"]
    raw = read(spark, facts, [("line", "2026-03-02")]).rows()
    same(raw_of(raw), day_of_samples(1, 60))
    assert {row["run"] for row in raw.select("run").collect()} == {"2026-03-02"}


def test_the_hash_of_an_archive_is_that_of_its_content_whatever_it_is_called(tmp_path) -> None:
    source = {"kind": "archives", "folder": str(archive(tmp_path / "a")), "job": job_file(tmp_path)}
    named = source | {"name": "archives"}  # as --follow names it
    moved = source | {"folder": str(archive(tmp_path / "b"))}
    one, *others = (surveyed(tmp_path, **wanted) for wanted in (source, named, moved))
    for other in others:
        assert [piece.sha256 for piece in other.pieces] == [piece.sha256 for piece in one.pieces]
    changed = surveyed(tmp_path, **source, run="x")
    assert changed.pieces[0].sha256 != one.pieces[0].sha256


def test_an_archive_on_a_runs_own_clock_is_read_whole_whatever_its_days_are(tmp_path) -> None:
    for day in (0, 1):
        one = day_of_samples(day, 60)
        archive_file(tmp_path / "archive" / f"{day}.parquet", one, t_s=pa.array(one.t_s - MARCH_1))
    source = {"kind": "archives", "folder": str(tmp_path / "archive"), "job": job_file(tmp_path)}
    facts = surveyed(tmp_path, **source)
    days = {("line", "0000-00-00"), ("line", "0000-00-01")}
    assert facts.clock == "run"
    assert facts.partitions() == days
    for day in days:  # its run reaches over midnight, and so do windows and outages
        assert facts.holding([day]) == facts.pieces
    last = surveyed(tmp_path, **source | {"folder": str(archive(tmp_path / "unix", 2, 60))})
    assert [len(piece.partitions) for piece in last.pieces] == [1, 1]


RENAMED = {"t_s": "when", "vertex": "operator", "subtask": "task", "metric": "name", "value": "v"}


def test_an_archive_may_call_every_column_by_another_name(tmp_path) -> None:
    samples, job = day_of_samples(0, 60), job_file(tmp_path)
    archive_file(tmp_path / "archive" / "a.parquet", samples)
    table = parquet.ParquetFile(tmp_path / "archive" / "a.parquet").read()
    table = table.rename_columns([RENAMED[name] for name in table.column_names])
    parquet.write_table(table, tmp_path / "archive" / "a.parquet")
    # A vertex whose name is a number stays a text in a CSV.
    numbered = pc.if_else(pc.equal(table["operator"], "map"), "7", table["operator"])
    at = table.column_names.index("operator")
    csv.write_csv(table.set_column(at, "operator", numbered), tmp_path / "archive" / "a.csv")
    for files, vertex in (("*.parquet", "map"), ("*.csv", "7")):
        facts = surveyed(
            tmp_path, kind="archives", folder=str(tmp_path / "archive"), files=files, job=job,
            columns=RENAMED,
        )  # fmt: skip
        assert facts.partitions() == {("line", "2026-03-01")}
        rows = read_as_arrow(facts)
        assert rows["value"] == samples.value.tolist()
        expected = [vertex if name == "map" else name for name in samples.vertex.tolist()]
        assert rows["vertex"] == expected
    text = pa.array([str(v) for v in samples.value])
    at = table.column_names.index("v")
    parquet.write_table(table.set_column(at, "v", text), tmp_path / "archive" / "a.parquet")
    with pytest.raises(DatasetError, match="column 'v' is string, expected a number"):
        surveyed(
            tmp_path, kind="archives", folder=str(tmp_path / "archive"), job=job, columns=RENAMED
        )


def read_as_arrow(facts) -> dict[str, list]:
    """Values and vertices of a source's files, as workers read them."""
    scan = archives.read(None, facts).scan
    found: dict[str, list] = {"value": [], "vertex": []}
    for chunk in [chunk for bundle in chunks_of([scan], 1) for chunk in bundle]:
        for rows in rows_of_chunk(chunk):
            found["value"] += rows.value.tolist()
            found["vertex"] += [rows.vertices[code] for code in rows.vertex]
    return found


def bad(tmp_path, **changed):
    archive_file(tmp_path / "archive" / "a.parquet", day_of_samples(0, 60), **changed)
    source = {"kind": "archives", "folder": str(tmp_path / "archive"), "job": job_file(tmp_path)}
    with pytest.raises(DspGymError) as error:
        surveyed(tmp_path, **source)
    return str(error.value)


def test_a_missing_column_is_named_with_its_file(tmp_path) -> None:
    text = bad(tmp_path, value=None)
    assert "a.parquet" in text
    assert "has no column 'value'" in text


def test_a_column_of_another_type_is_named_with_what_stands_in_it(tmp_path) -> None:
    count = len(day_of_samples(0, 60))
    text = bad(tmp_path, value=pa.array(["12 ms"] * count))
    assert "column 'value' is string, expected a number" in text
    assert "'12 ms'" in text


def test_milliseconds_are_told_from_seconds(tmp_path) -> None:
    t_s = day_of_samples(0, 60).t_s
    assert "milliseconds" in bad(tmp_path, t_s=pa.array(np.append(t_s[:-1], 1000 * t_s[-1])))
    assert "some seconds of a run" in bad(tmp_path, t_s=pa.array(np.append([5.0], t_s[1:])))


def test_rows_without_a_time_are_judged_and_a_file_without_any_time_is_named(tmp_path) -> None:
    samples, file = day_of_samples(0, 60), tmp_path / "archive" / "a.parquet"
    archive_file(file, samples)
    source = {"kind": "archives", "folder": str(tmp_path / "archive"), "job": job_file(tmp_path)}
    table = parquet.ParquetFile(file).read()
    at, half = table.column_names.index("t_s"), len(table) // 2
    none = pa.nulls(len(table) - half, pa.float64())
    partly = table.set_column(at, "t_s", pa.concat_arrays([pa.array(samples.t_s[:half]), none]))
    for how in ({"row_group_size": half}, {"write_statistics": False}):
        parquet.write_table(partly, file, **how)
        facts = surveyed(tmp_path, **source)
        assert facts.partitions() == {("line", "2026-03-01")}
        assert facts.rows() == len(samples)
    parquet.write_table(table.set_column(at, "t_s", pa.nulls(len(table), pa.float64())), file)
    with pytest.raises(DatasetError, match=r"a\.parquet.*'t_s' has no time in any of \d+ rows"):
        surveyed(tmp_path, **source)


def test_a_file_without_rows_is_passed_over_whatever_its_types_are(tmp_path) -> None:
    folder = archive(tmp_path / "archive", 1, 60)
    parquet.write_table(pa.table(dict.fromkeys(COLUMNS, pa.nulls(0))), folder / "empty.parquet")
    source = {"kind": "archives", "folder": str(folder), "job": job_file(tmp_path)}
    assert [p.name for p in surveyed(tmp_path, **source).pieces] == ["day-0.parquet"]
    csv.write_csv(parquet.ParquetFile(folder / "day-0.parquet").read(), folder / "day-0.csv")
    (folder / "empty.csv").write_text(",".join(COLUMNS) + "\n")
    found = surveyed(tmp_path, **source, files="*.csv").pieces
    assert [piece.name for piece in found] == ["day-0.csv"]


def test_what_is_no_parquet_file_is_named(tmp_path) -> None:
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / "a.parquet").write_bytes(b"PAR1, or is it")
    source = {"kind": "archives", "folder": str(tmp_path / "archive"), "job": job_file(tmp_path)}
    with pytest.raises(DatasetError, match=r"a\.parquet.*source 's': is not a Parquet file"):
        surveyed(tmp_path, **source)


def test_an_empty_archive_is_refused(tmp_path) -> None:
    source = {"kind": "archives", "folder": str(tmp_path / "archive"), "job": job_file(tmp_path)}
    (tmp_path / "archive").mkdir()
    with pytest.raises(DatasetError, match="no file below it"):
        surveyed(tmp_path, **source)
    archive_file(tmp_path / "archive" / "a.parquet", Samples.of([]))
    with pytest.raises(DatasetError, match="empty"):
        surveyed(tmp_path, **source)
