"""Parallelism and memory by stop-with-savepoint and resubmission: Justin's moves on stock Flink.

The job is out of our hands between its stop and its resubmission, so that stretch is guarded:
whatever happens in it, the job is brought back from its savepoint with the configuration it had,
again and again until it runs; once that takes too long an alarm says how to do it by hand.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import shlex
import time
import uuid
from collections.abc import Hashable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from dsp_gym.backends.base import OnEvent, ignored
from dsp_gym.backends.flink.program import UserProgram
from dsp_gym.backends.flink.rescale.finisher import Finisher
from dsp_gym.backends.flink.rescale.in_place import as_asked, mark_of
from dsp_gym.backends.flink.rescale.preflight import (
    check_levels,
    check_memory,
    check_running,
    check_slots,
    check_writable,
    local_folder,
)
from dsp_gym.backends.flink.rescale.running import RunningJob, outage_of_redeploy_s
from dsp_gym.backends.flink.rescale.savepoints import (
    Savepoint,
    SavepointFailed,
    Stop,
    dispose,
    newest_checkpoint,
)
from dsp_gym.backends.flink.rescale.worker import CameUp, OneJobActuator, Unreached, as_words
from dsp_gym.backends.flink.rest import ENDED, FlinkRest, JobSummary, bearing, until_timeout
from dsp_gym.backends.flink.submission import Configuration, runs_whole
from dsp_gym.backends.flink.user_submission import UserSubmission
from dsp_gym.backends.lease import RenewedLease
from dsp_gym.errors import FlinkError
from dsp_gym.job.spec import FlinkProgram, JobSpec
from dsp_gym.loop.protocols import ActuatorStatus
from dsp_gym.redaction import HIDDEN, is_secret_name, redacted

_ATTEMPTS = 64
"""Attempts to bring a job back whose ids are taken for ours."""

_DUPLICATE = "DuplicateJobSubmission"
"""What Flink calls the submission of a job whose id it has taken before."""


class ResubmitActuator(OneJobActuator):
    """Stops the job with a savepoint and submits it again with the wanted configuration.

    The savepoint that the running job was started from is kept, and disposed of after the next.
    Where it has a `finisher`, a second process stands by while the job is stopped.

    Args:
        rest: the cluster.
        job_name: the job's name; it must be running.
        spec: its job file.
        savepoints: directory for savepoints, as Flink takes it; both JobManager and TaskManagers
            write there.
        timeout_s: seconds for the savepoint, for coming up, and for being brought back, each.
        poll_s: seconds between two looks at the cluster.
        on_event: called with every step, from the thread of the request.
        lease: what a process must hold to stop the job; None: this one acts alone. A job that it
            has stopped it submits again in any case, unless another of that name runs.
        own: the user's program that the job is of; None: it is of a job file's program.
    """

    def __init__(
        self,
        rest: FlinkRest,
        job_name: str,
        spec: JobSpec,
        savepoints: Path | str,
        *,
        timeout_s: float = 120.0,
        poll_s: float = 0.25,
        on_event: OnEvent = ignored,
        lease: RenewedLease | None = None,
        own: UserProgram | None = None,
    ) -> None:
        self.finisher: Finisher | None = None
        self._own = own
        self.directory = str(savepoints)
        self.folder = local_folder(self.directory, rest.url)
        self.retry_s = 5.0  # between two attempts to bring the job back
        self._stop: Stop | None = None
        self._savepoint: Savepoint | None = None
        self._checkpoint: str | None = None
        self._ended_s = 0.0
        self._needed: str | None = None  # the savepoint the running job was started from
        self._is_adaptive: bool | None = None  # whether the job takes requirements; None: not known
        self._first_mark: tuple[str, Hashable] | None = None  # of a job, when it was seen first
        self._is_placing = False  # whether a job is being submitted, and asked for its tasks
        self._next_id = ""  # Flink's id of the job to be submitted, known before it is
        self._taken: set[str] = set()  # ids that Flink takes no more
        super().__init__(
            rest,
            job_name,
            spec,
            timeout_s=timeout_s,
            poll_s=poll_s,
            on_event=on_event,
            lease=lease,
        )

    def _handle(self, wanted: Configuration) -> None:
        try:
            super()._handle(wanted)
        finally:
            if self.finisher is not None:
                self.finisher.end()

    def _prepare(self, job: RunningJob) -> None:
        self._next_id = uuid.uuid4().hex
        if self.finisher is not None:
            self.finisher.begin(self._next_id, job.submission.arguments)

    def _read(self) -> RunningJob:
        return RunningJob.find(self.rest, self.job_name, self.spec, self._own)

    def _rescale(self, job: RunningJob, wanted: Configuration) -> None:
        self._stop = self._savepoint = None
        self._ended_s = 0.0
        self._check(job, wanted)
        self._stop = Stop(self.rest, job.id, self.directory, self.folder)
        self._checkpoint = newest_checkpoint(self.rest, job.id)
        try:
            self._intend("stopping", self._intent(job))
        except Unreached:
            self._stop = None  # nothing was asked of the job
            raise
        if (reason := self._left_to_others()) is not None:
            self._stop = None
            self._emit("left", {"job_id": job.id, "reason": reason})
            raise Unreached(f"nothing was asked of the job: {reason}")
        self._watch.asking(*self._ids())
        self._is_asked = True
        self._finish(job, wanted, self._stop)

    def _intent(self, job: RunningJob) -> dict[str, object]:
        """What another process needs to finish the rescale, should this one be killed.

        Of a user's program the configuration has the arguments: they are not repeated.
        """
        submission = job.submission
        told: dict[str, object] = {}
        if isinstance(submission, UserSubmission):
            told["vertex_ids"] = dict(submission.vertex_ids)
            told["others"] = dict(submission.others)
            told["is_adaptive"] = submission.is_adaptive
        else:
            told["arguments"] = _without_secrets(submission.arguments, submission.program)
        return {
            "job_id": job.id,
            "job_name": submission.job_name,
            "directory": self.directory,
            "checkpoint": self._checkpoint,
            "trigger_id": "" if self._stop is None else self._stop.trigger_id,
            "next_id": self._next_id,
            "arguments": {},
            "slot_sharing": submission.slot_sharing,
            **told,
        }

    def _finish(self, job: RunningJob, wanted: Configuration, stop: Stop) -> None:
        """From the stop to the running job."""
        self._savepoint = self._finished(stop)
        self._tell_savepoint(self._savepoint)
        self._wait_for_end(job.id)
        self._emit("stopped", {"job_id": job.id})
        self._submit(job, wanted, self._savepoint.location)

    def _check(self, job: RunningJob, wanted: Configuration) -> None:
        """Everything that can be known to fail, before the job is touched."""
        check_running(job)
        check_slots(self.rest, job, wanted)
        if job.submission.moves_memory:
            check_memory(self.rest, job, wanted, self.spec)
        else:
            check_levels(job, wanted)
        check_writable(self.folder)
        job.submission.upload(self.rest)  # a jar that is gone is found out here
        job.submission.check_change(self.rest, wanted)

    def _check_way(self, job: RunningJob) -> None:
        try:
            self.rest.get("/jars")
        except FlinkError as error:
            if error.reason != "NotFound":
                raise
            raise FlinkError(
                f"{self.rest.url} takes no jars, so a job could not be submitted again",
                reason="Unsupported",
                remedy="Set web.submit.enable: true on the cluster, or where.actuator: adaptive",
            ) from error
        with self.rest.reading():
            job.submission.check(self.rest, self.rest.job(job.id))
        check_writable(self.folder)

    def _finished(self, stop: Stop) -> Savepoint:
        for _ in until_timeout(self.timeout_s, self.poll_s):
            savepoint = stop.look()
            if savepoint is not None:
                return savepoint
        raise Unreached(
            f"the savepoint was not complete within {self.timeout_s:g} s",
            status=ActuatorStatus.TIMED_OUT,
            remedy="A saturated job drains slowly: raise the time limit, or add capacity.",
        )

    def _wait_for_end(self, job_id: str) -> None:
        for _ in until_timeout(self.timeout_s, self.poll_s):
            if not self._alive(job_id):
                self._ended_s = time.monotonic()
                return
        raise Unreached(
            f"the job did not end within {self.timeout_s:g} s of its savepoint",
            status=ActuatorStatus.TIMED_OUT,
        )

    def _alive(self, job_id: str) -> bool:
        """Whether a job may still run; also True while that is unknown."""
        try:
            jobs = self.rest.jobs()
        except FlinkError:
            return True
        return any(job.id == job_id and job.state not in ENDED for job in jobs)

    def _submit(self, job: RunningJob, wanted: Configuration, location: str) -> None:
        job_id = self._next_id
        self._leave_to(job)
        self._emit("submitted", {"savepoint": location, "job_id": job_id, **as_words(wanted)})
        began = time.monotonic()
        try:
            job_id = self._run(job, wanted, location, self.timeout_s, job_id)
        except FlinkError as error:
            late = time.monotonic() - began >= self.timeout_s
            raise Unreached(
                f"the job did not come back with the new configuration: {error}",
                status=ActuatorStatus.TIMED_OUT if late else ActuatorStatus.FAILED,
            ) from error
        self._emit("running", {"job_id": job_id, "outage_s": self._outage_s(job.id, job_id)})
        self._needs(location)

    def _leave_to(self, job: RunningJob) -> None:
        """Submit nothing beside a job of that name that somebody else has started."""
        others = [one.id for one in self._named() if one.id != job.id and one.id not in self._ids()]
        if others:
            self._stop = None
            self._emit("left", {"job_id": others[0], "reason": _by_others(others[0])})
            raise Unreached(_by_others(others[0]))

    def _named(self) -> list[JobSummary]:
        """The jobs of this name that have not ended."""
        return bearing(self.job_name, [one for one in self.rest.jobs() if one.state not in ENDED])

    def _standing(self) -> Hashable:
        """The job's id; with its requirements, once these are others than it was submitted with.

        The adaptive scheduler takes requirements from anybody, and the job keeps its id.
        """
        job_id = self.rest.find_job(self.job_name).id
        if not self._takes_requirements():
            return job_id
        if self._is_placing:
            return job_id  # what is asked of it is ours, and may not be all yet
        mark = self._mark(job_id)
        if self._first_mark is None or self._first_mark[0] != job_id:
            self._first_mark = job_id, mark
        return job_id if mark == self._first_mark[1] else mark

    def _mark(self, job_id: str) -> Hashable:
        with self.rest.reading():
            return mark_of(job_id, self.rest.resource_requirements(job_id))

    def _run(
        self,
        job: RunningJob,
        configuration: Configuration,
        location: str,
        timeout_s: float,
        id_: str,
    ) -> str:
        """Submit the job, and remember it as it was submitted: others may ask for more."""
        self._is_placing = True
        try:
            job_id = job.submission.submit(
                self.rest, configuration, location, timeout_s=timeout_s, job_id=id_
            )
            with contextlib.suppress(FlinkError):
                if self._takes_requirements():
                    self._first_mark = job_id, self._mark(job_id)
        except FlinkError as error:
            if _DUPLICATE in error.message:
                self._taken.add(id_)
            raise
        finally:
            self._is_placing = False
        return job_id

    def _takes_requirements(self) -> bool:
        if self._is_adaptive is None:
            self._is_adaptive = self.rest.scheduler() == "adaptive"
        return self._is_adaptive

    def _described(self) -> tuple[str, str | None]:
        """The job as somebody has started it, or asks for it; Flink keeps no record of who."""
        found = self.rest.find_job(self.job_name)
        when = datetime.fromtimestamp(found.start_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        job = self._read()
        asked = job.configuration
        if self._takes_requirements():
            with self.rest.reading():
                asked = as_asked(job, self.rest.resource_requirements(job.id))
        return f"{asked} (job {found.id}, started at {when})", None

    def _needs(self, location: str) -> None:
        """Give up the savepoint before this one, if it is ours: each is as large as the state."""
        before, self._needed = self._needed, location
        if before is not None and dispose(self.rest, before):
            self._emit("disposed", {"savepoint": before})

    def _outage_s(self, old_id: str, new_id: str) -> float | None:
        told = outage_of_redeploy_s(self.rest, old_id, new_id)
        return time.monotonic() - self._ended_s if told is None and self._ended_s else told

    def _recover(self, job: RunningJob, wanted: Configuration) -> None:
        if self._stop is None:
            return  # refused before the job was touched
        if self._savepoint is None:
            self._savepoint = self._outcome(job, self._stop)
            if self._savepoint is None:
                return
            self._tell_savepoint(self._savepoint)
        self._bring_back(job, wanted, self._savepoint.location)

    def _outcome(self, job: RunningJob, stop: Stop) -> Savepoint | None:
        """See a stop out that failed or took too long; None: the job was not stopped by us.

        Flink ends a savepoint itself (`execution.checkpointing.timeout`); until then the job may
        yet stop, so it is watched.
        """
        alarm = _Alarm(self.timeout_s)
        while True:
            try:
                savepoint = stop.look()
            except SavepointFailed as failed:
                return self._after_failure(job, stop, failed)
            if savepoint is not None:
                return savepoint
            if alarm.due():
                self._alarm(
                    f"it is not known whether the job was stopped; see {self.directory}",
                    job,
                    self._checkpoint,
                )
            if alarm.raised and self._closing.is_set():
                return None
            time.sleep(self.poll_s)

    def _after_failure(
        self, job: RunningJob, stop: Stop, failed: SavepointFailed
    ) -> Savepoint | None:
        """Wait for the job after a failed savepoint; return the savepoint if it ended anyway.

        A job that lost a TaskManager comes back by itself, maybe after the alarm only.
        """
        state, alarm = "unknown", _Alarm(self.timeout_s)
        while not (alarm.raised and self._closing.is_set()):
            with contextlib.suppress(FlinkError):
                state = self.rest.state(job.id)
                if state in ENDED:
                    break
                if state == "RUNNING" and runs_whole(self.rest, job.id):
                    self._emit("restored", {"job_id": job.id, "stopped": False})
                    return None
            if alarm.due():
                self._alarm(_not_running(state, failed), job, self._checkpoint)
            time.sleep(self.poll_s)
        if state in ENDED and (savepoint := stop.left_behind()) is not None:
            return savepoint
        if not alarm.raised:
            self._alarm(_not_running(state, failed), job, self._checkpoint)
        return None

    def _bring_back(self, job: RunningJob, wanted: Configuration, location: str) -> None:
        """Submit the old configuration from the savepoint until it runs.

        An attempt has twice the time of the one before: a job that needs longer than the time
        limit to come up would otherwise be cancelled again and again.

        A job that came up from the savepoint and has ended since is started from what it has
        retained, or is named: the savepoint is older than what it has written.

        Raises:
            CameUp: The wanted configuration runs: only answers of Flink were lost.
        """
        alarm, patience_s = _Alarm(self.timeout_s), self.timeout_s
        while True:
            try:
                ran = self._ran_and_ended()
                if ran is not None and self._retained() is None:
                    self._alarm(
                        f"job {ran} came up, ran, and has ended since: it is not started again "
                        "from an older state",
                        job,
                        newest_checkpoint(self.rest, ran),
                    )
                    return
                job_id = self._attempt(job, wanted, location, patience_s, alarmed=alarm.raised)
            except CameUp:
                self._needs(location)
                raise
            except Exception as error:  # whatever it is, the job has to come back
                if alarm.due():
                    self._alarm(
                        f"the job could not be brought back: {error}",
                        job,
                        self._newest_of_ours() or location,
                    )
                if alarm.raised and self._closing.is_set():
                    return
                patience_s *= 2
                self._closing.wait(self.retry_s) if alarm.raised else time.sleep(self.retry_s)
            else:
                outage_s = self._outage_s(job.id, job_id)
                self._emit("restored", {"job_id": job_id, "outage_s": outage_s, "stopped": True})
                self._needs(location)
                return

    def _attempt(
        self,
        job: RunningJob,
        wanted: Configuration,
        location: str,
        patience_s: float,
        *,
        alarmed: bool,
    ) -> str:
        """Submit the old configuration once, with nothing of the failed one left running.

        A job that runs as wanted, or has gone on from the savepoint, is never cancelled: records
        that it has processed since would be processed again. Once the alarm was raised, a job of
        that name may be one that a person has started: it is taken for the restored one.
        """
        for left in self._named():
            found = RunningJob.find(self.rest, self.job_name, self.spec, self._own).configuration
            runs = runs_whole(self.rest, left.id)
            if runs and left.id == self._next_id and found == wanted:
                self._emit("running", {"job_id": left.id, "outage_s": None})
                raise CameUp
            is_ours = left.id == job.id or left.id in self._ids()
            if runs and (alarmed or not is_ours or found == job.configuration):
                return left.id
            if alarmed or not is_ours or self.rest.has_checkpoint(left.id):
                raise FlinkError(f"job {left.id} is {left.state}")
            self.rest.cancel(left.id)
            self.rest.wait_for(left.id, ENDED, patience_s)
        state = self._retained() or location
        return self._run(job, job.configuration, state, patience_s, self._free_id())

    def _free_id(self) -> str:
        """The first of our ids that Flink has taken for no job yet.

        A submission without an answer may arrive later. Flink takes one job of an id, so nothing
        of another id may be submitted until it has taken one.
        """
        taken = self._taken | {one.id for one in self.rest.jobs()}
        later = (attempt_id(self._next_id, number) for number in itertools.count(1))
        return next(one for one in itertools.chain([self._next_id], later) if one not in taken)

    def _ids(self) -> frozenset[str]:
        """Ids that Flink may know the next job by."""
        tried = (attempt_id(self._next_id, number) for number in range(1, _ATTEMPTS))
        return frozenset((self._next_id, *tried))

    def _ours(self) -> list[JobSummary]:
        """Jobs that were submitted since the savepoint, the oldest first."""
        ours = self._ids()
        return sorted(
            (one for one in self.rest.jobs() if one.id in ours), key=lambda one: one.start_s
        )

    def _ran_and_ended(self) -> str | None:
        """The last job since the savepoint, where it has made progress and ended."""
        ours = self._ours()
        if not ours or any(one.state not in ENDED for one in ours):
            return None
        ran = [one.id for one in ours if self.rest.has_checkpoint(one.id)]
        return ran[-1] if ran else None

    def _newest_of_ours(self) -> str | None:
        """The newest checkpoint of the jobs since the savepoint, as far as Flink answers."""
        try:
            found = [newest_checkpoint(self.rest, one.id) for one in self._ours()]
        except FlinkError:
            return None
        return next((one for one in reversed(found) if one is not None), None)

    def _retained(self) -> str | None:
        """The newest checkpoint of the next job, which a JobManager has run and forgotten.

        Flink keeps the checkpoints of a job in a folder named after its id.
        """
        if self._checkpoint is None:
            return None
        folder = local_folder(self._checkpoint, self.rest.url)
        if folder is None:
            return None
        found = [
            (written.stat().st_mtime, written.parent)
            for job_id in self._ids()
            for written in (folder.parents[1] / job_id).glob("chk-*/_metadata")
        ]
        return str(max(found)[1]) if found else None

    def _tell_savepoint(self, savepoint: Savepoint) -> None:
        self._emit("savepoint", asdict(savepoint))

    def _alarm(self, reason: str, job: RunningJob, location: str | None) -> None:
        body: dict[str, object] = {"reason": reason, "job_id": job.id, "savepoint": location}
        self._emit("alarm", body | {"remedy": by_hand(self.rest.url, job, location)})


def _without_secrets(arguments: Mapping[str, str], program: FlinkProgram) -> dict[str, str]:
    """The arguments for a journal: those of the job file are not repeated, secret ones are hidden.

    With a hidden one another process does not take the rescale up by itself.
    """
    in_file = program.arguments
    return {
        name: HIDDEN if is_secret_name(name) or redacted(value) != value else value
        for name, value in arguments.items()
        if not (is_secret_name(name) and str(in_file.get(name)) == value)
    }


def _not_running(state: str, failed: SavepointFailed) -> str:
    return f"the job is not running (state {state}): {failed}"


def _by_others(job_id: str) -> str:
    return f"job {job_id} runs under the job's name, and somebody else has started it"


def attempt_id(next_id: str, number: int) -> str:
    """Flink's id of an attempt to bring a job back; it follows from the recorded one.

    Returns:
        32 hexadecimal digits.
    """
    return uuid.uuid5(uuid.UUID(next_id), str(number)).hex


def by_hand(url: str, job: RunningJob, location: str | None) -> str:
    """Say how to bring a job back as it was.

    Returns:
        Commands for a shell, in one sentence.
    """
    body = {
        **job.submission.run(job.configuration),
        "savepointPath": location or "PATH_OF_A_SAVEPOINT_OR_CHECKPOINT",
    }
    return (
        f"See {url}/jobs/overview whether a job named {job.submission.job_name} runs. If none "
        f"does: {job.submission.jar_by_hand(url)}: curl -X POST -H 'Content-Type: "
        f"application/json' -d {shlex.quote(json.dumps(body))} {url}/jars/JAR_ID/run"
    )


class _Alarm:
    """Due once, after a while."""

    def __init__(self, after_s: float) -> None:
        self._at_s = time.monotonic() + after_s
        self.raised = False

    def due(self) -> bool:
        if self.raised or time.monotonic() < self._at_s:
            return False
        self.raised = True
        return True
