"""The cost of a restart beside its outage: capacity that cold caches keep from a job.

After a restart RocksDB reads from disk until its blocks are cached again, so a job works off the
backlog of the outage more slowly than its configuration will later. The loss is counted in seconds
of the whole capacity. It shows while a backlog keeps the job at its limit:

    lost = seconds - records processed / capacity

and for one job it hardly depends on the load or the number of tasks: each task fills a separate
cache. The model of `dsp_gym.sizing.lateness`, a job at half its speed until the loss is complete,
gives the part of the loss that a short backlog shows.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.compiling import njit
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.per_job_state import Kept, RowMemory
from dsp_gym.loop.protocols import Mask
from dsp_gym.loop.snapshot import JOB, RUNNING, VERTEX, MetricsSnapshot, SnapshotArrays
from dsp_gym.loop.topology import JobFacts, Topology
from dsp_gym.numba_handles import Handle, direct
from dsp_gym.sizing.arrivals import pending_records
from dsp_gym.sizing.lateness import cold_speed
from dsp_gym.sizing.prior import Prior
from dsp_gym.sizing.service import Believed, believed

_GAIN, _GAIN_ABOVE = 0.3, 0.7
"""Weight of a restart against those before it, and of one that costs more than expected.

The latter often has not shown all of its loss yet, so it counts more.
"""

_LONGEST_S = 900.0
"""Seconds after a restart in which a loss is looked for."""

_BACKLOG_S = 1.0
"""Backlog, in seconds of the capacity, that keeps a job at its limit."""


class Losses(NamedTuple):
    """The known losses by restarts of each job, (J,)."""

    lost_s: Floats  # expected loss by a restart, in seconds of the capacity
    restarts: Floats  # restarts that were measured
    since_s: Floats  # time at which the job last became RUNNING
    age_s: Floats  # age of its metrics
    at_s: Floats  # seconds of that run that the last metrics covered
    processed: Floats  # records read by the sources until then
    seen_s: Floats  # seconds at the limit since the restart; NaN: no longer at it
    missing_s: Floats  # capacity lost in them


class Warming(Kept):
    """A measurement of the costs of restarts beside their outage, from snapshot to snapshot."""

    def __init__(self) -> None:
        self._memory = self._kept = RowMemory(
            {
                "lost_s": ("job", 0.0),
                "restarts": ("job", 0.0),
                "since_s": ("job", np.nan),
                "age_s": ("job", 0.0),
                "at_s": ("job", 0.0),
                "processed": ("job", 0.0),
                "seen_s": ("job", np.nan),
                "missing_s": ("job", 0.0),
            }
        )

    def reset(self, jobs: Topology, prior: Prior, mask: Mask | None = None) -> None:
        """Forget all restarts.

        Args:
            jobs: The batch.
            prior: Prior of its jobs; the loss that job files imply counts as one restart.
            mask: Only the rows where it is True; None: all.
        """
        self._memory.reset(jobs, mask)
        if prior.is_filed:
            rows = np.ones(len(jobs), dtype=bool) if mask is None else mask
            known = self._memory.arrays(Losses)
            known.lost_s[rows] = prior.lost_s[jobs.row[rows]]
            known.restarts[rows] = 1.0

    def observe(self, snapshot: MetricsSnapshot, model: Handle[Believed]) -> None:
        """Take in a snapshot.

        Args:
            snapshot: The metrics now.
            model: The service model, for the load that the jobs carry.
        """
        memory = self._memory.handle(Losses)
        _watch(snapshot.topology.handle, snapshot.arrays, model, memory)

    @property
    def arrays(self) -> Losses:
        """The known losses, for compiled code."""
        return self._memory.arrays(Losses)


@direct
@njit(cache=True, nogil=True)
def _watch(
    facts: Handle[JobFacts],
    seen: SnapshotArrays,
    model: Handle[Believed],
    memory: Handle[Losses],
) -> None:
    """Follow each job after its restarts. k is the job file of row j."""
    t, m = facts.arrays, memory.arrays
    for j in range(seen.status.shape[0]):
        if seen.status[j] != RUNNING:
            continue
        since = seen.job[JOB.running_since_s, j]
        processed = 0.0
        for v in range(t.n[t.row[j]]):
            if t.kind[t.row[j], v] == SOURCE:
                processed += seen.vertex[VERTEX.records_in_total][j, v]
        capacity = believed(model.arrays, t, j, seen.parallelism[j], seen.memory_level[j])
        # A job that shows no tasks yet carries nothing.
        waiting = pending_records(t, seen, j) / capacity if capacity > 0.0 else math.nan
        # A new run: close the watch of the last one, and begin another. The first run of a job has
        # no restart before it.
        if since != m.since_s[j]:
            first = math.isnan(m.since_s[j])
            _learn(m, j, math.nan)
            m.since_s[j], m.at_s[j], m.processed[j] = since, 0.0, 0.0
            m.age_s[j], m.missing_s[j] = 0.0, 0.0
            m.seen_s[j] = math.nan if first else 0.0
        # Not at its limit since this restart: no more to learn until the next one.
        if math.isnan(m.seen_s[j]):
            continue
        # Metrics are as old as their scrape; where its time is unknown, the filling window shows
        # it.
        at, fill = seen.job[JOB.t_s, j] - since, seen.job[JOB.window_fill, j]
        counted = seen.job[JOB.counted_s, j]
        if not math.isnan(counted):
            m.age_s[j] = max(0.0, at + since - counted)
        elif fill < 1.0:
            m.age_s[j] = max(0.0, at - fill * seen.job[JOB.window_s, j])
        # Time never goes back, even if a scrape is older than the last.
        at = max(at - m.age_s[j], m.at_s[j])
        if at > _LONGEST_S:
            _learn(m, j, math.nan)
        # Metrics that are missing, as those of a run that has just begun, show nothing yet.
        elif math.isnan(waiting) or math.isnan(processed):
            continue
        # The backlog is gone: the loss cannot exceed the time minus the records' worth of it.
        elif waiting <= _BACKLOG_S:
            _learn(m, j, at - processed / capacity)
        # At its limit: any capacity not used for records was lost.
        else:
            passed = at - m.at_s[j]
            m.missing_s[j] += passed - (processed - m.processed[j]) / capacity
            m.seen_s[j] += passed
        m.at_s[j], m.processed[j] = at, processed


@njit(cache=True, nogil=True)
def _learn(m: Losses, j: int, most_s: float) -> None:
    """Take in the loss by a restart, which ends the watch.

    Args:
        m: The memory.
        j: Row of the job.
        most_s: Capacity that can have been lost until the backlog was gone; NaN: it is not gone.
    """
    seen_s = m.seen_s[j]
    m.seen_s[j] = math.nan
    if math.isnan(seen_s):
        return
    surprise = 0.0
    # Compare with the part of the expected loss that this long at the limit would have shown.
    if seen_s > 0.0:
        expected = min(m.lost_s[j], (1.0 - cold_speed(m.lost_s[j])) * seen_s)
        surprise = max(0.0, m.missing_s[j]) - expected
    elif most_s < m.lost_s[j]:  # gone sooner than expected
        surprise = max(0.0, most_s) - m.lost_s[j]
    else:
        return
    # A running mean at first, then an exponential one with the gain as its weight.
    m.restarts[j] += 1.0
    gain = _GAIN_ABOVE if surprise > 0.0 else _GAIN
    m.lost_s[j] += max(gain, 1.0 / m.restarts[j]) * surprise
