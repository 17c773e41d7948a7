"""The configuration of a referee: policies, kinds of jobs and families of load."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from dsp_gym.config.model import ConfigModel, refuse_repeated
from dsp_gym.errors import did_you_mean
from dsp_gym.evaluation.config import RunSettings
from dsp_gym.evaluation.frontier.config import (
    Lateness,
    ShiftsOfPolicies,
    SweptPolicy,
    check_labels,
)
from dsp_gym.job.catalog import other_job, random_job
from dsp_gym.loads.template import DRAWS, DrawnLoad

GENERATORS = {"random-dag": random_job, "other-dag": other_job}
"""Names of a generator's jobs by seed."""


class JobKind(ConfigModel):
    """Jobs of one kind: named ones, or fresh ones of a generator."""

    name: str = Field(min_length=1, description="label in results")
    generator: Literal["random-dag", "other-dag"] | None = Field(
        None, description="generator of random graphs; every triple has another seed of it"
    )
    named: tuple[str, ...] = Field(
        (), description="shipped jobs, or paths of job files, dealt out in an order that is drawn"
    )

    @model_validator(mode="after")
    def _check_one(self) -> JobKind:
        if (self.generator is None) == (not self.named):
            raise ValueError(f"'{self.name}': give generator or named, one of them")
        refuse_repeated(self.named, "the job '{}' is listed twice")
        return self


class DrawnFamily(ConfigModel):
    """A family of load: a form whose parameters are drawn for every triple."""

    name: str = Field(min_length=1, description="label in results")
    group: Literal["known", "generated", "recorded"] = Field(
        description="known: shipped policies were trained on the family; generated: a generator "
        "that they were not trained on; recorded: from traces"
    )
    triples: int = Field(ge=1, description="triples, dealt out evenly to the kinds of jobs")
    under_shifts: int = Field(
        0, ge=0, description="triples that run under shifts as well, the first ones of each kind"
    )
    episode_s: int | None = Field(
        None, ge=60, le=7 * 86_400, description="seconds of load per episode; none: the referee's"
    )
    load: DrawnLoad = Field(description=f"the load; {DRAWS} for every triple")

    @model_validator(mode="after")
    def _check_shifts(self) -> DrawnFamily:
        if self.under_shifts > self.triples:
            raise ValueError(f"'{self.name}': under_shifts is more than triples")
        return self


class RefereeConfig(RunSettings):
    """Policies at several settings of their knobs, on triples drawn from a key."""

    description: str = Field("", description="purpose, for lists")
    policies: tuple[SweptPolicy, ...] = Field(min_length=1, description="the policies to compare")
    jobs: tuple[JobKind, ...] = Field(min_length=1, description="kinds of jobs")
    loads: tuple[DrawnFamily, ...] = Field(min_length=1, description="families of load")
    shifts: ShiftsOfPolicies | None = Field(
        None, description="runs under shifts, at one setting of some policies; none: left out"
    )
    development: int = Field(
        ge=0, description="seed of the development set, on which everything is chosen"
    )
    ledger: str = Field(
        min_length=1,
        description="file in the repository that gets a line for each evaluation of the test set",
    )
    lateness: Lateness = (0.01, 0.02, 0.03)
    late_weight: float = Field(
        4.0,
        ge=0,
        description="price of a late second for prices under shifts, in seconds of the "
        "configuration that carries the job's reference rate; the reward's weight",
    )

    @model_validator(mode="after")
    def _check(self) -> RefereeConfig:
        refuse_repeated([kind.name for kind in self.jobs], "two kinds of jobs are named '{}'")
        refuse_repeated([one.name for one in self.loads], "two families of load are named '{}'")
        refuse_repeated(
            [*(kind.name for kind in self.jobs), *(one.name for one in self.loads)],
            "a kind of jobs and a family of load are both named '{}'",
        )
        kinds = len(self.jobs)
        for family in self.loads:
            for key in ("triples", "under_shifts"):
                if getattr(family, key) % kinds:
                    raise ValueError(
                        f"{key} of '{family.name}' is {getattr(family, key)}, expected a multiple "
                        f"of the {kinds} kinds of jobs"
                    )
            episode_s = family.episode_s or self.episode_s
            if episode_s % self.interval_s:
                raise ValueError(f"episode_s of '{family.name}' is no multiple of interval_s")
            for shift in self.shifts.shifts if self.shifts is not None else ():
                shift.check_episode(episode_s)
        check_labels(self.policies, self.shifts)
        return self

    def family(self, name: str) -> DrawnFamily:
        """Return the family of load of that name.

        Args:
            name: Its label.

        Returns:
            The family.

        Raises:
            ValueError: There is none.
        """
        for one in self.loads:
            if one.name == name:
                return one
        known = [one.name for one in self.loads]
        raise ValueError(f"there is no family of load '{name}'. {did_you_mean(name, known)}")

    def episode_of(self, family: DrawnFamily) -> int:
        """Return the length of the episodes of a family.

        Args:
            family: The family.

        Returns:
            Seconds.
        """
        return family.episode_s or self.episode_s
