"""Options of a simulation; the job file describes the job itself."""

from __future__ import annotations

import math
import os
from typing import NamedTuple

import numpy as np
from pydantic import Field, model_validator

from dsp_gym.arrays import Ints
from dsp_gym.config.model import ConfigModel
from dsp_gym.job.tables import MechanismSwitches, compile_jobs
from dsp_gym.loop.topology import Topology
from dsp_gym.metrics.samples import SAMPLE_S

__all__ = [
    "Faults",
    "Measurement",
    "MechanismSwitches",
    "Parameters",
    "SimulationOptions",
    "simulated_topology",
]

STREAM = 0x6C6167
"""Second half of the key of a run's delay; the first is its seed."""


class Measurement(ConfigModel):
    """A collector's view of a job."""

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
    counts_times: bool = Field(
        False,
        description="windows of busy and backpressured time come from cumulated times, as Flink "
        "counts them and a real job is seen; its gauges of now keep their span",
    )
    delay_s: int = Field(5, ge=0, le=300, description="age of the newest sample seen (one scrape)")
    delay_up_to_s: int | None = Field(
        None,
        ge=0,
        le=300,
        # Left out of dumps, so that benchmarks keep their fingerprints.
        exclude_if=lambda value: value is None,
        description="the age differs between runs: whole samples from delay_s to this, log-uniform "
        "by the run's seed; none: delay_s in all",
    )
    noise_cv: float = Field(
        0.02, ge=0, le=0.5, description="relative noise of a 5 s sample of busyness and latency"
    )
    missing_probability: float = Field(0.0, ge=0, lt=1, description="share of samples lost")

    @model_validator(mode="after")
    def _check_delays(self) -> Measurement:
        if self.delay_up_to_s is not None and not 0 < self.delay_s <= self.delay_up_to_s:
            raise ValueError(
                f"delays must be 0 < delay_s <= delay_up_to_s, found {self.delay_s} and "
                f"{self.delay_up_to_s}"
            )
        return self

    @property
    def longest_delay_s(self) -> int:
        """Greatest age of the newest sample seen, s."""
        return self.delay_s if self.delay_up_to_s is None else self.delay_up_to_s

    def delays_s(self, seeds: Ints) -> Ints:
        """Draw the age of the newest sample seen for each run.

        Args:
            seeds: (J,) seeds of the runs.

        Returns:
            (J,) s, whole samples.
        """
        if self.delay_up_to_s is None:
            return np.full(len(seeds), self.delay_s, np.int64)
        drawn = [
            np.random.Generator(np.random.Philox(key=[seed, STREAM])).random()
            for seed in seeds
            # One draw per run, keyed by its seed: a run sees the same delay in every batch.
        ]
        # Log-uniform between the two bounds: short delays are common, long ones rare.
        ages = self.delay_s * (self.delay_up_to_s / self.delay_s) ** np.array(drawn)
        return np.asarray(np.rint(ages / SAMPLE_S) * SAMPLE_S, np.int64)


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
        0.0,
        ge=0,
        le=1,
        description="share of rescales after which the job restarts with its old configuration",
    )
    deploy_at_s: int | None = Field(
        None,
        ge=SAMPLE_S,
        multiple_of=SAMPLE_S,
        # Left out of dumps, so that benchmarks keep their fingerprints.
        exclude_if=lambda value: value is None,
        description="second of the episode in which somebody deploys another version of the job: "
        "it restarts, and its records take another time from then on; none: never",
    )
    deploy_factor: float = Field(
        2.0,
        gt=0,
        le=100,
        exclude_if=lambda value: value == 2.0,
        description="time per record of that version over that before, sources left out",
    )


class SimulationOptions(ConfigModel):
    """All options of a simulation."""

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
    quiet_strides: bool = Field(
        True,
        description="compute 5 s at once where no record waits; off: each second by itself, "
        "slower, with the same results bit for bit",
    )
    warms_each_second: bool = Field(
        False,
        description="the cache of a restarted job warms second by second; off: it is cold until "
        "the first sample of 5 s is over, however small the state is, which is much beside a short "
        "outage",
    )
    checkpoint_interval_s: float = Field(
        0.0,
        ge=0,
        le=3600,
        description="a rescale in place begins with the next checkpoint, as under Flink's adaptive "
        "scheduler: up to this many seconds after its request; 0: at once",
    )

    def thread_count(self, jobs: int) -> int:
        """Return the number of threads worth using for a batch of that size.

        Returns:
            At least 1, at most one for every 32 jobs.
        """
        wanted = self.threads or len(os.sched_getaffinity(0))
        # With fewer than 32 jobs a thread has too little work to be worth the handover.
        return max(1, min(wanted, jobs // 32))


def simulated_topology(topology: Topology, mechanisms: MechanismSwitches) -> Topology:
    """Compile the tables of the same jobs for the mechanisms that are on.

    Returns:
        A topology of the same specs and rows.
    """
    return Topology(topology.specs, compile_jobs(topology.specs, mechanisms), topology.row)


class Parameters(NamedTuple):
    """The options as compiled code reads them."""

    quiet_strides: bool  # 5 s at once where no record waits
    service_cv: float  # relative noise of service times
    noise_cv: float  # relative noise of a sample of busyness and latency
    missing: float  # share of samples lost
    counts_times: bool  # windows average the times of each sample, not Flink's gauges
    failures_per_hour: float
    recovery_s: float
    slow_per_hour: float  # a TaskManager turns slow
    slow_factor: float  # its remaining speed, 0..1
    slow_s: float
    gaps_per_hour: float  # metrics vanish
    gap_s: float
    failed_rescale: float  # share of rescales that keep the old configuration
    deploy_at: float  # tick of the deploy of another version; inf: never
    deploy_factor: float  # its time per record over that before
    warm_up: bool  # the cache is cold after a restart
    warms_each_second: bool  # the cache warms each second, not each sample
    rescale: bool  # a rescale takes a savepoint and an outage
    checkpoint_s: float  # interval between checkpoints; a rescale in place waits for the next
    gauge_samples: int  # span of the time gauges, in samples

    @classmethod
    def of(cls, options: SimulationOptions) -> Parameters:
        """Build the parameters of these options.

        Returns:
            Numbers for compiled code; a mechanism that is off has the value without effect.
        """
        on, faults, measured = options.mechanisms, options.faults, options.measurement
        return cls(
            quiet_strides=options.quiet_strides,
            service_cv=options.service_cv if on.service_noise else 0.0,
            noise_cv=measured.noise_cv,
            missing=measured.missing_probability,
            counts_times=measured.counts_times,
            failures_per_hour=faults.failures_per_hour,
            recovery_s=faults.recovery_s,
            slow_per_hour=faults.slow_nodes_per_hour,
            slow_factor=faults.slow_factor,
            slow_s=faults.slow_s,
            gaps_per_hour=faults.metric_gaps_per_hour,
            gap_s=faults.gap_s,
            failed_rescale=faults.failed_rescale_probability,
            deploy_at=math.inf if faults.deploy_at_s is None else float(faults.deploy_at_s),
            deploy_factor=faults.deploy_factor,
            warm_up=on.warm_up and on.cache,
            warms_each_second=options.warms_each_second and on.warm_up and on.cache,
            rescale=on.rescale,
            checkpoint_s=options.checkpoint_interval_s,
            gauge_samples=measured.gauge_s // SAMPLE_S,
        )
