"""A metrics window that belongs to a policy rather than to the collector.

Rules that query Prometheus say themselves over how long a mean is taken, such as `rate(...[1m])`.
A policy with a window of its own samples counters and gauges at every decision and computes the
means from these samples, whatever window the collector has.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.due import EARLY_S, is_due
from dsp_gym.loop.per_job_state import Kept, RowMemory
from dsp_gym.loop.protocols import Mask
from dsp_gym.loop.snapshot import (
    JOB,
    RUNNING,
    VERTEX,
    MetricsSnapshot,
    SnapshotArrays,
    snapshot_of_arrays,
)
from dsp_gym.loop.topology import JobFacts, Topology

SCRAPE_S = 5.0
"""Least distance of samples, s, as Prometheus scrapes."""


class WindowSamples(NamedTuple):
    """The last S samples of every job, as a ring."""

    written: Ints  # (J,) samples written so far
    at_s: Floats  # (J, S)
    cpu: Floats  # (J, S) mean over TaskManagers
    taken: Floats  # (J, V, S) records read since the start
    sent: Floats  # (J, V, S)
    pending: Floats  # (J, V, S)
    busy: Floats  # (J, V, S) 60 s gauge
    back: Floats  # (J, V, S) 60 s gauge


class OwnWindow(Kept):
    """Means of a policy's own window, in the place of the collector's.

    Rates come from counters, shares of time and CPU load are means of gauges. The window empties at
    a restart, where counters begin anew; only that of the CPU load goes on, as TaskManagers survive
    a restart of the job. What has no samples yet keeps the collector's mean.

    Args:
        window_s: Length of the window, s.
    """

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        depth = math.ceil(window_s / SCRAPE_S) + 2
        of_job = {"at_s": -1e18, "cpu": np.nan}
        of_vertex = dict.fromkeys(("taken", "sent", "pending", "busy", "back"), np.nan)
        self._memory = self._kept = RowMemory(
            {
                "written": ("job", 0),
                **{name: ("job", first) for name, first in of_job.items()},
                **{name: ("vertex", first) for name, first in of_vertex.items()},
            },
            depth=dict.fromkeys((*of_job, *of_vertex), depth),
        )

    def reset(self, jobs: Topology, mask: Mask | None = None) -> None:
        """Forget all rows, or only those where the mask is True."""
        self._memory.reset(jobs, mask)

    def memories(self) -> tuple[RowMemory, ...]:
        """Return the whole memory.

        Returns:
            The one memory.
        """
        return (self._memory,)

    def seen(self, snapshot: MetricsSnapshot) -> MetricsSnapshot:
        """Take a sample, and compute the means of the window; call it at every decision.

        Args:
            snapshot: J jobs.

        Returns:
            A copy with the means of this window; `window_fill` is the part of it that the samples
            span.
        """
        found = snapshot.arrays
        own = SnapshotArrays(
            found.status,
            found.parallelism,
            found.memory_level,
            found.job.copy(),
            found.vertex.copy(),
        )
        _take_means(
            snapshot.topology.facts, self._window_s, self._memory.arrays(WindowSamples), own
        )
        return snapshot_of_arrays(snapshot.topology, own)


@njit(cache=True, nogil=True)
def _take_means(t: JobFacts, window_s: float, m: WindowSamples, seen: SnapshotArrays) -> None:
    """Sample every running job and replace its means in `seen`.

    j is a job's row, k its job file, v a vertex, i a slot of the ring.
    """
    size = m.at_s.shape[1]
    for j in range(len(seen.status)):
        k, now, since = t.row[j], seen.job[JOB.t_s, j], seen.job[JOB.running_since_s, j]
        if seen.status[j] != RUNNING:
            continue
        if m.written[j] == 0 or is_due(now, m.at_s[j, (m.written[j] - 1) % size], SCRAPE_S):
            _sample(seen, m, j, m.written[j] % size)
            m.written[j] += 1
        newest = (m.written[j] - 1) % size
        # Slots from the oldest of the window to the newest, of this start of the job.
        first = _oldest(m.at_s[j], newest, m.written[j], max(since, now - window_s - EARLY_S))
        count = (newest - first) % size + 1
        seen.job[JOB.window_s, j] = window_s
        span = m.at_s[j, newest] - m.at_s[j, first]
        seen.job[JOB.window_fill, j] = min(1.0, span / window_s)
        oldest = _oldest(m.at_s[j], newest, m.written[j], now - window_s - EARLY_S)
        load = _mean(m.cpu[j], oldest, (newest - oldest) % size + 1)
        if not np.isnan(load):
            seen.job[JOB.tm_cpu_load, j] = load
        for v in range(t.n[k]):
            out = seen.vertex[:, j, v]
            _put_rate(out, VERTEX.records_in_per_s, m.taken[j, v], m.at_s[j], first, count, True)
            _put_rate(out, VERTEX.records_out_per_s, m.sent[j, v], m.at_s[j], first, count, True)
            if t.kind[k, v] == SOURCE:
                grows = VERTEX.pending_growth_per_s
                _put_rate(out, grows, m.pending[j, v], m.at_s[j], first, count, False)
            busy, waits = _mean(m.busy[j, v], first, count), _mean(m.back[j, v], first, count)
            if not (np.isnan(busy) or np.isnan(waits)):
                out[VERTEX.busy_ms_per_s], out[VERTEX.backpressured_ms_per_s] = busy, waits
                out[VERTEX.idle_ms_per_s] = max(0.0, 1000.0 - busy - waits)


@njit(cache=True, nogil=True)
def _sample(seen: SnapshotArrays, m: WindowSamples, j: int, i: int) -> None:
    """Write the counters and gauges of row j into slot i."""
    m.at_s[j, i] = seen.job[JOB.t_s, j]
    m.cpu[j, i] = seen.job[JOB.tm_cpu_load, j]
    for v in range(seen.parallelism.shape[1]):
        m.taken[j, v, i] = seen.vertex[VERTEX.records_in_total, j, v]
        m.sent[j, v, i] = seen.vertex[VERTEX.records_out_total, j, v]
        m.pending[j, v, i] = seen.vertex[VERTEX.pending_records, j, v]
        m.busy[j, v, i] = seen.vertex[VERTEX.busy_now_ms_per_s, j, v]
        m.back[j, v, i] = seen.vertex[VERTEX.backpressured_now_ms_per_s, j, v]


@njit(cache=True, nogil=True)
def _oldest(at_s: Floats, newest: int, written: int, begin_s: float) -> int:
    """Return the slot of the oldest sample that is not older than a time."""
    oldest = newest
    for back in range(1, min(len(at_s), written)):
        i = (newest - back) % len(at_s)
        if at_s[i] < begin_s:
            break
        oldest = i
    return oldest


@njit(cache=True, nogil=True)
def _mean(values: Floats, first: int, count: int) -> float:
    """Average the known ones of `count` slots of a ring; NaN: none is known."""
    total, known = 0.0, 0
    for i in range(count):
        value = values[(first + i) % len(values)]
        if not np.isnan(value):
            total, known = total + value, known + 1
    return total / known if known > 0 else np.nan


@njit(cache=True, nogil=True)
def _put_rate(
    out: Floats, metric: int, values: Floats, at_s: Floats, first: int, count: int, counter: bool
) -> None:
    """Replace a metric by the rise between the outer known ones of `count` slots, per second.

    Without two of them, and where a counter fell, the metric stays.
    """
    begin = end = -1
    for i in range(count):
        slot = (first + i) % len(values)
        if not np.isnan(values[slot]):
            end, begin = slot, slot if begin < 0 else begin
    if begin == end or (counter and values[end] < values[begin]):
        return
    out[metric] = (values[end] - values[begin]) / (at_s[end] - at_s[begin])
