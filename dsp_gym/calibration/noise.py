"""Scatter of a measurement between samples and between runs, and skew between subtasks.

The model's skew follows from key groups, distinct keys and popularity, which a recording shows
only through the ratio of the fullest subtask to the mean; so the two are compared, and where they
differ, the job file's keys are wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dsp_gym.calibration.observations import SteadyPart
from dsp_gym.job.spec import JobSpec
from dsp_gym.job.tables import compile_jobs


@dataclass(frozen=True, slots=True)
class Noise:
    """Relative scatter."""

    noise_cv: float | None  # of a rate over 5 s, median over runs
    repeat_cv: float | None  # of a rate over a whole run
    repeats_from: str  # "repeats", or "halves" of runs where none was repeated


def noise(seen: Sequence[SteadyPart]) -> Noise:
    """Measure the scatter of the rate between samples, and between repeats of saturated runs.

    Where no configuration was run twice, the two halves of each run stand in for repeats: their
    log ratio has twice the variance of one half, which has twice that of the run.

    Returns:
        Coefficients of variation; None without enough of either.
    """
    spreads = [o.spread for o in seen if np.isfinite(o.spread)]
    within = float(np.median(spreads)) if spreads else None
    groups: dict[tuple[object, ...], list[float]] = {}
    for o in seen:
        if o.saturated:
            groups.setdefault(o.configuration, []).append(float(np.log(o.rate_per_s)))
    repeated = [np.std(rates, ddof=1) for rates in groups.values() if len(rates) > 1]
    if repeated:
        return Noise(within, float(np.median(repeated)), "repeats")
    drifts = [abs(o.drift) for o in seen if o.saturated and np.isfinite(o.drift)]
    # 0.6745: median of |N(0, 1)|.
    between = float(np.median(drifts)) / 0.6745 / 2.0 if drifts else None
    return Noise(within, between, "halves")


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
    """Compare the busiest subtask with the mean, at every measured parallelism above one.

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
