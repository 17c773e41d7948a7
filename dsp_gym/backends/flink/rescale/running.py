"""A running job as an actuator sees it: id, vertices, configuration, and how it was submitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.backends.flink.submission import Configuration, Submission
from dsp_gym.job.spec import JobSpec
from dsp_gym.metrics.flink import vertex_of

__all__ = ["STALE_S", "RunningJob", "state_of"]

STALE_S = 3.0
"""Age that `GET /jobs/:jobid` may have: Flink's default for `web.refresh-interval`, seconds."""


@dataclass(frozen=True)
class RunningJob:
    """One job between two looks."""

    id: str
    state: str
    submission: Submission
    configuration: Configuration
    vertex_ids: Mapping[str, str]  # Flink's id by vertex of the job file

    @classmethod
    def find(cls, rest: FlinkRest, name: str, spec: JobSpec) -> Self:
        """The one job of that name that has not ended.

        Returns:
            Its id, state, submission, configuration and the ids of its vertices by name.
        """
        job_id = rest.find_job(name).id
        submission, configuration = Submission.of_running(rest, job_id, spec)
        names = list(configuration.parallelism)
        with rest.reading():
            job = rest.job(job_id)
            ids = {vertex_of(v["name"], names): str(v["id"]) for v in job["vertices"]}
            known = {vertex: vertex_id for vertex, vertex_id in ids.items() if vertex is not None}
            return cls(job_id, str(job["state"]), submission, configuration, known)


def state_of(rest: FlinkRest, job_id: str) -> str:
    """Ask for the state of a job now; unlike `FlinkRest.job`, Flink has no cache for this.

    Returns:
        Flink's word, such as RUNNING.
    """
    return rest.state(job_id)
