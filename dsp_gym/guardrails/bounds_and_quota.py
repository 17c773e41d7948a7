"""Hard bounds of every vertex, and a quota of cores and memory for the job."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from dsp_gym.arrays import Bools, Ints
from dsp_gym.compiling import njit
from dsp_gym.config.model import ConfigModel
from dsp_gym.guardrails.restriction import Restriction, Working, working
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.snapshot import MetricsSnapshot, SnapshotArrays
from dsp_gym.loop.topology import JobFacts
from dsp_gym.numba_handles import direct


class BoundsAndQuotaConfig(ConfigModel):
    """Bounds of vertices on top of the job file's."""

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
    """Keep every vertex inside its bounds; over the quota no vertex may grow.

    Only a vertex without state may go without managed memory.
    """

    name = "bounds_and_quota"

    def __init__(self, config: BoundsAndQuotaConfig | None = None) -> None:
        super().__init__()
        self.config = c = config or BoundsAndQuotaConfig()
        # A quota makes vertices depend on each other: the chain then takes several passes.
        self.coupled = c.cores is not None or c.memory_mib is not None
        self.rules = VertexBounds(
            c.min_parallelism,
            c.max_parallelism or int(np.iinfo(np.int64).max),
            8 if c.max_memory_level is None else c.max_memory_level,
            np.inf if c.cores is None else c.cores,
            np.inf if c.memory_mib is None else c.memory_mib,
        )

    def restrict(self, snapshot: MetricsSnapshot, parallelism: Ints, level: Ints) -> Bools:
        work = working(parallelism, level)
        _bound(snapshot.topology.facts, snapshot.arrays, self.rules, work)
        return work.trips

    def reason(self, snapshot: MetricsSnapshot, job: int) -> str:
        if self.coupled:
            return "outside the bounds of a vertex, or over the quota of cores or memory"
        return "outside the bounds of a vertex"


class VertexBounds(NamedTuple):
    """The configuration for compiled code; missing bounds have the largest value."""

    least: int  # fewest tasks of a scalable vertex
    most: int  # most tasks
    level: int  # highest memory level
    cores: float  # quota of the job, sources left out
    mib: float  # quota of the job, MiB


@njit(cache=True, nogil=True, borrows=True)
def bound(t: JobFacts, seen: SnapshotArrays, bounds: VertexBounds, work: Working) -> None:
    """Move every vertex v of every job j (job file k) into its bounds, then the job into its quota.

    `p` and `level` are the decision, `running` and `running_level` the observed configuration.
    """
    p, level = work.parallelism, work.memory_level
    running, running_level = seen.parallelism, seen.memory_level
    jobs, vertices = p.shape
    for j in range(jobs):
        k = t.row[j]
        top = min(t.levels[k] - 1, bounds.level)
        cores = mib = 0.0
        for v in range(vertices):
            if t.kind[k, v] < 0:
                continue
            least, most = t.min_parallelism[k, v], t.max_parallelism[k, v]
            # Vertices of fixed parallelism (least = most) have no room for these bounds.
            if least < most:
                most = max(least, min(most, bounds.most))
                least = min(most, max(least, bounds.least))
            # A job that already runs without its managed memory is not forced to restart.
            lowest = min(0, running_level[j, v]) if t.stateful[k, v] == 1 else -1
            lowest = max(-1, lowest)
            to_p = min(max(p[j, v], least), most)
            to_level = min(max(level[j, v], lowest), max(top, lowest))
            if to_p != p[j, v] or to_level != level[j, v]:
                p[j, v], level[j, v] = to_p, to_level
                work.trips[j] = True
            if t.kind[k, v] != SOURCE:
                cores += to_p
                mib += to_p * t.subtask_mib[k, to_level + 1]
        # Over the quota: take back all additions to the running configuration, which is not shrunk:
        # the vertex to shrink is for a policy to choose.
        if cores > bounds.cores or mib > bounds.mib:
            for v in range(vertices):
                least, most = t.min_parallelism[k, v], t.max_parallelism[k, v]
                if t.kind[k, v] < 0 or least == most:
                    continue
                if p[j, v] > running[j, v] or level[j, v] > running_level[j, v]:
                    p[j, v] = min(p[j, v], max(running[j, v], least))
                    level[j, v] = min(level[j, v], max(running_level[j, v], -1))
                    work.trips[j] = True


_bound = direct(bound)
