"""Dhalion: scale the vertex that causes backpressure, one vertex per step.

Floratou et al., "Dhalion: self-regulating stream processing in Heron", VLDB 2017, as Kalavri et al.
(DS2, OSDI 2018, sections 2 and 5.2) describe and run it, with the constants of Heron's released
`DynamicResourceAllocationPolicy` (60 s between evaluations, 180 s after an action, 20 ms/s of
noise, at most four times as many tasks more). Heron counts the time in which an operator holds the
sources back; Flink pushes back one hop at a time, so here it is the time in which the inputs of the
initiator wait for it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from pydantic import Field, model_validator

from baselines import reasons
from dsp_gym.arrays import Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.config.model import ConfigModel
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.due import is_due
from dsp_gym.loop.lacking import FLOW, needs
from dsp_gym.loop.per_job_state import Kept, Parts, RowMemory
from dsp_gym.loop.protocols import Mask
from dsp_gym.loop.snapshot import JOB, RUNNING, VERTEX, MetricsSnapshot, SnapshotArrays
from dsp_gym.loop.topology import JobFacts, Topology
from dsp_gym.loop.unknown import LastKnown
from dsp_gym.policies.capabilities import ExplainingPolicy

ROUND_OFF = 1e-9
"""Part of a task that is arithmetic, not demand: 3.0000000001 tasks are three."""

UP, DOWN = 1, -1
TRIED_UP, TRIED_DOWN = 0, 1
"""Columns of the log of a vertex."""
FOREVER = 1e18


class DhalionConfig(ConfigModel):
    """Detectors, resolvers and blacklist; the defaults are Heron's where it has any."""

    interval_s: float = Field(60.0, gt=0, description="time between evaluations, s (Heron: 60)")
    wait_s: float = Field(
        180.0, ge=0, description="rest after a rescale until the next evaluation, s (Heron: 180)"
    )
    noise_ms_per_s: float = Field(
        20.0, ge=0, lt=1000, description="backpressure that is no symptom yet (Heron: 20)"
    )
    max_growth: float = Field(
        4.0, gt=0, description="largest share of the tasks that one step adds (Heron: 4)"
    )
    idle_ms_per_s: float = Field(
        700.0,
        gt=0,
        le=1000,
        description="idle time of a vertex above which it has tasks to spare (assumption)",
    )
    scale_down_share: float = Field(
        0.2, ge=0, lt=1, description="share of the tasks one step takes (assumption); 0: never"
    )
    blacklist_ratio: float = Field(
        0.5,
        ge=0,
        lt=1,
        description="share of a vertex's actions of one kind that brought nothing, above which "
        "that action is not taken again (assumption)",
    )
    blacklist_s: float | None = Field(
        None, gt=0, description="how long that holds, s; none: for good, as described"
    )
    min_gain: float = Field(
        0.05,
        ge=0,
        description="rise of the vertex's rate by which an action counts as effective although "
        "the vertex still blocks its inputs (assumption)",
    )

    @model_validator(mode="after")
    def _does_not_undo_itself(self) -> DhalionConfig:
        busy = 1 - self.idle_ms_per_s / 1000
        if busy > (1 - self.scale_down_share) * (1 - self.noise_ms_per_s / 1000):
            raise ValueError(
                f"idle_ms_per_s {self.idle_ms_per_s:g} and scale_down_share "
                f"{self.scale_down_share:g} conflict: a vertex busy {busy:.0%} of the time would "
                "be in backpressure after the scale-down; raise the first or lower the second"
            )
        return self


NEEDS = needs(
    ("backpressured_ms_per_s", "idle_ms_per_s", "busy_ms_per_s", "records_in_per_s"),
    (),
    ("backpressured_ms_per_s", *FLOW),
)
"""The metrics that a decision on a vertex needs."""


class Rules(NamedTuple):
    """`DhalionConfig` as compiled code takes it."""

    interval_s: float
    wait_s: float
    noise_ms_per_s: float
    max_growth: float
    idle_ms_per_s: float
    scale_down_share: float
    blacklist_ratio: float
    blacklist_s: float
    min_gain: float


class Remembered(NamedTuple):
    """The last snapshot, and the action whose effect is still open."""

    evaluated_s: Floats  # (J,)
    seen_s: Floats  # (J,) time of the last snapshot
    moved_s: Floats  # (J,) time of the last rescale
    running: Ints  # (J, V) parallelism last seen
    rate: Floats  # (J, V) records/s at the last evaluation
    acting: Ints  # (J,) column of the rescaled vertex, -1: none
    direction: Ints  # (J,) UP or DOWN
    rate_before: Floats  # (J,) records/s of that vertex before


class Log(NamedTuple):
    """Outcomes of scaling a vertex: column TRIED_UP or TRIED_DOWN, (J, V, 2)."""

    tried: Ints
    failed: Ints
    barred_s: Floats  # time until which the action is not taken again


class Dhalion(Kept, ExplainingPolicy):
    """Dhalion: scales up the initiator of backpressure or down an idle vertex, one per step."""

    Config = DhalionConfig

    def __init__(self, config: DhalionConfig | None = None) -> None:
        self.name = "dhalion"
        self.config = c = config or DhalionConfig()
        self._rules = Rules(
            c.interval_s,
            c.wait_s,
            c.noise_ms_per_s,
            c.max_growth,
            c.idle_ms_per_s,
            c.scale_down_share,
            c.blacklist_ratio,
            FOREVER if c.blacklist_s is None else c.blacklist_s,
            c.min_gain,
        )
        self._memory = RowMemory(
            {
                "evaluated_s": ("job", -1e18),
                "seen_s": ("job", -1e18),
                "moved_s": ("job", -1e18),
                "running": ("vertex", -1),
                "rate": ("vertex", np.nan),
                "acting": ("job", -1),
                "direction": ("job", 0),
                "rate_before": ("job", np.nan),
            }
        )
        self._log = RowMemory(
            {"tried": ("vertex", 0), "failed": ("vertex", 0), "barred_s": ("vertex", -1e18)},
            depth=2,
        )
        self._last_known = LastKnown(NEEDS)
        self._kept = Parts(memory=self._memory, log=self._log, last_known=self._last_known)

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        self._memory.reset(jobs, mask)
        self._log.reset(jobs, mask)
        self._last_known.reset(jobs, mask)

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        snapshot = self._last_known.filled(snapshot)
        pods = snapshot.parallelism.copy()
        waits = np.zeros(pods.shape)
        _decide(
            snapshot.topology.facts,
            snapshot.arrays,
            self._rules,
            self._memory.arrays(Remembered),
            self._log.arrays(Log),
            waits,
            pods,
        )

        def why(job: int, v: int) -> str:
            if pods[job, v] < snapshot.parallelism[job, v]:
                return f"idle {snapshot.idle_ms_per_s[job, v]:.0f} ms/s, no backpressure"
            return f"inputs blocked {waits[job, v]:.0f} ms/s by this vertex, itself not blocked"

        return reasons.decision(
            snapshot, pods, snapshot.memory_level, why if self.explain else None
        )


@njit(cache=True, nogil=True)
def scale_up(tasks: int, backpressure_ms_per_s: float, max_growth: float) -> int:
    """Size a step: growth by time in backpressure over time without it.

    20 % of the time in backpressure and 80 % without call for a quarter more.

    >>> scale_up(4, 200.0, 4.0), scale_up(1, 990.0, 4.0)
    (5, 5)

    Returns:
        Tasks after the step, rounded up.
    """
    pressure = min(backpressure_ms_per_s, 999.0)
    growth = min(pressure / (1000.0 - pressure), max_growth)
    return int(np.ceil(tasks * (1.0 + growth) - ROUND_OFF))


@njit(cache=True, nogil=True)
def _diagnose(t: JobFacts, k: int, back: Floats, noise: float, waits: Floats) -> tuple[int, bool]:
    """Find vertices that block their inputs and are not blocked themselves; u is an input of v.

    Args:
        t: The jobs.
        k: Job file of the row.
        back: (V,) time under backpressure, ms/s.
        noise: Below it nothing counts, ms/s.
        waits: (V,) set to the time an initiator blocks its inputs, ms/s.

    Returns:
        The number of vertices whose backpressure is known, and whether any is blocked.
    """
    known, pressed = 0, False
    for v in range(t.n[k]):
        known += not np.isnan(back[v])
        pressed = pressed or back[v] > noise
        longest = 0.0
        for i in range(t.upstream.shape[2]):
            u = t.upstream[k, v, i]
            if u >= 0 and back[u] > longest:
                longest = back[u]
        initiates = t.kind[k, v] != SOURCE and longest > noise and not back[v] > noise
        waits[v] = longest if initiates else 0.0
    return known, pressed


@njit(cache=True, nogil=True)
def _initiator(
    t: JobFacts, k: int, running: Ints, now: float, barred_s: Floats, waits: Floats
) -> tuple[int, float]:
    """Return the vertex to scale up, which blocks its inputs most, and how long; -1: none."""
    chosen, most = -1, 0.0
    for v in range(t.n[k]):
        open_to = running[v] < t.max_parallelism[k, v] and barred_s[v, TRIED_UP] <= now
        if open_to and waits[v] > most:
            chosen, most = v, waits[v]
    return chosen, most


@njit(cache=True, nogil=True)
def _idlest(
    t: JobFacts, k: int, running: Ints, now: float, barred_s: Floats, idle: Floats, c: Rules
) -> tuple[int, float]:
    """Return the vertex to scale down, which is idle most, and how long; -1: none."""
    chosen, most = -1, 0.0
    for v in range(t.n[k] if c.scale_down_share > 0.0 else 0):
        open_to = running[v] > t.min_parallelism[k, v] and barred_s[v, TRIED_DOWN] <= now
        if open_to and idle[v] > max(c.idle_ms_per_s, most):
            chosen, most = v, idle[v]
    return chosen, most


@njit(cache=True, nogil=True)
def _decide(
    t: JobFacts,
    seen: SnapshotArrays,
    c: Rules,
    m: Remembered,
    log: Log,
    waits: Floats,
    pods: Ints,
) -> None:
    """Take one step for every job that is due (DS2, section 2: detect, diagnose, resolve).

    j is a job's row, k its job file, v a vertex, p a running parallelism.

    Args:
        t: The jobs.
        seen: The snapshot.
        c: Detectors, resolvers and blacklist.
        m: Memory, changed in place.
        log: Outcomes of earlier actions, changed in place.
        waits: (J, V) set to the time an initiator blocks its inputs, ms/s.
        pods: (J, V) parallelism, changed where a step is taken.
    """
    t_s, since = seen.job[JOB.t_s], seen.job[JOB.running_since_s]
    back = seen.vertex[VERTEX.backpressured_ms_per_s]
    idle, rates = seen.vertex[VERTEX.idle_ms_per_s], seen.vertex[VERTEX.records_in_per_s]
    for j in range(len(t_s)):
        k, now = t.row[j], t_s[j]
        if seen.status[j] != RUNNING:
            continue
        _notice(j, t.n[k], now, since[j], seen.parallelism, m)
        if now - m.moved_s[j] < c.wait_s or not is_due(now, m.evaluated_s[j], c.interval_s):
            continue
        # Symptom and diagnosis: a vertex that blocks its inputs and is not blocked itself.
        known, pressed = _diagnose(t, k, back[j], c.noise_ms_per_s, waits[j])
        if known == 0:
            continue
        # Judge the last action first: its verdict may bar an action of this step.
        m.evaluated_s[j] = now
        if m.acting[j] >= 0:
            acted = m.acting[j]
            _judge(j, now, waits[j, acted] > 0.0, rates[j, acted], c, m, log)
            m.acting[j] = -1
        # One vertex per step: the worst initiator, or without backpressure the idlest vertex.
        for v in range(t.n[k]):
            m.rate[j, v] = rates[j, v]
        running, barred_s = seen.parallelism[j], log.barred_s[j]
        if pressed:
            chosen, most = _initiator(t, k, running, now, barred_s, waits[j])
        else:
            chosen, most = _idlest(t, k, running, now, barred_s, idle[j], c)
        if chosen < 0:
            continue
        p = seen.parallelism[j, chosen]
        if pressed:
            pods[j, chosen] = min(scale_up(p, most, c.max_growth), t.max_parallelism[k, chosen])
        else:
            kept = int(np.floor(p * (1.0 - c.scale_down_share) + ROUND_OFF))
            pods[j, chosen] = max(kept, t.min_parallelism[k, chosen])


@njit(cache=True, nogil=True)
def _notice(j: int, n: int, now: float, since: float, parallelism: Ints, m: Remembered) -> None:
    """Notice a rescale of row j since the last snapshot: a rest begins.

    A rescale of one vertex alone will be judged.
    """
    moved, which = 0, -1
    for v in range(n):
        if m.running[j, v] >= 0 and m.running[j, v] != parallelism[j, v]:
            moved, which = moved + 1, v
    if moved > 0:
        m.moved_s[j] = since if since > m.seen_s[j] else now
        m.acting[j] = which if moved == 1 else -1
        m.direction[j] = UP if parallelism[j, which] > m.running[j, which] else DOWN
        m.rate_before[j] = m.rate[j, which]
        m.rate[j, :] = np.nan
    m.seen_s[j] = now
    for v in range(parallelism.shape[1]):
        m.running[j, v] = parallelism[j, v]


@njit(cache=True, nogil=True)
def _judge(
    j: int, now: float, initiates: bool, rate: float, c: Rules, m: Remembered, log: Log
) -> None:
    """Judge whether the last action improved the job's health; else count it towards a bar.

    More tasks are effective when the vertex no longer blocks its inputs or takes in more; fewer
    tasks when it does not block them. An unknown rate is not held against an action.

    Args:
        j: Row of the job.
        now: Time, s.
        initiates: Whether the vertex blocks its inputs now.
        rate: Records/s the vertex takes in now.
        c: Gain and blacklist.
        m: The action.
        log: Changed in place.
    """
    v, direction, before = m.acting[j], m.direction[j], m.rate_before[j]
    column = TRIED_UP if direction == UP else TRIED_DOWN
    if direction == UP and initiates and (np.isnan(rate) or np.isnan(before)):
        return
    better = direction == UP and rate > before * (1.0 + c.min_gain)
    log.tried[j, v, column] += 1
    if initiates and not better:
        log.failed[j, v, column] += 1
        if log.failed[j, v, column] > c.blacklist_ratio * log.tried[j, v, column]:
            log.barred_s[j, v, column] = now + c.blacklist_s
