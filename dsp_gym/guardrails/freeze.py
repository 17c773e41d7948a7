"""No changes while a job restarts, takes a savepoint, or is about to have caught up."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.config.model import ConfigModel
from dsp_gym.guardrails.restriction import Restriction, hold
from dsp_gym.loop.backlog import backlog_of, work_off_s
from dsp_gym.loop.lacking import Needs, is_complete, is_reported, needs
from dsp_gym.loop.per_job_state import RowMemory
from dsp_gym.loop.protocols import Mask
from dsp_gym.loop.snapshot import JOB, RUNNING, VERTEX, MetricsSnapshot, SnapshotArrays, Status
from dsp_gym.loop.topology import JobFacts, Topology
from dsp_gym.loop.unknown import LastKnown
from dsp_gym.numba_handles import direct
from dsp_gym.sizing.recovery import caught_up_s

_WEIGHED = needs(of_inputs=())
"""The metrics by which a catch-up is weighed."""


class FreezeConfig(ConfigModel):
    """The backlog above which a job is left alone, and for how long."""

    kind: Literal["freeze"] = Field("freeze", description="this guardrail")
    catching_up_s: float | None = Field(
        300.0,
        gt=0,
        description="backlog in seconds of arrivals above which a job whose backlog shrinks is "
        "left alone (Flink's lag threshold: 5 min); none: only the status counts",
    )
    catch_up_s: float = Field(
        1800.0,
        ge=0,
        description="longest catch-up that is waited for (Flink's catch-up duration: 30 min); "
        "a job that would take longer may get more capacity, as may one that catches up earlier "
        "with it, outage included",
    )


class FreezeRule(NamedTuple):
    """The guardrail's configuration for compiled code, s."""

    catching_up_s: float
    catch_up_s: float
    weighed: Needs


class Freeze(Restriction):
    """Hold while the status is not RUNNING, and while a large backlog is being worked off.

    A catch-up is no reason to refuse more capacity that ends it earlier, or that is needed to end
    it at all. Where a vertex does not report, its last known values count: a gap neither freezes a
    job nor ends a freeze.
    """

    name = "freeze"
    kind = "held"
    weighs = True

    def __init__(self, config: FreezeConfig | None = None) -> None:
        super().__init__()
        self._kept = self._last_known = LastKnown(_WEIGHED)
        self.config = c = config or FreezeConfig()
        catching_up_s = np.inf if c.catching_up_s is None else c.catching_up_s
        self.rules = FreezeRule(catching_up_s, c.catch_up_s, _WEIGHED)

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        self._last_known.reset(jobs, mask)

    def watch(self, snapshot: MetricsSnapshot) -> None:
        self._last_known.filled(snapshot)

    def memories(self) -> tuple[RowMemory, ...]:
        return self._last_known.memories()

    def restrict(self, snapshot: MetricsSnapshot, parallelism: Ints, level: Ints) -> Bools:
        frozen = np.zeros(len(parallelism), dtype=bool)
        wanted = np.ascontiguousarray(parallelism), np.ascontiguousarray(level)
        known = self._last_known.filled(snapshot, remember=False)
        facts, seen = snapshot.topology.facts, snapshot.arrays
        if not _frozen(facts, seen, known.arrays, self.rules, *wanted, frozen):
            return frozen
        return hold(snapshot, frozen, parallelism, level)

    def reason(self, snapshot: MetricsSnapshot, job: int) -> str:
        status = Status(int(snapshot.status[job]))
        if status != Status.RUNNING:
            return f"the job is {status.name}"
        return f"the job works off a backlog of more than {self.config.catching_up_s:g} s"


@njit(cache=True, nogil=True)
def can_weigh(t: JobFacts, seen: SnapshotArrays, rule: FreezeRule, never: Floats) -> bool:
    """Return whether all jobs report what a catch-up is weighed by: no last known value counts."""
    complete = True
    for j in range(seen.status.shape[0]):
        if seen.status[j] == RUNNING and complete:
            complete = is_complete(t, seen, rule.weighed, never, j)
    return complete


@njit(cache=True, nogil=True, borrows=True)
def _growth(
    t: JobFacts, seen: SnapshotArrays, known: SnapshotArrays, p: Ints, level: Ints, j: int
) -> float:
    """Return the capacity of a decision on job j over that of the running configuration.

    DS2's linear model: at the load that keeps the busiest vertex busy all the time, vertex v
    carries p / (needed tasks) of it. Less memory may slow a vertex down by any factor, so that it
    carries nothing for sure; more memory may speed it up, so that it limits nothing. Nor does a
    vertex that could have more tasks or memory, and keeps what it has because it does not report.
    """
    busiest, reports = 0.0, is_reported(t, known, j, VERTEX.busy_ms_per_s)
    for v in range(t.n[t.row[j]]):
        busy = known.vertex[VERTEX.busy_ms_per_s, j, v]
        busiest = max(busiest, 1000.0 if np.isnan(busy) else busy)
    least = np.inf
    for v in range(t.n[t.row[j]]):
        now, now_level = seen.parallelism[j, v], seen.memory_level[j, v]
        busy = known.vertex[VERTEX.busy_ms_per_s, j, v]
        share = (1000.0 if np.isnan(busy) else busy) / busiest if busiest > 0.0 else 0.0
        if level[j, v] < now_level:
            return 0.0
        # A sum with NaN is NaN: one test for both metrics.
        evidence = seen.vertex[VERTEX.busy_ms_per_s, j, v]
        evidence += seen.vertex[VERTEX.records_in_per_s, j, v]
        may_grow = now < t.max_parallelism[t.row[j], v] or now_level < t.levels[t.row[j]] - 1
        is_held = np.isnan(evidence) and p[j, v] == now and may_grow and reports
        if share > 0.0 and level[j, v] == now_level and not is_held:
            least = min(least, p[j, v] / (now * share))
    return least


@njit(cache=True, nogil=True, borrows=True)
def find_frozen(
    t: JobFacts,
    seen: SnapshotArrays,
    known: SnapshotArrays,
    rule: FreezeRule,
    p: Ints,
    level: Ints,
    frozen: Bools,
) -> bool:
    """Set True where job j is down, or works off more than `rule.catching_up_s` of arrivals.

    In the second case only where the catch-up ends soon, and the decision (parallelism `p` and
    memory `level`) ends it no earlier. `known` is the snapshot with last known values in the place
    of those that are lacking.

    Returns:
        Whether there is such a job.
    """
    some = False
    for j in range(p.shape[0]):
        if seen.status[j] != RUNNING:
            frozen[j] = some = True
            continue
        waiting, arriving, growing = backlog_of(t, known, j)
        frozen[j] = growing < 0.0 and waiting > rule.catching_up_s * arriving
        if not frozen[j]:
            continue
        left_s, more = work_off_s(waiting, -growing), _growth(t, seen, known, p, level, j)
        outage_s = seen.job[JOB.outage_s, j]
        if not outage_s > 0.0:
            outage_s = t.outage_s[t.row[j], 1]
        # Arrivals of the outage have to be caught up with, too.
        spare = more * (arriving - growing) - arriving
        sooner = caught_up_s(waiting, arriving, spare, outage_s) < left_s
        frozen[j] = not (sooner or (left_s > rule.catch_up_s and more > 1.0))
        some = some or frozen[j]
    return some


_frozen = direct(find_frozen)
