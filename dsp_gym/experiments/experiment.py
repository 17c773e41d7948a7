"""An experiment: jobs, loads, environment, agent and evaluation in one file.

`dsp-gym train` reads it, and writes it whole, defaults resolved, beside the policy it trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pydantic import Field, ValidationInfo, field_validator, model_validator

from dsp_gym.config.model import ConfigModel
from dsp_gym.envs.config import EnvConfig, ScenarioConfig
from dsp_gym.errors import ConfigError
from dsp_gym.evaluation.config import BenchmarkConfig, Entrant
from dsp_gym.evaluation.shift import Shift
from dsp_gym.experiments.agent import AgentConfig, AnyAgent, fit_rollout
from dsp_gym.job.catalog import load_job, random_job
from dsp_gym.job.spec import JobSpec
from dsp_gym.loads.splits import SplitName

STREAM = 0x666F
"""Second half of the key of a graph's own random numbers; the first is its seed."""


class FamilyConfig(ConfigModel):
    """Random graphs that an agent learns on, and others that it is chosen by."""

    graphs: int = Field(96, ge=1, description="random graphs trained on, beside the named jobs")
    first_seed: int = Field(1000, ge=0, description="seed of the first; the others follow")
    vertices: tuple[int, int] = Field(
        (2, 16),
        description="fewest and most vertices; every second graph draws its own number, 4 to 8",
    )
    validation_graphs: int = Field(
        12, ge=1, description="random graphs that thresholds and weights are chosen by"
    )
    validation_first_seed: int = Field(
        50_000, ge=0, description="seed of the first of these; never trained on"
    )
    outage: tuple[float, float] = Field(
        (1.0, 1.0),
        description="range that the outages of a graph's rescales are scaled by, log-uniform by "
        "the graph's seed",
    )
    rate: tuple[float, float] = Field(
        (1.0, 1.0),
        description="range that a graph's reference rate, 20,000 to 200,000 records/s, is scaled "
        "by, its times per record by the inverse, likewise",
    )

    @model_validator(mode="after")
    def _apart(self) -> FamilyConfig:
        low, high = self.vertices
        if not 2 <= low <= high:
            raise ValueError(f"vertices must be 2 <= fewest <= most, found [{low}, {high}]")
        first, other = self.first_seed, self.validation_first_seed
        if first < other + self.validation_graphs and other < first + self.graphs:
            raise ValueError("training and validation share the seed of a graph")
        for name, (least, highest) in (("outage", self.outage), ("rate", self.rate)):
            if not 0 < least <= highest <= 100:
                raise ValueError(f"{name} must be 0 < low <= high <= 100: [{least}, {highest}]")
        return self

    def names(self, *, validation: bool = False) -> tuple[str, ...]:
        """Return the graphs, as `load_job` takes them.

        Returns:
            Names of the training graphs, or of those for validation.
        """
        first, count = self.first_seed, self.graphs
        if validation:
            first, count = self.validation_first_seed, self.validation_graphs
        low, high = self.vertices
        span = high - low + 1
        stride = 5 if span % 5 else 1  # prime to the span: every size comes up, small beside large
        sizes = [None if i % 2 else low + i // 2 * stride % span for i in range(count)]
        return tuple(random_job(first + i, size) for i, size in enumerate(sizes))

    def specs(self, *, validation: bool = False) -> list[JobSpec]:
        """Return the graphs of `names`, with the outages and rates of this family.

        Returns:
            Job files.
        """
        first = self.validation_first_seed if validation else self.first_seed
        found = []
        for seed, name in enumerate(self.names(validation=validation), first):
            draw = np.random.Generator(np.random.Philox(key=[seed, STREAM]))
            outage, rate = (
                float(low * (high / low) ** draw.random()) for low, high in (self.outage, self.rate)
            )
            found.append(Shift(name=name, outage=outage, rate=rate).job(load_job(name)))
        return found


def _rows(jobs: Sequence[str], env: EnvConfig, family: FamilyConfig | None) -> int:
    """Return the rows that a batch of these jobs needs at least: one, if every row changes jobs."""
    return 1 if env.randomise.job else len(jobs) + (0 if family is None else family.graphs)


class EvaluationConfig(ConfigModel):
    """What the trained policy is compared with."""

    policies: tuple[Entrant, ...] = Field(
        tuple(
            Entrant.model_validate(name)
            for name in ("static", "hpa-cpu", "ds2", "justin-paper", "justin-artifact")
        ),
        description="policies beside the trained one",
    )
    jobs: tuple[str, ...] = Field(
        (), description="jobs compared on: names, or files; none: those trained on"
    )
    reference: str = Field("ds2", description="label of the policy the others are compared with")
    seeds: int = Field(20, ge=1, description="seeds of each load of the split, the first ones")
    split: SplitName = Field("test", description="which loads; test: never seen in training")


class TrackingConfig(ConfigModel):
    """Where the run is recorded."""

    enabled: bool = Field(True, description="record the run with MLflow, when it is installed")
    uri: str = Field(
        "sqlite:///mlflow.db",
        description="MLflow tracking and registry store; SQLite in the current folder by default",
    )
    experiment: str | None = Field(
        None, description="MLflow experiment; none: the experiment's name"
    )
    model: str | None = Field(
        None, description="name in the model registry; none: the experiment's name"
    )
    alias: str | None = Field(
        "champion",
        description="alias of the new version if no version holds it, else `challenger` until "
        "`dsp-gym policy promote`; none: registered without one",
    )


class ExperimentConfig(ScenarioConfig):
    """An experiment: the environment's part of it, and what training and comparing add."""

    family: FamilyConfig | None = Field(
        None, description="random graphs to train on beside the jobs; none: the jobs alone"
    )
    agent: AnyAgent = Field(default_factory=AgentConfig, description="the learner")
    evaluation: EvaluationConfig = Field(
        default_factory=EvaluationConfig, description="the comparison"
    )
    tracking: TrackingConfig = Field(default_factory=TrackingConfig, description="the record")

    @field_validator("agent", mode="before")
    @classmethod
    def _fit_jobs(cls, agent: object, info: ValidationInfo) -> object:
        """Give a short training of many jobs a row for each, where it names no number."""
        known = info.data
        if not (isinstance(agent, dict) and agent.get("kind", "ppo") == "ppo"):
            return agent
        if not {"jobs", "env", "family"} <= known.keys():  # one of them is wrong, and refused
            return agent
        return fit_rollout(agent, _rows(known["jobs"], known["env"], known["family"]))

    @model_validator(mode="after")
    def _check_agent(self) -> ExperimentConfig:
        if self.agent.kind != "ppo":
            return self
        jobs = _rows(self.jobs, self.env, self.family)
        if self.agent.n_envs < jobs:
            raise ValueError(
                f"agent.n_envs is {self.agent.n_envs}, expected at least one per job ({jobs})"
            )
        if self.agent.ensemble and (self.env.action != "capacity" or self.agent.needs.plain_layers):
            raise ValueError(
                "agent.ensemble joins agents of ppo or maskable-ppo that decide on capacities: "
                "set env.action: capacity, or leave ensemble out"
            )
        if self.agent.curriculum is not None and not self.env.randomise.job:
            raise ValueError(
                "agent.curriculum chooses the jobs of episodes: set env.randomise.job: true, "
                "or leave curriculum out"
            )
        return self

    @property
    def ppo(self) -> AgentConfig:
        """The section `agent` of an experiment whose agent learns by PPO.

        Raises:
            ConfigError: It learns otherwise.
        """
        if self.agent.kind != "ppo":
            raise ConfigError(
                "only an agent that learns by PPO can do this",
                key="agent.kind",
                value=self.agent.kind,
                remedy="Name an experiment whose agent.kind is ppo.",
            )
        return self.agent

    def training_specs(self) -> list[JobSpec]:
        """Return the jobs that are learned from.

        Returns:
            Those listed, then the family's graphs.

        Raises:
            ConfigError: A listed job does not exist.
        """
        family = [] if self.family is None else self.family.specs()
        return [*map(load_job, self.jobs), *family]

    def validation_specs(self) -> list[JobSpec]:
        """Return the jobs that an agent is chosen by.

        Returns:
            Those listed; with a family, graphs it was not trained on alone.

        Raises:
            ConfigError: A listed job does not exist.
        """
        if self.family is None:
            return [load_job(name) for name in self.jobs]
        return self.family.specs(validation=True)

    def benchmark(self, trained: str | Path | None = None) -> BenchmarkConfig:
        """Return the experiment's comparison, with the trained policy if there is one.

        Returns:
            A benchmark on the jobs, loads and split of `evaluation`; the trained policy stands
            last.
        """
        entrants, compared = list(self.evaluation.policies), self.evaluation.jobs or self.jobs
        if trained is not None:
            entrants.append(
                Entrant(policy=str(trained), name=self.name, guardrails=self.guardrails)
            )
        return BenchmarkConfig(
            description=self.description,
            policies=tuple(entrants),
            reference=self.evaluation.reference,
            jobs=compared,
            train_jobs=tuple(job for job in self.jobs if job not in compared),
            loads=self.loads,
            split=self.evaluation.split,
            seeds=self.evaluation.seeds,
            episode_s=self.env.episode_s,
            interval_s=self.env.interval_s,
            start="job" if self.env.start == "job" else "sized",
            start_headroom=self.env.start_headroom,
            simulation=self.env.simulation,
        )
