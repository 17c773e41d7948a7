"""The shipped job files, job files given by path, random graphs given by seed, and a job's hash."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from dsp_gym.config import files
from dsp_gym.errors import ConfigError
from dsp_gym.job.spec import JobSpec

_RANDOM = "random-dag:"
"""Prefix of a random graph's name; its seed follows, and the number of vertices if given."""

_OTHER = "other-dag:"
"""Prefix of the name of a random graph of the other generator; its seed follows."""


def list_jobs() -> list[JobSpec]:
    """List every shipped job, by name.

    Returns:
        Job files, sorted by name.
    """
    return [load_job(name) for name in files.names("jobs")]


def random_job(seed: int, vertices: int | None = None) -> str:
    """Return the name of a random graph.

    Args:
        seed: Seed of the graph.
        vertices: Number of its vertices; None: drawn from 4 to 8.

    Returns:
        A name that `load_job` takes.

    >>> random_job(7)
    'random-dag:7'
    >>> random_job(7, 12)
    'random-dag:7:12'
    """
    return f"{_RANDOM}{seed}" + ("" if vertices is None else f":{vertices}")


def other_job(seed: int) -> str:
    """Return the name of a random graph of the other generator.

    Args:
        seed: Seed of the graph.

    Returns:
        A name that `load_job` takes.

    >>> other_job(7)
    'other-dag:7'
    """
    return f"{_OTHER}{seed}"


def load_job(name_or_path: str | Path) -> JobSpec:
    """Load the job of a shipped name, of a YAML file, or of the seed in `random-dag:SEED`.

    `random-dag:SEED:VERTICES` has that many vertices. `other-dag:SEED` is of the other generator.

    Returns:
        The checked job file.

    Raises:
        ConfigError: No shipped job has that name, the job file is wrong, or the seed is no number.
    """
    if isinstance(name_or_path, str) and name_or_path.startswith(_RANDOM):
        return _drawn(name_or_path)
    if isinstance(name_or_path, str) and name_or_path.startswith(_OTHER):
        return _drawn_otherwise(name_or_path)
    return files.load_model(JobSpec, "jobs", name_or_path)


@lru_cache(maxsize=1024)  # a benchmark names each of its jobs hundreds of times; a draw takes 8 ms
def _drawn(name: str) -> JobSpec:
    # Imported here: drawing sizes every vertex with the capacity model, which takes long to import.
    from dsp_gym.job.random_dag import random_dag

    given, _, count = name.removeprefix(_RANDOM).partition(":")
    seed = _seed(given, name)
    if not count:
        return files.parse(JobSpec, random_dag(seed), name)
    if not (count.isascii() and count.isdigit() and int(count) >= 2):
        raise ConfigError(
            "has no number of vertices",
            key="job",
            value=name,
            remedy="Name 2 or more, a source and a sink: random-dag:7:12",
        )
    return files.parse(JobSpec, random_dag(seed, vertices=int(count)), name)


@lru_cache(maxsize=1024)
def _drawn_otherwise(name: str) -> JobSpec:
    from dsp_gym.job.other_dag import other_dag  # as above

    seed = _seed(name.removeprefix(_OTHER), name)
    return files.parse(JobSpec, other_dag(seed), name)


def _seed(given: str, name: str) -> int:
    if not (given.isascii() and given.isdigit()):
        example = name.partition(":")[0]
        raise ConfigError(
            "has no seed", key="job", value=name, remedy=f"Name a number from 0 on: {example}:7"
        )
    return int(given)


def job_hash(spec: JobSpec) -> str:
    """Hash of everything a job file says but the evidence of its fit.

    The module that fitted a shipped job has moved to the studies; the hash names it as the first
    release did, so that datasets, policies and results of that release stay those of the same job.

    Returns:
        16 hexadecimal digits.
    """
    first = spec.behaviour_json().replace("python -m dsp_gym.studies.", "python -m dsp_gym.")
    return hashlib.sha256(first.encode()).hexdigest()[:16]
