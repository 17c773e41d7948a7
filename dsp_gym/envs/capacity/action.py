"""The action: hold, or the cheapest configuration that carries kappa times the present load.

Every vertex takes the cheapest of its choices of tasks and memory level that carries its share,
according to the service model. A backlog counts as load, spread over half an hour.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.envs.capacity.load_history import CourseMemory
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.snapshot import JOB, RUNNING, SnapshotArrays
from dsp_gym.loop.topology import JobFacts
from dsp_gym.numba_handles import Handle, direct
from dsp_gym.sizing.arrivals import BLIND_S
from dsp_gym.sizing.frontier import subtask_cost_per_s
from dsp_gym.sizing.service import Believed, believed, carried_per_s, crowd

HOLD = 0
KAPPAS = (1.0, 1.07, 1.15, 1.25, 1.38, 1.55, 1.8, 2.1, 2.45, 2.8)
CHOICES = 1 + len(KAPPAS)

ENOUGH_FILL = 0.2
"""Least covered share of the metrics window with which a job is re-targeted."""

READY, DOWN, BLIND, FILLING, UNCOUNTED, UNSEEN, SETTLED = range(7)
"""Obstacles to re-targeting a job.

READY: none. DOWN: it is down. BLIND: its load was not measured for ten minutes. FILLING: its
metrics window has just begun. UNCOUNTED: no load was counted. UNSEEN: a vertex was never busy.
SETTLED: every multiple leads to the running configuration.
"""

_CATCH_UP_S = 1800.0
"""Seconds in which a configuration should work off the backlog."""

_SAME = 1.0 - 1e-9
"""Rounding allowed where a choice carries exactly a load."""

_ROUNDING = 1e-9
"""Ratio, as a logarithm, by which a choice has to be nearer than a cheaper one."""

_KAPPAS = np.array(KAPPAS)


class CapacityTargets(NamedTuple):
    """Configurations of the choices; a choice that is not valid is never taken."""

    parallelism: Ints  # (J, kappas, V)
    level: Ints  # (J, kappas, V)
    cost: Floats  # (J, kappas) in the unit of `unit_cost`, sources left out
    valid: Bools  # (J, 1 + kappas) holding comes first, and is always valid
    obstacle: Ints  # (J,) READY, or the obstacle to all but holding

    @classmethod
    def room(cls, jobs: int, vertices: int) -> CapacityTargets:
        """Allocate targets that are not filled in yet.

        Returns:
            Room for J jobs of V vertices.
        """
        shape = (jobs, len(KAPPAS), vertices)
        valid = np.zeros((jobs, CHOICES), dtype=bool)
        valid[:, HOLD] = True
        return cls(
            np.ones(shape, np.int64),
            np.full(shape, -1, np.int64),
            np.zeros(shape[:2]),
            valid,
            np.full(jobs, UNCOUNTED, np.int64),
        )

    def copied(self) -> CapacityTargets:
        """Copy the targets into other arrays.

        Returns:
            A copy.
        """
        return CapacityTargets(
            self.parallelism.copy(),
            self.level.copy(),
            # The arrays are written in place at every look; kept targets must not change.
            self.cost.copy(),
            self.valid.copy(),
            self.obstacle.copy(),
        )


class AimRoom(NamedTuple):
    """Scratch of `aim`, (kappas,), one per thread."""

    wanted: Floats  # load of each multiple that a vertex must carry alone
    reached: Bools  # whether every vertex carries it
    cost: Floats  # of the cheapest choice of a vertex

    @classmethod
    def of(cls) -> AimRoom:
        """Allocate the scratch of a thread.

        Returns:
            Arrays with undefined content.
        """
        count = len(KAPPAS)
        return cls(np.empty(count), np.empty(count, np.bool_), np.empty(count))


@njit(cache=True, nogil=True)
def unit_cost(t: JobFacts, k: int, column: int) -> float:
    """Return the cost of a subtask at memory level `column` - 1; 1 where the job has no prices.

    Returns:
        Money per second, or tasks.
    """
    cost = subtask_cost_per_s(t, k, column)
    return cost if cost > 0.0 else 1.0


@njit(cache=True, nogil=True)
def aim(
    t: JobFacts,
    seen: SnapshotArrays,
    known: Believed,
    load: CourseMemory,
    j: int,
    to: CapacityTargets,
    room: AimRoom,
) -> None:
    """Fill in the targets of job j (job file k): v a vertex, i a multiple, p its tasks."""
    k, multiples, vertices = t.row[j], to.cost.shape[1], to.parallelism.shape[2]
    present = load.course.present_per_s[j]
    to.obstacle[j] = _obstacle(seen, load, j)
    able = to.obstacle[j] == READY
    backlog = load.course.backlog[j]
    # `crowd` is the speed of a full TaskManager: what a vertex must carry alone is larger by it.
    slow = crowd(known.contention[k], known.slots[k])
    for i in range(multiples):
        room.wanted[i] = (_KAPPAS[i] * present + backlog / _CATCH_UP_S) / slow
        room.reached[i] = True
    if able:
        for i in range(multiples):
            to.cost[j, i] = 0.0
        for v in range(vertices):
            if v < t.n[k] and t.kind[k, v] != SOURCE:
                able = able and _choose(t, known, (j, v), room, to)
            else:
                for i in range(multiples):
                    _keep(seen, j, i, v, to)
        if not able:
            to.obstacle[j] = UNSEEN
    if not able:  # every multiple leads to the same as holding
        running = running_cost(t, seen, j)
        for i in range(multiples):
            to.cost[j, i] = running
            for v in range(vertices):
                _keep(seen, j, i, v, to)
    to.valid[j, HOLD] = True
    settled = True
    for i in range(multiples):
        # Beyond the first multiple out of reach, all lead to the largest configuration.
        allowed = able and (i == 0 or room.reached[i - 1])
        to.valid[j, 1 + i] = allowed and _changes(t.n[k], seen, j, i, to)
        settled = settled and not to.valid[j, 1 + i]
    if able and settled:
        to.obstacle[j] = SETTLED


@njit(cache=True, nogil=True)
def _keep(seen: SnapshotArrays, j: int, i: int, v: int, to: CapacityTargets) -> None:
    """Let a multiple keep the running configuration of a vertex."""
    to.parallelism[j, i, v] = seen.parallelism[j, v]
    to.level[j, i, v] = seen.memory_level[j, v]


@njit(cache=True, nogil=True)
def _obstacle(seen: SnapshotArrays, load: CourseMemory, j: int) -> int:
    """Return the obstacle to re-targeting job j, before any target is known.

    Returns:
        READY, DOWN, BLIND, FILLING or UNCOUNTED.
    """
    # The first obstacle that applies; NaN compares as False.
    if seen.status[j] != RUNNING:
        return DOWN
    if load.course.blind_s[j] > BLIND_S:
        return BLIND
    if not seen.job[JOB.window_fill, j] >= ENOUGH_FILL:  # NaN is not enough
        return FILLING
    return READY if load.course.present_per_s[j] > 0.0 else UNCOUNTED


@njit(cache=True, nogil=True)
def running_cost(t: JobFacts, seen: SnapshotArrays, j: int) -> float:
    """Return the cost of the running configuration, sources left out.

    Returns:
        In the unit of `unit_cost`.
    """
    k, total = t.row[j], 0.0
    for v in range(t.n[k]):
        if t.kind[k, v] != SOURCE:
            total += seen.parallelism[j, v] * unit_cost(t, k, seen.memory_level[j, v] + 1)
    return total


@njit(cache=True, nogil=True)
def _choose(
    t: JobFacts,
    known: Believed,
    place: tuple[int, int],
    room: AimRoom,
    to: CapacityTargets,
) -> bool:
    """Find the cheapest choice of a vertex for each wanted load; False if it was not seen yet."""
    j, v = place
    wanted, reached, cost = room.wanted, room.reached, room.cost
    k = t.row[j]
    low, high = t.min_parallelism[k, v], t.max_parallelism[k, v]
    # A vertex without state has no use for managed memory. With state it must have some: without,
    # RocksDB would run with MemTables outside the memory of the slot.
    first, columns = (1, t.levels[k] + 1) if t.stateful[k, v] == 1 else (0, 1)
    # The last mean is the learned exponent of the loss with parallelism (`dsp_gym.sizing.service`).
    mean = known.times.mean[j, v]
    exponent = mean[mean.shape[0] - 1]
    for i in range(cost.shape[0]):
        cost[i] = math.inf
    for column in range(first, columns):
        each, p = unit_cost(t, k, column), low
        records = known.records_per_s[k, v, column]
        carried = carried_per_s(known, t, j, v, p, column)
        if math.isnan(carried):
            return False
        # From p tasks to q, a capacity changes as in the prior, but for the learned exponent.
        # Multiples rise, so p only grows: one pass over the tasks serves all multiples.
        share = carried / records[p] * p**exponent
        for i in range(wanted.shape[0]):
            while carried < wanted[i] * _SAME and p < high:
                p += 1
                carried = share * records[p] * math.exp(-exponent * math.log(p))
            if carried < wanted[i] * _SAME:
                break
            if p * each < cost[i]:
                cost[i] = p * each
                to.parallelism[j, i, v], to.level[j, i, v] = p, column - 1
    largest = high * unit_cost(t, k, columns - 1)
    for i in range(wanted.shape[0]):
        if cost[i] == math.inf:  # no choice carries it: the largest
            reached[i], cost[i] = False, largest
            to.parallelism[j, i, v] = high
            to.level[j, i, v] = columns - 2
        to.cost[j, i] += cost[i]
    return True


@njit(cache=True, nogil=True)
def _changes(count: int, seen: SnapshotArrays, j: int, i: int, to: CapacityTargets) -> bool:
    """Return whether a multiple differs from holding and from the multiple below."""
    from_running, from_below = False, i == 0
    for v in range(count):
        p, x = to.parallelism[j, i, v], to.level[j, i, v]
        from_running |= p != seen.parallelism[j, v] or x != seen.memory_level[j, v]
        if i > 0:
            from_below |= p != to.parallelism[j, i - 1, v] or x != to.level[j, i - 1, v]
    return from_running and from_below


def decode(actions: Ints, to: CapacityTargets, parallelism: Ints, level: Ints) -> ScalingDecision:
    """Decode actions (J, 1); a choice that is not valid holds.

    Args:
        actions: 0 holds, i re-targets at multiple i - 1.
        to: Configurations of the choices.
        parallelism: (J, V) running.
        level: (J, V) running.

    Returns:
        The decision they mean, (J, V), without reasons.

    Raises:
        ValueError: An action has another shape, or is outside its space.
    """
    if actions.shape != (len(parallelism), 1):
        raise ValueError(f"actions have shape {actions.shape}, expected ({len(parallelism)}, 1)")
    # Copies: a choice that is not valid holds the running configuration.
    wanted, memory = parallelism.copy(), level.copy()
    _pick(np.ascontiguousarray(actions, np.int64), to, 0, len(wanted), wanted, memory)
    return ScalingDecision(wanted, memory, ("",) * len(wanted))


@direct
@njit(cache=True, nogil=True)
def _pick(
    actions: Ints, to: CapacityTargets, low: int, high: int, wanted: Ints, memory: Ints
) -> None:
    """Replace the running configuration of jobs low..high-1 where a valid choice re-targets."""
    for j in range(low, high):
        choice = actions[j, 0]
        if not 0 <= choice < to.valid.shape[1]:
            raise ValueError("an action is outside its space: 0 holds, 1 to 10 re-target")
        if choice != HOLD and to.valid[j, choice]:
            for v in range(wanted.shape[1]):
                wanted[j, v] = to.parallelism[j, choice - 1, v]
                memory[j, v] = to.level[j, choice - 1, v]


@direct
@njit(cache=True, nogil=True)
def nearest(
    facts: Handle[JobFacts],
    seen: SnapshotArrays,
    model: Handle[Believed],
    to: CapacityTargets,
    wanted: Ints,
    memory: Ints,
    found: Ints,
) -> None:
    """Find the valid choice that equals a decision, or else carries nearest to it, as a ratio.

    Tasks do not compare: a teacher that balances vertices otherwise than the service model does
    would be far from every choice. Of equals the cheaper one counts, and holding first.

    Args:
        facts: The jobs.
        seen: The snapshot decided on.
        model: The service model, for the load that configurations carry.
        to: Configurations of the choices.
        wanted: (J, V) tasks of the decision.
        memory: (J, V) memory levels of the decision.
        found: (J,) choices, written; holding where the load that the decision carries is unknown.
    """
    t, known = facts.arrays, model.arrays
    for j in range(found.shape[0]):
        # `own` is the load the decision carries according to the model; 0 or NaN where unknown.
        own, least = believed(known, t, j, wanted[j], memory[j]), math.inf
        found[j] = HOLD
        for choice in range(to.valid.shape[1]):
            if not to.valid[j, choice]:
                continue
            p, x = seen.parallelism[j], seen.memory_level[j]
            if choice != HOLD:
                p, x = to.parallelism[j, choice - 1], to.level[j, choice - 1]
            count = t.n[t.row[j]]
            if np.all(p[:count] == wanted[j, :count]) and np.all(x[:count] == memory[j, :count]):
                found[j] = choice
                break
            carried = believed(known, t, j, p, x)
            if own > 0.0 and carried > 0.0 and abs(math.log(carried / own)) < least - _ROUNDING:
                least, found[j] = abs(math.log(carried / own)), choice
