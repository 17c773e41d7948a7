"""The configuration of an environment."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from dsp_gym.config.model import ConfigModel
from dsp_gym.envs.reward import RewardWeights
from dsp_gym.simulation.options import SimulationOptions


class Randomisation(ConfigModel):
    """Differences between episodes beyond the load, so that an agent learns none by heart."""

    service_factor: tuple[float, float] = Field(
        (1.0, 1.0), description="range CPU times are scaled by, log-uniform per episode"
    )
    load_scale: tuple[float, float] = Field(
        (1.0, 1.0), description="range the load is scaled by, log-uniform per episode"
    )

    @model_validator(mode="after")
    def _ranges_rise(self) -> Randomisation:
        for low, high in (self.service_factor, self.load_scale):
            if not 0 < low <= high:
                raise ValueError(f"a range must be 0 < low <= high, got [{low}, {high}]")
        return self


class EnvConfig(ConfigModel):
    """One environment: its clock, its start, its reward and the simulation behind it."""

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

    @model_validator(mode="after")
    def _whole_decisions(self) -> EnvConfig:
        if self.episode_s % self.interval_s:
            raise ValueError(
                f"episode_s {self.episode_s} must be a multiple of interval_s {self.interval_s}"
            )
        return self
