"""The decision process: what a minute and a rescale are expected to cost, and its solution.

State: the load's state and the running configuration, a place on the job's frontier. Every minute
the job keeps its configuration or moves to another one,

    V(s, c) = min( minute(s, c) + g E V(s', c),
                   outage * cost(c) + min over a of move(s, a) + g E V(s', a) )

so hysteresis needs no rule: a move has to earn its outage and its catching up. Money counts in
seconds of the configuration that carries the reference rate, loads in multiples of that rate.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from agents.planning.chain import LoadChain
from dsp_gym.arrays import Floats
from dsp_gym.compiling import njit
from dsp_gym.sizing.lateness import late_share, rescale_late_s

__all__ = ["MINUTE", "Offer", "StepPrices", "minute_price", "move_price", "solve"]

MINUTE = 60.0
"""Seconds of a step."""

_SWEEPS = 2000
"""Passes over all states, at most."""

_TURNS = 50
"""Updates of one state for given values of the others, at most."""

_FAR = 2.5
"""Tolerances a pass may change the values by: it settles every state, and a plain one would need
more than three passes for that, because a load stays in its state for most minutes."""

_SETTLED = 0.1
"""Share of the tolerance below which a state is solved for given values of the others."""


class StepPrices(NamedTuple):
    """Prices of one job."""

    late_price: float  # of a late second, in seconds of the reference configuration
    rescale_price: float  # of a rescale beside its outage, in the same seconds
    outage_s: float
    lost_s: float  # to cold caches after an outage, in seconds of the capacity
    in_time_s: float  # that a record may wait
    noise: float  # of the load about its level
    discount: float  # of the next minute
    tolerance: float  # of values, in the same seconds


class Offer(NamedTuple):
    """The N configurations of a job's frontier."""

    capacity: Floats  # (N,) multiples of the reference rate, head-room taken off
    cost: Floats  # (N,) multiples of the reference configuration's


@njit(cache=True, nogil=True)
def minute_price(load: float, capacity: float, cost: float, c: StepPrices) -> float:
    """Price of a minute in which the job keeps its configuration.

    Returns:
        Seconds of the reference configuration.
    """
    late_s = MINUTE * late_share(load, capacity, c.noise)
    return cost * MINUTE + c.late_price * late_s


@njit(cache=True, nogil=True)
def move_price(load: float, capacity: float, cost: float, backlog: float, c: StepPrices) -> float:
    """Price of the minute in which a rescale to a configuration begins, and of its catching up.

    The old configuration is paid for during the outage; the caller adds that.

    Args:
        load: Level of the load.
        capacity: Of the new configuration.
        cost: Of the new configuration.
        backlog: Waiting records, in seconds of the reference rate.
        c: Prices.

    Returns:
        Seconds of the reference configuration.
    """
    late_s = rescale_late_s(load, capacity, backlog, c.outage_s, c.in_time_s, c.lost_s)
    rest_s = MINUTE - c.outage_s
    rest = cost * rest_s  # an outage of more than a minute was paid by the old configuration
    if rest_s > 0.0:
        rest = minute_price(load, capacity, cost, c) * rest_s / MINUTE
    return c.rescale_price + c.late_price * late_s + rest


@njit(cache=True, nogil=True)
def solve(chain: LoadChain, levels: Floats, offer: Offer, c: StepPrices) -> Floats:
    """Value iteration, of the differences between configurations in each state of the load.

    No decision changes the load, so what all configurations of a state share decides nothing; it
    would take days of steps to settle, the differences take hours.

    Args:
        chain: How the load's states follow each other.
        levels: (S,) level of the load in each state.
        offer: The configurations.
        c: Prices.

    Returns:
        (S, N) expected price from a state on, above that of the best configuration there.
    """
    states, places = levels.shape[0], offer.cost.shape[0]
    keep, move = np.zeros((states, places)), np.zeros((states, places))
    for s in range(states):
        for a in range(places):
            keep[s, a] = minute_price(levels[s], offer.capacity[a], offer.cost[a], c)
            move[s, a] = move_price(levels[s], offer.capacity[a], offer.cost[a], 0.0, c)
    value, after, prices = keep.copy(), np.zeros(places), np.zeros(places)
    for sweep in range(_SWEEPS):
        worst = 0.0
        for i in range(states):
            # There and back, so that news crosses the levels in one sweep either way.
            s = i if sweep % 2 == 0 else states - 1 - i
            stay = _from_others(chain, s, value, c.discount, after)
            worst = max(worst, _settle(keep[s], move[s], after, stay, offer, c, value[s], prices))
        if worst < _FAR * c.tolerance:
            break
    return value


@njit(cache=True, nogil=True)
def _from_others(chain: LoadChain, s: int, value: Floats, discount: float, after: Floats) -> float:
    """Expected values after a minute that leads to another state, into `after` (N,).

    Returns:
        Weight of the state itself: the discounted probability that the load stays in it.
    """
    stay = 0.0
    after[:] = 0.0
    for i in range(chain.size[s]):
        weight = chain.probability[s, i] * discount
        if chain.state[s, i] == s:
            stay += weight
            continue
        following = value[chain.state[s, i]]
        for a in range(after.shape[0]):
            after[a] += weight * following[a]
    return stay


@njit(cache=True, nogil=True)
def _settle(
    keep: Floats,
    move: Floats,
    after: Floats,
    stay: float,
    offer: Offer,
    c: StepPrices,
    mine: Floats,
    prices: Floats,
) -> float:
    """Solves one state for given values of the others, in place of its own value `mine` (N,).

    `prices` (N,) is written over.

    A load stays in its state for most minutes, so one update of a state that looks at all others
    and then many that look at itself alone save most of the work.

    Returns:
        Largest change that the first update made: what the others had to tell.
    """
    places, told = mine.shape[0], 0.0
    for turn in range(_TURNS):
        best = np.inf
        for a in range(places):
            best = min(best, move[a] + after[a] + stay * mine[a])
        least = np.inf
        for a in range(places):
            kept = keep[a] + after[a] + stay * mine[a]
            prices[a] = min(kept, best + offer.cost[a] * c.outage_s)
            least = min(least, prices[a])
        change = 0.0
        for a in range(places):
            change = max(change, abs(prices[a] - least - mine[a]))
            mine[a] = prices[a] - least
        if turn == 0:
            told = change
        if change < _SETTLED * c.tolerance:
            break
    return told
