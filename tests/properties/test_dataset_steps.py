"""The steps of the data pipeline equal a plain reference, for any defects of the rows.

Inputs are drawn by Hypothesis and go through Spark together, each as a run of its own.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from spark_pipelines.config import QualityConfig, WindowsConfig
from tests.dataset_reference import Raw, Result, reference

pytestmark = [pytest.mark.slow, pytest.mark.spark]

QUALITY = QualityConfig()
INPUTS, MANY_INPUTS = 6, 25
"""Per example: those of the first have no faults, those of the second have."""

METRICS = (
    "busy_ms_per_s", "backpressured_ms_per_s", "idle_ms_per_s", "busy_ms_total",
    "records_in_total", "records_out_total", "cache_hits_total", "cache_misses_total",
    "pending_records", "state_bytes", "latency_p95_ms", "tm_cpu_load",
    "state_read_latency_p50_ms", "state_read_latency_p99_ms",
)  # fmt: skip

CONSERVED = ("records_in_total", "records_out_total", "cache_hits_total", "cache_misses_total")

faults = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32 - 1),
        "subtasks": st.integers(1, 3),
        "step_s": st.sampled_from([1.0, 2.5, 5.0, 5.0, 15.0]),
        "jitter_s": st.sampled_from([0.0, 0.0, 0.4]),
        "restarts": st.integers(0, 2),
        "rescales": st.booleans(),
        "gaps": st.integers(0, 2),
        "missing": st.sampled_from([0.0, 0.05]),
        "duplicates": st.sampled_from([0.0, 0.1]),
        "conflicting": st.booleans(),
        "nan": st.sampled_from([0.0, 0.05]),
        "spoiled": st.sampled_from([0.0, 0.03]),
        "misplaced": st.sampled_from([0.0, 0.02]),
    }
)


def seconds_of(fault: dict[str, Any]) -> float:
    """Shorter where samples are close, so that inputs are of like size."""
    return 200.0 if fault["step_s"] >= 5 else 80.0


def rows_of(run: str, fault: dict[str, Any]) -> list[Raw]:
    """One run with its faults, in no order."""
    rng = np.random.default_rng(fault["seed"])
    seconds = seconds_of(fault)
    restarts = sorted(rng.uniform(20, seconds - 20, fault["restarts"]))
    gaps = [(begin, begin + rng.uniform(5, 60)) for begin in rng.uniform(0, seconds, fault["gaps"])]
    rows: list[Raw] = []
    for vertex in ("source", "op", "sink"):
        later = fault["rescales"] and restarts and vertex == "op"
        for subtask in range(fault["subtasks"] + bool(later)):
            begins_s = restarts[0] if later and subtask == fault["subtasks"] else 0.0
            rows += _series(run, vertex, subtask, begins_s, restarts, fault, rng)
    rows += [Raw(run, t, "", 0, "tm_cpu_load", rng.uniform(0, 1.02)) for t in (30.0, 60.0, 95.0)]
    rows = [r for r in rows if not any(a < r.t_s < b for a, b in gaps)]
    rows = [r for r in rows if rng.uniform() >= fault["missing"]]
    rows = [_spoiled(r, fault, rng) for r in rows]
    for row in list(rows):
        if rng.uniform() < fault["duplicates"]:
            more = rng.uniform(0, 3) if fault["conflicting"] else 0.0
            rows.append(row._replace(value=row.value + more))
    return [rows[i]._replace(value=float(rows[i].value)) for i in rng.permutation(len(rows))]


def _series(
    run: str, vertex: str, subtask: int, begins_s: float, restarts: list[float],
    fault: dict[str, Any], rng: np.random.Generator,
) -> list[Raw]:  # fmt: skip
    rows: list[Raw] = []
    counters = dict.fromkeys((*CONSERVED, "busy_ms_total"), 0.0)
    rate = rng.uniform(0, 500)
    before_s = begins_s
    for number in range(1, int(seconds_of(fault) / fault["step_s"]) + 1):
        t_s = number * fault["step_s"] + rng.uniform(-1, 1) * fault["jitter_s"]
        if t_s <= begins_s:
            continue
        if any(before_s < at <= t_s for at in restarts):
            counters = dict.fromkeys(counters, 0.0)
        passed_s, before_s = t_s - before_s, t_s
        busy = float(rng.integers(0, 700))
        back = float(rng.integers(0, 300))
        for name in CONSERVED:
            counters[name] += math.floor(rate * passed_s * rng.uniform(0.5, 1.5))
        counters["busy_ms_total"] += busy * passed_s
        seen = {
            "busy_ms_per_s": busy,
            "backpressured_ms_per_s": back,
            "idle_ms_per_s": 1000 - busy - back + rng.choice([0.0, 0.0, 60.0, 400.0]) * (
                rng.uniform() < 0.05),
            "records_in_total": 0.0 if vertex == "source" else counters["records_in_total"],
            "records_out_total": counters["records_out_total"],
        }  # fmt: skip
        if vertex == "source":
            seen["pending_records"] = float(rng.integers(0, 1000))
        if vertex == "op":
            seen["cache_hits_total"] = counters["cache_hits_total"]
            seen["cache_misses_total"] = counters["cache_misses_total"]
            seen["state_bytes"] = float(rng.integers(0, 2**24))
            seen["state_read_latency_p50_ms"] = rng.uniform(0, 1)
            seen["state_read_latency_p99_ms"] = rng.uniform(1, 2)
            if subtask % 2 == 0:
                seen["busy_ms_total"] = counters["busy_ms_total"]
        if vertex == "sink":
            seen["latency_p95_ms"] = rng.uniform(5, 500)
        rows += [Raw(run, t_s, vertex, subtask, name, value) for name, value in seen.items()]
    return rows


def _spoiled(row: Raw, fault: dict[str, Any], rng: np.random.Generator) -> Raw:
    if rng.uniform() < fault["nan"]:
        return row._replace(value=math.nan)
    if rng.uniform() < fault["spoiled"]:
        worse = (0.0, row.value * 0.7, row.value * 1e5, -1.0, math.inf, row.value + 5.0)
        return row._replace(value=float(rng.choice(worse)))
    if rng.uniform() < fault["misplaced"]:
        return row._replace(
            **[{"metric": "numRecordsIn"}, {"t_s": row.t_s + 1.7e12}, {"t_s": -row.t_s}][
                rng.integers(3)
            ]
        )
    return row


def through_spark(spark, rows: list[Raw], windows: WindowsConfig) -> Result:
    from spark_pipelines.quality.checks import flag, judge
    from spark_pipelines.quality.verdicts import accounting, failures, prove, split_verdicts
    from spark_pipelines.schema import RAW
    from spark_pipelines.steps.align import align, increases
    from spark_pipelines.steps.windows import decision_windows

    made = [
        ("s", "j", r.run, "d", float(r.t_s), r.vertex, r.subtask, r.metric, float(r.value))
        for r in rows
    ]
    judged = judge(spark.createDataFrame(made, RAW), QUALITY).persist()
    grid = flag(align(judged, METRICS), QUALITY).persist()
    account = prove(accounting(grid).collect(), failures(judged).collect())
    kept, quarantined = split_verdicts(judged, grid, 5.0)
    told = quarantined.collect()
    used = account["kept"] + account["merged"] + account["duplicates"]
    assert kept.count() == used - _twice(rows, told)
    out = Counter(
        (q["run"], q["t_s"], q["vertex"], q["subtask"], q["metric"], repr(q["value"]), q["check"])
        for q in told
    )
    found = {
        (row["run"], row["t_s"], row["vertex"]): row.asDict()
        for row in decision_windows(increases(grid, QUALITY.max_gap_s), windows).collect()
    }
    grid.unpersist()
    judged.unpersist()
    return Result(
        account["rows"], account["kept"], account["merged"], account["duplicates"],
        {k.partition(":")[2]: n for k, n in account.items() if ":" in k}, out, found,
    )  # fmt: skip


def scanned_grid(spark, folder, rows: list[Raw], files: int) -> dict[tuple, dict[str, Any]]:
    """The grid of rows that stand in files, each row in any of them, by series and slot."""
    from spark_pipelines.scan import COLUMNS, Scan, ScannedFile, chunks_of
    from spark_pipelines.steps.cells import CellRules
    from spark_pipelines.steps.scanned import scanned

    scans = []
    rng = np.random.default_rng(files)
    for run in sorted({row.run for row in rows}):
        mine = [row for row in rows if row.run == run]
        of, parts = rng.integers(files, size=len(mine)), []
        for number in range(files):
            part = [row for row, file in zip(mine, of, strict=True) if file == number]
            columns = {name: [getattr(row, name) for row in part] for name in COLUMNS}
            table = pa.table(columns | {"subtask": pa.array(columns["subtask"], pa.int32())})
            path = folder / f"{run}-{files}-{number}.parquet"
            parquet.write_table(table, path)
            parts.append(ScannedFile(str(path), run))
        scans.append(Scan("s", "j", tuple(parts), {name: name for name in COLUMNS}))
    wanted = CellRules(METRICS, QUALITY.time_tolerance_ms, True)
    return by_cell(scanned(spark, chunks_of(scans, 3), wanted))


def by_cell(grid) -> dict[tuple, dict[str, Any]]:
    keys = ("source", "job", "run", "vertex", "subtask", "slot")
    return {tuple(row[key] for key in keys): row.asDict() for row in grid.collect()}


@pytest.mark.parametrize("files", [pytest.param(1, marks=pytest.mark.validate), 3])
def test_workers_make_of_files_the_grid_that_spark_makes_of_rows(spark, tmp_path, files):
    from spark_pipelines.quality.checks import judge
    from spark_pipelines.schema import RAW
    from spark_pipelines.steps.align import align

    worst = {
        "seed": 1, "subtasks": 2, "step_s": 2.5, "jitter_s": 0.4, "restarts": 1, "rescales": True,
        "gaps": 1, "missing": 0.05, "duplicates": 0.1, "conflicting": True, "nan": 0.05,
        "spoiled": 0.03, "misplaced": 0.02,
    }  # fmt: skip
    faults_of = [worst, {**worst, "seed": 2, "step_s": 1.0, "duplicates": 0.0, "misplaced": 0.0}]
    rows = [row for n, fault in enumerate(faults_of) for row in rows_of(f"run-{n}", fault)]
    made = [
        ("s", "j", r.run, "d", float(r.t_s), r.vertex, r.subtask, r.metric, float(r.value))
        for r in rows
    ]
    expected = by_cell(align(judge(spark.createDataFrame(made, RAW), QUALITY), METRICS))
    found = scanned_grid(spark, tmp_path, rows, files)
    assert found.keys() == expected.keys()
    left_open = 0
    for key, values in expected.items():
        cell = found[key]
        if cell.pop("doubtful"):
            left_open += 1
            continue
        assert cell.keys() == values.keys()
        for name, value in values.items():
            # Sums of several parts are added up in the order of the parts.
            near = isinstance(value, float)
            expect = pytest.approx(value, rel=1e-14, abs=0) if near else value
            assert cell[name] == expect, (key, name)
    # Apart, nobody sees what stands twice; together, all of it is seen and nothing left open.
    assert (left_open > 0) == (files > 1)
    assert sum(cell["duplicates"] for cell in expected.values()) > 0


def _twice(rows: list[Raw], quarantined: list[Any]) -> int:
    """Rows given again of cells that were kept out: they are neither kept nor told twice."""
    cells = Counter((r.run, r.t_s, r.vertex, r.subtask, r.metric) for r in rows)
    of_cells = ("shares", "monotone", "jump")
    return sum(
        cells[q["run"], q["t_s"], q["vertex"], q["subtask"], q["metric"]] - 1
        for q in quarantined
        if q["check"] in of_cells
    )


once_without_faults_and_once_with = settings(
    max_examples=2, phases=[Phase.generate], suppress_health_check=list(HealthCheck), deadline=None
)
some_windows = st.sampled_from(
    [
        WindowsConfig(window_s=60, interval_s=30, stabilization_s=10),
        WindowsConfig(window_s=60, interval_s=60, stabilization_s=0),
    ]
)


@once_without_faults_and_once_with
@given(drawn=st.lists(faults, min_size=INPUTS, max_size=INPUTS), windows=some_windows)
def test_spark_gives_what_the_reference_gives(spark, drawn, windows):
    assert_the_same(spark, drawn, windows)


@pytest.mark.validate
@once_without_faults_and_once_with
@given(drawn=st.lists(faults, min_size=MANY_INPUTS, max_size=MANY_INPUTS), windows=some_windows)
def test_spark_gives_what_the_reference_gives_for_many_inputs(spark, drawn, windows):
    assert_the_same(spark, drawn, windows)


def assert_the_same(spark, drawn: list[dict[str, Any]], windows: WindowsConfig) -> None:
    """The result of the steps is that of the reference, for every input as a run of its own."""
    rows = [row for number, fault in enumerate(drawn) for row in rows_of(f"run-{number}", fault)]
    expected = reference(rows, QUALITY, windows)
    found = through_spark(spark, rows, windows)
    assert found[:4] == expected[:4]
    assert found.quarantined == expected.quarantined
    told = Counter()
    for (*row, value, check), count in expected.kept_out.items():
        told[*row, repr(value), check] += count
    assert found.kept_out == told
    assert set(found.windows) == set(expected.windows)
    for key, values in expected.windows.items():
        for name, value in values.items():
            seen = found.windows[key][name]
            where = f"{key} {name}"
            if value is None:
                assert seen is None, where
            else:
                assert seen == pytest.approx(value, rel=1e-9, abs=1e-9), where
