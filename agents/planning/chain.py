"""Transitions between the states of a load: counted on training loads, pooled where thin.

A load that rises from 0.3 to 0.34 is informative about one that rises from 0.5 to 0.54. A state's
counts are therefore complemented by those of its neighbours in level, as increments of the level,
with a fixed total weight in minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save as save_tensors

from agents.planning.load import BIN, LEVELS, MOODS, STATES, states_of
from agents.tensors import MOST_BYTES, load_tensors
from dsp_gym.arrays import Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.config.files import write_atomic
from dsp_gym.errors import PolicyError
from dsp_gym.policies.folder_files import read_regular

TABLE = Path(__file__).resolve().parent / "transitions.safetensors"
"""Counts that are shipped with the package."""

_JUMP = 12
"""Largest change of the level in a minute that is pooled among neighbours, in levels."""

_NEIGHBOURS = 4.0
"""Distance in levels at which a neighbour's weight falls to 1 / e."""

_REMEDY = "Make one: python -m agents.studies.planning BENCHMARK --out FILE"

RARE = 2e-4
"""Probability at or below which successors are dropped."""


class LoadChain(NamedTuple):
    """Probabilities of the next minute's state, up to W successors per state."""

    size: Ints  # (STATES,) places used
    state: Ints  # (STATES, W)
    probability: Floats  # (STATES, W) sums to 1


def counted(loads: Iterable[Floats]) -> Floats:
    """Count how often a state follows another.

    Args:
        loads: Loads, each (n,) means per minute as multiples of a reference.

    Returns:
        (STATES, STATES) minutes.
    """
    counts = np.zeros((STATES, STATES))
    for minutes in loads:
        states = states_of(np.ascontiguousarray(minutes))
        # `add.at`, not `+=`: the same pair occurs many times in one call.
        np.add.at(counts, (states[:-1], states[1:]), 1.0)
    return counts


def pooled(counts: Floats, minutes: float) -> Floats:
    """Add to each state's counts those of its neighbours in level.

    Args:
        counts: (STATES, STATES), as `counted` returns them.
        minutes: Total weight of the neighbours.

    Returns:
        (STATES, STATES) minutes; every row has some.
    """
    # A state is (level, mood): mood stands for trend and peak together. jumps[l, m, d, m'] counts
    # transitions from level l by d levels, from mood m to m'.
    by_level = counts.reshape(LEVELS, MOODS, LEVELS, MOODS)
    jumps = np.zeros((LEVELS, MOODS, 2 * _JUMP + 1, MOODS))
    places = np.arange(LEVELS)
    for jump in range(-_JUMP, _JUMP + 1):
        inside = places[(places + jump >= 0) & (places + jump < LEVELS)]
        jumps[inside, :, jump + _JUMP] = by_level[inside, :, inside + jump]
    # Weights exp(-|distance| / 4) sum the increments over the neighbouring levels.
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
def sparse(weights: Floats, rare: float = RARE) -> LoadChain:
    """Turn counts into probabilities.

    Args:
        weights: (n, STATES) as `pooled` returns them, of all states or of some.
        rare: Probability at or below which successors are dropped.

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
            if full[s, a] > rare:
                count[s] += 1
        width = max(width, count[s])
    state, probability = np.zeros((states, width), np.int64), np.zeros((states, width))
    for s in range(states):
        place, total = 0, 0.0
        for a in range(size):
            if full[s, a] > rare:
                # Dropping rare successors loses probability: rows are normalised again.
                state[s, place], probability[s, place] = a, full[s, a]
                total += full[s, a]
                place += 1
        for i in range(place):
            probability[s, i] /= total
    return LoadChain(count, state, probability)


def packed(counts: Floats) -> dict[str, NDArray[np.generic]]:
    """Pack counts as pairs of states with minutes.

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
    """Read the arrays that `packed` returned.

    Args:
        table: The arrays.
        file: Source of the arrays, for errors.
        remedy: Advice on how to make another table.

    Returns:
        (STATES, STATES) minutes.

    Raises:
        PolicyError: They are not such arrays.
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
    """Write counts as a table of pairs of states with minutes."""
    write_atomic(file, save_tensors(packed(counts)))


def read_counts(file: Path) -> Floats:
    """Read a table that `write_counts` wrote.

    Returns:
        (STATES, STATES) minutes.

    Raises:
        PolicyError: There is no such file, or it is not such a table.
    """
    try:
        table = load_tensors(read_regular(file, MOST_BYTES), file)
    except (OSError, PolicyError) as error:
        raise _unreadable(error, file, _REMEDY) from error
    return unpacked(table, file, _REMEDY)


def _unreadable(error: Exception, file: Path, remedy: str) -> PolicyError:
    return PolicyError(
        f"the table of load transitions cannot be read: {error}", file=file, remedy=remedy
    )


def highest_level(counts: Floats) -> float:
    """Return the highest level that was counted.

    Returns:
        Its upper bound, as a multiple of the reference.
    """
    seen = np.flatnonzero(counts.any(axis=0) | counts.any(axis=1))
    return float((seen.max() // MOODS + 1) * BIN)
