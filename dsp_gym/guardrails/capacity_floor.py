"""A floor under decisions: the capacity that DS2, or Justin, computes for the observed demand."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.config.model import ConfigModel
from dsp_gym.guardrails.restriction import Restriction, Working, working
from dsp_gym.guardrails.shadow import ShadowPolicy, Shadows
from dsp_gym.loop.due import is_due
from dsp_gym.loop.lacking import is_hit_unknown
from dsp_gym.loop.per_job_state import Parts, Per, RowMemory, all_of
from dsp_gym.loop.protocols import Mask
from dsp_gym.loop.snapshot import JOB, RUNNING, VERTEX, MetricsSnapshot, SnapshotArrays
from dsp_gym.loop.topology import JobFacts, Topology
from dsp_gym.numba_handles import Handle, direct
from dsp_gym.policies import PolicyConfig
from dsp_gym.policies.capabilities import CompiledModel, Requirement
from dsp_gym.sizing.caches import FILLING, Caches, any_fills


class CapacityFloorConfig(ConfigModel):
    """The policy whose model is the floor, and the moves of memory that lower it."""

    kind: Literal["capacity_floor"] = Field("capacity_floor", description="this guardrail")
    policy: str | PolicyConfig = Field(
        "justin-paper", description="policy whose model computes the required configuration"
    )
    margin: float = Field(
        0.0,
        gt=-1,
        description="capacity above the requirement, share of it; below 0: the floor is lower",
    )
    memory_factor: float = Field(
        1.0,
        ge=1,
        description="by how much a rise of the memory level divides the tasks required; 1: only "
        "where the policy named makes the same move",
    )
    release_hit_rate: float = Field(
        0.95,
        ge=0,
        le=1,
        description="cache hit rate from which memory may be given back unless the policy named "
        "gives it back itself (Justin's cache-hit-rate.max.threshold)",
    )
    min_window_fill: float = Field(
        1.0,
        ge=0,
        le=1,
        description="share of the metrics window that must be covered before the floor asks for "
        "more than the running configuration",
    )
    patience_s: float = Field(
        0.0,
        ge=0,
        description="how long less than the requirement must have run before the floor asks for "
        "more than the running configuration, s: the policy may answer first",
    )
    keep_when_late: bool = Field(
        False, description="whether a job over its latency bound gives up neither tasks nor memory"
    )


class Shortage(NamedTuple):
    """The memory for compiled code."""

    since_s: Floats  # (J,) start of a shortage of capacity, s; NaN: none
    fills: Ints  # (J,) as `Filling`
    misses: Floats  # (J, V) likewise
    seen_s: Floats  # (J, V) likewise


SHORT: dict[str, tuple[Per, bool | int | float]] = {
    "since_s": ("job", float("nan")),
    **FILLING,
}
"""Fields of `Shortage`, and their first values."""


class CapacityFloor(Restriction):
    """Raise a decision to the configuration that the named policy's model requires.

    A decision never goes below the requirement of the observed demand. The floor asks for more than
    the running configuration only once the shortage has lasted, so that the policy answers first:
    two rescales are two outages; and not while caches fill, which a rescale would empty. With
    `keep_when_late` a late job keeps its tasks and memory, to catch up.

    More memory may replace tasks: where the model itself chooses memory and the decision gives as
    much, the model's lower parallelism is the floor.
    """

    name = "capacity_floor"

    def __init__(
        self, config: CapacityFloorConfig | None = None, shadows: Shadows | None = None
    ) -> None:
        super().__init__(RowMemory(SHORT))
        self.config = c = config or CapacityFloorConfig()
        self.rules = FloorRule.of(c)
        self._shadow: ShadowPolicy = (shadows or Shadows()).of(c.policy, self.name, model=True)
        self._kept = Parts(memory=self._memory, policy=self._shadow)

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        super().reset(jobs, seeds, mask)
        self._shadow.reset(jobs, seeds, mask)

    def table(self) -> Shortage:
        """Return the memory for compiled code, the same until `reset` or `restore`.

        Returns:
            Starts of shortages of capacity, (J,).
        """
        return self._memory.arrays(Shortage)

    def restrict(self, snapshot: MetricsSnapshot, parallelism: Ints, level: Ints) -> Bools:
        work = working(parallelism, level)
        required = self.required(snapshot)
        rules, short = self.rules, self.table()
        _raise(snapshot.topology.facts, snapshot.arrays, required, rules, short, work)
        return work.trips

    def required(self, snapshot: MetricsSnapshot) -> Requirement:
        """Return the configuration that the named policy's model requires, once for each snapshot.

        Returns:
            Configurations (J, V).
        """
        required = self._shadow.required(snapshot)
        assert required is not None  # the shadow was made with a model
        return required

    def watch(self, snapshot: MetricsSnapshot) -> None:
        self._shadow.observe(snapshot)
        facts, short = snapshot.topology.handle, self._memory.handle(Shortage)
        _notice(facts, snapshot.arrays, self.required(snapshot), self.rules, short)

    def reason(self, snapshot: MetricsSnapshot, job: int) -> str:
        required = self.required(snapshot)
        names = snapshot.topology.names(job)
        needs = ", ".join(
            f"{name} {required.horizontal[job, v]}"
            for v, name in enumerate(names)
            if snapshot.topology.tables.kind[snapshot.topology.row[job], v] != 0
        )
        margin = f" with {100 * self.config.margin:g} % margin" if self.config.margin else ""
        row, late_s = snapshot.topology.row[job], snapshot.latency_p95_s[job]
        is_kept = self.config.keep_when_late and late_s > snapshot.topology.tables.slo_s[row]
        late = f"; the job is {late_s:.0f} s late and keeps what it has" if is_kept else ""
        return f"{self._shadow.name} requires {needs}{margin} for the observed demand{late}"

    @property
    def policy_name(self) -> str:
        """Name of the policy whose model is the floor."""
        return self._shadow.name

    @property
    def compiled_model(self) -> CompiledModel | None:
        """The policy's compiled model; None where it has none."""
        made = self._shadow.can.compiled_model
        return None if made is None else made()

    def memories(self) -> tuple[RowMemory, ...] | None:
        return all_of((self._memory,), self._shadow.memories())


class FloorRule(NamedTuple):
    """The configuration for compiled code."""

    margin: float  # factor
    memory_factor: float
    release: float
    min_fill: float
    patience_s: float
    keep: bool  # a late job keeps its configuration

    @classmethod
    def of(cls, c: CapacityFloorConfig) -> FloorRule:
        """Read a configuration.

        Returns:
            Numbers for compiled code.
        """
        return cls(
            1 + c.margin,
            c.memory_factor,
            c.release_hit_rate,
            c.min_window_fill,
            c.patience_s,
            c.keep_when_late,
        )


@njit(cache=True, nogil=True, borrows=True)
def lift(
    t: JobFacts,
    seen: SnapshotArrays,
    required: Requirement,
    floor: FloorRule,
    short: Shortage,
    work: Working,
) -> None:
    """Raise every vertex v of every running job j (job file k) to the requirement."""
    p, level = work.parallelism, work.memory_level
    fill, hit = seen.job[JOB.window_fill], seen.vertex[VERTEX.cache_hit_rate]
    jobs, vertices = p.shape
    for j in range(jobs):
        # Jobs that are down cannot rescale: their decisions pass unchanged.
        if seen.status[j] != RUNNING:
            continue
        k = t.row[j]
        # 1e-9 absorbs rounding of the share of the window that is covered.
        measured = fill[j] >= floor.min_fill - 1e-9 and short.fills[j] == 0
        lasting = is_due(seen.job[JOB.t_s, j], short.since_s[j], floor.patience_s)  # no for NaN
        may_raise = measured and (floor.patience_s == 0.0 or lasting)
        keeps = floor.keep and seen.job[JOB.latency_p95_s, j] > t.slo_s[k]  # False for NaN
        for v in range(vertices):
            # A kind below 0 is padding of jobs with fewer vertices.
            if t.kind[k, v] < 0:
                continue
            now_level, chosen = seen.memory_level[j, v], required.memory_level[j, v]
            if keeps and level[j, v] < now_level:
                level[j, v] = now_level
                work.trips[j] = True
            # Memory may go only where the cache still hits well, or where the model lets it go; a
            # vertex without state has no hit rate (NaN).
            unknown = is_hit_unknown(t, seen, j, v)
            if unknown or not (np.isnan(hit[j, v]) or hit[j, v] >= floor.release):
                least_level = min(now_level, chosen)
                if level[j, v] < least_level:
                    level[j, v] = least_level
                    work.trips[j] = True
            # Sources and fixed vertices have one possible parallelism: nothing to raise.
            if t.min_parallelism[k, v] == t.max_parallelism[k, v]:
                continue
            # 1e-9 absorbs rounding: 3.0000000001 required tasks are 3.
            tasks = math.ceil(required.horizontal[j, v] * floor.margin - 1e-9)
            if level[j, v] > now_level:
                tasks = math.ceil(tasks / floor.memory_factor - 1e-9)
                # As much memory as the model chose: its tasks for that memory are enough.
                if level[j, v] >= chosen and chosen > now_level:
                    tasks = min(tasks, math.ceil(required.parallelism[j, v] * floor.margin - 1e-9))
            # The floor never asks for more than a vertex may have.
            least = min(int(tasks), t.max_parallelism[k, v])
            # Before the shortage has lasted, the floor only forbids going further down.
            if not may_raise:
                least = min(least, seen.parallelism[j, v])
            if keeps and level[j, v] <= now_level:
                least = max(least, seen.parallelism[j, v])
            if p[j, v] < least:
                p[j, v] = least
                work.trips[j] = True


_raise = direct(lift)


@direct
@njit(cache=True, nogil=True)
def _notice(
    facts: Handle[JobFacts],
    seen: SnapshotArrays,
    required: Requirement,
    floor: FloorRule,
    shortage: Handle[Shortage],
) -> None:
    """Remember since when a vertex v of the running job j (job file k) has too few tasks.

    While caches fill after a restart tasks are slower than they will be, and seem too few.
    """
    t, short, since_s = facts.arrays, shortage.arrays, shortage.arrays.since_s
    caches = Caches(short.misses, short.seen_s)
    for j in range(seen.status.shape[0]):
        if seen.status[j] != RUNNING:
            continue
        k, is_short = t.row[j], False
        short.fills[j] = any_fills(t, caches, seen, j)
        if short.fills[j] == 1 or seen.job[JOB.window_fill, j] < floor.min_fill - 1e-9:
            continue  # the requirement is unknown
        for v in range(t.n[k]):
            # The same rounding as in `lift`: both must see the same shortage.
            tasks = math.ceil(required.horizontal[j, v] * floor.margin - 1e-9)
            least = min(tasks, t.max_parallelism[k, v])
            is_short = is_short or seen.parallelism[j, v] < least
        if not is_short:
            since_s[j] = np.nan
        elif np.isnan(since_s[j]):
            since_s[j] = seen.job[JOB.t_s, j]
