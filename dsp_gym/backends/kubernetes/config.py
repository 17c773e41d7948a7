"""Where a job managed by the Flink Kubernetes Operator stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from dsp_gym.backends.flink.prometheus_api import LABELS_ARE, LabelsText
from dsp_gym.backends.upstream.access import AccessConfig
from dsp_gym.config.model import ConfigModel, Url

RESOURCE_NAME = "{name}"
"""Stands in a setting for the name of each resource."""

_LABEL = r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?"
_KEY = rf"([a-z0-9.-]+/)?{_LABEL}"
_VALUES = rf"\(\s*+({_LABEL})?(\s*+,\s*+({_LABEL})?)*\s*+\)"
_REQUIREMENT = re.compile(
    rf"\s*+((!\s*+)?{_KEY}|{_KEY}\s*+(=|==|!=)\s*+({_LABEL})?|{_KEY}\s++(in|notin)\s++{_VALUES})"
    r"\s*+"
)
_NAME = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"


class KubernetesPlace(ConfigModel):
    """A custom resource of the operator, how to reach its API server, and its metrics."""

    kubeconfig: Path | None = Field(
        None,
        description="file that names the API server and the account; none: the service account of "
        "the pod, and outside of one the default file",
    )
    context: str | None = Field(
        None, min_length=1, description="context in that file; none: its current one"
    )
    namespace: str = Field(
        "default", pattern=rf"^{_NAME}$", max_length=63, description="where the resource stands"
    )
    kind: Literal["FlinkDeployment", "FlinkSessionJob"] = Field(
        "FlinkDeployment", description="kind of the resource"
    )
    name: str | None = Field(None, pattern=rf"^{_NAME}$", description="name of the one resource")
    selector: str | None = Field(
        None,
        min_length=1,
        max_length=4096,
        description="labels of several resources, such as team=ads,tier!=test; `dsp-gym shadow` "
        "watches each, those to come included",
    )
    prometheus_url: Url | None = Field(
        None, description="a Prometheus that scrapes the TaskManagers"
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
    rest_url: Url | None = Field(
        None,
        description="Flink's REST interface; none: only the resource and metrics are read; {name} "
        "in it stands for the resource's name, as in http://{name}-rest:8081",
    )
    connect_timeout_s: float = Field(
        3.0, gt=0, le=60, description="longest wait for a connection to the API server, s"
    )
    timeout_s: float = Field(
        10.0,
        gt=0,
        le=300,
        description="longest wait for one answer, s; the client itself would wait for ever",
    )
    watch_s: int = Field(
        30,
        ge=1,
        le=600,
        description="length of one watch, s; a server that hangs is noticed that much later",
    )
    lease: str | None = Field(
        None,
        pattern=rf"^{_NAME}$",
        description="lease that the acting instance holds; none: dsp-gym-NAME of the resource",
    )
    lease_namespace: str | None = Field(
        None, pattern=rf"^{_NAME}$", description="where the lease stands; none: the resource's"
    )
    lease_s: int = Field(
        30,
        ge=2,
        le=600,
        description="how long a lease holds without being renewed, s: the pause after a crash",
    )
    reaction_s: float = Field(
        120.0,
        gt=0,
        le=3600,
        description="longest wait from a write to what the operator does about it, s (it "
        "reconciles every 60 s by default)",
    )
    rescale_timeout_s: float = Field(
        300.0,
        gt=0,
        le=7200,
        description="longest wait from a write to the parallelism it asks for, s; then the old "
        "numbers are written back",
    )
    memory_route: Literal["none", "job-arguments"] = Field(
        "none",
        description="way to enact memory levels: none = they stay; job-arguments = in "
        "spec.job.args of a job of this project, which the operator answers with a full upgrade",
    )

    @field_validator("selector")
    @classmethod
    def _is_selector(cls, selector: str | None) -> str | None:
        if selector is not None:
            for part in re.split(r",(?![^(]*\))", selector):
                if _REQUIREMENT.fullmatch(part) is None:
                    raise ValueError(
                        f"{part.strip()!r} is no requirement on a label; such are: team=ads, "
                        "team!=ads, team, !team, team in (ads, shop)"
                    )
        return selector

    @model_validator(mode="after")
    def _names_something(self) -> KubernetesPlace:
        if (self.name is None) == (self.selector is None):
            raise ValueError("give the name of one resource, or a selector of several")
        if self.selector is not None and self.lease is not None:
            raise ValueError("each resource has its own lease; leave lease out")
        return self
