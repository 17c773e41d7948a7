"""A bound on the excess of a policy's cost and lateness over its fallback's.

The fallback runs alongside. What the policy costs above it, and the seconds of outage and lateness
it causes above it, are counted over a rolling window. Once the budget is spent, or does not
cover one more rescale, the fallback decides until the window has moved on.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from dsp_gym.arrays import Bools, Floats, Ints, plain
from dsp_gym.calling import Handle, direct
from dsp_gym.compiling import njit
from dsp_gym.config.model import ConfigModel
from dsp_gym.guardrails.restriction import Restriction, replace
from dsp_gym.guardrails.shadow import Shadows
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.decision import GuardedDecision, ScalingDecision
from dsp_gym.loop.protocols import Mask, State
from dsp_gym.loop.row_memory import Per, RowMemory
from dsp_gym.loop.snapshot import JOB, RUNNING, MetricsSnapshot, SnapshotArrays
from dsp_gym.loop.topology import JobFacts, Topology
from dsp_gym.policies import PolicyConfig

__all__ = [
    "COUNTS",
    "FALLEN",
    "BudgetRule",
    "ExcessCounts",
    "ExcessBudget",
    "ExcessBudgetConfig",
    "FallbackRuns",
    "BudgetSpent",
    "add_up",
]


BUCKETS = 24
"""Parts of the rolling window; what is older than the window drops out part by part."""


class ExcessBudgetConfig(ConfigModel):
    """The budget."""

    kind: Literal["excess_budget"] = Field("excess_budget", description="this guardrail")
    policy: str | PolicyConfig = Field(
        "ds2", description="the fallback: the policy to compare with, which also takes over"
    )
    window_s: float = Field(14400.0, gt=0, description="rolling window, s")
    cost_share: float = Field(
        0.05, ge=0, description="cost above the fallback's own, share of its cost over the window"
    )
    outage_share: float = Field(
        0.01,
        ge=0,
        description="seconds of outage and lateness above the fallback's own, share of the window",
    )
    outage_s: float | None = Field(
        None,
        gt=0,
        description="seconds counted for one rescale; none: the last outage observed, before the "
        "first one the median of the job file",
    )


class BudgetRule(NamedTuple):
    """The configuration for compiled code."""

    window_s: float
    cost_share: float
    outage_share: float
    rescale_s: float  # seconds counted for one rescale; NaN: as observed

    @classmethod
    def of(cls, c: ExcessBudgetConfig) -> BudgetRule:
        """Reads a configuration.

        Returns:
            Numbers for compiled code.
        """
        return cls(c.window_s, c.cost_share, c.outage_share, c.outage_s or np.nan)


class FallbackRuns(NamedTuple):
    """What the fallback would run, and since when it is counted; J jobs of V vertices."""

    started: Bools  # (J,)
    counted_s: Floats  # (J,) time of the last count
    credited_s: Floats  # (J,) time of the fallback's last rescale, had it decided
    parallelism: Ints  # (J, V) of the fallback
    level: Ints  # (J, V) of the fallback


class ExcessCounts(NamedTuple):
    """The excess of J jobs in BUCKETS parts of the window."""

    part: Ints  # (J, BUCKETS) which part of time is counted there
    cost: Floats  # (J, BUCKETS) money above the fallback's
    outage_s: Floats  # (J, BUCKETS) seconds above the fallback's


FALLEN: dict[str, tuple[Per, bool | int | float]] = {
    "started": ("job", False),
    "counted_s": ("job", 0.0),
    "credited_s": ("job", -1e18),
    "parallelism": ("vertex", 0),
    "level": ("vertex", -1),
}
"""What `FallbackRuns` holds, and its first values."""

COUNTS: dict[str, tuple[Per, bool | int | float]] = {
    "part": ("job", -1),
    "cost": ("job", 0.0),
    "outage_s": ("job", 0.0),
}
"""What `ExcessCounts` holds, and its first values."""


class _Asked(NamedTuple):
    """What was decided on a snapshot, for compiled code; configurations (J, V)."""

    taken: Ints
    taken_level: Ints
    wanted: Ints  # by the fallback
    wanted_level: Ints
    needed: Ints  # by the fallback's model
    over: Bools  # (J,) the budget is spent


class BudgetSpent(NamedTuple):
    """Shares of the budget that are spent, (J,) each."""

    cost: Floats
    outage: Floats
    over: Bools  # one of them is used up

    @classmethod
    def of(cls, jobs: int) -> BudgetSpent:
        """Room for J jobs.

        Returns:
            Arrays that are not filled in yet.
        """
        return cls(np.empty(jobs), np.empty(jobs), np.empty(jobs, bool))


class ExcessBudget(Restriction):
    """Hands over to the fallback once the policy's excess over it has used up the budget.

    The guardrail keeps the configuration that the fallback would run: it follows the fallback's
    decisions and, while the fallback holds the running configuration, stays between that and its
    need.
    """

    name = "excess_budget"
    kind = "replaced"

    def __init__(
        self, config: ExcessBudgetConfig | None = None, shadows: Shadows | None = None
    ) -> None:
        super().__init__(RowMemory(FALLEN))
        self.config = c = config or ExcessBudgetConfig()
        self.rules = BudgetRule.of(c)
        self._shadow = (shadows or Shadows()).of(self.config.policy, self.name)
        self._known: tuple[MetricsSnapshot, BudgetSpent] | None = None
        self._counts = RowMemory(COUNTS, depth=BUCKETS)

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        super().reset(jobs, seeds, mask)
        self._counts.reset(jobs, mask)
        self._known = None
        self._shadow.reset(jobs, seeds, mask)

    def spent(self, snapshot: MetricsSnapshot) -> tuple[Floats, Floats]:
        """Share of the cost and of the outage budget that is spent, (J,) each.

        Outage is spent (1 or more) as soon as what is left does not cover one rescale.

        Returns:
            Cost and outage as shares of their budgets, 1 for one that is used up.
        """
        spent = self._spent(snapshot)
        return spent.cost, spent.outage

    def tables(self) -> tuple[FallbackRuns, ExcessCounts]:
        """The memory for compiled code, the same until `reset` or `restore`.

        Returns:
            The fallback's configuration, and the excess counted.
        """
        return self._memory.arrays(FallbackRuns), self._counts.arrays(ExcessCounts)

    def decided(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        """What the fallback decides, asked once for each snapshot.

        Returns:
            Its decision on all J jobs.
        """
        return self._shadow.decided(snapshot)

    def know(self, snapshot: MetricsSnapshot, spent: BudgetSpent) -> None:
        """Take over what was found out about a snapshot elsewhere."""
        self._known = snapshot, spent

    def restrict(self, snapshot: MetricsSnapshot, parallelism: Ints, level: Ints) -> Bools:
        over = self.replaces(snapshot)
        if not over.any():
            return np.zeros_like(over)
        wanted = self._shadow.decided(snapshot)
        return replace(snapshot, over, wanted.parallelism, wanted.memory_level, parallelism, level)

    def commit(self, snapshot: MetricsSnapshot, guarded: GuardedDecision) -> None:
        over = self.replaces(snapshot)
        wanted = self._shadow.decided(snapshot)
        required = self._shadow.required(snapshot)
        needed = snapshot.parallelism if required is None else required.parallelism
        asked = _Asked(
            plain(guarded.parallelism),
            plain(guarded.memory_level),
            plain(wanted.parallelism),
            plain(wanted.memory_level),
            plain(needed),
            over,
        )
        fallen, counts = self._memory.handle(FallbackRuns), self._counts.handle(ExcessCounts)
        _count(snapshot.topology.handle, snapshot.arrays, asked, self.rules, fallen, counts)
        self._known = None

    def watch(self, snapshot: MetricsSnapshot) -> None:
        self._shadow.decided(snapshot)  # so that its memory is current when it is needed
        _follow(snapshot.arrays, self._memory.handle(FallbackRuns))
        self._known = None

    def reason(self, snapshot: MetricsSnapshot, job: int) -> str:
        cost, outage = self.spent(snapshot)
        what = "cost" if cost[job] >= 1 else "outage"
        return f"{self._shadow.name} decides: the budget of excess {what} is spent" + (
            f" ({100 * cost[job]:.0f} % of cost, {100 * outage[job]:.0f} % of outage)"
        )

    def state(self) -> State:
        return {
            "memory": self._memory.state(),
            "counts": self._counts.state(),
            "policy": self._shadow.state(),
        }

    def restore(self, state: State) -> None:
        self._memory.restore(state["memory"])
        self._counts.restore(state["counts"])
        self._known = None
        self._shadow.restore(state["policy"])

    @property
    def replacement(self) -> str:
        return self._shadow.name

    def _spent(self, snapshot: MetricsSnapshot) -> BudgetSpent:
        """What is spent of the budget; kept until the next `commit`."""
        if self._known is not None and self._known[0] is snapshot:
            return self._known[1]
        spent = BudgetSpent.of(len(snapshot))
        facts, seen = snapshot.topology.facts, snapshot.arrays
        _add_up(facts, seen, self.rules, *self.tables(), spent)
        self._known = snapshot, spent
        return spent

    def replaces(self, snapshot: MetricsSnapshot) -> Bools:
        """True for the jobs whose budget is spent, (J,); kept until the next `commit`.

        Returns:
            Flags by job; the same array for a repeated question about one snapshot.
        """
        return self._spent(snapshot).over


@njit(cache=True, nogil=True)
def _money_per_s(t: JobFacts, j: int, p: Ints, level: Ints) -> float:
    """Money per second of a configuration of job j, sources left out (`dsp_gym.job.cost`)."""
    k = t.row[j]
    cores = mib = 0.0
    for v in range(p.shape[1]):
        if t.kind[k, v] > SOURCE:
            cores += p[j, v]
            mib += p[j, v] * t.subtask_mib[k, level[j, v] + 1]
    return float((cores * t.core_hour[k] + mib / 1024.0 * t.gib_hour[k]) / 3600.0)


@njit(cache=True, nogil=True)
def _rescale_s(given: float, seen: float, median: float) -> float:
    if not np.isnan(given):
        return given
    return seen if seen > 0.0 else median


@njit(cache=True, nogil=True, borrows=True)
def add_up(
    t: JobFacts,
    seen: SnapshotArrays,
    budget: BudgetRule,
    own: FallbackRuns,
    counted: ExcessCounts,
    spent: BudgetSpent,
) -> bool:
    """Add up the parts b of the window of every job j (job file k).

    Returns:
        Whether there is a job whose budget is spent.
    """
    some = False
    t_s, outage_seen = seen.job[JOB.t_s], seen.job[JOB.outage_s]
    window, part = budget.window_s, counted.part
    size = part.shape[1]
    for j in range(t_s.shape[0]):
        k = t.row[j]
        newest = int(t_s[j] * size / window)
        more, seconds = 0.0, 0.0
        for b in range(size):
            if newest - size < part[j, b] <= newest:
                more += counted.cost[j, b]
                seconds += counted.outage_s[j, b]
        now = _money_per_s(t, j, seen.parallelism, seen.memory_level)
        fallback = now
        if own.started[j]:  # and what has run since the last count
            fallback = _money_per_s(t, j, own.parallelism, own.level)
            more += (now - fallback) * max(0.0, t_s[j] - own.counted_s[j])
        money = budget.cost_share * fallback * window
        spent.cost[j] = more / money if money > 0.0 else (1.0 if more > 0.0 else 0.0)
        rescale = _rescale_s(budget.rescale_s, outage_seen[j], t.outage_s[k, 1])
        allowed = budget.outage_share * window - rescale
        # A share of the budget less one whole rescale; a budget below one rescale is spent.
        spent.outage[j] = max(0.0, seconds) / allowed if allowed > 0.0 else 1.0
        spent.over[j] = spent.cost[j] >= 1.0 or spent.outage[j] >= 1.0
        some = some or spent.over[j]
    return some


@direct
@njit(cache=True, nogil=True)
def _count(
    facts: Handle[JobFacts],
    seen: SnapshotArrays,
    asked: _Asked,
    budget: BudgetRule,
    fallen: Handle[FallbackRuns],
    counts: Handle[ExcessCounts],
) -> None:
    """Count what job j (job file k) costs above its fallback into the newest part b of the window.

    p and level are the running configuration of vertex v, `own` that of the fallback.
    """
    t, own, counted = facts.arrays, fallen.arrays, counts.arrays
    t_s, latency = seen.job[JOB.t_s], seen.job[JOB.latency_p95_s]
    outage_seen, fill = seen.job[JOB.outage_s], seen.job[JOB.window_fill]
    running, running_level = seen.parallelism, seen.memory_level
    own_p, own_level = own.parallelism, own.level
    wanted, wanted_level = asked.wanted, asked.wanted_level
    part, late = counted.part, counted.outage_s
    size = part.shape[1]
    for j in range(running.shape[0]):
        k = t.row[j]
        if not own.started[j]:
            own.started[j] = True
            own.counted_s[j] = t_s[j]
            for v in range(running.shape[1]):
                own_p[j, v], own_level[j, v] = running[j, v], running_level[j, v]
        seconds = max(0.0, t_s[j] - own.counted_s[j])
        own.counted_s[j] = t_s[j]
        newest = int(t_s[j] * size / budget.window_s)
        b = newest % size
        if part[j, b] != newest:
            part[j, b], counted.cost[j, b], late[j, b] = newest, 0.0, 0.0
        counted.cost[j, b] += seconds * (
            _money_per_s(t, j, running, running_level) - _money_per_s(t, j, own_p, own_level)
        )
        differs = acts = asks = anew = False
        for v in range(t.n[k]):
            p, level = running[j, v], running_level[j, v]
            differs = differs or p != own_p[j, v] or level != own_level[j, v]
            acts = acts or asked.taken[j, v] != p or asked.taken_level[j, v] != level
            asks = asks or wanted[j, v] != p or wanted_level[j, v] != level
            anew = anew or wanted[j, v] != own_p[j, v] or wanted_level[j, v] != own_level[j, v]
        # Late in a configuration that is not the fallback's: counted like an outage.
        if differs and seen.status[j] == RUNNING and latency[j] > t.slo_s[k]:
            late[j, b] += seconds
        rescale = _rescale_s(budget.rescale_s, outage_seen[j], t.outage_s[k, 1])
        if acts:
            late[j, b] += rescale
        # The fallback could not rescale again before its metrics window had filled anew.
        rested = rescale + seen.job[JOB.window_s, j]
        may = asked.over[j] or t_s[j] - own.credited_s[j] >= rested
        if asks and anew and may:
            late[j, b] -= rescale
            own.credited_s[j] = t_s[j]
        for v in range(t.n[k]):
            if asked.over[j] or (asks and may):
                own_p[j, v], own_level[j, v] = wanted[j, v], wanted_level[j, v]
            elif not asks and seen.status[j] == RUNNING and fill[j] >= 1.0 - 1e-9:
                least = min(asked.needed[j, v], running[j, v])
                most = max(asked.needed[j, v], running[j, v])
                own_p[j, v] = min(max(own_p[j, v], least), most)


_add_up = direct(add_up)


@direct
@njit(cache=True, nogil=True)
def _follow(seen: SnapshotArrays, fallen: Handle[FallbackRuns]) -> None:
    """Begin anew from the running configuration of every job j: nobody's decision was enacted."""
    own, t_s = fallen.arrays, seen.job[JOB.t_s]
    for j in range(seen.parallelism.shape[0]):
        own.started[j] = True
        own.counted_s[j] = t_s[j]
        for v in range(seen.parallelism.shape[1]):
            own.parallelism[j, v] = seen.parallelism[j, v]
            own.level[j, v] = seen.memory_level[j, v]
