"""A real Flink job as a backend: time passes by waiting, metrics say what happened."""

from __future__ import annotations

from dsp_gym.arrays import Ints
from dsp_gym.backends.base import Actuator, Backend, Clock, Platform
from dsp_gym.backends.flink.collector import FlinkCollector
from dsp_gym.loop.decision import GuardedDecision
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.protocols import ActuatorStatus
from dsp_gym.metrics.samples import SAMPLE_S

__all__ = ["FlinkBackend"]


class FlinkBackend(Backend):
    """One real job, advanced by waiting.

    Args:
        collector: watches the job.
        actuator: scales it; None: nothing can be asked of it.
        clock: Unix seconds, and how it waits.
        platform: what the job's surroundings say.
    """

    def __init__(
        self,
        collector: FlinkCollector,
        actuator: Actuator | None,
        clock: Clock | None = None,
        platform: Platform | None = None,
    ) -> None:
        self._collector = collector
        self._actuator = None if actuator is None else _Counted(actuator)
        self.clock = clock or Clock()
        self.platform = platform or Platform()

    @property
    def collector(self) -> FlinkCollector:
        """Shows the job."""
        return self._collector

    @property
    def actuator(self) -> Actuator | None:
        """Scales the job; None in shadow mode."""
        return self._actuator

    @property
    def is_lost(self) -> bool:
        """Whether the job had failed, or was gone, at the last look."""
        return self._collector.is_gone

    def now_s(self) -> float:
        """Unix seconds.

        Returns:
            Time of the backend's clock, s since the epoch.
        """
        return self.clock.now()

    def advance(self, seconds: int) -> Outcome:
        """Wait that long, sampling every 5 s.

        Returns:
            What happened since the last call, told from metrics, each value (1,).

        Raises:
            FlinkError: The metrics of that time cannot be had, or several jobs bear the name.
        """
        until_s = self.clock.elapsed() + seconds
        while (left_s := until_s - self.clock.elapsed()) > 0 and not self.clock.stop.is_set():
            self.clock.wait(min(float(SAMPLE_S), left_s))
            self._collector.poll()
        rescales = 0 if self._actuator is None else self._actuator.taken()
        return self._collector.interval(rescales)


class _Counted:
    """An actuator that counts the rescales asked of it."""

    def __init__(self, actuator: Actuator) -> None:
        self._actuator, self._asked = actuator, 0

    def taken(self) -> int:
        """How many were asked for since the last call."""
        asked, self._asked = self._asked, 0
        return asked

    def apply(self, guarded: GuardedDecision) -> None:
        was_pending = self._actuator.status()[0] == ActuatorStatus.PENDING
        self._actuator.apply(guarded)
        is_pending = self._actuator.status()[0] == ActuatorStatus.PENDING
        self._asked += bool(is_pending and not was_pending)

    def roll_back(self, before: GuardedDecision, reason: str) -> None:
        self._actuator.roll_back(before, reason)
        self._asked += 1

    def status(self) -> Ints:
        return self._actuator.status()

    def close(self) -> None:
        self._actuator.close()
