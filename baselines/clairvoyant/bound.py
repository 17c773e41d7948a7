r"""The bound: no policy that serves every arrival in time costs less.

Let A(t) be the records that have arrived by second t and D(t) those that a vertex has processed (in
units of job load). A policy is feasible when no second violates the latency bound L and no offered
record was held back. Then, at every vertex that no firing window precedes,

    low(t) <= D(t) <= A(t),      low = min(A(t - L), F(t)).

A(t - L) is the deadline of each arrival. The simulation measures latency as the queue over the rate
at which it drains, summed over the path, which allows other service: F is the least D that passes
this measure. *Sketch:* with waits w_i at the k vertices of a path, the records that have arrived
and have not passed the last vertex are at most (prod(1 + w_i) - 1) (d + e) for its rate d = D(t) -
D(t - 1) and the least rate e of the measure: a vertex whose queue is w d lets at most (1 + w) d in.
The w add up to at most L, so the product is at most (1 + L/k)^k =: 1 + g, and A - D <= g (d + e)
gives F(t) = (A(t) + g (F(t - 1) - e)) / (1 + g).

The cost of each second is at least G(D(t) - D(t - 1)), G the sum over vertices of the lower convex
hull of cost over capacity (`frontier.hull`): a configuration lies on or above the hull, and caches
that warm, windows that fill, contention and faults only take capacity away. G is convex and rising,
so among all D between low and A the *taut string*, the shortest path from 0 to low(T), makes the
sum of G least (for every convex G at once). Rescaling is free and takes no time. Each step only
relaxes the problem, so the sum is a lower bound. Service times are the model's means: their noise
is independent of everything a policy can know and, within a tenth of a per cent, gains nothing on
average.
"""

from __future__ import annotations

import math

import numpy as np

from baselines.clairvoyant.frontier import hull, released_every_s
from dsp_gym.arrays import Floats, Ints
from dsp_gym.job.service import compiled
from dsp_gym.job.tables import JobTables

_LEAST = 0.01
"""Least rate by which the simulation divides a backlog, share of the reference rate."""


@compiled
def _least_served(arrived: Floats, deadline_s: int, lag_s: float, spare: float) -> Floats:
    """Return the least records served by the end of each second; `arrived` is cumulated, (T,)."""
    least = np.zeros(arrived.shape[0])  # low(t); t is a second, `measured` is F(t)
    measured = 0.0
    for t in range(arrived.shape[0]):
        measured = max(measured, (arrived[t] + lag_s * (measured - spare)) / (1.0 + lag_s))
        due = arrived[t - deadline_s] if t >= deadline_s else 0.0
        least[t] = min(due, measured)
    return least


@compiled
def taut_string(low: Floats, high: Floats) -> Floats:
    """Return increments of the shortest path from 0 to low[-1] that stays between the two curves.

    t is a second; `below` and `above` are the slopes from the last knot to the two curves.

    Returns:
        Increments by second, each 0 or more, of the shape of `low`.
    """
    size = low.shape[0]
    rates = np.zeros(size)
    start, height = -1, 0.0  # the curves' values stand at the ends of their seconds
    # The funnel algorithm: widen the view second by second until no straight line passes between
    # the curves; then the path bends at the corner that blocks it.
    while start < size - 1:
        steepest, at_high = math.inf, size - 1
        flattest, at_low = -math.inf, size - 1
        stop, reached = size - 1, low[size - 1]
        for t in range(start + 1, size):
            seconds = t - start
            above = ((low[t] if t == size - 1 else high[t]) - height) / seconds
            below = (low[t] - height) / seconds
            # Every line would cross the upper curve: bend at its lowest corner, else at the lower
            # curve's highest corner.
            if below > steepest:
                stop, reached = at_high, high[at_high]
                break
            if above < flattest:
                stop, reached = at_low, low[at_low]
                break
            if above <= steepest:
                steepest, at_high = above, t
            if below >= flattest:
                flattest, at_low = below, t
        for t in range(start + 1, stop + 1):
            rates[t] = max(0.0, (reached - height) / (stop - start))
        start, height = stop, reached
    return rates


def _depth(tables: JobTables, k: int) -> int:
    """Count the vertices on the longest path from a source before any window that fires."""
    fired = released_every_s(tables, k) > 0
    depth = np.ones(int(tables.n[k]), np.int64)
    for v in range(len(depth)):
        for u in tables.upstream[k, v]:
            if u >= 0:
                depth[v] = max(depth[v], depth[u] + 1)
    return int(depth[~fired].max())


def needed_per_s(tables: JobTables, k: int, rates_per_s: Floats) -> Floats:
    """Find the steadiest service of a load in time.

    Args:
        tables: Compiled jobs.
        k: Row of the job.
        rates_per_s: (T,) arrivals in each second.

    Returns:
        (T,) records/s served in each second.
    """
    bound_s, depth = float(tables.slo_s[k]), _depth(tables, k)
    # lag_s is g of the module's formula, spare its e.
    lag_s = (1.0 + bound_s / depth) ** depth - 1.0
    arrived = np.cumsum(rates_per_s)
    spare = max(1e-9, _LEAST * float(tables.rate_per_s[k]))
    low = _least_served(arrived, math.ceil(bound_s), lag_s, spare)
    return np.asarray(taut_string(low, arrived))


def bounds(tables: JobTables, row: Ints, rates_per_s: Floats) -> tuple[Floats, Floats]:
    """Bound the cost of each run from below.

    Args:
        tables: Compiled jobs.
        row: (J,) job of each run, a row of the tables.
        rates_per_s: (J, T) arrivals in each second.

    Returns:
        Least cost of each run, money, and the highest rate its steadiest service needs, records/s;
        both (J,).
    """
    hulls = {k: hull(tables, k) for k in np.unique(row).tolist()}
    least, highest = np.zeros(len(row)), np.zeros(len(row))
    for j, k in enumerate(row.tolist()):
        needed = needed_per_s(tables, k, rates_per_s[j])
        least[j] = float(np.cumsum(hulls[k](needed))[-1])
        highest[j] = float(needed.max())
    return least, highest
