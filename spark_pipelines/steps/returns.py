"""Discounted returns."""

from __future__ import annotations

import numpy as np

from dsp_gym.arrays import Bools, Floats32

__all__ = ["returns_to_go"]


def returns_to_go(reward: Floats32, begins: Bools, gamma: float) -> Floats32:
    """Discounted sum of the rewards from each step to the end of its run; nothing beyond it.

    Args:
        reward: (N,) of runs one after the other, each in order of time.
        begins: (N,) True where a run begins.
        gamma: discount per step.

    Returns:
        Returns (N,).

    >>> rewards = np.array([1, 1, 1, 4], np.float32)
    >>> returns_to_go(rewards, np.array([True, False, False, True]), 0.5)
    array([1.75, 1.5 , 1.  , 4.  ], dtype=float32)
    """
    found = np.empty(len(reward), np.float64)
    future = 0.0
    for i in range(len(reward) - 1, -1, -1):
        found[i] = float(reward[i]) + gamma * future
        future = 0.0 if begins[i] else float(found[i])
    return found.astype(np.float32)
