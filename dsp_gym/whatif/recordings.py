"""Histories from recordings of a job."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

from dsp_gym.errors import MetricsError
from dsp_gym.job.spec import JobSpec
from dsp_gym.records.recording import Recording, Run
from dsp_gym.whatif.history import JobHistory
from dsp_gym.whatif.sampled_history import Deployed, measured_history


def recording_histories(
    folder: str | Path, spec: JobSpec | None = None, interval_s: int = 60
) -> list[JobHistory]:
    """The histories of a recording, one for each run.

    Args:
        folder: of the recording, or the name of a shipped one.
        spec: the job's model; None: it is fitted to the run.
        interval_s: seconds between decisions.

    Returns:
        The histories of the runs that went on to their end.
    """
    recording = Recording.open(folder)
    started = recording.manifest.started_unix_s
    complete = recording.complete_runs()
    if not complete:
        raise MetricsError(
            f"'{recording.folder}' holds no complete run", remedy="Record the job again."
        )
    return [
        _of_run(
            run,
            spec,
            interval_s,
            recording.spec.job if len(complete) == 1 else f"{recording.spec.job} {run.name}",
            0.0 if started is None else float(started),
            is_dated=started is not None,
        )
        for run in complete
    ]


def _of_run(
    run: Run, spec: JobSpec | None, interval_s: int, name: str, began_s: float, *, is_dated: bool
) -> JobHistory:
    samples = run.samples()
    history = measured_history(
        name,
        spec or run.spec,
        samples,
        _deployed(run),
        interval_s,
        until_s=run.t_end_s,
        latency="median" if is_dated else "mean",
        notes=[f"no samples from {a:.0f} to {b:.0f} s" for a, b in run.gaps],
        is_dated=is_dated,
    )
    parts = () if spec is not None else history.parts
    return dataclasses.replace(history, t_s=history.t_s + began_s, parts=parts)


def _deployed(run: Run) -> list[Deployed]:
    """Configurations by the run's events; a `stopped` or `failure` begins an outage."""
    found = [Deployed(run.t_running_s, run.configuration_at(run.t_running_s), math.nan)]
    down_s = math.nan
    for event in run.events:
        if not run.t_running_s < event.t_s < run.t_end_s:
            continue
        if event.kind in ("stopped", "failure"):
            down_s = event.t_s
        elif event.kind == "running":
            found.append(Deployed(event.t_s, run.configuration_at(event.t_s), down_s))
            down_s = math.nan
    return found
