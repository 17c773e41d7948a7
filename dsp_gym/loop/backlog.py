"""The work that waits at the sources of a job."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Bools, Floats
from dsp_gym.compiling import njit
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.snapshot import JOB, VERTEX, MetricsSnapshot, SnapshotArrays
from dsp_gym.loop.topology import JobFacts
from dsp_gym.numba_handles import direct

LONGEST_WAIT_S = 60.0
"""Age of the work at a source, s, from which on nothing is to be taken from a job."""


@njit(cache=True, nogil=True)
def work_off_s(waiting: float, spare: float) -> float:
    """Return how long waiting work takes to be worked off, s.

    Every catch-up of this project is measured with it; `dsp_gym.sizing.recovery` adds an outage.

    Args:
        waiting: Records, or seconds of the load.
        spare: Capacity that the load leaves for them, records/s or multiples of the load.

    Returns:
        Seconds; infinite without spare capacity.
    """
    return waiting / spare if spare > 0.0 else np.inf


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
def _behind(
    t: JobFacts, seen: SnapshotArrays, waits: Floats, drains: Floats, behind: Bools
) -> None:
    for j in range(waits.shape[0]):
        waiting, arriving, growing = backlog_of(t, seen, j)
        waits[j] = waiting / arriving if arriving > 0.0 else (np.inf if waiting > 0.0 else 0.0)
        drains[j] = work_off_s(waiting, -growing) if waiting > 0.0 else np.inf
        is_late = seen.job[JOB.latency_p95_s, j] > t.slo_s[t.row[j]]
        behind[j] = is_late or waits[j] > LONGEST_WAIT_S


class Behind(NamedTuple):
    """How far jobs are behind, (J,) each."""

    waits_s: Floats
    """How long the records that wait took to arrive; 0 where no source reports a backlog."""
    drains_s: Floats
    """How long they take to be worked off at the speed of now; infinite where none shrinks."""
    is_behind: Bools
    """The job is late, or has work waiting for more than a minute."""


def behind(snapshot: MetricsSnapshot) -> Behind:
    """Measure how far jobs are behind.

    Args:
        snapshot: J jobs.

    Returns:
        (J,) each.
    """
    jobs = len(snapshot)
    found = Behind(np.zeros(jobs), np.zeros(jobs), np.zeros(jobs, np.bool_))
    _behind(snapshot.topology.facts, snapshot.arrays, *found)
    return found
