"""What actuators of one real job share: requests, their thread, their status and their events.

A request runs in a thread that lives only while something is under way. The thread is not a daemon:
an interpreter that ends waits for it, so a job is not left between two configurations.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable, Sequence
from types import TracebackType
from typing import Self

import numpy as np

from dsp_gym.arrays import Ints
from dsp_gym.backends.base import OnEvent, ignored
from dsp_gym.backends.flink.answers import vertices_of
from dsp_gym.backends.flink.rescale.running import RunningJob
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.backends.flink.submission import Configuration
from dsp_gym.backends.interference import Interference, InterferenceWatch
from dsp_gym.backends.lease import LeaseKeeper, RenewedLease, reason_not_to_write
from dsp_gym.errors import ApiError, DspGymError, FlinkError
from dsp_gym.job.deployment import slot_levels
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.decision import GuardedDecision
from dsp_gym.loop.protocols import ActuatorStatus
from dsp_gym.loop.topology import Topology

_LOG = logging.getLogger(__name__)

RETRY_S = 3600.0
"""What was asked of a job without effect is not asked again for so long, s."""


class Unreached(FlinkError):
    """A request that did not come about; `status` is what the actuator then reports."""

    def __init__(
        self,
        message: str,
        *,
        status: ActuatorStatus = ActuatorStatus.FAILED,
        remedy: str | None = None,
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.status = status


def _ended(sources: Sequence[str]) -> str:
    return f"{', '.join(sources)} {'has' if len(sources) == 1 else 'have'} read all there was"


class CameUp(Exception):
    """A request that seemed to have failed has come about after all."""


def clipped(guarded: GuardedDecision, topology: Topology) -> Configuration:
    """Bring a guarded decision inside the bounds of the only job of a topology.

    Returns:
        The configuration to ask for.
    """
    tables, names = topology.tables, topology.names(0)
    row, size = int(topology.row[0]), len(names)
    low, high = tables.min_parallelism[row, :size], tables.max_parallelism[row, :size]
    parallelism = np.clip(guarded.parallelism[0, :size], low, high)
    tasks, spec = dict(zip(names, parallelism.tolist(), strict=True)), topology.spec(0)
    if spec.memory.uniform:  # every slot has the same, whatever is asked for
        return Configuration(tasks, slot_levels(spec))
    level = np.clip(guarded.memory_level[0, :size], -1, tables.levels[row] - 1)
    return Configuration(tasks, dict(zip(names, level.tolist(), strict=True)))


def as_words(configuration: Configuration) -> dict[str, dict[str, int]]:
    """A configuration as JSON values, for events.

    Returns:
        `parallelism` and `memory_level`, each by vertex name.
    """
    return {
        "parallelism": dict(configuration.parallelism),
        "memory_level": dict(configuration.memory_level),
    }


class JobActuator(ABC):
    """Actuator of a batch of one running job; use it as a context manager, or `close()` it.

    Args:
        job_name: the job's name; it must be running.
        spec: its job file.
        timeout_s: seconds after which a step that makes no progress is given up.
        poll_s: seconds between two looks at the job.
        on_event: called with every step, from the thread of the request.
    """

    def __init__(
        self,
        job_name: str,
        spec: JobSpec,
        *,
        timeout_s: float = 120.0,
        poll_s: float = 0.25,
        on_event: OnEvent = ignored,
    ) -> None:
        self.job_name = job_name
        self.spec = spec
        self.timeout_s = timeout_s
        self.poll_s = poll_s
        self.topology = Topology.of([spec])
        self._on_event = on_event
        self._lock = threading.Lock()
        self._requests: deque[Configuration] = deque()
        self._thread: threading.Thread | None = None
        self._under_way: Configuration | None = None
        self._status = ActuatorStatus.IDLE
        self._closing = threading.Event()
        self._is_asked = False
        """Whether the request under way has reached the job, or may have."""
        self._without_effect: tuple[Configuration, float] | None = None
        """What was asked last and did not come about, and when, by `time.monotonic`."""
        self._watch, self._watched_term = InterferenceWatch(), 0
        self._known = self._read().configuration

    def apply(self, guarded: GuardedDecision) -> None:
        """Ask for the guarded configuration; returns at once.

        What was asked last and did not come about is refused for `RETRY_S`: a quota, an override
        that is ignored or missing slots do not go away by asking.
        """
        self._ask(clipped(guarded, self.topology))

    def _ask(self, wanted: Configuration, *, again: bool = False) -> None:
        with self._lock:
            if self._under_way is not None:
                if wanted in (self._under_way, self._known):
                    return  # on its way, or the decision holds the running one
                reason = "another request is under way"
            elif self._closing.is_set():
                reason = "the actuator is closed"
            elif not again and (tried_s := self._tried_s(wanted)) is not None:
                reason = (
                    f"the same was asked {tried_s:.0f} s ago and did not come about; it is asked "
                    f"again after {RETRY_S:.0f} s, or when something else was asked"
                )
            else:
                self._begin(wanted)
                return
            self._status = ActuatorStatus.FAILED
        self._emit("refused", {"reason": reason, "wanted": as_words(wanted)})

    def _tried_s(self, wanted: Configuration) -> float | None:
        """Seconds since the same was asked without effect; None: it may be asked."""
        if self._without_effect is None or self._without_effect[0] != wanted:
            return None
        since_s = time.monotonic() - self._without_effect[1]
        return since_s if since_s < RETRY_S else None

    def interference(self) -> Interference | None:
        """What somebody else has changed about the job since this process acts; None: nothing.

        While another process holds the lease its changes are expected: what this one finds when it
        takes over is its baseline.

        Returns:
            The first such change; it stays.
        """
        watch, lease = self._watch, self._lease_of()
        if lease is not None and (lease.standby() is not None or lease.term != self._watched_term):
            watch.begin()
            self._watched_term = 0 if lease.standby() is not None else lease.term
        if watch.found is not None:
            return watch.found
        version = watch.version()
        try:
            there = self._standing()
            if there is None or not watch.is_foreign(there, version):
                return None
        except ApiError:
            return None  # out of reach, or the job is down; it is looked at again
        try:
            after, by = self._described()
        except ApiError as error:
            after, by = f"something that cannot be told ({error})", None
        watch.found = Interference(str(self._known), after, watch.now(), by)
        self._emit("interference", watch.found.document())
        return watch.found

    def _lease_of(self) -> RenewedLease | None:
        """What a process must hold to act; None: nothing."""
        return None

    def _standing(self) -> Hashable | None:
        """The mark of what is asked of the job now, whoever has asked it; None: not known.

        Raises:
            ApiError: It cannot be had.
        """
        return None

    def _described(self) -> tuple[str, str | None]:
        """What is asked of the job now, for people, and who has asked it, where that is known."""
        return str(self._read().configuration), None

    def status(self) -> Ints:
        """State of the last request.

        Returns:
            (1,) of `ActuatorStatus`.
        """
        return np.array([self._status], np.int64)

    def roll_back(self, before: GuardedDecision, reason: str) -> None:
        """Ask for the configuration from before a change; returns at once."""
        self._ask(clipped(before, self.topology), again=True)

    def wait(self, timeout_s: float) -> bool:
        """Wait until no request is under way, nor a look at the job.

        Returns:
            Whether that came about within the time limit.
        """
        thread = self._thread
        if thread is not None:
            thread.join(timeout_s)
        return self._thread is None

    def close(self) -> None:
        """Wait until nothing is under way; afterwards every request is refused.

        An interrupt (Ctrl-C) while waiting is raised when the job is safe, not before. Every step
        has its time limit, so this ends.
        """
        self._closing.set()
        interrupted: KeyboardInterrupt | None = None
        is_idle = False
        while not is_idle:
            try:
                is_idle = self.wait(1.0)
            except KeyboardInterrupt as interrupt:
                interrupted = interrupt
                _LOG.warning("interrupted while job %s is being rescaled: waiting", self.job_name)
        if interrupted is not None:
            raise interrupted

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _prepare(self, job: RunningJob) -> None:  # noqa: B027  # most need nothing
        """Do what has to be done before a change is asked for; nothing is written down yet."""

    @abstractmethod
    def _rescale(self, job: RunningJob, wanted: Configuration) -> None:
        """Bring the job from its configuration to the wanted one, or raise `Unreached`."""

    @abstractmethod
    def _recover(self, job: RunningJob, wanted: Configuration) -> None:
        """After a failed `_rescale`: the job runs as before, or an alarm says what to do.

        Raises:
            CameUp: The job runs as wanted.
        """

    @abstractmethod
    def _read(self) -> RunningJob:
        """The job as it runs now."""

    def _emit(self, kind: str, body: dict[str, object]) -> None:
        """Report a step. A listener that fails (a full disk) must not stop a rescale half-way."""
        try:
            self._on_event(kind, {"job": self.job_name} | body)
        except Exception:
            _LOG.exception("event %s of job %s could not be recorded", kind, self.job_name)

    def _intend(self, kind: str, body: dict[str, object]) -> None:
        """Report what is about to be asked of the job: without a record nothing is asked.

        Raises:
            Unreached: The listener could not keep it.
        """
        try:
            self._on_event(kind, {"job": self.job_name} | body)
        except Exception as error:
            raise Unreached(f"nothing was asked of the job: {error}") from error

    def _begin(self, wanted: Configuration) -> None:
        """Hand a request to the thread; the lock is held.

        What equals the configuration known to run is looked at too, for someone else may have
        rescaled the job since, but it shows as a request only if they did.
        """
        self._requests.append(wanted)
        if wanted != self._known:
            self._under_way, self._status = wanted, ActuatorStatus.PENDING
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._work, name=f"rescale-{self.job_name}", daemon=False
            )
            self._thread.start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._requests:
                    self._thread = None
                    return
                wanted = self._requests.popleft()
            self._handle(wanted)

    def _handle(self, wanted: Configuration) -> None:
        job = None
        try:
            found = self._looked_at()
            if found.configuration == wanted:
                self._end(
                    wanted, ActuatorStatus.REACHED if self._under_way == wanted else None, wanted
                )
                return
            if not self._take(wanted):
                return
            if (foreign := self.interference()) is not None:
                raise Unreached(foreign.reason)
            self._prepare(found)
            job = found
            change = {"from": as_words(job.configuration), "to": as_words(wanted)}
            self._intend("asked", {"job_id": job.id, **change})
            self._is_asked = False
            self._rescale(job, wanted)
        except Exception as error:
            if self._under_way != wanted:
                return  # a look that could not be had; the metrics say so too
            self._give_up(job, wanted, error)
        else:
            self._emit("reached", {"configuration": as_words(wanted)})
            self._end(wanted, ActuatorStatus.REACHED, wanted)

    def _looked_at(self) -> RunningJob:
        """The job as it runs now; each vertex has tasks.

        Raises:
            Unreached: A job that is coming up has not been given any yet: its configuration is not
                known, and must not be taken for one that somebody has chosen.
        """
        job = self._read()
        if min(job.configuration.parallelism.values()) < 1:
            raise Unreached(
                f"the job is {job.state}, and Flink has not given it any tasks yet",
                remedy="Ask again when it runs.",
            )
        return job

    def _give_up(self, job: RunningJob | None, wanted: Configuration, error: Exception) -> None:
        """Say why, and see that the job runs as before."""
        if not isinstance(error, DspGymError):
            _LOG.error("rescaling job %s failed unexpectedly", self.job_name, exc_info=error)
        status = error.status if isinstance(error, Unreached) else ActuatorStatus.FAILED
        self._is_asked = self._is_asked and not _is_out_of_reach(error)
        self._emit("failed", {"reason": str(error), "wanted": as_words(wanted)})
        known = None if job is None else job.configuration
        try:
            if job is not None:
                self._recover(job, wanted)
        except CameUp:
            known, status = wanted, ActuatorStatus.REACHED
            self._emit("reached", {"configuration": as_words(wanted)})
        except Exception as trouble:
            known = None
            self._emit("alarm", {"reason": str(trouble), "remedy": "look at the job in Flink's UI"})
        finally:
            self._end(wanted, status, known)

    def _take(self, wanted: Configuration) -> bool:
        """Make the request the one under way, unless a later one is waiting."""
        with self._lock:
            if self._under_way is None:
                self._under_way, self._status = wanted, ActuatorStatus.PENDING
            return self._under_way == wanted

    def _end(
        self, wanted: Configuration, status: ActuatorStatus | None, running: Configuration | None
    ) -> None:
        with self._lock:
            if running is not None:
                self._known = running
            if status is None:
                return
            # A request refused meanwhile was the last one, and stays refused.
            if self._status != ActuatorStatus.FAILED:
                self._status = status
            if status == ActuatorStatus.REACHED:
                self._without_effect = None
            elif self._is_asked:
                self._without_effect = wanted, time.monotonic()
            self._under_way = None


def _is_out_of_reach(error: BaseException) -> bool:
    """Whether a cluster that does not answer is the cause: it says nothing against a request."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, FlinkError) and cause.reason == "Unreachable":
            return True
        cause = cause.__cause__
    return False


class OneJobActuator(JobActuator):
    """Actuator of one running job of a Flink cluster.

    Args:
        rest: the cluster.
        job_name: the job's name; it must be running.
        spec: its job file.
        timeout_s: seconds after which a step that makes no progress is given up.
        poll_s: seconds between two looks at the cluster.
        on_event: called with every step, from the thread of the request.
        lease: what a process must hold to act; None: this one acts alone.
    """

    def __init__(
        self,
        rest: FlinkRest,
        job_name: str,
        spec: JobSpec,
        *,
        timeout_s: float = 120.0,
        poll_s: float = 0.25,
        on_event: OnEvent = ignored,
        lease: RenewedLease | None = None,
    ) -> None:
        self.rest, self.lease = rest, lease
        super().__init__(job_name, spec, timeout_s=timeout_s, poll_s=poll_s, on_event=on_event)
        self.keeper = None if lease is None else LeaseKeeper(lease)
        self.interference()  # what stands now is the baseline

    def close(self) -> None:
        """Wait until nothing is under way, and give the lease up."""
        try:
            super().close()
        finally:
            if self.keeper is not None:
                self.keeper.close()

    def check_ready(self) -> None:
        """Refuse to act on a job of which no change could be asked; asked once, at the start.

        Raises:
            FlinkError: The cluster or the job takes no changes; the remedy says what would help.
        """
        job = self._read()
        self._check_ended(job)
        self._check_way(job)

    def _check_ended(self, job: RunningJob) -> None:
        """Refuse a job of which more has ended than some of its sources, each with all its tasks.

        Flink starts a vertex that has ended as ended, if a checkpoint says so; such a source keeps
        its tasks.
        """
        with self.rest.reading():
            found = vertices_of(self.rest.job(job.id), self.spec)
            ended = {name: int(one["tasks"].get("FINISHED", 0)) for name, one in found.items()}
            runs = {name: int(one["parallelism"]) for name, one in found.items()}
        sources = [one.name for one in self.spec.vertices if one.kind == "source"]
        over = [name for name in sources if ended[name] == runs[name]]
        torn = [name for name, tasks in ended.items() if tasks and name not in over]
        if not over and not torn:
            return
        if torn or len(over) == len(sources):
            why = f"tasks of {', '.join(torn)} have ended" if torn else _ended(over)
            raise FlinkError(
                f"job {self.job_name!r} cannot be rescaled: {why}",
                remedy="Leave out --apply, or act on a job whose sources do not end.",
            )
        if not self.rest.checkpoints_after_ends(job.id):
            raise FlinkError(
                f"job {self.job_name!r} cannot be rescaled: {_ended(over)}, and Flink writes no "
                "checkpoint after that",
                remedy="Set execution.checkpointing.checkpoints-after-tasks-finish: true, which is "
                "Flink's default.",
            )

    def _check_way(self, job: RunningJob) -> None:
        """Refuse where the way by which this actuator changes a job is not open."""

    def _read(self) -> RunningJob:
        return RunningJob.find(self.rest, self.job_name, self.spec)

    def _lease_of(self) -> RenewedLease | None:
        return self.lease

    def _left_to_others(self) -> str | None:
        """Why nothing may be written: somebody else acts, or may; asked right before a write.

        Flink takes a write from anybody: of a process that is frozen between this look and its
        write, for longer than the lease lasts, it is made all the same. Whoever acts then sees it.
        """
        if (foreign := self.interference()) is not None:
            return foreign.reason
        return None if self.lease is None else reason_not_to_write(self.lease, self.rest.timeout_s)
