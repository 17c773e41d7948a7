"""The configuration of an environment."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from dsp_gym.config.files import find
from dsp_gym.config.model import ConfigModel
from dsp_gym.envs.reward import RewardWeights
from dsp_gym.loads.splits import LoadSet
from dsp_gym.simulation.options import SimulationOptions
from dsp_gym.sizing.service import SizingConfig


class Randomisation(ConfigModel):
    """Differences between episodes beyond the load, so that an agent learns none by heart."""

    service_factor: tuple[float, float] = Field(
        (1.0, 1.0), description="range CPU times are scaled by, log-uniform per episode"
    )
    load_scale: tuple[float, float] = Field(
        (1.0, 1.0), description="range the load is scaled by, log-uniform per episode"
    )
    load_start: Literal["first", "any"] = Field(
        "first",
        description="first: a load begins with its first second; any: at a second drawn per "
        "episode, and what was before it comes last",
    )
    late_price: tuple[float, float] | None = Field(
        None,
        description="range of the price of a late minute, in minutes of the reference "
        "configuration, log-uniform per episode: the weight of the reward's term slo and, with "
        "capacity actions, part of the observation; none: reward.slo",
    )
    job: bool = Field(
        False,
        description="every episode takes another of the jobs, with capacity actions; else a row "
        "keeps its job",
    )
    stagger: bool = Field(
        False,
        description="the first episode of a row ends early, at a step drawn for it, so that rows "
        "learned from together do not end together",
    )

    @model_validator(mode="after")
    def _ranges_rise(self) -> Randomisation:
        for bounds in (self.service_factor, self.load_scale, self.late_price):
            if bounds is not None and not 0 < bounds[0] <= bounds[1]:
                raise ValueError(f"a range must be 0 < low <= high, got {list(bounds)}")
        return self


class CapacityConfig(ConfigModel):
    """The service model behind capacity actions."""

    prior: Literal["job-file", "none"] = Field(
        "job-file",
        description="job-file: times per record start from the job file and are corrected by true "
        "rates; none: they are learned from true rates alone, and only holding is valid until "
        "every vertex was seen busy",
    )
    sizing: SizingConfig = Field(
        default_factory=SizingConfig, description="how times per record are learned"
    )


class EnvConfig(ConfigModel):
    """One environment: its clock, its start, its reward and the simulation behind it."""

    action: Literal["vertex", "capacity"] = Field(
        "vertex",
        description="vertex: a move of parallelism and one of memory for every vertex; capacity: "
        "hold, or re-target the whole job at a multiple of its present load",
    )
    capacity: CapacityConfig = Field(
        default_factory=CapacityConfig, description="of capacity actions: what a job carries"
    )
    interval_s: int = Field(
        60,
        ge=5,
        le=3600,
        description="seconds between decisions (the operator's reconcile interval)",
    )
    episode_s: int = Field(7200, ge=60, description="seconds of an episode; then it is truncated")
    start: Literal["job", "sized", "random"] = Field(
        "sized",
        description="configuration at reset: job = as the job file says; sized = sustains the "
        "load's first rate with headroom at the start level; random = sized times 0.5 to 2, any "
        "level",
    )
    start_headroom: float = Field(
        0.7, gt=0, le=1, description="utilization a sized start aims at (the operator's 0.7 target)"
    )
    ds2_utilization: float = Field(
        0.8, gt=0, le=1, description="target utilization of the move 'what DS2 says'"
    )
    reward: RewardWeights = Field(default_factory=RewardWeights, description="weights of the terms")
    randomise: Randomisation = Field(
        default_factory=Randomisation, description="differences between episodes"
    )
    simulation: SimulationOptions = Field(
        default_factory=SimulationOptions, description="the simulated job"
    )
    give_up_backlog_s: float = Field(
        3600.0, gt=0, description="backlog, in seconds of arrivals, from which a job cannot recover"
    )

    @property
    def max_steps(self) -> int:
        """Decisions of an episode that nothing ends early."""
        return self.episode_s // self.interval_s

    @model_validator(mode="after")
    def _whole_decisions(self) -> EnvConfig:
        if self.episode_s % self.interval_s:
            raise ValueError(
                f"episode_s {self.episode_s} must be a multiple of interval_s {self.interval_s}"
            )
        return self

    @model_validator(mode="after")
    def _one_graph_per_row(self) -> EnvConfig:
        if self.randomise.job and self.action != "capacity":
            raise ValueError(
                "randomise.job needs action: capacity; observations by vertex hold a row's graph"
            )
        return self

    @model_validator(mode="after")
    def _lateness_has_a_price(self) -> EnvConfig:
        if self.action == "capacity" and self.reward.slo == 0 and self.randomise.late_price is None:
            raise ValueError(
                "reward.slo is 0, the price of a late minute, which action: capacity shows the "
                "agent as a logarithm; give reward.slo a number above 0, or "
                "randomise.late_price a range"
            )
        return self


class ScenarioConfig(ConfigModel):
    """The part of an experiment that an environment is built from; the other sections are kept."""

    name: str = Field(
        pattern=r"^[a-z0-9][a-z0-9._-]*$", description="name of its folder, run and model"
    )
    description: str = Field("", description="one sentence for the policy's card")
    jobs: tuple[str, ...] = Field(
        min_length=1, description="jobs trained on: names, or files; the batch is spread over them"
    )
    family: object = Field(None, description="for training; an environment does not read it")
    loads: LoadSet = Field(description="train, validation and test loads, apart from each other")
    env: EnvConfig = Field(default_factory=EnvConfig, description="the environment")
    guardrails: str | None = Field(
        None,
        description="guardrails inside the environment and around the trained policy when it is "
        "evaluated: a shipped name, or a file; none: decisions go through as made",
    )
    agent: object = Field(None, description="for training")
    evaluation: object = Field(None, description="for the comparison")
    tracking: object = Field(None, description="for the record of a training")

    @model_validator(mode="after")
    def _check_names(self) -> ScenarioConfig:
        repeated = sorted({job for job in self.jobs if self.jobs.count(job) > 1})
        if repeated:
            raise ValueError(f"the job '{repeated[0]}' is given twice in jobs")
        if self.guardrails is not None:
            find("guardrails", self.guardrails)
        return self
