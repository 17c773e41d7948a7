"""No changes while a job restarts, takes a savepoint, or is about to have caught up."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from dsp_gym.arrays import Bools, Ints
from dsp_gym.compiling import njit
from dsp_gym.config.model import ConfigModel
from dsp_gym.guardrails.restriction import Restriction, hold
from dsp_gym.loop.backlog import backlog_of
from dsp_gym.loop.snapshot import JOB, RUNNING, VERTEX, MetricsSnapshot, SnapshotArrays, Status
from dsp_gym.loop.topology import JobFacts
from dsp_gym.numba_handles import direct


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


class Freeze(Restriction):
    """Hold while the status is not RUNNING, and while a large backlog is being worked off.

    A catch-up is no reason to refuse more capacity that ends it earlier, or that is needed to end
    it at all.
    """

    name = "freeze"
    kind = "held"
    weighs = True

    def __init__(self, config: FreezeConfig | None = None) -> None:
        super().__init__()
        self.config = c = config or FreezeConfig()
        catching_up_s = np.inf if c.catching_up_s is None else c.catching_up_s
        self.rules = FreezeRule(catching_up_s, c.catch_up_s)

    def restrict(self, snapshot: MetricsSnapshot, parallelism: Ints, level: Ints) -> Bools:
        frozen = np.zeros(len(parallelism), dtype=bool)
        wanted = np.ascontiguousarray(parallelism), np.ascontiguousarray(level)
        if not _frozen(snapshot.topology.facts, snapshot.arrays, self.rules, *wanted, frozen):
            return frozen
        return hold(snapshot, frozen, parallelism, level)

    def reason(self, snapshot: MetricsSnapshot, job: int) -> str:
        status = Status(int(snapshot.status[job]))
        if status != Status.RUNNING:
            return f"the job is {status.name}"
        return f"the job works off a backlog of more than {self.config.catching_up_s:g} s"


@njit(cache=True, nogil=True, borrows=True)
def _growth(t: JobFacts, seen: SnapshotArrays, p: Ints, level: Ints, j: int) -> float:
    """Return the capacity of a decision on job j over that of the running configuration.

    DS2's linear model: at the load that keeps the busiest vertex busy all the time, vertex v
    carries p / (needed tasks) of it. Less memory may slow a vertex down by any factor, so that it
    carries nothing for sure; more memory may speed it up, so that it limits nothing.
    """
    busiest = 0.0
    for v in range(t.n[t.row[j]]):
        busy = seen.vertex[VERTEX.busy_ms_per_s, j, v]
        busiest = max(busiest, 1000.0 if np.isnan(busy) else busy)
    least = np.inf
    for v in range(t.n[t.row[j]]):
        busy = seen.vertex[VERTEX.busy_ms_per_s, j, v]
        share = (1000.0 if np.isnan(busy) else busy) / busiest if busiest > 0.0 else 0.0
        if level[j, v] < seen.memory_level[j, v]:
            return 0.0
        if share > 0.0 and level[j, v] == seen.memory_level[j, v]:
            least = min(least, p[j, v] / (seen.parallelism[j, v] * share))
    return least


@njit(cache=True, nogil=True, borrows=True)
def find_frozen(
    t: JobFacts, seen: SnapshotArrays, rule: FreezeRule, p: Ints, level: Ints, frozen: Bools
) -> bool:
    """Set True where job j is down, or works off more than `rule.catching_up_s` of arrivals.

    In the second case only where the catch-up ends soon, and the decision (parallelism `p` and
    memory `level`) ends it no earlier.

    Returns:
        Whether there is such a job.
    """
    some = False
    for j in range(p.shape[0]):
        if seen.status[j] != RUNNING:
            frozen[j] = some = True
            continue
        waiting, arriving, growing = backlog_of(t, seen, j)
        frozen[j] = growing < 0.0 and waiting > rule.catching_up_s * arriving
        if not frozen[j]:
            continue
        left_s, more = waiting / -growing, _growth(t, seen, p, level, j)
        outage_s = seen.job[JOB.outage_s, j]
        if not outage_s > 0.0:
            outage_s = t.outage_s[t.row[j], 1]
        # Arrivals of the outage have to be caught up with, too.
        spare = more * (arriving - growing) - arriving
        sooner = spare > 0.0 and outage_s + (waiting + outage_s * arriving) / spare < left_s
        frozen[j] = not (sooner or (left_s > rule.catch_up_s and more > 1.0))
        some = some or frozen[j]
    return some


_frozen = direct(find_frozen)
