"""Rows of one Arrow table to cells of the 5 s grid: in compiled code what `align` does in Spark.

Each raw row costs a few dozen nanoseconds here, a tenth of its way through a JVM row by row. What
comes out is a fiftieth of the rows, and partial: another table may hold more rows of a cell, so
`steps.scanned.united` puts the parts together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.metrics.flink import BY_NAME
from dsp_gym.metrics.samples import SAMPLE_S
from spark_pipelines.days import FROM_MS, largest_of

if TYPE_CHECKING:
    import pyarrow as pa

LAST = (
    *(name for name, metric in BY_NAME.items() if metric.kind == "counter"),
    "busy_ms_total",
    "backpressured_ms_total",
    "idle_ms_total",
)
"""Of these a slot keeps the newest value, of others the mean."""

SIXTHS = 6
"""Parts of a slot told apart; with samples every second, each has its own."""

PER_MASK = 10
"""Metrics that share a mask of 60 bits."""

_UNUSED, _FAILED, _REPEATED = -1, -2, -3
"""In place of a metric's number: the row passed but has no column, it failed a check, or a greater
value of its metric and time counts."""

_NO_TASK = -2
"""A subtask that is null; -1 is a value of the whole vertex."""

_WIDE = 1 << 16
"""More possible subtasks than this are numbered by sorting."""

_SPARSE = 8
"""More possible cells per row than this are numbered by sorting instead of by place."""


def masks_of(metrics: Sequence[str]) -> list[str]:
    """Name the columns that show which (metric, sixth of the slot) have a row.

    Returns:
        One name per `PER_MASK` metrics.
    """
    return [f"_mask_{n}" for n in range(-(-len(metrics) // PER_MASK))]


@dataclass(frozen=True, slots=True)
class CellRules:
    """Which columns the cells are to have, and which rows may be in them."""

    metrics: tuple[str, ...]  # by number
    time_tolerance_ms: float
    is_ranged: bool  # whether the check `range` is made

    def codes(self, names: Sequence[str | None]) -> tuple[Ints, Floats]:
        """Numbers of metrics, and the largest value that each may have.

        Args:
            names: metrics as they are called in the rows.

        Returns:
            Arrays of shape (names,): the number, -1 without a column, -2 for an unknown metric;
            and the bound, infinite where the range is not checked.
        """
        of = {name: number for number, name in enumerate(self.metrics)}
        codes = [of.get(n or "", _UNUSED if n in BY_NAME else _FAILED) for n in names]
        bounds = [largest_of(n or "", self.time_tolerance_ms) for n in names]
        if not self.is_ranged:
            bounds = [np.inf] * len(bounds)
        return np.array(codes, dtype=np.int64), np.array(bounds, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Rows:
    """N samples as columns of shape (N,); texts are numbers into their list, -1 for null."""

    t_s: Floats  # NaN for null
    vertex: Ints
    vertices: Sequence[str]
    subtask: Ints
    has_subtask: Bools
    metric: Ints
    metrics: Sequence[str]
    value: Floats  # NaN for null
    run: Ints  # into the list of runs
    runs: Sequence[tuple[str, str, str]]  # source, job, run


def cells_of(rows: Rows, wanted: CellRules) -> dict[str, pa.Array]:
    """One row per series and slot that any of the rows is in.

    Args:
        rows: samples in any order; equal ones count once, and are told in `duplicates`.
        wanted: metrics and limits.

    Returns:
        Columns by name, as `steps.scanned.parts_schema` lists them.
    """
    known, bounds = wanted.codes([*rows.metrics, None])  # -1, the null, takes the last
    judged = (rows.t_s, rows.vertex, rows.has_subtask, rows.metric, rows.value)
    code = _judge(*judged, known, bounds, wanted.is_ranged)
    task, tasks = _tasks(rows)
    low, many = _slots(rows.t_s)
    series = (len(rows.runs), len(rows.vertices) + 1, len(tasks))
    place = _places(rows.t_s, rows.run, rows.vertex, task, low, many, series)
    cell, present = _numbered(place, (many + 1) * math.prod(series))
    at, run, vertex, of = np.unravel_index(present, (many + 1, *series))
    return {
        **_identities(rows, run, vertex - 1, tasks[of]),
        "slot": _array(at + low, at < many),
        **_measured(rows, wanted, code, cell, len(present)),
    }


def compile_cells() -> None:
    """Compile the code that workers run, so that they find it on disk and need not wait for it.

    Takes half a second even where it is there: call it first while something else starts.
    """
    floats, ints, bools = np.empty(0), np.empty(0, np.int64), np.empty(0, bool)
    runs = [("", "", "")]
    cells_of(
        Rows(floats, ints, [], ints, bools, ints, [], floats, ints, runs), CellRules((), 0.0, True)
    )


@njit(cache=True, nogil=True)
def _judge(
    t_s: Floats,
    vertex: Ints,
    has_subtask: Bools,
    metric: Ints,
    value: Floats,
    known: Ints,
    bounds: Floats,
    is_ranged: bool,
) -> Ints:
    """The number of each row's metric, negative where the row is in no column."""
    code = np.empty(t_s.shape[0], np.int64)
    for i in range(t_s.shape[0]):
        fits = vertex[i] >= 0 and has_subtask[i] and 0 <= t_s[i] < FROM_MS
        fits = fits and value[i] <= bounds[metric[i]]  # false for NaN
        fits = fits and (value[i] >= 0 or not is_ranged)
        code[i] = known[metric[i]] if fits else _FAILED
    return code


def _tasks(rows: Rows) -> tuple[Ints, Ints]:
    """Each row's subtask by number; and the subtasks, `_NO_TASK` for null."""
    task = np.where(rows.has_subtask, rows.subtask, _NO_TASK)
    low, high = int(task.min(initial=0)), int(task.max(initial=0))
    if high - low > _WIDE:
        tasks, task = np.unique(task, return_inverse=True)
        return task, tasks
    return task - low, np.arange(low, high + 1)


@njit(cache=True, nogil=True)
def _slots(t_s: Floats) -> tuple[int, int]:
    """The first slot of any row, and how many there are until the last one."""
    first, last = FROM_MS, 0.0
    for t in t_s:
        if 0 <= t < FROM_MS:
            first, last = min(first, t), max(last, t)
    low = math.ceil(min(first, last) / SAMPLE_S)
    return low, math.ceil(last / SAMPLE_S) - low + 1


@njit(cache=True, nogil=True)
def _places(
    t_s: Floats,
    run: Ints,
    vertex: Ints,
    task: Ints,
    low: int,
    many: int,
    series: tuple[int, int, int],
) -> Ints:
    """Number the possible cells, by slot, run, vertex and subtask: that of each row."""
    _, vertices, tasks = series
    place = np.empty(t_s.shape[0], np.int64)
    for i in range(t_s.shape[0]):
        slot = many  # the last one: without a time
        if 0 <= t_s[i] < FROM_MS:
            slot = math.ceil(t_s[i] / SAMPLE_S) - low
        of_run = slot * series[0] + run[i]
        place[i] = (of_run * vertices + vertex[i] + 1) * tasks + task[i]
    return place


def _numbered(place: Ints, size: int) -> tuple[Ints, Ints]:
    """Places 0..size - 1 as numbers of those that occur, and these places, rising."""
    if size > _SPARSE * len(place) + (1 << 16):
        present, number = np.unique(place, return_inverse=True)
        return number, present
    occurs = np.zeros(size, dtype=bool)
    occurs[place] = True
    present = np.flatnonzero(occurs)
    if len(present) == size:
        return place, present
    number = np.empty(size, dtype=np.int64)
    number[present] = np.arange(len(present))
    return number[place], present


def _identities(rows: Rows, run: Ints, vertex: Ints, task: Ints) -> dict[str, pa.Array]:
    import pyarrow as pa

    runs = np.array(rows.runs, dtype=object).reshape(-1, 3)[run]
    vertices = np.array([*rows.vertices, None], dtype=object)[vertex]
    names = ("source", "job", "run")
    return {
        **{name: pa.array(runs[:, n], pa.string()) for n, name in enumerate(names)},
        "vertex": pa.array(vertices, pa.string()),
        "subtask": _array(task.astype(np.int32), task != _NO_TASK),
    }


def _measured(
    rows: Rows, wanted: CellRules, code: Ints, cell: Ints, cells: int
) -> dict[str, pa.Array]:
    """What the rows of each cell say: counts, times, and a few columns for each metric."""
    names = masks_of(wanted.metrics)
    shape = (cells, len(wanted.metrics), len(names))
    sums = _add_up(cell, code, rows.t_s, rows.value, shape)
    if sums.shares_bit.any():
        code = _told_apart(cell, code, rows.t_s, rows.value, sums.shares_bit)
        sums = _add_up(cell, code, rows.t_s, rows.value, shape)
    table = {name: _array(getattr(sums, name), None) for name in COUNTED}
    table |= {name: _array(mask, None) for name, mask in zip(names, sums.masks.T, strict=True)}
    table["_bits"] = _array(np.bitwise_count(sums.masks).sum(axis=1, dtype=np.int64), None)
    times = sums.at.max(axis=1, initial=-np.inf)
    table["t_s"] = _array(times, times > -np.inf)
    for n, metric in enumerate(wanted.metrics):
        known = sums.number[:, n] > 0
        if metric in LAST:
            table[metric] = _array(sums.last[:, n], known)
            table[f"_{metric}_at"] = _array(sums.at[:, n], known)
        else:
            table[f"_{metric}_sum"] = _array(sums.total[:, n], known)
            table[f"_{metric}_n"] = _array(sums.number[:, n], None)
    return table


class _Sums(NamedTuple):
    """What the rows of each of C cells say, of M metrics, in K masks."""

    rows: Ints  # (C,) raw ones
    counted: Ints  # (C,) rows that passed their checks and have a column
    passed: Ints  # (C,) rows that passed their checks
    duplicates: Ints  # (C,) rows of those counted in whose place a greater one counts
    masks: Ints  # (C, K) a bit for each metric and sixth of the slot that have a row
    shares_bit: Bools  # (C,) whether two rows set one bit
    number: Ints  # (C, M) rows
    total: Floats  # (C, M) sum of their values
    last: Floats  # (C, M) the newest value
    at: Floats  # (C, M) time of it; -inf: none


COUNTED = _Sums._fields[:4]
"""What is counted of a cell's rows."""


@njit(cache=True, nogil=True)
def _add_up(
    cell: Ints, code: Ints, t_s: Floats, value: Floats, shape: tuple[int, int, int]
) -> _Sums:
    """Add the rows up by cell and metric, in their order."""
    cells, metrics, masks = shape
    sums = _Sums(
        np.zeros(cells, np.int64),
        np.zeros(cells, np.int64),
        np.zeros(cells, np.int64),
        np.zeros(cells, np.int64),
        np.zeros((cells, masks), np.int64),
        np.zeros(cells, np.bool_),
        np.zeros((cells, metrics), np.int64),
        np.zeros((cells, metrics)),
        np.zeros((cells, metrics)),
        np.full((cells, metrics), -np.inf),
    )
    for i in range(cell.shape[0]):
        c, m = cell[i], code[i]
        sums.rows[c] += 1
        if m != _FAILED:
            sums.passed[c] += 1
        if m >= 0 or m == _REPEATED:
            sums.counted[c] += 1
        if m == _REPEATED:
            sums.duplicates[c] += 1
        if m < 0:
            continue
        slots = t_s[i] / SAMPLE_S
        into = math.ceil((slots - math.ceil(slots) + 1.0) * SIXTHS) - 1  # its slot
        bit = np.int64(1) << (m % PER_MASK * SIXTHS + min(max(into, 0), SIXTHS - 1))
        mask = m // PER_MASK
        if sums.masks[c, mask] & bit:
            sums.shares_bit[c] = True
        sums.masks[c, mask] |= bit
        sums.number[c, m] += 1
        sums.total[c, m] += value[i]
        if t_s[i] >= sums.at[c, m]:
            sums.at[c, m], sums.last[c, m] = t_s[i], value[i]
    return sums


def _told_apart(cell: Ints, code: Ints, t_s: Floats, value: Floats, is_doubtful: Bools) -> Ints:
    """Of rows of one cell, metric and time keep the greatest value's number, else `_REPEATED`.

    Only rows of doubtful cells are sorted.
    """
    doubtful = np.flatnonzero(is_doubtful[cell] & (code >= 0))
    order = doubtful[np.lexsort([column[doubtful] for column in (value, t_s, code, cell)])]
    before, after = order[:-1], order[1:]
    same = np.ones(len(before), dtype=bool)
    for column in (cell, code, t_s):
        same &= column[before] == column[after]
    told = code.copy()
    told[before[same]] = _REPEATED  # the last of several equal ones is the greatest, and stays
    return told


def _array(values: NDArray[np.generic], known: Bools | None) -> pa.Array:
    import pyarrow as pa

    return pa.array(np.ascontiguousarray(values), mask=None if known is None else ~known)
