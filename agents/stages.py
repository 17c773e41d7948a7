"""Common parts of the learners of all kinds of agents: stages, and a stop before the end."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["OnStage", "TrainingInterrupted"]

OnStage = Callable[[str, int, int, dict[str, float]], None]
"""Callback with a stage ("imitate", "offline", "count", "learn"), the work done and in all, and

figures.
"""


class TrainingInterrupted(Exception):
    """Training was asked to stop, and did so after writing a checkpoint."""
