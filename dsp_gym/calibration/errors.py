"""How far predictions are off, in the terms the accuracy of a model is stated in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dsp_gym.calibration.model import JobModel, Prediction
from dsp_gym.calibration.observations import SteadyPart
from dsp_gym.job.spec import JobSpec

__all__ = ["Compared", "Errors", "compare", "errors_of"]


@dataclass(frozen=True, slots=True)
class Compared:
    """One observation and the model's answer."""

    seen: SteadyPart
    predicted: Prediction
    in_fit: bool

    @property
    def rate_error(self) -> float:
        """Relative error of the sustained rate."""
        return self.predicted.rate_per_s / self.seen.rate_per_s - 1.0

    @property
    def at_capacity(self) -> bool:
        """The job is saturated, or the model says so; else the rate is simply what is offered."""
        return self.seen.saturated or self.predicted.rate_per_s < self.seen.offered_per_s


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors over some runs; None where none of them shows the quantity."""

    parts: int  # steady parts of runs
    rate_median: float | None  # absolute relative error of the rate of parts at capacity
    rate_p90: float | None
    rate_count: int
    busy_mean: float | None  # mean absolute error, operators only, 0..1
    busy_count: int
    hit_mean: float | None  # mean absolute error, 0..1
    hit_count: int
    read_within_2: float | None  # share of median read latencies within a factor of 2
    read_count: int


def compare(model: JobModel, seen: Sequence[SteadyPart], fitted: frozenset[str]) -> list[Compared]:
    """Compares every steady part with the model.

    Returns:
        The parts with their predictions, in the same order.
    """
    return [Compared(o, model.predict(o), o.run in fitted) for o in seen]


def errors_of(spec: JobSpec, compared: Sequence[Compared]) -> Errors:
    """Adds up comparisons.

    Sources and sinks are left out of busyness: they wait nearly always, which anything predicts.

    Returns:
        Errors of the rate, busyness, hit rate and read latency; None where nothing was measured.
    """
    operators = [v.name for v in spec.vertices if v.kind == "operator"]
    rate = [abs(c.rate_error) for c in compared if c.at_capacity]
    busy = [
        abs(c.predicted.busy[v] - c.seen.busy[v])
        for c in compared
        for v in operators
        if v in c.seen.busy
    ]
    hit = [
        abs(c.predicted.hit[v] - seen)
        for c in compared
        for v, seen in c.seen.hit.items()
        if v in c.predicted.hit
    ]
    read = [
        abs(np.log(c.predicted.read_us[v] / seen))
        for c in compared
        for v, seen in c.seen.read_us.items()
        if v in c.predicted.read_us
    ]
    return Errors(
        len(compared),
        float(np.median(rate)) if rate else None,
        float(np.quantile(rate, 0.9)) if rate else None,
        len(rate),
        float(np.mean(busy)) if busy else None,
        len(busy),
        float(np.mean(hit)) if hit else None,
        len(hit),
        float(np.mean(np.array(read) <= np.log(2.0))) if read else None,
        len(read),
    )
