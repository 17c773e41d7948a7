"""Rows of one Arrow table to cells of the 5 s grid: in NumPy what `align` does in Spark.

Each raw row costs a few dozen nanoseconds here, a tenth of its way through a JVM row by row. What
comes out is a fiftieth of the rows, and partial: another table may hold more rows of a cell, so
`steps.scanned.united` puts the parts together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dsp_gym.arrays import Bools, Floats, Ints
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

_UNUSED, _FAILED = -1, -2
"""In place of a metric's number: the row passed but has no column, or failed a check."""

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
    code = _judged(rows, wanted)
    placed = rows.t_s >= 0
    placed &= rows.t_s < FROM_MS
    slot = np.ceil(np.where(placed, rows.t_s, 0.0) / SAMPLE_S)
    series, names = _series(rows)
    low = slot[placed].min(initial=np.inf)
    low = 0.0 if np.isinf(low) else low
    many = int(slot[placed].max(initial=low) - low) + 1
    place = np.where(placed, slot - low, many).astype(np.int64)  # the last one: without a slot
    cell = place * len(names) + series
    cell, present = _numbered(cell, (many + 1) * len(names))
    at, of = np.divmod(present, len(names))
    table = _identities(rows, names[of])
    table |= {"slot": _array(at + int(low), at < many)}
    return table | _measured(rows, wanted, code, cell, slot, len(present))


def _judged(rows: Rows, wanted: CellRules) -> Ints:
    """The number of each row's metric, negative where the row is in no column."""
    known, bounds = wanted.codes([*rows.metrics, None])  # -1, the null, takes the last
    code = known[rows.metric]
    fit = (rows.vertex >= 0) & rows.has_subtask & (rows.t_s >= 0) & (rows.t_s < FROM_MS)
    fit &= rows.value <= bounds[rows.metric]  # false for NaN
    if wanted.is_ranged:
        fit &= rows.value >= 0
    return np.where(fit, code, _FAILED)


def _series(rows: Rows) -> tuple[Ints, Ints]:
    """Each row's series by number; and run, vertex, subtask of each: -1 and `_NO_TASK` are null."""
    task = np.where(rows.has_subtask, rows.subtask, _NO_TASK)
    low, high = int(task.min(initial=0)), int(task.max(initial=0))
    if high - low > _WIDE:
        tasks, task = np.unique(task, return_inverse=True)
    else:
        tasks, task = np.arange(low, high + 1), task - low
    vertices = len(rows.vertices) + 1
    key = ((rows.run * vertices) + rows.vertex + 1) * len(tasks) + task
    key, present = _numbered(key, len(rows.runs) * vertices * len(tasks))
    run_vertex, of = np.divmod(present, len(tasks))
    run, vertex = np.divmod(run_vertex, vertices)
    return key, np.stack([run, vertex - 1, tasks[of]], axis=1)


_NO_TASK = -2
"""A subtask that is null; -1 is a value of the whole vertex."""

_WIDE = 1 << 16


def _numbered(key: Ints, size: int) -> tuple[Ints, Ints]:
    """Keys 0..size - 1 as numbers of those that occur, and these keys, rising."""
    if size > _SPARSE * len(key) + (1 << 16):
        present, number = np.unique(key, return_inverse=True)
        return number, present
    occurs = np.zeros(size, dtype=bool)
    occurs[key] = True
    present = np.flatnonzero(occurs)
    if len(present) == size:
        return key, present
    number = np.empty(size, dtype=np.int64)
    number[present] = np.arange(len(present))
    return number[key], present


def _identities(rows: Rows, names: Ints) -> dict[str, pa.Array]:
    import pyarrow as pa

    runs = np.array(rows.runs, dtype=object).reshape(-1, 3)[names[:, 0]]
    vertices = np.array([*rows.vertices, None], dtype=object)[names[:, 1]]
    found = {name: pa.array(runs[:, n], pa.string()) for n, name in enumerate(("source", "job"))}
    return found | {
        "run": pa.array(runs[:, 2], pa.string()),
        "vertex": pa.array(vertices, pa.string()),
        "subtask": _array(names[:, 2].astype(np.int32), names[:, 2] != _NO_TASK),
    }


def _measured(
    rows: Rows, wanted: CellRules, code: Ints, cell: Ints, slot: Floats, cells: int
) -> dict[str, pa.Array]:
    """What the rows of each cell say: counts, times, and a few columns for each metric."""
    width = len(wanted.metrics)
    has = code >= 0
    told = {
        "rows": np.bincount(cell, minlength=cells),
        "passed": np.bincount(cell[code > _FAILED], minlength=cells),
        "counted": np.bincount(cell[has], minlength=cells),
    }
    mine = _Counted(cell[has], code[has], rows.t_s[has], rows.value[has], slot[has])
    masks, twice = _masks(mine, (cells, len(masks_of(wanted.metrics)))), None
    bits = np.bitwise_count(masks).sum(axis=1, dtype=np.int64)
    if (bits < told["counted"]).any():
        mine, twice = _distinct(mine, bits < told["counted"], cells)
        masks = _masks(mine, masks.shape, np.bitwise_or)
        bits = np.bitwise_count(masks).sum(axis=1, dtype=np.int64)
    of, number, t_s, value = mine.cell, mine.metric, mine.t_s, mine.value
    into = of * width + number
    count = np.bincount(into, minlength=cells * width)
    total = np.bincount(into, weights=value, minlength=cells * width)
    at, last = np.full(cells * width, -np.inf), np.zeros(cells * width)
    np.maximum.at(at, into, t_s)
    newest = t_s == at[into]
    last[into[newest]] = value[newest]
    table = {name: _array(values, None) for name, values in told.items()}
    table["duplicates"] = _array(np.zeros(cells, np.int64) if twice is None else twice, None)
    times = at.reshape(cells, width).max(axis=1, initial=-np.inf)
    table["t_s"] = _array(times, times > -np.inf)
    shape = (cells, width)
    for metric, n, s, v, t in zip(
        wanted.metrics,
        count.reshape(shape).T,
        total.reshape(shape).T,
        last.reshape(shape).T,
        at.reshape(shape).T,
        strict=True,
    ):
        known = n > 0
        if metric in LAST:
            table |= {metric: _array(v, known), f"_{metric}_at": _array(t, known)}
        else:
            table |= {f"_{metric}_sum": _array(s, known), f"_{metric}_n": _array(n, None)}
    table["_bits"] = _array(bits, None)
    names = masks_of(wanted.metrics)
    return table | {name: _array(masks[:, n], None) for n, name in enumerate(names)}


@dataclass(frozen=True, slots=True)
class _Counted:
    """Rows that have a column, as arrays of shape (rows,)."""

    cell: Ints
    metric: Ints
    t_s: Floats
    value: Floats
    slot: Floats


def _distinct(rows: _Counted, is_doubtful: Bools, cells: int) -> tuple[_Counted, Ints]:
    """Of rows of one cell, metric and time the greatest value; and how many are left out, by cell.

    Only rows of doubtful cells are sorted.
    """
    doubtful = np.flatnonzero(is_doubtful[rows.cell])
    keys = [column[doubtful] for column in (rows.value, rows.t_s, rows.metric, rows.cell)]
    order = doubtful[np.lexsort(keys)]
    same = np.ones(max(0, len(order) - 1), dtype=bool)
    for column in (rows.cell, rows.metric, rows.t_s):
        same &= column[order[:-1]] == column[order[1:]]
    stays = np.ones(len(rows.cell), dtype=bool)
    stays[order[:-1][same]] = False  # the last of several equal ones is the greatest, and stays
    left = np.bincount(rows.cell[~stays], minlength=cells)
    kept = _Counted(
        cell=rows.cell[stays],
        metric=rows.metric[stays],
        t_s=rows.t_s[stays],
        value=rows.value[stays],
        slot=rows.slot[stays],
    )
    return kept, left


def _masks(rows: _Counted, shape: tuple[int, int], merge: np.ufunc = np.add) -> Ints:
    """The bits that rows set: one for each metric and sixth of the slot.

    The sum of powers of two of which some are equal has fewer bits than it has terms: added up,
    the masks of a cell show whether two of its rows share a bit.

    Args:
        rows: in any order.
        shape: cells and masks.
        merge: `np.add`, or `np.bitwise_or` where some rows are known to share one.

    Returns:
        An array of that shape.
    """
    metrics = shape[1] * PER_MASK
    bit = np.left_shift(np.int64(1), np.arange(metrics * SIXTHS) % (PER_MASK * SIXTHS))
    found = np.zeros(shape, dtype=np.int64)
    part = np.ceil((rows.t_s / SAMPLE_S - rows.slot + 1.0) * SIXTHS).astype(np.int64) - 1
    sixth = np.clip(part, 0, SIXTHS - 1)  # how far into its slot each row is
    into = rows.cell
    if shape[1] > 1:
        into = into * shape[1] + (np.arange(metrics) // PER_MASK)[rows.metric]
    merge.at(found.reshape(-1), into, bit[rows.metric * SIXTHS + sixth])
    return found


def _array(values: NDArray[np.generic], known: Bools | None) -> pa.Array:
    import pyarrow as pa

    return pa.array(np.ascontiguousarray(values), mask=None if known is None else ~known)
