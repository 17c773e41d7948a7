"""A library of laws of the load, and the job's own minutes as evidence for one or the other.

A law states what a load does in the next minute, given its present state. Which law a load follows
nobody says beforehand: each minute makes those likelier that had expected it (Bayes' rule; a
mixture of experts with forgetting, as in Raftery, Kárný and Ettler, Technometrics 52, 2010). The
planner weighs all laws by these probabilities.

Letters: k one of K laws, s a state, w a place among its W successors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from agents.planning.chain import LoadChain, sparse
from agents.planning.load import STATES
from dsp_gym.arrays import Floats, Ints
from dsp_gym.compiling import njit

_TRUST = 0.5
"""Weight of a minute's evidence: levels are means of several minutes, so that neighbouring minutes

say partly the same.
"""

_UNLISTED = 1e-5
"""Probability that every law leaves for what it does not list."""

_NEGLIGIBLE = 1e-4
"""Probability of a law below which the planner leaves it out."""


class Laws(NamedTuple):
    """K laws, for compiled code."""

    size: Ints  # (K, STATES) successors listed
    state: Ints  # (K, STATES, W)
    probability: Floats  # (K, STATES, W) sums to 1
    minutes: Floats  # (STATES,) weight of a state's law against one minute of the job's own


def laws_of(weights: Iterable[Floats], rare: float) -> Laws:
    """Make laws of their weights.

    Args:
        weights: (STATES, STATES) minutes of each law, as `chain.pooled` returns them; taken one by
            one, since each takes MB.
        rare: Probability at or below which successors are dropped.

    Returns:
        The laws.
    """
    chains, minutes = [], np.zeros(STATES)
    for one in weights:
        chains.append(sparse(one, rare))
        minutes += one.sum(axis=1)
    width = max(chain.state.shape[1] for chain in chains)
    state = np.zeros((len(chains), STATES, width), np.int64)
    probability = np.zeros(state.shape)
    for k, chain in enumerate(chains):
        state[k, :, : chain.state.shape[1]] = chain.state
        probability[k, :, : chain.state.shape[1]] = chain.probability
    size = np.stack([chain.size for chain in chains])
    return Laws(size, state, probability, minutes / len(chains))


@njit(cache=True, nogil=True)
def hear(laws: Laws, before: int, after: int, memory_h: float, evidence: Floats) -> None:
    """Take a minute of a load as evidence.

    Args:
        laws: The laws.
        before: State of the load a minute ago; -1: unknown.
        after: Its state now.
        memory_h: Hours after which evidence counts for a third.
        evidence: (K,) logarithms of the laws' odds, 0 for the likeliest; changed in place.
    """
    count = evidence.shape[0]
    if count == 1 or before < 0 or after < 0:
        return
    kept, best = math.exp(-1.0 / (60.0 * memory_h)), -math.inf
    for k in range(count):
        expected = _UNLISTED
        for w in range(laws.size[k, before]):
            if laws.state[k, before, w] == after:
                expected += laws.probability[k, before, w]
        evidence[k] = kept * evidence[k] + _TRUST * math.log(expected)
        best = max(best, evidence[k])
    for k in range(count):
        evidence[k] -= best


@njit(cache=True, nogil=True)
def shares_of(evidence: Floats) -> Floats:
    """Return the probability of each law.

    Args:
        evidence: (K,) logarithms of their odds, 0 for the likeliest.

    Returns:
        (K,), sums to 1.
    """
    found = np.exp(evidence)
    return np.asarray(found / found.sum())


class SuccessorRow(NamedTuple):
    """The successors of a state, in minutes; scratch of compiled code."""

    minutes: Floats  # (STATES,)
    places: Ints  # (STATES,) of which the first hold the states with any minutes


@njit(cache=True, nogil=True)
def empty_row(states: int) -> SuccessorRow:
    """Make a row without minutes.

    Returns:
        The row.
    """
    return SuccessorRow(np.zeros(states), np.zeros(states, np.int64))


@njit(cache=True, nogil=True)
def add_laws(laws: Laws, shares: Floats, s: int, row: SuccessorRow, listed: int) -> int:
    """Add what all laws together expect after a state.

    Args:
        laws: The laws.
        shares: (K,) probability of each.
        s: The state.
        row: Added to.
        listed: Number of states listed in the row.

    Returns:
        Their number now.
    """
    for k in range(shares.shape[0]):
        if shares[k] > _NEGLIGIBLE:
            weight = laws.minutes[s] * shares[k]
            for w in range(laws.size[k, s]):
                listed = _add(row, laws.state[k, s, w], weight * laws.probability[k, s, w], listed)
    return listed


@njit(cache=True, nogil=True)
def _add(row: SuccessorRow, state: int, minutes: float, listed: int) -> int:
    """Add minutes of a successor; return the number of states listed now."""
    if row.minutes[state] == 0.0:
        row.places[listed] = state
        listed += 1
    row.minutes[state] += minutes
    return listed


@njit(cache=True, nogil=True)
def chain_of(laws: Laws, shares: Floats, own: Ints, own_weight: float, rare: float) -> LoadChain:
    """Merge the laws, and a job's history, into one chain.

    Args:
        laws: The laws.
        shares: (K,) probability of each.
        own: (n,) states the job's load went through; -1: unknown.
        own_weight: Weight of each of its minutes.
        rare: Probability at or below which successors are dropped.

    Returns:
        The chain.
    """
    states = laws.minutes.shape[0]
    first, following = _by_state(own, states)
    row = empty_row(states)
    found = LoadChain(
        np.zeros(states, np.int64), np.zeros((states, 1), np.int64), np.zeros((states, 1))
    )
    # Twice the same sums: the first pass finds the widest row, which the arrays are made for.
    for is_known in (False, True):
        width = 0
        for s in range(states):
            listed = add_laws(laws, shares, s, row, 0)
            i = first[s]
            while i >= 0:
                listed = _add(row, own[i + 1], own_weight, listed)
                i = following[i]
            width = max(width, _moved(row, listed, rare, s, found, is_known))
        if not is_known:
            found = LoadChain(
                found.size, np.zeros((states, width), np.int64), np.zeros((states, width))
            )
    return found


@njit(cache=True, nogil=True)
def _by_state(own: Ints, states: int) -> tuple[Ints, Ints]:
    """List a history by state: the first minute spent in each, and the next one after each; -1."""
    first, following = np.full(states, -1), np.full(own.shape[0], -1)
    for i in range(own.shape[0] - 2, -1, -1):
        if own[i] >= 0 and own[i + 1] >= 0:
            following[i] = first[own[i]]
            first[own[i]] = i
    return first, following


@njit(cache=True, nogil=True)
def _moved(
    row: SuccessorRow, listed: int, rare: float, s: int, chain: LoadChain, is_written: bool
) -> int:
    """Empty a row into a chain, as probabilities; return how many successors are not rare."""
    total, kept, count = 0.0, 0.0, 0
    for i in range(listed):
        total += row.minutes[row.places[i]]
    for i in range(listed):
        minutes = row.minutes[row.places[i]]
        if minutes > rare * total:
            kept += minutes  # without the rare ones: rows sum to 1
    for i in range(listed):
        state = row.places[i]
        if row.minutes[state] > rare * total:
            if is_written:
                chain.state[s, count] = state
                chain.probability[s, count] = row.minutes[state] / kept
            count += 1
        row.minutes[state] = 0.0
    chain.size[s] = count
    return count
