"""A simulated job behind the seams of a real one: its clock runs when somebody sleeps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dsp_gym.backends.flink.live_jobs import LiveJobs
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.errors import FlinkError
from dsp_gym.loop.decision import GuardedDecision
from dsp_gym.loop.snapshot import MetricsSnapshot, Status
from dsp_gym.loop.topology import Topology
from dsp_gym.metrics.samples import Samples
from tests.simulating import exact, line


class Living:
    """Collector, source of samples and actuator in one; troubles are set by the test."""

    def __init__(self, rate_per_s: float = 1500.0) -> None:
        self.spec = line(rescale={"mode": "redeploy", "outage_s": [12, 12, 12]})
        self.topology = Topology.of([self.spec])
        self.simulated = SimulatedJobs(self.topology, exact())
        self.simulated.reset(np.arange(1), np.array([[rate_per_s]]))
        self.now_s, self.polls, self.closed = 0.0, 0, False
        self.slept_s: list[float] = []
        self.asked: list[GuardedDecision] = []
        self.trouble: str | None = None
        self.refuses: str | None = None
        self.status_shown: Status | None = None
        self.jobs = LiveJobs(self, self, self, self.spec, self.clock, self.sleep)

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

    def snapshot(self) -> MetricsSnapshot:
        if self.refuses is not None:
            raise FlinkError(self.refuses)
        seen = self.simulated.snapshot()
        if self.status_shown is not None:
            seen = replace(seen, status=np.array([int(self.status_shown)]))
        return seen

    def apply(self, guarded: GuardedDecision) -> None:
        self.asked.append(guarded)
        self.simulated.apply(guarded)

    def status(self) -> np.ndarray:
        return self.simulated.status()

    def close(self) -> None:
        self.closed = True
