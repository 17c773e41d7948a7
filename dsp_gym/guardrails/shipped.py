"""The shipped guardrails of a chain in one compiled pass.

Each guardrail's rule stands in its own module; here the functions are called one after the other. A
guardrail of another distribution, or one that needs another's answer in Python, takes its turn
between them: the pass stops there and continues after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar, cast

import numpy as np

from dsp_gym.arrays import Bools, Floats, Ints, plain
from dsp_gym.compiling import njit
from dsp_gym.guardrails.bounds_and_quota import BoundsAndQuota, VertexBounds, bound
from dsp_gym.guardrails.capacity_floor import (
    SHORT,
    CapacityFloor,
    CapacityFloorConfig,
    FloorRule,
    Shortage,
    lift,
)
from dsp_gym.guardrails.cool_down import MOVES, CoolDown, LastMoves, RestPeriods, rest
from dsp_gym.guardrails.excess_budget import (
    BUCKETS,
    COUNTS,
    BudgetRule,
    BudgetSpent,
    ExcessBudget,
    ExcessBudgetConfig,
    ExcessCounts,
    add_up,
)
from dsp_gym.guardrails.freeze import Freeze, FreezeRule, can_weigh, find_frozen
from dsp_gym.guardrails.restriction import Restriction, Working, replace_rows
from dsp_gym.guardrails.stale_metrics import (
    NeededMetrics,
    StaleMetrics,
    find_stale,
    hold_unreported,
)
from dsp_gym.guardrails.step_limit import StepLimit, StepLimits, limit
from dsp_gym.guardrails.twin import FALLEN, FallbackRuns
from dsp_gym.loop.lacking import NEVER, Lacked
from dsp_gym.loop.per_job_state import RowMemory
from dsp_gym.loop.protocols import Guardrail
from dsp_gym.loop.snapshot import MetricsSnapshot, SnapshotArrays
from dsp_gym.loop.topology import JobFacts
from dsp_gym.numba_handles import Handle, Handles, direct
from dsp_gym.policies.capabilities import Requirement

T = TypeVar("T", bound=Restriction)

PYTHON, STEP_LIMIT, COOL_DOWN, CAPACITY_FLOOR, EXCESS_BUDGET, STALE_METRICS, FREEZE, BOUNDS = range(
    8
)
"""Kinds of guardrails at a position of the chain."""

COMPILED: dict[Callable[..., Bools], int] = {
    StepLimit.restrict: STEP_LIMIT,
    CoolDown.restrict: COOL_DOWN,
    CapacityFloor.restrict: CAPACITY_FLOOR,
    ExcessBudget.restrict: EXCESS_BUDGET,
    StaleMetrics.restrict: STALE_METRICS,
    Freeze.restrict: FREEZE,
    BoundsAndQuota.restrict: BOUNDS,
}
"""Kind by `restrict` method: a subclass that overrides it runs in Python."""


class ShippedRules(NamedTuple):
    """Configurations of all shipped guardrails; those that are not in the chain have defaults."""

    limits: StepLimits
    rests: RestPeriods
    floor: FloorRule
    budget: BudgetRule
    needed: NeededMetrics
    catch_up: FreezeRule
    bounds: VertexBounds


class PassRoom(NamedTuple):
    """Room for a pass, which allocates nothing; at least J jobs of V vertices."""

    rows: Bools  # (J,)
    lacked: Lacked  # (J, V)
    never: Floats  # `NEVER`
    is_even: bool  # of a metric all vertices or none are known, so that none lacks it

    @classmethod
    def of(cls, shape: tuple[int, ...]) -> PassRoom:
        """Allocate room for J jobs of V vertices.

        Returns:
            Room for snapshots of any kind.
        """
        return cls(np.zeros(shape[0], np.bool_), Lacked.room(shape), NEVER, False)


class ChainPass(NamedTuple):
    """The constant argument of a pass: it stays from one decision to the next."""

    order: Ints  # kind at each position of the chain
    rules: ShippedRules
    moves: LastMoves
    short: Shortage
    fallen: FallbackRuns
    counts: ExcessCounts
    room: PassRoom


class FallbackDecision(NamedTuple):
    """The decision of the excess budget's fallback, (J, V)."""

    parallelism: Ints
    memory_level: Ints
    known: bool  # False: not asked for yet, and the pass stops where it is needed


class ShippedPass:
    """A runner of the shipped guardrails of a chain.

    Args:
        guardrails: the chain, in order.
    """

    def __init__(self, guardrails: Sequence[Guardrail]) -> None:
        self._guardrails = tuple(guardrails)
        self.order = np.array([kind_of(guardrail) for guardrail in guardrails], np.int64)
        self._floor = self._find(CapacityFloor, CAPACITY_FLOOR)
        self._budget = self._find(ExcessBudget, EXCESS_BUDGET)
        self._cool_down = self._find(CoolDown, COOL_DOWN)
        self.rules = ShippedRules(
            (self._find(StepLimit, STEP_LIMIT) or StepLimit()).rules,
            (self._cool_down or CoolDown()).rules,
            FloorRule.of(CapacityFloorConfig()) if self._floor is None else self._floor.rules,
            BudgetRule.of(ExcessBudgetConfig()) if self._budget is None else self._budget.rules,
            (self._find(StaleMetrics, STALE_METRICS) or StaleMetrics()).rules,
            (self._find(Freeze, FREEZE) or Freeze()).rules,
            (self._find(BoundsAndQuota, BOUNDS) or BoundsAndQuota()).rules,
        )
        # Compiled code has one signature: guardrails that are absent get empty tables of the same
        # types, so that numba compiles `_run` once.
        self._no_moves = RowMemory.of_none(MOVES).arrays(LastMoves)
        self._none_short = RowMemory.of_none(SHORT).arrays(Shortage)
        self._nothing_counted = (
            RowMemory.of_none(FALLEN).arrays(FallbackRuns),
            RowMemory.of_none(COUNTS, BUCKETS).arrays(ExcessCounts),
        )
        self._nothing_spent = BudgetSpent.of(0)
        self._memory: tuple[LastMoves, Shortage, FallbackRuns, ExcessCounts] | None = None
        self._room, self._handles = PassRoom.of((0, 0)), Handles()

    def run(
        self,
        snapshot: MetricsSnapshot,
        parallelism: Ints,
        level: Ints,
        otherwise: Callable[[Guardrail], Bools],
    ) -> tuple[Bools, bool]:
        """Restrict a decision by every guardrail once.

        Args:
            snapshot: the observed metrics.
            parallelism: (J, V) the working copy, changed in place.
            level: (J, V) likewise.
            otherwise: runs a guardrail that is not compiled on the working copy, and flags the jobs
                it changed.

        Returns:
            (guardrails, J) flags, True where the decision was changed; and whether any is set.
        """
        seen, facts, held = (
            snapshot.arrays,
            snapshot.topology.handle,
            self._handle(parallelism.shape),
        )
        jobs = len(parallelism)
        trips = np.zeros((len(self._guardrails), jobs), np.bool_)
        spent = self._nothing_spent if self._budget is None else BudgetSpent.of(jobs)
        work = parallelism, level
        wanted = FallbackDecision(seen.parallelism, seen.memory_level, False)
        required = (
            Requirement(seen.parallelism, seen.memory_level, seen.parallelism)
            if self._floor is None
            else self._floor.required(snapshot)
        )
        position, changed = 0, False
        # Each turn runs compiled guardrails up to one that needs Python, which then takes its turn;
        # a spent budget stops there twice, the second time with the fallback's decision.
        while True:
            position, some = _run(facts, seen, held, position, required, wanted, work, trips, spent)
            changed = changed or some
            if position == len(self._guardrails):
                break
            guardrail = self._guardrails[position]
            if guardrail is self._budget:
                decided = self._budget.decided(snapshot)
                wanted = FallbackDecision(
                    plain(decided.parallelism), plain(decided.memory_level), True
                )
            else:
                trips[position] = otherwise(guardrail)
                changed = changed or bool(trips[position].any())
                position += 1
        if self._budget is not None:
            self._budget.know(snapshot, spent)
        return trips, changed

    def held(self, shape: tuple[int, ...]) -> ChainPass:
        """Return configurations, memory and room (J, V); of guardrails that are absent, of no jobs.

        Returns:
            The tables of the pass, the same until `reset` or `restore`.
        """
        return self._handle(shape).arrays

    def _handle(self, shape: tuple[int, ...]) -> Handle[ChainPass]:
        """Return configurations, memory and room (J, V) for compiled code."""
        moves = self._no_moves if self._cool_down is None else self._cool_down.table()
        short = self._none_short if self._floor is None else self._floor.table()
        fallen, counts = self._nothing_counted if self._budget is None else self._budget.tables()
        # Tables change only at `reset` and `restore`: identity shows whether the handle still
        # holds.
        held, known = (moves, short, fallen, counts), self._memory
        if known is None or any(a is not b for a, b in zip(known, held, strict=True)):
            self._memory, self._handles = held, Handles()
        had = self._room.lacked.holder.shape
        if had[0] < shape[0] or had[1] < shape[1]:
            self._room = PassRoom.of((max(had[0], shape[0]), max(had[1], shape[1])))
            self._handles = Handles()
        order, rules, room = self.order, self.rules, self._room
        return self._handles.of("pass", lambda: ChainPass(order, rules, *held, room))

    def _find(self, kind: type[T], step: int) -> T | None:
        """Return the guardrail of a kind that the pass runs; None where there is none."""
        places = np.flatnonzero(self.order == step)
        return cast(T, self._guardrails[places[0]]) if len(places) else None


def kind_of(guardrail: Guardrail) -> int:
    """Return the kind of a guardrail at its position."""
    if isinstance(guardrail, StaleMetrics) and guardrail.config.action == "fallback":
        return PYTHON  # the fallback asks it
    restrict = getattr(type(guardrail), "restrict", None)
    return COMPILED.get(restrict, PYTHON) if restrict is not None else PYTHON


@direct
@njit(cache=True, nogil=True)
def _run(
    facts: Handle[JobFacts],
    seen: SnapshotArrays,
    held: Handle[ChainPass],
    first: int,
    required: Requirement,
    wanted: FallbackDecision,
    decision: tuple[Ints, Ints],
    trips: Bools,
    spent: BudgetSpent,
) -> tuple[int, bool]:
    """Run the guardrails from a position on, until one needs Python.

    Args:
        facts: the jobs.
        seen: the snapshot.
        held: the chain.
        first: position of the first guardrail to run.
        required: requirement of the capacity floor's model.
        wanted: decision of the excess budget's fallback.
        decision: parallelism and memory level, changed in place.
        trips: (guardrails, J), set where a guardrail changed a job.
        spent: spent shares of the excess budget, filled where there is one.

    Returns:
        The position that needs Python, or the number of guardrails; and whether one changed a job.
    """
    chain, t = held.arrays, facts.arrays
    rules, room = chain.rules, chain.room
    rows = room.rows[: trips.shape[1]]
    some = False
    # A chain of `if` on a number in place of a list of functions: numba has no list of functions of
    # different signatures, and a branch costs nothing beside a rule.
    for position in range(first, len(chain.order)):
        step = chain.order[position]
        work = Working(decision[0], decision[1], trips[position])
        if step == STEP_LIMIT:
            limit(t, seen, rules.limits, required.horizontal, rules.floor.margin, work)
        elif step == COOL_DOWN:
            rest(t, seen, rules.rests, chain.moves, work)
        elif step == CAPACITY_FLOOR:
            lift(t, seen, required, rules.floor, chain.short, work)
        elif step == EXCESS_BUDGET:
            if add_up(t, seen, rules.budget, chain.fallen, chain.counts, spent):
                if not wanted.known:
                    return position, some
                replace_rows(t, spent.over, wanted.parallelism, wanted.memory_level, work)
        elif step == STALE_METRICS:
            if find_stale(t, seen, rules.needed, rows):
                replace_rows(t, rows, seen.parallelism, seen.memory_level, work)
            hold_unreported(t, seen, rules.needed, rows, work, room.never, room.lacked)
        elif step == FREEZE:
            if not (room.is_even or can_weigh(t, seen, rules.catch_up, room.never)):
                return position, some  # it takes last known values
            if find_frozen(t, seen, seen, rules.catch_up, *decision, rows):
                replace_rows(t, rows, seen.parallelism, seen.memory_level, work)
        elif step == BOUNDS:
            bound(t, seen, rules.bounds, work)
        else:
            return position, some
        for j in range(rows.shape[0]):
            some = some or work.trips[j]
    return len(chain.order), some
