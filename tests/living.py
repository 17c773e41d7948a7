"""A simulated job behind the interfaces of a real one: its clock runs while a caller sleeps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dsp_gym.backends.base import Clock
from dsp_gym.backends.flink.backend import FlinkBackend, FlinkCollector, Look
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.errors import FlinkError
from dsp_gym.loop.decision import GuardedDecision
from dsp_gym.loop.protocols import ActuatorStatus
from dsp_gym.loop.snapshot import MetricsSnapshot, Status
from dsp_gym.loop.topology import Topology
from dsp_gym.metrics.samples import Samples
from dsp_gym.metrics.window import WindowConfig
from tests.simulating import exact, line


class Living(FlinkCollector):
    """Collector, source of samples and actuator in one; troubles are set by the test."""

    folded = ()

    def __init__(self, rate_per_s: float = 1500.0) -> None:
        self.spec = line(rescale={"mode": "redeploy", "outage_s": [12, 12, 12]})
        self.simulated = SimulatedJobs(Topology.of([self.spec]), exact())
        self.simulated.reset(np.arange(1), np.array([[rate_per_s]]))
        self.now_s, self.polls, self.closed = 0.0, 0, False
        self.slept_s: list[float] = []
        self.asked: list[GuardedDecision] = []
        self.taken_back: list[str] = []
        self.refuses: str | None = None
        self.status_shown: Status | None = None
        self.shown_trouble: FlinkError | None = None
        clock = Clock(self.clock, self.sleep)
        super().__init__(self.spec, None, self, WindowConfig(), clock)
        self.backend = FlinkBackend(self, self, clock)

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_s += seconds
        self.simulated.advance(round(seconds))

    def poll(self) -> None:
        self.polls += 1

    def samples(self, since_s: float, until_s: float) -> Samples:
        return Samples.of([])

    def look(self, now_s: float, since_s: float | None = None) -> Look:
        self.trouble = self.shown_trouble
        return Look(self.seen(), self.samples(now_s, now_s), None)

    def seen(self) -> MetricsSnapshot:
        if self.refuses is not None:
            raise FlinkError(self.refuses)
        seen = self.simulated.snapshot()
        if self.status_shown is not None:
            seen = replace(seen, status=np.array([int(self.status_shown)]))
        return seen

    @property
    def is_pending(self) -> bool:
        return bool(self.status()[0] == ActuatorStatus.PENDING)

    def apply(self, guarded: GuardedDecision) -> None:
        self.asked.append(guarded)
        self.simulated.apply(guarded)

    def roll_back(self, before: GuardedDecision, reason: str) -> None:
        self.taken_back.append(reason)
        self.apply(before)

    def status(self) -> np.ndarray:
        return self.simulated.status()

    def close(self) -> None:
        self.closed = True
