"""The autoscaler's memory of every job, as arrays, and as JSON."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.loop.protocols import State
from dsp_gym.numba_handles import by_address

S = TypeVar("S", bound=np.generic)

SCALING_METRICS = (
    "LAG",
    "LOAD",
    "ACCUMULATED_BUSY_TIME",
    "NUM_RECORDS_IN",
    "NUM_RECORDS_OUT",
    "OBSERVED_TPR",
    "NUM_RECORDS_IN_PER_SECOND",
)
"""Columns of a sample, per vertex; NaN where a metric is missing."""
LAG, LOAD, BUSY, IN, OUT, OBSERVED, IN_PER_S = range(len(SCALING_METRICS))

GLOBALS = (
    "GC_PRESSURE",
    "HEAP_MEMORY_USED",
    "MANAGED_MEMORY_USED",
    "METASPACE_MEMORY_USED",
    "HEAP_MAX_USAGE_RATIO",
    "NUM_TASK_SLOTS_USED",
)
"""Columns of a sample, per job."""
GC, HEAP, MANAGED, METASPACE, HEAP_RATIO, SLOTS = range(len(GLOBALS))


class Graph(NamedTuple):
    """K graphs of at most V vertices in topological order, with at most I inputs each."""

    n: Ints  # (K,)
    inputs: Ints  # (K, V, I) columns of the inputs, -1 beyond
    outputs: Ints  # (K, V) number of outputs
    hashed: Bools  # (K, V) any input is HASH
    max_parallelism: Ints  # (K, V) key groups
    partitions: Ints  # (K, V) of a source, 0 = unknown
    lowest: Ints  # (K, V) vertex.min-parallelism
    highest: Ints  # (K, V) vertex.max-parallelism
    visits: Ints  # (K, V) columns in the order in which Flink scales them, that of a hash map


class Window(NamedTuple):
    """The samples of J jobs, oldest first."""

    size: Ints  # (J,)
    ts_ms: Ints  # (J, S)
    vertex: Floats  # (J, S, V, SCALING_METRICS)
    job: Floats  # (J, S, 1, GLOBALS)


class History(NamedTuple):
    """The last scalings of every vertex, oldest first."""

    size: Ints  # (J, V)
    ts_ms: Ints  # (J, V, H)
    before: Ints  # parallelism before
    after: Ints
    rate: Floats  # TRUE_PROCESSING_RATE before
    expected: Floats  # EXPECTED_PROCESSING_RATE after


class Tracking(NamedTuple):
    """Times of the last scalings, and the durations of their restarts."""

    size: Ints  # (J,)
    ts_ms: Ints  # (J, H)
    duration_s: Floats  # NaN: not seen yet


class Delayed(NamedTuple):
    """Waiting scale-downs: first trigger, and recommendations with falling parallelism."""

    first_ms: Ints  # (J, V)
    size: Ints  # (J, V); 0 = none
    ts_ms: Ints  # (J, V, D)
    parallelism: Ints
    outside: Bools


class Scaling(NamedTuple):
    """One applied change of a job, per vertex (V,)."""

    before: Ints  # parallelism before
    after: Ints
    rate: Floats  # TRUE_PROCESSING_RATE before
    expected: Floats  # EXPECTED_PROCESSING_RATE after


class Remembered(NamedTuple):
    """The arrays of a `Memory`, as compiled code takes them."""

    window: Window
    history: History
    tracking: Tracking
    delayed: Delayed
    overrides: Ints  # (J, V) stored parallelism; 0: none
    collected_ms: Ints  # (J,) time of the last sample
    busy_ms: Floats  # (J, V) busy time accumulated from gauges since the restart


for _table in (Graph, Window, History, Tracking, Delayed, Remembered):
    by_address(_table)


class Memory:
    """The memory that outlives a tick, for J jobs of at most V vertices.

    Args:
        jobs: J.
        vertices: V.
        kept: scalings to hold per vertex: `history.max.count` and the newest one.
        steps: recommendations of a waiting scale-down that there is room for at first.
    """

    def __init__(self, jobs: int, vertices: int, kept: int, steps: int) -> None:
        j, v = jobs, vertices

        def ints(*shape: int) -> Ints:
            return np.zeros(shape, dtype=np.int64)

        def floats(*shape: int) -> Floats:
            return np.full(shape, np.nan)

        self.window = Window(
            ints(j),
            ints(j, 32),
            floats(j, 32, v, len(SCALING_METRICS)),
            floats(j, 32, 1, len(GLOBALS)),
        )
        self.history = History(
            ints(j, v),
            ints(j, v, kept),
            ints(j, v, kept),
            ints(j, v, kept),
            floats(j, v, kept),
            floats(j, v, kept),
        )
        self.tracking = Tracking(ints(j), ints(j, kept), floats(j, kept))
        self.delayed = Delayed(
            ints(j, v),
            ints(j, v),
            ints(j, v, steps),
            ints(j, v, steps),
            np.zeros((j, v, steps), dtype=bool),
        )
        self.overrides = ints(j, v)  # 0 = none stored
        self.collected_ms = np.full(j, np.iinfo(np.int64).min)
        self.busy_ms = np.zeros((j, v))  # accumulated from gauges since the restart
        self._arrays: Remembered | None = None

    def clear(self, rows: Bools) -> None:
        """Forget some of the jobs."""
        self.window.size[rows] = 0
        self.history.size[rows] = 0
        self.tracking.size[rows] = 0
        self.delayed.size[rows] = 0
        self.overrides[rows] = 0
        self.collected_ms[rows] = np.iinfo(np.int64).min
        self.busy_ms[rows] = 0.0

    def room(self) -> None:
        """Make room for one more sample, and one more waiting scale-down of each vertex."""
        # Doubled when full, so that compiled code never allocates.
        w, d = self.window, self.delayed
        if int(w.size.max(initial=0)) >= w.ts_ms.shape[1]:
            self.window = Window(w.size, _doubled(w.ts_ms), _doubled(w.vertex), _doubled(w.job))
        # A vertex that runs above its limit may have more of them than it may have tasks.
        if int(d.size.max(initial=0)) >= d.ts_ms.shape[2]:
            self.delayed = d._replace(
                ts_ms=_doubled(d.ts_ms, 2),
                parallelism=_doubled(d.parallelism, 2),
                outside=_doubled(d.outside, 2),
            )

    def arrays(self) -> Remembered:
        """Return the whole memory for compiled code, to read and write.

        Returns:
            The arrays themselves; the same table until `room` or `restore` replaces some.
        """
        found = Remembered(
            self.window,
            self.history,
            self.tracking,
            self.delayed,
            self.overrides,
            self.collected_ms,
            self.busy_ms,
        )
        known = self._arrays
        if known is None or any(a is not b for a, b in zip(known, found, strict=True)):
            self._arrays = known = found
        return known

    def parts(self) -> dict[str, Window | History | Tracking | Delayed]:
        """Group the arrays.

        Returns:
            Groups by their name in the state.
        """
        return {
            "window": self.window,
            "history": self.history,
            "tracking": self.tracking,
            "delayed": self.delayed,
        }

    def state(self) -> State:
        """Write the filled part; NaN is null, infinities are texts.

        Returns:
            JSON-able lists by group and field.
        """
        axis = {"window": 1, "history": 2, "tracking": 1, "delayed": 2}
        whole: State = {}
        for part, arrays in self.parts().items():
            fields = arrays._asdict()
            cut = max(1, int(fields["size"].max(initial=0)))
            for name, array in fields.items():
                long = array.ndim > axis[part] and name not in ("size", "first_ms")
                used = array.take(range(cut), axis=axis[part]) if long else array
                whole[f"{part}.{name}"] = _listed(used)
        for name in ("overrides", "collected_ms", "busy_ms"):
            whole[name] = _listed(getattr(self, name))
        return whole

    def restore(self, state: State) -> None:
        """Continue from `state()`."""
        for part, arrays in self.parts().items():
            loaded = {
                name: _filled(state[f"{part}.{name}"], array)
                for name, array in arrays._asdict().items()
            }
            setattr(self, part, arrays._replace(**loaded))
        for name in ("overrides", "collected_ms", "busy_ms"):
            setattr(self, name, _filled(state[name], getattr(self, name)))


def _doubled(array: NDArray[S], axis: int = 1) -> NDArray[S]:
    """Return room for twice as much along an axis, such as samples, (J, 2 S, ...)."""
    return np.concatenate([array, np.zeros_like(array)], axis=axis)


def _listed(array: NDArray[np.generic]) -> object:
    if array.dtype != np.float64 or np.isfinite(array).all():
        return array.tolist()
    boxed = array.astype(object)
    boxed[np.isnan(array)] = None
    boxed[array == np.inf] = "Infinity"
    boxed[array == -np.inf] = "-Infinity"
    return boxed.tolist()


def _filled(values: object, like: NDArray[S]) -> NDArray[S]:
    """Return the array that a state was written from, padded to the present room or larger."""
    loaded = np.array(values, dtype=object)
    if like.dtype == np.float64:
        for text, number in ((None, np.nan), ("Infinity", np.inf), ("-Infinity", -np.inf)):
            loaded[loaded == text] = number
    shape = np.maximum(loaded.shape, like.shape) if loaded.ndim > 1 else loaded.shape
    filled = np.zeros(tuple(shape), like.dtype)
    filled[tuple(slice(0, n) for n in loaded.shape)] = loaded.astype(like.dtype)
    return filled


def copied(delayed: Delayed) -> Delayed:
    """Copy waiting scale-downs, to try a decision.

    Returns:
        Separate arrays.
    """
    d = delayed
    return Delayed(
        d.first_ms.copy(), d.size.copy(), d.ts_ms.copy(), d.parallelism.copy(), d.outside.copy()
    )


@njit(cache=True, nogil=True)
def trim(
    history: History, tracking: Tracking, j: int, n: int, now: int, age: int, most: int
) -> None:
    """Forget scalings that are too old or too many; the latest tracking record always stays.

    j is the job's row, n the number of its vertices v, i the place of a record; `age` is in ms.
    """
    for v in range(n):
        drop = 0
        count = history.size[j, v]
        while drop < count and (history.ts_ms[j, v, drop] < now - age or count - drop > most):
            drop += 1
        # Oldest first: the rest moves to the front, in place.
        for i in range(drop, count):
            history.ts_ms[j, v, i - drop] = history.ts_ms[j, v, i]
            history.before[j, v, i - drop] = history.before[j, v, i]
            history.after[j, v, i - drop] = history.after[j, v, i]
            history.rate[j, v, i - drop] = history.rate[j, v, i]
            history.expected[j, v, i - drop] = history.expected[j, v, i]
        history.size[j, v] = count - drop
    drop = 0
    count = tracking.size[j]
    while drop < count - 1 and (tracking.ts_ms[j, drop] < now - age or count - drop > most):
        drop += 1
    for i in range(drop, count):
        tracking.ts_ms[j, i - drop] = tracking.ts_ms[j, i]
        tracking.duration_s[j, i - drop] = tracking.duration_s[j, i]
    tracking.size[j] = count - drop


@njit(cache=True, nogil=True)
def record_restart(
    history: History, tracking: Tracking, j: int, n: int, running_ms: int, parallelism: Ints
) -> None:
    """Complete the latest record once every vertex it scaled runs at its target.

    j is the job's row, n the number of its vertices v, i the place of a scaling.
    """
    count = tracking.size[j]
    if count == 0 or not np.isnan(tracking.duration_s[j, count - 1]):
        return
    asked = tracking.ts_ms[j, count - 1]
    for v in range(n):
        for i in range(history.size[j, v]):
            if history.ts_ms[j, v, i] == asked and history.after[j, v, i] != parallelism[v]:
                return
    tracking.duration_s[j, count - 1] = np.floor((running_ms - asked) / 1000.0)


@njit(cache=True, nogil=True)
def restart_s(tracking: Tracking, j: int, enabled: bool, configured: float, limit: float) -> float:
    """Choose the restart time that counts.

    Returns:
        The longest restart seen, up to the limit, or the configured time; s.
    """
    longest = -1.0
    if enabled:
        for i in range(tracking.size[j]):
            if tracking.duration_s[j, i] > longest:
                longest = tracking.duration_s[j, i]
    return configured if longest == -1.0 else min(longest, limit)


@njit(cache=True, nogil=True)
def remember(memory: Remembered, j: int, n: int, now: int, scaling: Scaling) -> None:
    """Apply a scaling: history, tracking and overrides grow, waiting scale-downs are dropped.

    Args:
        memory: Changed in place.
        j: Row of the job in the memory.
        n: Number of the job's vertices.
        now: Time of the scaling, ms.
        scaling: Parallelism and rates of the job's vertices.
    """
    history, tracking = memory.history, memory.tracking
    for v in range(n):
        memory.overrides[j, v] = scaling.after[v]
        memory.delayed.size[j, v] = 0
        if scaling.after[v] == scaling.before[v]:
            continue
        i = history.size[j, v]
        history.ts_ms[j, v, i] = now
        history.before[j, v, i] = scaling.before[v]
        history.after[j, v, i] = scaling.after[v]
        history.rate[j, v, i] = scaling.rate[v]
        history.expected[j, v, i] = scaling.expected[v]
        history.size[j, v] = i + 1
    i = tracking.size[j]
    tracking.ts_ms[j, i] = now
    tracking.duration_s[j, i] = np.nan
    tracking.size[j] = i + 1
