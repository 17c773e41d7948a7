"""A policy that always wants another configuration: tasks go up and down with the clock."""

from __future__ import annotations

from pathlib import Path

from dsp_gym.arrays import Ints
from dsp_gym.config.model import ConfigModel
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.protocols import Mask, State
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology

__all__ = ["SeeSaw", "offered_in"]

STEP_S = 9.0
"""How long it wants the same."""

TASKS = ((1, 1), (2, 1), (3, 2), (2, 2))
"""Tasks of `flatmap` and of `count`, in turn."""


class SeeSawConfig(ConfigModel):
    """It has no parameters."""


class SeeSaw:
    """Wants `TASKS` in turn."""

    Config = SeeSawConfig

    def __init__(self, config: SeeSawConfig | None = None) -> None:
        self.name = "see-saw"

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        names = jobs.names(0)
        self._columns = names.index("flatmap"), names.index("count")

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        wanted = snapshot.parallelism.copy()
        wanted[0, list(self._columns)] = TASKS[int(snapshot.t_s[0] / STEP_S) % len(TASKS)]
        return ScalingDecision(wanted, snapshot.memory_level.copy(), ("up and down",))

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        pass


def offered_in(folder: Path) -> Path:
    """A folder that offers the policy, as an installed distribution would, on the import path."""
    info = folder / "see_saw-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: see-saw\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[dsp_gym.policies]\nsee-saw = {__name__}:{SeeSaw.__name__}\n"
    )
    return folder
