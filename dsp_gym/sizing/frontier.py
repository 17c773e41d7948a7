"""The cheapest configuration for every load: cost over capacity, from a service model.

Costs add up over vertices and a job carries the load of its weakest vertex. So the cheapest
configuration for a load takes, of every vertex, the cheapest choice that carries it; only loads at
which some choice is exhausted matter.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.job.memory import NO_MEMORY
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.topology import JobFacts, Topology
from dsp_gym.numba_handles import Handle, direct
from dsp_gym.sizing.lateness import late_share
from dsp_gym.sizing.service import Believed, ServiceModel, believed, carried_per_s

_SAME = 1.0 - 1e-9
"""Rounding allowed where a choice carries exactly a load."""


class Frontiers(NamedTuple):
    """Configurations of J jobs, each cheaper than all that carry more; at most N of each job.

    Places from `size` on repeat the last one. Sources keep their running tasks.
    """

    size: Ints  # (J,) 0 where a vertex that can be scaled was not seen yet
    rate_per_s: Floats  # (J, N) job load carried, rising
    cost_per_s: Floats  # (J, N) money, rising; sources left out
    parallelism: Ints  # (J, N, V)
    level: Ints  # (J, N, V)

    @classmethod
    def empty(cls, jobs: Topology, most: int) -> Frontiers:
        """Allocate room.

        Args:
            jobs: The batch.
            most: N, the largest number of configurations of a job.

        Returns:
            Frontiers without configurations.
        """
        size, columns = len(jobs), jobs.max_vertices
        return cls(
            np.zeros(size, np.int64),
            np.zeros((size, most)),
            np.zeros((size, most)),
            np.ones((size, most, columns), np.int64),
            np.full((size, most, columns), NO_MEMORY, np.int64),
        )

    def find(self, jobs: Topology, model: ServiceModel, due: Bools, enough_per_s: Floats) -> None:
        """Compute the frontiers of some jobs, in place.

        Args:
            jobs: The batch.
            model: The service model of its jobs.
            due: (J,) rows to compute.
            enough_per_s: (J,) load above which larger configurations are of no interest.
        """
        _find(jobs.handle, model.believed, due, enough_per_s, self)

    def grid(self, rates_per_s: Floats, noise: float) -> tuple[Ints, Floats]:
        """Find the cheapest configuration for every load of a grid, and how late it is there.

        Args:
            rates_per_s: (J, G) levels of the load, in any order.
            noise: Standard deviation of the load, as a share of its level.

        Returns:
            (J, G) places of the cheapest configurations, of the largest where none carries the
            load, and the share of the next minute's seconds that are expected late there, as by
            `late_share`; -1 and NaN where the job is still unknown.
        """
        places, late = np.full(rates_per_s.shape, -1), np.full(rates_per_s.shape, np.nan)
        _grid(self, np.ascontiguousarray(rates_per_s), noise, places, late)
        return places, late


@njit(cache=True, nogil=True)
def cheapest(found: Frontiers, j: int, rate_per_s: float) -> int:
    """Find the first configuration of a job that carries a load.

    Returns:
        Its place; that of the largest where none carries the load, -1 where none is known.
    """
    # Binary search: rates rise from place to place.
    low, high = 0, found.size[j] - 1
    while low < high:
        middle = (low + high) // 2
        if found.rate_per_s[j, middle] >= rate_per_s * _SAME:
            high = middle
        else:
            low = middle + 1
    return int(high)


@direct
@njit(cache=True, nogil=True)
def _grid(found: Frontiers, rates_per_s: Floats, noise: float, places: Ints, late: Floats) -> None:
    """Fill in the results of `Frontiers.grid`; g is a load's column."""
    for j in range(rates_per_s.shape[0]):
        for g in range(rates_per_s.shape[1]):
            place = cheapest(found, j, rates_per_s[j, g])
            if place >= 0:
                carried = found.rate_per_s[j, place]
                places[j, g] = place
                late[j, g] = late_share(rates_per_s[j, g], carried, noise)


@njit(cache=True, nogil=True)
def subtask_cost_per_s(t: JobFacts, k: int, column: int) -> float:
    """Return the cost of a subtask at memory level `column` - 1.

    Returns:
        Money per second.
    """
    gib = t.subtask_mib[k, column] / 1024.0
    return float((t.core_hour[k] + gib * t.gib_hour[k]) / 3600.0)


@njit(cache=True, nogil=True)
def _order(values: Floats) -> Ints:
    """Sort: places of rising values, (N,), stable; `np.argsort` takes longer to compile."""
    size = values.shape[0]
    order, merged = np.empty(size, np.int64), np.empty(size, np.int64)
    for i in range(size):
        order[i] = i
    # Merge sort from the bottom up: stable, so that equal costs keep their order.
    width = 1
    while width < size:
        for low in range(0, size, 2 * width):
            middle, high = min(low + width, size), min(low + 2 * width, size)
            a, b = low, middle
            for place in range(low, high):
                if a < middle and (b == high or values[order[a]] <= values[order[b]]):
                    merged[place] = order[a]
                    a += 1
                else:
                    merged[place] = order[b]
                    b += 1
        order, merged = merged, order
        width *= 2
    return order


class _Choices(NamedTuple):
    """The choices of one vertex, each cheaper than all that carry more, (V, C)."""

    size: Ints  # (V,)
    rate: Floats
    cost: Floats
    parallelism: Ints
    level: Ints


@njit(cache=True, nogil=True)
def _choose(known: Believed, t: JobFacts, j: int, v: int, into: _Choices) -> bool:
    """Fill in the Pareto-best choices of a vertex; False where it was not seen yet."""
    k = t.row[j]
    low, high = t.min_parallelism[k, v], t.max_parallelism[k, v]
    # A vertex without state has no use for managed memory. With state it must have some: without,
    # RocksDB would run with MemTables outside the memory of the slot.
    first, columns = (1, t.levels[k] + 1) if t.stateful[k, v] == 1 else (0, 1)
    # All choices, task by task and level by level: i // levels and i % levels give them back.
    size = (high - low + 1) * (columns - first)
    rates, costs = np.empty(size), np.empty(size)
    place = 0
    for p in range(low, high + 1):
        for column in range(first, columns):
            rates[place] = carried_per_s(known, t, j, v, p, column)
            if math.isnan(rates[place]):
                return False
            costs[place] = p * subtask_cost_per_s(t, k, column)
            place += 1
    # By rising cost, keep each choice that carries more than all before.
    kept = 0
    for i in _order(costs):
        if kept > 0 and rates[i] <= into.rate[v, kept - 1]:
            continue
        if kept > 0 and costs[i] == into.cost[v, kept - 1]:
            kept -= 1  # equal cost, and carries more
        into.rate[v, kept], into.cost[v, kept] = rates[i], costs[i]
        into.parallelism[v, kept] = low + i // (columns - first)
        into.level[v, kept] = first + i % (columns - first) - 1
        kept += 1
    into.size[v] = kept
    return True


@direct
@njit(cache=True, nogil=True)
def _find(
    facts: Handle[JobFacts],
    model: Handle[Believed],
    due: Bools,
    enough_per_s: Floats,
    found: Frontiers,
) -> None:
    """Compute the frontiers of due rows. j is a job's row, k its job file, v a vertex."""
    t, known = facts.arrays, model.arrays
    # widest is the largest number of choices of any vertex.
    vertices = found.parallelism.shape[2]
    # Scratch arrays of the widest vertex, once for all jobs: no allocation per job.
    widest = 1
    for k in range(t.n.shape[0]):
        for v in range(t.n[k]):
            span = t.max_parallelism[k, v] - t.min_parallelism[k, v] + 1
            widest = max(widest, span * (t.levels[k] + 1))
    choices = _Choices(
        np.zeros(vertices, np.int64),
        np.zeros((vertices, widest)),
        np.zeros((vertices, widest)),
        np.zeros((vertices, widest), np.int64),
        np.zeros((vertices, widest), np.int64),
    )
    for j in range(due.shape[0]):
        if due[j]:
            found.size[j] = 0
            is_known = True
            for v in range(t.n[t.row[j]]):
                if t.kind[t.row[j], v] != SOURCE:
                    is_known = is_known and _choose(known, t, j, v, choices)
            if is_known:
                _assemble(known, t, j, choices, enough_per_s[j], found)


@njit(cache=True, nogil=True)
def _limits(t: JobFacts, k: int, choices: _Choices, enough_per_s: float) -> Floats:
    """Return the loads at which a choice of some vertex is exhausted, records/s, unsorted."""
    # Beyond the capacity of the weakest vertex's largest choice no configuration carries more.
    most, total = math.inf, 0
    for v in range(t.n[k]):
        if t.kind[k, v] != SOURCE:
            most = min(most, choices.rate[v, choices.size[v] - 1])
            total += choices.size[v]
    loads = np.empty(total + 1)
    total = 0
    for v in range(t.n[k]):
        if t.kind[k, v] != SOURCE:
            for i in range(choices.size[v]):
                if choices.rate[v, i] <= most and choices.rate[v, i] < math.inf:
                    loads[total] = choices.rate[v, i]
                    total += 1
    if total == 0:  # no vertex limits the job: one configuration is enough
        loads[0] = enough_per_s
        total = 1
    return loads[:total]


@njit(cache=True, nogil=True)
def _assemble(
    known: Believed, t: JobFacts, j: int, choices: _Choices, enough_per_s: float, found: Frontiers
) -> None:
    """Assemble the frontier of a job from the choices of its vertices, thinned to the room."""
    k, n = t.row[j], t.n[t.row[j]]
    vertices = found.parallelism.shape[2]
    loads = _limits(t, k, choices, enough_per_s)
    order, total = _order(loads), len(loads)
    rates, costs = np.zeros(total), np.zeros(total)
    parallelism = np.ones((total, vertices), np.int64)
    level = np.full((total, vertices), NO_MEMORY, np.int64)
    at = np.zeros(vertices, np.int64)
    # Loads rise, so each vertex only moves on to larger choices: one pass for all.
    for i in range(total):
        for v in range(n):
            if t.kind[k, v] == SOURCE:
                parallelism[i, v] = t.min_parallelism[k, v]
                continue
            while at[v] < choices.size[v] - 1 and choices.rate[v, at[v]] < loads[order[i]] * _SAME:
                at[v] += 1
            costs[i] += choices.cost[v, at[v]]
            parallelism[i, v] = choices.parallelism[v, at[v]]
            level[i, v] = choices.level[v, at[v]]
        # With contention, more slots in use slow each other: the load carried is computed again.
        rates[i] = min(believed(known, t, j, parallelism[i], level[i]), 1e300)

    # By rising cost, each carrying more than all before; none beyond the first sufficient one.
    kept = np.empty(total, np.int64)
    count = 0
    for i in _order(costs):
        if count > 0 and rates[i] <= rates[kept[count - 1]]:
            continue
        if count > 0 and costs[i] == costs[kept[count - 1]]:
            count -= 1
        elif count > 0 and rates[kept[count - 1]] >= enough_per_s:
            break
        kept[count] = i
        count += 1
    found.size[j] = count
    _thin(kept, costs, j, found)
    for place in range(found.rate_per_s.shape[1]):
        i = kept[min(place, found.size[j] - 1)]
        found.rate_per_s[j, place], found.cost_per_s[j, place] = rates[i], costs[i]
        for v in range(vertices):
            found.parallelism[j, place, v] = parallelism[i, v]
            found.level[j, place, v] = level[i, v]


@njit(cache=True, nogil=True)
def _thin(kept: Ints, costs: Floats, j: int, found: Frontiers) -> None:
    """Keep as many as there is room for, spread evenly over the logarithm of cost, in place."""
    room, count = found.rate_per_s.shape[1], found.size[j]
    # Steps of equal ratio in cost from the cheapest to the dearest configuration.
    if count > room:
        lowest = max(costs[kept[0]], 1e-300)
        step = math.log(max(costs[kept[count - 1]], 1e-300) / lowest) / (room - 1)
        chosen, taken = 0, 0
        # Of each step of cost keep the largest configuration; the very largest stays in any case.
        for place in range(room):
            limit = lowest * math.exp(step * place) / _SAME
            last = -1
            while taken < count and costs[kept[taken]] <= limit:
                last = taken
                taken += 1
            if last >= 0:
                kept[chosen] = kept[last]
                chosen += 1
        if kept[chosen - 1] != kept[count - 1]:
            kept[chosen - 1] = kept[count - 1]
        count = chosen
    found.size[j] = count
