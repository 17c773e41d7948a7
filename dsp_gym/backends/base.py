"""What a backend is: a collector, an actuator, and a way to let time pass.

The loop, the environments and the command line know a job only through these. A backend of your own
implements `Backend`, or `SelfContained` if one object shows and scales the jobs.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from dsp_gym.arrays import Ints
from dsp_gym.backends.interference import Interference
from dsp_gym.errors import DspGymError, FlinkError
from dsp_gym.loop.decision import GuardedDecision
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.protocols import ActuatorStatus
from dsp_gym.loop.snapshot import MetricsSnapshot, Status
from dsp_gym.loop.topology import Topology

OnEvent = Callable[[str, dict[str, object]], None]
"""Receives every step of an actuator: kind and JSON-able body, from the actuator's thread.

Where it raises on an intent (`INTENTS`), the actuator asks nothing of the job.
"""

INTENTS = frozenset(("asked", "stopping"))
"""Kinds of steps that an actuator reports before it acts, and acts only if they were kept."""


def ignored(kind: str, body: dict[str, object]) -> None:
    """Take an event and do nothing."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The time of a loop, and how it waits."""

    now: Callable[[], float] = time.time
    """Unix seconds."""

    sleep: Callable[[float], object] | None = None
    """Waits that many seconds; None: until then, or until `stop` is set."""

    stop: threading.Event = field(default_factory=threading.Event)
    """Set by anyone to end all waiting."""

    def wait(self, seconds: float) -> None:
        """Wait, at most until `stop` is set."""
        (self.sleep or self.stop.wait)(seconds)

    def elapsed(self) -> float:
        """Seconds that only go forward, where the wall clock may be set.

        Returns:
            Seconds since an arbitrary moment.
        """
        return time.monotonic() if self.now is time.time else self.now()


@runtime_checkable
class Collector(Protocol):
    """Shows a batch of J jobs. Looking changes nothing, and a snapshot stays as it was taken."""

    @property
    def topology(self) -> Topology:
        """The jobs."""

    @property
    def trouble(self) -> DspGymError | None:
        """Why the last snapshot lacks metrics; None if it has them."""

    @property
    def age_s(self) -> float:
        """Age of the newest sample at the last look, s; NaN without samples."""

    @property
    def arrivals(self) -> Sequence[tuple[float, float]]:
        """When (s) how many records had arrived in the last interval; empty if unknown."""

    def snapshot(self) -> MetricsSnapshot:
        """Look at the jobs.

        Returns:
            The metrics and the running configuration, per job and vertex, (J,) and (J, V).

        Raises:
            DspGymError: The jobs cannot be looked at.
        """

    def close(self) -> None:
        """Give connections back."""


@runtime_checkable
class Actuator(Protocol):
    """Scales a batch of J jobs. Every call returns at once; `status` says how it goes."""

    def apply(self, guarded: GuardedDecision) -> None:
        """Ask for a configuration; one that equals the running configuration asks for nothing."""

    def status(self) -> Ints:
        """State of the last request.

        Returns:
            (J,) of `ActuatorStatus`.
        """

    def roll_back(self, before: GuardedDecision, reason: str) -> None:
        """Ask for the configuration from before a change, though the job may be in trouble."""

    def close(self) -> None:
        """Wait until nothing is under way; the jobs are left running."""


class Leadership(Protocol):
    """The right to act on a job, which processes hold one after another."""

    memory: str | None
    """What the holder leaves to its successor; it is handed over with the leadership."""

    @property
    def holder(self) -> str:
        """The name of this process; no other has it."""

    @property
    def term(self) -> int:
        """How often this process has taken the leadership."""

    @property
    def inherited(self) -> str | None:
        """What the holder before left when this process took the leadership; None: nothing."""

    def standby(self) -> str | None:
        """Why this process does not act, without asking anybody; None: it holds the leadership.

        Returns:
            A sentence that names the holder, where that is known.
        """


class Platform:
    """What the surroundings of a job say about acting on it; a plain cluster says nothing."""

    namespace: str = ""
    """Where the job stands, on platforms that have namespaces."""

    leadership: Leadership | None = None
    """The right to act, where several processes may; None: there is but this one."""

    def stopped(self) -> str | None:
        """Why acting on the job is stopped altogether; None: it is not.

        Returns:
            The reason, for reports and errors; None while acting is allowed.
        """
        return None

    def unsettled(self) -> str | None:
        """Why no change may be asked for at this moment; None: one may.

        Returns:
            The reason to wait, for reports; None where a change may be asked for now.
        """
        return None

    def interference(self) -> Interference | None:
        """What somebody else has changed about the job since this process acts; None: nothing.

        Returns:
            The first such change, from then on until this process is started again.
        """
        return None

    def must_end(self) -> DspGymError | None:
        """Why the run must end, whatever its length; None: it may go on.

        Returns:
            What has been found since the start, as an error.
        """
        return None

    def proved(self) -> str | None:
        """What was proved at the start about an account that must only read; None: nothing.

        Returns:
            A sentence, with what could not be proved.
        """
        return None

    def managed(self) -> str | None:
        """How a built-in autoscaler scales the job; None: it does not.

        Returns:
            A sentence naming that autoscaler and its switch; None without one.
        """
        return None

    def advice(self) -> Mapping[str, int] | None:
        """What a built-in autoscaler recommends.

        Returns:
            Parallelism by vertex; None if it is off or silent.
        """
        return None

    def written(self) -> str | None:
        """Which decision was written to the job last, by this process or an earlier one.

        Returns:
            Its id, as in the intent; None where the platform keeps none.
        """
        return None

    def slots(self, running: Mapping[str, int]) -> int | None:
        """Task slots within reach of the job.

        Args:
            running: its parallelism by vertex.

        Returns:
            The slots it holds and those that are free; None without a bound.
        """
        return None

    def tell(
        self, seen: MetricsSnapshot, guarded: GuardedDecision, *, enacted: bool, mode: str
    ) -> None:
        """Show a decision on the job itself, such as by an event.

        Raises:
            DspGymError: The platform refused the write or was out of reach.
        """

    def errors(self) -> Mapping[str, int]:
        """How often the platform's interface failed beside the loop.

        Returns:
            Failures by reason.
        """
        return {}


class Backend(ABC):
    """J jobs behind the loop: a collector, an actuator, and a way to let time pass.

    A backend that only watches has no actuator: nothing can be asked of its jobs.
    """

    platform: Platform = Platform()
    """What the surroundings say; see `Platform`."""

    @property
    @abstractmethod
    def collector(self) -> Collector:
        """Shows the jobs."""

    @property
    @abstractmethod
    def actuator(self) -> Actuator | None:
        """Scales the jobs; None in shadow mode and on recordings."""

    @abstractmethod
    def advance(self, seconds: int) -> Outcome:
        """Let time pass: a real job is waited for, a simulated one computed, a recording read.

        Returns:
            What happened since the last call, each value (J,).

        Raises:
            DspGymError: What happened cannot be told.
        """

    @property
    def is_over(self) -> bool:
        """Whether there is no more to show, as at the end of a recording."""
        return False

    @property
    def folded(self) -> Collection[str]:
        """Labels of series that were left out as copies, since each measurement counts once."""
        return ()

    @property
    def is_lost(self) -> bool:
        """Whether the job has failed for good, or is gone."""
        return False

    def now_s(self) -> float:
        """Time of the jobs, s: Unix seconds for a real one.

        Returns:
            Seconds on the clock that the snapshots' `t_s` counts on.
        """
        return time.time()

    def elapsed_s(self) -> float:
        """Seconds that only go forward, beside a clock that may be set.

        Returns:
            Seconds since an arbitrary moment; those of `now_s` where nobody can set that clock.
        """
        return self.now_s()

    def close(self) -> None:
        """Wait for the request under way, and give connections back; the jobs run on."""
        try:
            if self.actuator is not None:
                self.actuator.close()
        finally:
            self.collector.close()


class SelfContained(Backend):
    """A backend that is its own collector and actuator, such as a model of the jobs."""

    topology: Topology
    trouble: DspGymError | None = None
    age_s: float = 0.0
    arrivals: Sequence[tuple[float, float]] = ()

    @property
    def collector(self) -> Collector:
        """This object."""
        return self

    @property
    def actuator(self) -> Actuator | None:
        """This object."""
        return self

    @abstractmethod
    def snapshot(self) -> MetricsSnapshot:
        """Look at the jobs, see `Collector.snapshot`.

        Returns:
            Metrics of all J jobs at this moment, arrays (J,) and (J, V).
        """

    @abstractmethod
    def apply(self, guarded: GuardedDecision) -> None:
        """Ask for a configuration, see `Actuator.apply`."""

    @abstractmethod
    def status(self) -> Ints:
        """State of the last request, see `Actuator.status`.

        Returns:
            (J,) of `ActuatorStatus`.
        """

    def roll_back(self, before: GuardedDecision, reason: str) -> None:
        """Ask for the configuration from before a change."""
        self.apply(before)

    def close(self) -> None:
        """Nothing is held outside this process."""


def reason_to_hold(backend: Backend, seen: MetricsSnapshot) -> DspGymError | None:
    """Why nothing may be asked of the only job of a backend, after a look at it.

    Args:
        backend: the job.
        seen: its last snapshot.

    Returns:
        An error while the job is down for its own reasons, or its metrics are unknown; None
        while it may be scaled.
    """
    if backend.collector.trouble is not None:
        return backend.collector.trouble
    status, actuator = Status(int(seen.status[0])), backend.actuator
    if status == Status.FAILED:
        return FlinkError("the job has failed, or is gone", reason="NotFound")
    is_rescaling = actuator is not None and actuator.status()[0] == ActuatorStatus.PENDING
    if status == Status.RUNNING or is_rescaling:
        return None
    return FlinkError(f"the job is {status.name}")


@dataclass(frozen=True, slots=True)
class Episode:
    """A backend at the start of an episode of an environment."""

    backend: Backend
    load: str  # what drives the job, for people
    max_slots: int | None = None  # most task slots of its guardrails; None: no bound


class Episodes(Protocol):
    """Begins the episodes of an environment over one job that is not simulated."""

    @property
    def topology(self) -> Topology:
        """The job."""

    def begin(self, seed: int) -> Episode:
        """End the last episode and begin the next.

        Args:
            seed: draws what the episode leaves to chance.

        Returns:
            The backend, at the start of the episode.

        Raises:
            DspGymError: The job cannot be reached or started.
        """

    def close(self) -> None:
        """End the last episode and give everything back."""
