"""The 5 s samples of the metrics, and what is kept of every second."""

from __future__ import annotations

import math

from numba import njit

from dsp_gym.arrays import Floats
from dsp_gym.job.tables import NO_WINDOW
from dsp_gym.simulation import philox as rng
from dsp_gym.simulation import state as col
from dsp_gym.simulation.options import SAMPLE_S
from dsp_gym.simulation.parameters import P_MEASURE_CV, P_MISSING, P_SERVICE_CV
from dsp_gym.simulation.state import LATENCY_BINS, LATENCY_MAX_S, LATENCY_MIN_S

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
    gauge: int,
    seed: int,
    tick: int,
    par: Row,
) -> None:
    """Close the 5 s sample of one job in its ring (R, V, SAMPLE_COLUMNS).

    The ring holds sums since the restart over the samples that are known, so that a window is the
    difference of two rows however long it is.

    Service times are constant within a sample, so busy time and state accesses follow from the
    records. The cache warms, and the time gauges move on.
    """
    size = ring.shape[0]
    at, before, oldest = taken % size, (taken - 1) % size, (taken - gauge) % size
    spans = min(taken + 1, gauge)
    noisy = par[P_MEASURE_CV] + par[P_SERVICE_CV] > 0
    for v in range(n):
        records = x[v, col.X_IN] - x[v, col.X_LAST_IN]
        if c[v, col.C_WINDOW] == NO_WINDOW:
            x[v, col.X_CONTENT] += records
        busy = min(1.0, records * x[v, col.X_BUSY_PER] / SAMPLE_S)
        back = min(1.0 - busy, x[v, col.X_S_BACK] / SAMPLE_S)
        noise = 1.0
        if noisy:
            first, second = rng.philox(seed, rng.NOISE, tick, v)
            x[v, col.X_NOISE] = rng.normal(first)  # of service times until the next sample
            # Busy is what idle and backpressured leave: a task that never waits reads 1000.
            change = (
                par[P_MEASURE_CV] * rng.low_normal(second) * min(busy, max(0.0, 1.0 - busy - back))
            )
            busy += change
            noise = max(0.2, 1.0 + par[P_MEASURE_CV] * rng.high_normal(second))
        if taken >= gauge:
            x[v, col.X_G_BUSY] -= ring[oldest, v, col.S_RAW_BUSY]
            x[v, col.X_G_BACK] -= ring[oldest, v, col.S_RAW_BACK]
        x[v, col.X_G_BUSY] += busy
        x[v, col.X_G_BACK] += back
        reads = records * c[v, col.C_READS]
        misses = reads * (1.0 - x[v, col.X_HIT])
        asked = reads * (1.0 - x[v, col.X_COVERED])  # of the block cache, for data blocks
        hits = asked * (1.0 + c[v, col.C_INDEX]) - misses
        x[v, col.X_HITS] += hits
        x[v, col.X_MISSES] += misses
        for m in range(col.SUMMED_COLUMNS):
            ring[at, v, m] = ring[before, v, m] if taken > 0 else 0.0
        mean_busy = min(1.0, max(0.0, x[v, col.X_G_BUSY] / spans))
        if known:
            read_s = c[v, col.C_READ_HIT] + (1.0 - x[v, col.X_HIT]) * x[v, col.X_MISS]
            ring[at, v, col.S_IN] += records
            ring[at, v, col.S_OUT] += x[v, col.X_OUT] - x[v, col.X_LAST_OUT]
            ring[at, v, col.S_BUSY] += mean_busy
            ring[at, v, col.S_BUSY_MAX] += min(1.0, mean_busy * x[v, col.X_HOT])
            ring[at, v, col.S_BACK] += min(1.0 - mean_busy, max(0.0, x[v, col.X_G_BACK] / spans))
            ring[at, v, col.S_HITS] += hits
            ring[at, v, col.S_MISSES] += misses
            ring[at, v, col.S_READ] += read_s * noise
            ring[at, v, col.S_WRITE] += c[v, col.C_WRITE] * x[v, col.X_WRITE_FACTOR] * noise
        ring[at, v, col.S_RAW_BUSY], ring[at, v, col.S_RAW_BACK] = busy, back
        ring[at, v, col.S_PENDING] = x[v, col.X_PENDING]
        if misses > 0.0:
            brought = misses / x[v, col.X_P] * max(BLOCK_MIB, c[v, col.C_ENTRY])
            x[v, col.X_CACHED] = min(x[v, col.X_CACHE], x[v, col.X_CACHED] + brought)
        x[v, col.X_LAST_IN], x[v, col.X_LAST_OUT] = x[v, col.X_IN], x[v, col.X_OUT]
        x[v, col.X_S_BACK] = 0.0


@njit(cache=True, nogil=True)
def is_known(seed: int, tick: int, gap_until: int, par: Row) -> int:
    """0 where the sample was lost or fell into a metric gap."""
    if tick < gap_until:
        return 0
    if par[P_MISSING] > 0:
        word, _ = rng.philox(seed, rng.LOSS, tick, 0)
        if rng.uniform(word) < par[P_MISSING]:
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
    line[col.T_RATE], line[col.T_PROCESSED] = rate, taken
    line[col.T_LATENCY], line[col.T_PENDING] = latency, backlog
