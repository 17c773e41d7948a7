"""The calibrated job of a report that `dsp-gym calibrate --json` wrote."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dsp_gym.calibration.parameters import Parameter, with_parameters
from dsp_gym.calibration.rescale import RescaleTimes, with_rescale
from dsp_gym.config.strict_json import MISFITS, parse_json
from dsp_gym.errors import ConfigError
from dsp_gym.job.catalog import load_job
from dsp_gym.job.evidence import Evidence, FitError
from dsp_gym.job.spec import JobSpec

LEAST_WITHIN = 0.05
"""Least half-width of an interval of capacity, logarithm: repeats of a run differ by as much."""


def calibrated(job: str, reports: Path) -> JobSpec:
    """The job as its calibration left it, from the report of `dsp-gym calibrate --json`.

    Args:
        job: A shipped job.
        reports: Folder of the reports, `calibrate-JOB.json` each.

    Returns:
        A copy of the job file's job with the fitted values in it.

    Raises:
        ConfigError: The folder has no report of the job, or one that cannot be read.
    """
    file = reports / f"calibrate-{job}.json"
    command = f"dsp-gym calibrate {shlex.quote(job)} --json > {shlex.quote(str(file))}"
    if not file.exists():
        raise ConfigError(
            "is missing",
            file=file,
            remedy=f"Write it: {command}",
        )
    try:
        return _reread(job, parse_json(file.read_text(encoding="utf-8")))
    except (OSError, *MISFITS) as error:
        raise ConfigError(
            f"is not a report of dsp-gym calibrate: {error!r}",
            file=file,
            remedy=f"Write it again: {command}",
        ) from error


def _reread(job: str, report: Mapping[str, Any]) -> JobSpec:
    values = {}
    for one in report["parameters"]:
        vertex, _, field = one["name"].partition(".")
        found = Parameter(vertex, field, one["prior"], 1.0, False, -np.inf, np.inf, one["unit"])
        values[found] = one["value"]
    spec, _ = with_parameters(load_job(job), values, report["efficiency_form"])
    times = report["rescale"]
    outages = None if times["outage_s"] is None else tuple(times["outage_s"])
    spec = with_rescale(spec, RescaleTimes(**{**times, "outage_s": outages}))
    return spec.model_copy(update={"fitted": _evidence(report, job)})


def _evidence(report: Mapping[str, Any], job: str) -> Evidence | None:
    """What the calibration's errors on runs it had not seen say of its capacity."""
    errors = report["errors"].get("left_out") or report["errors"]["held_out"]
    if errors["rate_p90"] is None:
        return None
    median, p90 = (math.log1p(errors[name]) for name in ("rate_median", "rate_p90"))
    error = FitError(
        left_out="runs",
        predictions=errors["rate_count"],
        median=median,
        p90=p90,
        within=max(LEAST_WITHIN, p90),
    )
    runs = max(1, len(report["fitted_runs"]))
    return Evidence(command=f"dsp-gym calibrate {job}", runs=runs, error=error)
