"""A rescale that another process began and did not end: finished, taken back, or left alone.

What that process was to ask is in its journal: the stop's trigger and the id of the next job are
ours, so whatever is asked again is asked once. Nothing is begun that Flink has not heard of.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from dsp_gym.backends.base import OnEvent, ignored
from dsp_gym.backends.flink.program import UserProgram
from dsp_gym.backends.flink.rescale.resubmit import ResubmitActuator, by_hand
from dsp_gym.backends.flink.rescale.running import RunningJob
from dsp_gym.backends.flink.rescale.savepoints import (
    Savepoint,
    Stop,
    newest_checkpoint,
    newest_state,
)
from dsp_gym.backends.flink.rescale.worker import Unreached
from dsp_gym.backends.flink.rest import ENDED, FlinkRest, JobSummary, bearing, until_timeout
from dsp_gym.backends.flink.submission import Configuration, Submission
from dsp_gym.backends.flink.user_submission import UserSubmission
from dsp_gym.job.spec import JobSpec
from dsp_gym.records.rescales import Unfinished


def advice(
    url: str, job_name: str, spec: JobSpec, left: Unfinished, own: UserProgram | None = None
) -> tuple[str, str]:
    """Say how to finish a rescale by hand, with the newest state that its steps name.

    Args:
        url: of Flink's REST interface.
        job_name: the job's name, where the journal does not say how Flink has it.
        spec: its job file.
        left: what the journal says of the rescale.
        own: the user's program that the job is of; None: the job file names one.

    Returns:
        What is known of the state, and commands for a shell.
    """
    job, state = _job(job_name, spec, left, own), _newest_state(left)
    said = f"its state is in {state}" if state else "its savepoint is not known"
    return said, by_hand(url, job, state)


class ResumedRescale(ResubmitActuator):
    """Takes up the rescale; `resume`, then `wait` or `close`.

    Args:
        rest: the cluster.
        job_name: the job's name, where the journal does not say how Flink has it.
        spec: its job file.
        left: what the journal says of the rescale; the job was to be stopped.
        timeout_s: seconds for the savepoint, for coming up, and for being brought back, each.
        heard_within_s: seconds in which a request to stop, made just now, may still arrive.
        poll_s: seconds between two looks at the cluster.
        on_event: called with every step, from the thread of the rescale.
        own: the user's program that the job is of; None: the job file names one.
    """

    def __init__(
        self,
        rest: FlinkRest,
        job_name: str,
        spec: JobSpec,
        left: Unfinished,
        *,
        timeout_s: float = 120.0,
        heard_within_s: float = 0.0,
        poll_s: float = 0.25,
        on_event: OnEvent = ignored,
        own: UserProgram | None = None,
    ) -> None:
        self._heard_within_s = heard_within_s
        self._left = left
        self._recorded = _job(job_name, spec, left, own)
        self._spared: str | None = None  # a job that runs, and is left alone
        stopping = left.stopping or {}
        super().__init__(
            rest,
            self._recorded.submission.job_name,
            spec,
            str(stopping.get("directory", "")),
            timeout_s=timeout_s,
            poll_s=poll_s,
            on_event=on_event,
            own=own,
        )

    def resume(self) -> None:
        """Begin; returns at once."""
        with self._lock:
            self._begin(_configuration(self._left.asked["to"]))

    def _read(self) -> RunningJob:
        return self._recorded

    def _standing(self) -> Hashable | None:
        """Whatever somebody has started meanwhile is left alone, and nothing is compared."""
        return None

    def _intend(self, kind: str, body: dict[str, object]) -> None:
        """What is done here is on disk already, as the intent of the process that ended."""
        if kind == "asked":
            self._emit("resumed", {"since_s": self._left.t_s, **body})

    def _rescale(self, job: RunningJob, wanted: Configuration) -> None:
        stopping = self._left.stopping or {}
        self._checkpoint = stopping.get("checkpoint")
        self._next_id = str(stopping["next_id"])
        # A second of slack: file systems keep times more coarsely than clocks.
        since_s = self._left.t_s - 1.0
        stop = Stop(self.rest, job.id, self.directory, self.folder, stopping["trigger_id"], since_s)
        named = bearing(self.job_name, self.rest.jobs())
        alive = [one for one in named if one.state not in ENDED]
        if any(one.id == job.id for one in alive) and not self._is_heard(stop):
            self._spared = job.id
            raise Unreached("the job runs as before: Flink never heard that it was to stop")
        self._stop = stop
        if self._left.savepoint is not None:
            known = self._left.savepoint
            self._savepoint = Savepoint(
                str(known["location"]), float(known["seconds"]), known.get("bytes")
            )
        others = [one for one in alive if one.id != job.id]
        if others:
            self._follow(others[0], wanted)
            return
        if not alive:
            self._leave_to_ended(job, named)
        if self._savepoint is None:
            self._finish(job, wanted, stop)
        else:
            self._go_on(job, wanted, self._savepoint, named)

    def _leave_to_ended(self, job: RunningJob, named: list[JobSummary]) -> None:
        """Start nothing from a state that a job of somebody else has gone on from and ended."""
        ours = self._ids() | {job.id}
        theirs = [j for j in named if j.id not in ours and j.start_s > self._left.t_s]
        if not theirs:
            return
        last = max(theirs, key=lambda one: one.start_s)
        reason = f"job {last.id} ran under the job's name and has ended since"
        before = "" if self._savepoint is None else f"; before it: {self._savepoint.location}"
        self._stop = None
        self._alarm(
            f"{reason}, so nothing is started from an older state{before}",
            job,
            newest_state(self.rest, last.id),
        )
        self._emit("left", {"job_id": last.id, "reason": reason})
        raise Unreached(reason)

    def _go_on(
        self,
        job: RunningJob,
        wanted: Configuration,
        savepoint: Savepoint,
        named: list[JobSummary],
    ) -> None:
        """With the savepoint known: what is left is the end of the old job, and the new one."""
        ours = [one for one in named if one.id in self._ids()]
        ran = [one.id for one in ours if newest_checkpoint(self.rest, one.id) is not None]
        if ran:
            self._stop = None
            self._alarm(
                f"job {ran[-1]} came up, ran, and has ended since",
                job,
                newest_checkpoint(self.rest, ran[-1]),
            )
            raise Unreached("the job has ended since, and is not started again by itself")
        self._wait_for_end(job.id)
        self._emit("stopped", {"job_id": job.id})
        if self._left.has_failed:
            raise Unreached("the new configuration had failed already")
        if ours:
            raise Unreached(f"job {ours[-1].id} was submitted and is {ours[-1].state}")
        newer = self._retained()
        self._submit(job, wanted, savepoint.location if newer is None else newer)

    def _follow(self, other: JobSummary, wanted: Configuration) -> None:
        """See our next job come up.

        Any other job of that name is left alone, and so is one that has made progress itself.
        """
        if other.id not in self._ids():
            self._spared = other.id
            raise Unreached(f"job {other.id} runs, which somebody else has started")
        configuration = self._asked_of(other, wanted)
        if newest_checkpoint(self.rest, other.id) is None:
            self._recorded.submission.placed(self.rest, other.id, configuration, self.timeout_s)
            self._recorded.submission.wait_until_ready(
                self.rest, other.id, configuration, self.timeout_s
            )
        if configuration != wanted:
            self._spared = other.id
            raise Unreached("the new configuration had failed; the former runs")
        outage_s = self._outage_s(self._recorded.id, other.id)
        self._emit("running", {"job_id": other.id, "outage_s": outage_s})

    def _asked_of(self, ours: JobSummary, wanted: Configuration) -> Configuration:
        """With what our next job was submitted; the former may have been, under the first id."""
        if ours.id == self._next_id:
            submitted = self._recorded.submission.submitted(self.rest, ours.id)
            if submitted == wanted or not self._left.has_failed:
                return wanted
        return self._recorded.configuration

    def _is_heard(self, stop: Stop) -> bool:
        """Whether Flink, which answers, has heard of the stop."""
        self.rest.state(stop.job_id)
        return any(stop.is_known() for _ in until_timeout(self._heard_within_s, self.poll_s))

    def _recover(self, job: RunningJob, wanted: Configuration) -> None:
        if self._spared is None:
            super()._recover(job, wanted)
        else:
            stopped = self._spared != job.id
            self._emit("restored", {"job_id": self._spared, "stopped": stopped})


def _newest_state(left: Unfinished) -> str | None:
    checkpoint = None if left.stopping is None else left.stopping.get("checkpoint")
    return left.location or checkpoint


def _job(
    job_name: str, spec: JobSpec, left: Unfinished, own: UserProgram | None = None
) -> RunningJob:
    """The job as it ran before, as its intent says."""
    stopping = left.stopping or {}
    job_name = str(stopping.get("job_name", job_name))
    arguments = {key: str(value) for key, value in dict(stopping.get("arguments", {})).items()}
    sharing = str(stopping.get("slot_sharing", "per-vertex"))
    submission = Submission(spec, job_name, arguments, sharing)
    if own is not None:
        ids = {name: str(one) for name, one in dict(stopping.get("vertex_ids", {})).items()}
        others = {one: int(tasks) for one, tasks in dict(stopping.get("others", {})).items()}
        submission = UserSubmission(
            spec,
            job_name,
            {},
            sharing,
            own=own,
            vertex_ids=ids,
            others=others,
            is_adaptive=bool(stopping.get("is_adaptive", False)),
        )
    before = _configuration(left.asked["from"])
    return RunningJob(str(stopping.get("job_id", "")), "RUNNING", submission, before, {})


def _configuration(words: Mapping[str, Mapping[str, int]]) -> Configuration:
    """What `as_words` wrote."""
    return Configuration(dict(words["parallelism"]), dict(words["memory_level"]))
