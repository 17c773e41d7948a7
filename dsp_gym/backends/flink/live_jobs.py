"""A real job as the loop's two ends: time passes by waiting, metrics tell what happened."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import numpy as np

from dsp_gym.arrays import Ints
from dsp_gym.backends.flink.source import SampleSource
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.decision import GuardedDecision
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.protocols import PENDING
from dsp_gym.loop.snapshot import MetricsSnapshot, Status
from dsp_gym.loop.topology import Topology
from dsp_gym.metrics.outcome import arrivals_of, observed_in, outcome_of
from dsp_gym.metrics.samples import SAMPLE_S
from dsp_gym.metrics.window import Observed

__all__ = ["ClosableActuator", "LiveJobs", "WatchingCollector"]

_BEFORE_S = 4.0 * SAMPLE_S
"""How long before an interval its first counts are looked for; scrapes may be missed."""


class WatchingCollector(Protocol):
    """A collector of one real job."""

    topology: Topology

    @property
    def trouble(self) -> str | None:
        """Why the last snapshot lacks metrics; None where it does not."""

    def snapshot(self) -> MetricsSnapshot:
        """What is seen now."""


class ClosableActuator(Protocol):
    """An actuator of one real job."""

    def apply(self, guarded: GuardedDecision) -> None:
        """Ask for the guarded configuration; returns at once."""

    def status(self) -> Ints:
        """Of the last request."""

    def close(self) -> None:
        """Wait for what is under way."""


class LiveJobs:
    """Collector and actuator of one real job, advanced by waiting.

    While the job cannot be seen, or is down for a reason of its own, nothing is asked of it; `held`
    says why.

    Args:
        collector: gives snapshots.
        source: where its samples come from; polled while waiting.
        actuator: takes decisions.
        spec: the job.
        clock: Unix seconds.
        sleep: waits that many seconds; None: until then, or until `stop` is set.
        stop: set by whoever wants no further waiting.
    """

    def __init__(
        self,
        collector: WatchingCollector,
        source: SampleSource,
        actuator: ClosableActuator,
        spec: JobSpec,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], object] | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self.collector, self.source, self.actuator = collector, source, actuator
        self.spec = spec
        self.topology = collector.topology
        self.held: str | None = None
        self.stop = stop or threading.Event()
        self._clock, self._sleep = clock, sleep or self.stop.wait
        # A wall clock may be set while somebody waits; how long that takes is none of its business.
        self._pace = time.monotonic if clock is time.time else clock
        self._since_s = clock()
        self.arrivals: list[tuple[float, float]] = []
        """When how many records had arrived in the last interval, see `arrivals_of`."""
        self._history: list[Observed] = []
        self._rescales = 0

    def snapshot(self) -> MetricsSnapshot:
        """What is seen now."""
        self.held = "the job could not be looked at"
        seen = self.collector.snapshot()
        if seen.status[0] == Status.FAILED and self.actuator.status()[0] == PENDING:
            # Between its stop and its resubmission no job bears the name; it is not lost.
            seen = replace(seen, status=np.array([int(Status.RESTARTING)], np.int64))
        self.held = self._reason_to_hold(seen)
        self._history.append(observed_in(seen))
        return seen

    @property
    def data_age_s(self) -> float:
        """Age of the newest sample at the last snapshot, s; NaN where there is none."""
        return float(getattr(self.collector, "age_s", np.nan))

    def hold(self, reason: str) -> None:
        """Ask nothing of the job until the next snapshot."""
        self.held = reason

    def apply(self, guarded: GuardedDecision) -> None:
        """Ask for the guarded configuration, unless something speaks against it."""
        if self.held is not None:
            return
        before = self.actuator.status()[0]
        self.actuator.apply(guarded)
        self._rescales += bool(before != PENDING and self.actuator.status()[0] == PENDING)

    def roll_back(self, before: GuardedDecision, reason: str) -> None:
        """Ask for the configuration from before a change, though the job may be in trouble."""
        own = getattr(self.actuator, "roll_back", None)
        if own is not None:
            own(reason)
        else:
            self.actuator.apply(before)
        self._rescales += 1

    def status(self) -> Ints:
        """Of the last request."""
        return self.actuator.status()

    def advance(self, seconds: int) -> Outcome:
        """Wait that long; returns what happened since the last call, told from metrics.

        Raises:
            FlinkError: The metrics of that time cannot be had, or several jobs bear the name.
        """
        began_s = self._pace()
        until_s = began_s + seconds
        while (left_s := until_s - self._pace()) > 0 and not self.stop.is_set():
            self._sleep(min(float(SAMPLE_S), left_s))
            self.source.poll()
        since_s, self._since_s = self._since_s, self._clock()
        if self._since_s <= since_s:  # the wall clock was set back meanwhile
            since_s = self._since_s - max(self._pace() - began_s, float(SAMPLE_S))
            self._history = [replace(state, t_s=since_s) for state in self._history[-1:]]
        history, rescales = self._history, self._rescales
        self._history, self._rescales = history[-1:], 0
        self.snapshot()
        samples = self.source.samples(since_s - _BEFORE_S, self._since_s)
        history = [*history, self._history[-1]]
        self.arrivals = arrivals_of(self.spec, samples, since_s, self._since_s)
        return outcome_of(self.spec, samples, history, since_s, self._since_s, rescales=rescales)

    def close(self) -> None:
        """Wait for what is under way; the job is left running."""
        self.actuator.close()

    def _reason_to_hold(self, seen: MetricsSnapshot) -> str | None:
        status = Status(int(seen.status[0]))
        if self.collector.trouble is not None:
            return self.collector.trouble
        if status == Status.FAILED:
            return "the job has failed, or is gone"
        if status != Status.RUNNING and self.actuator.status()[0] != PENDING:
            return f"the job is {status.name}"
        return None
