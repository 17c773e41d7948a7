"""What `dsp-gym validate` reads: jobs, loads, policies, and how fast time passes."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from dsp_gym.backends.flink.local.settings import ClusterSettings
from dsp_gym.config.model import ConfigModel, refuse_repeated
from dsp_gym.evaluation.config import Entrant
from dsp_gym.loads.spec import LoadSpec
from dsp_gym.metrics.samples import SAMPLE_S
from dsp_gym.metrics.window import WindowConfig

Rescaling = Literal["savepoint", "in-place"]

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
"""Names are part of the names of files."""


class ComparedPolicy(Entrant):
    """One of the policies; written as a name alone, it is no rule and runs without guardrails."""

    rule: bool = Field(
        False, description="a tuned rule: the others are compared with the best of these"
    )


class ValidatedJob(ConfigModel):
    """One job, and how it is rescaled."""

    job: str = Field(
        min_length=1,
        description="a shipped job that runs on a real Flink, simulated as the report of its "
        "calibration says, or the path of a job file that holds fitted numbers itself",
    )
    scale: float = Field(
        1.0, gt=0, description="rate of a load of 1, in multiples of the job's reference rate"
    )
    rescaling: Rescaling = Field(
        "savepoint",
        description="savepoint: stopped with a savepoint and submitted again, parallelism and "
        "memory; in-place: by the adaptive scheduler, parallelism alone, all slots alike",
    )

    @property
    def label(self) -> str:
        """Its name in results."""
        name = Path(self.job).stem
        return name if self.rescaling == "savepoint" else f"{name}-in-place"


class ValidatedLoad(ConfigModel):
    """One load; it passes `compression` times as fast as it was recorded."""

    name: str = Field(pattern=NAME, description="label in results")
    load: LoadSpec = Field(description="the load, in its own time")


class ValidationConfig(ConfigModel):
    """Jobs x loads x policies x repetitions, each run on a real Flink and in the simulation."""

    description: str = Field("", description="purpose, for lists")
    jobs: tuple[ValidatedJob, ...] = Field(min_length=1, description="the jobs")
    loads: tuple[ValidatedLoad, ...] = Field(min_length=1, description="each on every job")
    policies: tuple[ComparedPolicy, ...] = Field(min_length=2, description="the policies")
    repetitions: int = Field(2, ge=1, le=20, description="real runs of each policy, job and load")
    simulations: int = Field(
        8, ge=1, le=256, description="simulated runs of each policy, job and load, by seed"
    )
    seconds: int = Field(
        600, ge=10, le=3600, description="length of a run, real seconds, warm-up and drain apart"
    )
    compression: int = Field(
        12,
        ge=1,
        le=60,
        description="seconds of load and of every policy's clock that pass in a real second; 12: "
        "an hour in five minutes, and a decision every 5 s in place of every minute",
    )
    interval_s: int = Field(
        60, ge=5, le=3600, description="seconds between decisions on the policies' clock"
    )
    window: WindowConfig = Field(
        default_factory=WindowConfig, description="metrics window on the policies' clock"
    )
    start_headroom: float = Field(
        0.7, gt=0, le=1, description="utilization of the start under the first minute of the load"
    )
    late_price: float = Field(
        2.5,
        ge=0,
        description="price of a late second, in seconds of the configuration that carries the "
        "job's peak: what policies are ordered by is money plus this",
    )
    latency_s: int = Field(
        2,
        ge=1,
        le=60,
        description="stretch of time that the latency at a sink covers, real seconds; the jobs' "
        "own 10 s would be two minutes to a policy",
    )
    cluster: ClusterSettings = Field(
        default_factory=lambda: ClusterSettings(
            scrape_interval_s=1.0, rest_port=0, prometheus_port=0
        ),
        description="settings of the clusters that are started; the scheduler follows the job; "
        "left out: 16 slots, a scrape each second, free ports",
    )

    @model_validator(mode="after")
    def _check(self) -> ValidationConfig:
        for key, seconds, least_s in (
            ("interval_s", self.interval_s, 1),
            ("window.window_s", self.window.window_s, SAMPLE_S),
            ("window.stabilization_s", self.window.stabilization_s, 0),
        ):
            if seconds % self.compression or seconds < least_s * self.compression:
                raise ValueError(
                    f"{key} {seconds} is {seconds / self.compression:g} real seconds at "
                    f"compression {self.compression}; whole seconds are needed, "
                    f"{max(least_s, 0)} at least"
                )
        if self.seconds % self.real_interval_s:
            raise ValueError(
                f"seconds {self.seconds} is no multiple of the interval, "
                f"{self.real_interval_s} real seconds"
            )
        if 2 * self.cluster.scrape_interval_s > self.real_interval_s:
            raise ValueError(
                f"cluster.scrape_interval_s {self.cluster.scrape_interval_s:g} is too long for a "
                f"decision every {self.real_interval_s} real seconds; two scrapes are needed"
            )
        if not self.cluster.prometheus:
            raise ValueError("cluster.prometheus is false, and runs are measured by Prometheus")
        for what, labels in (
            ("job", [one.label for one in self.jobs]),
            ("load", [one.name for one in self.loads]),
            ("policy", [one.name for one in self.policies]),
        ):
            refuse_repeated(labels, what + " '{}' is listed twice; give one another name")
        return self

    def cluster_of(self, rescaling: Rescaling) -> ClusterSettings:
        """Return the settings of the cluster for a way of rescaling.

        Returns:
            The settings with the scheduler that rescales so.
        """
        scheduler = "default" if rescaling == "savepoint" else "adaptive"
        return self.cluster.model_copy(update={"scheduler": scheduler})

    @property
    def real_interval_s(self) -> int:
        """Real seconds between decisions."""
        return self.interval_s // self.compression

    @property
    def real_window(self) -> WindowConfig:
        """The metrics window in real seconds."""
        return WindowConfig(
            window_s=self.window.window_s // self.compression,
            stabilization_s=self.window.stabilization_s // self.compression,
        )
