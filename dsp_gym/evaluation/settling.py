"""Settling time and overshoot after a change of load.

Two of the SASO properties (stability, accuracy, settling time, overshoot) by which DS2 judges a
controller (Kalavri et al., OSDI 2018, section 3), measured on what a policy did, one job at a time.
"""

from __future__ import annotations

import numpy as np

from dsp_gym.arrays import Floats

CHANGE = 0.2
"""Share by which a load must move to count as a change: more than noise."""


def load_changes(rates: Floats, threshold: float = CHANGE) -> list[int]:
    """Find the intervals at which the load has moved by more than a share since the last change.

    Returns:
        Interval numbers; the first one is always among them.

    >>> load_changes(np.array([100, 110, 119, 121, 121, 90]))
    [0, 3, 5]
    """
    changes, reference = [0], rates[0]
    for k, rate in enumerate(rates):
        if abs(rate - reference) > threshold * reference:
            changes.append(k)
            reference = rate
    return changes


def settling_s(changes: list[int], rescales: Floats, slo_s: Floats, interval_s: int) -> float:
    """Return seconds from a change until the job keeps its bound and is rescaled no more, mean.

    Args:
        changes: Intervals at which the load changed.
        rescales: Rescales started in each interval.
        slo_s: SLO seconds of each interval.
        interval_s: Length of an interval.

    Returns:
        The mean over changes. A job that has not settled when the next change comes counts with
        all the time it had.
    """
    times = []
    for begin, end in _segments(changes, len(slo_s)):
        moved = np.flatnonzero(rescales[begin:end])
        last = int(moved[-1]) if len(moved) else 0
        good = np.flatnonzero(slo_s[begin + last : end] == 0)
        times.append(last + int(good[0]) if len(good) else end - begin)
    return float(np.mean(times)) * interval_s


def overshoot(changes: list[int], rescales: Floats, subtasks: Floats) -> float:
    """Return most subtasks a rescale took after a change over those at the end, mean over changes.

    1 is no overshoot. The configuration at the time of the change does not count: it answered
    another load.

    Args:
        changes: Intervals at which the load changed.
        rescales: Rescales started in each interval.
        subtasks: Subtasks decided on for each interval.

    Returns:
        A ratio; 1 without an overshoot.
    """
    standing = _standing(rescales, subtasks)
    ratios = []
    for begin, end in _segments(changes, len(subtasks)):
        taken = subtasks[begin:end][rescales[begin:end] > 0]
        final = float(standing[end - 1])
        ratios.append(max(float(taken.max()) / final, 1.0) if len(taken) and final else 1.0)
    return float(np.mean(ratios))


def _standing(rescales: Floats, subtasks: Floats) -> Floats:
    """Return the last decision: policies of a restarting job hold what they still see."""
    asked = np.where(rescales > 0, np.arange(len(rescales)), 0)
    return subtasks[np.maximum.accumulate(asked)]


def _segments(changes: list[int], end: int) -> list[tuple[int, int]]:
    return list(zip(changes, [*changes[1:], end], strict=True))
