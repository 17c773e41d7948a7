"""What a set of rollouts is: policies, jobs, loads and seeds, and how each episode runs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from dsp_gym.config.model import ConfigModel
from dsp_gym.envs.config import EnvConfig
from dsp_gym.errors import did_you_mean
from dsp_gym.evaluation.config import Entrant
from dsp_gym.loads.splits import LoadSet

__all__ = ["RolloutConfig"]


class RolloutConfig(ConfigModel):
    """Every policy on every job under every load of a split with every seed: one cell each."""

    description: str = Field("", description="purpose, for lists")
    policies: tuple[Entrant, ...] = Field(
        min_length=1, description="policies; a name alone runs without guardrails"
    )
    jobs: tuple[str, ...] = Field(min_length=1, description="shipped jobs, or paths of job files")
    loads: LoadSet = Field(description="loads by split; rollouts use one split")
    split: Literal["train", "validation", "test"] = Field(
        "train", description="the split to run; train, because agents learn from rollouts"
    )
    seeds: int | None = Field(
        None, ge=1, description="how many of the split's seeds are run, the first ones; none: all"
    )
    env: EnvConfig = Field(
        default_factory=EnvConfig,
        description="clock, start, differences between episodes, simulation; the reward's terms "
        "are kept unweighted",
    )
    epsilon: float = Field(
        0.0,
        ge=0,
        le=1,
        description="share of the decisions in which one vertex, drawn at random, takes a valid "
        "move drawn at random instead of the policy's, or with env.action: capacity the job a "
        "valid choice drawn at random; the propensity of each action is kept",
    )

    @model_validator(mode="after")
    def _check(self) -> RolloutConfig:
        labels = [entrant.name for entrant in self.policies]
        repeated = sorted({label for label in labels if labels.count(label) > 1})
        if repeated:
            raise ValueError(f"two policies are named '{repeated[0]}'; give each its own name")
        repeated = sorted({job for job in self.jobs if self.jobs.count(job) > 1})
        if repeated:
            raise ValueError(f"the job '{repeated[0]}' is listed twice")
        known = [name for name, _ in self.loads.splits()]
        if self.split not in known:
            raise ValueError(f"there is no {self.split} split. {did_you_mean(self.split, known)}")
        return self
