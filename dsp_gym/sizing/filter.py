"""The filter behind the service model: what a snapshot teaches about times per record.

Of each vertex a Gaussian of the logarithm of its time per record, one place per memory level, and
of the exponent in the number of tasks; see `dsp_gym.sizing.service`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.job.capacity import slots_in_use, vertex_capacity
from dsp_gym.job.tables import SOURCE, JobTables
from dsp_gym.loop.snapshot import JOB, RUNNING, VERTEX, SnapshotArrays
from dsp_gym.loop.topology import JobFacts
from dsp_gym.numba_handles import Handle, by_address, direct
from dsp_gym.sizing.arrivals import ENOUGH_FILL

__all__ = ["Believed", "Doubt", "Learning", "Shares", "Times", "begin", "crowd", "learn"]

_MOST_MINUTES = 60.0
"""Snapshots that the share of a vertex in the load is averaged over."""

_OUTLIER = 3.0
"""Standard deviations from which on a measurement counts less."""

_GAUGE_MS = 2.0
"""Standard error of a busy gauge, ms/s: it says little about a vertex that is hardly busy."""


class Learning(NamedTuple):
    """`SizingConfig` as compiled code takes it."""

    is_filed: bool
    exponent: float
    common_error: float  # of all levels alike
    level_error: float
    exponent_error: float
    noise: float
    drift: float
    optimism: float


class Shares(NamedTuple):
    """What is known of the input of each vertex, (J, V)."""

    ratio: Floats  # its input per record of job load
    minutes: Floats  # weight of the ratio, in snapshots
    is_known: Ints  # 0 or 1: the times have a value


class Times(NamedTuple):
    """Of each vertex, (J, V, L + 2): one place per memory level from none on, then the exponent."""

    mean: Floats
    tried: Floats  # snapshots measured at the level; the last place is unused
    hit: Floats  # cache hit rate at the level, NaN: unknown; the last place is unused


class Doubt(NamedTuple):
    """Of each vertex, (J, V, (L + 2)^2)."""

    covariance: Floats


class Believed(NamedTuple):
    """All that a service model knows, for compiled code."""

    seen: Shares
    times: Times
    doubt: Doubt
    records_per_s: Floats  # of the prior, (K, V, L + 1, P + 1)
    contention: Floats  # (K,) speed lost per further slot in use; 0 without a prior
    slots: Ints  # (K,) per TaskManager
    slot_sharing: Ints  # (K,) 0 or 1
    rules: Learning


for _table in (Learning, Times, Doubt):
    by_address(_table)


@njit(cache=True, nogil=True)
def begin(times: Times, doubt: Doubt, j: int, v: int, column: int, c: Learning) -> None:
    """Set the Gaussian of a vertex: a random walk over levels that starts at one of them."""
    size = times.mean.shape[2]
    last = size - 1
    doubt.covariance[j, v, :] = 0.0
    for a in range(last):
        times.mean[j, v, a] = 0.0
        for b in range(last):
            same_side = (a - column) * (b - column) > 0
            steps = min(abs(a - column), abs(b - column)) if same_side else 0
            doubt.covariance[j, v, a * size + b] = c.common_error**2 + steps * c.level_error**2
    times.mean[j, v, last] = c.exponent
    doubt.covariance[j, v, last * size + last] = c.exponent_error**2


@njit(cache=True, nogil=True)
def _settle(
    times: Times, doubt: Doubt, place: tuple[int, int, int], value: float, log_p: float, c: Learning
) -> None:
    """Set the Gaussian of a vertex without a prior from its first measurement."""
    j, v, column = place
    size = times.mean.shape[2]
    last = size - 1
    begin(times, doubt, j, v, column, c)
    # x[level] = value - a ln p: uncertain as the measurement is, and against the exponent.
    for a in range(last):
        times.mean[j, v, a] = value - c.exponent * log_p
        against = -log_p * c.exponent_error**2
        doubt.covariance[j, v, a * size + last] = against
        doubt.covariance[j, v, last * size + a] = against
        for b in range(last):
            doubt.covariance[j, v, a * size + b] += (log_p * c.exponent_error) ** 2 + c.noise**2


@njit(cache=True, nogil=True)
def _update(
    times: Times,
    doubt: Doubt,
    place: tuple[int, int, int],
    value: float,
    log_p: float,
    noise: float,
) -> None:
    """One step of the Kalman filter: ln time measured at a level with p tasks."""
    j, v, column = place
    size = times.mean.shape[2]
    last = size - 1
    mean, cov = times.mean[j, v], doubt.covariance[j, v]
    gain = np.zeros(size)
    for a in range(size):
        gain[a] = cov[a * size + column] + log_p * cov[a * size + last]
    own = gain[column] + log_p * gain[last]
    surprise = value - mean[column] - log_p * mean[last]
    spread = own + noise * noise
    # An outlier moves the mean as one of three standard deviations would, and teaches less.
    limit = _OUTLIER * math.sqrt(spread)
    if abs(surprise) > limit:
        spread *= abs(surprise) / limit
    for a in range(size):
        mean[a] += gain[a] / spread * surprise
    for a in range(size):
        for b in range(size):
            cov[a * size + b] -= gain[a] * gain[b] / spread


@direct
@njit(cache=True, nogil=True)
def learn(
    facts: Handle[JobFacts],
    tables: Handle[JobTables],
    now: SnapshotArrays,
    believed: Handle[Believed],
) -> None:
    """Learn from a snapshot. j is a job's row, k its job file, v a vertex, p its tasks."""
    t, file, known = facts.arrays, tables.arrays, believed.arrays
    seen, times, doubt, c = known.seen, known.times, known.doubt, known.rules
    records_in = now.vertex[VERTEX.records_in_per_s]
    busy, busy_max = now.vertex[VERTEX.busy_ms_per_s], now.vertex[VERTEX.busy_max_ms_per_s]
    hits = now.vertex[VERTEX.cache_hit_rate]
    size = times.mean.shape[2]
    for j in range(now.status.shape[0]):
        k = t.row[j]
        filled = now.job[JOB.window_fill, j] >= ENOUGH_FILL
        if now.status[j] != RUNNING or not filled:
            continue
        load = 0.0
        for v in range(t.n[k]):
            if t.kind[k, v] == SOURCE:
                load += records_in[j, v]
        slow = 1.0
        if c.is_filed:
            slow = crowd(known.contention[k], slots_in_use(file, k, now.parallelism[j]))
        for v in range(t.n[k]):
            rate = records_in[j, v]
            if t.kind[k, v] == SOURCE or not rate > 0.0 or not load > 0.0:
                continue
            weight = min(seen.minutes[j, v], _MOST_MINUTES - 1.0) + 1.0
            before = 0.0 if math.isnan(seen.ratio[j, v]) else seen.ratio[j, v]
            seen.ratio[j, v] = before + (rate / load - before) / weight
            seen.minutes[j, v] = weight

            p, column = now.parallelism[j, v], now.memory_level[j, v] + 1
            gauge = busy[j, v] if math.isnan(busy_max[j, v]) else busy_max[j, v]
            if math.isnan(gauge) or p < 1 or not 0 <= column < size - 1:
                continue
            gauge = max(gauge, 2.0 * _GAUGE_MS)
            capacity = rate / (gauge / 1000.0)
            expected = float(p)
            if c.is_filed:
                free, _ = vertex_capacity(file, k, v, p, column - 1, rate)
                expected = free * slow
            value, log_p = math.log(expected / capacity), math.log(p)
            place = (j, v, column)
            noise = math.hypot(c.noise, _GAUGE_MS / gauge)
            if seen.is_known[j, v] == 0:
                _settle(times, doubt, place, value, log_p, c)
                seen.is_known[j, v] = 1
            else:
                for a in range(size - 1):
                    for b in range(size - 1):
                        doubt.covariance[j, v, a * size + b] += c.drift**2
                _update(times, doubt, place, value, log_p, noise)
            times.tried[j, v, column] += 1.0
            if not math.isnan(hits[j, v]):
                times.hit[j, v, column] = hits[j, v]


@njit(cache=True, nogil=True)
def crowd(contention: float, slots: int) -> float:
    """Speed left where several slots of a TaskManager are in use.

    Returns:
        0.05 to 1.
    """
    return max(0.05, 1.0 - contention * (slots - 1))
