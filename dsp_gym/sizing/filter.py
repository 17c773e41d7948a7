"""The filter behind the service model: a snapshot's lesson about times per record.

For each vertex it keeps a Gaussian of the logarithm of its time per record, one place per memory
level, and of the exponent in the number of tasks; see `dsp_gym.sizing.service`.

Letters: j is a job's row, k its job file, v a vertex, p its tasks; a and b are places of the
Gaussian, `column` the place of a memory level (level + 1) and `last` that of the exponent. The
covariance of a vertex is a flat matrix, cov[a * size + b].
"""

from __future__ import annotations

import math
from typing import NamedTuple

from dsp_gym.arrays import Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.job.capacity import slots_in_use, vertex_capacity
from dsp_gym.job.tables import SOURCE, JobTables
from dsp_gym.loop.snapshot import JOB, RUNNING, VERTEX, SnapshotArrays
from dsp_gym.loop.topology import JobFacts
from dsp_gym.numba_handles import Handle, by_address, direct
from dsp_gym.sizing.arrivals import ENOUGH_FILL, pending_records
from dsp_gym.sizing.caches import FEW_MISSES, Caches, fills

_MOST_MINUTES = 60.0
"""Most snapshots that the share of a vertex in the load is averaged over."""

_OUTLIER = 3.0
"""Standard deviations beyond which a measurement counts less."""

_SURPRISE = 2.0
"""Standard deviations beyond which a measurement is a surprise; one in twenty is one by chance."""

_UNCOUNTED = 0.5
"""Count of surprises that only misses of the cache explain."""

_OTHER_MISSES = 0.1
"""Share of the misses believed by which others may differ and explain no surprise; or a few."""

_COLD_ERROR = 1.0
"""Standard error of a time measured on a cold cache, as a logarithm: it may be several times too
long."""

_GAUGE_MS = 2.0
"""Standard error of a busy gauge, ms/s: it says little about a vertex that is hardly busy."""


_BEHIND_S = 10.0
"""Seconds of its load that wait all through the metrics window of a job at its limit."""

_LEAST_BUSY, _HONEST = 0.33, 0.9
"""Busy share of the busiest vertex of a job at its limit: below the first something else holds the
job, from the second on the gauge tells the limit."""


class Learning(NamedTuple):
    """`SizingConfig` as compiled code takes it."""

    is_filed: bool
    exponent: float
    common_error: float  # standard error common to all levels
    level_error: float
    exponent_error: float
    noise: float
    drift: float
    optimism: float
    surprises: int  # in a row, after which a time has changed; 0: never


class Shares(NamedTuple):
    """The known input of each vertex, and its limit where its gauge does not show it, (J, V)."""

    ratio: Floats  # its input per record of job load
    minutes: Floats  # weight of the ratio, in snapshots
    is_known: Ints  # 0 or 1: the times have a value
    limit: Floats  # least time at the level below, as the times; NaN: its gauge shows it
    limit_column: Ints  # place of that memory level


class Times(NamedTuple):
    """Of each vertex, (J, V, L + 2): one place per memory level from none on, then the exponent."""

    mean: Floats
    # Snapshots measured at the level. The last place: surprises in a row, negative where the time
    # is shorter than expected; 0 unless they are counted.
    tried: Floats
    hit: Floats  # cache hit rate at the level, NaN: unknown; the last place is unused


class Doubt(NamedTuple):
    """The covariance of each vertex, (J, V, (L + 2)^2)."""

    covariance: Floats


class Believed(NamedTuple):
    """The whole knowledge of a service model, for compiled code."""

    seen: Shares
    times: Times
    doubt: Doubt
    caches: Caches
    records_per_s: Floats  # of the prior, (K, V, L + 1, P + 1)
    contention: Floats  # (K,) speed lost per further slot in use; 0 without a prior
    slots: Ints  # (K,) per TaskManager
    slot_sharing: Ints  # (K,) 0 or 1
    rules: Learning


# Nested in other tuples: passed by address, compiled code need not copy their arrays.
for _table in (Learning, Times, Doubt):
    by_address(_table)


@njit(cache=True, nogil=True)
def begin(times: Times, doubt: Doubt, j: int, v: int, column: int, c: Learning) -> None:
    """Set the Gaussian of a vertex: a random walk over levels that starts at one of them."""
    size = times.mean.shape[2]
    last = size - 1
    for a in range(size * size):
        doubt.covariance[j, v, a] = 0.0
    for a in range(last):
        times.mean[j, v, a] = 0.0
        for b in range(last):
            # Two levels on the same side of the start share the steps up to the nearer one: that is
            # the covariance of a random walk; on different sides they share only the common error.
            same_side = (a - column) * (b - column) > 0
            steps = min(abs(a - column), abs(b - column)) if same_side else 0
            doubt.covariance[j, v, a * size + b] = c.common_error**2 + steps * c.level_error**2
    times.mean[j, v, last] = c.exponent
    doubt.covariance[j, v, last * size + last] = c.exponent_error**2


@njit(cache=True, nogil=True)
def _settle(
    known: Believed, place: tuple[int, int, int], value: float, log_p: float, noise: float
) -> None:
    """Set the Gaussian of a vertex from a measurement, where little or nothing is known of it."""
    (j, v, column), times, doubt, c = place, known.times, known.doubt, known.rules
    size = times.mean.shape[2]
    last = size - 1
    begin(times, doubt, j, v, column, c)
    # x[level] = value - a ln p: as uncertain as the measurement, and correlated negatively with the
    # exponent a.
    # Without a prior every level begins at the first value seen.
    for a in range(last):
        times.mean[j, v, a] = value - c.exponent * log_p
        against = -log_p * c.exponent_error**2
        doubt.covariance[j, v, a * size + last] = against
        doubt.covariance[j, v, last * size + a] = against
        for b in range(last):
            doubt.covariance[j, v, a * size + b] += (log_p * c.exponent_error) ** 2 + noise**2


@njit(cache=True, nogil=True)
def _update(
    times: Times,
    doubt: Doubt,
    place: tuple[int, int, int],
    value: float,
    log_p: float,
    noise: float,
    gain: Floats,
) -> None:
    """Take one step of the Kalman filter: ln time measured at a level with p tasks."""
    j, v, column = place
    size = times.mean.shape[2]
    last = size - 1
    mean, cov = times.mean[j, v], doubt.covariance[j, v]
    # The observation is h x with h = 1 at the level and ln p at the exponent: gain = cov h.
    for a in range(size):
        gain[a] = cov[a * size + column] + log_p * cov[a * size + last]
    own = gain[column] + log_p * gain[last]
    # The innovation: measured minus expected logarithm of the time.
    surprise = value - mean[column] - log_p * mean[last]
    spread = own + noise * noise
    # An outlier moves the mean as three standard deviations would, and teaches less.
    limit = _OUTLIER * math.sqrt(spread)
    if abs(surprise) > limit:
        spread *= abs(surprise) / limit
    for a in range(size):
        mean[a] += gain[a] / spread * surprise
    for a in range(size):
        for b in range(size):
            cov[a * size + b] -= gain[a] * gain[b] / spread


@njit(cache=True, nogil=True)
def _measure(
    known: Believed,
    place: tuple[int, int, int],
    value: float,
    log_p: float,
    noise: float,
    hit: float,
    is_cold: bool,
    gain: Floats,
) -> None:
    """Take in a measurement: ln time at a level with p tasks, the first or one more; its hits.

    A cold cache makes times longer than they will be. So such a time counts where it is shorter
    than the one believed; of a vertex that was never seen warm, the shortest is all that is known.
    """
    (j, v, column), times, c = place, known.times, known.rules
    size = times.mean.shape[2]
    is_known = known.seen.is_known[j, v] == 1
    mean = times.mean[j, v]
    if is_cold and is_known and value >= mean[column] + log_p * mean[size - 1]:
        return
    own = known.doubt.covariance[j, v, column * size + column]
    if not is_known or (is_cold and own >= _COLD_ERROR**2):
        _settle(known, place, value, log_p, _COLD_ERROR if is_cold else c.noise)
        known.seen.is_known[j, v] = 1
    else:
        if c.surprises > 0:
            alike = _misses_alike(times.hit[j, v, column], hit)
            _watch(known, place, value, log_p, noise, alike)
        # Times wander: every level becomes a little less certain, all by the same draw.
        _widen(known.doubt, j, v, size, c.drift**2)
        _update(times, known.doubt, place, value, log_p, noise, gain)
    # `tried` ends the optimism about a level, and `hit` says whether memory would help; of a time
    # that surprises it stays the one of the time believed.
    times.tried[j, v, column] += 1.0
    if not math.isnan(hit) and times.tried[j, v, size - 1] == 0.0:
        times.hit[j, v, column] = hit


@njit(cache=True, nogil=True)
def _widen(doubt: Doubt, j: int, v: int, size: int, variance: float) -> None:
    """Let all levels of a vertex be less certain by the same draw."""
    for a in range(size - 1):
        for b in range(size - 1):
            doubt.covariance[j, v, a * size + b] += variance


@njit(cache=True, nogil=True)
def _watch(
    known: Believed,
    place: tuple[int, int, int],
    value: float,
    log_p: float,
    noise: float,
    alike: bool,
) -> None:
    """Count surprises in a row on one side, and let the time be uncertain after so many.

    Another version of a job has other times. So has a job whose caches are cold, or whose state has
    grown: what its misses explain does not count.
    """
    j, v, column = place
    size = known.times.mean.shape[2]
    last = size - 1
    mean, cov, row = known.times.mean[j, v], known.doubt.covariance[j, v], known.times.tried[j, v]
    surprise = value - mean[column] - log_p * mean[last]
    own = cov[column * size + column] + log_p * (
        2.0 * cov[column * size + last] + log_p * cov[last * size + last]
    )
    if abs(surprise) <= _SURPRISE * math.sqrt(own + noise * noise):
        row[last] = 0.0
        return
    side = 1.0 if surprise > 0.0 else -1.0
    counted = 1.0 if alike else 0.0
    # A surprise that does not count still says that one is under way, so it is never 0.
    if row[last] * side > 0.0:
        row[last] += side * counted
    else:
        row[last] = side * max(counted, _UNCOUNTED)
    if abs(row[last]) >= known.rules.surprises:
        row[last] = 0.0
        _widen(known.doubt, j, v, size, surprise * surprise)


@njit(cache=True, nogil=True)
def _misses_alike(believed: float, now: float) -> bool:
    """Return whether a cache misses about as often as when the time believed was measured."""
    if math.isnan(believed) or math.isnan(now):
        return True
    return bool(abs(now - believed) <= FEW_MISSES + _OTHER_MISSES * (1.0 - believed))


@njit(cache=True, nogil=True)
def _read_per_s(t: JobFacts, records_in: Floats, j: int) -> float:
    """Return what the sources of a job read, its load: inputs of vertices are ratios to it."""
    load = 0.0
    for v in range(t.n[t.row[j]]):
        if t.kind[t.row[j], v] == SOURCE:
            load += records_in[j, v]
    return load


@njit(cache=True, nogil=True)
def _gauge(now: SnapshotArrays, j: int, v: int) -> float:
    """Return the busy gauge of the hottest task, which limits the vertex, ms/s; NaN: unknown."""
    hottest = now.vertex[VERTEX.busy_max_ms_per_s][j, v]
    return float(now.vertex[VERTEX.busy_ms_per_s][j, v] if math.isnan(hottest) else hottest)


@njit(cache=True, nogil=True)
def _at_hidden_limit(t: JobFacts, now: SnapshotArrays, load: float, j: int) -> bool:
    """Return whether a job is at its limit, though no gauge shows it.

    A job that was behind all through its metrics window was at its limit, and read what it can.
    Vertices that share a core wait for it, and are idle or backpressured meanwhile. Flink's
    autoscaler takes the rate of a source that lags for its limit, too
    (`job.autoscaler.observed-true-processing-rate.lag-threshold`).

    Args:
        t: The jobs.
        now: The snapshot.
        load: Records/s that the sources read.
        j: Row of the job.
    """
    k, growth, most = t.row[j], 0.0, 0.0
    for v in range(t.n[k]):
        gauge = _gauge(now, j, v)
        most = most if math.isnan(gauge) else max(most, gauge)
        if t.kind[k, v] == SOURCE:
            growth += now.vertex[VERTEX.pending_growth_per_s][j, v]
    waiting = pending_records(t, now, j)
    before = waiting - growth * now.job[JOB.window_s, j] * now.job[JOB.window_fill, j]
    # Unknown ones are above nothing.
    is_behind = waiting > _BEHIND_S * load and before > _BEHIND_S * load
    return bool(is_behind and _LEAST_BUSY <= most / 1000.0 < _HONEST)


@njit(cache=True, nogil=True)
def understated(known: Believed, j: int, v: int) -> float:
    """Return by how much the gauges of a vertex understate its time, as a logarithm.

    Returns:
        At least 0, and 0 where they were not seen to.
    """
    limit = known.seen.limit[j, v]
    if math.isnan(limit):
        return 0.0
    return float(max(0.0, limit - known.times.mean[j, v, known.seen.limit_column[j, v]]))


@njit(cache=True, nogil=True)
def _bound(
    known: Believed, place: tuple[int, int, int], at_rate: float, log_p: float, is_limit: bool
) -> None:
    """Take in the rate of a vertex: its limit, or a proof that this one is higher.

    Args:
        known: The knowledge, of which the limit is changed.
        place: Job, vertex, and place of its memory level.
        at_rate: ln time if it were busy all the time, with log_p.
        log_p: ln of its tasks.
        is_limit: Its job is at a limit that no gauge shows, and any of its vertices may be it.
    """
    (j, v, column), seen = place, known.seen
    mean = known.times.mean[j, v]
    longest = at_rate - log_p * mean[mean.shape[0] - 1]
    if is_limit:
        seen.limit[j, v], seen.limit_column[j, v] = longest, column
    # At another level it differs as the times believed do.
    longest += mean[seen.limit_column[j, v]] - mean[column]
    if seen.limit[j, v] > longest:
        seen.limit[j, v] = longest


@njit(cache=True, nogil=True)
def learn(
    t: JobFacts,
    file: JobTables,
    now: SnapshotArrays,
    known: Believed,
    low: int,
    high: int,
    gain: Floats,
) -> None:
    """Learn from a snapshot of jobs low..high-1; `gain` (L + 2,) is room.

    j is a job's row, k its job file, v a vertex, p its tasks.
    """
    seen, times, c = known.seen, known.times, known.rules
    records_in = now.vertex[VERTEX.records_in_per_s]
    hits, size = now.vertex[VERTEX.cache_hit_rate], times.mean.shape[2]
    for j in range(low, high):
        k = t.row[j]
        filled = now.job[JOB.window_fill, j] >= ENOUGH_FILL
        if now.status[j] != RUNNING or not filled:
            continue
        load = _read_per_s(t, records_in, j)
        # The slowdown by contention is the configuration's, not the vertex's.
        slow = 1.0
        if c.is_filed:
            slow = crowd(known.contention[k], slots_in_use(file, k, now.parallelism[j]))
        is_limit = _at_hidden_limit(t, now, load, j)
        for v in range(t.n[k]):
            rate = records_in[j, v]
            if t.kind[k, v] == SOURCE or not rate > 0.0 or not load > 0.0:
                continue
            # A mean of the last hour at most: shares of the load drift.
            weight = min(seen.minutes[j, v], _MOST_MINUTES - 1.0) + 1.0
            before = 0.0 if math.isnan(seen.ratio[j, v]) else seen.ratio[j, v]
            seen.ratio[j, v] = before + (rate / load - before) / weight
            seen.minutes[j, v] = weight

            p, column = now.parallelism[j, v], now.memory_level[j, v] + 1
            gauge = _gauge(now, j, v)
            if math.isnan(gauge) or p < 1 or not 0 <= column < size - 1:
                continue
            # Below twice its error a gauge says only "hardly busy": its capacity is a lower bound.
            gauge = max(gauge, 2.0 * _GAUGE_MS)
            # DS2's true rate, here of the whole vertex and from the hottest task.
            capacity = rate / (gauge / 1000.0)
            expected = float(p)
            if c.is_filed:
                free, _ = vertex_capacity(file, k, v, p, column - 1, rate)
                expected = free * slow
            value, log_p = math.log(expected / capacity), math.log(p)
            # The relative error of a gauge adds to the noise: logarithms of ratios.
            noise = math.hypot(c.noise, _GAUGE_MS / gauge)
            is_cold = fills(known.caches, now, j, v)
            _measure(known, (j, v, column), value, log_p, noise, hits[j, v], is_cold, gain)
            if not is_cold:
                # Nothing can be done about a vertex that cannot be rescaled: it is no limit.
                can_be = is_limit and t.min_parallelism[k, v] < t.max_parallelism[k, v]
                _bound(known, (j, v, column), math.log(expected / rate), log_p, can_be)


@direct
@njit(cache=True, nogil=True)
def learn_all(
    facts: Handle[JobFacts],
    tables: Handle[JobTables],
    now: SnapshotArrays,
    believed: Handle[Believed],
    gain: Floats,
) -> None:
    """Learn from a snapshot of all jobs."""
    learn(facts.arrays, tables.arrays, now, believed.arrays, 0, now.status.shape[0], gain)


@njit(cache=True, nogil=True)
def crowd(contention: float, slots: int) -> float:
    """Return the speed left where several slots of a TaskManager are in use.

    Returns:
        0.05 to 1.
    """
    return max(0.05, 1.0 - contention * (slots - 1))
