"""A chain of guardrails on the card: the compiled pass of `dsp_gym.guardrails`, a job per thread.

In simulated snapshots of a metric all vertices are known, or none: no vertex lacks what others
report, so that no last known value ever stands in (`PassRoom.is_even`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import cuda, types

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.envs.cuda.tables import ChosenEnvs
from dsp_gym.errors import ConfigError
from dsp_gym.guardrails import capacity_floor, cool_down, excess_budget, shipped
from dsp_gym.guardrails.capacity_floor import CapacityFloor, Shortage
from dsp_gym.guardrails.chain import PASSES, Chain
from dsp_gym.guardrails.cool_down import LastMoves
from dsp_gym.guardrails.excess_budget import BudgetSpent, ExcessCounts
from dsp_gym.guardrails.shipped import (
    EXCESS_BUDGET,
    PYTHON,
    ChainPass,
    FallbackDecision,
    PassRoom,
    ShippedRules,
)
from dsp_gym.guardrails.twin import FallbackRuns
from dsp_gym.loop.lacking import NEVER, Lacked
from dsp_gym.loop.protocols import Guardrail
from dsp_gym.loop.rates import RATES
from dsp_gym.loop.snapshot import SnapshotArrays
from dsp_gym.loop.topology import JobFacts, Topology
from dsp_gym.policies.capabilities import CompiledModel, Requirement
from dsp_gym.simulation.cuda.device_arrays import (
    DeviceArray,
    DeviceHandle,
    OnCard,
    bytes_of,
    one_per_job,
    shared,
)
from dsp_gym.simulation.cuda.kernels import Kernel, function_of, stand_in
from dsp_gym.simulation.cuda.one_job import copy_of_one, hold, of_card, view_of_one


class GuardTables(NamedTuple):
    """The chain on the card; memories have the job as an additional first axis."""

    order: Ints
    rules: ShippedRules
    moves: LastMoves  # of no jobs where the chain has no cool-down
    short: Shortage  # of no jobs where it has no floor
    fallen: FallbackRuns  # of no jobs, as all tables of the excess budget
    counts: ExcessCounts
    spent: BudgetSpent
    again: Bools  # (guardrails,) another pass is due where it changes a decision
    never: Floats
    every: Bools  # (1,) True


class FirstValues(NamedTuple):
    """The memories of one job that begins."""

    moves: LastMoves
    short: Shortage
    history: tuple[OnCard, ...]  # of the floor's model


class ChainParts(NamedTuple):
    """What a chain consists of, constants in the machine code."""

    guardrails: int
    vertices: int
    has_moves: bool
    model: CompiledModel | None  # of the floor


class DeviceGuards:
    """The chain of an environment on the card.

    Args:
        chain: Guardrails; it is reset.
        topology: The jobs.
        jobs: J.
        known: What the machine code follows from besides.

    Raises:
        ConfigError: A guardrail cannot go there.
    """

    def __init__(self, chain: Chain, topology: Topology, jobs: int, known: object) -> None:
        model = refuse(chain.active)
        self._jobs, self._known = jobs, known
        one = topology.take(np.zeros(1, np.int64))
        chain.reset(one, np.zeros(1, np.int64))
        first = chain.compiled_pass.held((1, topology.max_vertices))
        calling = [chain.guardrails[place] for place in chain.again]
        again = np.array([one in calling for one in chain.active])
        self.tables = DeviceHandle(
            GuardTables(
                DeviceArray.of(first.order),
                shared(first.rules),
                self._of_all(first.moves),
                self._of_all(first.short),
                shared(first.fallen),
                shared(first.counts),
                shared(BudgetSpent.of(1)),
                DeviceArray.of(again),
                DeviceArray.of(NEVER),
                DeviceArray.of(np.ones(1, np.bool_)),
            )
        )
        # The kernels take the same arguments without a floor, and read none of these then.
        nothing = ChosenEnvs(np.zeros(1, np.bool_), np.zeros(1, np.int64))
        history: OnCard = nothing
        self.model = DeviceHandle(shared(nothing))
        self.history = DeviceHandle(shared(nothing))
        if model is not None:
            model.memory.reset(one)
            history = model.memory.arrays(model.table)
            self.model = DeviceHandle(shared(model.rules))
            self.history = DeviceHandle(one_per_job(history, jobs))
        self._first = FirstValues(first.moves, first.short, history)
        self.first = DeviceHandle(shared(self._first))
        self._parts = ChainParts(
            len(chain.active),
            topology.max_vertices,
            len(first.moves.seen) > 0,
            model,
        )

    def _of_all(self, memory: OnCard) -> OnCard:
        """Describe a memory of all jobs; an empty one stays as it is."""
        return one_per_job(memory, self._jobs) if len(memory[0]) else shared(memory)

    @property
    def bytes(self) -> int:
        """Bytes of the memories of all jobs."""
        tables = GuardTables(*self.tables.arrays)
        history = self.history.arrays if self._parts.model is not None else ()
        return bytes_of(tables.moves, tables.short, history)

    def guarding(self, facts: DeviceHandle, seen: DeviceHandle, wanted: DeviceHandle) -> Kernel:
        """Return the kernel that restricts the wanted configurations.

        Returns:
            A kernel of jobs, sight, wanted configurations, chain, model and its history.
        """
        handles = facts, seen, wanted, self.tables, self.model, self.history
        return Kernel(_guarding(self._parts), handles, self._constants)

    def forgetting(self, begun: DeviceHandle) -> Kernel:
        """Return the kernel that resets the memories.

        Returns:
            A kernel of the environments that begin, the chain, the history and first values.
        """
        handles = begun, self.tables, self.history, self.first
        return Kernel(_forgetting(self._first, self._parts), handles, self._constants)

    @property
    def _constants(self) -> tuple[object, ...]:
        """What the machine code follows from, the same in every process.

        The model stands here by the names of its parts: its rules are read on the card, and its
        memory would be written with an address.
        """
        *sizes, model = self._parts
        if model is None:
            return self._known, *sizes, None
        parts = (model.table, model.require, model.observe)
        named = [f"{one.__module__}.{one.__qualname__}" for one in parts]
        return self._known, *sizes, model.offered, *named


def refuse(guardrails: tuple[Guardrail, ...]) -> CompiledModel | None:
    """Refuse what cannot go to the card, by name.

    Args:
        guardrails: Those that step in at all.

    Returns:
        The model of the capacity floor, if there is one.

    Raises:
        ConfigError: A guardrail has no compiled rule, or asks a policy that has none.
    """
    names = [one.name for one in guardrails if shipped.kind_of(one) in (PYTHON, EXCESS_BUDGET)]
    if names:
        one = len(names) == 1
        what = f"guardrail {names[0]} is" if one else f"guardrails {', '.join(names)} are"
        budget = any(shipped.kind_of(one) == EXCESS_BUDGET for one in guardrails)
        why = ": the budget asks its fallback, a whole policy, in every decision" if budget else ""
        raise _refused(f"the {what} not compiled for a GPU{why}")
    floor = next((one for one in guardrails if isinstance(one, CapacityFloor)), None)
    if floor is None:
        return None
    made = floor.compiled_model
    if made is None or not made.offered:
        raise _refused(
            f"the guardrail {floor.name} asks {floor.policy_name}, which is not compiled for a GPU"
            if made is None
            else f"the guardrail {floor.name} needs 'source_rate: offered' on a GPU"
        )
    return made


def _refused(message: str) -> ConfigError:
    return ConfigError(
        message,
        key="guardrails",
        remedy="Take a chain without, such as floor, or device='cpu'.",
    )


def _guarding(parts: ChainParts) -> Callable[..., None]:
    """Build the kernel that restricts decisions, and lets the guardrails watch the snapshot."""
    stand_in(excess_budget.add_up, _never_spent)
    run, count = function_of(shipped._run), parts.guardrails
    facts_of = view_of_one(JobFacts, shared=JobFacts._fields[1:])
    of_jobs = LastMoves._fields if not parts.has_moves else ()
    moves_of = view_of_one(LastMoves, shared=of_jobs)
    short_of = view_of_one(Shortage, shared=() if parts.model else Shortage._fields)
    require, watch = _requiring(parts.model), _watching(parts)
    own, row, flags = (1, parts.vertices), (1,), (count, 1)

    def guard(
        facts: OnCard, seen: OnCard, wanted: OnCard, guards: OnCard, model: OnCard, history: OnCard
    ) -> None:
        j = cuda.grid(1)
        w, e, g = wanted.arrays, seen.arrays, guards.arrays
        if j >= w.answer.shape[0]:
            return
        rows = cuda.local.array(row, types.boolean)
        trips = cuda.local.array(flags, types.boolean)
        lacked = Lacked(
            cuda.local.array(own, types.int64),
            cuda.local.array(own, types.int64),
            cuda.local.array(own, types.int64),
            cuda.local.array(own, types.int64),
            cuda.local.array(own, types.boolean),
            cuda.local.array(own, types.boolean),
            cuda.local.array(own, types.boolean),
        )
        needed = Requirement(
            cuda.local.array(own, types.int64),
            cuda.local.array(own, types.int64),
            cuda.local.array(own, types.int64),
        )
        now = SnapshotArrays(
            e.status[j], e.parallelism[j], e.memory_level[j], e.job[j], e.vertex[j]
        )
        jobs = hold(facts_of(facts.arrays, j))
        moves, short = moves_of(g.moves, j), short_of(g.short, j)
        require(jobs, now, e.rates[j], model, history, needed, g.every, j)
        room = PassRoom(rows, lacked, g.never, True)
        chain = hold(ChainPass(g.order, g.rules, moves, short, g.fallen, g.counts, room))
        nobody = FallbackDecision(now.parallelism, now.memory_level, False)
        decision = (w.parallelism[j], w.level[j])
        for _ in range(PASSES):
            for i in range(count):
                trips[i, 0] = False
            run(jobs, now, chain, 0, needed, nobody, decision, trips, g.spent)
            again = False
            for i in range(count):
                again = again or (g.again[i] and trips[i, 0])
            if not again:
                break
        watch(jobs, now, e.rates[j], history, needed, g.rules, moves, short, j)

    return guard


def _requiring(model: CompiledModel | None) -> OnCard:
    """Build the function that asks the floor's model; without one nothing more is required."""
    if model is None:

        def require_nothing(
            jobs: OnCard,
            now: SnapshotArrays,
            rates: OnCard,
            rules: OnCard,
            history: OnCard,
            needed: Requirement,
            every: OnCard,
            j: int,
        ) -> None:
            for v in range(now.parallelism.shape[1]):
                needed.parallelism[0, v] = needed.horizontal[0, v] = now.parallelism[0, v]
                needed.memory_level[0, v] = now.memory_level[0, v]

        return of_card(require_nothing)
    require, history_of = function_of(model.require), view_of_one(model.table)

    def ask_model(
        jobs: OnCard,
        now: SnapshotArrays,
        rates: OnCard,
        rules: OnCard,
        history: OnCard,
        needed: Requirement,
        every: OnCard,
        j: int,
    ) -> None:
        mine = hold(history_of(history.arrays, j))
        # The rates are those that the observation was made with; the room is not used then.
        require(jobs, now, rates, True, rules.arrays, mine, needed, every, rates[0, 0])

    return of_card(ask_model)


def _watching(parts: ChainParts) -> OnCard:
    """Build the function that lets the guardrails remember the snapshot."""
    made, has_moves = parts.model, parts.has_moves
    observe = function_of(capacity_floor._notice if made is None else made.observe)
    history_of = view_of_one(Shortage if made is None else made.table)
    notice, remember = function_of(capacity_floor._notice), function_of(cool_down._remember)
    rate = RATES.true_rate_per_task

    def watch_model(jobs: OnCard, now: OnCard, rates: OnCard, history: OnCard, j: int) -> None:
        observe(jobs, now, rates[rate], hold(history_of(history.arrays, j)))

    def watch_nothing(jobs: OnCard, now: OnCard, rates: OnCard, history: OnCard, j: int) -> None:
        return

    def notice_shortage(
        jobs: OnCard, now: OnCard, needed: OnCard, rules: OnCard, short: OnCard
    ) -> None:
        notice(jobs, now, needed, rules.floor, hold(short))

    def notice_nothing(
        jobs: OnCard, now: OnCard, needed: OnCard, rules: OnCard, short: OnCard
    ) -> None:
        return

    def remember_moves(jobs: OnCard, now: OnCard, moves: OnCard) -> None:
        remember(jobs, now, hold(moves))

    def remember_nothing(jobs: OnCard, now: OnCard, moves: OnCard) -> None:
        return

    model = of_card(watch_model if made else watch_nothing)
    floor = of_card(notice_shortage if made else notice_nothing)
    cool = of_card(remember_moves if has_moves else remember_nothing)

    def watch(
        jobs: OnCard,
        now: OnCard,
        rates: OnCard,
        history: OnCard,
        needed: OnCard,
        rules: OnCard,
        moves: OnCard,
        short: OnCard,
        j: int,
    ) -> None:
        model(jobs, now, rates, history, j)
        floor(jobs, now, needed, rules, short)
        cool(jobs, now, moves)

    return of_card(watch)


def _forgetting(first: FirstValues, parts: ChainParts) -> Callable[..., None]:
    """Build the kernel that writes first values into the memories of environments that begin."""
    moves = copy_of_one(first.moves if parts.has_moves else ())
    short = copy_of_one(first.short if parts.model else ())
    history = copy_of_one(first.history if parts.model else ())

    def forget(begun: OnCard, guards: OnCard, past: OnCard, values: OnCard) -> None:
        j = cuda.grid(1)
        if j >= begun.arrays.rows.shape[0] or not begun.arrays.rows[j, 0]:
            return
        moves(guards.arrays.moves, values.arrays.moves, j)
        short(guards.arrays.short, values.arrays.short, j)
        history(past.arrays, values.arrays.history, j)

    return forget


def _never_spent(
    t: JobFacts,
    seen: SnapshotArrays,
    budget: OnCard,
    own: FallbackRuns,
    counted: ExcessCounts,
    spent: BudgetSpent,
) -> bool:
    """Stand for `add_up` of the excess budget, which no chain on the card has."""
    return False
