"""Where a real job runs, how it is watched and how it is scaled, as configurations say it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from dsp_gym.backends.flink.program import UserProgram
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
    job_id: str | None = Field(
        None,
        pattern="^[0-9a-f]{32}$",
        description="Flink's id of the job where several bear its name; once it has ended, the job "
        "is the one of that name that did not run beside it. A process begun later asks for the "
        "new id, unless Flink shows that this job ended before the other began. A process that "
        "acts needs a name that is the job's alone",
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
    program: UserProgram | None = Field(
        None,
        description="how a job of your own is submitted (resubmit): its jar, arguments and options",
    )
    lease: str | None = Field(
        None,
        min_length=1,
        description="what a process must hold to act on the job, so that several may run: a folder "
        "that all of them may write to, on one machine or over NFS, or "
        "kubernetes://NAMESPACE/NAME; none: acting needs --sole. Each job has a folder inside",
    )
    lease_s: float = Field(
        30.0,
        ge=1,
        le=600,
        description="how long that lease holds without being renewed, s: the pause after a crash; "
        "at least twice `timeout_s`",
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
        if self.kubernetes is not None and self.job_id is not None:
            raise ValueError("a resource on Kubernetes has one job; job_id tells jobs of one name")
        if self.kubernetes is not None and self.metrics == "rest":
            raise ValueError("on Kubernetes metrics come from Prometheus; leave metrics: rest out")
        if self.program is not None and self.actuator != "resubmit":
            raise ValueError("program is for actuator: resubmit; no other submits a job again")
        if self.kubernetes is not None and self.program is not None:
            raise ValueError("the operator submits a job on Kubernetes; leave program out")
        if self.lease is not None:
            self._check_lease(self.lease)
        if self.rest_url is None:
            return self
        if self.home is not None:
            raise ValueError("home and rest_url both say where the cluster is; give one")
        if self.metrics == "prometheus" and self.prometheus_url is None:
            raise ValueError(
                "rest_url names a cluster of your own: give its prometheus_url, or metrics: rest"
            )
        return self

    def _check_lease(self, lease: str) -> None:
        if self.kubernetes is not None:
            raise ValueError("a job on Kubernetes has its own lease: kubernetes.lease")
        scheme, _, rest = lease.partition("://")
        if rest and scheme not in ("file", "kubernetes"):
            raise ValueError(
                f"a lease cannot be kept in {scheme}://; name a folder, or "
                "kubernetes://NAMESPACE/NAME"
            )
        if scheme == "kubernetes" and len([part for part in rest.split("/") if part]) != 2:
            raise ValueError("a lease on Kubernetes is kubernetes://NAMESPACE/NAME")
        if self.lease_s < 2 * self.timeout_s:
            raise ValueError(
                f"a lease of {self.lease_s:g} s is over before a write of {self.timeout_s:g} s is "
                "known to have ended; raise lease_s, or lower timeout_s"
            )
