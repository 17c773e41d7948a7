"""Cost over capacity: of one vertex, of a job, and the lower convex hull of both.

Costs add up over vertices and a job carries the load of its weakest vertex, so the cheapest
configuration for a load is the cheapest choice of every vertex. All rates are job load, records/s
over all sources.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dsp_gym.arrays import Floats, Ints
from dsp_gym.job.capacity import slots_in_use, vertex_capacity
from dsp_gym.job.memory import NO_MEMORY
from dsp_gym.job.service import compiled
from dsp_gym.job.tables import NO_WINDOW, SLIDING, SOURCE, TUMBLING, JobTables

_HALVINGS = 60

IN_TIME = 0.8
"""Share of the latency bound that waiting records may take; the rest is for hops and queues."""


@dataclass(frozen=True, slots=True, eq=False)
class Frontier:
    """Configurations of one job, each cheaper than all that carry more; N of them."""

    rate_per_s: Floats  # (N,) job load it carries, rising
    cost_per_s: Floats  # (N,) money, rising
    parallelism: Ints  # (N, V)
    level: Ints  # (N, V)

    def __len__(self) -> int:
        return len(self.rate_per_s)

    def cheapest(self, rate_per_s: float) -> int:
        """Find the first configuration that carries a load.

        Returns:
            Its place; that of the largest where none carries the load.
        """
        return min(int(np.searchsorted(self.rate_per_s, rate_per_s)), len(self) - 1)


@dataclass(frozen=True, slots=True, eq=False)
class Hull:
    """A convex, rising, piecewise linear cost of a load; level before its first point."""

    rate_per_s: Floats
    cost_per_s: Floats

    def __call__(self, rate_per_s: Floats) -> Floats:
        return np.asarray(np.interp(rate_per_s, self.rate_per_s, self.cost_per_s))


@dataclass(frozen=True, slots=True, eq=False)
class _Choices:
    """The choices of one vertex: each cheaper than all that carry more."""

    rate_per_s: Floats
    cost_per_s: Floats
    parallelism: Ints
    level: Ints


@compiled
def _carried_per_s(
    tables: JobTables, k: int, v: int, parallelism: int, level: int, crowd: float, empty: bool
) -> float:
    """Return the largest job load of a vertex, its window empty or filled by that load."""
    ratio = tables.ratio[k, v]
    if ratio <= 0.0:
        return math.inf
    factor = 1.0 if tables.kind[k, v] == SOURCE else crowd
    free, _ = vertex_capacity(tables, k, v, parallelism, level, 0.0)
    high = float(free * factor / ratio)
    if empty or tables.window[k, v] == NO_WINDOW:
        return high
    low = 0.0
    for _ in range(_HALVINGS):
        rate = 0.5 * (low + high)
        capacity, _ = vertex_capacity(tables, k, v, parallelism, level, rate * ratio)
        if capacity * factor >= rate * ratio:
            low = rate
        else:
            high = rate
    return low


def released_every_s(tables: JobTables, k: int) -> Floats:
    """Return the input that reaches a vertex at once because a window before it fires.

    Returns:
        (V,) seconds of input, 0 where no window precedes the vertex.
    """
    every = np.zeros(int(tables.n[k]))
    for v in range(len(every)):
        for u in tables.upstream[k, v]:
            if u >= 0:
                fires = tables.window[k, u] in (TUMBLING, SLIDING)
                every[v] = max(every[v], every[u], tables.slide_s[k, u] if fires else 0.0)
    return every


def _choices(
    tables: JobTables, k: int, v: int, crowd: float, *, empty: bool, bursts: float = 1.0
) -> _Choices:
    """Return the Pareto-best choices of a vertex.

    With state, a plan takes managed memory, as `dsp_gym.sizing` does. The bound, whose windows are
    empty, takes every choice open to a policy.
    """
    low, high = int(tables.min_parallelism[k, v]), int(tables.max_parallelism[k, v])
    if tables.kind[k, v] == SOURCE:  # costs nothing here; its memory is separate
        levels = [int(tables.start_level[k, v])]
    else:
        stateful = bool(tables.stateful[k, v])
        least = 0 if stateful and not empty else NO_MEMORY
        levels = list(range(least, int(tables.levels[k]) if stateful else 0))
    found = []
    for p in range(low, high + 1):
        for level in levels:
            gib = tables.subtask_mib[k, level + 1] / 1024.0
            money = p * (tables.core_hour[k] + gib * tables.gib_hour[k]) / 3600.0
            cost = 0.0 if tables.kind[k, v] == SOURCE else money
            rate = _carried_per_s(tables, k, v, p, level, crowd, empty) / bursts
            found.append((cost, -rate, p, level))
    best: list[tuple[float, float, int, int]] = []
    # Sorted by cost, then by falling rate: keep each that carries more than all before.
    for choice in sorted(found):
        if not best or choice[1] < best[-1][1]:
            best.append(choice)
    return _Choices(
        rate_per_s=np.array([-one[1] for one in best]),
        cost_per_s=np.array([one[0] for one in best]),
        parallelism=np.array([one[2] for one in best]),
        level=np.array([one[3] for one in best]),
    )


def _slots_range(tables: JobTables, k: int) -> range:
    """Return the possible numbers of slots in use on the fullest TaskManager."""
    least = slots_in_use(tables, k, tables.min_parallelism[k])
    return range(least, int(tables.slots[k]) + 1)


def _crowd(tables: JobTables, k: int, slots: int) -> float:
    return max(0.05, 1.0 - float(tables.contention[k]) * (slots - 1))


def frontier(tables: JobTables, k: int, drain_s: float = math.inf) -> Frontier:
    """Compute the cheapest configuration for every load a job can carry, windows at their fullest.

    With contention between slots, each number of slots in use is tried.

    Args:
        tables: Compiled jobs.
        k: Row of the job.
        drain_s: Seconds in which a vertex works off the results that a window before it releases at
            once.

    Returns:
        Configurations by rising cost and capacity.
    """
    n = int(tables.n[k])
    every = released_every_s(tables, k)
    fixed = tables.min_parallelism[k] == tables.max_parallelism[k]
    bursts = [1.0 if fixed[v] else max(1.0, every[v] / drain_s) for v in range(n)]
    numbers = _slots_range(tables, k)
    found: list[tuple[float, float, Ints, Ints]] = []
    for slots in numbers if tables.contention[k] > 0 else numbers[-1:]:
        crowd = _crowd(tables, k, slots)
        choices = [_choices(tables, k, v, crowd, empty=False, bursts=bursts[v]) for v in range(n)]
        # Only loads at which the choice of some vertex is exhausted matter.
        most = min(float(c.rate_per_s[-1]) for c in choices)
        rates = np.unique(np.concatenate([c.rate_per_s for c in choices]))
        rates = rates[np.isfinite(rates) & (rates <= most)]
        places = [np.searchsorted(c.rate_per_s, rates) for c in choices]
        costs = sum(c.cost_per_s[i] for c, i in zip(choices, places, strict=True))
        for r, rate in enumerate(rates):
            p = tables.min_parallelism[k].copy()
            level = tables.start_level[k].copy()
            p[:n] = [c.parallelism[i[r]] for c, i in zip(choices, places, strict=True)]
            level[:n] = [c.level[i[r]] for c, i in zip(choices, places, strict=True)]
            # Fewer subtasks on a TaskManager run faster: the assumed number must hold.
            if slots == numbers[-1] or slots_in_use(tables, k, p) <= slots:
                found.append((float(np.asarray(costs)[r]), -float(rate), p, level))
    found.sort(key=lambda one: one[:2])
    best: list[tuple[float, float, Ints, Ints]] = []
    for one in found:
        if not best or one[1] < best[-1][1]:
            best.append(one)
    return Frontier(
        rate_per_s=np.array([-one[1] for one in best]),
        cost_per_s=np.array([one[0] for one in best]),
        parallelism=np.array([one[2] for one in best]),
        level=np.array([one[3] for one in best]),
    )


def thinned(full: Frontier, most: int) -> tuple[Frontier, float]:
    """Keep a number of configurations, spread evenly over their cost.

    Every load keeps a configuration that carries it: the next larger one.

    Returns:
        At most `most` configurations, and the share by which a load may cost more with them.
    """
    if len(full) <= most:
        return full, 0.0
    spread = np.geomspace(full.cost_per_s[0], full.cost_per_s[-1], most)
    kept = np.unique(np.searchsorted(full.cost_per_s, spread * (1 + 1e-12), "right") - 1)
    kept = np.union1d(kept, [len(full) - 1])
    upward = kept[np.searchsorted(kept, np.arange(len(full)))]
    gap = float(np.max(full.cost_per_s[upward] / full.cost_per_s)) - 1.0
    return Frontier(*(getattr(full, name)[kept] for name in Frontier.__slots__)), gap


def hull(tables: JobTables, k: int) -> Hull:
    """Compute the least cost of a load when a job may be anything between its configurations.

    The sum over vertices of the lower convex hull of each one's cost over capacity: caches warm,
    windows empty, as few slots in use as possible. A vertex behind a firing window owes no result
    by a deadline and counts with its cheapest choice.

    Returns:
        Money per second over job load, convex.
    """
    crowd = _crowd(tables, k, _slots_range(tables, k)[0])
    every = released_every_s(tables, k)
    base, parts = 0.0, []
    for v in range(int(tables.n[k])):
        choices = _choices(tables, k, v, crowd, empty=True)
        base += float(choices.cost_per_s[0])
        finite = np.isfinite(choices.rate_per_s)
        if every[v] > 0 or finite.sum() < 2:
            continue
        parts.append(lower_hull(choices.rate_per_s[finite], choices.cost_per_s[finite]))
    places = np.unique(np.concatenate([np.zeros(1), *(rate for rate, _ in parts)]))
    costs = base + sum(
        (np.interp(places, rate, cost) - cost[0] for rate, cost in parts), np.zeros(len(places))
    )
    return Hull(places, costs)


def lower_hull(rates: Floats, costs: Floats) -> tuple[Floats, Floats]:
    """Find the lower convex hull of points and (0, least cost).

    Args:
        rates: (n,) records/s, ascending.
        costs: (n,) money per second.

    Returns:
        Rates and costs of the corners, (m,) each, ascending, from rate 0.
    """
    kept: list[tuple[float, float]] = [(0.0, float(costs[0]))]
    # Andrew's monotone chain, 1979: drop each corner that the next point makes obsolete.
    for rate, cost in zip(rates.tolist(), costs.tolist(), strict=True):
        while len(kept) > 1 and _is_above(kept[-2], kept[-1], (rate, cost)):
            kept.pop()
        kept.append((rate, cost))
    return np.array([rate for rate, _ in kept]), np.array([cost for _, cost in kept])


def _is_above(
    first: tuple[float, float], middle: tuple[float, float], last: tuple[float, float]
) -> bool:
    """Return whether the middle point lies on or above the line between the others."""
    (x0, y0), (x1, y1), (x2, y2) = first, middle, last
    return (y1 - y0) * (x2 - x0) >= (y2 - y0) * (x1 - x0)
