"""One stop-with-savepoint, followed to its end through whatever still answers.

The outcome decides whether a job has to be brought back, so it may not be lost with one reply. The
trigger id is ours, which makes asking again harmless (Flink takes a known id for the same request),
and three places know of a finished savepoint: the trigger, the ended job's statistics, and, once
the JobManager has forgotten both, the directory itself.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from dsp_gym.backends.flink.rescale.preflight import local_folder
from dsp_gym.backends.flink.rescale.running import STALE_S
from dsp_gym.backends.flink.rest import ENDED, FlinkRest
from dsp_gym.config.strict_json import Document
from dsp_gym.errors import FlinkError

_STOP_WITH_SAVEPOINT = "SYNC_SAVEPOINT"
"""What `GET /jobs/:jobid/checkpoints` calls the savepoint of a stop."""


class SavepointFailed(FlinkError):
    """A stop that came to nothing: the job runs on, or has ended without a savepoint."""


@dataclass(frozen=True)
class Savepoint:
    """A complete savepoint of a job that is ending or has ended."""

    location: str
    seconds: float  # since it was asked for
    bytes: int | None  # None where nothing says it


def newest_savepoint(folder: Path, job_id: str, since_s: float) -> Path | None:
    """The newest complete savepoint of a job in a folder, if written after `since_s`.

    Flink names it after the first six digits of the job's id, and writes `_metadata` last.

    Returns:
        Its folder; None without one.
    """
    found = [
        (written.stat().st_mtime, written.parent)
        for written in folder.glob(f"savepoint-{job_id[:6]}-*/_metadata")
    ]
    new = [(when, path) for when, path in found if when >= since_s]
    return max(new)[1] if new else None


def newest_checkpoint(rest: FlinkRest, job_id: str) -> str | None:
    """Find the job's last complete checkpoint, which outlives a JobManager that is killed.

    Returns:
        Its location; None without one.
    """
    try:
        latest = rest.latest(job_id, "completed")
        with rest.reading():
            return None if latest is None else str(latest["external_path"])
    except FlinkError:
        return None


def newest_state(rest: FlinkRest, job_id: str) -> str | None:
    """Find the last state that a job has written, as a checkpoint or as a savepoint.

    Args:
        rest: the cluster.
        job_id: the job.

    Returns:
        Its location; None without one, or where Flink does not tell.
    """
    try:
        found = [rest.latest(job_id, kind) for kind in ("completed", "savepoint")]
        with rest.reading():
            written = [(int(one.get("id", 0)), str(one["external_path"])) for one in found if one]
    except FlinkError:
        return None
    return max(written)[1] if written else None


def dispose(rest: FlinkRest, location: str) -> bool:
    """Ask Flink to delete a savepoint; whether it took the request.

    Returns:
        True where Flink accepted the request; it deletes later.
    """
    try:
        rest.post("/savepoint-disposal", {"savepoint-path": location})
    except FlinkError:
        return False
    return True


class Stop:
    """Stops a job with a savepoint; `look` again and again until it is known.

    Args:
        rest: the cluster.
        job_id: the job to stop.
        directory: where Flink is to write, as it takes it.
        folder: the same, where it is on this machine.
        trigger_id: of a stop that an earlier process asked for; None: a new one.
        since_s: when that was, Unix seconds; None: now.
    """

    def __init__(
        self,
        rest: FlinkRest,
        job_id: str,
        directory: str,
        folder: Path | None,
        trigger_id: str | None = None,
        since_s: float | None = None,
    ) -> None:
        self.rest = rest
        self.job_id = job_id
        self.directory = directory
        self.folder = folder
        self.trigger_id = trigger_id or uuid.uuid4().hex
        self._accepted = False
        self._refusals = 0
        self._failure: str | None = None
        self._seen_ended_s: float | None = None
        self._began_s = time.monotonic()
        self._began_at_s = time.time() if since_s is None else since_s

    def look(self) -> Savepoint | None:
        """Ask how far the savepoint is.

        Returns:
            The savepoint once it is complete; None while that is unknown.

        Raises:
            SavepointFailed: it came to nothing; every later look says so again.
        """
        if self._failure is not None:
            raise SavepointFailed(self._failure)
        try:
            state = self.rest.state(self.job_id)
        except FlinkError:
            return self._without_the_job()
        if not self._accepted and state not in ENDED:
            self._ask()
            return None
        return self._asked(state)

    def left_behind(self) -> Savepoint | None:
        """Look for a complete savepoint in the job's statistics and in the directory.

        Returns:
            The savepoint; None without one.
        """
        try:
            latest = self.rest.latest(self.job_id, "savepoint")
        except FlinkError:
            latest = None
        location = None if latest is None else latest.get("external_path")
        if latest and location and latest.get("checkpoint_type") == _STOP_WITH_SAVEPOINT:
            return self._complete(str(location), latest)
        if self.folder is None:
            return None
        path = newest_savepoint(self.folder, self.job_id, self._began_at_s)
        return None if path is None else self._complete(str(path), None)

    def _ask(self) -> None:
        try:
            self.rest.stop_with_savepoint(self.job_id, self.directory, self.trigger_id)
        except FlinkError as error:
            self._accepted = self.is_known()
            self._refusals += not self._accepted
            if self._refusals > 2:  # the job could be read each time: these are answers
                self._fail(str(error))
        else:
            self._accepted = True

    def is_known(self) -> bool:
        """Ask Flink whether it knows the trigger: then at most its answer was lost.

        Returns:
            False also while Flink does not answer.
        """
        try:
            self.rest.savepoint(self.job_id, self.trigger_id)
        except FlinkError:
            return False
        return True

    def _asked(self, state: str) -> Savepoint | None:
        try:
            status = self.rest.savepoint(self.job_id, self.trigger_id)
        except FlinkError:  # forgotten after five minutes, or never heard of
            status = None
        if status is not None and status.location is not None:
            return self._complete(status.location, self._statistics(status.location))
        if status is not None and status.done:
            self._fail(f"the savepoint failed: {status.failure}")
        if state not in ENDED:
            return None
        found = self.left_behind()
        self._seen_ended_s = self._seen_ended_s or time.monotonic()
        # The statistics of a job that has just ended may be from before.
        if found is None and time.monotonic() - self._seen_ended_s > STALE_S + 1:
            self._fail(f"the job ended by itself meanwhile: {state}")
        return found

    def _without_the_job(self) -> Savepoint | None:
        """The JobManager is silent, or was restarted and knows nothing of the job."""
        try:
            self.rest.overview()
        except FlinkError:
            return None
        try:
            self.rest.state(self.job_id)
        except FlinkError:
            found = self.left_behind()
            if found is None:
                self._fail("the JobManager has lost the job, and there is no savepoint of it")
            return found
        return None

    def _statistics(self, location: str) -> Document | None:
        try:
            found = self.rest.latest(self.job_id, "savepoint")
        except FlinkError:
            return None
        return found if found and found.get("external_path") == location else None

    def _complete(self, location: str, statistics: Document | None) -> Savepoint:
        path = local_folder(location, self.rest.url)
        if path is not None and path.is_dir():
            size: int | None = sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
        else:
            told = None if statistics is None else statistics.get("state_size")
            size = told if isinstance(told, int) else None
        return Savepoint(location, time.monotonic() - self._began_s, size)

    def _fail(self, reason: str) -> None:
        self._failure = reason
        raise SavepointFailed(reason)
