"""The 5 s samples of the metrics, and the seconds kept for plots."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.compiling import njit
from dsp_gym.job.service import BLOCK_MIB
from dsp_gym.job.tables import NO_WINDOW, SOURCE
from dsp_gym.metrics.samples import SAMPLE_S
from dsp_gym.simulation import philox as rng
from dsp_gym.simulation.options import Parameters
from dsp_gym.simulation.state import (
    LATENCY_BINS,
    LATENCY_MAX_S,
    LATENCY_MIN_S,
    TRACE,
    C,
    S,
    X,
)

Row = Floats

NOISE_SAMPLES = 4
"""Samples whose noise is drawn at once."""

_LOG_MIN = math.log(LATENCY_MIN_S)
_BIN_WIDTH = (math.log(LATENCY_MAX_S) - _LOG_MIN) / LATENCY_BINS
_BIN_EDGES = np.exp(_LOG_MIN + _BIN_WIDTH * np.arange(LATENCY_BINS + 1))
_BIN_LOW = _BIN_EDGES[:-1] * (1.0 + 1e-9)
_BIN_HIGH = np.append(_BIN_EDGES[1:-1] * (1.0 - 1e-9), math.inf)
"""Latencies between which all are in a bin; within rounding of an edge the logarithm decides."""


def noise_lanes(vertices: int) -> Floats:
    """Allocate room for the noise of `NOISE_SAMPLES` samples of a job of that many vertices.

    Returns:
        (3, V * NOISE_SAMPLES): of service times, of busyness, of state accesses; the samples of a
        vertex stand side by side.
    """
    return np.zeros((3, vertices * NOISE_SAMPLES))


@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def draw_noise(n: int, seed: int, tick: int, noise: Row) -> None:
    """Draw the noise of n vertices for the sample that closes in second `tick`, and the next ones.

    One loop over samples and vertices lets LLVM inline the functions of `philox` and use vector
    instructions: a separate draw takes three times as long. `noise` is as from `noise_lanes`.
    """
    # m counts the samples i of vertex v side by side; the draw is keyed by the second and the
    # vertex.
    for m in range(n * NOISE_SAMPLES):
        v, i = m // NOISE_SAMPLES, m % NOISE_SAMPLES
        first, second = rng.philox(seed, rng.NOISE, tick + i * SAMPLE_S, v)
        noise[0, m], noise[1, m] = rng.normal(first), rng.low_normal(second)
        noise[2, m] = rng.high_normal(second)


class ShownSignals(NamedTuple):
    """What the gauges of a job show in the open sample."""

    load: float  # of a task, 0..1; negative: gauges show the load itself
    tasks: float  # of the widest vertex
    shown: Row  # (V, gauges, terms) responses of busy and backpressured time


@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def widest(n: int, c: Row, x: Row) -> float:
    """Return the most tasks of n vertices; those of sources do not count.

    Returns:
        At least 1.
    """
    tasks = 1.0
    for v in range(n):
        if c[v, C.kind] != SOURCE:
            tasks = max(tasks, x[v, X.tasks])
    return tasks


@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def load_of(n: int, c: Row, x: Row) -> float:
    """Return the load of the open sample: records of a task over those it could process alone.

    Returns:
        0..1, of the vertex that is busy most; what tasks lose to each other is not load.
    """
    load = 0.0
    for v in range(n):
        if c[v, C.kind] != SOURCE:
            records = x[v, X.records_in] - x[v, X.last_in]
            load = max(load, records * x[v, X.service_s] / (x[v, X.tasks] * SAMPLE_S))
    return min(1.0, load)


@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def response(factors: Row, load: float, tasks: float) -> float:
    """Return what a gauge shows at a load (`signals.Response`).

    Returns:
        At least 0, in the gauge's unit.
    """
    more = math.log(max(1.0, tasks))
    shown = (factors[1] + factors[3] * more) * load + (factors[2] + factors[4] * more) * load * load
    return float(max(0.0, factors[0] + shown))


@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def keep_sample(
    n: int,
    c: Row,
    x: Row,
    ring: Row,
    taken: int,
    known: int,
    noise: Row,
    drawn: int,
    par: Parameters,
    signals: ShownSignals,
) -> int:
    """Close the 5 s sample of one job in its ring (R, V, len(S)).

    n vertices v have fixed columns c (V, len(C)) and state x (V, len(X)); `taken` samples came
    before. The noise of this sample is number `drawn` of each vertex in `noise` (`draw_noise`).

    The ring holds counters since the restart, and sums of gauges over the known samples, so that a
    window is the difference of two rows however long it is.

    Where the job has `signals`, they stand in the place of the vertices' own times.

    Service times are constant within a sample, so busy time and state accesses follow from the
    records. The cache warms, and the time gauges move on.

    Returns:
        The place of the sample in the ring.
    """
    size, gauge = ring.shape[0], par.gauge_samples
    at = taken % size
    before = at - 1 if at > 0 else size - 1
    # The ring is cyclic: `oldest` is the sample that leaves the gauges' span.
    oldest = at - gauge if at >= gauge else at - gauge + size
    spans = min(taken + 1, gauge)
    noisy = par.noise_cv + par.service_cv > 0
    kept = 1.0 if taken > 0 else 0.0  # 0: older rows date from before the restart
    for v in range(n):
        records = x[v, X.records_in] - x[v, X.last_in]
        if c[v, C.window] == NO_WINDOW:
            x[v, X.content] += records
        # busy_per is the busy time of the whole vertex per record: records x s / s is a share.
        busy = min(1.0, records * x[v, X.busy_per] / SAMPLE_S)
        back = min(1.0 - busy, x[v, X.sample_back] / SAMPLE_S)
        if signals.load >= 0.0:
            busy = min(1.0, response(signals.shown[v, 0], signals.load, signals.tasks))
            back = min(1.0 - busy, response(signals.shown[v, 1], signals.load, signals.tasks))
        factor = 1.0
        if noisy:
            m = v * NOISE_SAMPLES + drawn
            x[v, X.noise] = noise[0, m]  # of service times until the next sample
            # Busy is the time left by idle and backpressured: a task that never waits reads 1000.
            busy += par.noise_cv * noise[1, m] * min(busy, max(0.0, 1.0 - busy - back))
            factor = max(0.2, 1.0 + par.noise_cv * noise[2, m])
        # A gauge is a moving sum: subtract the sample that leaves its span, add the new one.
        if taken >= gauge:
            x[v, X.gauge_busy] -= ring[oldest, v, S.raw_busy]
            x[v, X.gauge_back] -= ring[oldest, v, S.raw_back]
        x[v, X.gauge_busy] += busy
        x[v, X.gauge_back] += back
        mean_busy = min(1.0, max(0.0, x[v, X.gauge_busy] / spans))
        mean_back = min(1.0 - mean_busy, max(0.0, x[v, X.gauge_back] / spans))
        # Flink's gauges average 60 s; counted times are those of this sample alone.
        if par.counts_times:
            mean_busy = min(1.0, max(0.0, busy))
            mean_back = min(1.0 - mean_busy, max(0.0, back))
        if known:
            top = min(1.0, mean_busy * x[v, X.hot])
            ring[at, v, S.busy] = kept * ring[before, v, S.busy] + mean_busy
            ring[at, v, S.busy_max] = kept * ring[before, v, S.busy_max] + top
            ring[at, v, S.back] = kept * ring[before, v, S.back] + mean_back
        # A lost sample adds nothing to the sums; the counters below go on.
        else:
            for m in range(S.busy, S.back + 1):
                ring[at, v, m] = kept * ring[before, v, m]
        ring[at, v, S.records_in] = x[v, X.records_in]
        ring[at, v, S.records_out] = x[v, X.records_out]
        ring[at, v, S.raw_busy], ring[at, v, S.raw_back] = busy, back
        ring[at, v, S.pending] = x[v, X.pending]
        x[v, X.last_in], x[v, X.sample_back] = x[v, X.records_in], 0.0
        if c[v, C.stateful] == 0.0:
            continue
        # Per read: `lookups` blocks, of which `covered` need no block cache (the MemTable) and 1 -
        # `hit` are misses. A data block in the cache brings hits of its index and filter blocks.
        lookups = records * c[v, C.reads] * x[v, X.lookups]
        misses = lookups * (1.0 - x[v, X.hit])
        asked = lookups * (1.0 - x[v, X.covered])  # of the block cache, for data blocks
        hits = asked * (1.0 + c[v, C.index_hits]) - misses
        compacted = records * c[v, C.writes] * x[v, X.compacted]  # these do not stay cached
        x[v, X.hits] += hits
        x[v, X.misses] += misses + compacted
        if known:
            missed = (1.0 - x[v, X.hit]) * x[v, X.lookups]
            read_s = (c[v, C.read_hit_s] + missed * x[v, X.miss_s]) * factor
            write_s = c[v, C.write_s] * x[v, X.write_factor] * factor
            ring[at, v, S.read_s] = kept * ring[before, v, S.read_s] + read_s
            ring[at, v, S.write_s] = kept * ring[before, v, S.write_s] + write_s
        else:
            for m in range(S.read_s, S.write_s + 1):
                ring[at, v, m] = kept * ring[before, v, m]
        if taken > 0 or not par.warms_each_second:  # `warm` has brought the first sample's blocks
            bring(c[v], x[v], misses)
        ring[at, v, S.hits], ring[at, v, S.misses] = x[v, X.hits], x[v, X.misses]
        ring[at, v, S.state], ring[at, v, S.cached] = x[v, X.state], x[v, X.cached]
    return int(at)


@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def bring(c: Row, x: Row, misses: float) -> None:
    """Put blocks that missed the cache into it, for a vertex with columns c and state x."""
    if misses > 0.0:
        # Each subtask has a cache; a miss brings a block, or an entry where that is larger.
        brought = misses / x[X.tasks] * max(BLOCK_MIB, c[C.entry_mib])
        x[X.cached] = min(x[X.cache], x[X.cached] + brought)


@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def warm(n: int, c: Row, x: Row) -> None:
    """Warm the caches of n vertices by what they can read in the coming second.

    It is called right after a restart, when a backlog keeps vertices at their capacity.
    """
    for v in range(n):
        if c[v, C.stateful] > 0.0:
            lookups = x[v, X.capacity] * c[v, C.reads] * x[v, X.lookups]
            bring(c[v], x[v], lookups * (1.0 - x[v, X.hit]))


@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def is_known(seed: int, tick: int, gap_until: int, par: Parameters) -> int:
    """Return 0 where the sample was lost or fell into a metric gap, else 1.

    Returns:
        0 or 1.
    """
    if tick < gap_until:
        return 0
    if par.missing > 0:
        word, _ = rng.philox(seed, rng.LOSS, tick, 0)
        if rng.uniform(word) < par.missing:
            return 0
    return 1


@njit(cache=True, nogil=True)
def latency_bin(latency: float) -> int:
    """Return the bin of a latency in the histogram, whose edges grow geometrically.

    Returns:
        0..LATENCY_BINS - 1.
    """
    place = (math.log(max(latency, LATENCY_MIN_S)) - _LOG_MIN) / _BIN_WIDTH
    return min(LATENCY_BINS - 1, int(place))


@njit(cache=True, nogil=True, inline="always")
def count_latency(
    histogram: Row, latency: float, known: tuple[int, float, float]
) -> tuple[int, float, float]:
    """Count a second in the bin of its latency.

    Consecutive latencies of a job are close, and a comparison is cheaper than a logarithm: so the
    last bin and its edges are passed on.

    Args:
        histogram: (LATENCY_BINS,) seconds.
        latency: Seconds.
        known: A bin and two latencies between which all are in that bin; at first 0, infinity, 0.

    Returns:
        The bin of this latency, and two such latencies.
    """
    place, least, most = known
    if not least < latency < most:
        # Walk to the neighbouring bins; the logarithm decides only within rounding of an edge, so
        # that the result equals `latency_bin` always.
        while place > 0 and latency <= _BIN_LOW[place]:
            place -= 1
        while latency >= _BIN_HIGH[place]:
            place += 1
        if latency <= _BIN_LOW[place]:
            place = latency_bin(latency)
        least, most = _BIN_LOW[place], _BIN_HIGH[place]
    histogram[place] += 1.0
    return place, least, most


@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def note(line: Row, rate: float, taken: float, latency: float, backlog: float) -> None:
    """Keep a second for plots in `line`, (len(TRACE),)."""
    line[TRACE.rate], line[TRACE.processed] = rate, taken
    line[TRACE.latency], line[TRACE.pending] = latency, backlog
