"""How long a job did not process, by Flink's own clock.

Polling would be coarser: Flink answers `GET /jobs/:jobid` from a cache that is seconds old.
"""

from __future__ import annotations

from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.errors import FlinkError

__all__ = ["outage_of_redeploy_s", "outage_of_rescale_s"]


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
