"""The scaler: the parallelism of one vertex, aligned, delayed and checked against history.

Rules of `JobVertexScaler`. p is the running parallelism, q a candidate; x the evaluated metrics of
a vertex (EVALUATED,); j and v are row and column of the memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from baselines.flink_autoscaler.evaluator import (
    E_CATCH_UP,
    E_DOWN,
    E_TARGET,
    E_TPR,
    E_UP,
    capacity,
)
from baselines.flink_autoscaler.numbers import INT_MAX, ceil2, round3
from baselines.flink_autoscaler.settings import (
    BALANCED,
    EVENLY,
    LEGACY_MAXIMIZE,
    OFF,
    Settings,
)
from baselines.flink_autoscaler.state import (
    Delayed,
    Graph,
    History,
)
from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.compiling import njit

LIMITED, INEFFECTIVE, EXPECTING = 1, 2, 4
"""Flags of a vertex: the events it raises, and that an expected rate was recorded, NaN or not."""


class Pass(NamedTuple):
    """One pass over one job."""

    graph: int  # number of its graph
    row: int  # its row in the memory
    now_ms: int
    restart_s: float  # expected restart time


class Limits(NamedTuple):
    """Bounds and alignment of the parallelism of one vertex."""

    hashed: bool  # any input is keyed
    partitions: int  # of a source, 0 = unknown
    max_parallelism: int  # key groups
    lowest: int  # vertex.min-parallelism
    highest: int  # vertex.max-parallelism


class Recommended(NamedTuple):
    """Recommendations of the scaler for the vertices of one job, (V,)."""

    new: Ints
    outside: Bools  # outside the thresholds
    expected: Floats  # EXPECTED_PROCESSING_RATE; NaN: none
    events: Ints  # flags


@njit(cache=True, nogil=True)
def align(
    p: int, new: int, partitions: int, max_parallelism: int, low: int, high: int, mode: int
) -> tuple[int, bool]:
    """Find a parallelism that spreads key groups or partitions evenly.

    Args:
        p: Running parallelism.
        new: Wanted, already inside its limits.
        partitions: Partitions of the source; 0: key groups (max_parallelism) are spread.
        max_parallelism: Key groups of the vertex.
        low: Lower limit.
        high: Upper limit.
        mode: One of the modes of 1.15.0 (LEGACY_*), which may fall back below the wanted
            parallelism or block, or of main, which keep the wanted one where no other fits.

    Returns:
        The parallelism, and whether the alignment limits it.
    """
    if mode == OFF or new == p:
        return new, False
    # A source spreads partitions, any other vertex key groups.
    groups = partitions if partitions > 0 else max_parallelism
    cap = min(groups, max_parallelism, high)
    balanced = mode in (BALANCED, LEGACY_MAXIMIZE)
    up = new > p
    # Upwards first: the next parallelism that divides the groups, or (balanced) gives each subtask
    # fewer of them.
    for q in range(new, (cap if up else min(p, cap)) + 1):
        if groups % q == 0 or (balanced and groups // q < groups // new):
            return q, False
    if mode in (BALANCED, EVENLY):
        return new, False
    # Then downwards: the smallest parallelism at which the fullest subtask has as many groups.
    q = new
    while q > 0:
        if groups // q > groups // new:
            if groups % q != 0:
                q += 1
            break
        q -= 1
    # The lower limit wins over alignment, and a scale-up must not become a scale-down.
    q = max(q, low)
    if (up and q <= p) or (not up and q >= p):
        return p, True
    return q, q != new


@njit(cache=True, nogil=True, error_model="numpy")
def scale(
    p: int,
    factor: float,
    hashed: bool,
    partitions: int,
    max_parallelism: int,
    low: int,
    high: int,
    mode: int,
) -> tuple[int, bool]:
    """Scale a parallelism; align it where partitions or a keyed input require it.

    Returns:
        ceil(factor * p) inside its limits, and whether the alignment limits it.
    """
    # Java's cast of a double to an int: NaN is 0, infinity is Integer.MAX_VALUE.
    wanted = min(np.ceil(factor * p), float(INT_MAX))
    raw = 0 if np.isnan(wanted) else int(wanted)
    # Never more subtasks than key groups.
    new = min(max(low, raw), min(max_parallelism, high))
    if partitions <= 0 and not hashed:
        return new, False
    return align(p, new, partitions, max_parallelism, low, high, mode)


@njit(cache=True, nogil=True, error_model="numpy")
def coefficient(before: Ints, rates: Floats, least: int, lowest: float) -> float:
    """Fit the observed share of linear scaling: least squares through the smallest parallelism.

    Returns:
        0..1; 1 where too little is known, NaN where Flink's fit fails (a baseline of 0).
    """
    n = len(before)
    if n == 0 or n < least:
        return 1.0
    # The baseline is the rate of one task: as measured at parallelism 1, else from the smallest.
    baseline, smallest = np.nan, -1
    # From the newest on: of several scalings from parallelism 1 the latest counts.
    for i in range(n - 1, -1, -1):
        if before[i] == 1:
            baseline, smallest = rates[i], -1
            break
        if smallest < 0 or before[i] < before[smallest]:
            smallest = i
    if smallest >= 0:
        baseline = rates[smallest] / before[smallest]
    if np.isnan(baseline):
        return 1.0
    # Minimize sum (rate - alpha * baseline * p)^2 over alpha.
    products, squares = 0.0, 0.0
    for i in range(n):
        if np.isnan(rates[i]):
            return 1.0
        products += before[i] * rates[i]
        squares += float(before[i]) * before[i]
    if squares == 0.0:
        return 1.0
    alpha = products / (squares * baseline)
    if np.isnan(alpha):
        return np.nan
    return ceil2(max(lowest, min(1.0, alpha)))


@njit(cache=True, nogil=True)
def delay(
    delayed: Delayed, j: int, v: int, now: int, interval: int, new: int, outside: bool
) -> tuple[int, bool]:
    """Delay a scale-down by the interval.

    Returns:
        The largest parallelism recommended over the interval, and whether it was outside the
        thresholds; 0 and False while the interval has not passed.
    """
    count = delayed.size[j, v]
    if count == 0:
        delayed.first_ms[j, v] = now
    # A monotone queue: smaller recommendations before a larger one can never be the maximum.
    while count > 0 and delayed.parallelism[j, v, count - 1] <= new:
        count -= 1
    delayed.ts_ms[j, v, count] = now
    delayed.parallelism[j, v, count] = new
    delayed.outside[j, v, count] = outside
    count += 1
    delayed.size[j, v] = count
    # Until an interval has passed since the first recommendation, the vertex waits.
    start = now - interval
    if start < delayed.first_ms[j, v]:
        return 0, False
    # Recommendations older than the interval leave at the front.
    drop = 0
    while delayed.ts_ms[j, v, drop] < start:
        drop += 1
    if drop > 0:
        for i in range(drop, count):
            delayed.ts_ms[j, v, i - drop] = delayed.ts_ms[j, v, i]
            delayed.parallelism[j, v, i - drop] = delayed.parallelism[j, v, i]
            delayed.outside[j, v, i - drop] = delayed.outside[j, v, i]
        delayed.size[j, v] = count - drop
    return delayed.parallelism[j, v, 0], delayed.outside[j, v, 0]


@njit(cache=True, nogil=True, error_model="numpy")
def _factor(factor: float, s: Settings, history: History, j: int, v: int) -> tuple[float, bool]:
    """Compute the factor by which to scale from that of a vertex that scales perfectly.

    Returns:
        The factor within its limits, and False where Flink's fit of the scalability fails.
    """
    if s.scalability:
        past = history.size[j, v]
        before, rates = history.before[j, v, :past], history.rate[j, v, :past]
        alpha = coefficient(before, rates, s.scalability_min, s.scalability_lowest)
        if np.isnan(alpha):
            return factor, False
        factor /= alpha
    if factor < s.min_factor:
        factor = s.min_factor
    elif factor > s.max_factor:
        factor = s.max_factor
    return factor, True


@njit(cache=True, nogil=True, error_model="numpy")
def _was_ineffective(
    history: History, j: int, v: int, p: int, rate: float, effectiveness: float
) -> bool:
    """Return whether the last scale-up, to p, brought less than its share of the expected gain."""
    last = history.size[j, v] - 1
    if last < 0 or not p == history.after[j, v, last] > history.before[j, v, last]:
        return False
    gain = history.expected[j, v, last] - history.rate[j, v, last]
    return not (rate - history.rate[j, v, last]) / gain >= effectiveness


@njit(cache=True, nogil=True, error_model="numpy")
def scale_vertex(
    x: Floats,
    p: int,
    limits: Limits,
    s: Settings,
    at: Pass,
    v: int,
    history: History,
    delayed: Delayed,
) -> tuple[int, bool, float, int, bool]:
    """Scale one vertex, as `JobVertexScaler.computeScaleTargetParallelism` does (FLIP-271).

    Args:
        x: Its evaluated metrics, (EVALUATED,).
        p: Its running parallelism.
        limits: Bounds and alignment of its parallelism.
        s: The settings.
        at: The pass.
        v: Column of the vertex in history and delayed.
        history: Trimmed scalings.
        delayed: Waiting scale-downs, changed in place.

    Returns:
        The parallelism (p: no change), whether the vertex is outside its thresholds,
        EXPECTED_PROCESSING_RATE (NaN: none), flags of events, and False where Flink fails.
    """
    j, rate = at.row, x[E_TPR]
    needed = capacity(x[E_TARGET], x[E_CATCH_UP], s.target, True, s, at.restart_s)
    if np.isnan(rate) or np.isnan(needed):
        return p, False, np.nan, 0, True
    # DS2's rule with Flink's head-room: needed capacity over true rate.
    factor, fits = _factor(needed / rate, s, history, j, v)
    # The running parallelism is always allowed, even outside the configured limits.
    lower, upper = min(p, limits.lowest), max(p, limits.highest)
    if not fits or lower > upper:
        return p, False, np.nan, 0, False
    new, limited = scale(
        p, factor, limits.hashed, limits.partitions, limits.max_parallelism, lower, upper, s.mode
    )
    events = LIMITED if limited else 0
    if new >= p:
        # A vertex that stays or grows forgets waiting scale-downs.
        delayed.size[j, v] = 0
    if new == p:
        return p, False, np.nan, events, True
    expected = round3(rate / p * new if s.final_expected else rate * factor)
    events |= EXPECTING
    outside = rate < x[E_UP] or rate > x[E_DOWN]
    if new > p:
        # Effectiveness: did the last scale-up bring the expected share of its expected gain?
        if _was_ineffective(history, j, v, p, rate, s.effectiveness):
            events |= INEFFECTIVE
            if s.detection:
                return p, False, expected, events, True
    elif s.scale_down_interval_ms > 0:
        new, outside = delay(delayed, j, v, at.now_ms, s.scale_down_interval_ms, new, outside)
        if new in (0, p):
            return p, False, expected, events, True
    return new, outside, expected, events, True


@njit(cache=True, nogil=True, error_model="numpy")
def scale_vertices(
    graph: Graph,
    at: Pass,
    evaluated: Floats,
    parallelism: Ints,
    excluded: Bools,
    s: Settings,
    history: History,
    delayed: Delayed,
    out: Recommended,
) -> int:
    """Recommend a parallelism for every vertex of a job, in the order in which Flink visits them.

    Args:
        graph: Graphs of the batch.
        at: The pass; its `graph` is the job's number there, its `row` that in history and delayed.
        evaluated: (V, EVALUATED) metrics.
        parallelism: (V,) running.
        excluded: (V,) True for a vertex that keeps its parallelism.
        s: The settings.
        history: Trimmed scalings.
        delayed: Waiting scale-downs, changed in place.
        out: Filled.

    Returns:
        1 where a vertex changes and is outside its thresholds, 0 where none does, -1 where Flink
        fails; vertices it would have visited later then stay unchanged.
    """
    k, due = at.graph, 0  # v is a vertex, p its running parallelism
    for v in range(graph.n[k]):
        # Vertices that are not visited keep their parallelism.
        out.new[v], out.outside[v], out.expected[v] = parallelism[v], False, np.nan
        out.events[v] = 0
    for v in graph.visits[k, : graph.n[k]]:
        p = parallelism[v]
        if excluded[v]:
            continue
        limits = Limits(
            graph.hashed[k, v],
            graph.partitions[k, v],
            graph.max_parallelism[k, v],
            graph.lowest[k, v],
            graph.highest[k, v],
        )
        new, outside, expected, events, fine = scale_vertex(
            evaluated[v], p, limits, s, at, v, history, delayed
        )
        out.new[v], out.outside[v], out.expected[v], out.events[v] = new, outside, expected, events
        if not fine:
            # Flink's exception ends the loop: those before it have their recommendations.
            return -1
        if new != p and outside:
            due = 1
    return due
