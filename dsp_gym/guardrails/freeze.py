"""Nothing is changed while a job restarts, takes a savepoint, or catches up."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numba import njit
from pydantic import Field

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.config.model import ConfigModel
from dsp_gym.guardrails.restriction import Restriction, hold
from dsp_gym.loop.snapshot import MetricsSnapshot, Status

__all__ = ["Freeze", "FreezeConfig"]


class FreezeConfig(ConfigModel):
    """When to leave a job alone."""

    kind: Literal["freeze"] = Field("freeze", description="this guardrail")
    catching_up_s: float | None = Field(
        300.0,
        gt=0,
        description="backlog in seconds of arrivals above which a job whose backlog shrinks is "
        "left alone (Flink's lag threshold: 5 min); none: only the status counts",
    )


class Freeze(Restriction):
    """Holds while the status is not RUNNING, and while a large backlog is being worked off."""

    name = "freeze"
    kind = "held"

    def __init__(self, config: FreezeConfig | None = None) -> None:
        super().__init__()
        self.config = config or FreezeConfig()

    def restrict(self, snapshot: MetricsSnapshot, parallelism: Ints, level: Ints) -> Bools:
        frozen = np.zeros(len(parallelism), dtype=bool)
        _frozen(
            snapshot.topology.row,
            snapshot.topology.tables.kind,
            snapshot.status,
            np.ascontiguousarray(snapshot.pending_records),
            np.ascontiguousarray(snapshot.pending_growth_per_s),
            np.ascontiguousarray(snapshot.records_in_per_s),
            np.inf if self.config.catching_up_s is None else self.config.catching_up_s,
            frozen,
        )
        return hold(snapshot, frozen, parallelism, level)

    def reason(self, snapshot: MetricsSnapshot, job: int) -> str:
        status = Status(int(snapshot.status[job]))
        if status != Status.RUNNING:
            return f"the job is {status.name}"
        return f"the job works off a backlog of more than {self.config.catching_up_s:g} s"


@njit(cache=True, nogil=True)
def _frozen(
    row: Ints,
    kind: Ints,
    status: Ints,
    pending: Floats,
    growth: Floats,
    records_in: Floats,
    limit_s: float,
    frozen: Bools,
) -> None:
    for j in range(pending.shape[0]):
        waiting = arriving = growing = 0.0
        for v in range(pending.shape[1]):
            if kind[row[j], v] == 0 and not np.isnan(pending[j, v] + growth[j, v]):
                waiting += pending[j, v]
                growing += growth[j, v]
                arriving += max(0.0, records_in[j, v] + growth[j, v])
        frozen[j] = status[j] != 0 or (growing < 0 and waiting > limit_s * arriving)
