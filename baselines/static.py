"""A fixed configuration."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from baselines import reasons
from dsp_gym.arrays import Ints
from dsp_gym.config.model import ConfigModel
from dsp_gym.errors import PolicyError, did_you_mean
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.lacking import DEMANDED
from dsp_gym.loop.per_job_state import Kept, Parts
from dsp_gym.loop.protocols import Mask
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.loop.unknown import NONE, marked
from dsp_gym.policies.capabilities import ExplainingPolicy


class StaticConfig(ConfigModel):
    """The configuration to keep."""

    parallelism: dict[str, int] | int | None = Field(
        None,
        description="tasks by vertex name, or of every vertex that can be scaled; none: as the job "
        "file starts, which is the peak-provisioned job when the file is sized for the peak",
    )
    memory_level: dict[str, int] | int | None = Field(
        None, description="memory level by vertex name, or of all; none: as the job file starts"
    )


class Static(Kept, ExplainingPolicy):
    """A fixed configuration: the job file's, or the one given."""

    Config = StaticConfig

    def __init__(self, config: StaticConfig | None = None) -> None:
        self.name = "static"
        self.config = config or StaticConfig()
        self._kept = Parts()  # none

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        tables = jobs.tables
        wanted = [self._configuration(jobs, k) for k in range(len(jobs.specs))]
        parallelism = np.stack([p for p, _ in wanted])
        # Clipped to bounds per job file, so that one configuration serves several jobs.
        parallelism = np.clip(parallelism, tables.min_parallelism, tables.max_parallelism)
        level = np.stack([level for _, level in wanted])
        highest = np.maximum(tables.levels[:, None] - 1, 0)
        self._parallelism = parallelism
        self._level = np.where(tables.kind >= 0, np.clip(level, -1, highest), -1)

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        row = snapshot.topology.row
        why = (lambda job, v: "fixed configuration") if self.explain else None
        # A vertex that does not report may be the one that needs what it has.
        seen = marked(snapshot, DEMANDED)
        return reasons.decision(seen, self._parallelism[row], self._level[row], why, NONE)

    def _configuration(self, jobs: Topology, k: int) -> tuple[Ints, Ints]:
        names = [vertex.name for vertex in jobs.specs[k].topological_order()]
        parallelism = jobs.tables.start_parallelism[k].copy()
        level = jobs.tables.start_level[k].copy()
        for values, given, key in (
            (parallelism, self.config.parallelism, "parallelism"),
            (level, self.config.memory_level, "memory_level"),
        ):
            if isinstance(given, int):
                values[:] = given
            for name, value in (given if isinstance(given, dict) else {}).items():
                if name not in names:
                    raise PolicyError(
                        f"policy 'static': job '{jobs.specs[k].job}' has no vertex '{name}'",
                        key=f"{key}.{name}",
                        value=value,
                        remedy=did_you_mean(name, names),
                    )
                values[names.index(name)] = value
        return parallelism, level
