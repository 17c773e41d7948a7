"""The decision process: expected prices of a minute and of a rescale, and its solution.

State: the load's state and the running configuration, a place on the job's frontier. Every minute
the job keeps its configuration or moves to another one,

    V(s, c) = min( minute(s, c) + g E V(s', c),
                   outage * cost(c) + min over a of move(s, a) + g E V(s', a) )

with g the discount of a minute and s' the load's state after it (Puterman, Markov Decision
Processes, 1994, chapter 6). Hysteresis thus needs no rule: a move has to earn its outage and its
catching up. Money is counted in seconds of the configuration that carries the reference rate, loads
in multiples of that rate.

Letters: s one of the S states of the load, a one of the N places on the frontier, c the prices.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from agents.planning.chain import LoadChain
from dsp_gym.arrays import Floats
from dsp_gym.compiling import njit
from dsp_gym.sizing.lateness import late_share, rescale_late_s

MINUTE = 60.0
"""Seconds of a step."""

_SWEEPS = 2000
"""Largest number of passes over all states."""

_TURNS = 50
"""Largest number of updates of one state while the others keep their values."""

_FAR = 2.5
"""Change of the values by a pass, in tolerances, below which iteration ends. A pass solves every

state, which would take a plain one more than three passes, because a load stays in its state for
most minutes.
"""

_SETTLED = 0.1
"""Share of the tolerance below which a state is solved while the others keep their values."""


class StepPrices(NamedTuple):
    """Prices of one job."""

    late_price: float  # of a late second, in seconds of the reference configuration
    rescale_price: float  # of a rescale beside its outage, in the same seconds
    outage_s: float
    lost_s: float  # lost to cold caches after an outage, in seconds of the capacity
    in_time_s: float  # bound on a record's wait
    noise: float  # standard deviation of the load about its level, relative
    discount: float  # of the next minute
    tolerance: float  # of values, in the same seconds


class Offer(NamedTuple):
    """The N configurations of a job's frontier."""

    capacity: Floats  # (N,) multiples of the reference rate, head-room taken off
    cost: Floats  # (N,) multiples of the reference configuration's


@njit(cache=True, nogil=True)
def minute_price(load: float, capacity: float, cost: float, c: StepPrices) -> float:
    """Price a minute in which the job keeps its configuration.

    Args:
        load: Level of the load.
        capacity: Capacity of the configuration.
        cost: Its cost, as a multiple of the reference configuration's.
        c: Prices.

    Returns:
        Seconds of the reference configuration.
    """
    late_s = MINUTE * late_share(load, capacity, c.noise)
    return cost * MINUTE + c.late_price * late_s


@njit(cache=True, nogil=True)
def move_price(load: float, capacity: float, cost: float, backlog: float, c: StepPrices) -> float:
    """Price the minute in which a rescale to a configuration starts, and its catching up.

    The old configuration is paid for during the outage; the caller adds that.

    Args:
        load: Level of the load.
        capacity: Capacity of the new configuration.
        cost: Cost of the new configuration.
        backlog: Waiting records, in seconds of the reference rate.
        c: Prices.

    Returns:
        Seconds of the reference configuration.
    """
    late_s = rescale_late_s(load, capacity, backlog, c.outage_s, c.in_time_s, c.lost_s)
    rest_s = MINUTE - c.outage_s
    rest = cost * rest_s  # negative for outages beyond a minute, which the old one has paid for
    if rest_s > 0.0:
        rest = minute_price(load, capacity, cost, c) * rest_s / MINUTE
    return c.rescale_price + c.late_price * late_s + rest


@njit(cache=True, nogil=True)
def solve(chain: LoadChain, levels: Floats, offer: Offer, c: StepPrices) -> Floats:
    """Solve by value iteration of the differences between configurations in each load state.

    No decision changes the load: the part of V that all configurations of a state share is
    irrelevant. It would take days of steps to converge, the differences take hours (relative value
    iteration, White, 1963).

    Args:
        chain: Transitions of the load's states.
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
            # Immediate prices do not depend on values: computed once. A move has no backlog to
            # clear here; the look-ahead adds the present one.
            keep[s, a] = minute_price(levels[s], offer.capacity[a], offer.cost[a], c)
            move[s, a] = move_price(levels[s], offer.capacity[a], offer.cost[a], 0.0, c)
    # Buffers are allocated once for all states and passes.
    value, after, prices = keep.copy(), np.zeros(places), np.zeros(places)
    # Gauss-Seidel: a state sees the new values of those before it in the same pass.
    for sweep in range(_SWEEPS):
        worst = 0.0
        for i in range(states):
            # Alternating directions, so that changes cross all levels in one pass either way.
            s = i if sweep % 2 == 0 else states - 1 - i
            stay = _from_others(chain, s, value, c.discount, after)
            worst = max(worst, _settle(keep[s], move[s], after, stay, offer, c, value[s], prices))
        if worst < _FAR * c.tolerance:
            break
    return value


@njit(cache=True, nogil=True)
def _from_others(chain: LoadChain, s: int, value: Floats, discount: float, after: Floats) -> float:
    """Compute expected values after a minute that leads to another state, into `after` (N,).

    Args:
        chain: Transitions of the load's states.
        s: The state.
        value: (S, N) values.
        discount: Discount of a minute.
        after: (N,), written.

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
    """Solve one state while the others keep their values, replacing its values `mine` (N,).

    A load stays in its state for most minutes: one update that reads all other states, followed by
    many that read this state alone, saves most of the work.

    Args:
        keep: (N,) price of a minute without a move.
        move: (N,) price of a minute with a move to each place.
        after: (N,) expected value from the other states.
        stay: Discounted probability of staying in the state.
        offer: The configurations.
        c: Prices.
        mine: (N,) values of the state, replaced.
        prices: (N,) scratch, overwritten.

    Returns:
        Largest change by the first update, which is the influence of the other states.
    """
    places, told = mine.shape[0], 0.0
    for turn in range(_TURNS):
        best = np.inf
        # The best move is the same from every place, but for the old cost during the outage: N
        # steps for all N places instead of N * N.
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
            # Relative values: the least is 0 in every state, which keeps them bounded.
            mine[a] = prices[a] - least
        if turn == 0:
            told = change
        if change < _SETTLED * c.tolerance:
            break
    return told
