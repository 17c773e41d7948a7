"""Decisions told on the job itself: Kubernetes Events shaped like Flink's own scaling reports."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from dsp_gym.backends.kubernetes.events import ScalingReports, VertexChange
from dsp_gym.control.modes import Mode
from dsp_gym.control.run import Turn
from dsp_gym.loop.rates import ds2_rates

if TYPE_CHECKING:
    from dsp_gym.backends.kubernetes.connection import KubernetesJobs

__all__ = ["Reports"]


class Reports:
    """Tells changes that a policy asks for, or would; the same one once in half an hour.

    Args:
        jobs: the job, and the server it is told to.
        mode: how far the policy may go.
        clock: Unix seconds.
    """

    def __init__(self, jobs: KubernetesJobs, mode: Mode, clock: Callable[[], float]) -> None:
        self._jobs, self._mode = jobs, mode
        self._reports = ScalingReports(jobs.api, socket.gethostname(), clock)

    def decided(self, turn: Turn) -> None:
        """Tell a decision, if it changes anything.

        Raises:
            KubernetesError: It could not be written.
            FlinkError: Flink's ids of the vertices cannot be had.
        """
        resource, seen, guarded = self._jobs.resource, turn.snapshot, turn.guarded
        if resource is None or seen is None or guarded is None or not turn.changes:
            return
        ids = self._jobs.job.look().ids
        rates = ds2_rates(seen)
        changes = []
        for v, name in enumerate(seen.topology.names(0)):
            if name in ids:
                now, wanted = int(seen.parallelism[0, v]), int(guarded.parallelism[0, v])
                each, demand = float(rates.true_rate_per_task[0, v]), float(rates.demand[0, v])
                changes.append(
                    VertexChange(ids[name], now, wanted, now * each, wanted * each, demand)
                )
        self._reports.report(resource, changes, enacted=turn.asked, mode=self._mode)
