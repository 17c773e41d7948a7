"""The actuator of a loop that only looks: it takes decisions and touches nothing."""

from __future__ import annotations

import numpy as np

from dsp_gym.arrays import Ints
from dsp_gym.backends.flink.rescale.worker import OnEvent, as_words, clipped, ignored
from dsp_gym.backends.flink.submission import Configuration
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.decision import GuardedDecision
from dsp_gym.loop.protocols import IDLE
from dsp_gym.loop.topology import Topology

__all__ = ["DryRunActuator"]


class DryRunActuator:
    """Reports each configuration it would have asked for as an event `not_asked`, once.

    Its status is IDLE for good: nothing was asked of the job.
    """

    def __init__(self, spec: JobSpec, *, on_event: OnEvent = ignored) -> None:
        self.topology = Topology.of([spec])
        self.wanted: Configuration | None = None
        self._on_event = on_event

    def apply(self, guarded: GuardedDecision) -> None:
        """Take note of the guarded configuration."""
        wanted = clipped(guarded, self.topology)
        if wanted != self.wanted:
            self.wanted = wanted
            self._on_event("not_asked", {"wanted": as_words(wanted)})

    def status(self) -> Ints:
        """IDLE."""
        return np.array([IDLE], np.int64)

    def close(self) -> None:
        """Nothing is ever under way."""
