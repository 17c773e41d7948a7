"""The work that waits at the sources of a job."""

from __future__ import annotations

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.compiling import njit
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.snapshot import VERTEX, MetricsSnapshot, SnapshotArrays
from dsp_gym.loop.topology import JobFacts
from dsp_gym.numba_handles import direct


@njit(cache=True, nogil=True, borrows=True)
def backlog_of(t: JobFacts, seen: SnapshotArrays, j: int) -> tuple[float, float, float]:
    """Add up the sources of job j that report their backlog.

    Returns:
        Records that wait, records/s that arrive, and records/s by which the backlog grows; zeros
        where no source reports.
    """
    waiting = arriving = growing = 0.0
    for v in range(t.n[t.row[j]]):
        pending = seen.vertex[VERTEX.pending_records, j, v]
        growth = seen.vertex[VERTEX.pending_growth_per_s, j, v]
        # A sum with NaN is NaN: one test for both metrics.
        if t.kind[t.row[j], v] == SOURCE and not np.isnan(pending + growth):
            waiting += pending
            growing += growth
            # Arrivals: records read plus the growth of the backlog.
            arriving += max(0.0, seen.vertex[VERTEX.records_in_per_s, j, v] + growth)
    return waiting, arriving, growing


@direct
@njit(cache=True, nogil=True)
def _times(t: JobFacts, seen: SnapshotArrays, waits: Floats, drains: Floats) -> None:
    for j in range(waits.shape[0]):
        waiting, arriving, growing = backlog_of(t, seen, j)
        waits[j] = waiting / arriving if arriving > 0.0 else (np.inf if waiting > 0.0 else 0.0)
        drains[j] = waiting / -growing if growing < 0.0 and waiting > 0.0 else np.inf


def waiting_s(snapshot: MetricsSnapshot) -> Floats:
    """Compute how long the records that wait took to arrive.

    Args:
        snapshot: J jobs.

    Returns:
        (J,) seconds of arrivals; 0 where no source reports a backlog.
    """
    waits, drains = np.zeros((2, len(snapshot)))
    _times(snapshot.topology.facts, snapshot.arrays, waits, drains)
    return waits


def drain_s(snapshot: MetricsSnapshot) -> Floats:
    """Compute how long the backlog takes to be worked off at the speed of now.

    Args:
        snapshot: J jobs.

    Returns:
        (J,) seconds; infinite where no backlog shrinks.
    """
    waits, drains = np.zeros((2, len(snapshot)))
    _times(snapshot.topology.facts, snapshot.arrays, waits, drains)
    return drains
