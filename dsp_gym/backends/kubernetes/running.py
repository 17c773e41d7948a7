"""The running tasks under a resource, as Flink counts them: never assumed from the spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

__all__ = ["LookAtTasks", "RunningVertices"]


@dataclass(frozen=True, slots=True)
class RunningVertices:
    """One look at the tasks of a job, through Flink's REST interface or its metrics."""

    job_id: str
    state: str  # of the job, Flink's word; "unknown" if only metrics are known
    ids: Mapping[str, str]  # Flink's id by vertex of the job file
    parallelism: Mapping[str, int]  # tasks that run, by vertex of the job file
    settled: bool  # whether every task runs

    @property
    def by_id(self) -> dict[str, int]:
        """Tasks that run, by Flink's id."""
        return {self.ids[name]: tasks for name, tasks in self.parallelism.items()}


class LookAtTasks(Protocol):
    """Looks at the running tasks."""

    def __call__(self) -> RunningVertices:
        """The tasks.

        Raises:
            FlinkError: Neither Flink nor its metrics can be had, or they are of another job.
        """
