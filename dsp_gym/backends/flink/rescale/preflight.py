"""What can be known before a job is touched: slots, memory, and where its savepoint goes."""

from __future__ import annotations

import os
import tempfile
import urllib.parse
from pathlib import Path

from dsp_gym.backends.flink.rescale.running import RunningJob
from dsp_gym.backends.flink.rescale.worker import Unreached
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.backends.flink.submission import Configuration
from dsp_gym.backends.upstream.deadlines import is_loopback
from dsp_gym.errors import StorageError
from dsp_gym.job.spec import JobSpec


def managed_mib(configuration: Configuration, spec: JobSpec) -> float:
    """Managed memory of all subtasks, MiB.

    Returns:
        MiB over all vertices; 0 where none of them takes managed memory.
    """
    return sum(
        mib * configuration.parallelism[vertex]
        for vertex, mib in configuration.managed_mib(spec).items()
    )


def check_running(job: RunningJob) -> None:
    """Refuse while the job is anything but running."""
    if job.state != "RUNNING":
        raise Unreached(
            f"the job is {job.state}, and only a running job is rescaled",
            remedy="Ask again when it runs.",
        )


def check_slots(rest: FlinkRest, job: RunningJob, wanted: Configuration) -> None:
    """Refuse what has no slots, counting those that the job gives back."""
    sharing = job.submission.slot_sharing
    need, own = wanted.slots(sharing), job.configuration.slots(sharing)
    free = rest.free_slots()
    if need > free + own:
        raise Unreached(
            f"the new configuration needs {need} slots; the job has {own} and {free} are free",
            remedy="Start more TaskManagers, or lower the quota max_parallelism_per_vertex.",
        )


def check_memory(rest: FlinkRest, job: RunningJob, wanted: Configuration, spec: JobSpec) -> None:
    """Refuse more managed memory than the TaskManagers have, counting what the job gives back."""
    with rest.reading():
        managers = rest.taskmanagers()
        free = sum(float(tm["freeResource"]["managedMemory"]) for tm in managers)
        largest = max((float(tm["totalResource"]["managedMemory"]) for tm in managers), default=0.0)
    own, need = managed_mib(job.configuration, spec), managed_mib(wanted, spec)
    if need > max(free + own, own):
        raise Unreached(
            f"the new configuration needs {need:g} MiB of managed memory; the job has {own:g} and "
            f"{free:g} are free",
            remedy="Start more TaskManagers, or give them more managed memory.",
        )
    one = max(wanted.managed_mib(spec).values(), default=0.0)
    if one > largest:
        raise Unreached(
            f"one subtask would need {one:g} MiB of managed memory; a TaskManager has {largest:g}",
            remedy="Lower memory.levels in the job file, or give TaskManagers more memory.",
        )


def check_levels(job: RunningJob, wanted: Configuration) -> None:
    """Refuse to move memory where the job takes it from its slots."""
    runs = job.configuration.memory_level
    moved = [name for name, level in runs.items() if wanted.memory_level[name] != level]
    if moved:
        raise Unreached(
            "the job's own program says which memory its slots have; asked to move the level of "
            f"{', '.join(moved)}",
            remedy="Describe the slots as they are: memory.levels: 1 and their base_mib in the "
            "job file.",
        )


def local_folder(directory: str, rest_url: str) -> Path | None:
    """The savepoint directory as a folder of this machine; None where it is elsewhere.

    Returns:
        Path of the folder; None for another machine's Flink or an object store.

    >>> local_folder("file:///tmp/savepoints", "http://127.0.0.1:8081")
    PosixPath('/tmp/savepoints')
    >>> local_folder("s3://bucket/savepoints", "http://127.0.0.1:8081")
    >>> local_folder("/savepoints", "http://flink.example:8081")
    """
    if not is_loopback(rest_url):
        return None
    parts = urllib.parse.urlsplit(directory)
    if parts.scheme not in {"", "file"}:
        return None
    return Path(urllib.parse.unquote(parts.path) if parts.scheme else directory)


def check_writable(folder: Path | None) -> None:
    """Refuse a savepoint directory of this machine in which nothing can be written."""
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"savepoint")
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        trouble = StorageError(
            f"savepoints cannot be written there: {error.strerror or error}",
            file=folder,
            remedy="Name another directory, or free it.",
        )
        raise Unreached(str(trouble)) from error
