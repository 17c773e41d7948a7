"""Due times of policies that act at intervals, on the clock of a real loop."""

from __future__ import annotations

from dsp_gym.compiling import njit

EARLY_S = 2.5
"""Tolerance of an interval's end and of a sample's age, s: half a sample of the metrics.

A real loop decides some milliseconds before or after its time. If intervals were exact to the
millisecond, every other interval would last two decisions. Simulated decisions are whole samples
apart, so the tolerance changes none.
"""

_EARLY_SHARE = 0.05
"""The same as a share of short intervals."""


@njit(cache=True, nogil=True)
def is_due(t_s: float, last_s: float, interval_s: float) -> bool:
    """Return whether an interval is over.

    Args:
        t_s: The present time.
        last_s: Begin of the interval.
        interval_s: Length of the interval.

    Returns:
        True from shortly before its end on.

    >>> is_due(59.997, 0.0, 60.0), is_due(55.0, 0.0, 60.0), is_due(0.98, 0.0, 1.0)
    (True, False, True)
    """
    return t_s - last_s >= interval_s - min(EARLY_S, _EARLY_SHARE * interval_s)
