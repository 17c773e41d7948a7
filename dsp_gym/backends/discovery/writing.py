"""Job files of a discovery on disk: all beside each other, none over another unasked."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dsp_gym.backends.discovery.document import Choices, Written, job_file
from dsp_gym.backends.discovery.found import FoundJob
from dsp_gym.backends.discovery.names import file_stems
from dsp_gym.backends.flink.submissions import shown
from dsp_gym.config.files import write_atomic
from dsp_gym.errors import FlinkError, StorageError


@dataclass(frozen=True, slots=True)
class Discovered:
    """The job files of a discovery, and the jobs that have none."""

    files: tuple[Written, ...]
    refused: tuple[FlinkError, ...]
    remarks: tuple[str, ...]  # such as two jobs of one name


def described(jobs: Sequence[FoundJob], choices: Choices, now_s: float) -> Discovered:
    """Describe several jobs, each in a file with its own name.

    On Kubernetes that is the name of the resource, which `{name}` stands for in a configuration of
    shadow mode; the jobs of a session cluster, which share one, have their names in Flink.

    Args:
        jobs: what was found.
        choices: what nobody can look up.
        now_s: Unix seconds.

    Returns:
        The files, not yet on disk; a job that no job file can describe is named with the reason.
    """
    several = Counter(job.resource for job in jobs)
    named = [
        job.name if job.resource is None or several[job.resource] > 1 else _whose(job)
        for job in jobs
    ]
    stems = file_stems([(name, _whose(job)) for name, job in zip(named, jobs, strict=True)])
    files, refused = [], []
    for job, stem in zip(jobs, stems, strict=True):
        try:
            files.append(job_file(job, stem, choices, now_s))
        except FlinkError as error:
            refused.append(error)
    return Discovered(tuple(files), tuple(refused), tuple(_shared(jobs, stems)))


def _whose(job: FoundJob) -> str:
    """Name what tells a job from others of its name, for the name of its file.

    Jobs of application clusters may all have one id, and their resource outlives an id.
    """
    if job.resource is None:
        return job.job_id[:12]
    return job.resource.rpartition("/")[2]


def _shared(jobs: Sequence[FoundJob], stems: Sequence[str]) -> list[str]:
    by_name: dict[str, list[str]] = {}
    for job, stem in zip(jobs, stems, strict=True):
        told = f"id {shown(job.job_id)}"
        if job.resource is not None:
            told = f"{shown(job.resource)}, {told}"
        by_name.setdefault(job.name, []).append(f"{stem}.yaml ({told})")
    return [
        f"{len(found)} jobs are named '{shown(name)}': {', '.join(found)}"
        for name, found in by_name.items()
        if len(found) > 1
    ]


def write_all(texts: Mapping[Path, str], *, overwrite: bool) -> None:
    """Write files, each whole or not at all.

    Args:
        texts: the text of each; folders are made if need be.
        overwrite: whether files that exist are replaced; else none is written.

    Raises:
        StorageError: A file exists, or cannot be written.
    """
    there = [path for path in texts if path.exists() or path.is_symlink()]
    if there and not overwrite:
        more = f", and {len(there) - 1} more of them do" if len(there) > 1 else ""
        folder = shlex.quote(str(next(iter(texts)).parent) + "-new")
        raise StorageError(
            f"exists already{more}; nothing was written",
            file=there[0],
            remedy=f"Replace them with --overwrite, or choose another folder: --out {folder}",
        )
    for path, text in texts.items():
        write_atomic(path, text)
