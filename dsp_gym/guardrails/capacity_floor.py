"""Never below what DS2, or Justin, computes for the observed demand."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numba import njit
from pydantic import Field

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.config.model import ConfigModel
from dsp_gym.guardrails.restriction import Restriction
from dsp_gym.guardrails.shadow import ShadowPolicy, Shadows
from dsp_gym.loop.decision import GuardedDecision
from dsp_gym.loop.protocols import Mask, State
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.policies import PolicyConfig

__all__ = ["CapacityFloor", "CapacityFloorConfig"]


class CapacityFloorConfig(ConfigModel):
    """Whose model is the floor, and what a memory move excuses."""

    kind: Literal["capacity_floor"] = Field("capacity_floor", description="this guardrail")
    policy: str | PolicyConfig = Field(
        "justin-paper", description="policy whose model computes what is required"
    )
    margin: float = Field(0.0, ge=0, description="capacity above the requirement, share of it")
    memory_factor: float = Field(
        1.0,
        ge=1,
        description="by how much a rise of the memory level divides the tasks required; 1: only "
        "where the policy named makes the same move",
    )
    release_hit_rate: float = Field(
        0.95,
        ge=0,
        le=1,
        description="cache hit rate from which memory may be given back unless the policy named "
        "gives it back itself (Justin's cache-hit-rate.max.threshold)",
    )
    min_window_fill: float = Field(
        1.0,
        ge=0,
        le=1,
        description="share of the metrics window that must be covered before the floor asks for "
        "more than what runs",
    )


class CapacityFloor(Restriction):
    """Raises a decision to what the named policy's model requires for the observed demand.

    More memory may stand for more tasks: where the model itself chooses memory and the decision
    gives as much, its lower parallelism is the floor.
    """

    name = "capacity_floor"

    def __init__(
        self, config: CapacityFloorConfig | None = None, shadows: Shadows | None = None
    ) -> None:
        super().__init__()
        self.config = c = config or CapacityFloorConfig()
        self._shadow: ShadowPolicy = (shadows or Shadows()).of(c.policy, self.name, model=True)

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        self._shadow.reset(jobs, seeds, mask)

    def restrict(self, snapshot: MetricsSnapshot, parallelism: Ints, level: Ints) -> Bools:
        c, tables = self.config, snapshot.topology.tables
        trips = np.zeros(len(parallelism), dtype=bool)
        required = self._shadow.required(snapshot)
        assert required is not None  # the shadow was asked for with a model
        _raise(
            snapshot.topology.row,
            tables.kind,
            tables.min_parallelism,
            tables.max_parallelism,
            snapshot.status,
            np.ascontiguousarray(snapshot.window_fill),
            snapshot.parallelism,
            snapshot.memory_level,
            np.ascontiguousarray(snapshot.cache_hit_rate),
            required.parallelism,
            required.memory_level,
            required.horizontal,
            1 + c.margin,
            c.memory_factor,
            c.release_hit_rate,
            c.min_window_fill,
            parallelism,
            level,
            trips,
        )
        return trips

    def commit(self, snapshot: MetricsSnapshot, guarded: GuardedDecision) -> None:
        self._shadow.observe(snapshot)

    def reason(self, snapshot: MetricsSnapshot, job: int) -> str:
        required = self._shadow.required(snapshot)
        assert required is not None  # as above
        names = snapshot.topology.names(job)
        needs = ", ".join(
            f"{name} {required.horizontal[job, v]}"
            for v, name in enumerate(names)
            if snapshot.topology.tables.kind[snapshot.topology.row[job], v] != 0
        )
        margin = f" with {100 * self.config.margin:g} % margin" if self.config.margin else ""
        return f"{self._shadow.name} requires {needs}{margin} for the observed demand"

    def state(self) -> State:
        return {"policy": self._shadow.state()}

    def restore(self, state: State) -> None:
        self._shadow.restore(state["policy"])


@njit(cache=True, nogil=True)
def _raise(
    row: Ints,
    kind: Ints,
    low: Ints,
    high: Ints,
    status: Ints,
    fill: Floats,
    running: Ints,
    running_level: Ints,
    hit: Floats,
    needed: Ints,
    needed_level: Ints,
    horizontal: Ints,
    margin: float,
    memory_factor: float,
    release: float,
    min_fill: float,
    p: Ints,
    level: Ints,
    trips: Bools,
) -> None:
    jobs, vertices = p.shape
    for j in range(jobs):
        if status[j] != 0:
            continue
        k = row[j]
        measured = fill[j] >= min_fill - 1e-9
        for v in range(vertices):
            if kind[k, v] < 0:
                continue
            now_level, chosen = running_level[j, v], needed_level[j, v]
            if not (np.isnan(hit[j, v]) or hit[j, v] >= release):
                least_level = min(now_level, chosen)
                if level[j, v] < least_level:
                    level[j, v] = least_level
                    trips[j] = True
            if low[k, v] == high[k, v]:
                continue
            floor = np.ceil(horizontal[j, v] * margin - 1e-9)
            if level[j, v] > now_level:
                floor = np.ceil(floor / memory_factor - 1e-9)
                if level[j, v] >= chosen and chosen > now_level:
                    floor = min(floor, np.ceil(needed[j, v] * margin - 1e-9))
            least = min(int(floor), high[k, v])
            if not measured:
                least = min(least, running[j, v])
            if p[j, v] < least:
                p[j, v] = least
                trips[j] = True
