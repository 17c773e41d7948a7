"""The configuration of a frontier: policies with risk knobs, jobs and loads, seen or unseen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, field_validator, model_validator

from dsp_gym.config.model import ConfigModel, refuse_repeated
from dsp_gym.errors import ConfigError, did_you_mean
from dsp_gym.evaluation.config import BenchmarkConfig, Entrant, RunSettings
from dsp_gym.evaluation.shift import Shift
from dsp_gym.job.catalog import random_job
from dsp_gym.loads.splits import LoadSet, LoadSplit, SeedRange

UNSHIFTED = "as they are"
"""Label of the jobs and loads without a shift."""


Lateness = Annotated[
    tuple[Annotated[float, Field(gt=0, lt=1)], ...],
    Field(min_length=1, description="shares of the time late at which costs are compared, 0..1"),
]


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
        False, description="a tuned rule: other policies are compared with the best of these"
    )
    yardstick: bool = Field(
        False,
        description="other policies that are no rules are compared with it, too, run by run: what "
        "they add to it",
    )
    fallback: str | None = Field(
        None,
        description="label of the policy that its guardrails fall back to; compared run by run",
    )
    trainings: tuple[str, ...] = Field(
        (),
        description="folders of the same policy trained with other seeds; they run beside it, and "
        "the policy's results are their mean",
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
        listed = (self.policy, *self.trainings)
        if any(one in listed[:place] for place, one in enumerate(listed)):
            raise ValueError(f"'{self.name}': a training is listed twice")
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
        """Return names of all jobs of the group, as `load_job` takes them.

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
    tuning_seeds: SeedRange | None = Field(
        None,
        description="seeds of the seen families that rules are tuned with: `dsp-gym tune`; none: "
        "the frontier is not for tuning",
    )

    @model_validator(mode="after")
    def _check_apart(self) -> Families:
        # A set of splits refuses what overlaps.
        LoadSet(train=self.seen, validation=self.recorded, test=self.unseen)
        if (tuning := self.tuning()) is not None:
            LoadSet(train=tuning, validation=self.seen)
        return self

    def tuning(self) -> LoadSplit | None:
        """Return the loads that rules are tuned on.

        Returns:
            The seen families with other seeds; None where there are none.
        """
        if self.tuning_seeds is None:
            return None
        return LoadSplit(loads=self.seen.loads, seeds=self.tuning_seeds)


class ShiftsOfPolicies(ConfigModel):
    """Policies at one setting each, on jobs and loads that differ in one way at a time."""

    policies: dict[str, float | None] = Field(
        min_length=1, description="value of the knob by label; null: the policy has no knob"
    )
    shifts: tuple[Shift, ...] = Field(min_length=1, description="what differs, one at a time")

    @model_validator(mode="after")
    def _check_names(self) -> ShiftsOfPolicies:
        names = [UNSHIFTED, *(shift.name for shift in self.shifts)]
        refuse_repeated(names, "two shifts are named '{}'; give each its own name")
        return self

    def all(self) -> tuple[Shift, ...]:
        """Return the jobs as they are, which the others are compared with, and every shift.

        Returns:
            The shifts in order; the first one changes nothing.
        """
        return (Shift(name=UNSHIFTED), *self.shifts)

    def chosen(self, policies: Sequence[SweptPolicy]) -> tuple[SweptPolicy, ...]:
        """Return the policies that run under shifts, each at its one setting.

        Args:
            policies: All policies.

        Returns:
            Those that are named, in their order.
        """
        return tuple(
            policy.model_copy(update={"values": () if value is None else (value,)})
            for policy in policies
            for label, value in self.policies.items()
            if policy.name == label
        )


class Shifts(ShiftsOfPolicies):
    """Policies under shifts, on unseen jobs and loads."""

    seeds: int = Field(1, ge=1, description="seeds of the unseen loads, the first ones")


def check_labels(policies: Sequence[SweptPolicy], shifts: ShiftsOfPolicies | None) -> None:
    """Refuse policies that cannot be told apart, and labels that are none of theirs.

    Args:
        policies: The policies to compare.
        shifts: Labels and settings of those that run under shifts; None: no shifts.

    Raises:
        ValueError: A label is repeated or unknown, or no policy is a tuned rule.
    """
    labels = [policy.name for policy in policies]
    refuse_repeated(labels, "two policies are named '{}'; give each its own name")
    if not any(policy.rule for policy in policies):
        raise ValueError("no policy is a tuned rule; mark those to compare with by `rule: true`")
    for policy in policies:
        if policy.fallback is not None and policy.fallback not in labels:
            raise ValueError(
                f"the fallback '{policy.fallback}' of '{policy.name}' is none of the policies. "
                f"{did_you_mean(policy.fallback, labels)}"
            )
    for label, value in shifts.policies.items() if shifts is not None else ():
        found = next((policy for policy in policies if policy.name == label), None)
        if found is None:
            raise ValueError(
                f"shifts.policies: '{label}' is none of the policies. {did_you_mean(label, labels)}"
            )
        if (value is None) != (not found.knob):
            wanted = "needs a value of its knob" if found.knob else "has no knob; write null"
            raise ValueError(f"shifts.policies: '{label}' {wanted}")
    if shifts is not None and not any(
        policy.rule for policy in policies if policy.name in shifts.policies
    ):
        raise ValueError("shifts.policies holds no tuned rule to compare with")


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
    shifts: Shifts | None = Field(
        None, description="runs under shifts, at one setting of some policies; none: left out"
    )
    lateness: Lateness = (0.01, 0.02, 0.03)
    late_weight: float = Field(
        4.0,
        ge=0,
        description="price of a late second for the ranking by price, in seconds of the "
        "configuration that carries the job's reference rate; the reward's weight",
    )

    @model_validator(mode="after")
    def _check(self) -> FrontierConfig:
        check_labels(self.policies, self.shifts)
        for shift in self.shifts.shifts if self.shifts is not None else ():
            shift.check_episode(self.episode_s)
        return self

    def with_seeds(self, seeds: int) -> FrontierConfig:
        """Return a part of the frontier: the first seeds of each family of load.

        Args:
            seeds: Most seeds of a family.

        Returns:
            A frontier with another fingerprint, unless no family has more seeds.
        """
        families = {}
        for name in ("seen", "unseen", "recorded"):
            family: LoadFamily | None = getattr(self.loads, name)
            if family is not None and (span := family.seeds) is not None:
                first = SeedRange.model_validate(
                    {"from": span.from_, "to": min(span.to, span.from_ + seeds)}
                )
                families[name] = family.model_copy(update={"seeds": first})
        return self.model_copy(update={"loads": self.loads.model_copy(update=families)})

    def seeds_per_load(self) -> int:
        """Return the most seeds that a family of load is run with.

        Returns:
            At least 1.
        """
        families = (self.loads.seen, self.loads.unseen, self.loads.recorded)
        spans = (family.seeds for family in families if family is not None)
        return max((len(span) for span in spans if span is not None), default=1)

    def shifted(self) -> tuple[SweptPolicy, ...]:
        """Return the policies that run under shifts, each at its one setting.

        Returns:
            None where there are no shifts.
        """
        return () if self.shifts is None else self.shifts.chosen(self.policies)

    def shift_benchmark(self, shift: Shift, entrants: tuple[Entrant, ...]) -> BenchmarkConfig:
        """Return the runs under one shift as a benchmark: unseen jobs and generated loads.

        Args:
            shift: What differs.
            entrants: The policies, each at one setting.

        Returns:
            A benchmark without a reference.
        """
        assert self.shifts is not None  # the shift is one of them
        whole = self.benchmark(FrontierCell("unseen", "unseen"), entrants)
        seeds = self.loads.unseen.seeds
        most = self.shifts.seeds if seeds is None else min(self.shifts.seeds, len(seeds))
        return whole.model_copy(update={"shift": shift, "seeds": most})

    def tuning_benchmark(self) -> BenchmarkConfig:
        """Say what rules are tuned on: seen jobs under seen families of load, with other seeds.

        Returns:
            A benchmark with a training split alone, whose bound on lateness is the middle one of
            the frontier's.

        Raises:
            ConfigError: The frontier has no seeds for it.
        """
        loads = self.loads.tuning()
        if loads is None:
            raise ConfigError(
                "the frontier has no loads to tune on",
                key="loads.tuning_seeds",
                remedy="Give it a range of seeds that the cells do not use.",
            )
        levels = sorted(self.lateness)
        whole = self.benchmark(FrontierCell("seen", "seen"), (Entrant(policy="static", name="-"),))
        changes = {
            "loads": LoadSet(train=loads),
            "split": "train",
            "max_slo_share": levels[len(levels) // 2],
        }
        return whole.model_copy(update=changes)

    def cells(self) -> tuple[FrontierCell, ...]:
        """Return the cells, those of unseen jobs first.

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
        """Return the runs of one cell as a benchmark.

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
