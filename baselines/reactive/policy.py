"""What the two policies share: an interval, a rest after each change, and their own window."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
from pydantic import Field

from baselines import reasons
from baselines.own_window import OwnWindow
from baselines.remembering import RememberingPolicy
from baselines.spans import are_over
from baselines.worker_changes import WorkerChanges
from baselines.workers import with_workers, workers
from dsp_gym.arrays import Floats, Ints
from dsp_gym.config.model import ConfigModel
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.lacking import Needs
from dsp_gym.loop.per_job_state import RowMemory
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.unknown import LastKnown


class ReactiveConfig(ConfigModel):
    """Parameters of both policies."""

    interval_s: float = Field(gt=0, description="time between evaluations, s")
    rest_s: float = Field(ge=0, description="time after a change of the workers without another, s")
    window_s: float = Field(
        60.0, gt=0, le=600, description="metrics window of the policy, whatever the collector's, s"
    )


class WantedWorkers(NamedTuple):
    """Numbers of workers that a rule wants."""

    workers: Floats  # (J,) whole numbers; NaN where the rule wants no change
    why: Callable[[int], str]  # the reason, for a job's row


class ReactivePolicy(RememberingPolicy):
    """A policy that gives all vertices of a job one parallelism, the number of its workers.

    Args:
        config: Interval, rest and window.
        asked: The metrics that a decision on a vertex needs.
    """

    def __init__(self, config: ReactiveConfig, asked: Needs) -> None:
        self._timing = config
        self._window, self._changes = OwnWindow(config.window_s), WorkerChanges()
        self._memory = RowMemory({"evaluated_s": ("job", -1e18)})
        self._last_known = LastKnown(asked)
        super().__init__(
            memory=self._memory,
            window=self._window,
            changes=self._changes,
            last_known=self._last_known,
        )

    @abstractmethod
    def wanted(self, snapshot: MetricsSnapshot, running: Ints) -> WantedWorkers:
        """Apply the rule to the means of the policy's own window.

        Args:
            snapshot: The metrics.
            running: (J,) workers.

        Returns:
            The workers wanted.
        """

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        """Apply the rule to the jobs whose interval and rest are over.

        Returns:
            One parallelism for all vertices of a job.
        """
        snapshot = self._last_known.filled(self._window.seen(snapshot))
        now, running = snapshot.t_s, workers(snapshot)
        evaluated = self._memory["evaluated_s"]
        due = snapshot.running & are_over(now, evaluated, self._timing.interval_s)
        rested = are_over(now, self._changes.changed_s(snapshot), self._timing.rest_s)
        evaluated[due] = now[due]
        wanted = self.wanted(snapshot, running)
        moves = due & rested & ~np.isnan(wanted.workers) & (wanted.workers != running)
        tasks = with_workers(snapshot, moves, wanted.workers)
        said = cache(wanted.why)  # one reason for all vertices of a job
        why = (lambda job, _: said(job)) if self.explain else None
        return reasons.decision(snapshot, tasks, snapshot.memory_level, why)


def offered_per_s(snapshot: MetricsSnapshot) -> Floats:
    """Add up the records that arrive at the sources: those read, and the growth of the backlog.

    Returns:
        (J,) records/s; NaN where a source does not report.
    """
    tables, row = snapshot.topology.tables, snapshot.topology.row
    source = tables.kind[row] == SOURCE
    grown = np.where(tables.has_log[row][:, None] > 0, snapshot.pending_growth_per_s, 0.0)
    arriving = np.maximum(0.0, snapshot.records_in_per_s + grown)
    return np.asarray(np.where(source, arriving, 0.0).sum(axis=1))


def emit_lag_s(snapshot: MetricsSnapshot, offered: Floats) -> Floats:
    """Estimate the age of the records that the sources emit now (`currentEmitEventTimeLag`).

    A log is read in order, so the record read now arrived when the backlog began: the backlog over
    the rate of arrivals. Without a log it is the latency that the job reports.

    Args:
        snapshot: The metrics.
        offered: (J,) arrivals, records/s.

    Returns:
        (J,) s; NaN where unknown.
    """
    tables, row = snapshot.topology.tables, snapshot.topology.row
    waiting = np.where(tables.kind[row] == SOURCE, snapshot.pending_records, 0.0).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        age = np.where(waiting > 0, waiting / offered, waiting)
    return np.asarray(np.where(tables.has_log[row] > 0, age, snapshot.latency_p95_s))
