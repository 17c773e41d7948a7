"""What can be set about a simulation; the job itself is the job file's business."""

from __future__ import annotations

import os

from pydantic import Field

from dsp_gym.config.model import ConfigModel
from dsp_gym.job.tables import Mechanisms, compile_jobs
from dsp_gym.loop.topology import Topology

SAMPLE_S = 5
"""Metrics are sampled every 5 s, as in the papers and in recordings."""


class Measurement(ConfigModel):
    """How a job is seen."""

    window_s: int = Field(120, ge=SAMPLE_S, le=3600, description="metrics window (Justin: 120 s)")
    stabilization_s: int = Field(
        60, ge=0, le=3600, description="samples left out after a (re)start (Justin: 60 s)"
    )
    gauge_s: int = Field(
        60,
        ge=SAMPLE_S,
        le=600,
        description="span of the time gauges busy, backpressured, idle (Flink: 60 s); an "
        "instrumented system that counts useful time per epoch, as DS2's: 5 s",
    )
    delay_s: int = Field(5, ge=0, le=300, description="age of the newest sample seen (one scrape)")
    noise_cv: float = Field(
        0.02, ge=0, le=0.5, description="relative noise of a 5 s sample of busyness and latency"
    )
    missing_probability: float = Field(0.0, ge=0, lt=1, description="share of samples lost")


class Faults(ConfigModel):
    """Faults as scenarios; off by default."""

    failures_per_hour: float = Field(0.0, ge=0, le=60, description="task failures (job restarts)")
    recovery_s: float = Field(
        16.0, gt=0, description="outage of a task failure (demeter_cars_outages.csv: 12..24 s)"
    )
    slow_nodes_per_hour: float = Field(0.0, ge=0, le=60, description="a TaskManager turns slow")
    slow_factor: float = Field(0.5, gt=0, le=1, description="its remaining speed")
    slow_s: float = Field(300.0, gt=0, description="for how long")
    metric_gaps_per_hour: float = Field(0.0, ge=0, le=60, description="metrics vanish")
    gap_s: float = Field(120.0, gt=0, description="for how long")
    failed_rescale_probability: float = Field(
        0.0, ge=0, le=1, description="a rescale comes back with the old configuration"
    )


class MechanismSwitches(ConfigModel):
    """Mechanisms of the model, each on unless a study turns it off."""

    efficiency: bool = Field(True, description="tasks lose efficiency with parallelism")
    contention: bool = Field(True, description="slots in use on one TaskManager slow each other")
    cache: bool = Field(True, description="block cache and its misses")
    warm_up: bool = Field(True, description="the cache is cold after a restart")
    skew: bool = Field(True, description="the hottest subtask limits a vertex")
    backlog: bool = Field(
        True, description="sources owe what they could not emit; off: a generator without a log"
    )
    windows: bool = Field(True, description="windows hold records and fire in bursts")
    rescale: bool = Field(True, description="a rescale takes a savepoint and an outage")
    service_noise: bool = Field(True, description="service times vary")


class SimulationOptions(ConfigModel):
    """Everything that can be set."""

    measurement: Measurement = Field(default_factory=Measurement, description="how jobs are seen")
    faults: Faults = Field(default_factory=Faults, description="fault scenario")
    mechanisms: MechanismSwitches = Field(
        default_factory=MechanismSwitches, description="mechanisms that are on"
    )
    service_cv: float = Field(
        0.03,
        ge=0,
        le=0.5,
        description="relative noise of service times over 5 s (StreamBed: 4-6 %)",
    )
    trace: bool = Field(False, description="keep every second for plots")
    threads: int = Field(
        0, ge=0, le=256, description="threads over rows of a large batch; 0: one per core"
    )

    def thread_count(self, jobs: int) -> int:
        """Threads worth using for a batch of that size."""
        wanted = self.threads or len(os.sched_getaffinity(0))
        return max(1, min(wanted, jobs // 32))


def simulated_topology(topology: Topology, mechanisms: MechanismSwitches) -> Topology:
    """The same jobs, their tables compiled for the mechanisms that are on.

    Returns:
        A topology of the same specs and rows.
    """
    compiled = Mechanisms(**{name: getattr(mechanisms, name) for name in Mechanisms._fields})
    return Topology(topology.specs, compile_jobs(topology.specs, compiled), topology.row)
