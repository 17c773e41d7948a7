"""What was seen: metrics of a batch of jobs at one decision.

Gauges and cumulative counters stand as of `t_s`; every other vertex field is a mean over the
metrics window, which empties at a restart. Unknown is NaN.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any

import numpy as np

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.loop.topology import Topology


class Status(IntEnum):
    """Job status as a collector reports it."""

    RUNNING = 0
    SAVEPOINTING = 1
    RESTARTING = 2
    FAILED = 3


@dataclass(frozen=True, slots=True, eq=False)
class MetricsSnapshot:
    """Metrics of J jobs of at most V vertices. Shapes (J,) or (J, V)."""

    topology: Topology
    # per job
    t_s: Floats
    status: Ints  # Status
    running_since_s: Floats  # t_s at which the job last became RUNNING
    window_s: Floats  # configured length of the metrics window
    window_fill: Floats  # 0..1, share of the window covered since the last restart
    latency_p95_s: Floats  # end-to-end, window residence left out
    outage_s: Floats  # duration of the last rescale's outage
    tm_count: Floats  # TaskManagers running
    tm_cpu_load: Floats  # 0..1, mean over TaskManagers
    tm_heap_used_mib: Floats
    tm_heap_max_mib: Floats
    tm_gc_ms_per_s: Floats
    tm_managed_used_mib: Floats
    tm_metaspace_used_mib: Floats
    # per vertex: configuration observed running
    parallelism: Ints
    memory_level: Ints  # -1 = no managed memory
    # per vertex: gauges and counters at t_s
    records_in_total: Floats  # cumulative since the last restart
    records_out_total: Floats
    cache_hits_total: Floats
    cache_misses_total: Floats
    pending_records: Floats  # sources: backlog, all partitions
    pending_records_max_subtask: Floats  # sources: backlog of the subtask that has most
    pending_partitions_max_subtask: Floats  # sources: partitions of that subtask
    state_mib: Floats  # live data of the vertex, all subtasks
    busy_now_ms_per_s: Floats  # 60 s gauge at t_s, mean over subtasks
    backpressured_now_ms_per_s: Floats
    # per vertex: means over the window
    records_in_per_s: Floats
    records_out_per_s: Floats
    busy_ms_per_s: Floats  # mean over subtasks
    busy_max_ms_per_s: Floats  # hottest subtask
    busy_accumulated_ms_per_s: Floats  # summed over subtasks
    backpressured_ms_per_s: Floats
    idle_ms_per_s: Floats
    cache_hit_rate: Floats  # 0..1; NaN where there is no block cache metric
    state_read_latency_ms: Floats
    state_write_latency_ms: Floats
    pending_growth_per_s: Floats  # sources: growth of the backlog over the window

    def __len__(self) -> int:
        return len(self.topology)

    def take(self, jobs: Ints) -> MetricsSnapshot:
        """The snapshot of some of the jobs."""
        values: dict[str, Any] = {
            f.name: getattr(self, f.name)[jobs] for f in fields(self) if f.name != "topology"
        }
        return MetricsSnapshot(topology=self.topology.take(jobs), **values)

    def job(self, job: int) -> JobSnapshot:
        """One job with named access."""
        return JobSnapshot(self, job)

    @property
    def running(self) -> Bools:
        """True for jobs that are RUNNING, (J,)."""
        return np.asarray(self.status == Status.RUNNING)


PER_JOB = tuple(
    f.name
    for f in fields(MetricsSnapshot)
    if f.name
    in ("t_s", "status", "running_since_s", "window_s", "window_fill", "latency_p95_s", "outage_s")
    or f.name.startswith("tm_")
)
PER_VERTEX = tuple(
    f.name for f in fields(MetricsSnapshot) if f.name not in PER_JOB and f.name != "topology"
)


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """One job of a snapshot: values by name, None where unknown."""

    batch: MetricsSnapshot
    index: int

    @property
    def vertices(self) -> tuple[str, ...]:
        """Vertex names in topological order."""
        return self.batch.topology.names(self.index)

    @property
    def status(self) -> Status:
        """Status of the job."""
        return Status(int(self.batch.status[self.index]))

    def get(self, name: str) -> float | None:
        """A per-job metric; None where unknown."""
        if name not in PER_JOB:
            raise KeyError(name)
        return _known(getattr(self.batch, name)[self.index])

    def vertex(self, vertex: str, name: str) -> float | None:
        """A per-vertex metric; None where unknown."""
        if name not in PER_VERTEX:
            raise KeyError(name)
        column = self.vertices.index(vertex)
        return _known(getattr(self.batch, name)[self.index, column])


def _known(value: Any) -> float | None:
    number = float(value)
    return None if np.isnan(number) else number
