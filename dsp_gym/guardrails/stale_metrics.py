"""No decision on metrics that are too young or missing.

A metric that one vertex does not report holds that vertex, and keeps the vertices downstream from
giving up anything where their demand is unknown with it. All else holds the whole job.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field, field_validator

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.config.model import ConfigModel
from dsp_gym.errors import did_you_mean
from dsp_gym.guardrails.restriction import Restriction, Working, hold, working
from dsp_gym.loop.lacking import (
    FLOW,
    NEVER,
    Lacked,
    Needs,
    find_lacking,
    is_complete,
    is_reported,
    lack_nothing,
    needs,
)
from dsp_gym.loop.plausible import doubted
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
from dsp_gym.loop.unknown import marked, unknown_values
from dsp_gym.numba_handles import direct


class StaleMetricsConfig(ConfigModel):
    """The metrics that a decision needs."""

    kind: Literal["stale_metrics"] = Field("stale_metrics", description="this guardrail")
    min_window_fill: float = Field(
        1.0, ge=0, le=1, description="share of the metrics window that must be covered"
    )
    needed: tuple[str, ...] = Field(
        ("records_in_per_s", "busy_ms_per_s"),
        description="snapshot metrics that must be known: of a vertex to change it, or of the job",
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
    on_vertex: Needs


class StaleMetrics(Restriction):
    """Hold while the metrics window is not filled, and vertices that lack a needed metric."""

    name = "stale_metrics"
    kind = "held"

    def __init__(self, config: StaleMetricsConfig | None = None) -> None:
        super().__init__()
        self.config = c = config or StaleMetricsConfig()
        flow = FLOW if set(FLOW) & set(c.needed) else ()
        of_vertex = [name for name in c.needed if name in VERTEX_FLOATS]
        self._needs = needs(of_vertex, of_source=(), of_inputs=flow)
        self.rules = NeededMetrics(
            c.min_window_fill,
            np.array([JOB_FLOATS.index(n) for n in c.needed if n in JOB_FLOATS], np.int64),
            self._needs,
        )

    def demands(self, snapshot: MetricsSnapshot) -> Bools:
        """Return True where the metrics cannot be relied on, (J,).

        Returns:
            Flags by job; an unfilled window sets them, or a needed metric that nothing reports.
        """
        return self._demanded(snapshot)[1]

    def _demanded(self, snapshot: MetricsSnapshot) -> tuple[bool, Bools]:
        """Return whether there is a job with unreliable metrics, and the flags (J,)."""
        seen = snapshot.arrays
        stale = np.empty(len(seen.status), dtype=bool)
        some = _stale(snapshot.topology.facts, seen, self.rules, stale)
        return some, stale

    def restrict(self, snapshot: MetricsSnapshot, parallelism: Ints, level: Ints) -> Bools:
        some, stale = self._demanded(snapshot)
        work = working(parallelism, level)
        facts, seen = snapshot.topology.facts, snapshot.arrays
        _hold_unreported(facts, seen, self.rules, stale, work, NEVER, Lacked.room(level.shape))
        # With a fallback, that one asks `demands` itself.
        if some and self.config.action == "hold":
            return work.trips | hold(snapshot, stale, parallelism, level)
        return work.trips

    def reason(self, snapshot: MetricsSnapshot, job: int) -> str:
        doubt = doubted(snapshot)
        is_whole = self.demands(snapshot)[job]
        if doubt is not None and doubt.sentences[job] and (doubt.jobs[job] or not is_whole):
            return doubt.sentences[job]
        fill = snapshot.window_fill[job]
        if not fill >= self.config.min_window_fill - 1e-9:
            return f"{100 * fill:.0f} % of the metrics window is covered"
        if not is_whole:
            return unknown_values(marked(snapshot, self._needs), job)
        mask = snapshot.topology.mask[job]
        unknown = [
            name
            for name in self.config.needed
            if np.isnan(np.atleast_1d(getattr(snapshot, name)[job])[..., : mask.sum()]).all()
        ]
        return f"unknown: {', '.join(unknown)}"


@njit(cache=True, nogil=True, borrows=True)
def find_stale(t: JobFacts, seen: SnapshotArrays, needed: NeededMetrics, stale: Bools) -> bool:
    """Set True where the window of job j is not filled, or nothing reports a needed metric.

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
        for m in needed.on_vertex.of_vertex:
            stale[j] = stale[j] or not is_reported(t, seen, j, m)
        some = some or stale[j]
    return some


@njit(cache=True, nogil=True)
def hold_unreported(
    t: JobFacts,
    seen: SnapshotArrays,
    needed: NeededMetrics,
    stale: Bools,
    work: Working,
    never: Floats,
    lacked: Lacked,
) -> None:
    """Hold every vertex v of a job j that is not stale and lacks a needed metric.

    Vertices whose demand comes through such a vertex may get more, not less. `never` are the last
    known values of no jobs, `lacked` is room.
    """
    asked = needed.on_vertex
    for j in range(stale.shape[0]):
        if stale[j] or is_complete(t, seen, asked, never, j):
            continue
        lack_nothing(lacked, j)
        if not find_lacking(t, seen, asked, never, j, lacked):
            continue
        for v in range(t.n[t.row[j]]):
            to_p, to_level = work.parallelism[j, v], work.memory_level[j, v]
            now, now_level = seen.parallelism[j, v], seen.memory_level[j, v]
            takes = to_p < now or to_level < now_level
            if lacked.holder[j, v] == v or (lacked.holder[j, v] >= 0 and takes):
                to_p, to_level = now, now_level
            if to_p != work.parallelism[j, v] or to_level != work.memory_level[j, v]:
                work.parallelism[j, v], work.memory_level[j, v] = to_p, to_level
                work.trips[j] = True


_stale = direct(find_stale)
_hold_unreported = direct(hold_unreported)
