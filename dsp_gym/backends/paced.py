"""Backends whose time need not be waited for, one after the other, at a speed of one's choice."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import NamedTuple

from dsp_gym.backends.base import Actuator, Backend, Collector
from dsp_gym.loop.outcome import Outcome


class PacedBackend(NamedTuple):
    """One of the backends, and when it is shown on the common clock, s."""

    backend: Backend
    begins_s: float
    ends_s: float = math.inf


class Paced(Backend):
    """Simulated or recorded parts of one job as a single backend.

    Args:
        parts: the next one begins when the one before is over.
        apply: False: there is no actuator, so nothing can be asked of the job.
        speed: seconds of the job that pass in one real second; None: as fast as possible.
        stop: set by anyone to end all waiting.
    """

    def __init__(
        self,
        parts: Sequence[PacedBackend],
        *,
        apply: bool,
        speed: float | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self._parts, self._apply = list(parts), apply
        self._now_s = self._parts[0].begins_s
        self._speed, self._stop = speed, stop or threading.Event()

    @property
    def collector(self) -> Collector:
        """Shows the job in its present part."""
        return self._parts[0].backend.collector

    @property
    def actuator(self) -> Actuator | None:
        """Scales the job in its present part; None in shadow mode and on recordings."""
        return self._parts[0].backend.actuator if self._apply else None

    @property
    def is_over(self) -> bool:
        """Whether the last part has no more to show."""
        return len(self._parts) == 1 and self._part_is_over

    def now_s(self) -> float:
        """Seconds on the job's clock.

        Returns:
            Seconds of the job's time, not of the wall clock.
        """
        return self._now_s

    def advance(self, seconds: int) -> Outcome:
        """Let the present part go on, or begin the next if it is over.

        Returns:
            What happened in the interval, each value (1,).
        """
        if self._part_is_over and len(self._parts) > 1:
            del self._parts[0]
            self._now_s = self._parts[0].begins_s
        outcome = self._parts[0].backend.advance(seconds)
        self._now_s += float(outcome.seconds[0])
        if self._speed is not None:
            self._stop.wait(seconds / self._speed)
        return outcome

    @property
    def _part_is_over(self) -> bool:
        part = self._parts[0]
        return part.backend.is_over or self._now_s >= part.ends_s
