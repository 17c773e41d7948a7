"""A bound on the excess of a policy's cost and lateness over its fallback's.

The fallback drives a twin of the job. Two excesses over the twin are counted over a rolling window:
the policy's cost, and its seconds of outage and lateness; savings may pay for lateness. Once the
budget is spent, or does not cover one more rescale, the fallback decides until the window has moved
on. After a burst of lateness alone the policy goes on where the running configuration catches up no
later than a hand-over would, which is a rescale, too.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from dsp_gym.arrays import Bools, Floats, Ints, plain
from dsp_gym.compiling import njit
from dsp_gym.config.model import ConfigModel
from dsp_gym.guardrails.restriction import Restriction, replace
from dsp_gym.guardrails.shadow import Shadows, without_loss
from dsp_gym.guardrails.twin import (
    FALLEN,
    FallbackRuns,
    catch_up_s,
    differs,
    flow,
    follow,
    gets_by,
    imagined,
    money_per_s,
    suits,
)
from dsp_gym.loop.decision import GuardedDecision, ScalingDecision
from dsp_gym.loop.per_job_state import Parts, Per, RowMemory, all_of
from dsp_gym.loop.protocols import Mask, State
from dsp_gym.loop.rates import ds2_rates
from dsp_gym.loop.snapshot import JOB, RUNNING, MetricsSnapshot, SnapshotArrays
from dsp_gym.loop.topology import JobFacts, Topology
from dsp_gym.numba_handles import Handle, direct
from dsp_gym.policies import PolicyConfig
from dsp_gym.sizing.caches import FillingCaches

BUCKETS = 48
"""Parts of the rolling window; old counts drop out part by part."""

BURST_PARTS = 2
"""Parts over which a burst is counted: half an hour to an hour of a window of a day."""


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
    late_price: float | None = Field(
        None,
        gt=0,
        description="price of a late second, in seconds of what the fallback runs: what the policy "
        "saves over the window pays for lateness at this price; none: it pays for none",
    )
    hand_over_s: float | None = Field(
        None,
        gt=0,
        description="how long the fallback decides once the budget is spent, s; then all is "
        "counted from zero; none: until the window has moved on",
    )
    burst_s: float | None = Field(
        None,
        gt=0,
        description="seconds of outage and lateness above the fallback's own, within two of the "
        f"{BUCKETS} parts of the window and still to be caught up with, that spend the budget at "
        "once, whatever was saved; none: any number may be paid for",
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
    late_price: float  # late second in seconds of the fallback's cost; infinite: none
    burst_s: float  # infinite: no bound
    hand_over_s: float  # NaN: until the window has moved on

    @classmethod
    def of(cls, c: ExcessBudgetConfig) -> BudgetRule:
        """Read a configuration.

        Returns:
            Numbers for compiled code.
        """
        return cls(
            c.window_s,
            c.cost_share,
            c.outage_share,
            c.outage_s or np.nan,
            c.late_price or np.inf,
            c.burst_s or np.inf,
            c.hand_over_s or np.nan,
        )


class ExcessCounts(NamedTuple):
    """The excess of J jobs in BUCKETS parts of the window."""

    part: Ints  # (J, BUCKETS) number of the part of time that is counted there
    cost: Floats  # (J, BUCKETS) money above the fallback's
    outage_s: Floats  # (J, BUCKETS) seconds above the fallback's
    saved_s: Floats  # (J, BUCKETS) late seconds that savings pay for


COUNTS: dict[str, tuple[Per, bool | int | float]] = {
    "part": ("job", -1),
    "cost": ("job", 0.0),
    "outage_s": ("job", 0.0),
    "saved_s": ("job", 0.0),
}
"""Fields of `ExcessCounts`, and their first values."""


class BudgetSpent(NamedTuple):
    """Spent shares of the budget, (J,) each."""

    cost: Floats
    outage: Floats
    over: Bools  # the fallback decides

    @classmethod
    def of(cls, jobs: int) -> BudgetSpent:
        """Allocate room for J jobs.

        Returns:
            Arrays that are not filled in yet.
        """
        return cls(np.empty(jobs), np.empty(jobs), np.empty(jobs, bool))


class _Asked(NamedTuple):
    """The decision on a snapshot, for compiled code; configurations (J, V)."""

    taken: Ints
    taken_level: Ints
    spent: BudgetSpent
    suits: Bools  # (J,) the fallback may go on from the running configuration


class ExcessBudget(Restriction):
    """Hand over to the fallback once the policy's excess over it has used up the budget.

    While the fallback decides, and where no decision is enacted, its twin follows the job itself.
    """

    name = "excess_budget"
    kind = "replaced"

    def __init__(
        self, config: ExcessBudgetConfig | None = None, shadows: Shadows | None = None
    ) -> None:
        super().__init__(RowMemory(FALLEN))
        self.config = c = config or ExcessBudgetConfig()
        self.rules = BudgetRule.of(c)
        # Without a bound on bursts a hand-over causes no outage that the load does not require.
        self._dear = np.inf if c.burst_s is None else c.cost_share
        self._shadow = (shadows or Shadows()).of(self.config.policy, self.name)
        self._driver = Shadows().of(self.config.policy, self.name)  # drives the twin
        self._known: tuple[MetricsSnapshot, BudgetSpent] | None = None
        self._counts = RowMemory(COUNTS, depth=BUCKETS)
        self._caches = FillingCaches()
        self._kept = Parts(
            memory=self._memory,
            counts=self._counts,
            policy=self._shadow,
            driver=self._driver,
            caches=self._caches,
        )

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        super().reset(jobs, seeds, mask)
        self._counts.reset(jobs, mask)
        self._caches.reset(jobs, mask)
        self._known = None
        self._shadow.reset(jobs, seeds, mask)
        self._driver.reset(jobs, seeds, mask)

    def spent(self, snapshot: MetricsSnapshot) -> tuple[Floats, Floats]:
        """Return the spent shares of the cost and of the outage budget, (J,) each.

        Outage is spent (1 or more) as soon as the remainder does not cover one rescale.

        Returns:
            Cost and outage as shares of their budgets, 1 for one that is used up.
        """
        spent = self._spent(snapshot)
        return spent.cost, spent.outage

    def tables(self) -> tuple[FallbackRuns, ExcessCounts]:
        """Return the memory for compiled code, the same until `reset` or `restore`.

        Returns:
            The fallback's configuration, and the excess counted.
        """
        return self._memory.arrays(FallbackRuns), self._counts.arrays(ExcessCounts)

    def set_forward(self, seconds: float) -> None:
        """Let the fallback decide as long as before, and count nothing for the leap."""
        for name in ("counted_s", "since_s", "until_s"):
            self._memory[name][...] += seconds

    def decided(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        """Return the configuration where the budget is spent; ask the fallback once per snapshot.

        A job whose configuration does not carry the load, or is dearer than the budget of cost
        allows while its twin's carries it, first gets the configuration of the twin: the fallback
        alone may need many steps from where the policy has left it, or be content to stay there.

        A job whose caches fill after a restart keeps its configuration: the rates that the fallback
        decides by are not yet those of the job, and another restart would empty the caches again.

        Returns:
            Configurations (J, V), with the fallback's reasons.
        """
        decided, own = self._shadow.decided(snapshot), self._memory.arrays(FallbackRuns)
        fallen, share = self._memory.handle(FallbackRuns), self._dear
        handed = (own.handed | ~own.started | suits(snapshot, fallen, share))[:, None]
        filling = self._caches.rows[:, None]
        wanted = ScalingDecision(
            np.where(
                filling,
                snapshot.parallelism,
                np.where(handed, decided.parallelism, own.parallelism),
            ),
            np.where(
                filling, snapshot.memory_level, np.where(handed, decided.memory_level, own.level)
            ),
            decided.reasons,
        )
        return without_loss(snapshot, wanted)

    def know(self, snapshot: MetricsSnapshot, spent: BudgetSpent) -> None:
        """Take over the counts of a snapshot that the compiled pass has added up."""
        self._known = snapshot, spent

    def restrict(self, snapshot: MetricsSnapshot, parallelism: Ints, level: Ints) -> Bools:
        over = self._spent(snapshot).over
        if not over.any():
            return np.zeros(len(snapshot), bool)
        wanted = self.decided(snapshot)
        return replace(snapshot, over, wanted.parallelism, wanted.memory_level, parallelism, level)

    def commit(self, snapshot: MetricsSnapshot, guarded: GuardedDecision) -> None:
        self._caches.observe(snapshot)
        self._shadow.decided(snapshot)  # so that its memory is current when it is needed
        spent, fallen = self._spent(snapshot), self._memory.handle(FallbackRuns)
        taken = plain(guarded.parallelism), plain(guarded.memory_level)
        asked = _Asked(*taken, spent, suits(snapshot, fallen, self._dear))
        counts = self._counts.handle(ExcessCounts)
        facts, seen = snapshot.topology.handle, snapshot.arrays
        _count(facts, seen, ds2_rates(snapshot).block, asked, self.rules, fallen, counts)
        wanted = self._driver.decided(imagined(snapshot, fallen))
        driven = plain(wanted.parallelism), plain(wanted.memory_level)
        # The rates of filling caches would have the fallback rescale its twin as well.
        held = spent.over | self._caches.rows
        _drive(facts, seen, driven, held, self.rules, fallen, counts)
        self._known = None

    def watch(self, snapshot: MetricsSnapshot) -> None:
        self._caches.observe(snapshot)
        self._shadow.decided(snapshot)
        self._driver.decided(snapshot)
        _follow(snapshot.arrays, self._memory.handle(FallbackRuns))
        self._known = None

    def reason(self, snapshot: MetricsSnapshot, job: int) -> str:
        cost, outage, _ = self._spent(snapshot)
        what = "cost" if cost[job] >= 1 else "outage"
        return f"{self._shadow.name} decides: the budget of excess {what} is spent" + (
            f" ({100 * cost[job]:.0f} % of cost, {100 * outage[job]:.0f} % of outage)"
        )

    def memories(self) -> tuple[RowMemory, ...] | None:
        own = self._memory, self._counts, self._caches.memory
        return all_of(own, self._shadow.memories(), self._driver.memories())

    def restore(self, state: State) -> None:
        super().restore(state)
        self._known = None

    @property
    def replacement(self) -> str:
        return self._shadow.name

    def _spent(self, snapshot: MetricsSnapshot) -> BudgetSpent:
        """Return the spent budget, (J,) each; kept until the next `commit`."""
        if self._known is not None and self._known[0] is snapshot:
            return self._known[1]
        spent = BudgetSpent.of(len(snapshot))
        facts, seen = snapshot.topology.facts, snapshot.arrays
        _add_up(facts, seen, self.rules, *self.tables(), spent)
        self._known = snapshot, spent
        return spent

    def replaces(self, snapshot: MetricsSnapshot) -> Bools:
        """Return True for the jobs whose budget is spent, (J,); kept until the next `commit`.

        Returns:
            Flags by job; the same array for a repeated question about one snapshot.
        """
        return self._spent(snapshot).over


@njit(cache=True, nogil=True)
# Given by the configuration, else the last outage seen, else the job file's median.
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
        # Parts are numbered from the start of time; number modulo size is the place in the ring, so
        # a part older than the window shows by its number.
        newest = int(t_s[j] * size / window)
        more = seconds = saved = burst = 0.0
        for b in range(size):
            if newest - size < part[j, b] <= newest:
                more += counted.cost[j, b]
                seconds += counted.outage_s[j, b]
                saved += counted.saved_s[j, b]
            if newest - BURST_PARTS < part[j, b] <= newest:
                burst += counted.outage_s[j, b]
        now = money_per_s(t, j, seen.parallelism, seen.memory_level)
        fallback = now
        if own.started[j]:  # and the time since the last count
            fallback = money_per_s(t, j, own.parallelism, own.level)
            more += (now - fallback) * max(0.0, t_s[j] - own.counted_s[j])
        # Budget of money: a share of the fallback's cost over the whole window. With a free
        # fallback any excess spends it.
        money = budget.cost_share * fallback * window
        spent.cost[j] = more / money if money > 0.0 else (1.0 if more > 0.0 else 0.0)
        rescale = _rescale_s(budget.rescale_s, outage_seen[j], t.outage_s[k, 1])
        allowed = budget.outage_share * window + max(0.0, saved) - rescale
        behind = catch_up_s(t, seen, own, j)  # still to be late
        seconds, burst = seconds + behind, burst + behind
        # The spent share of the budget less one whole rescale; less than one rescale counts as
        # spent.
        whole = max(0.0, seconds) / allowed if allowed > 0.0 else 1.0
        spent.outage[j] = max(whole, burst / budget.burst_s)
        spent.over[j] = spent.cost[j] >= 1.0 or t_s[j] < own.until_s[j]
        if spent.outage[j] >= 1.0 and not spent.over[j]:
            # After a burst the policy may still answer; a spent window is handed over at once.
            spent.over[j] = own.handed[j] or whole >= 1.0 or not gets_by(t, seen, own, j, rescale)
        some = some or spent.over[j]
    return some


@njit(cache=True, nogil=True)
def _part(counted: ExcessCounts, t_s: float, window_s: float, j: int) -> int:
    """Return the part of the window that job j counts into now, emptied if it is a new one."""
    size = counted.part.shape[1]
    newest = int(t_s * size / window_s)
    b = newest % size
    # Counts of a part that has left the window are overwritten when its place comes round again.
    if counted.part[j, b] != newest:
        counted.part[j, b], counted.saved_s[j, b] = newest, 0.0
        counted.cost[j, b], counted.outage_s[j, b] = 0.0, 0.0
    return int(b)


@njit(cache=True, nogil=True)
def _close(
    counted: ExcessCounts, own: FallbackRuns, budget: BudgetRule, t_s: float, j: int
) -> None:
    """Drop the savings of job j, whose budget is spent; of a timed hand-over all counts."""
    timed = not np.isnan(budget.hand_over_s)
    if timed and t_s >= own.until_s[j]:
        own.until_s[j] = t_s + budget.hand_over_s
    for i in range(counted.cost.shape[1]):
        counted.cost[j, i] = 0.0 if timed else max(0.0, counted.cost[j, i])
        counted.outage_s[j, i] *= 0.0 if timed else 1.0
        counted.saved_s[j, i] = 0.0


@direct
@njit(cache=True, nogil=True)
def _count(
    facts: Handle[JobFacts],
    seen: SnapshotArrays,
    rates: Floats,
    asked: _Asked,
    budget: BudgetRule,
    fallen: Handle[FallbackRuns],
    counts: Handle[ExcessCounts],
) -> None:
    """Count how far cost and lateness of job j (job file k) exceed its twin's.

    p and level are the running configuration of vertex v, `own` the twin.
    """
    t, own, counted = facts.arrays, fallen.arrays, counts.arrays
    t_s, latency, outage_seen = (
        seen.job[JOB.t_s],
        seen.job[JOB.latency_p95_s],
        seen.job[JOB.outage_s],
    )
    running, running_level = seen.parallelism, seen.memory_level
    for j in range(running.shape[0]):
        k = t.row[j]
        # The first count: the twin begins as the job runs.
        if not own.started[j]:
            follow(seen, own, j)
        seconds = max(0.0, t_s[j] - own.counted_s[j])
        own.counted_s[j] = t_s[j]
        b = _part(counted, t_s[j], budget.window_s, j)
        fallback = money_per_s(t, j, own.parallelism, own.level)
        more = money_per_s(t, j, running, running_level) - fallback
        # Money above the twin's, and the late seconds it would have paid for: a saving is a
        # negative excess, so `saved_s` rises with it.
        counted.cost[j, b] += seconds * more
        if fallback > 0.0:
            counted.saved_s[j, b] -= seconds * more / fallback / budget.late_price
        other, acts = differs(t, seen, own, j), False
        for v in range(t.n[k]):
            p, level = running[j, v], running_level[j, v]
            acts = acts or asked.taken[j, v] != p or asked.taken_level[j, v] != level
        late_s = flow(t, seen, rates, own, j, seconds)
        # The fallback decides: the twin follows the job, once the job has the configuration it was
        # handed over with, and savings and excesses end.
        if asked.spent.over[j]:
            if seen.status[j] == RUNNING and (own.handed[j] or not other or acts or asked.suits[j]):
                follow(seen, own, j)
                own.handed[j] = True
                own.parallelism[j], own.level[j] = asked.taken[j], asked.taken_level[j]
            _close(counted, own, budget, t_s[j], j)
            continue
        own.handed[j] = False
        # Lateness in a configuration that is not the fallback's counts like an outage.
        if other:
            if seen.status[j] == RUNNING and latency[j] > t.slo_s[k]:
                counted.outage_s[j, b] += seconds
            # What the twin was late itself is not the policy's excess.
            counted.outage_s[j, b] -= late_s
        if acts:
            rescale = _rescale_s(budget.rescale_s, outage_seen[j], t.outage_s[k, 1])
            counted.outage_s[j, b] += rescale


@direct
@njit(cache=True, nogil=True)
def _drive(
    facts: Handle[JobFacts],
    seen: SnapshotArrays,
    driven: tuple[Ints, Ints],
    held: Bools,
    budget: BudgetRule,
    fallen: Handle[FallbackRuns],
    counts: Handle[ExcessCounts],
) -> None:
    """Let the fallback rescale the twin of job j (job file k), at the price of an outage.

    `driven` is its decision on the twin: parallelism and memory level, (J, V) each. Twins of jobs
    that are `held` keep their configuration.
    """
    t, own, counted = facts.arrays, fallen.arrays, counts.arrays
    t_s, outage_seen = seen.job[JOB.t_s], seen.job[JOB.outage_s]
    for j in range(t_s.shape[0]):
        k, anew = t.row[j], False
        if held[j]:
            continue
        for v in range(t.n[k]):
            # The driver's decision becomes the twin's configuration at once.
            p, level = driven[0][j, v], driven[1][j, v]
            anew = anew or p != own.parallelism[j, v] or level != own.level[j, v]
            own.parallelism[j, v], own.level[j, v] = p, level
        if anew:
            rescale = _rescale_s(budget.rescale_s, outage_seen[j], t.outage_s[k, 1])
            # The twin's outage lowers the policy's excess, and its backlog grows meanwhile.
            counted.outage_s[j, _part(counted, t_s[j], budget.window_s, j)] -= rescale
            own.since_s[j] = t_s[j] + rescale
            if not np.isnan(own.offered_per_s[j]):
                own.backlog[j] += own.offered_per_s[j] * rescale


_add_up = direct(add_up)


@direct
@njit(cache=True, nogil=True)
def _follow(seen: SnapshotArrays, fallen: Handle[FallbackRuns]) -> None:
    """Restart twins from the running configurations of all jobs j: no decision was enacted."""
    for j in range(seen.parallelism.shape[0]):
        follow(seen, fallen.arrays, j)
