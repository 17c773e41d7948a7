"""The observation: scale-free numbers about a job and its vertices, in one flat vector.

Layout: vertex features (V * Fv), job features (Fj), mask (V), adjacency (V * V, row = downstream,
column = upstream). Ratios, seconds and logarithms only, so that one policy can serve any job;
unknown is 0 with a flag beside it where that could be mistaken. Values are clipped to +-10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dsp_gym.arrays import Floats, Floats32, Ints
from dsp_gym.job.tables import SINK, SOURCE, JobTables
from dsp_gym.loop.protocols import Mask
from dsp_gym.loop.rates import Ds2Rates, ds2_rates
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology

LIMIT = 10.0

VERTEX_FEATURES: dict[str, str] = {
    "is_source": "1 for a source",
    "is_sink": "1 for a sink",
    "is_scalable": "1 where parallelism can change",
    "is_stateful": "1 where RocksDB reports a block cache",
    "busy": "busy share, mean over subtasks",
    "busy_max": "busy share of the hottest subtask",
    "backpressured": "backpressured share",
    "idle": "idle share",
    "wanted": "log2 of DS2's fractional parallelism over the running one",
    "selectivity": "log10 of records out per record in",
    "observed_over_true": "records in over true processing rate of the vertex",
    "hit_rate": "cache hit rate, 1 where there is none",
    "read_latency": "log10 of state read latency in 10 us",
    "write_latency": "log10 of state write latency in 10 us",
    "state_per_task": "log2 of (1 + live state per subtask over managed memory of level 0)",
    "parallelism": "log2 of parallelism / 4",
    "parallelism_share": "parallelism over its upper bound",
    "memory_level": "level over the highest; -1 without managed memory",
    "last_move": "log2 of parallelism over the one before",
    "last_level_change": "level minus the one before",
    "hit_rate_before": "hit rate under the configuration before",
    "read_latency_before": "read latency under the configuration before, as above",
    "hot_share": "key groups on the fullest subtask over the mean, minus 1",
    "cost_share": "share of the job's requested cores",
}
JOB_FEATURES: dict[str, str] = {
    "is_running": "1 while the job runs",
    "window_fill": "share of the metrics window covered since the last restart",
    "rate_trend": "log2 of the source rate over that of the decision before",
    "rate_trend_10min": "log2 of the source rate over its mean of about 10 minutes",
    "rate_trend_60min": "log2 of the source rate over its mean of about an hour",
    "backlog": "log10 of (1 + pending records in seconds of arrivals)",
    "backlog_growth": "growth of the backlog over the source rate",
    "latency": "log10 of p95 latency over its bound",
    "latency_bound": "log10 of the latency bound in seconds",
    "since_rescale": "time since the job last came up, half an hour = 1",
    "outage": "last outage over 100 s; 0.5 before there was one",
    "bottleneck": "largest `wanted` of the job",
    "cores": "log2 of requested cores / 8",
    "memory_per_core": "log2 of requested GiB per core",
}
FV, FJ = len(VERTEX_FEATURES), len(JOB_FEATURES)


@dataclass(frozen=True, slots=True)
class ObservationLayout:
    """Where things stand in a flat observation of a job with V vertices."""

    vertices: int

    @property
    def size(self) -> int:
        """Length of the flat vector."""
        return self.vertices * FV + FJ + self.vertices + self.vertices**2

    @property
    def vertex(self) -> slice:
        """Vertex features, vertex by vertex."""
        return slice(0, self.vertices * FV)

    @property
    def job(self) -> slice:
        """Job features."""
        return slice(self.vertices * FV, self.vertices * FV + FJ)

    @property
    def mask(self) -> slice:
        """1 for each vertex that is not padding."""
        return slice(self.job.stop, self.job.stop + self.vertices)

    @property
    def adjacency(self) -> slice:
        """1 where the row's vertex reads from the column's."""
        return slice(self.mask.stop, self.mask.stop + self.vertices**2)


# columns of the encoder's memory, per vertex
(M_P, M_LEVEL, M_HIT, M_LATENCY, M_P_BEFORE, M_LEVEL_BEFORE, M_HIT_BEFORE, M_LATENCY_BEFORE) = (
    range(8)
)
# and per job
(M_RATE, M_RATE_10, M_RATE_60, M_T) = range(4)


class ObservationEncoder:
    """Encodes snapshots; remembers the configuration before and the course of the load.

    Both are read from what was observed running, so the same snapshots give the same observations
    in the gym, in shadow and live.
    """

    def __init__(self, topology: Topology, vertices: int | None = None) -> None:
        self.topology = topology
        self.layout = ObservationLayout(vertices or topology.max_vertices)
        jobs = len(topology)
        self._vertex = np.full((jobs, topology.max_vertices, 8), np.nan)
        self._job = np.full((jobs, 4), np.nan)
        self._fixed = _fixed_part(topology, self.layout)

    def reset(self, mask: Mask | None = None) -> None:
        """Forget, in all jobs or where the mask is True."""
        rows = slice(None) if mask is None else mask
        self._vertex[rows] = np.nan
        self._job[rows] = np.nan

    def encode(self, snapshot: MetricsSnapshot, rates: Ds2Rates | None = None) -> Floats32:
        """Observations (J, layout.size) of a snapshot that follows the last one.

        `rates` are DS2's of this snapshot, where they are at hand.
        """
        tables, row = self.topology.tables, self.topology.row
        out = self._fixed.copy()
        rates = rates or ds2_rates(snapshot)
        _encode(
            tables,
            row,
            snapshot.status,
            snapshot.t_s,
            snapshot.running_since_s,
            snapshot.window_fill,
            snapshot.latency_p95_s,
            snapshot.outage_s,
            snapshot.parallelism,
            snapshot.memory_level,
            snapshot.busy_ms_per_s,
            snapshot.busy_max_ms_per_s,
            snapshot.backpressured_ms_per_s,
            snapshot.idle_ms_per_s,
            snapshot.records_in_per_s,
            snapshot.records_out_per_s,
            snapshot.cache_hit_rate,
            snapshot.state_read_latency_ms,
            snapshot.state_write_latency_ms,
            snapshot.state_mib,
            snapshot.pending_records,
            snapshot.pending_growth_per_s,
            rates.optimal,
            rates.true_rate_per_task,
            self._vertex,
            self._job,
            self.layout.job.start,
            out,
        )
        return out

    def state(self) -> dict[str, Any]:
        """What `restore` needs, as JSON values (NaN as None)."""
        return {"vertex": _listed(self._vertex), "job": _listed(self._job)}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state()`."""
        self._vertex = np.array(state["vertex"], dtype=np.float64)
        self._job = np.array(state["job"], dtype=np.float64)

    def save(self) -> dict[str, Floats]:
        """The memory as arrays."""
        return {"encoder_vertex": self._vertex.copy(), "encoder_job": self._job.copy()}

    def load(self, saved: dict[str, NDArray[np.generic]]) -> None:
        """Go on from `save()`."""
        self._vertex = np.array(saved["encoder_vertex"], dtype=np.float64)
        self._job = np.array(saved["encoder_job"], dtype=np.float64)


def _listed(array: Floats) -> list[Any]:
    """Nested lists, NaN as None."""
    if array.ndim > 1:
        return [_listed(part) for part in array]
    return [None if np.isnan(value) else float(value) for value in array]


def _fixed_part(topology: Topology, layout: ObservationLayout) -> Floats32:
    """Mask and adjacency filled in, all else 0."""
    tables, vertices = topology.tables, layout.vertices
    out = np.zeros((len(topology), layout.size), np.float32)
    for j, k in enumerate(topology.row):
        mask = np.zeros(vertices)
        edges = np.zeros((vertices, vertices))
        for v in range(tables.n[k]):
            mask[v] = 1
            for u in tables.upstream[k, v]:
                if u >= 0:
                    edges[v, u] = 1
        out[j, layout.mask], out[j, layout.adjacency] = mask, edges.ravel()
    return out


@njit(cache=True, nogil=True)
def _log(x: float, base: float, scale: float, floor: float) -> float:
    return float(np.log(max(x / scale, floor)) / np.log(base))


@njit(cache=True, nogil=True)
def _encode(
    t: JobTables,
    row: Ints,
    status: Ints,
    t_s: Floats,
    since: Floats,
    fill: Floats,
    latency: Floats,
    outage: Floats,
    p: Ints,
    level: Ints,
    busy: Floats,
    busy_max: Floats,
    back: Floats,
    idle: Floats,
    in_rate: Floats,
    out_rate: Floats,
    hit: Floats,
    read_ms: Floats,
    write_ms: Floats,
    state_mib: Floats,
    pending: Floats,
    growth: Floats,
    optimal: Floats,
    true_rate: Floats,
    vertex_memory: Floats,
    job_memory: Floats,
    job_at: int,
    out: Floats32,
) -> None:
    for j in range(row.shape[0]):
        k = row[j]
        g = job_memory[j]
        source_rate = backlog = grows = cores = mib = 0.0
        bottleneck = 0.0
        for v in range(t.n[k]):
            if t.kind[k, v] == SOURCE:
                if not np.isnan(out_rate[j, v]):
                    source_rate += out_rate[j, v]
                if not np.isnan(pending[j, v]):
                    backlog += pending[j, v]
                if not np.isnan(growth[j, v]):
                    grows += growth[j, v]
            else:
                cores += p[j, v]
                mib += p[j, v] * t.subtask_mib[k, level[j, v] + 1]
        for v in range(t.n[k]):
            m = vertex_memory[j, v]
            if np.isnan(m[M_P]):
                m[M_P_BEFORE], m[M_LEVEL_BEFORE] = p[j, v], level[j, v]
            elif m[M_P] != p[j, v] or m[M_LEVEL] != level[j, v]:
                m[M_P_BEFORE], m[M_LEVEL_BEFORE] = m[M_P], m[M_LEVEL]
                m[M_HIT_BEFORE], m[M_LATENCY_BEFORE] = m[M_HIT], m[M_LATENCY]
            m[M_P], m[M_LEVEL] = p[j, v], level[j, v]
            stateful = not np.isnan(state_mib[j, v])
            read = 0.0
            if not np.isnan(read_ms[j, v]):
                read = _log(read_ms[j, v], 10.0, 0.01, 1e-3)
                m[M_LATENCY] = read
            if not np.isnan(hit[j, v]):
                m[M_HIT] = hit[j, v]
            f = out[j, v * FV : (v + 1) * FV]
            f[0] = t.kind[k, v] == SOURCE
            f[1] = t.kind[k, v] == SINK
            f[2] = t.min_parallelism[k, v] < t.max_parallelism[k, v]
            f[3] = stateful
            f[4], f[5] = busy[j, v] / 1000.0, busy_max[j, v] / 1000.0
            f[6], f[7] = back[j, v] / 1000.0, idle[j, v] / 1000.0
            if f[2] > 0 and optimal[j, v] > 0:
                f[8] = _log(optimal[j, v], 2.0, float(p[j, v]), 1e-3)
                bottleneck = max(bottleneck, f[8]) if bottleneck != 0.0 else f[8]
            if in_rate[j, v] > 0:
                f[9] = _log(out_rate[j, v] / in_rate[j, v], 10.0, 1.0, 1e-6)
                if true_rate[j, v] > 0:
                    f[10] = in_rate[j, v] / (true_rate[j, v] * p[j, v])
            f[11] = 1.0 if np.isnan(m[M_HIT]) else m[M_HIT]
            f[12] = read
            if not np.isnan(write_ms[j, v]):
                f[13] = _log(write_ms[j, v], 10.0, 0.01, 1e-3)
            if stateful:
                per_task = state_mib[j, v] / p[j, v]
                managed = t.subtask_mib[k, 1] - t.subtask_mib[k, 0]
                f[14] = np.log2(1.0 + per_task / managed)
            f[15] = np.log2(p[j, v] / 4.0)
            f[16] = p[j, v] / t.max_parallelism[k, v]
            f[17] = level[j, v] / max(1.0, t.levels[k] - 1.0)
            f[18] = np.log2(p[j, v] / m[M_P_BEFORE])
            f[19] = level[j, v] - m[M_LEVEL_BEFORE]
            f[20] = 1.0 if np.isnan(m[M_HIT_BEFORE]) else m[M_HIT_BEFORE]
            f[21] = 0.0 if np.isnan(m[M_LATENCY_BEFORE]) else m[M_LATENCY_BEFORE]
            f[22] = t.hot[k, v, p[j, v]] - 1.0
            if t.kind[k, v] != SOURCE:
                f[23] = p[j, v] / cores
            for i in range(FV):
                if np.isnan(f[i]):
                    f[i] = 0.0
                f[i] = min(max(f[i], -LIMIT), LIMIT)
        if source_rate > 0.0 and np.isnan(g[M_RATE]):
            g[M_RATE] = g[M_RATE_10] = g[M_RATE_60] = source_rate
        elapsed = 0.0 if np.isnan(g[M_T]) else t_s[j] - g[M_T]
        g[M_T] = t_s[j]
        h = out[j, job_at : job_at + FJ]
        h[0] = status[j] == 0
        h[1] = fill[j]
        if source_rate > 0.0:
            g[M_RATE_10] += (source_rate - g[M_RATE_10]) * (1.0 - np.exp(-elapsed / 600.0))
            g[M_RATE_60] += (source_rate - g[M_RATE_60]) * (1.0 - np.exp(-elapsed / 3600.0))
            h[2] = _log(source_rate, 2.0, g[M_RATE], 1e-3)
            h[3] = _log(source_rate, 2.0, g[M_RATE_10], 1e-3)
            h[4] = _log(source_rate, 2.0, g[M_RATE_60], 1e-3)
            g[M_RATE] = source_rate
            h[6] = grows / source_rate
            h[5] = np.log10(1.0 + backlog / source_rate)
        elif not np.isnan(g[M_RATE]):
            h[5] = np.log10(1.0 + backlog / max(g[M_RATE], 1e-9))
        if not np.isnan(latency[j]):
            h[7] = _log(latency[j], 10.0, t.slo_s[k], 1e-4)
        h[8] = np.log10(t.slo_s[k])
        h[9] = min(1.0, (t_s[j] - since[j]) / 1800.0)
        h[10] = 0.5 if np.isnan(outage[j]) else outage[j] / 100.0
        h[11] = bottleneck
        h[12] = np.log2(max(cores, 0.5) / 8.0)
        h[13] = np.log2(max(mib, 1.0) / 1024.0 / max(cores, 0.5))
        for i in range(FJ):
            h[i] = min(max(h[i], -LIMIT), LIMIT)
