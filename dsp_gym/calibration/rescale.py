"""What starting and stopping a job cost: fitted beside the rates, from the runs' own times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dsp_gym.calibration.observations import MeasuredRun, SteadyPart
from dsp_gym.job.spec import JobSpec, Rescale
from dsp_gym.job.tables import MIB


@dataclass(frozen=True, slots=True)
class RescaleTimes:
    """Times over the runs; None where no run shows them."""

    outage_s: tuple[float, float, float] | None = None  # p10, p50, p90, submission to running
    starts: int = 0  # runs behind it
    savepoint_mib_per_s: float | None = None  # at least: the stop itself is in it
    stops: int = 0  # unsaturated runs behind it
    buffer_records: float | None = None  # per subtask: what drains before a saturated job stops
    drains: int = 0  # saturated runs behind it

    @classmethod
    def of_outages(cls, seconds: Sequence[float]) -> RescaleTimes:
        """Summarise outages alone; of none nothing is known."""
        return cls(_quantiles(seconds), len(seconds))


def rescale_times(runs: Sequence[MeasuredRun], seen: Sequence[SteadyPart]) -> RescaleTimes:
    """Measure outage, savepoint rate and buffered records.

    A savepoint's barrier queues behind the records in the buffers. So the stop of a job that keeps
    up takes the savepoint, and that of a saturated job the draining of its buffers besides: with
    the rate seen, that is how many records they held.

    Returns:
        Quantiles and rates; None where no run shows them.
    """
    last = {o.run: o for o in seen}
    whole = [run for run in runs if run.complete]
    starts = [run.start_s for run in whole if np.isfinite(run.start_s)]
    stops = [(run, last[run.name]) for run in whole if run.name in last and run.stop_s > 0]
    calm = [(run, o) for run, o in stops if not o.saturated]
    rates = [mib / run.stop_s for run, _ in calm if (mib := _state_mib(run)) > 0]
    base_s = float(np.median([run.stop_s for run, _ in calm])) if calm else 0.0
    buffered = [
        (run.stop_s - base_s) * o.rate_per_s / _receivers(run)
        for run, o in stops
        if o.saturated and run.stop_s > base_s
    ]
    return RescaleTimes(
        _quantiles(starts),
        len(starts),
        float(np.median(rates)) if rates else None,
        len(rates),
        float(np.median(buffered)) if buffered else None,
        len(buffered),
    )


def _quantiles(values: Sequence[float]) -> tuple[float, float, float] | None:
    if not values:
        return None
    low, middle, high = (float(q) for q in np.quantile(values, (0.1, 0.5, 0.9)))
    return low, middle, high


def _state_mib(run: MeasuredRun) -> float:
    """Live state over all subtasks, as last reported."""
    total = 0.0
    for vertex in run.samples.vertices():
        _, _, values = run.samples.grid(vertex, "state_bytes")
        if values.size:
            total += float(np.nansum(values[-1])) / MIB
    return total


def _receivers(run: MeasuredRun) -> int:
    """Subtasks with input buffers."""
    return sum(run.parallelism[v.name] for v in run.spec.vertices if v.kind != "source")


def with_rescale(spec: JobSpec, times: RescaleTimes) -> JobSpec:
    """The job with the measured times of starting and stopping.

    Returns:
        A copy of the job; a time that was not measured stays as it is.
    """
    update: dict[str, object] = {}
    if times.outage_s is not None:
        update["outage_s"] = times.outage_s
    if times.savepoint_mib_per_s is not None:
        update["savepoint_mib_per_s"] = times.savepoint_mib_per_s
    rescale: Rescale = spec.rescale.model_copy(update=update)
    buffers = {} if times.buffer_records is None else {"buffer_records": times.buffer_records}
    return spec.model_copy(update={"rescale": rescale, **buffers})
