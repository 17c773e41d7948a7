"""A law of the load by hand: a walk that is pulled to a mean, with jumps. Nothing is counted.

The walk is a diffusion, made a chain of the levels by the approximation that keeps its drift
exactly, and its variance where there is no drift (Kushner and Dupuis, Numerical Methods for
Stochastic Control Problems in Continuous Time, 2001, chapter 5). Trend and peak stay as they are:
they say nothing about what such a load does next.
"""

from __future__ import annotations

import math

import numpy as np
from pydantic import Field

from agents.planning.load import BIN, LEVELS, MOODS
from dsp_gym.arrays import Floats
from dsp_gym.config.model import ConfigModel

_MINUTES_PER_H, _MINUTES_PER_DAY = 60.0, 1440.0


class WalkConfig(ConfigModel):
    """The weights of a walk with jumps, in multiples of the job's reference rate."""

    std_1h: float = Field(
        0.1,
        ge=0,
        le=1,
        description="width of the walk: standard deviation of the load's change within an hour",
    )
    pull_per_h: float = Field(
        0.1,
        ge=0,
        le=10,
        description="pull to the mean: the share of its distance that the load goes back per hour",
    )
    jumps_per_day: float = Field(
        4.0,
        ge=0,
        le=_MINUTES_PER_DAY,
        description="jumps expected per day, to any level between zero and twice the mean alike; "
        "1440: every minute is drawn anew, and the present one says nothing",
    )
    mean: float = Field(0.5, gt=0, le=0.8, description="load that the walk is pulled to")


def level_steps(walk: WalkConfig) -> Floats:
    """Compute where the walk leads within a minute.

    Args:
        walk: Its weights.

    Returns:
        (LEVELS, LEVELS) probabilities; rows sum to 1.
    """
    middles = (np.arange(LEVELS) + 0.5) * BIN
    variance = walk.std_1h**2 / _MINUTES_PER_H
    drift = walk.pull_per_h / _MINUTES_PER_H * (walk.mean - middles)
    up = (variance / 2.0 + BIN * np.maximum(drift, 0.0)) / BIN**2
    down = (variance / 2.0 + BIN * np.maximum(-drift, 0.0)) / BIN**2
    up[-1] = down[0] = 0.0  # the ends reflect
    # A wide walk takes several steps of one level within a minute.
    turns = max(1, math.ceil((up + down).max()))
    stay = np.maximum(1.0 - (up + down) / turns, 0.0)
    step = np.diag(stay) + np.diag(up[:-1] / turns, 1) + np.diag(down[1:] / turns, -1)
    jump = np.where(middles < 2.0 * walk.mean, 1.0, 0.0)
    share = walk.jumps_per_day / _MINUTES_PER_DAY
    return np.asarray(
        (1.0 - share) * np.linalg.matrix_power(step, turns) + share * jump / jump.sum()
    )


def walk_weights(walk: WalkConfig, minutes: float) -> Floats:
    """Return the walk as weights of transitions between the load's states.

    Args:
        walk: Its weights.
        minutes: Minutes that it counts for in each state, beside those of a job's own past.

    Returns:
        (STATES, STATES) minutes, as `agents.planning.chain.pooled` returns them.
    """
    return np.asarray(minutes * np.kron(level_steps(walk), np.eye(MOODS)))


def of_levels(weights: Floats) -> Floats:
    """Return the weights of a walk between levels alone: it is the same whatever the mood.

    Args:
        weights: (STATES, STATES), as `walk_weights` returns them.

    Returns:
        (LEVELS, LEVELS) minutes.
    """
    return np.ascontiguousarray(weights[::MOODS, ::MOODS])
