"""One move of one vertex per decision: a flat `Discrete` action, as DQN and its kin need it.

Choice 0 holds. Then come, vertex by vertex, six moves of parallelism and two of memory: every move
of `dsp_gym.envs.action` that is not holding.
"""

from __future__ import annotations

import numpy as np

from dsp_gym.arrays import Bools, Ints
from dsp_gym.envs.action import LOGITS, MOVES

OF_A_VERTEX = LOGITS - 2
"""Choices of one vertex: all its moves but holding, which is choice 0 for the whole job."""


def choices_of(vertices: int) -> int:
    """Count the choices of a single move.

    Returns:
        One for holding, and a fixed number for each vertex.

    >>> choices_of(3)
    25
    """
    return 1 + OF_A_VERTEX * vertices


def pairs_of(choices: Ints, vertices: int) -> Ints:
    """Translate choices to moves and memory moves of every vertex.

    Args:
        choices: (J,) choices.
        vertices: V.

    Returns:
        (J, V * 2) actions of `dsp_gym.envs.action`.

    >>> pairs_of(np.array([0, 1, 7, 14]), 2).tolist()
    [[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 6, 0]]
    """
    pairs = np.zeros((len(choices), vertices, 2), np.int64)
    # A choice is 1 + 8 v + m: moves 1..6 of parallelism, then moves 1..2 of memory.
    rows = np.flatnonzero(choices)
    vertex, move = np.divmod(choices[rows] - 1, OF_A_VERTEX)
    of_memory = (move >= MOVES - 1).astype(np.int64)
    pairs[rows, vertex, of_memory] = 1 + move - of_memory * (MOVES - 1)
    return pairs.reshape(len(choices), -1)


def masks_of(masks: Bools) -> Bools:
    """Mark the valid choices.

    Args:
        masks: (J, V * 10) flags of all moves.

    Returns:
        (J, 1 + V * 8) flags; holding is always valid.
    """
    # Of each vertex, the columns HOLD and KEEP go; holding comes back once, in front.
    moves = np.delete(masks.reshape(len(masks), -1, LOGITS), [0, MOVES], axis=2)
    return np.concatenate([np.ones((len(masks), 1), bool), moves.reshape(len(masks), -1)], axis=1)
