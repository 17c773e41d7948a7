"""A forecast from the load's chain: how high the load may get, and how good such forecasts were.

From the state of the load now, the transitions that training counted give the distribution of its
state in 1, 2, ... minutes. The forecast is the highest of the quantiles of the level, as a
difference to the middle of the level now, so that it does not depend on where in its level the
load is. Its error is measured on the minutes that the policy remembers: the forecast that it would
have made then, against the highest level that came.
"""

from __future__ import annotations

import numpy as np

from agents.planning.load import HISTORY, LEVELS, MOODS, STATES, level_of, levels, state_of
from dsp_gym.arrays import Floats, Ints

__all__ = ["AHEAD", "QUANTILE", "highest_rises", "look_forward"]

AHEAD = 20
"""Minutes: Flink's autoscaler cannot decide again earlier after a rescale (stabilization and
window, by default)."""

QUANTILE = 0.9

_EVERY = 5
"""Minutes between two past forecasts that are checked."""

_LEAST = 30
"""Minutes of load before a forecast that is checked."""


def highest_rises(weights: Floats, states: Ints) -> Floats:
    """How far the quantile of the level rises above the level now, over the next minutes.

    Args:
        weights: (STATES, STATES) of transitions; rows need not sum to 1.
        states: (n,) now.

    Returns:
        (n,) multiples of the reference; at least 0.
    """
    steps = weights / weights.sum(axis=1, keepdims=True)
    middles = levels()
    of_levels = middles[::MOODS]
    chances = np.zeros((len(states), STATES))
    chances[np.arange(len(states)), states] = 1.0
    highest = np.zeros(len(states))
    for _ in range(AHEAD):
        chances = chances @ steps
        below = chances.reshape(-1, LEVELS, MOODS).sum(axis=2).cumsum(axis=1)
        place = np.minimum((below < QUANTILE - 1e-9).sum(axis=1), LEVELS - 1)
        highest = np.maximum(highest, of_levels[place] - middles[states])
    return highest


def look_forward(weights: Floats, minutes: Floats) -> tuple[float, float]:
    """Forecasts one load.

    Args:
        weights: (STATES, STATES) of transitions.
        minutes: (n,) the load, as multiples of the reference, oldest first; at least one.

    Returns:
        The highest quantile of the level over the next minutes, and the mean relative error of past
        forecasts, NaN where the load is too young to tell.
    """
    n = len(minutes)
    starts = list(range(_LEAST, n - AHEAD + 1, _EVERY))
    pasts = [minutes[max(0, end - HISTORY) : end] for end in [*starts, n]]
    rises = highest_rises(weights, np.array([state_of(past) for past in pasts], np.int64))
    found = [level_of(past) + rise for past, rise in zip(pasts, rises.tolist(), strict=True)]
    errors = []
    for end, forecast in zip(starts, found, strict=False):
        came = max(level_of(minutes[: end + k]) for k in range(1, AHEAD + 1))
        if came > 0.0:
            errors.append(abs(forecast - came) / came)
    return found[-1], float(np.mean(errors)) if errors else float("nan")
