"""When a policy that acts at intervals is due, on the clock of a real loop."""

from __future__ import annotations

from dsp_gym.compiling import njit

__all__ = ["EARLY_S", "is_due"]

EARLY_S = 2.5
"""How early an interval may end and how late a sample may be, s: half a sample of the metrics.

A real loop decides some milliseconds before or after its time. Were an interval to be over to the
millisecond, it would last two decisions as often as one. Simulated decisions are whole samples
apart, so this changes none.
"""

_EARLY_SHARE = 0.05
"""The same as a share of short intervals."""


@njit(cache=True, nogil=True)
def is_due(t_s: float, last_s: float, interval_s: float) -> bool:
    """Whether an interval is over.

    Args:
        t_s: Now.
        last_s: When it began.
        interval_s: How long it is.

    Returns:
        True from shortly before its end on.

    >>> is_due(59.997, 0.0, 60.0), is_due(55.0, 0.0, 60.0), is_due(0.98, 0.0, 1.0)
    (True, False, True)
    """
    return t_s - last_s >= interval_s - min(EARLY_S, _EARLY_SHARE * interval_s)
