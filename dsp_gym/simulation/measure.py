"""A collector's view of simulated jobs: window means of 5 s samples, late and noisy."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.compiling import njit
from dsp_gym.job.tables import SOURCE, JobTables
from dsp_gym.loop.snapshot import (
    JOB,
    JOB_FLOATS,
    RESTARTING,
    VERTEX,
    VERTEX_FLOATS,
    MetricsSnapshot,
    SnapshotArrays,
    snapshot_of_arrays,
)
from dsp_gym.loop.topology import Topology
from dsp_gym.metrics.samples import SAMPLE_S
from dsp_gym.metrics.window import FRESH_S
from dsp_gym.numba_handles import Handle, direct
from dsp_gym.simulation.options import Measurement
from dsp_gym.simulation.rows import over_rows
from dsp_gym.simulation.sampling import response
from dsp_gym.simulation.state import Model, S, SimulationState

HEAP_BASE_SHARE, HEAP_PER_BUSY = 0.35, 0.35
"""Heap in use: a third at rest, up to 70 % when every slot is busy (G1 defaults, a plain JVM)."""

GC_MS_PER_BUSY = 20.0
"""Garbage collection time of a fully busy TaskManager, ms per second."""

METASPACE_MIB = 80.0
"""Metaspace of a job of this size, MiB."""


class View(NamedTuple):
    """The samples over which a collector takes its means."""

    window_s: int  # length of the metrics window
    stabilization_s: int  # left out after a restart
    gauge_samples: int  # span of the gauges of now where times are counted; 0: samples hold them

    @classmethod
    def of(cls, measured: Measurement) -> View:
        """Build the view of a measurement's options.

        Returns:
            Numbers for compiled code.
        """
        gauge_samples = measured.gauge_s // SAMPLE_S if measured.counts_times else 0
        return cls(measured.window_s, measured.stabilization_s, gauge_samples)


@njit(cache=True, nogil=True, error_model="numpy", borrows=True, forceinline=True)
def _gained(row: Floats, begun: Floats, kept: float, column: int) -> float:
    """Return what a sum of samples gained from one row (len(S),) of the ring to another.

    Args:
        row: The later row.
        begun: The earlier row.
        kept: 0 where the earlier row dates from before the job (re)started.
        column: Column of the samples.

    Returns:
        The difference, in the column's unit.
    """
    return float(row[column] - kept * begun[column])


@direct
@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def observe(
    model: Handle[Model],
    state: Handle[SimulationState],
    view: View,
    low: int,
    high: int,
    seen: SnapshotArrays,
) -> None:
    """Fill the metrics of jobs low..high-1 in `seen`; NaN where nothing is known.

    Status and running configuration are those of now, as Flink's REST interface gives them. All
    other values come from samples that have arrived: none while the job is down, and after a
    restart only those that the new tasks have counted.

    j is a job of the batch, k its row of the tables t, v a vertex of p subtasks; s is the state.
    """
    m, s = model.arrays, state.arrays
    t, row = m.t, m.row
    for j in range(low, high):
        seen.status[j] = s.status[j]
        # NaN is the answer until a sample has arrived; the functions below fill the rest.
        for i in range(seen.job.shape[0]):
            seen.job[i, j] = np.nan
        for v in range(seen.parallelism.shape[1]):
            seen.parallelism[j, v], seen.memory_level[j, v] = s.parallelism[j, v], s.level[j, v]
        for i in range(seen.vertex.shape[0]):
            for v in range(seen.vertex.shape[2]):
                seen.vertex[i, j, v] = np.nan
        job = seen.job[:, j]
        job[JOB.t_s], job[JOB.running_since_s] = s.tick[j], s.running_since[j]
        job[JOB.window_s], job[JOB.window_fill] = view.window_s, 0.0
        job[JOB.outage_s], job[JOB.tm_count] = s.outage_s[j], s.tm_count[j]
        if s.status[j] < RESTARTING:
            _observe_now(t, s, row[j], j, view, seen)
            _observe_window(t, s, row[j], j, view, seen)


@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def _observe_now(
    t: JobTables, s: SimulationState, k: int, j: int, view: View, seen: SnapshotArrays
) -> None:
    """Fill counters and gauges of a job from its newest known sample, if that is fresh."""
    ring = s.samples.shape[1]
    arrived = s.samples_taken[j] - s.delay_s[j] // SAMPLE_S  # samples since the restart
    newest = arrived - 1
    while newest >= 0 and not s.sample_known[j, newest % ring]:
        newest -= 1
    # A gauge older than FRESH_S is not reported: its series has gone stale.
    if newest < max(0, arrived - FRESH_S // SAMPLE_S):
        return
    latest = s.tick[j] - s.tick[j] % SAMPLE_S  # when the last sample was taken
    seen.job[JOB.counted_s, j] = latest - (s.samples_taken[j] - 1 - newest) * SAMPLE_S
    # The ring holds sums, so the newest sample alone is its row minus the row before.
    begun, kept = s.samples[j, (newest - 1) % ring], 1.0 if newest > 0 else 0.0
    busy_tasks = managed = 0.0
    tms = max(1.0, float(s.tm_count[j]))
    seen_load, tasks = s.load_samples[j, newest % ring], 1.0
    for v in range(t.n[k]):
        if t.kind[k, v] != SOURCE:
            tasks = max(tasks, float(s.parallelism[j, v]))
    for v in range(t.n[k]):
        p, out = s.parallelism[j, v], seen.vertex[:, j, v]
        now = s.samples[j, newest % ring, v]
        busy = _gained(now, begun[v], kept, S.busy)
        back = _gained(now, begun[v], kept, S.back)
        # Where times are counted, the window needs them sample by sample, so the 60 s mean that
        # Flink's gauges show is taken here.
        if view.gauge_samples > 0:
            busy = back = 0.0
            # Fewer samples where the job is young, or where the ring has wrapped around.
            spans = min(newest + 1, view.gauge_samples, newest + 1 + ring - s.samples_taken[j])
            for i in range(newest - spans + 1, newest + 1):
                busy += s.samples[j, i % ring, v, S.raw_busy] / spans
                back += s.samples[j, i % ring, v, S.raw_back] / spans
            busy = min(1.0, max(0.0, busy))
            back = min(1.0 - busy, max(0.0, back))
        out[VERTEX.busy_now_ms_per_s] = 1000.0 * busy
        out[VERTEX.backpressured_now_ms_per_s] = 1000.0 * back
        if view.gauge_samples > 0 and newest == 0:
            # Flink reports all time that is not idle as busy, and counts idle time from its first
            # update on.
            out[VERTEX.busy_now_ms_per_s], out[VERTEX.backpressured_now_ms_per_s] = 1000.0, 0.0
        out[VERTEX.records_in_total] = now[S.records_in]
        out[VERTEX.records_out_total] = now[S.records_out]
        busy_tasks += busy * p
        if t.kind[k, v] == SOURCE and t.has_log[k]:
            out[VERTEX.pending_records] = now[S.pending]
            # Kafka partitions are spread over p subtasks as evenly as whole partitions allow.
            if t.partitions[k, v] > 0:
                on_fullest = math.ceil(t.partitions[k, v] / p)
                out[VERTEX.pending_partitions_max_subtask] = on_fullest
                share = on_fullest / t.partitions[k, v]
                shown = now[S.pending]
                if t.has_signals[k]:
                    # The fullest partition stands for all: records that were fetched together.
                    per_s = _gained(now, begun[v], kept, S.records_in) / SAMPLE_S
                    shown += per_s * response(t.lag_response[k], seen_load, tasks)
                out[VERTEX.pending_records_max_subtask] = shown * share
        if t.stateful[k, v] == 1:
            out[VERTEX.cache_hits_total] = now[S.hits]
            out[VERTEX.cache_misses_total] = now[S.misses]
            out[VERTEX.state_mib] = now[S.state]
            managed += now[S.cached] * p
    # TaskManager metrics are rough: load from busy subtasks per core, heap and GC linear in it.
    job = seen.job[:, j]
    load = min(1.0, busy_tasks / (tms * t.tm_cores[k]))
    if t.has_signals[k]:
        load = min(1.0, response(t.cpu_response[k], seen_load, tasks))
    heap = t.slots[k] * (t.subtask_mib[k, 0])
    job[JOB.tm_cpu_load] = load
    job[JOB.tm_heap_max_mib] = heap
    job[JOB.tm_heap_used_mib] = heap * (HEAP_BASE_SHARE + HEAP_PER_BUSY * load)
    job[JOB.tm_gc_ms_per_s] = GC_MS_PER_BUSY * load
    job[JOB.tm_managed_used_mib] = managed / tms
    job[JOB.tm_metaspace_used_mib] = METASPACE_MIB


@njit(cache=True, nogil=True)
def _hole(lost: int) -> int:
    """Return the samples that a window lacks where so many are lost at one of its ends."""
    return lost if lost * SAMPLE_S > FRESH_S else 0


@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def _observe_window(
    t: JobTables, s: SimulationState, k: int, j: int, view: View, seen: SnapshotArrays
) -> None:
    """Fill the means of a job over the settled samples of the metrics window.

    Counters go on through lost samples, so a rate is their rise from the sample before the first
    known one to the last, and the window is covered from the one to the other; gauges are means
    over the known samples.
    """
    window, ring = view.window_s // SAMPLE_S, s.samples.shape[1]
    newest = s.samples_taken[j] - s.delay_s[j] // SAMPLE_S  # arrived since the restart
    # The window ends with the newest sample that has arrived, and skips the first samples after a
    # restart, which show catching up rather than a steady rate.
    settled = newest - view.stabilization_s // SAMPLE_S
    count = min(window, max(0, settled))
    known, latency = 0, 0.0
    first_at = last_at = -1
    for i in range(newest - count, newest):
        if s.sample_known[j, i % ring]:
            known += 1
            latency += s.latency_samples[j, i % ring]
            last_at = i
            if first_at < 0:
                first_at = i
    if known == 0:
        return
    covered = count - _hole(first_at - (newest - count)) - _hole(newest - 1 - last_at)
    seen.job[JOB.window_fill, j], seen.job[JOB.latency_p95_s, j] = covered / window, latency / known
    # `base` is the sample before the window. It may be -1, just after a restart: then `kept` is 0,
    # since the counters began at zero.
    end, base = s.samples[j, last_at % ring], first_at - 1
    begun, kept = s.samples[j, base % ring], 1.0 if base >= 0 else 0.0
    span = (last_at - first_at) * SAMPLE_S
    seconds = span + SAMPLE_S
    for v in range(t.n[k]):
        p, out = s.parallelism[j, v], seen.vertex[:, j, v]
        last, first = end[v], begun[v]
        # Noise may push a mean beyond 0..1; Flink's shares of time add up to 1000 ms/s.
        busy = min(1.0, max(0.0, _gained(last, first, kept, S.busy) / known))
        top = min(1.0, _gained(last, first, kept, S.busy_max) / known)
        back = min(1.0 - busy, max(0.0, _gained(last, first, kept, S.back) / known))
        out[VERTEX.records_in_per_s] = _gained(last, first, kept, S.records_in) / seconds
        out[VERTEX.records_out_per_s] = _gained(last, first, kept, S.records_out) / seconds
        out[VERTEX.busy_ms_per_s] = 1000.0 * busy
        out[VERTEX.busy_max_ms_per_s] = 1000.0 * max(top, busy)
        out[VERTEX.busy_accumulated_ms_per_s] = 1000.0 * busy * p
        out[VERTEX.backpressured_ms_per_s] = 1000.0 * back
        out[VERTEX.idle_ms_per_s] = (
            1000.0 - out[VERTEX.busy_ms_per_s] - out[VERTEX.backpressured_ms_per_s]
        )
        if t.kind[k, v] == SOURCE and t.has_log[k]:
            # Growth is between first and last sample of the window: a queue has no sum to
            # difference.
            grown = last[S.pending] - s.samples[j, first_at % ring, v, S.pending]
            out[VERTEX.pending_growth_per_s] = grown / span if span > 0 else 0.0
        if t.stateful[k, v] == 1:
            hits = _gained(last, first, kept, S.hits)
            misses = _gained(last, first, kept, S.misses)
            if hits + misses > 0.0:
                out[VERTEX.cache_hit_rate] = hits / (hits + misses)
            if t.reads[k, v] > 0.0:
                read_s = _gained(last, first, kept, S.read_s) / known
                out[VERTEX.state_read_latency_ms] = 1000.0 * read_s
            if t.writes[k, v] > 0.0:
                write_s = _gained(last, first, kept, S.write_s) / known
                out[VERTEX.state_write_latency_ms] = 1000.0 * write_s


def snapshot(
    topology: Topology,
    model: Handle[Model],
    state: Handle[SimulationState],
    view: View,
    threads: int,
) -> MetricsSnapshot:
    """Take the snapshot of a batch of simulated jobs as of now.

    Args:
        topology: J jobs.
        model: The same jobs, compiled.
        state: Their state.
        view: The samples over which means are taken.
        threads: Number of threads the jobs are split over.

    Returns:
        Metrics of J jobs; NaN where nothing is known.
    """
    jobs, size_v = len(topology), topology.max_vertices
    # Uninitialised: `observe` writes every number, NaN where nothing is known.
    seen = SnapshotArrays(
        np.empty(jobs, np.int64),
        np.empty((jobs, size_v), np.int64),
        np.empty((jobs, size_v), np.int64),
        np.empty((len(JOB_FLOATS), jobs)),
        np.empty((len(VERTEX_FLOATS), jobs, size_v)),
    )

    def work(low: int, high: int) -> None:
        observe(model, state, view, low, high, seen)

    over_rows(work, jobs, threads)
    return snapshot_of_arrays(topology, seen)
