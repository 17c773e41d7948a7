"""Forecasts of a load: an autoregression of its differences, and a straight line beside it.

Daedalus fits ARIMA models whose orders a library searches, up to 5. Here the order is fixed: least
squares on the first differences, ARIMA(p, 1, 0), fitted again in every loop.
"""

from __future__ import annotations

import numpy as np

from baselines.cholesky import factor, substitute
from dsp_gym.arrays import Floats
from dsp_gym.compiling import njit

RIDGE = 1e-9
"""Share of its diagonal that is added to the system: a load without changes has no other answer."""

LEAST_PER_COEFFICIENT = 5
"""Differences per coefficient without which nothing is fitted."""

TREND = 5
"""Values that the straight line runs through; theirs are the 60 values of the last minute."""


@njit(cache=True, nogil=True)
def forecast_differences(load: Floats, order: int, ahead: Floats) -> bool:
    """Forecast a load by an autoregression of its differences.

    Args:
        load: (n,) past values at equal distances, oldest first.
        order: Differences that the next one depends on.
        ahead: (steps,) filled with the next values, 0 or more.

    Returns:
        False where the past is too short to fit, or tells nothing; nothing is filled in then.
    """
    n = load.shape[0] - 1
    if n < order * LEAST_PER_COEFFICIENT:
        return False
    # The last differences stand behind those that are forecast, which join them one by one.
    change, steps = np.empty(n + ahead.shape[0]), ahead.shape[0]
    for i in range(n):
        change[i] = load[i + 1] - load[i]
    # Normal equations of change[i] = sum over k of weights[k] * change[i - 1 - k].
    system, weights = np.zeros((order, order)), np.zeros(order)
    for i in range(order, n):
        for k in range(order):
            weights[k] += change[i] * change[i - 1 - k]
            for m in range(k + 1):
                system[k, m] += change[i - 1 - k] * change[i - 1 - m]
    for k in range(order):
        system[k, k] *= 1.0 + RIDGE
    if not factor(system):
        return False
    substitute(system, weights)
    value = load[n]
    for i in range(n, n + steps):
        change[i] = 0.0
        for k in range(order):
            change[i] += weights[k] * change[i - 1 - k]
        value += change[i]
        ahead[i - n] = max(0.0, value)
    return True


@njit(cache=True, nogil=True, borrows=True)
def forecast_line(load: Floats, ahead: Floats) -> None:
    """Forecast a load by the straight line through its last values (least squares).

    Args:
        load: (n,) past values at equal distances, oldest first, at least one.
        ahead: (steps,) filled with the next values, 0 or more.
    """
    n = min(TREND, load.shape[0])
    first = load.shape[0] - n
    middle, mean = (n - 1) / 2.0, 0.0
    for i in range(n):
        mean += load[first + i] / n
    above = below = 0.0
    for i in range(n):
        above += (i - middle) * (load[first + i] - mean)
        below += (i - middle) ** 2
    slope = above / below if below > 0.0 else 0.0
    for s in range(ahead.shape[0]):
        ahead[s] = max(0.0, mean + slope * (n + s - middle))
