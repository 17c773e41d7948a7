"""Justin: DS2's parallelism or more memory, depending on cache metrics.

`justin-paper` is Algorithm 1 of "Justin: Hybrid CPU/Memory Elastic Scaling for Distributed Stream
Processing" (DAIS 2025) as written; `justin-artifact` follows the released code.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from pydantic import Field

from baselines import ds2, reasons
from baselines.ds2 import Ds2, Ds2Config, Ds2Rules, plan, take_step
from baselines.history import (
    ConfigurationHistory,
    Remembered,
    access_ms,
    observe,
    previous,
    remember,
)
from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.config.model import ConfigModel
from dsp_gym.job.memory import NO_MEMORY
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.lacking import SIZED, is_hit_unknown
from dsp_gym.loop.per_job_state import Kept, Parts, RowMemory
from dsp_gym.loop.protocols import Mask
from dsp_gym.loop.rates import RATES, Ds2Rates, ds2_rates, room_for_rates, traverse
from dsp_gym.loop.snapshot import VERTEX, MetricsSnapshot, SnapshotArrays
from dsp_gym.loop.topology import JobFacts, Topology
from dsp_gym.numba_handles import Handle, direct
from dsp_gym.policies.capabilities import (
    Capabilities,
    CompiledModel,
    ExplainingPolicy,
    Requirement,
)


def justin_ds2() -> Ds2Config:
    """Return DS2 with what Justin's artifact sets: `configs/policies/ds2-justin.yaml`.

    The delayed scale-down, the alignment with key groups and the other defaults of the autoscaler
    that the artifact runs in are left out.

    Returns:
        The configuration of the DS2 inside Justin.
    """
    return Ds2Config(
        target_utilization=0.5,
        utilization_band=(0.2, 0.8),
        warm_up_s=60.0,
        max_parallelism=24,
        source_rate="observed",
        min_down=1,
        restart_s=60.0,
        catch_up_s=1800.0,
    )


class JustinPaperConfig(ConfigModel):
    """Parameters of Algorithm 1."""

    ds2: Ds2Config = Field(
        default_factory=justin_ds2, description="the DS2 inside: its trigger and its parallelism"
    )
    hit_rate_threshold: float = Field(
        0.8, ge=0, le=1, description="cache hit rate below which memory may help (Algorithm 1)"
    )
    latency_threshold_ms: float = Field(
        1.0, gt=0, description="state access latency above which memory may help, ms (Algorithm 1)"
    )
    max_level: int = Field(
        3, ge=1, description="exclusive bound of the memory level (Algorithm 1: levels 0..2)"
    )
    min_improvement: float = Field(
        0.0, ge=0, description="share by which hit rate or latency must improve (0: strict order)"
    )


class JustinArtifactConfig(ConfigModel):
    """Parameters of the released code, with the values of its Nexmark runs."""

    ds2: Ds2Config = Field(
        default_factory=justin_ds2, description="the DS2 inside: its trigger and its parallelism"
    )
    hit_rate_threshold: float = Field(
        0.8, ge=0, le=1, description="cache-hit-rate.min.threshold (code default 0.7)"
    )
    hit_rate_enough: float = Field(
        0.95, ge=0, le=1, description="cache-hit-rate.max.threshold: no memory is added above it"
    )
    hit_rate_gain: float = Field(
        0.05, ge=0, le=1, description="cache-hit-rate.improved.threshold, absolute"
    )
    throughput_gain: float = Field(
        0.05, ge=0, description="min-improved-throughput, share of the true processing rate"
    )
    max_level: int = Field(2, ge=1, description="exclusive bound of the level, a constant there")
    zero_is_stateless: bool = Field(
        True,
        description="a hit rate of exactly 0 counts as stateless, as in the code, where a cache "
        "without misses or without accesses reads 0 and loses its memory",
    )


class PaperThresholds(NamedTuple):
    """`JustinPaperConfig` as compiled code takes it."""

    hit: float  # cache hit rate below which memory may help
    latency_ms: float  # access latency above which memory may help
    max_level: int
    improvement: float  # share

    @classmethod
    def of(cls, c: JustinPaperConfig) -> PaperThresholds:
        """Read a configuration.

        Returns:
            Numbers for compiled code.
        """
        return cls(c.hit_rate_threshold, c.latency_threshold_ms, c.max_level, c.min_improvement)


class ArtifactThresholds(NamedTuple):
    """`JustinArtifactConfig` as compiled code takes it."""

    hit: float  # cache hit rate below which memory may help
    hit_enough: float
    hit_gain: float
    rate_gain: float  # factor
    max_level: int
    zero_is_stateless: bool

    @classmethod
    def of(cls, c: JustinArtifactConfig) -> ArtifactThresholds:
        """Read a configuration.

        Returns:
            Numbers for compiled code.
        """
        return cls(
            c.hit_rate_threshold,
            c.hit_rate_enough,
            c.hit_rate_gain,
            1 + c.throughput_gain,
            c.max_level,
            c.zero_is_stateless,
        )


_PAPER = PaperThresholds.of(JustinPaperConfig())
_RELEASED = ArtifactThresholds.of(JustinArtifactConfig())
"""Thresholds where the other algorithm decides."""


class ArbitrationRules(NamedTuple):
    """The deciding algorithm, with its thresholds; the other's are not read."""

    released: bool  # the released code's, not the paper's
    paper: PaperThresholds
    artifact: ArtifactThresholds


class JustinRules(NamedTuple):
    """All rules of Justin, as compiled code takes them."""

    ds2: Ds2Rules
    algorithm: ArbitrationRules


class JustinMemory(NamedTuple):
    """The memory of the DS2 inside and of Justin."""

    ds2: Handle[ds2.Remembered]
    history: Handle[Remembered]


def _room(seen: SnapshotArrays) -> Requirement:
    """Allocate room for a configuration of the jobs in a snapshot."""
    shape = seen.parallelism.shape
    return Requirement(
        np.empty(shape, np.int64), np.empty(shape, np.int64), np.empty(shape, np.int64)
    )


class _Justin(Kept, ExplainingPolicy):
    """Common parts of both: an inner DS2, the history, and the reasons."""

    def __init__(self, name: str, ds2: Ds2Config, algorithm: ArbitrationRules) -> None:
        self.name = name
        self._ds2 = Ds2(ds2, SIZED)
        self._settings = JustinRules(self._ds2.rules, algorithm)
        self._history = ConfigurationHistory()
        self._kept = Parts(ds2=self._ds2, history=self._history)

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        self._ds2.reset(jobs, seeds, mask)
        self._history.reset(jobs, mask)

    def capabilities(self) -> Capabilities:
        return replace(
            super().capabilities(),
            memories=self.memories,
            capacity=self,
            compiled_model=self._compiled,
        )

    def _compiled(self) -> CompiledModel:
        (memory,) = ConfigurationHistory().memories()
        rules = self._settings
        return CompiledModel(rules.ds2.offered, rules, memory, Remembered, _require, observe)

    def memories(self) -> tuple[RowMemory, ...]:
        return (*self._ds2.memories(), *self._history.memories())

    def observe(self, snapshot: MetricsSnapshot) -> None:
        """Remember the running configuration and the metrics under it."""
        rates = ds2_rates(snapshot, self._ds2.config.source_rate)
        self._history.observe(snapshot, rates.true_rate_per_task)

    def required(self, snapshot: MetricsSnapshot) -> Requirement:
        facts, seen, history = snapshot.topology.handle, snapshot.arrays, self._history.memory
        rates, known = room_for_rates(snapshot, self._ds2.config.source_rate)
        needed = _room(seen)
        jobs, vertices = seen.parallelism.shape
        room = np.ones(jobs, np.bool_), np.empty(vertices)
        _require(facts, seen, rates.block, known, self._settings, history, needed, *room)
        return needed

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        snapshot = self._ds2.last_known.filled(snapshot)
        seen, history = snapshot.arrays, self._history.memory
        wanted = _room(seen)
        if self._ds2.config.roll_back:
            wanted.horizontal[:], due, rates = self._ds2.trigger(snapshot)
            jobs, algorithm = snapshot.topology.facts, self._settings.algorithm
            own = self._history.arrays
            _settle(jobs, seen, due, rates.block, algorithm, own, wanted)
        else:
            rates, known = room_for_rates(snapshot, self._ds2.config.source_rate)
            memory = JustinMemory(self._ds2.memory, history)
            facts = snapshot.topology.handle
            _decide(facts, seen, rates.block, known, self._settings, memory, wanted)
        p, level = wanted.parallelism, wanted.memory_level
        why = self._why(snapshot, rates, p, level, wanted.horizontal) if self.explain else None
        return reasons.decision(snapshot, p, level, why)

    def _why(
        self, snapshot: MetricsSnapshot, rates: Ds2Rates, p: Ints, level: Ints, horizontal: Ints
    ) -> reasons.Why:
        by_rate = self._ds2.why(rates)

        def reason(job: int, v: int) -> str:
            hit, before = snapshot.cache_hit_rate[job, v], snapshot.memory_level[job, v]
            if level[job, v] < 0 and before >= 0:
                return "no cache in use: managed memory removed"
            if level[job, v] > before:
                instead = f"instead of {horizontal[job, v]} tasks"
                return f"cache hit rate {hit:.2f}: more memory {instead}"
            if level[job, v] < before:
                return f"cache hit rate {hit:.2f}: less memory; {by_rate(job, v)}"
            return by_rate(job, v)

        return reason


class JustinPaper(_Justin):
    """Justin, Algorithm 1 as written: memory before tasks while the cache gains from it."""

    Config = JustinPaperConfig

    def __init__(self, config: JustinPaperConfig | None = None) -> None:
        self.config = c = config or JustinPaperConfig()
        super().__init__(
            "justin-paper", c.ds2, ArbitrationRules(False, PaperThresholds.of(c), _RELEASED)
        )


class JustinArtifact(_Justin):
    """Justin as its released code decides: levels 0 and 1, on the cache hit rate alone."""

    Config = JustinArtifactConfig

    def __init__(self, config: JustinArtifactConfig | None = None) -> None:
        self.config = c = config or JustinArtifactConfig()
        algorithm = ArbitrationRules(True, _PAPER, ArtifactThresholds.of(c))
        super().__init__("justin-artifact", c.ds2, algorithm)


@njit(cache=True, nogil=True, borrows=True)
def _algorithm_1(
    t: JobFacts,
    seen: SnapshotArrays,
    due: Bools,
    remembered: Remembered,
    c: PaperThresholds,
    p: Ints,
    m: Ints,
) -> None:
    """Turn DS2's parallelism p and the running level m into Justin's, where a job is due.

    j is a job's row, k its job file, v a vertex. Numbers in comments are lines of Algorithm 1.
    """
    hit = seen.vertex[VERTEX.cache_hit_rate]
    read = seen.vertex[VERTEX.state_read_latency_ms]
    write = seen.vertex[VERTEX.state_write_latency_ms]
    jobs, vertices = p.shape
    for j in range(jobs):
        if not due[j]:
            continue
        k = t.row[j]
        top = min(c.max_level, t.levels[k])
        then = previous(t, seen, remembered, j)
        for v in range(vertices):
            if t.kind[k, v] < 0:
                continue
            if is_hit_unknown(t, seen, j, v):
                p[j, v] = seen.parallelism[j, v]
                continue
            if np.isnan(hit[j, v]):  # 3: no recorded RocksDB access
                m[j, v] = NO_MEMORY
                continue
            running = seen.parallelism[j, v]
            if p[j, v] == running:  # 6: capacity is sufficient
                continue
            can_scale_up = m[j, v] + 1 < top  # 9, 16
            latency = access_ms(read[j, v], write[j, v])
            if then.exists and m[j, v] > then.level[v]:  # 7: vertical scaling used last time
                better = hit[j, v] > then.hit[v] * (1 + c.improvement) or latency < (
                    then.latency[v] * (1 - c.improvement)
                )
                if not better:  # 12: roll back, with DS2's parallelism
                    m[j, v] = max(0, m[j, v] - 1)
                elif can_scale_up:  # 9
                    p[j, v] = running
                    m[j, v] += 1
            elif can_scale_up and (hit[j, v] < c.hit or latency > c.latency_ms):  # 16
                p[j, v] = running
                m[j, v] += 1


@njit(cache=True, nogil=True, borrows=True)
def _released_code(
    t: JobFacts,
    seen: SnapshotArrays,
    due: Bools,
    rates: Floats,
    remembered: Remembered,
    c: ArtifactThresholds,
    p: Ints,
    m: Ints,
) -> None:
    """Follow ScalingExecutor.policy() of the artifact, branch by branch, where a job is due.

    State latency never reaches it (the evaluated metrics lack it), so no branch uses it. DS2's
    parallelism p and the running level m become Justin's. j is a job's row, k its job file, v a
    vertex.
    """
    hits = seen.vertex[VERTEX.cache_hit_rate]
    jobs, vertices = p.shape
    for j in range(jobs):
        if not due[j]:
            continue
        k = t.row[j]
        top = min(c.max_level, t.levels[k])
        then = previous(t, seen, remembered, j)
        for v in range(vertices):
            if t.kind[k, v] < 0:
                continue
            hit, running = hits[j, v], seen.parallelism[j, v]
            if is_hit_unknown(t, seen, j, v):
                p[j, v] = running
                continue
            if np.isnan(hit) or (c.zero_is_stateless and hit == 0.0):
                m[j, v] = NO_MEMORY
                continue
            level = m[j, v]
            can_scale_up = level + 1 < top
            if not then.exists:
                # The artifact's first decision assumes a start with one task.
                scalable = t.min_parallelism[k, v] < t.max_parallelism[k, v]
                if p[j, v] != 1 and hit < c.hit and top > 1 and scalable:
                    p[j, v], m[j, v] = 1, 1
                else:
                    m[j, v] = 0
            elif p[j, v] == running:
                # The artifact sets no level here, so it falls back to the constructor's, 0.
                m[j, v] = 0
            elif level > then.level[v]:
                # Memory grew last time: keep growing only while hit rate and throughput gained.
                rate = rates[RATES.true_rate_per_task, j, v] * running
                gained = rate > c.rate_gain * then.rate[v]
                if not hit - then.hit[v] > c.hit_gain:
                    m[j, v] = max(0, level - 1)
                elif gained and hit < c.hit_enough and can_scale_up:
                    p[j, v] = running
                    m[j, v] = level + 1
            elif hit < c.hit and can_scale_up:
                p[j, v] = running
                m[j, v] = level + 1


@njit(cache=True, nogil=True, borrows=True)
def _arbitrate(
    t: JobFacts,
    seen: SnapshotArrays,
    due: Bools,
    rates: Floats,
    c: ArbitrationRules,
    history: Remembered,
    wanted: Requirement,
) -> None:
    """Turn DS2's parallelism, `wanted.horizontal`, into Justin's configuration."""
    p, m = wanted.parallelism, wanted.memory_level
    for j in range(p.shape[0]):
        for v in range(p.shape[1]):
            p[j, v], m[j, v] = wanted.horizontal[j, v], seen.memory_level[j, v]
    if c.released:
        _released_code(t, seen, due, rates, history, c.artifact, p, m)
    else:
        _algorithm_1(t, seen, due, history, c.paper, p, m)


@direct
@njit(cache=True, nogil=True)
def _require(
    facts: Handle[JobFacts],
    seen: SnapshotArrays,
    rates: Floats,
    known: bool,
    c: JustinRules,
    history: Handle[Remembered],
    needed: Requirement,
    every: Bools,
    emitted: Floats,
) -> None:
    """Fill in the present needs of the jobs, as if every one were due: `every` (J,) is True.

    `emitted` (V,) is room.
    """
    t = facts.arrays
    if not known:
        traverse(t, seen, c.ds2.offered, 0, every.shape[0], rates, emitted)
    plan(t, seen, rates, c.ds2.sizing, needed.horizontal)
    _arbitrate(t, seen, every, rates, c.algorithm, history.arrays, needed)


@njit(cache=True, nogil=True, borrows=True)
def settle(
    t: JobFacts,
    seen: SnapshotArrays,
    due: Bools,
    rates: Floats,
    c: ArbitrationRules,
    history: Remembered,
    wanted: Requirement,
) -> None:
    """Arbitrate where a job is due, and remember the running configuration."""
    _arbitrate(t, seen, due, rates, c, history, wanted)
    remember(t, seen, rates[RATES.true_rate_per_task], history)


_settle = direct(settle)


@direct
@njit(cache=True, nogil=True)
def _decide(
    facts: Handle[JobFacts],
    seen: SnapshotArrays,
    rates: Floats,
    known: bool,
    c: JustinRules,
    memory: JustinMemory,
    wanted: Requirement,
) -> None:
    """Take a step of the scaling manager, and arbitrate where it is due."""
    due, evaluated = np.zeros(len(seen.status), np.bool_), np.zeros(len(seen.status), np.bool_)
    t, p = facts.arrays, wanted.horizontal
    take_step(t, seen, rates, known, c.ds2, memory.ds2.arrays, p, due, evaluated)
    settle(t, seen, due, rates, c.algorithm, memory.history.arrays, wanted)
