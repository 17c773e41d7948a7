"""The history of one job in requests of a client: the same graph, and time that goes forward."""

from __future__ import annotations

from dsp_gym.errors import MetricsError
from dsp_gym.loop.snapshot import MetricsSnapshot


class RequestHistory:
    """What the snapshots of one job must not contradict.

    Args:
        first: the first snapshot of the job; its vertices are the job's.
        order: what to do about a snapshot out of order, for the error.
    """

    def __init__(self, first: MetricsSnapshot, order: str) -> None:
        self.vertices, self._topology = tuple(first.job(0).vertices), first.topology
        self._order = order
        self.t_s = float("-inf")
        """Of the last snapshot."""

    def take(self, snapshot: MetricsSnapshot) -> None:
        """Take in the next snapshot of the job.

        Raises:
            MetricsError: Its vertices are others, or its time does not follow the last one.
        """
        key = snapshot.topology.spec(0).job
        if snapshot.topology is not self._topology:
            vertices = snapshot.job(0).vertices
            if tuple(vertices) != self.vertices:
                raise MetricsError(
                    f"job '{key}' had the vertices {', '.join(self.vertices)} before, now "
                    f"{', '.join(vertices)}",
                    remedy="A changed graph is another job: give it another 'job' key.",
                )
            self._topology = snapshot.topology
        t_s = float(snapshot.t_s[0])
        if t_s <= self.t_s:
            raise MetricsError(
                f"t_s {t_s:g} of job '{key}' does not follow {self.t_s:g}", remedy=self._order
            )
        self.t_s = t_s
