"""The autoscaler of Palo Alto Networks for Apache Beam on Flink and Kubernetes.

The rule is that of Apache Beam's blog, "Behind the Scenes: Crafting an Autoscaler for Apache Beam
in a High-Volume Streaming Environment" (part 3, December 2023), whose authors run more than 40,000
jobs with it. If reading the backlog takes more than 120 s, or the CPU load is above 90 %, the
TaskManagers W become W (growth + throughput) / throughput, which keep up, and W backlog time / 60 s
more, which catch up. If the load is below 70 %, the backlog does not grow and takes less than 10 s,
they become so few that the load is the desired one. Flink runs in reactive mode, with one slot per
TaskManager: all vertices have as many tasks as there are TaskManagers, at most their maximum.

Not published: the desired load, here the 70 % below which a job is scaled down; rounding, here up;
how often the autoscaler decides, and its rest after a rescale, here the two minutes of Dataflow,
which the authors cite. A shrinking backlog counts as a constant one. By the formula, a load above
90 % alone calls for no TaskManager: there must be some backlog or growth.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field, model_validator

from baselines import reasons
from baselines.spans import SpanPolicy, Spans, are_over
from baselines.workers import job_backlog, mean_cpu, whole, with_workers, workers
from dsp_gym.config.model import ConfigModel
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.lacking import BACKLOG, needs
from dsp_gym.loop.snapshot import MetricsSnapshot

NEEDS = needs(("busy_ms_per_s", "records_in_per_s"), BACKLOG, demand=False)
"""The metrics that a decision on a vertex needs: those of its tasks, and the backlog."""


class BeamFlinkConfig(ConfigModel):
    """Parameters of the autoscaler; the defaults are the authors' where they name any."""

    backlog_s: float = Field(
        120.0,
        gt=0,
        description="backlog, in seconds of the present throughput, above which workers are added",
    )
    high_cpu: float = Field(
        0.9, gt=0, le=1, description="CPU load above which workers are added, 0..1"
    )
    clear_s: float = Field(
        60.0, gt=0, description="time in which the added workers shall read the backlog, s"
    )
    low_cpu: float = Field(
        0.7, gt=0, le=1, description="CPU load below which workers are taken away, 0..1"
    )
    caught_up_s: float = Field(
        10.0,
        gt=0,
        description="backlog, in seconds of the present throughput, below which workers are taken "
        "away",
    )
    wanted_cpu: float = Field(
        0.7, gt=0, le=1, description="CPU load after a scale-down, 0..1 (assumption)"
    )
    min_workers: int = Field(1, ge=1, description="fewest workers (assumption)")
    max_workers: int | None = Field(
        None, ge=1, description="most workers; none: the vertices' own bounds"
    )
    rest_s: float = Field(
        120.0,
        ge=0,
        description="rest after a restart or a rescale until the next decision, s (assumption)",
    )

    @model_validator(mode="after")
    def _ordered(self) -> BeamFlinkConfig:
        most = self.min_workers if self.max_workers is None else self.max_workers
        for pair, low, high in (
            ("low_cpu, high_cpu", self.low_cpu, self.high_cpu),
            ("wanted_cpu, high_cpu", self.wanted_cpu, self.high_cpu),
            ("caught_up_s, backlog_s", self.caught_up_s, self.backlog_s),
            ("min_workers, max_workers", self.min_workers, most),
        ):
            if low > high:
                raise ValueError(f"{pair}: {low:g} is above {high:g}; the first must not be")
        return self


class BeamFlink(SpanPolicy):
    """Beam on Flink at Palo Alto Networks: keeps up and catches up in 60 s; down by CPU load."""

    Config = BeamFlinkConfig

    def __init__(self, config: BeamFlinkConfig | None = None) -> None:
        self.name = "beam-flink"
        self.config = config or BeamFlinkConfig()
        super().__init__(Spans(), NEEDS)

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        c = self.config
        snapshot = self._last_known.filled(snapshot)
        rested = are_over(snapshot.t_s, self._spans.changed_s(snapshot), c.rest_s)
        ready = snapshot.running & rested
        cpu, backlog, running = mean_cpu(snapshot), job_backlog(snapshot), workers(snapshot)
        # Keep up with what comes, and catch up with what waits.
        keep_up = 1 + np.maximum(backlog.growth, 0.0)
        more = whole(running * (keep_up + backlog.time_s / c.clear_s))
        if c.max_workers is not None:
            more = np.minimum(more, np.maximum(c.max_workers, running))
        fewer = np.maximum(whole(running * cpu / c.wanted_cpu), np.minimum(c.min_workers, running))
        behind = (backlog.time_s > c.backlog_s) | (cpu > c.high_cpu)
        spare = (cpu < c.low_cpu) & (backlog.growth <= 0) & (backlog.time_s < c.caught_up_s)
        up, down = ready & behind & (more > running), ready & spare & (fewer < running)
        tasks = with_workers(snapshot, up | down, np.where(up, more, fewer))

        def why(job: int, v: int) -> str:
            load = f"CPU {cpu[job]:.0%}, backlog {reasons.amount(backlog.time_s[job])} s"
            if down[job]:
                return f"{load}: {fewer[job]:.0f} workers for {c.wanted_cpu:.0%}"
            verb = "growing" if backlog.growth[job] > 0 else "shrinking"
            return f"{load}, {verb} by {abs(backlog.growth[job]):.0%} of the throughput"

        return reasons.decision(
            snapshot, tasks, snapshot.memory_level, why if self.explain else None
        )
