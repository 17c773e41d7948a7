"""Arrivals since the last snapshot, from counters where there are any.

A rate over a metrics window of two minutes is a minute old on average. Counters are exact:

    arrived = records read by the sources + growth of their backlog
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.per_job_state import Kept, RowMemory
from dsp_gym.loop.protocols import Mask
from dsp_gym.loop.snapshot import JOB, RESTARTING, RUNNING, VERTEX, MetricsSnapshot, SnapshotArrays
from dsp_gym.loop.topology import JobFacts, Topology
from dsp_gym.numba_handles import Handle, direct

BLIND_S = 600.0
"""Seconds without a measurement of the load after which decisions no longer use the last one."""

ENOUGH_FILL = 0.45
"""Least covered share of the metrics window with which its means count."""


class Counted(NamedTuple):
    """The counters of the last snapshot that had any, (J,)."""

    t_s: Floats  # time of their scrape
    processed: Floats  # records, since the last restart
    pending: Floats  # records
    since_s: Floats  # time at which the job last became RUNNING
    was_down: Ints  # 0 or 1: a later snapshot showed the job down


class Arrivals(Kept):
    """A measurement of the load of each job from snapshot to snapshot."""

    def __init__(self) -> None:
        self._memory = self._kept = RowMemory(
            {
                "t_s": ("job", np.nan),
                "processed": ("job", np.nan),
                "pending": ("job", np.nan),
                "since_s": ("job", np.nan),
                "was_down": ("job", 0),
            }
        )

    def reset(self, jobs: Topology, mask: Mask | None = None) -> None:
        """Forget the last counters; with a mask only those of rows where it is True."""
        self._memory.reset(jobs, mask)

    def observe(self, snapshot: MetricsSnapshot) -> Floats:
        """Measure the arrivals since the last snapshot.

        A job without counters falls back to the means of its metrics window while it runs.

        Args:
            snapshot: The metrics now.

        Returns:
            (J,) records/s over all sources; NaN where they are unknown.
        """
        found = np.full(len(snapshot), np.nan)
        _arrived(snapshot.topology.handle, snapshot.arrays, self.counted, found)
        return found

    @property
    def counted(self) -> Handle[Counted]:
        """The memory as one argument of compiled code."""
        return self._memory.handle(Counted)


@njit(cache=True, nogil=True)
def pending_records(t: JobFacts, seen: SnapshotArrays, j: int) -> float:
    """Return the backlog of a job over all its sources.

    Returns:
        Records; 0 for generators without a log, NaN where it is not measured.
    """
    k, total = t.row[j], 0.0
    if t.has_log[k] == 0:
        return 0.0
    for v in range(t.n[k]):
        if t.kind[k, v] == SOURCE:
            total += seen.vertex[VERTEX.pending_records][j, v]
    return total


@njit(cache=True, nogil=True)
def _read(t: JobFacts, seen: SnapshotArrays, j: int) -> tuple[float, float]:
    """Return the records that the sources of job j have read, and its arrivals in the window."""
    k, processed, rate = t.row[j], 0.0, 0.0
    for v in range(t.n[k]):
        if t.kind[k, v] == SOURCE:
            processed += seen.vertex[VERTEX.records_in_total][j, v]
            rate += seen.vertex[VERTEX.records_in_per_s][j, v]
            # Generators without a log have no backlog, and an unknown growth counts as none.
            growth = seen.vertex[VERTEX.pending_growth_per_s][j, v]
            rate += 0.0 if math.isnan(growth) else growth
    return processed, rate


@njit(cache=True, nogil=True)
def arrived(
    t: JobFacts, seen: SnapshotArrays, m: Counted, low: int, high: int, found: Floats
) -> None:
    """Write records/s since the last snapshot of jobs low..high-1 into `found`, (J,).

    Where they are unknown it stays as it is.
    """
    # m is the memory; everything is per job, so that a batch costs one call.
    for j in range(low, high):
        processed, rate = _read(t, seen, j)
        pending = pending_records(t, seen, j)
        # Counters have the time of their scrape; without it, the snapshot's.
        now, since = seen.job[JOB.counted_s, j], seen.job[JOB.running_since_s, j]
        if math.isnan(now):
            now = seen.job[JOB.t_s, j]
        resumed, status = seen.job[JOB.resumed_from_s, j], seen.status[j]
        # An unmeasured backlog counts as steady.
        grown = pending - m.pending[j]
        grown = 0.0 if math.isnan(grown) else grown
        elapsed, total = now - m.t_s[j], math.nan
        # The same run as at the last snapshot: counters just went on.
        if since == m.since_s[j]:
            total = processed - m.processed[j] + grown
            if processed < m.processed[j]:  # a counter went back: an unseen restart
                total = math.nan
        elif resumed < now:
            # Counters began at zero, with the first record after the checkpoint.
            total, elapsed = processed + grown, now - resumed
        elif m.was_down[j] == 1:
            # Records read between the last counters and the stop are lost with them, so that time
            # does not count either.
            total = processed + grown
            stopped = since - seen.job[JOB.outage_s, j]
            if m.t_s[j] < stopped < now:
                elapsed = now - stopped
        # Else the job stopped and came back between two snapshots: the records it read before it
        # stopped are lost with the counters.
        if elapsed > 0.0 and not math.isnan(total):
            found[j] = max(0.0, total) / elapsed
        # Without counters, the means of a window that is full enough.
        elif (
            (math.isnan(processed) or math.isnan(m.t_s[j]))
            and status == RUNNING
            and seen.job[JOB.window_fill, j] >= ENOUGH_FILL
        ):
            found[j] = 0.0 if rate < 0.0 else rate
        # A snapshot without counters keeps the last ones, for the next that has some.
        if not math.isnan(processed):
            m.t_s[j], m.processed[j], m.pending[j] = now, processed, pending
            m.since_s[j], m.was_down[j] = since, 0
        if status >= RESTARTING:
            m.was_down[j] = 1


@direct
@njit(cache=True, nogil=True)
def _arrived(
    facts: Handle[JobFacts], seen: SnapshotArrays, memory: Handle[Counted], found: Floats
) -> None:
    arrived(facts.arrays, seen, memory.arrays, 0, found.shape[0], found)
