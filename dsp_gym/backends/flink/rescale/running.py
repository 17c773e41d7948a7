"""A running job as an actuator sees it, and the outage of its last rescale by Flink's own clock.

Polling would be coarser: Flink answers `GET /jobs/:jobid` from a cache that is seconds old.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from dsp_gym.backends.flink.answers import vertices_of
from dsp_gym.backends.flink.program import UserProgram
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.backends.flink.submission import (
    Configuration,
    Submission,
    configuration_of,
    levels_of_slots,
)
from dsp_gym.backends.flink.user_submission import UserSubmission
from dsp_gym.errors import FlinkError
from dsp_gym.job.spec import JobSpec

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
    def find(
        cls, rest: FlinkRest, name: str, spec: JobSpec, own: UserProgram | None = None
    ) -> Self:
        """The one job of that name that has not ended.

        Args:
            rest: the cluster.
            name: of the job.
            spec: its job file.
            own: the user's program that it is of; None: what it was submitted with is asked.

        Returns:
            Its id, state, submission, configuration and the ids of its vertices by name.
        """
        job_id = rest.find_job(name).id
        if own is None:
            submission, configuration = Submission.of_running(rest, job_id, spec)
        with rest.reading():
            job = rest.job(job_id)
            if own is not None:
                submission = UserSubmission.of_job(rest, job, spec, own)
                configuration = configuration_of(job, job_id, spec, levels_of_slots(spec))
            ids = {vertex: str(one["id"]) for vertex, one in vertices_of(job, spec).items()}
            return cls(job_id, str(job["state"]), submission, configuration, ids)


def outage_of_redeploy_s(rest: FlinkRest, old_id: str, new_id: str) -> float | None:
    """Measure from the end of one job to the moment every subtask of the next runs.

    Returns:
        Seconds; None if Flink has forgotten one of them.
    """
    try:
        with rest.reading():
            ended_ms = int(rest.job(old_id).get("end-time", -1))
            return (_all_run_since_ms(rest, new_id) - ended_ms) / 1000 if ended_ms > 0 else None
    except FlinkError:
        return None


def outage_of_rescale_s(rest: FlinkRest, job_id: str) -> float | None:
    """Measure from the new execution graph to the moment every subtask of it runs.

    The old subtasks end a fraction of a second before, of which Flink keeps no record.

    Returns:
        Seconds; None if Flink does not say.
    """
    try:
        with rest.reading():
            created_ms = int(rest.job(job_id)["timestamps"]["CREATED"])
            return (_all_run_since_ms(rest, job_id) - created_ms) / 1000
    except FlinkError:
        return None


def _all_run_since_ms(rest: FlinkRest, job_id: str) -> int:
    """When the last subtask came to run; a subtask's start is that of its deployment."""
    vertices = [vertex["id"] for vertex in rest.job(job_id)["vertices"]]
    return max(
        int(subtask["start-time"])
        + sum(int(subtask["status-duration"][state]) for state in ("DEPLOYING", "INITIALIZING"))
        for vertex in vertices
        for subtask in rest.get(f"/jobs/{job_id}/vertices/{vertex}")["subtasks"]
    )
