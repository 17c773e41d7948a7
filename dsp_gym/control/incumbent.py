"""The running configuration as a policy, or what a built-in autoscaler in advisor mode asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dsp_gym.arrays import Ints
from dsp_gym.control.modes import INCUMBENT
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.protocols import Mask, State
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology


class Incumbent:
    """Decides what is observed running; its decisions are the baseline others are compared with.

    Args:
        advice: parallelism by vertex that a built-in autoscaler in advisor mode asks for; None, or
            nothing for a vertex: its running parallelism.
    """

    def __init__(self, advice: Callable[[], Mapping[str, int] | None] | None = None) -> None:
        self.name = INCUMBENT
        self._advice = advice

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        """Do nothing: it remembers nothing."""

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        parallelism, level = snapshot.parallelism.copy(), snapshot.memory_level.copy()
        advice = (self._advice() if self._advice is not None else None) or {}
        for v, name in enumerate(snapshot.topology.names(0)):
            parallelism[0, v] = advice.get(name, parallelism[0, v])
        reason = "advice of the built-in autoscaler" if advice else "runs"
        return ScalingDecision(parallelism, level, (reason,) * len(snapshot))

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        pass
