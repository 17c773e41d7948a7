"""Requests for a capacity plan, and the plans that answer them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from dsp_gym.job.spec import CURRENCY, JobSpec

PlannerBackend = Literal["simulated", "flink"]


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """The rate to plan for, and the place for trials."""

    spec: JobSpec
    rate_per_s: float  # over all sources
    memory_levels: tuple[int, ...] | None = None  # profiles to consider; None: all of the job file
    testbed_slots: int | None = None  # largest budget that may be tried; None: the planner's
    max_slots: int | None = None  # tasks of a vertex, above the job file's quota; None: the quota
    backend: PlannerBackend = "simulated"
    home: Path | None = None  # home of the local cluster, for `flink`; None: the default one
    save: Path | None = None  # file for the learned model
    tell: Callable[[str], None] = field(default=lambda text: None)  # reports each measurement


@dataclass(frozen=True, slots=True)
class ProfilePlan:
    """The resources for the rate with slots of one memory profile."""

    memory_level: int
    managed_mib: float  # of one slot
    slot_mib: float  # with heap and network memory
    slots: int | None  # None: no number of slots reaches the rate
    cost_per_hour: float | None


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """Resources and configuration for a rate."""

    job: str
    backend: PlannerBackend
    rate_per_s: float
    planned_per_s: float  # the rate with head-room, as given to the model
    slots: int  # without sources, with sinks
    profile: ProfilePlan
    parallelism: Mapping[str, int]  # by vertex; sources as in the job file
    memory_level: Mapping[str, int]
    cost_per_hour: float
    predicted_per_s: float  # sustained by the slots, according to the model
    profiles: Sequence[ProfilePlan]  # all considered profiles
    model: Mapping[str, Any]
    measured: Sequence[Mapping[str, Any]]  # tried budgets, in order
    effort: Mapping[str, float]  # calls, and seconds of the testbed
    mst_per_s: float  # load of the configuration by the job file, sources never the limit
    currency: str = CURRENCY  # of all costs
    changed: str | None = None  # why the slots differ from the model's answer; None: they do not
    notes: Sequence[str] = ()  # limits that still keep the job from the rate
