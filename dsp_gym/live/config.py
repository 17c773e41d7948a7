"""What `dsp-gym run` reads: which job, where it runs, who decides, and how often."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from dsp_gym.config.model import ConfigModel
from dsp_gym.guardrails.config import GuardrailsConfig
from dsp_gym.job.spec import Slo
from dsp_gym.metrics.window import WindowConfig
from dsp_gym.policies.config import PolicyConfig

__all__ = ["PlaceConfig", "RunConfig"]


class PlaceConfig(ConfigModel):
    """Where a real job runs, how it is watched, and how it is scaled."""

    home: Path | None = Field(
        None, description="folder of a local cluster (`dsp-gym flink up`); none: the default one"
    )
    rest_url: str | None = Field(
        None, description="Flink's REST interface; none: that of the local cluster"
    )
    prometheus_url: str | None = Field(
        None, description="a Prometheus that scrapes it; none: that of the local cluster"
    )
    metrics: Literal["prometheus", "rest"] = Field(
        "prometheus",
        description="where samples come from; rest needs no Prometheus, but sees nothing of the "
        "time before it is started",
    )
    actuator: Literal["resubmit", "adaptive", "justin"] = Field(
        "resubmit",
        description="how decisions are enacted: resubmit = stop with a savepoint and submit anew "
        "(parallelism and memory), adaptive = in place (parallelism; adaptive scheduler), justin = "
        "the endpoint of Justin's patched Flink",
    )
    savepoints: str | None = Field(
        None,
        description="folder of savepoints as the cluster sees it (resubmit); none: that of the "
        "local cluster",
    )
    timeout_s: float = Field(
        10.0, gt=0, le=300, description="longest wait for one answer of Flink or Prometheus, s"
    )
    rescale_timeout_s: float = Field(
        180.0,
        gt=0,
        le=3600,
        description="longest wait for one step of a rescale, s; a savepoint of a saturated job has "
        "taken 14 s",
    )

    @field_validator("rest_url", "prometheus_url")
    @classmethod
    def _is_url(cls, url: str | None) -> str | None:
        if url is not None and not url.startswith(("http://", "https://")):
            raise ValueError("a URL begins with http:// or https://")
        return None if url is None else url.rstrip("/")

    @model_validator(mode="after")
    def _is_complete(self) -> PlaceConfig:
        if self.rest_url is None:
            return self
        if self.home is not None:
            raise ValueError("home and rest_url both say where the cluster is; give one")
        if self.metrics == "prometheus" and self.prometheus_url is None:
            raise ValueError(
                "rest_url names a cluster of your own: give its prometheus_url, or metrics: rest"
            )
        return self


class RunConfig(ConfigModel):
    """One policy on one real job."""

    description: str = Field("", description="one sentence for lists")
    job: str = Field(min_length=1, description="the job's file: a shipped name, or a path")
    job_name: str | None = Field(
        None, min_length=1, description="its name in Flink; none: its name in the job file"
    )
    where: PlaceConfig = Field(default_factory=PlaceConfig, description="the cluster")
    policy: str | PolicyConfig = Field(
        description="who decides: a policy's name, its folder or YAML file, or {policy, params}"
    )
    guardrails: str | GuardrailsConfig | None = Field(
        "default",
        description="what decisions pass through: a shipped name, a file, or in place; null: none",
    )
    interval_s: int = Field(
        60, ge=5, le=3600, description="seconds between decisions (the operator's interval)"
    )
    window: WindowConfig = Field(
        default_factory=WindowConfig, description="over which samples metrics are averaged"
    )
    slo: Slo | None = Field(None, description="service level objective; none: the job file's")
    max_slots: int | None = Field(
        None,
        ge=1,
        description="most slots the job may use, sources included; none: those the cluster has "
        "free or the job holds when the run starts",
    )
    journal: Path = Field(
        Path("runs/live"), description="folder of journals; each job has one of its own inside"
    )
    seed: int = Field(0, ge=0, description="seed of policies that draw")
