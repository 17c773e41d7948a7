"""Bounds of single rows, for the checks in Spark's words and those in NumPy's alike."""

from __future__ import annotations

__all__ = ["FROM_MS", "LARGEST", "SHARES", "largest_of"]

SHARES = ("busy_ms_per_s", "backpressured_ms_per_s", "idle_ms_per_s")

FROM_MS = 1e11
"""A Unix time of the year 5138; in milliseconds, of 1973."""

LARGEST = 1e18
"""No counter of a job is as large, and no number of bytes."""


def largest_of(metric: str, time_tolerance_ms: float) -> float:
    """The largest value that a metric may have.

    Args:
        metric: its name.
        time_tolerance_ms: by how much a time share may exceed 1000 ms/s.

    Returns:
        A bound in the metric's own unit; `quality.checks.judge` holds the same.

    >>> largest_of("idle_ms_per_s", 100.0), largest_of("tm_cpu_load", 100.0)
    (1100.0, 1.0)
    """
    if metric in SHARES:
        return 1000.0 + time_tolerance_ms
    return 1.0 if metric == "tm_cpu_load" else LARGEST
