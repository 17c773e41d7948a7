"""Time per record of every vertex, learned from true rates while the job runs.

For each vertex the model keeps the logarithm of its time per record, over that of the prior,

    ln time(level, p) = x[level] + a * ln p

with one x per memory level and the exponent a in the number of tasks p, as a Gaussian: means and
covariance, moved by a Kalman filter once per snapshot. Neighbouring levels are close (a random walk
over levels), so a level that was never tried is known as well as its neighbours allow. The time is
that of the hottest task, since it limits the vertex.

Everything learned is a ratio to the prior or, without a prior, to the first value seen: a job a
hundred times as fast is learned in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from pydantic import Field

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.config.model import ConfigModel
from dsp_gym.job.tables import SOURCE, JobTables
from dsp_gym.loop.per_job_state import Kept, Parts, RowMemory
from dsp_gym.loop.protocols import Mask, State
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import JobFacts, Topology
from dsp_gym.numba_handles import Handle, Handles, direct
from dsp_gym.sizing.caches import CACHES, Caches
from dsp_gym.sizing.filter import (
    Believed,
    Doubt,
    Learning,
    Shares,
    Times,
    begin,
    crowd,
    learn_all,
    understated,
)
from dsp_gym.sizing.prior import Prior

__all__ = ["Believed", "ServiceModel", "SizingConfig", "believed", "carried_per_s", "crowd"]


class SizingConfig(ConfigModel):
    """Trust of a service model in its prior, and its speed of learning."""

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
    surprises: int = Field(
        0,
        ge=0,
        le=60,
        # Left out of dumps, so that policies without it hash as before.
        exclude_if=lambda value: value == 0,
        description="measured times in a row that lie two standard errors off on one side, after "
        "which the time has changed, as by a deploy, and is learned anew within minutes; 0: it is "
        "only ever taken to drift",
    )


_FILE_MINUTES = 15.0
"""Snapshots that a job file's share counts for."""

_HOT_CACHE = 0.97
"""Hit rate above which less memory would be enough."""

_MEMORIES = ("seen", "times", "doubt", "caches")
"""Tables of `Believed` that change, in its order."""

_LESS_MEMORY = 0.3
"""Logarithm by which a record takes longer with less memory than a cache that misses has."""


class ServiceModel(Kept):
    """The load that each job of a batch carries in any configuration.

    Args:
        config: Configuration of the learning.
    """

    def __init__(self, config: SizingConfig | None = None) -> None:
        self.config = config or SizingConfig()
        self._jobs: Topology | None = None
        self._prior: Prior | None = None
        self._memories: tuple[RowMemory, RowMemory, RowMemory, RowMemory] | None = None
        self._handles = Handles()

    def reset(self, jobs: Topology, prior: Prior, mask: Mask | None = None) -> None:
        """Forget everything learned.

        Args:
            jobs: The batch.
            prior: Prior of its jobs.
            mask: Only the rows where it is True; None: all.
        """
        # L + 1 levels from none on, and the exponent.
        size = prior.tables.cache_mib.shape[2] + 1
        # A masked reset keeps the memories: other rows go on.
        if mask is None or self._memories is None:
            self._memories = (
                RowMemory(
                    {
                        "ratio": ("vertex", np.nan),
                        "minutes": ("vertex", 0.0),
                        "is_known": ("vertex", 0),
                        "limit": ("vertex", np.nan),
                        "limit_column": ("vertex", 0),
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
                RowMemory(CACHES),
            )
            self._kept = Parts(**dict(zip(_MEMORIES, self._memories, strict=True)))
        self._jobs, self._prior, self._handles = jobs, prior, Handles()
        for memory in self._memories:
            memory.reset(jobs, mask)
        if prior.is_filed:
            rows = np.ones(len(jobs), np.bool_) if mask is None else np.asarray(mask, np.bool_)
            _start(rows, jobs.handle, self.tables, self.believed, 0, len(jobs))

    def observe(self, snapshot: MetricsSnapshot) -> None:
        """Learn from a snapshot; jobs that are down or have just restarted teach nothing."""
        facts, now, gain = snapshot.topology.handle, snapshot.arrays, self.room_to_learn()
        # Compiled code gets the whole knowledge at once; it is changed in place.
        learn_all(facts, self.tables, now, self.believed, gain)

    def room_to_learn(self) -> Floats:
        """Allocate the room of `dsp_gym.sizing.filter.learn`, one per thread.

        Returns:
            (L + 2,) with undefined content.
        """
        return np.empty(self._tables[1].mean.shape[2])

    @property
    def tables(self) -> Handle[JobTables]:
        """The job files of the prior as one argument of compiled code."""
        prior = self._known_prior
        return self._handles.of("tables", lambda: prior.tables)

    @property
    def believed(self) -> Handle[Believed]:
        """Prior and knowledge as one argument of compiled code."""
        # Made once: handles stay valid until a memory is replaced.
        return self._handles.of("believed", self._knowledge)

    def _knowledge(self) -> Believed:
        prior = self._known_prior
        # Without a job file contention is unknown: it is part of the times then.
        contention = prior.tables.contention if prior.is_filed else np.zeros(len(prior.ratio))
        return Believed(
            *self._tables,
            prior.records_per_s,
            contention,
            prior.tables.slots,
            prior.tables.slot_sharing,
            self._rules,
        )

    def capacity_per_s(self, jobs: Topology, parallelism: Ints, level: Ints) -> Floats:
        """Compute the load that configurations carry.

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
        """Return the time per record of every vertex, and its standard error.

        Args:
            jobs: The batch.
            parallelism: (J, V) subtasks.
            level: (J, V) memory levels.

        Returns:
            (J, V) seconds of the hottest task per record of the whole vertex divided by p, and the
            standard error of their logarithm; NaN where the vertex was not seen yet.
        """
        # NaN stays where the compiled loop passes over a vertex: sources, and vertices not seen
        # yet.
        seconds, errors = np.full(parallelism.shape, np.nan), np.full(parallelism.shape, np.nan)
        _expected_times(jobs.handle, self.believed, parallelism, level, seconds, errors)
        return seconds, errors

    def learned(self, j: int) -> dict[str, Floats]:
        """Return the knowledge of one job, to start another model from.

        Args:
            j: Its row.

        Returns:
            Arrays by name, of n vertices; `unit` is the denominator of its times.
        """
        n, places = self._own(j)
        (seen, times, doubt, _), size = self._tables, self._tables[1].mean.shape[2]
        # Copies: the arrays of the memory go on changing.
        covariance = doubt.covariance[j, :n].reshape(n, size, size)
        found = {name: values[j, :n] for name, values in seen._asdict().items()}
        found |= {name: values[j, :n][:, places] for name, values in times._asdict().items()}
        found |= {"covariance": covariance[:, places][:, :, places], "unit": self._unit(j)}
        return {name: np.array(values, np.float64) for name, values in found.items()}

    def adopt(self, rows: Ints, learned: Mapping[str, Floats]) -> None:
        """Start some rows from the knowledge of their job; its file may be another by now.

        Args:
            rows: Rows of the job.
            learned: Knowledge as `learned` returns it, of a job of the same vertices and memory
                levels.
        """
        (seen, times, doubt, _), size = self._tables, self._tables[1].mean.shape[2]
        for j in rows.tolist():
            # Places of this job only: tables are padded to the most levels of the batch.
            n, places = self._own(j)
            for name, values in seen._asdict().items():
                # A policy that an earlier release trained knows no limits.
                if name in learned:
                    values[j, :n] = learned[name]
            for name, values in times._asdict().items():
                values[j, :n, places] = learned[name].T
            # A view in matrix form: the memory holds covariances as rows of size * size numbers.
            covariance = doubt.covariance[j, :n].reshape(n, size, size)
            covariance[:, places[:, None], places] = learned["covariance"]
            # Times are ratios to the prior: move them by the ratio of the two priors.
            unit, then = self._unit(j), learned["unit"]
            known = (unit > 0.0) & (then > 0.0)
            ratio = np.divide(unit, then, out=np.ones_like(unit), where=known)
            # The logarithm turns the ratio into a shift; the exponent, the last place, is not
            # affected.
            times.mean[j, :n, : len(places) - 1] += np.log(ratio)
            seen.limit[j, :n] += np.log(ratio[np.arange(n), seen.limit_column[j, :n]])

    def _own(self, j: int) -> tuple[int, Ints]:
        """Return the number of a job's vertices, and its places: levels, then the exponent."""
        jobs, last = self._known_jobs, self._tables[1].mean.shape[2] - 1
        # Columns of the batch between them belong to jobs with more levels.
        levels = int(jobs.facts.levels[jobs.row[j]])
        return len(jobs.names(j)), np.array([*range(levels + 1), last])

    def _unit(self, j: int) -> Floats:
        """Return the denominator of its times: records/s of one task, (n, levels + 1)."""
        jobs, (n, places) = self._known_jobs, self._own(j)
        records = self._known_prior.records_per_s[jobs.row[j], :n, : len(places) - 1, 1]
        return np.asarray(records)

    def restore(self, state: State) -> None:
        """Continue from the values of `state()`."""
        super().restore(state)
        # Restoring may replace arrays: handles to the old ones are dropped.
        self._handles = Handles()

    @property
    def _known_jobs(self) -> Topology:
        if self._jobs is None:
            raise RuntimeError("reset() comes first")
        return self._jobs

    @property
    def _known_prior(self) -> Prior:
        if self._prior is None:
            raise RuntimeError("reset() comes first")
        return self._prior

    @property
    def _tables(self) -> tuple[Shares, Times, Doubt, Caches]:
        assert self._memories is not None
        seen, times, doubt, caches = self._memories
        return (
            seen.arrays(Shares),
            times.arrays(Times),
            doubt.arrays(Doubt),
            caches.arrays(Caches),
        )

    @property
    def _rules(self) -> Learning:
        c, filed = self.config, self._known_prior.is_filed
        return Learning(
            filed,
            0.0 if filed else c.exponent,  # a file's efficiency is part of its prior
            c.file_error if filed else 0.0,
            c.file_level_error if filed else c.level_error,
            c.file_exponent_error if filed else c.exponent_error,
            c.noise,
            c.drift,
            0.0 if filed else c.optimism,
            c.surprises,
        )


@njit(cache=True, nogil=True)
def start(
    chosen: Bools,
    facts: Handle[JobFacts],
    tables: Handle[JobTables],
    model: Handle[Believed],
    low: int,
    high: int,
) -> None:
    """Take the knowledge of the chosen ones of jobs low..high-1 from their job files."""
    t, file, known = facts.arrays, tables.arrays, model.arrays
    seen = known.seen
    for j in range(low, high):
        if not chosen[j]:
            continue
        k = t.row[j]
        for v in range(seen.ratio.shape[1]):
            # A prior's ratios count as some snapshots, so that measurements correct them slowly.
            seen.ratio[j, v] = file.ratio[k, v]
            seen.minutes[j, v] = _FILE_MINUTES
            seen.is_known[j, v] = 1
            # The Gaussian begins at the start level; levels farther off are less certain, by the
            # random walk.
            begin(known.times, known.doubt, j, v, file.start_level[k, v] + 1, known.rules)


_start = direct(start)


@njit(cache=True, nogil=True)
def _offset(known: Believed, j: int, v: int, column: int) -> float:
    """Return the assumed difference of an untried level, ln of time: optimistic, without a file."""
    times, c = known.times, known.rules
    # Optimism in the face of uncertainty, as in UCB: a level that might be faster gets tried.
    size = times.mean.shape[2]
    if c.is_filed or times.tried[j, v, column] > 0.0:
        return 0.0
    nearest = -1
    # The nearest tried level shows how well the cache does.
    for a in range(size - 1):
        tried = times.tried[j, v, a] > 0.0
        if tried and (nearest < 0 or abs(a - column) < abs(nearest - column)):
            nearest = a
    if nearest < 0:
        return 0.0
    # An unknown hit rate belongs to a vertex that reads no state: no misses to save.
    hit = times.hit[j, v, nearest]
    missed = 0.0 if math.isnan(hit) else 1.0 - hit
    # Less memory: as fast where the cache hits nearly always, else clearly slower.
    if column < nearest:
        return 0.0 if missed <= 1.0 - _HOT_CACHE else _LESS_MEMORY
    cov = _doubt_between(known.doubt, j, v, column, nearest, size)
    # More memory saves at most the cost of misses: about twice their share.
    return -min(c.optimism * math.sqrt(max(0.0, cov)), math.log1p(missed))


@njit(cache=True, nogil=True)
def _doubt_between(doubt: Doubt, j: int, v: int, one: int, other: int, size: int) -> float:
    """Return the variance of the difference of two places of a vertex's Gaussian."""
    cov = doubt.covariance[j, v]
    # Var(x - y) = Var x + Var y - 2 Cov(x, y).
    both = cov[one * size + one] + cov[other * size + other]
    return float(both - 2.0 * cov[one * size + other])


@njit(cache=True, nogil=True)
def carried_per_s(known: Believed, t: JobFacts, j: int, v: int, p: int, column: int) -> float:
    """Return the job load that a vertex carries, alone on its TaskManager.

    Args:
        known: The service model.
        t: The jobs.
        j: Row of the job.
        v: Column of the vertex.
        p: Its tasks.
        column: Its memory level + 1.

    Returns:
        Records/s over all sources; infinite for a vertex that gets no input or is no limit, NaN
        where the vertex was not seen yet.
    """
    k = t.row[j]
    records = known.records_per_s[k, v, column, p]
    ratio = known.seen.ratio[j, v]
    # Sources limit a job only by its job file; without one they are taken to keep up.
    if t.kind[k, v] == SOURCE:
        return records / ratio if known.rules.is_filed and ratio > 0.0 else math.inf
    if known.seen.is_known[j, v] == 0:
        # A vertex that cannot be rescaled is assumed to keep up until it has been seen.
        fixed = t.min_parallelism[k, v] == t.max_parallelism[k, v]
        return math.inf if fixed else math.nan
    # No input: no limit.
    if not ratio > 0.0:
        return math.inf
    # The prior's records/s over the learned slowdown exp(x[level] + a ln p), as job load.
    # The last place of the mean is the exponent a.
    mean = known.times.mean[j, v]
    slower = mean[column] + mean[mean.shape[0] - 1] * math.log(p) + _offset(known, j, v, column)
    slower += understated(known, j, v)
    return float(records / ratio * math.exp(-slower))


@njit(cache=True, nogil=True)
def believed(known: Believed, t: JobFacts, j: int, parallelism: Ints, level: Ints) -> float:
    """Return the job load that a configuration carries.

    Args:
        known: The service model.
        t: The jobs.
        j: Row of the job.
        parallelism: (V,) subtasks.
        level: (V,) memory levels.

    Returns:
        Records/s over all sources; NaN where a vertex was not seen yet.
    """
    # Slots in use on the fullest TaskManager, as `dsp_gym.job.capacity.slots_in_use`.
    k, slots = t.row[j], 0
    for v in range(t.n[k]):
        if t.kind[k, v] != SOURCE:
            shared = known.slot_sharing[k] == 1
            slots = max(slots, parallelism[v]) if shared else slots + parallelism[v]
    slow = crowd(known.contention[k], max(1, min(slots, known.slots[k])))
    least = math.inf
    for v in range(t.n[k]):
        # level + 1: column 0 is level -1.
        one = carried_per_s(known, t, j, v, parallelism[v], level[v] + 1)
        if math.isnan(one):
            return math.nan
        # The weakest vertex limits the job; sources run on TaskManagers that are not crowded.
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
            # As in `carried_per_s`: ln of the slowdown against the prior.
            slower = mean[column] + mean[last] * log_p + _offset(known, j, v, column)
            slower += understated(known, j, v)
            # p / (records/s of all p tasks): seconds of one task per record that it processes.
            seconds[j, v] = p / known.records_per_s[k, v, column, p] * math.exp(slower)
            # Variance of x[level] + a ln p: the two variances and twice their covariance.
            variance = cov[column * size + column] + log_p * log_p * cov[last * size + last]
            variance += 2.0 * log_p * cov[column * size + last]
            errors[j, v] = math.sqrt(max(0.0, variance))
