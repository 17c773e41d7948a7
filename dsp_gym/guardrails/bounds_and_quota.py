"""Hard bounds of every vertex, and a quota of cores and memory for the job."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numba import njit
from pydantic import Field, model_validator

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.config.model import ConfigModel
from dsp_gym.guardrails.restriction import Restriction
from dsp_gym.loop.snapshot import MetricsSnapshot

__all__ = ["BoundsAndQuota", "BoundsAndQuotaConfig"]


class BoundsAndQuotaConfig(ConfigModel):
    """Bounds on top of the job file's."""

    kind: Literal["bounds_and_quota"] = Field("bounds_and_quota", description="this guardrail")
    min_parallelism: int = Field(1, ge=1, description="fewest tasks of a vertex that can be scaled")
    max_parallelism: int | None = Field(
        None, ge=1, description="most tasks of a vertex; none: the job file's bound"
    )
    max_memory_level: int | None = Field(
        None, ge=0, description="highest memory level; none: the job file's levels"
    )
    cores: float | None = Field(
        None, gt=0, description="cores the job may request, sources left out; none: no quota"
    )
    memory_mib: float | None = Field(
        None, gt=0, description="memory the job may request, MiB, sources left out; none: no quota"
    )

    @model_validator(mode="after")
    def _bounds_leave_room(self) -> BoundsAndQuotaConfig:
        if self.max_parallelism is not None and self.max_parallelism < self.min_parallelism:
            raise ValueError("max_parallelism must not be below min_parallelism")
        return self


class BoundsAndQuota(Restriction):
    """Keeps every vertex inside its bounds; over the quota nothing may grow.

    Only a vertex without state may go without managed memory.
    """

    name = "bounds_and_quota"

    def __init__(self, config: BoundsAndQuotaConfig | None = None) -> None:
        super().__init__()
        self.config = c = config or BoundsAndQuotaConfig()
        self.coupled = c.cores is not None or c.memory_mib is not None

    def restrict(self, snapshot: MetricsSnapshot, parallelism: Ints, level: Ints) -> Bools:
        c, tables = self.config, snapshot.topology.tables
        trips = np.zeros(len(parallelism), dtype=bool)
        _bound(
            snapshot.topology.row,
            tables.kind,
            tables.min_parallelism,
            tables.max_parallelism,
            tables.stateful,
            tables.levels,
            tables.subtask_mib,
            snapshot.parallelism,
            snapshot.memory_level,
            c.min_parallelism,
            c.max_parallelism or np.iinfo(np.int64).max,
            8 if c.max_memory_level is None else c.max_memory_level,
            np.inf if c.cores is None else c.cores,
            np.inf if c.memory_mib is None else c.memory_mib,
            parallelism,
            level,
            trips,
        )
        return trips

    def reason(self, snapshot: MetricsSnapshot, job: int) -> str:
        if self.coupled:
            return "outside the bounds of a vertex, or over the quota of cores or memory"
        return "outside the bounds of a vertex"


@njit(cache=True, nogil=True)
def _bound(
    row: Ints,
    kind: Ints,
    low: Ints,
    high: Ints,
    stateful: Ints,
    levels: Ints,
    subtask_mib: Floats,
    running: Ints,
    running_level: Ints,
    low_all: int,
    high_all: int,
    level_all: int,
    cores_quota: float,
    mib_quota: float,
    p: Ints,
    level: Ints,
    trips: Bools,
) -> None:
    jobs, vertices = p.shape
    for j in range(jobs):
        k = row[j]
        top = min(levels[k] - 1, level_all)
        cores = mib = 0.0
        for v in range(vertices):
            if kind[k, v] < 0:
                continue
            least, most = low[k, v], high[k, v]
            if least < most:
                most = max(least, min(most, high_all))
                least = min(most, max(least, low_all))
            # A job that already runs without the memory it should have is not forced to restart.
            lowest = min(0, running_level[j, v]) if stateful[k, v] == 1 else -1
            lowest = max(-1, lowest)
            to_p = min(max(p[j, v], least), most)
            to_level = min(max(level[j, v], lowest), max(top, lowest))
            if to_p != p[j, v] or to_level != level[j, v]:
                p[j, v], level[j, v] = to_p, to_level
                trips[j] = True
            if kind[k, v] != 0:
                cores += to_p
                mib += to_p * subtask_mib[k, to_level + 1]
        if cores > cores_quota or mib > mib_quota:
            for v in range(vertices):
                if kind[k, v] < 0 or low[k, v] == high[k, v]:
                    continue
                if p[j, v] > running[j, v] or level[j, v] > running_level[j, v]:
                    p[j, v] = min(p[j, v], max(running[j, v], low[k, v]))
                    level[j, v] = min(level[j, v], max(running_level[j, v], -1))
                    trips[j] = True
