"""How long a record takes at every vertex, learned from true rates while the job runs.

Of each vertex the model keeps the logarithm of its time per record, over what the prior says,

    ln time(level, p) = x[level] + a * ln p

with one x per memory level and the exponent a in the number of tasks p, as a Gaussian: means and
covariance, moved by a Kalman filter once per snapshot. Levels next to each other are close (a
random walk over levels), so a level that was never tried is known as well as its neighbours allow.
The time is that of the hottest task, since it limits the vertex.

All that is learned is a ratio to the prior or, without a prior, to the first value seen: a job a
hundred times as fast is learned in the same way.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from pydantic import Field

from dsp_gym.arrays import Floats, Ints
from dsp_gym.calling import Handle, Handles, direct, handle
from dsp_gym.compiling import njit
from dsp_gym.config.model import ConfigModel
from dsp_gym.job.capacity import slots_in_use, vertex_capacity
from dsp_gym.job.tables import SOURCE, JobTables
from dsp_gym.loop.protocols import Mask, State
from dsp_gym.loop.row_memory import RowMemory
from dsp_gym.loop.snapshot import JOB, RUNNING, VERTEX, MetricsSnapshot, SnapshotArrays
from dsp_gym.loop.topology import JobFacts, Topology
from dsp_gym.sizing.arrivals import ENOUGH_FILL
from dsp_gym.sizing.prior import Prior

__all__ = ["Believed", "ServiceModel", "SizingConfig", "believed", "carried_per_s", "crowd"]


class SizingConfig(ConfigModel):
    """How much a service model believes its prior, and how fast it learns."""

    file_error: float = Field(
        0.15,
        gt=0,
        description="standard error of a job file's times per record, as a share: all levels alike",
    )
    file_level_error: float = Field(
        0.05, gt=0, description="standard error of a level against the next one in a job file"
    )
    file_exponent_error: float = Field(
        0.03, gt=0, description="standard error of the exponent in tasks in a job file"
    )
    exponent: float = Field(
        0.05,
        ge=0,
        lt=1,
        description="time per record grows with tasks to this power, where nothing is known",
    )
    exponent_error: float = Field(0.05, gt=0, description="standard error of that exponent")
    level_error: float = Field(
        0.15, gt=0, description="standard error of a level against the next one, without a job file"
    )
    noise: float = Field(
        0.08,
        gt=0,
        description="standard error of one measured time per record; more than the 3 % of a "
        "minute, since windows of successive minutes overlap and caches warm up",
    )
    drift: float = Field(
        0.003,
        ge=0,
        description="times per record wander by this share in a minute, 11 % in a day: data change",
    )
    optimism: float = Field(
        1.0,
        ge=0,
        description="a level never tried counts as faster by so many standard errors, where no job "
        "file knows it and misses of the cache leave something to be gained",
    )


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


_MOST_MINUTES = 60.0
"""Snapshots that the share of a vertex in the load is averaged over."""

_FILE_MINUTES = 15.0
"""Snapshots that a job file's share counts for."""

_OUTLIER = 3.0
"""Standard deviations from which on a measurement counts less."""

_GAUGE_MS = 2.0
"""Standard error of a busy gauge, ms/s: it tells little about a vertex that is hardly busy."""

_HOT_CACHE = 0.97
"""Hit rate from which on less memory would be enough."""

_LESS_MEMORY = 0.3
"""Logarithm by which a record takes longer with less memory than a cache that misses has."""


class ServiceModel:
    """What each job of a batch carries in any configuration.

    Args:
        config: How it learns.
    """

    def __init__(self, config: SizingConfig | None = None) -> None:
        self.config = config or SizingConfig()
        self._prior: Prior | None = None
        self._memories: tuple[RowMemory, RowMemory, RowMemory] | None = None
        self._handles = Handles()

    def reset(self, jobs: Topology, prior: Prior, mask: Mask | None = None) -> None:
        """Forgets what was learned.

        Args:
            jobs: The batch.
            prior: Of its jobs.
            mask: Only the rows where it is True; None: all.
        """
        size = prior.tables.cache_mib.shape[2] + 1
        if mask is None or self._memories is None:
            self._memories = (
                RowMemory(
                    {
                        "ratio": ("vertex", np.nan),
                        "minutes": ("vertex", 0.0),
                        "is_known": ("vertex", 0),
                    }
                ),
                RowMemory(
                    {
                        "mean": ("vertex", 0.0),
                        "tried": ("vertex", 0.0),
                        "hit": ("vertex", np.nan),
                    },
                    depth=size,
                ),
                RowMemory({"covariance": ("vertex", 0.0)}, depth=size * size),
            )
        self._prior, self._handles = prior, Handles()
        for memory in self._memories:
            memory.reset(jobs, mask)
        rows = np.ones(len(jobs), dtype=bool) if mask is None else mask
        if prior.is_filed:
            seen, times, doubt = self._tables
            seen.ratio[rows] = prior.ratio[jobs.row[rows]]
            seen.minutes[rows] = _FILE_MINUTES
            seen.is_known[rows] = 1
            levels = prior.tables.start_level[jobs.row]
            for j in np.flatnonzero(rows).tolist():
                for v in range(jobs.max_vertices):
                    _begin(times, doubt, j, v, int(levels[j, v]) + 1, self._rules)

    def observe(self, snapshot: MetricsSnapshot) -> None:
        """Learns from a snapshot; jobs that are down or have just restarted teach nothing."""
        prior = self._known_prior
        if "tables" not in self._handles:
            self._handles["tables"] = handle(prior.tables)
        tables: Handle[JobTables] = self._handles["tables"]  # type: ignore[assignment]  # stored just above
        _observe(snapshot.topology.handle, tables, snapshot.arrays, self.believed)

    @property
    def believed(self) -> Handle[Believed]:
        """Prior and knowledge as one argument of compiled code."""
        if "believed" not in self._handles:
            prior = self._known_prior
            contention = prior.tables.contention if prior.is_filed else np.zeros(len(prior.ratio))
            self._handles["believed"] = handle(
                Believed(
                    *self._tables,
                    prior.records_per_s,
                    contention,
                    prior.tables.slots,
                    prior.tables.slot_sharing,
                    self._rules,
                )
            )
        return self._handles["believed"]  # type: ignore[return-value]  # stored just above

    def capacity_per_s(self, jobs: Topology, parallelism: Ints, level: Ints) -> Floats:
        """Computes what configurations carry.

        Args:
            jobs: The batch.
            parallelism: (J, V) subtasks.
            level: (J, V) memory levels.

        Returns:
            (J,) records/s over all sources; NaN where a vertex was not seen yet.
        """
        found = np.zeros(len(jobs))
        _capacities(jobs.handle, self.believed, parallelism, level, found)
        return found

    def times(self, jobs: Topology, parallelism: Ints, level: Ints) -> tuple[Floats, Floats]:
        """Tells the time per record of every vertex, and how sure it is.

        Args:
            jobs: The batch.
            parallelism: (J, V) subtasks.
            level: (J, V) memory levels.

        Returns:
            (J, V) seconds of the hottest task per record of the whole vertex divided by p, and the
            standard error of their logarithm; NaN where the vertex was not seen yet.
        """
        seconds, errors = np.full(parallelism.shape, np.nan), np.full(parallelism.shape, np.nan)
        _expected_times(jobs.handle, self.believed, parallelism, level, seconds, errors)
        return seconds, errors

    def state(self) -> State:
        """What was learned, as JSON values.

        Returns:
            One entry per part of the memory.
        """
        assert self._memories is not None
        seen, times, doubt = self._memories
        return {"seen": seen.state(), "times": times.state(), "doubt": doubt.state()}

    def restore(self, state: State) -> None:
        """Continues from the values of `state()`."""
        assert self._memories is not None
        for name, memory in zip(("seen", "times", "doubt"), self._memories, strict=True):
            memory.restore(state[name])
        self._handles = Handles()

    @property
    def _known_prior(self) -> Prior:
        if self._prior is None:
            raise RuntimeError("reset() comes first")
        return self._prior

    @property
    def _tables(self) -> tuple[Shares, Times, Doubt]:
        assert self._memories is not None
        seen, times, doubt = self._memories
        return seen.arrays(Shares), times.arrays(Times), doubt.arrays(Doubt)

    @property
    def _rules(self) -> Learning:
        c, filed = self.config, self._known_prior.is_filed
        return Learning(
            filed,
            0.0 if filed else c.exponent,  # a file's efficiency stands in its prior
            c.file_error if filed else 0.0,
            c.file_level_error if filed else c.level_error,
            c.file_exponent_error if filed else c.exponent_error,
            c.noise,
            c.drift,
            0.0 if filed else c.optimism,
        )


@njit(cache=True, nogil=True)
def _begin(times: Times, doubt: Doubt, j: int, v: int, column: int, c: Learning) -> None:
    """Sets the Gaussian of a vertex: a random walk over levels that starts at one of them."""
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
    """Sets the Gaussian of a vertex without a prior from its first measurement."""
    j, v, column = place
    size = times.mean.shape[2]
    last = size - 1
    _begin(times, doubt, j, v, column, c)
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
def _observe(
    facts: Handle[JobFacts],
    tables: Handle[JobTables],
    now: SnapshotArrays,
    believed: Handle[Believed],
) -> None:
    """Learns from a snapshot. j is a job's row, k its job file, v a vertex, p its tasks."""
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


@njit(cache=True, nogil=True)
def _offset(known: Believed, j: int, v: int, column: int) -> float:
    """What an untried level is taken to differ by, ln of time: optimistic, without a job file."""
    times, c = known.times, known.rules
    size = times.mean.shape[2]
    if c.is_filed or times.tried[j, v, column] > 0.0:
        return 0.0
    nearest = -1
    for a in range(size - 1):
        tried = times.tried[j, v, a] > 0.0
        if tried and (nearest < 0 or abs(a - column) < abs(nearest - column)):
            nearest = a
    if nearest < 0:
        return 0.0
    hit = times.hit[j, v, nearest]
    missed = 0.0 if math.isnan(hit) else 1.0 - hit
    if column < nearest:
        return 0.0 if missed <= 1.0 - _HOT_CACHE else _LESS_MEMORY
    cov = _doubt_between(known.doubt, j, v, column, nearest, size)
    # More memory can save no more than what misses cost: at most about twice their share.
    return -min(c.optimism * math.sqrt(max(0.0, cov)), math.log1p(missed))


@njit(cache=True, nogil=True)
def _doubt_between(doubt: Doubt, j: int, v: int, one: int, other: int, size: int) -> float:
    """Variance of the difference of two places of a vertex's Gaussian."""
    cov = doubt.covariance[j, v]
    both = cov[one * size + one] + cov[other * size + other]
    return float(both - 2.0 * cov[one * size + other])


@njit(cache=True, nogil=True)
def carried_per_s(known: Believed, t: JobFacts, j: int, v: int, p: int, column: int) -> float:
    """Job load that a vertex carries, slots to itself.

    Args:
        known: The service model.
        t: The jobs.
        j: Row of the job.
        v: Column of the vertex.
        p: Its tasks.
        column: Its memory level + 1.

    Returns:
        Records/s over all sources; infinite for one that gets nothing or is no limit, NaN where
        the vertex was not seen yet.
    """
    k = t.row[j]
    records = known.records_per_s[k, v, column, p]
    ratio = known.seen.ratio[j, v]
    if t.kind[k, v] == SOURCE:
        return records / ratio if known.rules.is_filed and ratio > 0.0 else math.inf
    if known.seen.is_known[j, v] == 0:
        fixed = t.min_parallelism[k, v] == t.max_parallelism[k, v]
        return math.inf if fixed else math.nan
    if not ratio > 0.0:
        return math.inf
    mean = known.times.mean[j, v]
    slower = mean[column] + mean[mean.shape[0] - 1] * math.log(p) + _offset(known, j, v, column)
    return float(records / ratio * math.exp(-slower))


@njit(cache=True, nogil=True)
def believed(known: Believed, t: JobFacts, j: int, parallelism: Ints, level: Ints) -> float:
    """Job load that a configuration carries.

    Args:
        known: The service model.
        t: The jobs.
        j: Row of the job.
        parallelism: (V,) subtasks.
        level: (V,) memory levels.

    Returns:
        Records/s over all sources; NaN where a vertex was not seen yet.
    """
    k, slots = t.row[j], 0
    for v in range(t.n[k]):
        if t.kind[k, v] != SOURCE:
            shared = known.slot_sharing[k] == 1
            slots = max(slots, parallelism[v]) if shared else slots + parallelism[v]
    slow = crowd(known.contention[k], max(1, min(slots, known.slots[k])))
    least = math.inf
    for v in range(t.n[k]):
        one = carried_per_s(known, t, j, v, parallelism[v], level[v] + 1)
        if math.isnan(one):
            return math.nan
        least = min(least, one if t.kind[k, v] == SOURCE else one * slow)
    return float(least)


@direct
@njit(cache=True, nogil=True)
def _capacities(
    facts: Handle[JobFacts],
    model: Handle[Believed],
    parallelism: Ints,
    level: Ints,
    found: Floats,
) -> None:
    t, known = facts.arrays, model.arrays
    for j in range(found.shape[0]):
        found[j] = believed(known, t, j, parallelism[j], level[j])


@direct
@njit(cache=True, nogil=True)
def _expected_times(
    facts: Handle[JobFacts],
    model: Handle[Believed],
    parallelism: Ints,
    level: Ints,
    seconds: Floats,
    errors: Floats,
) -> None:
    t, known = facts.arrays, model.arrays
    size = known.times.mean.shape[2]
    last = size - 1
    for j in range(seconds.shape[0]):
        k = t.row[j]
        for v in range(t.n[k]):
            if t.kind[k, v] == SOURCE or known.seen.is_known[j, v] == 0:
                continue
            p, column = parallelism[j, v], level[j, v] + 1
            mean, cov = known.times.mean[j, v], known.doubt.covariance[j, v]
            log_p = math.log(p)
            slower = mean[column] + mean[last] * log_p + _offset(known, j, v, column)
            seconds[j, v] = p / known.records_per_s[k, v, column, p] * math.exp(slower)
            variance = cov[column * size + column] + log_p * log_p * cov[last * size + last]
            variance += 2.0 * log_p * cov[column * size + last]
            errors[j, v] = math.sqrt(max(0.0, variance))
