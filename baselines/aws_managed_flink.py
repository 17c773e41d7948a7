"""Automatic scaling of Amazon Managed Service for Apache Flink.

The rule is that of the Developer Guide, "Use automatic scaling" (how-scaling-auto): 15 consecutive
data points of a minute with the maximum of `containerCPUUtilization` at 75 % or above double the
parallelism of the application; 360 below 10 % halve it, rounded up, but not below the application's
own `Parallelism`.

Not published: what happens when the parallelism cannot be doubled, and what a rescale or a missing
data point does to the count. Here vertices rise to their maximum, and the count restarts. The
service scales all operators, unless the application's code fixes their parallelism; here every
vertex that can be scaled changes by the same factor.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field, model_validator

from baselines import reasons
from baselines.replicas import can_scale
from baselines.spans import SpanPolicy, Spans, are_over
from baselines.workers import highest_cpu
from dsp_gym.arrays import Bools, Ints
from dsp_gym.config.model import ConfigModel
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.lacking import needs
from dsp_gym.loop.snapshot import MetricsSnapshot

NEEDS = needs(
    ("busy_ms_per_s", "records_in_per_s"), (), demand=False, besides=("busy_max_ms_per_s",)
)
"""The metrics that a decision on a vertex needs: those of its tasks."""

DATA_POINT_S = 60.0
"""Time that a data point of the metric stands for, s."""


class AwsManagedFlinkConfig(ConfigModel):
    """Parameters of the automatic scaling; the defaults are the service's."""

    scale_up_cpu: float = Field(
        0.75, gt=0, le=1, description="CPU load at or above which parallelism doubles, 0..1"
    )
    scale_up_s: float = Field(900.0, gt=0, description="time that this must last, s")
    scale_down_cpu: float = Field(
        0.1, ge=0, le=1, description="CPU load below which parallelism is halved, 0..1"
    )
    scale_down_s: float = Field(21_600.0, gt=0, description="time that this must last, s")
    parallelism: int | None = Field(
        None,
        ge=1,
        description="the application's `Parallelism`, in tasks, below which no vertex falls; none: "
        "that of each vertex in the job file",
    )
    max_parallelism: int = Field(
        256, ge=1, description="most tasks of a vertex: the service's quota of an application"
    )
    longest_gap_s: float = Field(
        300.0,
        ge=0,
        description="time without a known CPU load after which a duration restarts, s (assumption)",
    )

    @model_validator(mode="after")
    def _does_not_undo_itself(self) -> AwsManagedFlinkConfig:
        if self.scale_up_cpu <= 2 * self.scale_down_cpu:
            raise ValueError(
                f"scale_down_cpu {self.scale_down_cpu:g} and scale_up_cpu {self.scale_up_cpu:g} "
                "conflict: half the tasks have twice the load, which would double them again; "
                "lower the first or raise the second"
            )
        return self


class AwsManagedFlink(SpanPolicy):
    """Amazon Managed Service for Apache Flink: doubles at 75 % CPU, halves below 10 %."""

    Config = AwsManagedFlinkConfig

    def __init__(self, config: AwsManagedFlinkConfig | None = None) -> None:
        self.name = "aws-managed-flink"
        self.config = c = config or AwsManagedFlinkConfig()
        super().__init__(
            Spans(("high", "low"), longest_gap_s=c.longest_gap_s, sample_s=DATA_POINT_S), NEEDS
        )

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        c, spans = self.config, self._spans
        snapshot = self._last_known.filled(snapshot)
        spans.changed_s(snapshot)
        least, most = highest_cpu(snapshot)
        high = spans.since_s("high", snapshot, least >= c.scale_up_cpu, most < c.scale_up_cpu)
        low = spans.since_s("low", snapshot, most < c.scale_down_cpu, least >= c.scale_down_cpu)
        now = snapshot.t_s
        up, down = are_over(now, high, c.scale_up_s), are_over(now, low, c.scale_down_s)
        tasks = self._scaled(snapshot, up, down)

        def why(job: int, v: int) -> str:
            cpu, since = (least, high) if up[job] else (most, low)
            limit = f"at least {c.scale_up_cpu:.0%}" if up[job] else f"below {c.scale_down_cpu:.0%}"
            return f"CPU {cpu[job]:.0%}, {limit} for {(now[job] - since[job]) / 60:.0f} min"

        return reasons.decision(
            snapshot, tasks, snapshot.memory_level, why if self.explain else None
        )

    def _scaled(self, snapshot: MetricsSnapshot, up: Bools, down: Bools) -> Ints:
        """Double or halve the tasks of every vertex that can be scaled, (J, V)."""
        c, tables, row = self.config, snapshot.topology.tables, snapshot.topology.row
        running = snapshot.parallelism
        own = tables.start_parallelism[row] if c.parallelism is None else c.parallelism
        # A vertex that runs beyond a bound is not moved towards it.
        doubled = np.minimum(2 * running, np.maximum(c.max_parallelism, running))
        halved = np.maximum((running + 1) // 2, np.minimum(own, running))
        wanted = np.where(up[:, None], doubled, halved)
        bounded = np.clip(wanted, tables.min_parallelism[row], tables.max_parallelism[row])
        open_to = (up | down)[:, None] & can_scale(snapshot.topology)
        return np.where(open_to, bounded, running)
