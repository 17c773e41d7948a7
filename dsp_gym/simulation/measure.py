"""What a collector sees of simulated jobs: window means of 5 s samples, late and noisy."""

from __future__ import annotations

import numpy as np
from numba import njit

from dsp_gym.arrays import Floats, Ints
from dsp_gym.job.tables import SOURCE, JobTables
from dsp_gym.loop.snapshot import PER_VERTEX, MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.simulation.options import SAMPLE_S, SimulationOptions
from dsp_gym.simulation.rows import over_rows
from dsp_gym.simulation.state import (
    S_BACK,
    S_BUSY,
    S_BUSY_MAX,
    S_HITS,
    S_IN,
    S_MISSES,
    S_OUT,
    S_PENDING,
    S_READ,
    S_WRITE,
    SUMMED_COLUMNS,
    X_CACHED,
    X_HITS,
    X_IN,
    X_MISSES,
    X_OUT,
    X_PENDING,
    X_STATE,
    SimulationState,
)

HEAP_BASE_SHARE, HEAP_PER_BUSY = 0.35, 0.35
"""Heap in use: a third at rest, up to 70 % when every slot is busy (G1 defaults, a plain JVM)."""

GC_MS_PER_BUSY = 20.0
"""Garbage collection time of a fully busy TaskManager, ms per second."""

METASPACE_MIB = 80.0
"""Metaspace of a job of this size."""

VERTEX_FLOATS = tuple(n for n in PER_VERTEX if n not in ("parallelism", "memory_level"))
(
    V_IN_TOTAL,
    V_OUT_TOTAL,
    V_HITS,
    V_MISSES,
    V_PENDING,
    V_PENDING_MAX,
    V_PARTITIONS_MAX,
    V_STATE,
    V_BUSY_NOW,
    V_BACK_NOW,
    V_IN,
    V_OUT,
    V_BUSY,
    V_BUSY_MAX,
    V_BUSY_SUM,
    V_BACK,
    V_IDLE,
    V_HIT_RATE,
    V_READ_MS,
    V_WRITE_MS,
    V_GROWTH,
) = range(21)
assert len(VERTEX_FLOATS) == 21

JOB_FLOATS = (
    "t_s",
    "running_since_s",
    "window_s",
    "window_fill",
    "latency_p95_s",
    "outage_s",
    "tm_count",
    "tm_cpu_load",
    "tm_heap_used_mib",
    "tm_heap_max_mib",
    "tm_gc_ms_per_s",
    "tm_managed_used_mib",
    "tm_metaspace_used_mib",
)
(
    J_T,
    J_SINCE,
    J_WINDOW,
    J_FILL,
    J_LATENCY,
    J_OUTAGE,
    J_TMS,
    J_CPU,
    J_HEAP,
    J_HEAP_MAX,
    J_GC,
    J_MANAGED,
    J_META,
) = range(13)


@njit(cache=True, nogil=True)
def observe(
    t: JobTables,
    row: Ints,
    s: SimulationState,
    window_s: int,
    stabilization_s: int,
    delay_s: int,
    low: int,
    high: int,
    job: Floats,
    vertex: Floats,
) -> None:
    """Fill job (J, 13) and vertex (21, J, V) with what is seen; NaN where nothing is."""
    window, delay = window_s // SAMPLE_S, delay_s // SAMPLE_S
    ring = s.samples.shape[1]
    total = np.zeros(SUMMED_COLUMNS)
    for j in range(low, high):
        k = row[j]
        newest = s.samples_taken[j] - delay  # samples since the restart that have arrived
        settled = newest - stabilization_s // SAMPLE_S
        count = min(window, max(0, settled))
        known = 0
        latency = 0.0
        first_at = last_at = -1
        for i in range(newest - count, newest):
            if s.sample_known[j, i % ring]:
                known += 1
                latency += s.latency_samples[j, i % ring]
                last_at = i
                if first_at < 0:
                    first_at = i
        job[j, J_T], job[j, J_SINCE] = s.tick[j], s.running_since[j]
        job[j, J_WINDOW], job[j, J_FILL] = window_s, known / window
        job[j, J_LATENCY] = latency / known if known else np.nan
        job[j, J_OUTAGE], job[j, J_TMS] = s.outage_s[j], s.tm_count[j]
        busy_tasks = managed = 0.0
        for v in range(t.n[k]):
            p = s.parallelism[j, v]
            out = vertex[:, j, v]
            out[:] = np.nan
            stateful = t.stateful[k, v] == 1
            is_source = t.kind[k, v] == SOURCE
            out[V_IN_TOTAL], out[V_OUT_TOTAL] = s.vertex[j, v, X_IN], s.vertex[j, v, X_OUT]
            if is_source and t.has_log[k]:
                out[V_PENDING] = s.vertex[j, v, X_PENDING]
                if t.partitions[k, v] > 0:
                    on_fullest = np.ceil(t.partitions[k, v] / p)
                    out[V_PARTITIONS_MAX] = on_fullest
                    out[V_PENDING_MAX] = s.vertex[j, v, X_PENDING] * on_fullest / t.partitions[k, v]
            if stateful:
                out[V_HITS], out[V_MISSES] = s.vertex[j, v, X_HITS], s.vertex[j, v, X_MISSES]
                out[V_STATE] = s.vertex[j, v, X_STATE]
                managed += s.vertex[j, v, X_CACHED] * p
            if known == 0:
                continue
            newest_row, base = s.samples[j, (newest - 1) % ring, v], newest - count - 1
            for m in range(SUMMED_COLUMNS):
                total[m] = newest_row[m]
                if base >= 0:
                    total[m] -= s.samples[j, base % ring, v, m]
            seconds = known * SAMPLE_S
            busy = min(1.0, max(0.0, total[S_BUSY] / known))
            top = min(1.0, total[S_BUSY_MAX] / known)
            back = min(1.0 - busy, max(0.0, total[S_BACK] / known))
            now = s.samples[j, last_at % ring, v]
            out[V_BUSY_NOW], out[V_BACK_NOW] = 1000.0 * now[S_BUSY], 1000.0 * now[S_BACK]
            if last_at > 0:
                out[V_BUSY_NOW] -= 1000.0 * s.samples[j, (last_at - 1) % ring, v, S_BUSY]
                out[V_BACK_NOW] -= 1000.0 * s.samples[j, (last_at - 1) % ring, v, S_BACK]
            out[V_IN], out[V_OUT] = total[S_IN] / seconds, total[S_OUT] / seconds
            out[V_BUSY], out[V_BUSY_MAX] = 1000.0 * busy, 1000.0 * max(top, busy)
            out[V_BUSY_SUM] = 1000.0 * busy * p
            out[V_BACK] = 1000.0 * back
            out[V_IDLE] = 1000.0 - out[V_BUSY] - out[V_BACK]
            busy_tasks += busy * p
            if is_source and t.has_log[k]:
                span = (last_at - first_at) * SAMPLE_S
                grown = now[S_PENDING] - s.samples[j, first_at % ring, v, S_PENDING]
                out[V_GROWTH] = grown / span if span > 0 else 0.0
            if stateful:
                asked = total[S_HITS] + total[S_MISSES]
                if asked > 0.0:
                    out[V_HIT_RATE] = total[S_HITS] / asked
                if t.reads[k, v] > 0.0:
                    out[V_READ_MS] = 1000.0 * total[S_READ] / known
                if t.writes[k, v] > 0.0:
                    out[V_WRITE_MS] = 1000.0 * total[S_WRITE] / known
        tms = max(1.0, float(s.tm_count[j]))
        load = min(1.0, busy_tasks / (tms * t.tm_cores[k]))
        heap = t.slots[k] * (t.subtask_mib[k, 0])
        job[j, J_CPU] = load if known else np.nan
        job[j, J_HEAP_MAX] = heap
        job[j, J_HEAP] = heap * (HEAP_BASE_SHARE + HEAP_PER_BUSY * load)
        job[j, J_GC] = GC_MS_PER_BUSY * load
        job[j, J_MANAGED] = managed / tms
        job[j, J_META] = METASPACE_MIB


def snapshot(
    topology: Topology, state: SimulationState, options: SimulationOptions
) -> MetricsSnapshot:
    """The snapshot of a batch of simulated jobs as of now."""
    jobs, size_v = len(topology), topology.max_vertices
    job = np.full((jobs, len(JOB_FLOATS)), np.nan)
    vertex = np.full((len(VERTEX_FLOATS), jobs, size_v), np.nan)
    measured = options.measurement
    arguments = (
        topology.tables,
        topology.row,
        state,
        measured.window_s,
        measured.stabilization_s,
        measured.delay_s,
    )

    def work(low: int, high: int) -> None:
        observe(*arguments, low, high, job, vertex)

    over_rows(work, jobs, options.thread_count(jobs))
    per_job = {name: job[:, i] for i, name in enumerate(JOB_FLOATS)}
    per_vertex = {name: vertex[i] for i, name in enumerate(VERTEX_FLOATS)}
    return MetricsSnapshot(
        topology=topology,
        status=state.status.copy(),
        parallelism=state.parallelism.copy(),
        memory_level=state.level.copy(),
        **per_job,
        **per_vertex,
    )
