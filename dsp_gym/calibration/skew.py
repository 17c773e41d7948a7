"""Skew: what the fullest subtask receives over the mean, seen and as the model has it.

The model's value follows from key groups, distinct keys and popularity, which a recording shows
only through this ratio; so it is compared, and where it is off, the job file's keys are wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dsp_gym.calibration.observations import SteadyPart
from dsp_gym.job.spec import JobSpec
from dsp_gym.job.tables import compile_jobs

__all__ = ["OFF", "Skew", "skew"]

OFF = 0.1
"""Difference of the ratios from which the model's keys are called wrong."""


@dataclass(frozen=True, slots=True)
class Skew:
    """One vertex at one parallelism."""

    vertex: str
    parallelism: int
    seen: float  # fullest subtask's input over the mean, median over runs
    model: float

    @property
    def is_off(self) -> bool:
        """Whether the model's keys spread otherwise than the job's."""
        return abs(self.seen - self.model) > OFF


def skew(spec: JobSpec, seen: Sequence[SteadyPart]) -> list[Skew]:
    """Compares the busiest subtask with the mean, at every measured parallelism above one.

    Returns:
        One entry per vertex and parallelism.
    """
    tables = compile_jobs([spec])
    found = []
    for column, vertex in enumerate(spec.topological_order()):
        by_tasks: dict[int, list[float]] = {}
        for o in seen:
            if vertex.name in o.hottest:
                by_tasks.setdefault(o.parallelism[vertex.name], []).append(o.hottest[vertex.name])
        found += [
            Skew(vertex.name, p, float(np.median(ratios)), float(tables.hot[0, column, p]))
            for p, ratios in sorted(by_tasks.items())
        ]
    return found
