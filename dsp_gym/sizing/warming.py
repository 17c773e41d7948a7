"""What a restart costs beside its outage: the capacity that cold caches keep from a job.

After a restart RocksDB reads from disk until its blocks are cached again, so a job works off the
backlog of the outage more slowly than its configuration will carry later. The loss is counted in
seconds of the whole capacity. It is seen while a backlog keeps the job at its limit:

    lost = seconds - records processed / capacity

and of one job it hardly depends on the load or the number of tasks: each task has its own cache to
fill. The model of `dsp_gym.sizing.lateness`, a job at half its speed until the loss is complete,
says how much of it a short backlog shows.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.compiling import njit
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.per_job_state import RowMemory
from dsp_gym.loop.protocols import Mask, State
from dsp_gym.loop.snapshot import JOB, RUNNING, VERTEX, MetricsSnapshot, SnapshotArrays
from dsp_gym.loop.topology import JobFacts, Topology
from dsp_gym.numba_handles import Handle, direct
from dsp_gym.sizing.arrivals import pending_records
from dsp_gym.sizing.lateness import COLD_SPEED
from dsp_gym.sizing.prior import Prior
from dsp_gym.sizing.service import Believed, believed

__all__ = ["Losses", "Warming"]

_GAIN, _GAIN_ABOVE = 0.3, 0.7
"""Weight of a restart against those before it; one that costs more than expected, and often has
not shown all of it yet, counts more."""

_LONGEST_S = 900.0
"""Seconds after a restart in which a loss is looked for."""

_BACKLOG_S = 1.0
"""Backlog, in seconds of the capacity, that keeps a job at its limit."""


class Losses(NamedTuple):
    """What is known of the restarts of each job, (J,)."""

    lost_s: Floats  # expected of a restart, in seconds of the capacity
    restarts: Floats  # that told
    since_s: Floats  # when the job last became RUNNING
    age_s: Floats  # of its metrics
    at_s: Floats  # seconds of that run that the last metrics told of
    processed: Floats  # records read by the sources until then
    seen_s: Floats  # seconds at the limit since the restart; NaN: not at it any more
    missing_s: Floats  # capacity lost in them


class Warming:
    """Learns from snapshot to snapshot what restarts cost beside their outage."""

    def __init__(self) -> None:
        self._memory = RowMemory(
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
        """Forget what was seen.

        Args:
            jobs: The batch.
            prior: Of its jobs; what job files say counts as one restart.
            mask: Only the rows where it is True; None: all.
        """
        self._memory.reset(jobs, mask)
        if prior.is_filed:
            rows = np.ones(len(jobs), dtype=bool) if mask is None else mask
            known = self._memory.arrays(Losses)
            known.lost_s[rows] = prior.lost_s[jobs.row[rows]]
            known.restarts[rows] = 1.0

    def observe(self, snapshot: MetricsSnapshot, model: Handle[Believed]) -> None:
        """Look at a snapshot.

        Args:
            snapshot: The metrics now.
            model: What the jobs carry.
        """
        memory = self._memory.handle(Losses)
        _watch(snapshot.topology.handle, snapshot.arrays, model, memory)

    @property
    def arrays(self) -> Losses:
        """What is known, for compiled code."""
        return self._memory.arrays(Losses)

    def state(self) -> State:
        """What was seen, as JSON values.

        Returns:
            Lists by name.
        """
        return self._memory.state()

    def restore(self, state: State) -> None:
        """Continue from the values of `state()`."""
        self._memory.restore(state)


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
        if since != m.since_s[j]:
            first = math.isnan(m.since_s[j])
            _learn(m, j, math.nan)
            m.since_s[j], m.at_s[j], m.processed[j] = since, 0.0, 0.0
            m.age_s[j], m.missing_s[j] = 0.0, 0.0
            m.seen_s[j] = math.nan if first else 0.0
        if math.isnan(m.seen_s[j]):
            continue
        # Metrics are as old as the scrape; where it has no time, the window tells while it fills.
        at, fill = seen.job[JOB.t_s, j] - since, seen.job[JOB.window_fill, j]
        counted = seen.job[JOB.counted_s, j]
        if not math.isnan(counted):
            m.age_s[j] = max(0.0, at + since - counted)
        elif fill < 1.0:
            m.age_s[j] = max(0.0, at - fill * seen.job[JOB.window_s, j])
        at = max(at - m.age_s[j], m.at_s[j])
        if at > _LONGEST_S or math.isnan(waiting) or math.isnan(processed):
            _learn(m, j, math.nan)
        elif waiting <= _BACKLOG_S:
            _learn(m, j, at - processed / capacity)
        else:
            passed = at - m.at_s[j]
            m.missing_s[j] += passed - (processed - m.processed[j]) / capacity
            m.seen_s[j] += passed
        m.at_s[j], m.processed[j] = at, processed


@njit(cache=True, nogil=True)
def _learn(m: Losses, j: int, most_s: float) -> None:
    """Take in what was seen of a restart, which ends the watch.

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
    if seen_s > 0.0:
        surprise = max(0.0, m.missing_s[j]) - min(m.lost_s[j], (1.0 - COLD_SPEED) * seen_s)
    elif most_s < m.lost_s[j]:  # the backlog was gone sooner than expected
        surprise = max(0.0, most_s) - m.lost_s[j]
    else:
        return
    m.restarts[j] += 1.0
    gain = _GAIN_ABOVE if surprise > 0.0 else _GAIN
    m.lost_s[j] += max(gain, 1.0 / m.restarts[j]) * surprise
