"""No changes while a job restarts, takes a savepoint, or catches up."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from dsp_gym.arrays import Bools, Ints
from dsp_gym.compiling import njit
from dsp_gym.config.model import ConfigModel
from dsp_gym.guardrails.restriction import Restriction, hold
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.snapshot import RUNNING, VERTEX, MetricsSnapshot, SnapshotArrays, Status
from dsp_gym.loop.topology import JobFacts
from dsp_gym.numba_handles import direct


class FreezeConfig(ConfigModel):
    """The backlog above which a job is left alone."""

    kind: Literal["freeze"] = Field("freeze", description="this guardrail")
    catching_up_s: float | None = Field(
        300.0,
        gt=0,
        description="backlog in seconds of arrivals above which a job whose backlog shrinks is "
        "left alone (Flink's lag threshold: 5 min); none: only the status counts",
    )


class Freeze(Restriction):
    """Hold while the status is not RUNNING, and while a large backlog is being worked off."""

    name = "freeze"
    kind = "held"

    def __init__(self, config: FreezeConfig | None = None) -> None:
        super().__init__()
        self.config = c = config or FreezeConfig()
        self.rules = np.inf if c.catching_up_s is None else c.catching_up_s

    def restrict(self, snapshot: MetricsSnapshot, parallelism: Ints, level: Ints) -> Bools:
        frozen = np.zeros(len(parallelism), dtype=bool)
        if not _frozen(snapshot.topology.facts, snapshot.arrays, self.rules, frozen):
            return frozen
        return hold(snapshot, frozen, parallelism, level)

    def reason(self, snapshot: MetricsSnapshot, job: int) -> str:
        status = Status(int(snapshot.status[job]))
        if status != Status.RUNNING:
            return f"the job is {status.name}"
        return f"the job works off a backlog of more than {self.config.catching_up_s:g} s"


@njit(cache=True, nogil=True, borrows=True)
def find_frozen(t: JobFacts, seen: SnapshotArrays, limit_s: float, frozen: Bools) -> bool:
    """Set True where job j is down, or works off more than `limit_s` of arrivals at its sources.

    Returns:
        Whether there is such a job.
    """
    some = False
    pending = seen.vertex[VERTEX.pending_records]
    growth = seen.vertex[VERTEX.pending_growth_per_s]
    records_in = seen.vertex[VERTEX.records_in_per_s]
    for j in range(pending.shape[0]):
        waiting = arriving = growing = 0.0
        for v in range(pending.shape[1]):
            # A sum with NaN is NaN: one test for both metrics.
            if t.kind[t.row[j], v] == SOURCE and not np.isnan(pending[j, v] + growth[j, v]):
                waiting += pending[j, v]
                growing += growth[j, v]
                # Arrivals: records read plus the growth of the backlog.
                arriving += max(0.0, records_in[j, v] + growth[j, v])
        down = seen.status[j] != RUNNING
        frozen[j] = down or (growing < 0 and waiting > limit_s * arriving)
        some = some or frozen[j]
    return some


_frozen = direct(find_frozen)
