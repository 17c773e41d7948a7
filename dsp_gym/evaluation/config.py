"""The configuration of a benchmark: policies, jobs, loads, seeds, and the clock of an episode."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from dsp_gym.config.model import ConfigModel, refuse_repeated
from dsp_gym.errors import did_you_mean
from dsp_gym.evaluation.labels import label_of
from dsp_gym.evaluation.shift import Shift
from dsp_gym.guardrails.config import GuardrailsConfig
from dsp_gym.job.spec import Prices
from dsp_gym.loads.splits import LoadSet
from dsp_gym.policies.config import PolicyConfig
from dsp_gym.simulation.options import SimulationOptions

BOUND = "bound"
"""Label of the lower bound's row."""


class Entrant(ConfigModel):
    """One policy of a benchmark; written as a name alone, it runs without guardrails."""

    policy: str | PolicyConfig = Field(
        description="a policy's name, a folder or YAML file of one, or {policy, params}"
    )
    name: str = Field(min_length=1, description="label in results; the policy's name if not given")
    guardrails: str | GuardrailsConfig | None = Field(
        None,
        description="shipped guardrails, a file of them, or in place; none: decisions go "
        "through as made",
    )

    @model_validator(mode="before")
    @classmethod
    def _labelled(cls, data: object) -> object:
        entry = {"policy": data} if isinstance(data, str | PolicyConfig) else data
        if not isinstance(entry, dict):
            return entry
        if "policy" in entry and "params" in entry:
            chosen = {key: entry[key] for key in ("policy", "params")}
            entry = {key: entry[key] for key in entry if key not in chosen} | {"policy": chosen}
        policy = entry.get("policy")
        if isinstance(policy, dict):
            policy = policy.get("policy")
        elif isinstance(policy, PolicyConfig):
            policy = policy.policy
        return {"name": label_of(policy), **entry} if isinstance(policy, str) and policy else entry


class RunSettings(ConfigModel):
    """How every policy is run: clock, start, bound, prices, and how jobs are measured."""

    episode_s: int = Field(
        7200, ge=60, le=7 * 86_400, description="seconds of load per episode; two hours"
    )
    interval_s: int = Field(
        60,
        ge=5,
        le=3600,
        description="seconds between decisions; the operator's reconcile interval",
    )
    start: Literal["job", "sized"] = Field(
        "sized",
        description="configuration every policy starts from: job = as the job file says; sized = "
        "carries the first rate of the load",
    )
    start_headroom: float = Field(
        0.7, gt=0, le=1, description="utilization a sized start aims at (the operator's 0.7 target)"
    )
    slo_latency_s: float | None = Field(
        None, gt=0, description="bound on p95 latency for every job, s; none: the job file's"
    )
    prices: Prices | None = Field(
        None, description="money per hour for every job; none: the job file's"
    )
    simulation: SimulationOptions = Field(
        default_factory=SimulationOptions, description="how jobs are measured, and faults"
    )
    bootstrap: int = Field(
        2000,
        ge=100,
        le=100_000,
        description="resamples behind each interval; 2,000 fix its ends to about 3 % of its width",
    )
    confidence: float = Field(
        0.95, gt=0.5, lt=1, description="of the intervals, and of one-sided bounds taken alone"
    )

    @model_validator(mode="after")
    def _check_clock(self) -> Self:
        if self.episode_s % self.interval_s:
            raise ValueError(
                f"episode_s {self.episode_s} is no multiple of interval_s {self.interval_s}"
            )
        return self


class BenchmarkConfig(RunSettings):
    """Policies, each run on every job under every load with every seed."""

    description: str = Field("", description="purpose, for lists")
    policies: tuple[Entrant, ...] = Field(min_length=1, description="the policies to compare")
    reference: str | None = Field(
        "ds2",
        description="label of the policy the others are compared with, pair by pair; ds2 because "
        "it is the baseline of the field; null: no comparison",
    )
    clairvoyant: bool = Field(
        True,
        description="add what could be won at most: the rows 'bound' (no policy that keeps the SLO "
        "costs less) and 'clairvoyant' (the best plan with the load known), and the share of the "
        "possible saving",
    )
    jobs: tuple[str, ...] = Field(min_length=1, description="shipped jobs, or paths of job files")
    train_jobs: tuple[str, ...] = Field(
        (), description="jobs to tune and train policies on; none: the jobs above"
    )
    loads: LoadSet = Field(description="loads by split; evaluation uses one split")
    split: Literal["train", "validation", "test"] = Field(
        "test", description="the split to run; no policy was tuned or trained on test"
    )
    seeds: int | None = Field(
        None, ge=1, description="seeds of the split to run, the first ones; none: all"
    )
    max_slo_share: float = Field(
        0.05,
        gt=0,
        le=1,
        description="share of the time the bound may be missed: policies are tuned, and ranked, "
        "by cost among those that keep to it",
    )
    shift: Shift | None = Field(
        None,
        # Left out of dumps, so that a benchmark without it keeps its fingerprint.
        exclude_if=lambda value: value is None,
        description="how jobs differ from their files; none: not at all",
    )

    @model_validator(mode="after")
    def _check_shift(self) -> BenchmarkConfig:
        if self.shift is not None:
            self.shift.check_episode(self.episode_s)
        return self

    @model_validator(mode="after")
    def _check(self) -> BenchmarkConfig:
        labels = [entrant.name for entrant in self.policies]
        refuse_repeated(labels, "two policies are named '{}'; give each its own name")
        if self.clairvoyant and BOUND in labels:
            raise ValueError(f"'{BOUND}' is the name of the lower bound; call the policy otherwise")
        refuse_repeated(self.jobs, "the job '{}' is listed twice")
        both = sorted(set(self.jobs) & set(self.train_jobs))
        if both:
            raise ValueError(
                f"the job '{both[0]}' is in jobs and in train_jobs; leave train_jobs out to "
                "tune on the jobs themselves"
            )
        known = [name for name, _ in self.loads.splits()]
        if self.split not in known:
            raise ValueError(f"there is no {self.split} split. {did_you_mean(self.split, known)}")
        if self.reference is not None and self.reference not in labels:
            raise ValueError(
                f"the reference '{self.reference}' is none of the policies. "
                f"{did_you_mean(self.reference, labels)}"
            )
        return self
