"""No decision on metrics that are too young or missing."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field, field_validator

from dsp_gym.arrays import Bools, Ints
from dsp_gym.compiling import njit
from dsp_gym.config.model import ConfigModel
from dsp_gym.errors import did_you_mean
from dsp_gym.guardrails.restriction import Restriction, hold
from dsp_gym.loop.plausible import doubts
from dsp_gym.loop.snapshot import (
    JOB,
    JOB_FLOATS,
    PER_JOB,
    PER_VERTEX,
    VERTEX_FLOATS,
    MetricsSnapshot,
    SnapshotArrays,
)
from dsp_gym.loop.topology import JobFacts
from dsp_gym.numba_handles import direct


class StaleMetricsConfig(ConfigModel):
    """The metrics that a decision needs."""

    kind: Literal["stale_metrics"] = Field("stale_metrics", description="this guardrail")
    min_window_fill: float = Field(
        1.0, ge=0, le=1, description="share of the metrics window that must be covered"
    )
    needed: tuple[str, ...] = Field(
        ("records_in_per_s", "busy_ms_per_s"),
        description="snapshot metrics that must be known for every vertex, or for the job",
    )
    action: Literal["hold", "fallback"] = Field(
        "hold", description="hold the running configuration, or let the fallback decide"
    )

    @field_validator("needed")
    @classmethod
    def _are_metrics(cls, needed: tuple[str, ...]) -> tuple[str, ...]:
        for name in needed:
            if name not in PER_JOB and name not in PER_VERTEX:
                hint = did_you_mean(name, [*PER_JOB, *PER_VERTEX])
                raise ValueError(f"a snapshot has no metric {name!r}. {hint}")
        return needed


class NeededMetrics(NamedTuple):
    """The configuration for compiled code; metrics are rows of the snapshot's blocks."""

    fill: float  # share of the metrics window
    of_job: Ints
    of_vertex: Ints


class StaleMetrics(Restriction):
    """Hold while the metrics window is not filled or a needed metric is unknown."""

    name = "stale_metrics"
    kind = "held"

    def __init__(self, config: StaleMetricsConfig | None = None) -> None:
        super().__init__()
        self.config = c = config or StaleMetricsConfig()
        self.rules = NeededMetrics(
            c.min_window_fill,
            np.array([JOB_FLOATS.index(n) for n in c.needed if n in JOB_FLOATS], np.int64),
            np.array([VERTEX_FLOATS.index(n) for n in c.needed if n in VERTEX_FLOATS], np.int64),
        )

    def demands(self, snapshot: MetricsSnapshot) -> Bools:
        """Return True where the metrics cannot be relied on, (J,).

        Returns:
            Flags by job; an unfilled window or a missing needed metric sets them.
        """
        return self._demanded(snapshot)[1]

    def _demanded(self, snapshot: MetricsSnapshot) -> tuple[bool, Bools]:
        """Return whether there is a job with unreliable metrics, and the flags (J,)."""
        seen = snapshot.arrays
        stale = np.empty(len(seen.status), dtype=bool)
        some = _stale(snapshot.topology.facts, seen, self.rules, stale)
        return some, stale

    def restrict(self, snapshot: MetricsSnapshot, parallelism: Ints, level: Ints) -> Bools:
        if self.config.action == "fallback":  # the fallback asks `demands` itself
            return np.zeros(len(parallelism), dtype=bool)
        some, stale = self._demanded(snapshot)
        return hold(snapshot, stale, parallelism, level) if some else stale

    def reason(self, snapshot: MetricsSnapshot, job: int) -> str:
        if (wrong := doubts(snapshot)) and wrong[job]:
            return wrong[job]
        fill = snapshot.window_fill[job]
        if not fill >= self.config.min_window_fill - 1e-9:
            return f"{100 * fill:.0f} % of the metrics window is covered"
        mask = snapshot.topology.mask[job]
        unknown = [
            name
            for name in self.config.needed
            if np.isnan(np.atleast_1d(getattr(snapshot, name)[job])[..., : mask.sum()]).any()
        ]
        return f"unknown: {', '.join(unknown)}"


@njit(cache=True, nogil=True, borrows=True)
def find_stale(t: JobFacts, seen: SnapshotArrays, needed: NeededMetrics, stale: Bools) -> bool:
    """Set True where the window of job j is not filled, or a needed metric is unknown.

    Returns:
        Whether there is such a job.
    """
    some = False
    fill = seen.job[JOB.window_fill]
    for j in range(stale.shape[0]):
        stale[j] = not fill[j] >= needed.fill - 1e-9  # an unknown fill counts as none
        # m is a row of the snapshot's blocks of metrics: (metrics, J) and (metrics, J, V).
        for m in needed.of_job:
            stale[j] = stale[j] or np.isnan(seen.job[m, j])
        for m in needed.of_vertex:
            for v in range(t.n[t.row[j]]):
                stale[j] = stale[j] or np.isnan(seen.vertex[m, j, v])
        some = some or stale[j]
    return some


_stale = direct(find_stale)
