"""`dsp-gym calibrate`: recordings in, a calibrated job file and a report out.

A recorded run is cut where its configuration changes; each part is measured by itself.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dsp_gym.calibration.advice import advice
from dsp_gym.calibration.checks import Problem, cleaned, problems_of, repeated
from dsp_gym.calibration.config import CalibrationConfig, check_names, fitted_runs
from dsp_gym.calibration.datasets import MeasuredDataset, Tables, measured_dataset
from dsp_gym.calibration.errors import (
    EACH_RUN,
    HELD_OUT,
    agreement,
    compare,
    errors_of,
    left_out,
    linear_model,
)
from dsp_gym.calibration.evidence import with_section
from dsp_gym.calibration.fit import Fit, Fitted, fit
from dsp_gym.calibration.history import measured_history, not_identifiable, opened_history
from dsp_gym.calibration.noise import noise, skew
from dsp_gym.calibration.observations import Latency, MeasuredRun, observe_all
from dsp_gym.calibration.parameters import READ_SPREAD
from dsp_gym.calibration.report import CalibrationReport
from dsp_gym.calibration.rescale import RescaleTimes, rescale_times, with_rescale
from dsp_gym.calibration.runs_evidence import evidence_of
from dsp_gym.config.files import write_atomic
from dsp_gym.config.strict_yaml import dump_yaml
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec
from dsp_gym.metrics.samples import Samples
from dsp_gym.records.flink_runs import is_flink_runs, read_flink_runs
from dsp_gym.records.manifest import Event
from dsp_gym.records.recording import Recording, Run


def calibrate(
    config: CalibrationConfig,
    out: Path | None = None,
    *,
    on_step: Callable[[str], None] | None = None,
    opened: Callable[[Path], Tables] | None = None,
    refit: bool = True,
    on_chunk: Callable[[int, int], None] | None = None,
) -> CalibrationReport:
    """Fit the job of a calibration to its recordings, datasets and history.

    Args:
        config: the calibration.
        out: file that gets the calibrated job; None writes nothing.
        on_step: Called with a sentence on the current step.
        opened: opens a dataset; needed where the calibration names some.
        refit: also fit with some of the fitted runs left out, which shows the error by distance.
        on_chunk: called with the chunks of a history that are done, and their number.

    Returns:
        The fitted job with its errors on fitted and held-out runs.

    Raises:
        FlinkError: Prometheus refuses, or has no history of the job.
        ConfigError: No run has a name that is asked for.
        DatasetError: A dataset shows nothing steady of the job.
        MetricsError: No run has a steady part.
    """
    tell = on_step or (lambda _: None)
    spec = load_job(config.job)
    tell("reading what was measured")
    runs = measured_runs(spec, config) if config.recordings else []
    stored = [
        measured_dataset(opened(folder), spec, config.runs)
        for folder in config.dataset_folders()
        if opened is not None
    ]
    problems: tuple[Problem, ...] = ()
    if config.history is not None:
        days = config.history.days
        past = measured_history(opened_history(config.history, spec), spec, days, on_chunk)
        stored.append(past)
        problems = (*past.problems, *not_identifiable(spec, past.seen))
    which = config.fit if isinstance(config.fit, str) else ", ".join(config.fit)
    tell(f"fitting {spec.job} to {which} of {len(runs) + sum(len(o.runs) for o in stored)} runs")
    report = calibrate_runs(config, spec, runs, stored, refit=refit)
    report = dataclasses.replace(report, problems=(*problems, *report.problems))
    if out is not None:
        write_atomic(out, report.job_yaml)
    return report


def measured_runs(spec: JobSpec, config: CalibrationConfig) -> list[MeasuredRun]:
    """Read the runs that a calibration names, from every recording.

    Returns:
        The runs, aborted ones included.
    """
    found = [named for folder in config.folders() for named in _runs_of(folder, spec)]
    if not config.datasets:  # else the name may be that of a dataset's run
        check_names("runs", config.runs, [run.name for run, _ in found])
    wanted = [
        (run, latency)
        for run, latency in found
        if any(fnmatch.fnmatchcase(run.name, glob) for glob in config.runs)
    ]
    return [part for run, latency in wanted for part in parts_of(run, latency)]


def _runs_of(folder: Path, spec: JobSpec) -> list[tuple[Run, Latency]]:
    if is_flink_runs(folder):
        return [(run, "median") for run in read_flink_runs(folder, spec)]
    recording = Recording.open(folder)
    simulated = recording.manifest.started_unix_s is None
    return [(run, "mean" if simulated else "median") for run in recording.runs]


def calibrate_runs(
    config: CalibrationConfig,
    spec: JobSpec,
    runs: Sequence[MeasuredRun],
    stored: Sequence[MeasuredDataset] = (),
    *,
    refit: bool = True,
) -> CalibrationReport:
    """Fit a job to runs at hand, and to the steady parts that datasets hold of others.

    Returns:
        The fitted job with its errors.
    """
    checked = [cleaned(run) for run in runs]
    runs = [run for run, _ in checked]
    seen = [*observe_all(runs), *(o for dataset in stored for o in dataset.seen)]
    problems = [problem for _, problem in checked if problem is not None]
    problems += problems_of(spec, runs, seen)
    runs = [*runs, *(run for dataset in stored for run in dataset.runs)]
    names = fitted_runs(config, runs, seen)
    training = [o for o in seen if o.run in names]
    found = fit(spec, training)
    times = rescale_times([run for run in runs if run.name in names], training)
    if times.outage_s is None and stored:
        times = stored[0].rescale
    calibrated = with_rescale(found.spec, times)
    compared = compare(found.model(), seen, names)
    held_out = [c for c in compared if not c.in_fit]
    unseen, how = (held_out, HELD_OUT) if held_out else (left_out(spec, training), EACH_RUN)
    scatter = noise(seen)
    ranks = None
    if any(c.in_fit and c.seen.saturated for c in compared):
        ranks = agreement([compared], scatter.repeat_cv or 0.0, [linear_model(compared)])
    which = config.fit if isinstance(config.fit, str) else ", ".join(sorted(names))
    script = f"dsp-gym calibrate, job: {config.job}, fit: {which}"
    sound = [c for c in compared if c.seen.run not in found.outliers and not c.seen.is_unsteady]
    evidence = evidence_of(spec, sound, script, refit=refit)
    text = job_yaml(found, calibrated, times, len(names), script)
    return CalibrationReport(
        config=config,
        spec=calibrated.model_copy(update={"fitted": evidence}),
        fit=found,
        runs=tuple(sorted(names)),
        aborted=tuple(run.name for run in runs if not run.complete),
        compared=tuple(compared),
        fitted_errors=errors_of(spec, [c for c in compared if c.in_fit]),
        held_out_errors=errors_of(spec, held_out),
        left_out_errors=errors_of(spec, unseen),
        left_out=how if unseen else None,
        problems=(*problems, *repeated(training)),
        advice=tuple(advice(found, training)),
        rescale=times,
        noise=scatter,
        skew=tuple(skew(calibrated, seen)),
        agreement=ranks,
        job_yaml=text if evidence is None else with_section(text, evidence),
    )


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


# -- the job file: four significant digits, as the others end where the interval begins

Section = dict[str, Any]
"""A section of a job file, as YAML has it."""


def job_yaml(fit: Fit, spec: JobSpec, times: RescaleTimes, runs: int, script: str) -> str:
    """Write the job file.

    Args:
        fit: the fit.
        spec: the calibrated job.
        times: where its rescale section comes from.
        runs: how many runs were fitted.
        script: the command that gives these numbers.

    Returns:
        YAML text; every fitted number names its source and interval.
    """
    document: Section = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    document.pop("fitted", None)  # of the fit before
    document["used_in_fit"] = [f"{runs} recorded runs"]
    document["fit_script"] = script
    vertices = {vertex["name"]: vertex for vertex in document["vertices"]}
    for parameter in fit.parameters:
        vertex, _, field = parameter.name.partition(".")
        _set(vertices[vertex], field, parameter, runs)
    if "rescale" in document:
        _source_rescale(document["rescale"], times)
    if times.buffer_records is not None:
        document["buffer_records"] = _sourced(
            times.buffer_records, f"drain of {times.drains} saturated runs before their savepoint"
        )
    return dump_yaml(document)


def _set(vertex: Section, path: str, parameter: Fitted, runs: int) -> None:
    *parents, last = path.split(".")
    if last == READ_SPREAD:  # of the measurement, not of the job
        return
    at = vertex
    for parent in parents:
        at = at.setdefault(parent, {})
    if parameter.identified:
        source = f"fit to {runs} recorded runs"
    else:
        source = f"not identified by {runs} recorded runs: prior kept"
    at[last] = _sourced(parameter.value, source) | {
        "ci": [_rounded(parameter.low), _rounded(parameter.high)]
    }


def _source_rescale(rescale: Section, times: RescaleTimes) -> None:
    if "outage_s" in rescale:
        rescale["outage_s"] = [_rounded(value) for value in rescale["outage_s"]]
    if times.savepoint_mib_per_s is not None:
        rescale["savepoint_mib_per_s"] = _sourced(
            times.savepoint_mib_per_s,
            f"live state over the stop of {times.stops} runs that kept up: a lower bound",
        )


def _sourced(value: float, source: str) -> dict[str, object]:
    return {"value": _rounded(value), "source": source}


def _rounded(value: float) -> float:
    return 0.0 if abs(value) < 1e-9 else float(f"{value:.4g}")
