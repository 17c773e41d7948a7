"""The shipped job files, and job files given by path."""

from __future__ import annotations

from pathlib import Path

from dsp_gym.config import files
from dsp_gym.job.spec import JobSpec

__all__ = ["list_jobs", "load_job"]


def list_jobs() -> list[JobSpec]:
    """Every shipped job, by name.

    Returns:
        Job files, sorted by name.
    """
    return [load_job(name) for name in files.names("jobs")]


def load_job(name_or_path: str | Path) -> JobSpec:
    """The job of a shipped name, or of a YAML file.

    Returns:
        The checked job file.

    Raises:
        ConfigError: No shipped job has that name, or the job file is wrong.
    """
    return files.load_model(JobSpec, "jobs", name_or_path)
