"""Streaming autoscaling of Google Cloud Dataflow.

The rule is that of the documentation's page "Deploying a pipeline", section "Streaming
autoscaling", as quoted in talks; the page no longer has it. With a backlog and CPUs more than 20 %
in use for a couple of minutes, the workers become so many that the backlog is read in about 150 s
at the throughput of one worker. With a backlog of less than 10 s and CPUs less than 75 % in use,
they become so few that 75 % are in use. Of the pages of 2026, "Horizontal Autoscaling" has no
numbers for streaming, and "Troubleshoot Dataflow autoscaling" confirms 75 %, 10 s and two minutes.
The section "heuristics" of "Tune Horizontal Autoscaling" could not be read; another target, 80 %,
has been quoted from it. "Monitor Dataflow autoscaling" defines the backlog in seconds. The worker
utilisation hint is that of the API: a target in both directions, unless there is a backlog.

Not published: the backlog that counts for a scale-up, here the 10 s of a scale-down; whether new
workers also read what the backlog grows by, here they do, since it would not be read otherwise; how
scale-downs are dampened, here not at all.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field, model_validator

from baselines import reasons
from baselines.spans import SpanPolicy, Spans, are_over
from baselines.workers import job_backlog, mean_cpu, whole, with_workers, workers
from dsp_gym.arrays import Bools
from dsp_gym.config.model import ConfigModel
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.lacking import BACKLOG, needs
from dsp_gym.loop.snapshot import MetricsSnapshot

NEEDS = needs(("busy_ms_per_s", "records_in_per_s"), BACKLOG, demand=False)
"""The metrics that a decision on a vertex needs: those of its tasks, and the backlog."""


class DataflowConfig(ConfigModel):
    """Parameters of the streaming autoscaling; the defaults are the service's."""

    backlog_s: float = Field(
        10.0,
        gt=0,
        description="backlog, in seconds of the present throughput, from which more workers are "
        "wanted, and below which fewer may do",
    )
    lasting_s: float = Field(
        120.0, gt=0, description="time that a condition must last, s (a couple of minutes)"
    )
    least_cpu: float = Field(
        0.2, ge=0, lt=1, description="CPU load up to which a backlog calls for no workers, 0..1"
    )
    clear_s: float = Field(
        150.0, gt=0, description="time in which the workers shall read the backlog, s"
    )
    target_cpu: float = Field(
        0.75, gt=0, le=1, description="CPU load at which a scale-down aims, 0..1"
    )
    worker_utilization_hint: float | None = Field(
        None,
        ge=0.1,
        le=0.9,
        description="CPU load to aim at in place of target_cpu, by a scale-up as well, 0..1; none: "
        "a CPU load alone calls for no workers",
    )
    min_workers: int = Field(1, ge=1, description="fewest workers (Streaming Engine: 1)")
    max_workers: int = Field(
        100, ge=1, description="most workers, maxNumWorkers (Streaming Engine: 100)"
    )
    longest_gap_s: float = Field(
        300.0,
        ge=0,
        description="time without known metrics after which a duration restarts, s (assumption)",
    )

    @property
    def aim(self) -> float:
        """CPU load to aim at, 0..1."""
        return self.worker_utilization_hint or self.target_cpu

    @model_validator(mode="after")
    def _ordered(self) -> DataflowConfig:
        if self.min_workers > self.max_workers:
            raise ValueError(
                f"min_workers {self.min_workers} is above max_workers {self.max_workers}"
            )
        if self.least_cpu >= self.aim:
            raise ValueError(
                f"least_cpu {self.least_cpu:g} is not below the CPU load to aim at, {self.aim:g}: "
                "a job that is scaled down would not be scaled up again; lower least_cpu"
            )
        return self


class Dataflow(SpanPolicy):
    """Google Cloud Dataflow: workers that read a lasting backlog in 150 s, or that use 75 % CPU."""

    Config = DataflowConfig

    def __init__(self, config: DataflowConfig | None = None) -> None:
        self.name = "dataflow"
        self.config = c = config or DataflowConfig()
        super().__init__(Spans(("behind", "busy", "spare"), longest_gap_s=c.longest_gap_s), NEEDS)

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        c = self.config
        snapshot = self._last_known.filled(snapshot)
        self._spans.changed_s(snapshot)
        cpu, backlog, running = mean_cpu(snapshot), job_backlog(snapshot), workers(snapshot)
        waits, is_short = backlog.time_s >= c.backlog_s, backlog.time_s < c.backlog_s
        works, idles = cpu > c.least_cpu, cpu <= c.least_cpu
        over, under = cpu > c.aim, cpu < c.aim
        behind = self._lasts("behind", snapshot, waits & works, is_short | idles)
        hinted = c.worker_utilization_hint is not None
        busy = self._lasts("busy", snapshot, over & hinted, cpu <= c.aim)
        spare = self._lasts("spare", snapshot, is_short & under, waits | (cpu >= c.aim))
        # The throughput of a worker stays: so many read what comes and, in time, the backlog.
        to_clear = whole(running * (1 + backlog.growth + backlog.time_s / c.clear_s))
        to_use = whole(running * cpu / c.aim)
        more = np.fmax(np.where(behind, to_clear, 0.0), np.where(busy, to_use, 0.0))
        more = np.minimum(more, np.maximum(c.max_workers, running))
        fewer = np.maximum(to_use, np.minimum(c.min_workers, running))
        up, down = more > running, spare & (fewer < running)
        count = np.where(up, more, fewer)
        tasks = with_workers(snapshot, up | down, count)

        def why(job: int, v: int) -> str:
            load = f"CPU {cpu[job]:.0%}"
            waiting = f"backlog {reasons.amount(backlog.time_s[job])} s"
            if up[job] and behind[job]:
                return f"{waiting}, {load}: {count[job]:.0f} workers read it in {c.clear_s:g} s"
            return f"{load}, {waiting}: {count[job]:.0f} workers for {c.aim:.0%}"

        return reasons.decision(
            snapshot, tasks, snapshot.memory_level, why if self.explain else None
        )

    def _lasts(self, name: str, snapshot: MetricsSnapshot, holds: Bools, fails: Bools) -> Bools:
        """Return where a condition has held for long enough, (J,)."""
        since = self._spans.since_s(name, snapshot, holds, fails)
        return are_over(snapshot.t_s, since, self.config.lasting_s)
