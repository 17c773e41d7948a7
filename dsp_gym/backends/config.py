"""Where a real job runs, how it is watched and how it is scaled, as configurations say it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from dsp_gym.backends.flink.prometheus_api import LABELS_ARE, LabelsText
from dsp_gym.backends.kubernetes.config import KubernetesPlace
from dsp_gym.backends.upstream.access import AccessConfig
from dsp_gym.config.model import ConfigModel, Url


class PlaceConfig(ConfigModel):
    """Where a real job runs, how it is watched, and how it is scaled."""

    home: Path | None = Field(
        None, description="folder of a local cluster (`dsp-gym flink up`); none: the default one"
    )
    rest_url: Url | None = Field(
        None, description="Flink's REST interface; none: that of the local cluster"
    )
    prometheus_url: Url | None = Field(
        None, description="a Prometheus that scrapes it; none: that of the local cluster"
    )
    prometheus_account: AccessConfig | None = Field(
        None,
        description="account, certificates and proxy with which Prometheus is asked, or the file "
        "of the account alone: `user:password` or a bearer token; none: that of the URL, or of the "
        "file that NETRC names",
    )
    rest_account: AccessConfig | None = Field(
        None, description="account, certificates and proxy with which Flink is asked, likewise"
    )
    labels: LabelsText | None = Field(
        None,
        description=LABELS_ARE,
    )
    metrics: Literal["prometheus", "rest"] = Field(
        "prometheus",
        description="where samples come from; rest needs no Prometheus, but sees nothing of the "
        "time before it is started",
    )
    actuator: Literal["resubmit", "adaptive", "justin"] = Field(
        "resubmit",
        description="how decisions are enacted: resubmit = stop with a savepoint and submit again "
        "(parallelism and memory), adaptive = in place (parallelism; adaptive scheduler), justin = "
        "the endpoint of Justin's patched Flink",
    )
    savepoints: str | None = Field(
        None,
        description="folder of savepoints as the cluster sees it (resubmit); none: that of the "
        "local cluster",
    )
    kubernetes: KubernetesPlace | None = Field(
        None,
        description="a job of the Flink Kubernetes Operator; its own section says how it is "
        "reached, and of the others only metrics and timeouts count",
    )
    timeout_s: float = Field(
        10.0,
        gt=0,
        le=300,
        description="longest wait for one whole answer, s, and for all answers of Flink, or of "
        "Prometheus, to one look at the job",
    )
    rescale_timeout_s: float = Field(
        120.0,
        gt=0,
        le=3600,
        description="longest wait for one step of a rescale, s; a savepoint of a saturated job has "
        "taken 14 s",
    )

    @model_validator(mode="after")
    def _is_complete(self) -> PlaceConfig:
        if self.kubernetes is not None and (self.rest_url or self.home or self.prometheus_url):
            raise ValueError(
                "kubernetes names the job, its rest_url and prometheus_url; no other may"
            )
        if self.rest_url is None:
            return self
        if self.home is not None:
            raise ValueError("home and rest_url both say where the cluster is; give one")
        if self.metrics == "prometheus" and self.prometheus_url is None:
            raise ValueError(
                "rest_url names a cluster of your own: give its prometheus_url, or metrics: rest"
            )
        return self
