"""What services that scale a whole job look at: its workers, their CPU, and the backlog.

The workers of these services have a slot per core, and a slot runs a task of every vertex. So a job
has as many workers as its largest vertex has tasks, and one count goes to all vertices.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from baselines.replicas import MOST, ROUND_OFF, can_scale
from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.snapshot import MetricsSnapshot


class JobBacklog(NamedTuple):
    """The backlog of all sources over their throughput, (J,) each; NaN where unknown."""

    time_s: Floats  # time to read the backlog at the throughput of now, if nothing new came
    growth: Floats  # growth of the backlog, as a share of the throughput


def job_backlog(snapshot: MetricsSnapshot) -> JobBacklog:
    """Compute the backlog of every job in time.

    Returns:
        0 for a job without a log, which has no backlog to watch. Unknown where a source does not
        report, and where a backlog meets no throughput: that says nothing about a worker.
    """
    tables, row = snapshot.topology.tables, snapshot.topology.row
    source, logged = tables.kind[row] == SOURCE, tables.has_log[row] > 0
    read = np.where(source, snapshot.records_in_per_s, 0.0).sum(axis=1)
    waiting = np.where(source, snapshot.pending_records, 0.0).sum(axis=1)
    growth = np.where(source, snapshot.pending_growth_per_s, 0.0).sum(axis=1)
    return JobBacklog(
        np.where(logged, _over(waiting, read), 0.0), np.where(logged, _over(growth, read), 0.0)
    )


def _over(amount: Floats, throughput: Floats) -> Floats:
    """Divide by the throughput; without any, what is not above 0 counts as 0."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        share = amount / throughput
    idle = np.where(amount <= 0, 0.0, np.nan)
    return np.where(throughput > 0, share, idle)


def mean_cpu(snapshot: MetricsSnapshot) -> Floats:
    """Estimate the mean CPU load of the workers, 0..1.

    Where all tasks share slots, as in the services, it is that of the TaskManagers. If that is
    unknown, it is the busy time of the tasks in a slot, which has one core. Without slot sharing, a
    slot may hold an idle source and nothing else, so the load of a TaskManager says little about
    the vertex that limits the job: the busy time of the busiest vertex counts.

    Returns:
        (J,); NaN where unknown.
    """
    mask, tables, row = snapshot.topology.mask, snapshot.topology.tables, snapshot.topology.row
    busy = np.where(mask, snapshot.busy_ms_per_s, 0.0) / 1000
    tasks = np.where(mask, snapshot.parallelism, 0)
    in_slot = (busy * tasks).sum(axis=1) / np.maximum(tasks.max(axis=1), 1)
    load = snapshot.tm_cpu_load
    shared = np.where(np.isnan(load), np.minimum(in_slot, 1.0), load)
    return np.where(tables.slot_sharing[row] == 1, shared, busy.max(axis=1))


def highest_cpu(snapshot: MetricsSnapshot) -> tuple[Floats, Floats]:
    """Estimate the CPU load of the busiest worker, 0..1.

    A snapshot has the load of the TaskManagers as a mean, which the highest is at least; and a
    worker of one core is at least as busy as its busiest task.

    Returns:
        Bounds, (J,) each. The lower one counts what is known, NaN: nothing; the upper one is NaN
        where a vertex does not report.
    """
    mask = snapshot.topology.mask
    # The hottest subtask where it is known, otherwise the mean over the subtasks.
    hottest = np.fmax(snapshot.busy_ms_per_s, snapshot.busy_max_ms_per_s) / 1000
    known = np.fmax.reduce(np.where(mask, hottest, np.nan), axis=1)
    every = np.where(mask, hottest, 0.0).max(axis=1)
    mean = np.fmax(snapshot.tm_cpu_load, mean_cpu(snapshot))
    return np.fmax(mean, known), np.where(np.isnan(every), np.nan, np.fmax(mean, every))


def workers(snapshot: MetricsSnapshot) -> Ints:
    """Count the workers of every job: the most tasks of a vertex that can be scaled.

    Returns:
        (J,).
    """
    scalable = can_scale(snapshot.topology)
    return np.asarray(np.where(scalable, snapshot.parallelism, 0).max(axis=1))


def whole(count: Floats) -> Floats:
    """Round a number of workers up.

    Returns:
        The same shape, at least 1; NaN stays.
    """
    return np.clip(np.ceil(count - ROUND_OFF), 1.0, MOST)


def with_workers(snapshot: MetricsSnapshot, change: Bools, count: Floats) -> Ints:
    """Give the vertices of a job a number of workers, each within its own bounds.

    Args:
        snapshot: The metrics.
        change: (J,) where the number changes.
        count: (J,) workers, a whole number there.

    Returns:
        (J, V) parallelism; the running one elsewhere.
    """
    tables, row = snapshot.topology.tables, snapshot.topology.row
    wanted = np.where(change, count, 1.0).astype(np.int64)[:, None]
    bounded = np.clip(wanted, tables.min_parallelism[row], tables.max_parallelism[row])
    open_to = change[:, None] & can_scale(snapshot.topology)
    return np.where(open_to, bounded, snapshot.parallelism)
