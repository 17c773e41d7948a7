"""Snapshots of one real job."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from dsp_gym.backends.flink.source import FollowedJob, SampleSource
from dsp_gym.errors import FlinkError
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.snapshot import MetricsSnapshot, Status
from dsp_gym.loop.topology import Topology
from dsp_gym.metrics.samples import SAMPLE_S, Samples
from dsp_gym.metrics.window import Observed, WindowConfig, snapshot_of

__all__ = ["LiveCollector"]

_LATE_S = 3 * SAMPLE_S
"""A job that has run so much longer than its stabilization should have been sampled."""


class LiveCollector:
    """A collector for a batch of one real job.

    Nothing old is shown as new: while metrics or Flink itself are out of reach, the metrics window
    is empty, its metrics are unknown, and `trouble` says why. It asks again at the next snapshot.

    Args:
        spec: The job file.
        job: The job it describes.
        source: Where its samples come from.
        window: Over which samples means are taken.
        clock: Unix seconds now.
    """

    def __init__(
        self,
        spec: JobSpec,
        job: FollowedJob,
        source: SampleSource,
        window: WindowConfig,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.topology = Topology.of([spec])
        self.trouble: str | None = None
        self.age_s = float("nan")
        """Age of the newest sample at the last snapshot, s; NaN where there is none."""
        self._job, self._source, self._window, self._clock = job, source, window, clock

    def snapshot(self) -> MetricsSnapshot:
        """What is seen now.

        Raises:
            FlinkError: Several jobs bear the job's name.
        """
        observed = self._job.observe(self._clock())
        samples = Samples.of([])
        self.trouble = self._job.trouble
        if observed.status in (Status.RUNNING, Status.SAVEPOINTING):
            since_s = observed.t_s - self._window.window_s - 2 * SAMPLE_S
            try:
                samples = self._source.samples(since_s, observed.t_s)
            except FlinkError as error:
                self.trouble = str(error)
        self.age_s = _age_s(observed, samples) if len(samples) else float("nan")
        snapshot = snapshot_of(self.topology, [observed], [samples], self._window)
        if self.trouble is None and snapshot.window_fill[0] == 0:
            self.trouble = self._silence(observed, samples)
        return snapshot

    def _silence(self, observed: Observed, samples: Samples) -> str | None:
        """Why the window of a job that has run long enough is empty."""
        ran_s = observed.t_s - observed.running_since_s
        is_running = observed.status in (Status.RUNNING, Status.SAVEPOINTING)
        if not is_running or ran_s < self._window.stabilization_s + _LATE_S:
            return None
        names = self.topology.names(0)
        seen = {name: _subtasks(samples, name) for name in names}
        silent = [n for n in names if seen[n] < observed.parallelism[n]]
        if not silent:
            return f"no fresh metrics: the newest are {_age_s(observed, samples):.0f} s old"
        return (
            f"no metrics from {observed.parallelism[silent[0]] - seen[silent[0]]} of "
            f"{observed.parallelism[silent[0]]} subtasks of vertex {silent[0]!r} in the last "
            f"{self._window.window_s} s; is every TaskManager sampled?"
        )


def _subtasks(samples: Samples, vertex: str) -> int:
    return len(samples.grid(vertex, "records_out_total")[1])


def _age_s(observed: Observed, samples: Samples) -> float:
    return float(observed.t_s - samples.t_s[-1]) if len(samples) else np.inf
