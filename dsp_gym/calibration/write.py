"""The calibrated job file: fitted numbers with their source and interval, all others as they were.

Significant digits end where the interval begins: four are kept.
"""

from __future__ import annotations

from typing import Any

from dsp_gym.calibration.fit import Fit, Fitted
from dsp_gym.calibration.parameters import READ_SPREAD
from dsp_gym.calibration.rescale import RescaleTimes
from dsp_gym.config.strict_yaml import dump_yaml
from dsp_gym.job.spec import JobSpec

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
