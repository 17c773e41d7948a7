"""The configuration of a frontier: policies with risk knobs, jobs and loads, seen or unseen."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field, field_validator, model_validator

from dsp_gym.config.model import ConfigModel
from dsp_gym.evaluation.config import BenchmarkConfig, Entrant, RunSettings
from dsp_gym.job.catalog import random_job
from dsp_gym.loads.splits import LoadSet, LoadSplit, SeedRange

__all__ = ["FrontierCell", "FrontierConfig", "JobGroup", "SweptPolicy"]


class SweptPolicy(Entrant):
    """A policy with the parameter that trades cost for lateness."""

    knob: tuple[str, ...] = Field(
        (),
        description="parameter that is swept, as `utilization` or `ds2/target_utilization`; of "
        "several, the value is the first one's and the others keep their ratio to it; none: the "
        "policy has no knob and is one point",
    )
    values: tuple[float, ...] = Field((), description="values of the knob, each run by itself")
    rule: bool = Field(
        False, description="a tuned rule: learned policies are compared with the best of these"
    )

    @field_validator("knob", mode="before")
    @classmethod
    def _as_list(cls, knob: object) -> object:
        return (knob,) if isinstance(knob, str) else knob

    @model_validator(mode="after")
    def _check_knob(self) -> SweptPolicy:
        if (not self.knob) != (not self.values):
            raise ValueError(f"'{self.name}': knob and values belong together; give both or none")
        if len(set(self.values)) != len(self.values):
            raise ValueError(f"'{self.name}': a value of the knob is listed twice")
        return self


class JobGroup(ConfigModel):
    """Jobs by name or path, and random graphs by seed."""

    named: tuple[str, ...] = Field((), description="shipped jobs, or paths of job files")
    random_dags: SeedRange | None = Field(
        None, description="seeds of random graphs, as `random-dag:SEED`"
    )

    @model_validator(mode="after")
    def _check_some(self) -> JobGroup:
        if not self.names():
            raise ValueError("it names no job; expected named, random_dags or both")
        return self

    def names(self) -> tuple[str, ...]:
        """Names of all jobs of the group, as `load_job` takes them.

        Returns:
            Named jobs first, then random graphs by seed.
        """
        seeds = self.random_dags
        drawn = range(seeds.from_, seeds.to) if seeds is not None else ()
        return (*self.named, *(random_job(seed) for seed in drawn))


class Groups(ConfigModel):
    """Jobs that policies may be tuned and trained on, and others."""

    seen: JobGroup = Field(description="jobs open to tuning and training")
    unseen: JobGroup = Field(description="jobs kept apart")

    @model_validator(mode="after")
    def _check_apart(self) -> Groups:
        both = sorted(set(self.seen.names()) & set(self.unseen.names()))
        if both:
            raise ValueError(f"the job '{both[0]}' is among the seen and the unseen ones")
        return self


class LoadFamily(LoadSplit):
    """Loads with the seeds they are run with."""

    episode_s: int | None = Field(
        None, ge=60, le=7 * 86_400, description="seconds of load per episode; none: the frontier's"
    )


class Families(ConfigModel):
    """Families of load that policies may be tuned and trained on, and others."""

    seen: LoadFamily = Field(
        description="families open to tuning and training, with seeds kept apart"
    )
    unseen: LoadFamily = Field(description="families kept apart")
    recorded: LoadFamily | None = Field(
        None, description="recorded loads, kept apart; left out where their files are not there"
    )

    @model_validator(mode="after")
    def _check_apart(self) -> Families:
        # A set of splits refuses what overlaps.
        LoadSet(train=self.seen, validation=self.recorded, test=self.unseen)
        return self


class FrontierCell(NamedTuple):
    """Jobs under loads, each seen by policies before or not."""

    jobs: Literal["seen", "unseen"]
    loads: Literal["seen", "unseen", "recorded"]

    @property
    def name(self) -> str:
        """The cell in files and tables."""
        return f"{self.jobs}-jobs-{self.loads}-loads"


class FrontierConfig(RunSettings):
    """Policies at several settings of their knobs, on seen and unseen jobs and loads."""

    description: str = Field("", description="purpose, for lists")
    policies: tuple[SweptPolicy, ...] = Field(min_length=1, description="the policies to compare")
    jobs: Groups = Field(description="jobs, seen and unseen")
    loads: Families = Field(description="loads, seen and unseen; seeds of each")
    lateness: tuple[float, ...] = Field(
        (0.01, 0.02, 0.03),
        min_length=1,
        description="shares of the time late at which costs are compared, 0..1",
    )
    late_weight: float = Field(
        4.0,
        ge=0,
        description="price of a late second for the ranking by price, in seconds of the "
        "configuration that carries the job's reference rate; the reward's weight",
    )

    @model_validator(mode="after")
    def _check(self) -> FrontierConfig:
        labels = [policy.name for policy in self.policies]
        repeated = sorted({label for label in labels if labels.count(label) > 1})
        if repeated:
            raise ValueError(f"two policies are named '{repeated[0]}'; give each its own name")
        if not any(policy.rule for policy in self.policies):
            raise ValueError(
                "no policy is a tuned rule; mark those to compare with by `rule: true`"
            )
        wrong = [level for level in self.lateness if not 0 < level < 1]
        if wrong:
            raise ValueError(f"lateness holds {wrong[0]:g}, expected shares between 0 and 1")
        return self

    def cells(self) -> tuple[FrontierCell, ...]:
        """The cells, those of unseen jobs first.

        Returns:
            Each cell once.
        """
        return tuple(
            FrontierCell(jobs, loads)
            for jobs in ("unseen", "seen")
            for loads in ("unseen", "recorded", "seen")
            if loads != "recorded" or self.loads.recorded is not None
        )

    def benchmark(self, cell: FrontierCell, entrants: tuple[Entrant, ...]) -> BenchmarkConfig:
        """The runs of one cell as a benchmark.

        Args:
            cell: Which jobs and loads.
            entrants: The policies, each at one setting.

        Returns:
            A benchmark without a reference: the frontiers compare, not the runs.
        """
        shared = {name: getattr(self, name) for name in RunSettings.model_fields}
        jobs: JobGroup = getattr(self.jobs, cell.jobs)
        family: LoadFamily = getattr(self.loads, cell.loads)
        return BenchmarkConfig(
            policies=entrants,
            reference=None,
            clairvoyant=False,
            jobs=jobs.names(),
            loads=LoadSet(test=LoadSplit(loads=family.loads, seeds=family.seeds)),
            **shared | ({} if family.episode_s is None else {"episode_s": family.episode_s}),
        )
