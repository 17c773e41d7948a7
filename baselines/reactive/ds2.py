"""DS2 in reactive mode: the largest vertex sets the parallelism of all, as a comparison ran it.

Theirs sums the true rates of subtasks, here a vertex' rate is its records over its mean busy time;
the two are equal where subtasks are alike. Theirs reads arrivals from the brokers, here they are
the records read and the growth of the backlog.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field, model_validator

from baselines import reasons
from baselines.reactive.policy import (
    ReactiveConfig,
    ReactivePolicy,
    WantedWorkers,
    emit_lag_s,
    offered_per_s,
)
from baselines.replicas import can_scale
from baselines.workers import whole
from dsp_gym.arrays import Floats, Ints
from dsp_gym.loop.lacking import DEMANDED
from dsp_gym.loop.rates import computed
from dsp_gym.loop.snapshot import MetricsSnapshot


class Ds2ReactiveConfig(ReactiveConfig):
    """Parameters of DS2 in reactive mode; the defaults are those of the comparison."""

    interval_s: float = Field(20.0, gt=0, description="time between evaluations, s")
    rest_s: float = Field(
        240.0, ge=0, description="time after a change of the workers without another, s"
    )
    over_provisioning: float = Field(
        0.0,
        ge=0,
        description="workers on top of DS2's whole number, as a share of it, rounded up (the "
        "comparison: 0, 0.33, 0.66)",
    )
    up_latency_s: float | None = Field(
        None,
        ge=0,
        description="latency above which workers are added, s (the comparison's updated rule: 5); "
        "none: always",
    )
    down_latency_s: float | None = Field(
        None,
        gt=0,
        description="latency below which workers are taken away, s (the comparison's updated "
        "rule: 1); none: always",
    )

    @model_validator(mode="after")
    def _ordered(self) -> Ds2ReactiveConfig:
        up, down = self.up_latency_s, self.down_latency_s
        if up is not None and down is not None and down > up:
            raise ValueError(
                f"down_latency_s {down:g} is above up_latency_s {up:g}; a job that is late enough "
                "for more workers would lose some"
            )
        return self


class Ds2Reactive(ReactivePolicy):
    """DS2 in Flink's reactive mode: one parallelism, that of the largest vertex."""

    Config = Ds2ReactiveConfig

    def __init__(self, config: Ds2ReactiveConfig | None = None) -> None:
        self.name = "ds2-reactive"
        self.config = config or Ds2ReactiveConfig()
        super().__init__(self.config, DEMANDED)

    def wanted(self, snapshot: MetricsSnapshot, running: Ints) -> WantedWorkers:
        """Apply DS2, and the bounds on latency.

        Returns:
            The workers wanted.
        """
        c, rates = self.config, computed(snapshot, "offered")
        offered = offered_per_s(snapshot)
        latency = emit_lag_s(snapshot, offered)
        tasks = largest_vertex(snapshot, rates.optimal, rates.demand)
        wanted = whole((1 + c.over_provisioning) * tasks)
        # A comparison with an unknown latency is False: such a job keeps its workers.
        if c.up_latency_s is not None:
            wanted = np.where((wanted > running) & ~(latency > c.up_latency_s), np.nan, wanted)
        if c.down_latency_s is not None:
            wanted = np.where((wanted < running) & ~(latency < c.down_latency_s), np.nan, wanted)

        def why(job: int) -> str:
            load = f"arrivals {reasons.amount(offered[job])}/s"
            return f"{load} need {tasks[job]:.0f} workers, latency {latency[job]:.2g} s"

        return WantedWorkers(wanted, why)


def largest_vertex(snapshot: MetricsSnapshot, optimal: Floats, demand: Floats) -> Floats:
    """Return the whole number of tasks of the vertex that needs most.

    Args:
        snapshot: The metrics.
        optimal: (J, V) fractional parallelism by DS2.
        demand: (J, V) records/s.

    Returns:
        (J,); NaN where a vertex has demand and has shown nothing about its speed.
    """
    needed = np.where(demand == 0.0, 0.0, optimal)
    return whole(np.where(can_scale(snapshot.topology), needed, 0.0).max(axis=1))
