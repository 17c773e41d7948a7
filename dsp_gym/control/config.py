"""The configuration of `dsp-gym shadow`: the job, its cluster, the policies, the mode."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from dsp_gym.backends.config import PlaceConfig
from dsp_gym.config.model import ConfigModel
from dsp_gym.control.gate import GateConfig
from dsp_gym.control.modes import (
    INCUMBENT,
    CanaryConfig,
    Mode,
    NamedPolicyConfig,
    RestraintConfig,
    RollBackConfig,
)
from dsp_gym.guardrails.config import GuardrailsConfig
from dsp_gym.job.spec import Slo
from dsp_gym.metrics.window import WindowConfig
from dsp_gym.policies.config import PolicyConfig


class ServeConfig(ConfigModel):
    """What the process serves over HTTP: metrics, status, the page, decisions; and probes."""

    host: str = Field(
        "127.0.0.1", min_length=1, description="address to listen on; 0.0.0.0: every interface"
    )
    port: int = Field(8466, ge=0, le=65535, description="port to listen on; 0: any that is free")
    probe_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="port of /healthz and /readyz; none: the one after `port`; 0: any that is free",
    )
    hosts: tuple[str, ...] = Field(
        (),
        description="names by which clients address it, such as dsp-gym.dsp-gym.svc; localhost and "
        "addresses always hold, requests for another name are refused",
    )
    token_file: Path | None = Field(
        None,
        description="file with the tokens of the clients, one a line, before it the client's name "
        "if it has one; everything but the page asks for one; none: no decisions are offered",
    )
    public: bool = Field(
        False, description="true = metrics and status are for everybody who reaches the port"
    )
    max_body_kib: int = Field(
        256, ge=1, le=16384, description="largest body it reads, KiB; 16 vertices take about 20"
    )
    history_mib: float = Field(
        64.0,
        gt=0,
        le=65536,
        description="most that the histories of the jobs in requests take, MiB, in equal shares of "
        "the clients; a client at its share is refused a job more, unless one has been silent for "
        "a day",
    )
    timeout_s: float = Field(
        5.0,
        gt=0,
        le=60,
        description="longest wait for a whole request to arrive, and for a decision, s",
    )


class RunConfig(ConfigModel):
    """One job, the policies that are asked about it, and how far one of them may go."""

    description: str = Field("", description="one sentence for lists")
    job: str = Field(
        min_length=1,
        description="the job's file: a shipped name, or a path; {name} in it stands for the name "
        "of each resource that a selector names",
    )
    job_name: str | None = Field(
        None, min_length=1, description="its name in Flink; none: its name in the job file"
    )
    where: PlaceConfig = Field(default_factory=PlaceConfig, description="the cluster")
    policy: str | PolicyConfig | None = Field(
        None,
        description="policy: its name, folder or YAML file, or {policy, params}",
    )
    policies: tuple[str | NamedPolicyConfig, ...] = Field(
        (),
        description="several of them side by side, in place of `policy`, each asked at every "
        "decision; incumbent: the running configuration",
    )
    acting: str | None = Field(
        None,
        description="name of the policy that advises or acts; none: the first that is not the "
        "incumbent",
    )
    mode: Mode = Field(
        "shadow",
        description="how far `dsp-gym shadow --apply` goes: advise = say so on the job; "
        "canary = enact some decisions; active = enact them, as where no mode is given. Without "
        "--apply these three are shadow = decide and show, write nothing; off = watch only",
    )
    canary: CanaryConfig | None = Field(
        None, description="which decisions mode canary enacts; it must be given there"
    )
    roll_back: RollBackConfig = Field(
        default_factory=RollBackConfig, description="when a change that was enacted is taken back"
    )
    restraint: RestraintConfig = Field(
        default_factory=RestraintConfig, description="when a policy is stopped that only changes"
    )
    guardrails: str | GuardrailsConfig | None = Field(
        "default",
        description="guardrails of the decisions: a shipped name, a file, or in place; null: none",
    )
    fallback: str | PolicyConfig | None = Field(
        None,
        description="replaces a policy that raised, was late or gave an invalid decision; none: "
        "the fallback of its guardrails, or else the running configuration is kept",
    )
    decide_timeout_s: float = Field(
        2.0,
        gt=0,
        le=300,
        description="longest wait for the decision of one policy, s; a turn with guardrails that "
        "others wrote ends at most a second later",
    )
    interval_s: int = Field(
        60, ge=5, le=3600, description="seconds between decisions (the operator's interval)"
    )
    window: WindowConfig = Field(default_factory=WindowConfig, description="metrics window")
    slo: Slo | None = Field(None, description="service level objective; none: the job file's")
    max_slots: int | None = Field(
        None,
        ge=1,
        description="most slots the job may use, sources included; none: those the cluster has "
        "free or the job holds when the run starts",
    )
    journal: Path = Field(
        Path("runs/live"), description="folder of journals; each job has a folder inside"
    )
    journal_max_mib: float | None = Field(
        4096.0,
        gt=0,
        description="most that the journal of a job takes, MiB: the oldest entries go first; null: "
        "no bound (four policies on four vertices, every 60 s: about 30 MiB a day)",
    )
    allow_writable_account: bool = Field(
        False,
        description="on Kubernetes: true = off and shadow also run with an account that could "
        "write; otherwise it must be proven that it can only read",
    )
    pinned: bool = Field(
        False,
        description="true = a trained policy from a folder must be named with its digest, "
        "FOLDER@sha256:..., which is checked before it decides",
    )
    stop_file: Path | None = Field(
        None,
        description="while this file exists nothing is enacted; on Kubernetes the annotation "
        "dsp-gym.io/stop does the same",
    )
    serve: ServeConfig = Field(
        default_factory=ServeConfig, description="HTTP server of `dsp-gym shadow`"
    )
    gate: GateConfig = Field(
        default_factory=GateConfig,
        description="evidence that `dsp-gym backtest` needs for the verdict promote",
    )
    seed: int = Field(0, ge=0, description="seed of policies that draw")

    @model_validator(mode="after")
    def _has_one_list(self) -> RunConfig:
        if self.policy is None and not self.policies:
            raise ValueError("no policy decides; give policy, or policies")
        if self.policy is not None and self.policies:
            raise ValueError("policy and policies both name policies; give one")
        if all(one.policy == INCUMBENT for one in self.all_policies):
            raise ValueError("the incumbent decides nothing; name a policy beside it")
        if (self.mode == "canary") != (self.canary is not None):
            raise ValueError("canary says which decisions mode: canary enacts; give both, or none")
        return self

    @property
    def all_policies(self) -> tuple[NamedPolicyConfig, ...]:
        """The policies in order, however they were given."""
        given = self.policies or (NamedPolicyConfig(policy=self.policy or INCUMBENT),)
        return tuple(
            one if isinstance(one, NamedPolicyConfig) else NamedPolicyConfig(policy=one)
            for one in given
        )
