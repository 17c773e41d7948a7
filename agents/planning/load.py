"""The state of a load: its level, its trend over an hour, and the height of its recent peak.

All are multiples of the job's reference rate, from means per minute, so that loads of all jobs are
comparable. States are numbered

    state = (level * TRENDS + trend) * PEAKS + peak
"""

from __future__ import annotations

import numpy as np

from dsp_gym.arrays import Floats, Ints
from dsp_gym.compiling import njit

BIN = 0.04
"""Width of a level, as a share of the reference."""

LEVELS, TRENDS, PEAKS = 40, 5, 3
MOODS = TRENDS * PEAKS
"""Number of states that share a level."""

STATES = LEVELS * MOODS

HISTORY = 100
"""Minutes that a state depends on."""

_FALLS, _SINKS, _RISES, _SOARS = -0.18, -0.035, 0.035, 0.18
"""Bounds of the trends: change of the level over an hour."""

_PEAKED, _PEAKED_HIGH = 0.08, 0.22
"""Bounds of the peaks: height of the last 90 minutes' peak above the level."""


def levels() -> Floats:
    """List the middle of each state's level.

    Returns:
        (STATES,) multiples of the reference.
    """
    return np.asarray((np.repeat(np.arange(LEVELS), MOODS) + 0.5) * BIN, np.float64)


@njit(cache=True, nogil=True)
def level_of(minutes: Floats) -> float:
    """Estimate a load's level: a mean of six minutes or, after a jump, the level it led to.

    Args:
        minutes: (n,) load per minute, oldest first; at least one.

    Returns:
        The level, in the unit of the load.
    """
    n = minutes.shape[0]
    last = float(minutes[n - 1])
    if n < 3:
        return last
    before = float(minutes[max(0, n - 6) : n - 1].mean())
    # Changes beyond 12 % (or 6 % of the reference) are jumps; smaller ones are smoothed as noise.
    tolerance = max(0.06, 0.12 * before)
    if abs(last - before) <= tolerance:
        return 0.4 * last + 0.6 * before
    # The first minute of a jump may average over it; a second one nearby confirms the new level.
    one_before = float(minutes[n - 2])
    return 0.5 * (last + one_before) if abs(one_before - last) < tolerance else last


@njit(cache=True, nogil=True)
def state_of(minutes: Floats) -> int:
    """Classify the present state of a load.

    Args:
        minutes: (n,) load per minute as multiples of the reference, oldest first; at least one.

    Returns:
        0 to STATES - 1.
    """
    n = minutes.shape[0]
    level = level_of(minutes)
    # The level an hour ago: a mean from 70 to 50 minutes back.
    low, high = max(0, n - 70), n - 50
    if high <= low:  # younger than an hour: compared with its beginning
        low, high = 0, min(n, 5)
    change = level - minutes[low:high].mean()
    highest = level
    for i in range(max(1, n - 90), n):
        # Means of two minutes, so that a single noisy minute makes no peak.
        highest = max(highest, 0.5 * (minutes[i] + minutes[i - 1]))
    above = highest - level

    place = min(LEVELS - 1, int(level / BIN))
    trend = 4
    if change < _FALLS:
        trend = 0
    elif change < _SINKS:
        trend = 1
    elif change < _RISES:
        trend = 2
    elif change < _SOARS:
        trend = 3
    peak = 0 if above < _PEAKED else 1 if above < _PEAKED_HIGH else 2
    return (place * TRENDS + trend) * PEAKS + peak


@njit(cache=True, nogil=True)
def states_of(minutes: Floats) -> Ints:
    """Classify the states of a whole load.

    Args:
        minutes: (n,) load per minute as multiples of the reference.

    Returns:
        (n,) state at the end of each minute.
    """
    found = np.zeros(minutes.shape[0], np.int64)
    for i in range(minutes.shape[0]):
        found[i] = state_of(minutes[max(0, i + 1 - HISTORY) : i + 1])
    return found
