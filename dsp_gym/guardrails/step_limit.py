"""A limit on the distance of one decision from the running configuration."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from pydantic import Field

from dsp_gym.arrays import Bools, Ints
from dsp_gym.compiling import njit
from dsp_gym.config.model import ConfigModel
from dsp_gym.guardrails.capacity_floor import CapacityFloor
from dsp_gym.guardrails.restriction import Restriction, Working, working
from dsp_gym.loop.snapshot import MetricsSnapshot, SnapshotArrays
from dsp_gym.loop.topology import JobFacts
from dsp_gym.numba_handles import direct


class StepLimitConfig(ConfigModel):
    """Largest step of one vertex in one decision."""

    kind: Literal["step_limit"] = Field("step_limit", description="this guardrail")
    up_factor: float = Field(
        4.0, ge=1, description="largest growth of the parallelism, as a factor"
    )
    down_factor: float = Field(
        0.5, ge=0, le=1, description="smallest share of the parallelism that must stay"
    )
    tasks: int = Field(
        2, ge=1, description="tasks that may always come or go, whatever the factors say"
    )
    levels: int = Field(1, ge=1, description="memory levels that may come or go")


class StepLimit(Restriction):
    """Keep every vertex near its running parallelism and memory level.

    A step may always go as far as the capacity floor of the same chain requires, so that the two do
    not undo each other.
    """

    name = "step_limit"

    def __init__(
        self, config: StepLimitConfig | None = None, floor: CapacityFloor | None = None
    ) -> None:
        super().__init__()
        self.config = c = config or StepLimitConfig()
        self.rules = StepLimits(c.up_factor, c.down_factor, c.tasks, c.levels)
        self._floor = floor

    def restrict(self, snapshot: MetricsSnapshot, parallelism: Ints, level: Ints) -> Bools:
        work, seen = working(parallelism, level), snapshot.arrays
        floor = self._floor
        required = seen.parallelism if floor is None else floor.required(snapshot).horizontal
        margin = 1.0 if floor is None else floor.rules.margin
        _limit(snapshot.topology.facts, seen, self.rules, required, margin, work)
        return work.trips

    def reason(self, snapshot: MetricsSnapshot, job: int) -> str:
        c = self.config
        return (
            f"a step allows {c.down_factor:g} to {c.up_factor:g} times the tasks, or {c.tasks} "
            f"more or fewer, and {c.levels} memory level{'' if c.levels == 1 else 's'}"
        )


class StepLimits(NamedTuple):
    """The configuration for compiled code."""

    up: float  # largest growth, a factor
    down: float  # least share that stays
    tasks: int  # always allowed
    levels: int  # memory levels


@njit(cache=True, nogil=True, borrows=True)
def limit(
    t: JobFacts,
    seen: SnapshotArrays,
    limits: StepLimits,
    required: Ints,
    margin: float,
    work: Working,
) -> None:
    """Move every vertex v of every job j to within a step of its running configuration.

    `required` (J, V) is the parallelism of the capacity floor without its margin, a factor; without
    a floor it is the running parallelism.
    """
    p, level = work.parallelism, work.memory_level
    for j in range(p.shape[0]):
        for v in range(t.n[t.row[j]]):
            now = seen.parallelism[j, v]
            needed = math.ceil(required[j, v] * margin - 1e-9)
            # The widest of three ranges: so many tasks, the factor, and the way to the requirement.
            most = max(now + limits.tasks, math.floor(now * limits.up + 1e-9), needed)
            least = min(now - limits.tasks, math.ceil(now * limits.down - 1e-9), needed)
            to_p = min(max(p[j, v], least), most)
            now = seen.memory_level[j, v]
            to_level = min(max(level[j, v], now - limits.levels), now + limits.levels)
            if to_p != p[j, v] or to_level != level[j, v]:
                p[j, v], level[j, v] = to_p, to_level
                work.trips[j] = True


_limit = direct(limit)
