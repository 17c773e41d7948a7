"""Forecasts from the load's chain: how high a load may get, and how good past forecasts were.

From the present state of the load, the transitions counted in training give the distribution of its
state in 1, 2, ... minutes. The forecast is the highest quantile of the level over these minutes, as
a difference to the middle of the present level, so that it does not depend on the load's place
within its level. Its error is measured on the minutes that the policy remembers: the forecast it
would have made at the time, against the highest level that followed.
"""

from __future__ import annotations

import numpy as np

from agents.planning.load import HISTORY, LEVELS, MOODS, STATES, level_of, levels, state_of
from dsp_gym.arrays import Floats, Ints
from dsp_gym.compiling import njit

AHEAD = 20
"""Minutes of a forecast: Flink's autoscaler cannot decide again earlier after a rescale

(stabilization and window, by default).
"""

QUANTILE = 0.9

_EVERY = 5
"""Minutes between two past forecasts that are checked."""

_LEAST = 30
"""Minutes of load before a forecast that is checked."""


def highest_rises(weights: Floats, states: Ints) -> Floats:
    """Compute the rise of the level's quantile above the present level, over the next minutes.

    Args:
        weights: (STATES, STATES) weights of transitions; rows need not sum to 1.
        states: (n,) present states.

    Returns:
        (n,) multiples of the reference, 0 or more.
    """
    steps = weights / weights.sum(axis=1, keepdims=True)
    middles = levels()
    of_levels = middles[::MOODS]
    chances = np.zeros((len(states), STATES))
    chances[np.arange(len(states)), states] = 1.0
    highest = np.zeros(len(states))
    for _ in range(AHEAD):
        # The Chapman-Kolmogorov equation: one more minute is one more product with the transitions.
        chances = chances @ steps
        below = chances.reshape(-1, LEVELS, MOODS).sum(axis=2).cumsum(axis=1)
        # The tolerance keeps a cumulative sum of exactly the quantile from rounding below it.
        place = np.minimum((below < QUANTILE - 1e-9).sum(axis=1), LEVELS - 1)
        highest = np.maximum(highest, of_levels[place] - middles[states])
    return highest


class LoadForecasts:
    """Forecasts of loads by one chain; the rise from each state is computed once.

    Args:
        weights: (STATES, STATES) weights of transitions; must not be changed afterwards.
    """

    def __init__(self, weights: Floats) -> None:
        self.weights = weights
        self._rises = np.full(STATES, np.nan)

    def look_forward(self, minutes: Floats) -> tuple[float, float]:
        """Forecast one load.

        Args:
            minutes: (n,) load per minute as multiples of the reference, oldest first; at least one.

        Returns:
            The highest quantile of the level over the next minutes, and the mean relative error of
            past forecasts, NaN where the load is too young to measure it.
        """
        states, levels_then, came = _looked_back(np.ascontiguousarray(minutes))
        found = levels_then + self._rises_of(states)
        # Minutes without load have no relative error.
        is_known = came > 0.0
        errors = np.abs(found[:-1][is_known] - came[is_known]) / came[is_known]
        return float(found[-1]), float(errors.mean()) if len(errors) else float("nan")

    def _rises_of(self, states: Ints) -> Floats:
        # Rises are NaN until a load first visits the state: most states never occur.
        missing = np.unique(states[np.isnan(self._rises[states])])
        if len(missing):
            self._rises[missing] = highest_rises(self.weights, missing)
        return self._rises[states]


@njit(cache=True, nogil=True)
def _looked_back(minutes: Floats) -> tuple[Ints, Floats, Floats]:
    """Return states and levels at past minutes and at the last one, and the highest levels after.

    Returns:
        (m + 1,) states, (m + 1,) levels, (m,) highest levels in the minutes after.
    """
    n = minutes.shape[0]
    m = len(range(_LEAST, n - AHEAD + 1, _EVERY))
    states, levels_then, came = np.empty(m + 1, np.int64), np.empty(m + 1), np.empty(m)
    for i in range(m + 1):
        end = n if i == m else _LEAST + i * _EVERY
        past = minutes[max(0, end - HISTORY) : end]
        states[i], levels_then[i] = state_of(past), level_of(past)
        if i < m:
            highest = level_of(minutes[: end + 1])
            for k in range(2, AHEAD + 1):
                highest = max(highest, level_of(minutes[: end + k]))
            came[i] = highest
    return states, levels_then, came
