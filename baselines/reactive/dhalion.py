"""Dhalion in reactive mode, as a comparison ran it: latency calls for workers, idleness frees them.

This rule shares little with Dhalion's published policy (`baselines.dhalion`): it diagnoses no
operator, has no blacklist, and sizes a step by arrivals over the throughput of the sink. So a job
whose sink receives fewer records than its sources read, such as Nexmark Q3, gets more workers than
it needs with every step up, as it did in the comparison.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from baselines import reasons
from baselines.reactive.policy import (
    ReactiveConfig,
    ReactivePolicy,
    WantedWorkers,
    emit_lag_s,
    offered_per_s,
)
from baselines.replicas import ROUND_OFF
from baselines.workers import whole
from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.lacking import BACKLOG, needs
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import JobFacts, Topology

NEEDS = needs(("records_in_per_s", "backpressured_ms_per_s"), BACKLOG, demand=False)
"""The metrics that a decision on a vertex needs."""


class DhalionReactiveConfig(ReactiveConfig):
    """Parameters of Dhalion in reactive mode; the defaults are those of the comparison."""

    interval_s: float = Field(10.0, gt=0, description="time between evaluations, s")
    rest_s: float = Field(
        120.0, ge=0, description="time after a change of the workers without another, s"
    )
    latency_s: float = Field(
        5.0,
        ge=0,
        description="latency above which a growing backlog gets workers, s (the comparison: 1, 5, "
        "10)",
    )
    over_provisioning: float = Field(
        0.2, ge=0, description="head-room of a step up, share of the workers needed"
    )
    backpressure_ms_per_s: float = Field(
        100.0,
        gt=0,
        le=1000,
        description="backpressure of every vertex below which workers are taken away",
    )
    lag_s: float = Field(
        0.2,
        gt=0,
        description="lag of a partition, in seconds of all arrivals, below which workers are taken "
        "away",
    )
    low_cpu: float = Field(
        0.6, gt=0, le=1, description="CPU load below which workers are taken away, 0..1"
    )
    scale_down_share: float = Field(
        0.2, gt=0, lt=1, description="share of the workers that a step down takes"
    )


class DhalionReactive(ReactivePolicy):
    """Dhalion in Flink's reactive mode: one parallelism, up by latency, a fifth down when idle."""

    Config = DhalionReactiveConfig

    def __init__(self, config: DhalionReactiveConfig | None = None) -> None:
        self.name = "dhalion-reactive"
        self.config = config or DhalionReactiveConfig()
        super().__init__(self.config, NEEDS)

    def wanted(self, snapshot: MetricsSnapshot, running: Ints) -> WantedWorkers:
        """Apply the rule: up if late and falling behind, otherwise down if idle in all respects.

        Returns:
            The workers wanted.
        """
        c, jobs = self.config, snapshot.topology
        source = jobs.tables.kind[jobs.row] == SOURCE
        offered, finished = offered_per_s(snapshot), throughput_per_s(snapshot)
        latency, growth = emit_lag_s(snapshot, offered), _of(source, snapshot.pending_growth_per_s)
        behind = (latency > c.latency_s) & (growth > 0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            needed = running * (1 + c.over_provisioning) * offered / finished
        # Nothing is known of a job that finishes nothing. Where a sink gets more records than the
        # sources read, the quotient calls for fewer workers, which would not help.
        more = np.where(finished > 0, np.maximum(whole(needed), running), np.nan)
        waits = np.where(jobs.mask, snapshot.backpressured_ms_per_s, 0.0).max(axis=1)
        cpu, lag = snapshot.tm_cpu_load, _of(source, snapshot.pending_records) / _partitions(jobs)
        idle = (waits < c.backpressure_ms_per_s) & (lag < c.lag_s * offered) & (cpu < c.low_cpu)
        fewer = np.maximum(np.floor(running * (1 - c.scale_down_share) + ROUND_OFF), 1.0)
        wanted = np.where(behind, more, np.where(idle, fewer, np.nan))

        def why(job: int) -> str:
            if behind[job]:
                rates = f"{reasons.amount(offered[job])}/s arrive, {reasons.amount(finished[job])}"
                return f"latency {latency[job]:.2g} s and growing, {rates}/s reach the sink"
            return f"CPU {cpu[job]:.0%}, backpressure {waits[job]:.0f} ms/s, no lag"

        return WantedWorkers(wanted, why)


def throughput_per_s(snapshot: MetricsSnapshot) -> Floats:
    """Add up the records that reach the ends of a job: the vertices that feed no other.

    Returns:
        (J,) records/s; NaN where one does not report.
    """
    finished = np.empty(len(snapshot))
    _add_ends(snapshot.topology.facts, snapshot.records_in_per_s, finished)
    return finished


@njit(cache=True, nogil=True)
def _add_ends(t: JobFacts, records_in: Floats, finished: Floats) -> None:
    """Fill `finished`, (J,); j is a job's row, k its job file, u an input of vertex v."""
    feeds = np.empty(records_in.shape[1], np.bool_)
    for j in range(len(finished)):
        k = t.row[j]
        feeds[:] = False
        for v in range(t.n[k]):
            for i in range(t.upstream.shape[2]):
                u = t.upstream[k, v, i]
                if u >= 0:
                    feeds[u] = True
        finished[j] = 0.0
        for v in range(t.n[k]):
            if not feeds[v]:
                finished[j] += records_in[j, v]


def _partitions(jobs: Topology) -> Ints:
    """Count the partitions of all sources, (J,); a source whose number is unknown has one."""
    tables = jobs.tables
    known = np.maximum(tables.partitions[jobs.row], 1)
    return np.asarray(np.where(tables.kind[jobs.row] == SOURCE, known, 0).sum(axis=1))


def _of(vertices: Bools, values: Floats) -> Floats:
    """Add up the values of some vertices, (J,)."""
    return np.asarray(np.where(vertices, values, 0.0).sum(axis=1))
