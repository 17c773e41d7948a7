"""How the states of a load follow each other: counted on training loads, pooled where thin.

A load that rises from 0.3 to 0.34 tells something about one that rises from 0.5 to 0.54. So a
state's own counts are added to those of its neighbours in level, taken as increments of the level,
which count for a fixed number of minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from agents.planning.load import BIN, LEVELS, MOODS, STATES, states_of
from dsp_gym.arrays import Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.config.files import write_atomic
from dsp_gym.errors import PolicyError

__all__ = [
    "TABLE",
    "LoadChain",
    "counted",
    "highest_level",
    "packed",
    "pooled",
    "read_counts",
    "sparse",
    "unpacked",
    "with_own",
    "write_counts",
]

TABLE = Path(__file__).resolve().parent / "transitions.safetensors"
"""Counts that travel with the package."""

_JUMP = 12
"""Largest change of the level in a minute that neighbours are told of, in levels."""

_NEIGHBOURS = 4.0
"""Levels after which a neighbour counts for a third."""

_REMEDY = "Make one: python -m agents.studies.planning BENCHMARK --out FILE"

_RARE = 2e-4
"""Less probable successors are left out."""


class LoadChain(NamedTuple):
    """Probabilities of the next minute's state, W places per state."""

    size: Ints  # (STATES,) places used
    state: Ints  # (STATES, W)
    probability: Floats  # (STATES, W) sums to 1


def counted(loads: Iterable[Floats]) -> Floats:
    """Counts how often a state follows another.

    Args:
        loads: Each (n,) means of a minute, as multiples of a reference.

    Returns:
        (STATES, STATES) minutes.
    """
    counts = np.zeros((STATES, STATES))
    for minutes in loads:
        states = states_of(np.ascontiguousarray(minutes))
        np.add.at(counts, (states[:-1], states[1:]), 1.0)
    return counts


def pooled(counts: Floats, minutes: float) -> Floats:
    """Adds to each state's counts what its neighbours in level did.

    Args:
        counts: (STATES, STATES) as `counted` gives them.
        minutes: Weight of the neighbours in all.

    Returns:
        (STATES, STATES) minutes; each row has some.
    """
    by_level = counts.reshape(LEVELS, MOODS, LEVELS, MOODS)
    jumps = np.zeros((LEVELS, MOODS, 2 * _JUMP + 1, MOODS))
    places = np.arange(LEVELS)
    for jump in range(-_JUMP, _JUMP + 1):
        inside = places[(places + jump >= 0) & (places + jump < LEVELS)]
        jumps[inside, :, jump + _JUMP] = by_level[inside, :, inside + jump]
    near = np.exp(-np.abs(places[:, None] - places) / _NEIGHBOURS)
    shared = np.einsum("ab,bmcn->amcn", near, jumps)
    total = shared.sum(axis=(2, 3), keepdims=True)
    shares = np.divide(shared, total, out=np.zeros_like(shared), where=total > 0)
    found = by_level.copy()
    for jump in range(-_JUMP, _JUMP + 1):
        to = np.clip(places + jump, 0, LEVELS - 1)
        for level in range(LEVELS):
            found[level, :, to[level]] += minutes * shares[level, :, jump + _JUMP]
    weights = found.reshape(STATES, STATES)
    never = np.flatnonzero(weights.sum(axis=1) == 0)
    weights[never, never] = minutes  # a state never seen anywhere stays as it is
    return weights


@njit(cache=True, nogil=True)
def sparse(weights: Floats) -> LoadChain:
    """Turns counts into probabilities.

    Args:
        weights: (n, STATES) as `pooled` gives them, of all states or of some.

    Returns:
        The chain of these n states.
    """
    states, size = weights.shape
    count, width = np.zeros(states, np.int64), 0
    full = weights.copy()
    for s in range(states):
        total = full[s].sum()
        for a in range(size):
            full[s, a] /= total
            if full[s, a] > _RARE:
                count[s] += 1
        width = max(width, count[s])
    state, probability = np.zeros((states, width), np.int64), np.zeros((states, width))
    for s in range(states):
        place, total = 0, 0.0
        for a in range(size):
            if full[s, a] > _RARE:
                state[s, place], probability[s, place] = a, full[s, a]
                total += full[s, a]
                place += 1
        for i in range(place):
            probability[s, i] /= total
    return LoadChain(count, state, probability)


@njit(cache=True, nogil=True)
def with_own(chain: LoadChain, weights: Floats, own: Ints, own_weight: float) -> LoadChain:
    """Adds a job's own history to a chain; of most states it has nothing to tell.

    Args:
        chain: `sparse(weights)`.
        weights: (STATES, STATES) as `pooled` gives them.
        own: (n,) states the job's load went through; -1: unknown.
        own_weight: What one of its minutes counts for.

    Returns:
        The chain of the counts together.
    """
    size, told = weights.shape[0], 0
    place = np.full(size, -1)
    for i in range(own.shape[0] - 1):
        if own[i] >= 0 and own[i + 1] >= 0 and place[own[i]] < 0:
            place[own[i]] = told
            told += 1
    counts = np.empty((told, size))
    for s in range(size):
        if place[s] >= 0:
            counts[place[s]] = weights[s]
    for i in range(own.shape[0] - 1):
        if own[i] >= 0 and own[i + 1] >= 0:
            counts[place[own[i]], own[i + 1]] += own_weight
    new = sparse(counts)

    width = max(chain.state.shape[1], new.state.shape[1])
    found = LoadChain(chain.size.copy(), np.zeros((size, width), np.int64), np.zeros((size, width)))
    for s in range(size):
        part, row = (new, place[s]) if place[s] >= 0 else (chain, s)
        found.size[s] = part.size[row]
        for i in range(part.size[row]):
            found.state[s, i] = part.state[row, i]
            found.probability[s, i] = part.probability[row, i]
    return found


def packed(counts: Floats) -> dict[str, NDArray[np.generic]]:
    """Packs counts as pairs of states and minutes.

    Returns:
        Arrays of one length by name.
    """
    before, after = np.nonzero(counts)
    return {
        "before": before.astype(np.uint16),
        "after": after.astype(np.uint16),
        "minutes": counts[before, after].astype(np.float32),
    }


def unpacked(table: Mapping[str, NDArray[np.generic]], file: Path, remedy: str) -> Floats:
    """Reads what `packed` made.

    Args:
        table: The arrays.
        file: Where they stood, for errors.
        remedy: How to make another one.

    Returns:
        (STATES, STATES) minutes.

    Raises:
        PolicyError: They are something else.
    """
    counts = np.zeros((STATES, STATES))
    try:
        before, after = table["before"].astype(np.int64), table["after"].astype(np.int64)
        counts[before, after] = table["minutes"].astype(np.float64)
    except (KeyError, IndexError, ValueError) as error:
        raise _unreadable(error, file, remedy) from error
    if not (np.isfinite(counts).all() and counts.min() >= 0.0 and counts.sum() > 0.0):
        raise PolicyError(
            "the table of load transitions holds counts that are negative, or none",
            file=file,
            remedy=remedy,
        )
    return counts


def write_counts(file: Path, counts: Floats) -> None:
    """Writes counts as a table of pairs of states and minutes."""
    write_atomic(file, save_tensors(packed(counts)))


def read_counts(file: Path) -> Floats:
    """Reads what `write_counts` wrote.

    Returns:
        (STATES, STATES) minutes.

    Raises:
        PolicyError: There is no such file, or it holds something else.
    """
    try:
        table = load_tensors(file.read_bytes())
    except (OSError, SafetensorError) as error:
        raise _unreadable(error, file, _REMEDY) from error
    return unpacked(table, file, _REMEDY)


def _unreadable(error: Exception, file: Path, remedy: str) -> PolicyError:
    return PolicyError(
        f"the table of load transitions cannot be read: {error}", file=file, remedy=remedy
    )


def highest_level(counts: Floats) -> float:
    """Finds the highest level that was counted.

    Returns:
        Its upper bound, as a multiple of the reference.
    """
    seen = np.flatnonzero(counts.any(axis=0) | counts.any(axis=1))
    return float((seen.max() // MOODS + 1) * BIN)
