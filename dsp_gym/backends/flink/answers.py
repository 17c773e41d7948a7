"""What Flink's REST interface answers, as far as this project reads it."""

from __future__ import annotations

from typing import TypedDict

__all__ = ["JobAnswer", "ManagerAnswer", "Overview", "VertexAnswer"]

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


class ManagerAnswer(TypedDict):
    """One TaskManager of `GET /taskmanagers`."""

    id: str
    slotsNumber: int
    memoryConfiguration: dict[str, int]  # bytes
    freeResource: dict[str, float]  # MiB of managedMemory, beside others
    totalResource: dict[str, float]
