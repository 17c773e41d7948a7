"""The plan: the configuration of each step, for a known load.

Dynamic programming over decision steps. A node is a step and a running configuration. A plan
carries its backlog along, so a node holds *labels* (money so far, backlog); of two labels the one
with no less money and no less backlog is dropped, as it cannot become better. That is exact. When a
node is full, the two labels that differ least in money are merged: into the more expensive one,
which is a plan that exists. The same search with the *better of both* instead, a plan that need not
exist, is never above the best plan; the gap is the difference of the two.

The model of a second: backlog and arrivals are served up to the configuration's rate; the second is
late if more is left than can be served in time, and as often as the configuration is late at that
load without a backlog. During a rescale the job keeps serving while the savepoint is written,
stands still for the outage at the old configuration's cost, and then catches up: at a share of its
rate while its caches are cold, if that is asked for. The next decision comes after that. After a
stop the configuration before it no longer matters, so all sources of a rescale share one list.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.job.service import compiled
from dsp_gym.sizing.lateness import COLD_SPEED

LABELS = 8
"""Most labels of a node."""


class Terms(NamedTuple):
    """Times and prices of a plan, in whole seconds and money."""

    interval_s: int  # between decisions
    savepoint_s: int  # the job keeps serving
    outage_s: int  # the job stands still
    late_s: float  # backlog over rate above which a second is late
    slo_price: float  # money of a late second
    rescale_price: float  # money of a rescale beside its outage


class Plan(NamedTuple):
    """One job's plan."""

    choice: Ints  # (K,) configuration of each step
    price: float  # money, late seconds and rescales included
    gap: float  # no plan over these configurations is cheaper by more, money


@compiled
def serve(
    arrivals: Floats, begin: int, end: int, backlog: float, capacity: float, late_s: float
) -> tuple[float, float]:
    """Serve a load at a constant rate.

    Returns:
        Backlog at the end, records, and the number of late seconds.
    """
    late = 0.0
    for t in range(begin, end):
        waits = backlog + arrivals[t]
        served = min(waits, capacity)
        backlog = waits - served
        if backlog > late_s * served:
            late += 1.0
    return backlog, late


@compiled
def _catch_up(
    arrivals: Floats,
    again: int,
    warm: int,
    until: int,
    backlog: float,
    capacity: float,
    late_s: float,
) -> tuple[float, float]:
    """Serve a load after a stop, at a share of the rate until the caches are warm.

    Returns:
        As `serve`.
    """
    cold_late = 0.0
    if warm > again:
        backlog, cold_late = serve(arrivals, again, warm, backlog, COLD_SPEED * capacity, late_s)
    backlog, late = serve(arrivals, warm, until, backlog, capacity, late_s)
    return backlog, cold_late + late


@compiled
def _keep(
    money: Floats,
    backlog: Floats,
    parent: Ints,
    count: int,
    m: float,
    b: float,
    came: int,
    hopeful: bool,
) -> tuple[int, bool]:
    """Add a label to a list sorted by money.

    i is the place of a label; m, b and `came` are money, backlog and origin of the new one.

    Returns:
        Length of the list, and whether two labels were merged.
    """
    # Dominated: another label has no more money and no more backlog.
    for i in range(count):
        if money[i] <= m and backlog[i] <= b:
            return count, False
    kept = 0
    for i in range(count):  # drop those that the new one dominates
        if not (m <= money[i] and b <= backlog[i]):
            money[kept], backlog[kept], parent[kept] = money[i], backlog[i], parent[i]
            kept += 1
    money[kept], backlog[kept], parent[kept] = m, b, came
    _sort(money, backlog, parent, kept + 1)
    if kept + 1 < money.shape[0]:  # the last place is for a newcomer only
        return kept + 1, False
    place = 0
    for i in range(kept):
        if money[i + 1] - money[i] < money[place + 1] - money[place]:
            place = i
    # The optimistic search gives the kept label the money of the dropped one.
    if hopeful:
        money[place + 1] = money[place]
    for i in range(place, kept):
        money[i], backlog[i], parent[i] = money[i + 1], backlog[i + 1], parent[i + 1]
    return kept, True


@compiled
def _sort(money: Floats, backlog: Floats, parent: Ints, count: int) -> None:
    """Move the last label, i at first, to its place by money."""
    i = count - 1
    while i > 0 and money[i] < money[i - 1]:
        money[i], money[i - 1] = money[i - 1], money[i]
        backlog[i], backlog[i - 1] = backlog[i - 1], backlog[i]
        parent[i], parent[i - 1] = parent[i - 1], parent[i]
        i -= 1


class _Nodes(NamedTuple):
    """Labels of the nodes, K steps by N configurations, each list sorted by money."""

    money: Floats  # (K, N, W)
    backlog: Floats  # (K, N, W) records
    parent: Ints  # (K, N, W) code of the node and label it came from
    size: Ints  # (K, N) labels


@compiled
def _nodes(steps: int, configurations: int, width: int) -> _Nodes:
    """Allocate room for `width` labels at each node; a parent of -1 is none."""
    shape = (steps, configurations, width)
    parent = np.full(shape, -1, np.int64)
    return _Nodes(np.zeros(shape), np.zeros(shape), parent, np.zeros(shape[:2], np.int64))


@njit(cache=True, nogil=True, forceinline=True, borrows=True)
def _add(nodes: _Nodes, k: int, c: int, m: float, b: float, came: int, hopeful: bool) -> bool:
    """Add a label to node (k, c): its money m, its backlog b and the code of where it came from.

    Returns:
        Whether two labels became one, as `_keep` decides; `hopeful` is that of the search.
    """
    nodes.size[k, c], merged = _keep(
        nodes.money[k, c],
        nodes.backlog[k, c],
        nodes.parent[k, c],
        nodes.size[k, c],
        m,
        b,
        came,
        hopeful,
    )
    return merged


class _Options(NamedTuple):
    """The N configurations to choose from, over K steps."""

    capacity: Floats  # (N,) records/s
    cost: Floats  # (N,) money per second
    share: Floats  # (K, N) late seconds of a step without any backlog, as a share
    cold_s: Ints  # (N,) seconds after a stop until the caches are warm


@compiled
def _start_again(
    arrivals: Floats,
    options: _Options,
    terms: Terms,
    k: int,
    nodes: _Nodes,
    down: _Nodes,
    hopeful: bool,
) -> bool:
    """Start every configuration after the stop of step k; the next decision comes once it is warm.

    Returns:
        Whether two labels became one.
    """
    merged, interval = False, terms.interval_s
    again = k * interval + terms.savepoint_s + terms.outage_s
    for c in range(options.capacity.shape[0]):
        warm = again + options.cold_s[c]
        after_k = (warm + interval - 1) // interval
        if after_k >= nodes.size.shape[0]:
            continue  # it would be cold until the end
        until, rate = after_k * interval, options.capacity[c]
        for i in range(down.size[0, 0]):
            b = down.backlog[0, 0, i]
            after, late = _catch_up(arrivals, again, warm, until, b, rate, terms.late_s)
            late += options.share[after_k - 1, c] * (until - again - late)
            spent = options.cost[c] * (until - again) + terms.slo_price * late
            m_after, came = down.money[0, 0, i] + spent, down.parent[0, 0, i]
            merged |= _add(nodes, after_k, c, m_after, after, came, hopeful)
    return merged


@compiled
def _search(
    arrivals: Floats,
    options: _Options,
    first: int,
    terms: Terms,
    labels: int,
    hopeful: bool,
) -> tuple[Ints, float, bool]:
    """Return the best choice of each step, (K,), its price, and whether labels were merged.

    k is a step, c a configuration, i a label of a node; m and b are a label's money and backlog.
    """
    interval, savepoint, outage = terms.interval_s, terms.savepoint_s, terms.outage_s
    capacity, cost, share = options.capacity, options.cost, options.share
    steps, n, width = arrivals.shape[0] // interval, capacity.shape[0], labels + 1
    nodes, down = _nodes(steps + 1, n, width), _nodes(1, 1, width)
    merged = False
    soonest = (savepoint + outage + options.cold_s.min() + interval - 1) // interval
    # Cumulated arrivals: what queues up during an outage is a difference of two of them.
    owed = np.concatenate((np.zeros(1), np.cumsum(arrivals)))
    nodes.size[0, first] = 1
    for k in range(steps):
        begin, end = k * interval, (k + 1) * interval
        stop, again = begin + savepoint, begin + savepoint + outage
        heaviest = arrivals[begin:end].max()
        down.size[0, 0] = 0
        for c in range(n):
            for i in range(nodes.size[k, c]):
                code = (k * n + c) * width + i
                m, b = nodes.money[k, c, i], nodes.backlog[k, c, i]
                after, late = b, 0.0
                # Most steps have no queue: then no second is served one by one.
                if b > 0.0 or heaviest > capacity[c]:
                    after, late = serve(arrivals, begin, end, b, capacity[c], terms.late_s)
                late += share[k, c] * (interval - late)
                m_after = m + cost[c] * interval + terms.slo_price * late
                merged |= _add(nodes, k + 1, c, m_after, after, code, hopeful)
                if k + soonest > steps:
                    continue  # it would be down until the end
                # A rescale: serve while the savepoint is written, then stand still. Labels of all
                # configurations that stop now meet in one list, from which every configuration
                # starts.
                after, late = serve(arrivals, begin, stop, b, capacity[c], terms.late_s)
                late += share[k, c] * (savepoint - late)
                spent = cost[c] * (savepoint + outage) + terms.slo_price * (late + outage)
                m_after, b_after = m + spent + terms.rescale_price, after + owed[again] - owed[stop]
                merged |= _add(down, 0, 0, m_after, b_after, code, hopeful)
        merged |= _start_again(arrivals, options, terms, k, nodes, down, hopeful)
    choice, price = _cheapest(nodes, steps, n, width)
    return choice, price, merged


@compiled
def _cheapest(nodes: _Nodes, steps: int, n: int, width: int) -> tuple[Ints, float]:
    """Return the choices on the way to the cheapest label of the last step, and its price."""
    best, price = 0, math.inf
    for c in range(n):
        if nodes.size[steps, c] > 0 and nodes.money[steps, c, 0] < price:
            best, price = c, nodes.money[steps, c, 0]
    # Follow the codes back from the cheapest label of the last step.
    choice = np.zeros(steps, np.int64)
    k, c, i = steps, best, 0
    while k > 0:
        code = nodes.parent[k, c, i]
        i = code % width
        before, was = code // width // n, code // width % n
        choice[before:k] = c
        k, c = before, was
    return choice, price


def plan(
    arrivals_per_s: Floats,
    capacity_per_s: Floats,
    cost_per_s: Floats,
    first: int,
    terms: Terms,
    late_share: Floats | None = None,
    cold_s: Ints | None = None,
    labels: int = LABELS,
) -> Plan:
    """Find the cheapest plan.

    Args:
        arrivals_per_s: (T,) the load, in whole intervals.
        capacity_per_s: (N,) load each configuration carries.
        cost_per_s: (N,) money.
        first: The configuration at the start.
        terms: Times and prices.
        late_share: (K, N) share of each step's seconds that are late without any backlog.
        cold_s: (N,) seconds after a rescale in which a configuration's caches are cold; none: 0.
        labels: Most labels of a node.

    Returns:
        The configuration of each step, the price, and the gap to the best plan.
    """
    load, capacity, cost = (
        np.ascontiguousarray(array) for array in (arrivals_per_s, capacity_per_s, cost_per_s)
    )
    steps = len(load) // terms.interval_s
    share = np.zeros((steps, len(capacity))) if late_share is None else late_share
    cold = np.zeros(len(capacity), np.int64) if cold_s is None else cold_s
    options = _Options(capacity, cost, share, cold)
    choice, price, merged = _search(load, options, first, terms, labels, False)
    least = price
    if merged:
        least = _search(load, options, first, terms, labels, True)[1]
    return Plan(choice, float(price), float(price - least))
