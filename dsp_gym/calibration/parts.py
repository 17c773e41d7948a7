"""A recorded run cut where its configuration changes: what calibration measures one by one."""

from __future__ import annotations

import dataclasses
import math

from dsp_gym.calibration.observations import Latency, MeasuredRun
from dsp_gym.metrics.samples import Samples
from dsp_gym.records.manifest import Event
from dsp_gym.records.recording import Run

__all__ = ["parts_of"]

_LEAVES = ("rescale_asked", "savepoint", "stopped", "failure", "submitted")
"""Events after which a job is no longer running undisturbed."""


def parts_of(run: Run, latency: Latency = "median") -> list[MeasuredRun]:
    """The parts of a run between rescales; one for a run without any.

    A run that was aborted is one part that is not complete, so that the report can name it.

    Args:
        run: the run.
        latency: what the recording's state latencies are.

    Returns:
        The parts in order of time; the run itself if it has no rescale.
    """
    if not run.complete or math.isnan(run.t_running_s):
        configured = run.configuration
        return [
            MeasuredRun(
                run.name,
                run.spec,
                configured.parallelism,
                configured.memory_level,
                (),
                Samples.of(()),
                complete=False,
            )
        ]
    again = [event.t_s for event in run.events if event.kind == "running"][1:]
    starts = [run.t_running_s, *again]
    return [
        _part(run, run.name if i == 0 else f"{run.name}+{i}", start, latency)
        for i, start in enumerate(starts)
    ]


def _part(run: Run, name: str, start_s: float, latency: Latency) -> MeasuredRun:
    """What ran from a `running` event until something disturbed it; its times count from there."""
    left = [event.t_s for event in run.events if event.kind in _LEAVES and event.t_s > start_s]
    end_s = min([run.t_end_s, *left])
    samples = run.samples().between(start_s, end_s)
    since = start_s - run.t_running_s
    now = [rate for t, rate in run.offered if t <= since][-1]
    later = tuple((t - since, rate) for t, rate in run.offered if t > since)
    configured = run.configuration_at(start_s)
    return MeasuredRun(
        name,
        run.spec,
        configured.parallelism,
        configured.memory_level,
        ((0.0, now), *later),
        dataclasses.replace(samples, t_s=samples.t_s - start_s),
        start_s=_start_s(run.events, start_s),
        stop_s=_stop_s(run.events, end_s),
        latency=latency,
    )


def _start_s(events: tuple[Event, ...], running_s: float) -> float:
    """Seconds from the submission before a `running` event; NaN where none was written."""
    asked = [e.t_s for e in events if e.kind == "submitted" and e.t_s <= running_s]
    return running_s - asked[-1] if asked else math.nan


def _stop_s(events: tuple[Event, ...], end_s: float) -> float:
    """Seconds of the savepoint that ended a part; NaN where none did."""
    for event in events:
        if event.kind == "savepoint" and event.t_s >= end_s and "seconds" in event.body:
            return float(event.body["seconds"])
    return math.nan
