"""Calibrates a job of one main vertex from tables: a series, profiles and, if given, outages."""

from __future__ import annotations

from pathlib import Path

from dsp_gym.calibration.evidence import with_section
from dsp_gym.calibration.mst_job import job_spec
from dsp_gym.calibration.series_evidence import evidence_of
from dsp_gym.calibration.series_fit import fit_series, fit_warm_up_after_rescales
from dsp_gym.calibration.series_job import job_text
from dsp_gym.calibration.series_report import SeriesReport
from dsp_gym.calibration.series_tables import read_outages, read_profiles, read_series
from dsp_gym.errors import ConfigError

__all__ = ["calibrate_series"]


def calibrate_series(
    series: Path,
    profiles: Path,
    job: str,
    *,
    outages: Path | None = None,
    policy: str | None = None,
    slot_memory_mib: float = 4096.0,
) -> SeriesReport:
    """The job file and report of two or three tables.

    Args:
        series: CSV of 30 s means of a run without rescales.
        profiles: CSV of profiling runs.
        job: name of the job.
        outages: CSV of outages; its rescales say what a restart costs.
        policy: whose outages; needed with `outages`.
        slot_memory_mib: TaskManager process memory / slots.

    Returns:
        The report, which holds the fit and the job file.
    """
    profiled = read_profiles(profiles)
    fit = fit_series(read_series(series), profiled)
    used = [series.name, profiles.name]
    if outages is not None:
        if policy is None:
            raise ConfigError("outages need a policy", remedy="Name it with --policy.")
        fit = fit_warm_up_after_rescales(fit, read_outages(outages), policy)
        used.append(f"{outages.name}: {policy}")
    text = job_text(fit, job, used, slot_memory_mib)
    evidence = evidence_of(
        fit, profiled, job_spec(text, job), f"dsp-gym calibrate: {', '.join(used)}"
    )
    return SeriesReport.of(fit, job, used, slot_memory_mib, with_section(text, evidence), evidence)
