"""What Flink's REST interface answers, as far as this project reads it, and answers of others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypedDict

from dsp_gym.config.strict_json import MISFITS
from dsp_gym.errors import Api, FlinkError
from dsp_gym.job.spec import JobSpec
from dsp_gym.metrics.identity import Task, tasks_by_vertex

_LONGEST = 300
"""Characters of what is said of an answer."""


@contextmanager
def taken_apart(said: str, remedy: str, api: Api = "flink") -> Iterator[None]:
    """Take an answer apart in this block: one of another shape is a `FlinkError`.

    Args:
        said: What is wrong then.
        remedy: What to do.
        api: The interface that answered.

    Yields:
        None.
    """
    try:
        yield
    except MISFITS as error:
        raise FlinkError(f"{said}: {error!r}"[:_LONGEST], api=api, remedy=remedy) from error


Overview = TypedDict(
    "Overview",
    {
        "flink-version": str,
        "slots-available": int,
        "slots-total": int,
        "taskmanagers": int,
        "jobs-running": int,
    },
    total=False,
)
"""`GET /overview`."""


class VertexAnswer(TypedDict):
    """One vertex of a job."""

    id: str
    name: str
    parallelism: int
    tasks: dict[str, int]  # subtasks by state


JobAnswer = TypedDict(
    "JobAnswer",
    {
        "jid": str,
        "name": str,
        "state": str,
        "end-time": int,  # ms of Unix time; -1 while the job has not ended
        "timestamps": dict[str, int],  # ms of Unix time by state
        "vertices": list[VertexAnswer],
    },
    total=False,
)
"""`GET /jobs/:jobid`."""


def vertices_of(job: JobAnswer, spec: JobSpec) -> dict[str, VertexAnswer]:
    """Find the vertices of a job file in a job of Flink's.

    Returns:
        Flink's vertex by name of that of the job file; without those it has not.

    Raises:
        FlinkError: Several vertices of the job could be one of the job file.
    """
    answers = {str(vertex["id"]): vertex for vertex in job["vertices"]}
    tasks = [Task(vertex_id, str(vertex["name"])) for vertex_id, vertex in answers.items()]
    return {name: answers[task.id] for name, task in tasks_by_vertex(spec, tasks).items()}


class ManagerAnswer(TypedDict):
    """One TaskManager of `GET /taskmanagers`."""

    id: str
    slotsNumber: int
    memoryConfiguration: dict[str, int]  # bytes
    freeResource: dict[str, float]  # MiB of managedMemory, beside others
    totalResource: dict[str, float]
