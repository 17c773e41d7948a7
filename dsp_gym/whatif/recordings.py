"""Histories from what this project records: journals of `dsp-gym run` and `shadow`, recordings."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.config.files import parse
from dsp_gym.control.config import RunConfig
from dsp_gym.control.start import job_of
from dsp_gym.errors import ConfigError, MetricsError
from dsp_gym.job.spec import JobSpec
from dsp_gym.records.recording import Recording, Run
from dsp_gym.records.shipped import folder_of
from dsp_gym.whatif.history import JobHistory, lasting
from dsp_gym.whatif.journal import ObservedRun, read_course
from dsp_gym.whatif.rescales import observed_outages_s
from dsp_gym.whatif.sampled_history import Deployed, measured_history
from dsp_gym.whatif.stretch import arrival_rates

__all__ = ["journal_history", "recording_histories"]


def journal_history(
    folder: str | Path, job: str | None = None, spec: JobSpec | None = None
) -> JobHistory:
    """The history that a journal holds; its model is the run's, as it is.

    Args:
        folder: of the journal, or the name of a shipped one.
        job: name of a job in it; None: the only one.
        spec: the job's model; None: that of the journal's configuration.

    Returns:
        The history of one job.
    """
    place = folder_of("journals", folder)
    course = read_course(place, job)
    configured = None
    if course.configuration is not None:
        configured = parse(RunConfig, dict(course.configuration), place)
    if spec is None:
        if configured is None:
            raise ConfigError(
                "does not hold the configuration of its run",
                file=place,
                remedy="Name the job's file: --job FILE.",
            )
        spec = job_of(configured)
    order = _order(course, spec, place)
    segments = course.segments()
    if not segments:
        raise MetricsError(
            f"'{place}' holds no stretch of ten decisions with known outcomes",
            remedy="Watch for longer.",
        )
    notes = course.notes()
    if course.held:
        notes.append(f"{course.held} decision slots hold no snapshot")
    if len(segments) > 1:
        notes.append(f"the journal has {len(segments)} stretches without a gap")
    found = _on_grid(course, spec, order, segments, notes)
    return found if configured is None else dataclasses.replace(found, window=configured.window)


def _order(course: ObservedRun, spec: JobSpec, place: Path) -> list[int]:
    """Columns of the course in the model's order."""
    if {v.name for v in spec.vertices} != set(course.vertices):
        raise ConfigError(
            f"job '{spec.job}' has {', '.join(v.name for v in spec.vertices)}; the journal is of "
            f"a job with {', '.join(course.vertices)}",
            file=place,
            remedy="Name the file of the journal's job: --job FILE.",
        )
    return [course.vertices.index(vertex.name) for vertex in spec.topological_order()]


def _on_grid(
    course: ObservedRun,
    spec: JobSpec,
    order: Sequence[int],
    segments: Sequence[slice],
    notes: Sequence[str],
) -> JobHistory:
    interval = lasting(course.interval_s)
    begin_s = float(course.t_s[segments[0].start])
    end_s = float(course.t_s[segments[-1].stop - 1]) + interval
    slots = int((end_s - begin_s) / interval)
    t_s: Floats = begin_s + interval * np.arange(slots, dtype=np.float64)
    near = np.clip(np.searchsorted(course.t_s, t_s + interval / 2) - 1, 0, len(course) - 1)
    after = course.next_up()[near]
    load = np.full(slots, np.nan)
    for part in segments:
        rates = arrival_rates(course, part, 0)
        first = round((course.t_s[part.start] - begin_s) / interval)
        whole = min(len(rates) // interval, slots - first)
        means = rates[: whole * interval].reshape(whole, interval).mean(axis=1)
        load[first : first + whole] = means
    known = np.isfinite(load)
    seconds = np.maximum(course.outcome["seconds"], 1.0)
    parallelism = course.parallelism[after][:, order]
    outage_s = np.full(slots, np.nan)
    for slot, outage in observed_outages_s(course, spec).items():
        k = int((course.t_s[slot] - begin_s) / interval)
        if 0 <= k + 1 < slots:
            outage_s[k + 1] = outage

    def seen(values: Floats) -> Floats:
        return np.where(known, values[near], np.nan)

    return JobHistory(
        name=course.job,
        spec=spec,
        t_s=t_s,
        interval_s=interval,
        load_per_s=load,
        parallelism=parallelism,
        memory_level=course.memory_level[after][:, order],
        late=np.clip(seen(course.outcome["slo_s"] / seconds), 0.0, 1.0),
        lag_s=seen(course.outcome["pending_s"]),
        latency_s=seen(course.outcome["latency_p95_s"]),
        outage_s=outage_s,
        notes=tuple(notes),
        is_dated=not course.simulated,
    )


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
