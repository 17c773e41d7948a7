"""The 5 s samples of the metrics, and what is kept of every second."""

from __future__ import annotations

import math

from dsp_gym.arrays import Floats
from dsp_gym.compiling import njit
from dsp_gym.job.tables import NO_WINDOW
from dsp_gym.metrics.samples import SAMPLE_S
from dsp_gym.simulation import philox as rng
from dsp_gym.simulation.options import Parameters
from dsp_gym.simulation.state import (
    LATENCY_BINS,
    LATENCY_MAX_S,
    LATENCY_MIN_S,
    SUMMED_COLUMNS,
    TRACE,
    C,
    S,
    X,
)

Row = Floats

BLOCK_MIB = 4096 / (1024.0 * 1024.0)
"""What a cache miss brings in: one RocksDB block of 4 KiB."""

_LOG_MIN = math.log(LATENCY_MIN_S)
_BIN_WIDTH = (math.log(LATENCY_MAX_S) - _LOG_MIN) / LATENCY_BINS


@njit(cache=True, nogil=True)
def keep_sample(
    n: int,
    c: Row,
    x: Row,
    ring: Row,
    taken: int,
    known: int,
    seed: int,
    tick: int,
    par: Parameters,
) -> None:
    """Close the 5 s sample of one job in its ring (R, V, len(S)).

    n vertices v, with fixed columns c (V, len(C)) and state x (V, len(X)); `taken` samples before.

    The ring holds sums since the restart over the samples that are known, so that a window is the
    difference of two rows however long it is.

    Service times are constant within a sample, so busy time and state accesses follow from the
    records. The cache warms, and the time gauges move on.
    """
    size, gauge = ring.shape[0], par.gauge_samples
    at, before, oldest = taken % size, (taken - 1) % size, (taken - gauge) % size
    spans = min(taken + 1, gauge)
    noisy = par.noise_cv + par.service_cv > 0
    for v in range(n):
        records = x[v, X.records_in] - x[v, X.last_in]
        if c[v, C.window] == NO_WINDOW:
            x[v, X.content] += records
        busy = min(1.0, records * x[v, X.busy_per] / SAMPLE_S)
        back = min(1.0 - busy, x[v, X.sample_back] / SAMPLE_S)
        noise = 1.0
        if noisy:
            first, second = rng.philox(seed, rng.NOISE, tick, v)
            x[v, X.noise] = rng.normal(first)  # of service times until the next sample
            # Busy is what idle and backpressured leave: a task that never waits reads 1000.
            change = par.noise_cv * rng.low_normal(second) * min(busy, max(0.0, 1.0 - busy - back))
            busy += change
            noise = max(0.2, 1.0 + par.noise_cv * rng.high_normal(second))
        if taken >= gauge:
            x[v, X.gauge_busy] -= ring[oldest, v, S.raw_busy]
            x[v, X.gauge_back] -= ring[oldest, v, S.raw_back]
        x[v, X.gauge_busy] += busy
        x[v, X.gauge_back] += back
        reads = records * c[v, C.reads]
        lookups = reads * x[v, X.lookups]
        misses = lookups * (1.0 - x[v, X.hit])
        asked = lookups * (1.0 - x[v, X.covered])  # of the block cache, for data blocks
        hits = asked * (1.0 + c[v, C.index_hits]) - misses
        compacted = records * c[v, C.writes] * x[v, X.compacted]  # these do not stay cached
        x[v, X.hits] += hits
        x[v, X.misses] += misses + compacted
        for m in range(SUMMED_COLUMNS):
            ring[at, v, m] = ring[before, v, m] if taken > 0 else 0.0
        mean_busy = min(1.0, max(0.0, x[v, X.gauge_busy] / spans))
        if known:
            missed = (1.0 - x[v, X.hit]) * x[v, X.lookups]
            read_s = c[v, C.read_hit_s] + missed * x[v, X.miss_s]
            ring[at, v, S.records_in] += records
            ring[at, v, S.records_out] += x[v, X.records_out] - x[v, X.last_out]
            ring[at, v, S.busy] += mean_busy
            ring[at, v, S.busy_max] += min(1.0, mean_busy * x[v, X.hot])
            ring[at, v, S.back] += min(1.0 - mean_busy, max(0.0, x[v, X.gauge_back] / spans))
            ring[at, v, S.hits] += hits
            ring[at, v, S.misses] += misses + compacted
            ring[at, v, S.read_s] += read_s * noise
            ring[at, v, S.write_s] += c[v, C.write_s] * x[v, X.write_factor] * noise
        ring[at, v, S.raw_busy], ring[at, v, S.raw_back] = busy, back
        ring[at, v, S.pending] = x[v, X.pending]
        if misses > 0.0:
            brought = misses / x[v, X.tasks] * max(BLOCK_MIB, c[v, C.entry_mib])
            x[v, X.cached] = min(x[v, X.cache], x[v, X.cached] + brought)
        x[v, X.last_in], x[v, X.last_out] = x[v, X.records_in], x[v, X.records_out]
        x[v, X.sample_back] = 0.0


@njit(cache=True, nogil=True)
def is_known(seed: int, tick: int, gap_until: int, par: Parameters) -> int:
    """0 where the sample was lost or fell into a metric gap.

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


@njit(cache=True, nogil=True, inline="always")
def count_latency(histogram: Row, latency: float) -> None:
    """Count a second in the bin of its latency."""
    place = (math.log(max(latency, LATENCY_MIN_S)) - _LOG_MIN) / _BIN_WIDTH
    histogram[min(LATENCY_BINS - 1, int(place))] += 1.0


@njit(cache=True, nogil=True)
def note(line: Row, rate: float, taken: float, latency: float, backlog: float) -> None:
    """Keep a second for plots."""
    line[TRACE.rate], line[TRACE.processed] = rate, taken
    line[TRACE.latency], line[TRACE.pending] = latency, backlog
