"""Rows to cells of the grid, and files to rows: worked by hand, without Spark."""

from __future__ import annotations

import math

import pytest

pa = pytest.importorskip("pyarrow")

import numpy as np  # noqa: E402 - what needs Arrow is skipped without it
from pyarrow import parquet  # noqa: E402

from dsp_gym.compiling import COMPILES  # noqa: E402
from spark_pipelines.scan import COLUMNS, Chunk, Scan, ScannedFile, chunks_of, rows_of  # noqa: E402
from spark_pipelines.steps import cells as compiled  # noqa: E402
from spark_pipelines.steps.cells import CellRules, cells_of, compile_cells  # noqa: E402

WANTED = CellRules(("records_in_total", "busy_ms_per_s"), 100.0, True)
TAKEN, BUSY = WANTED.metrics
MARCH_1 = 1_772_323_200.0


def scan_of(
    tmp_path, rows, *, days=None, by_day=False, day=None, shift_s=0.0, types=None, group=1000
):
    """A scan of one file with these rows of (t_s, vertex, subtask, metric, value)."""
    kinds = types or (pa.float64(), pa.string(), pa.int32(), pa.string(), pa.float64())
    columns = zip(*rows, strict=True)
    table = pa.table(
        {f"my_{n}": pa.array(c, k) for n, c, k in zip(COLUMNS, columns, kinds, strict=True)}
    )
    file = tmp_path / "rows.parquet"
    parquet.write_table(table, file, row_group_size=group)
    name = "run@" if by_day else "run"
    mine = {name: f"my_{name}" for name in COLUMNS}
    return Scan("s", "j", (ScannedFile(str(file), name, by_day, day),), mine, shift_s, days)


def cells(tmp_path, rows, wanted=WANTED, **options):
    """The cells of all rows, by (run, vertex, subtask, slot)."""
    ((chunk,),) = chunks_of([scan_of(tmp_path, rows, **options)], 4)
    found = {}
    for part in rows_of(chunk):
        for row in pa.table(cells_of(part, wanted)).to_pylist():
            found[row["run"], row["vertex"], row["subtask"], row["slot"]] = row
    return found


def test_a_counter_keeps_its_newest_value_and_a_gauge_its_sum(tmp_path) -> None:
    rows = [
        (3.0, "v", 0, TAKEN, 30.0),
        (1.0, "v", 0, TAKEN, 10.0),
        (1.0, "v", 0, BUSY, 200.0),
        (4.0, "v", 0, BUSY, 300.0),
        (6.0, "v", 0, TAKEN, 60.0),
    ]
    found = cells(tmp_path, rows)
    first, second = found["run", "v", 0, 1], found["run", "v", 0, 2]
    assert (first[TAKEN], first[f"_{TAKEN}_at"], first["t_s"]) == (30.0, 3.0, 4.0)
    assert (first[f"_{BUSY}_sum"], first[f"_{BUSY}_n"]) == (500.0, 2)
    assert (first["rows"], first["counted"], first["passed"], first["duplicates"]) == (4, 4, 4, 0)
    assert (second[TAKEN], second[f"_{BUSY}_sum"], second[f"_{BUSY}_n"]) == (60.0, None, 0)
    assert {row["source"] for row in found.values()} == {"s"}
    assert {row["job"] for row in found.values()} == {"j"}


def test_the_end_of_a_slot_belongs_to_it(tmp_path) -> None:
    found = cells(tmp_path, [(t, "v", 0, TAKEN, t) for t in (0.0, 5.0, 5.000001, 10.0)])
    assert {slot: row["rows"] for (*_, slot), row in found.items()} == {0: 1, 1: 1, 2: 2}


def test_of_equal_rows_the_greatest_counts_once_and_the_others_are_told(tmp_path) -> None:
    rows = [
        (1.0, "v", 0, TAKEN, 10.0),
        (1.0, "v", 0, TAKEN, 12.0),
        (1.0, "v", 0, BUSY, 100.0),
        (1.0, "v", 0, BUSY, 100.0),
        (1.0, "v", 0, BUSY, 140.0),
        (1.0001, "v", 0, BUSY, 60.0),  # the same sixth, another time
        (1.0, "v", 1, BUSY, 7.0),
    ]
    found = cells(tmp_path, rows)
    cell = found["run", "v", 0, 1]
    assert cell[TAKEN] == 12.0
    assert (cell[f"_{BUSY}_sum"], cell[f"_{BUSY}_n"]) == (200.0, 2)
    assert (cell["counted"], cell["duplicates"]) == (6, 3)
    assert cell["_bits"] == 2  # of three rows; what is left open between files is told by bits
    assert found["run", "v", 1, 1]["duplicates"] == 0


@pytest.mark.parametrize(
    "row",
    [
        (1.0, None, 0, TAKEN, 1.0),
        (1.0, "v", None, TAKEN, 1.0),
        (1.0, "v", 0, None, 1.0),
        (None, "v", 0, TAKEN, 1.0),
        (-1.0, "v", 0, TAKEN, 1.0),
        (math.nan, "v", 0, TAKEN, 1.0),
        (1.7e12, "v", 0, TAKEN, 1.0),
        (1.0, "v", 0, "numRecordsIn", 1.0),
        (1.0, "v", 0, TAKEN, None),
        (1.0, "v", 0, TAKEN, math.nan),
        (1.0, "v", 0, TAKEN, -1.0),
        (1.0, "v", 0, TAKEN, math.inf),
        (1.0, "v", 0, BUSY, 1100.1),
        (1.0, "v", 0, "tm_cpu_load", 1.01),
    ],
)
def test_a_row_that_fails_a_check_is_counted_and_has_no_value(tmp_path, row) -> None:
    found = cells(tmp_path, [row, (1.0, "other", 0, TAKEN, 5.0)])
    (cell,) = [c for key, c in found.items() if key[1] != "other"]
    assert (cell["rows"], cell["passed"], cell["counted"]) == (1, 0, 0)
    assert (cell[TAKEN], cell[f"_{BUSY}_sum"], cell["t_s"]) == (None, None, None)
    assert (cell["vertex"], cell["subtask"]) == (row[1], row[2])
    timed = row[0] is not None and 0 <= row[0] < 1e11
    assert cell["slot"] == (1 if timed else None)


def test_a_range_that_is_not_checked_lets_values_pass(tmp_path) -> None:
    rows = [(1.0, "v", 0, BUSY, 2000.0), (2.0, "v", 0, BUSY, -1.0)]
    free = CellRules(WANTED.metrics, 100.0, False)
    assert cells(tmp_path, rows, free)["run", "v", 0, 1][f"_{BUSY}_sum"] == 1999.0
    assert cells(tmp_path, rows)["run", "v", 0, 1]["passed"] == 0


def test_a_metric_without_a_column_passes_and_is_not_counted(tmp_path) -> None:
    rows = [(1.0, "", -1, "tm_cpu_load", 0.5), (1.0, "", -1, TAKEN, 5.0)]
    cell = cells(tmp_path, rows)["run", "", -1, 1]
    assert (cell["rows"], cell["passed"], cell["counted"]) == (2, 2, 1)


def test_rows_far_apart_are_the_same_cells(tmp_path) -> None:
    """So few rows of so many possible cells are numbered in another way."""
    rows = [(t, "v", task, TAKEN, 1.0) for t in (1.0, 9e9) for task in (0, 2_000_000_000)]
    found = cells(tmp_path, rows)
    assert {(task, slot): row["rows"] for (_, _, task, slot), row in found.items()} == {
        (task, slot): 1 for task in (0, 2_000_000_000) for slot in (1, 1_800_000_000)
    }


def test_masks_of_more_metrics_than_one_holds_keep_them_apart(tmp_path) -> None:
    from dsp_gym.metrics.flink import BY_NAME

    wanted = CellRules(tuple(BY_NAME), 100.0, True)
    assert len(wanted.metrics) > 10
    rows = [(1.0, "v", 0, metric, 0.5) for metric in BY_NAME for _ in range(2)]
    (cell,) = cells(tmp_path, rows, wanted).values()
    assert (cell["counted"], cell["duplicates"]) == (2 * len(BY_NAME), len(BY_NAME))
    assert cell["_bits"] == len(BY_NAME)
    masks = [value for name, value in cell.items() if name.startswith("_mask_")]
    assert sum(mask.bit_count() for mask in masks) == len(BY_NAME)


def test_runs_are_cut_by_day_and_only_chosen_days_are_read(tmp_path) -> None:
    rows = [(t, "v", 0, TAKEN, 1.0) for t in (-1.0, 0.0, 1.0, 86_400.0)]
    days = frozenset({"2026-03-01", "2026-03-02"})
    found = cells(tmp_path, rows, days=days, by_day=True, shift_s=MARCH_1)
    counts = {(run, slot): row["rows"] for (run, _, _, slot), row in found.items()}
    first = int(MARCH_1 / 5)
    assert counts == {
        ("run@2026-03-01", first): 1,
        ("run@2026-03-01", first + 1): 1,
        ("run@2026-03-02", first + 17_280): 1,
    }


@pytest.mark.parametrize(("day", "counted"), [(None, 0), ("2026-03-01", 2)])
def test_a_row_without_a_time_has_the_day_of_its_file(tmp_path, day, counted) -> None:
    rows = [(t, "v", 0, TAKEN, 1.0) for t in (None, -1.0, MARCH_1)]
    days = frozenset({"2026-03-01"})
    found = cells(tmp_path, rows, days=days, by_day=True, day=day)
    assert sum(row["rows"] for key, row in found.items() if key[-1] is None) == counted


def test_columns_of_other_types_are_read_alike(tmp_path) -> None:
    rows = [(1, "v", 0, TAKEN, 10), (2, "v", 0, TAKEN, 20)]
    texts = pa.dictionary(pa.int8(), pa.string())
    other = (pa.int64(), pa.large_string(), pa.int64(), texts, pa.float32())
    assert cells(tmp_path, rows, types=other) == cells(tmp_path, rows)


def test_large_files_are_cut_at_row_groups_and_dealt_out_evenly(tmp_path, monkeypatch) -> None:
    rows = [(float(t), "v", 0, TAKEN, 1.0) for t in range(20)]
    scan = scan_of(tmp_path, rows, group=3)  # seven row groups
    monkeypatch.setattr("spark_pipelines.scan._CHUNK_ROWS", 6)
    bundles = chunks_of([scan], 3)
    assert sorted(chunk.groups for bundle in bundles for chunk in bundle) == [
        (0, 2), (2, 4), (4, 6), (6, 7),
    ]  # fmt: skip
    assert sorted(len(bundle) for bundle in bundles) == [1, 1, 2]
    seen = [t for b in bundles for c in b for part in rows_of(c) for t in part.t_s.tolist()]
    assert sorted(seen) == [row[0] for row in rows]


def test_the_order_of_the_rows_changes_nothing(tmp_path) -> None:
    rng = np.random.default_rng(5)
    rows = [
        (round(float(rng.uniform(0, 40)), 1), "v", int(rng.integers(3)), metric, float(value))
        for metric in WANTED.metrics
        for value in rng.integers(0, 900, 300)
    ]
    there = cells(tmp_path, rows)
    assert sum(cell["duplicates"] for cell in there.values()) > 0
    mixed = [rows[i] for i in rng.permutation(len(rows))]
    assert cells(tmp_path, mixed) == there


def test_a_chunk_is_sent_to_workers_as_it_is(tmp_path) -> None:
    import pickle

    chunk = Chunk(scan_of(tmp_path, [(1.0, "v", 0, TAKEN, 1.0)]), ScannedFile("f", "r"), (0, 1))
    assert pickle.loads(pickle.dumps(chunk)) == chunk


@pytest.mark.skipif(not COMPILES, reason="numba is switched off")
def test_a_worker_finds_the_code_that_it_runs_compiled(tmp_path) -> None:
    """For whatever types a file's columns have, and with rows left out or unknown."""
    functions = (compiled._judge, compiled._slots, compiled._places, compiled._add_up)
    compile_cells()
    before = [function.signatures for function in functions]
    rows = [(1.0, "v", 0, TAKEN, 1.0), (1.0, "v", 0, TAKEN, 2.0), (None, None, None, None, None)]
    cells(tmp_path, rows)
    cells(tmp_path, rows[:2], by_day=True, shift_s=MARCH_1, days=frozenset({"2026-03-01"}))
    other = (pa.int64(), pa.large_string(), pa.int64(), pa.string(), pa.float32())
    cells(tmp_path, [(1, "v", 0, TAKEN, 1)], types=other)
    assert [function.signatures for function in functions] == before
