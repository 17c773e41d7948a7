"""From measurements to a capacity model, and from the model to a plan for a rate.

StreamBed, section 6, model usage: the model is asked for 110 % of the rate, slots are added until
it is reached, and BIDS2 with the rates of the largest measured budget gives the configuration.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

from pydantic import Field

from baselines.streambed.bids2 import Operator, bids2, slot_range
from baselines.streambed.checked import HeldPlan, held, mst_of, slot_cost, source_notes, unreachable
from baselines.streambed.estimator import EstimatorConfig, Testbed
from baselines.streambed.explorer import BudgetGrid, Exploration, ExplorerConfig, explore
from baselines.streambed.models import Surface
from baselines.streambed.optimizer import (
    BudgetMeasurement,
    Optimizer,
    configuration,
    operators,
    profile_mib,
)
from dsp_gym.config import files
from dsp_gym.config.model import ConfigModel
from dsp_gym.errors import ConfigError
from dsp_gym.job.cost import requested
from dsp_gym.job.memory import level_mib
from dsp_gym.job.spec import JobSpec
from dsp_gym.policies.planner import CapacityPlan, PlannerBackend, ProfilePlan


class PlannerConfig(ConfigModel):
    """Parameters of learning a job's capacity and planning with it; defaults are StreamBed's."""

    estimator: EstimatorConfig = Field(
        default_factory=EstimatorConfig, description="capacity estimator (section 4)"
    )
    explorer: ExplorerConfig = Field(
        default_factory=ExplorerConfig, description="resource explorer (section 6)"
    )
    testbed_slots: int = Field(
        48, ge=1, description="largest budget that is tried, sources left out (StreamBed: 48)"
    )
    memory_levels: tuple[int, ...] | None = Field(
        None, min_length=1, description="memory profiles to consider; none: all of the job file"
    )
    overprovisioning: float = Field(
        1.1, ge=1, description="head-room: planned rate over the rate asked for (section 6: 110 %)"
    )
    seed: int = Field(42, ge=0, description="of the simulated testbed")
    check: bool = Field(
        True,
        description="hold a plan on the simulator against what the job file carries (dsp-gym plan "
        "JOB); off: the slots that the model fitted to the trials asks for, as StreamBed",
    )


class VertexRate(ConfigModel):
    """Measured rates of one vertex, for BIDS2."""

    name: str = Field(description="vertex other than a source")
    ratio: float = Field(ge=0, description="its input rate over the rate of all sources")
    rate_per_task_per_s: float = Field(description="true processing rate of one task")


class ProfileRates(ConfigModel):
    """Rates observed with the largest budget of one profile."""

    memory_level: int = Field(ge=-1, description="profile")
    vertices: tuple[VertexRate, ...] = Field(description="vertices in topological order")


class PlannerModel(ConfigModel):
    """The model of one job: enough to plan for any rate without its testbed."""

    job: str = Field(description="job it was learned of")
    backend: PlannerBackend = Field(description="where")
    surface: Surface = Field(description="throughput over slots and memory")
    memory_levels: tuple[int, ...] = Field(min_length=1, description="profiles it was learned with")
    learned_slots: tuple[int, int] = Field(description="smallest and largest budget measured")
    rates: tuple[ProfileRates, ...] = Field(
        min_length=1, description="rates seen with each profile that was measured"
    )

    def operators(self, spec: JobSpec, memory_level: int) -> list[Operator]:
        """Write the vertices for BIDS2, with the bounds of the job file.

        A profile that was not measured takes the rates of the nearest measured one.

        Returns:
            Operators in topological order, sources left out.

        Raises:
            ConfigError: The model is of another job.
        """
        nearest = min(self.rates, key=lambda r: abs(r.memory_level - memory_level))
        known = {vertex.name: vertex for vertex in nearest.vertices}
        found = operators(spec, None)
        if set(known) != {o.name for o in found}:
            raise ConfigError(
                f"the capacity model of job '{self.job}' has vertices {', '.join(known)}; job "
                f"'{spec.job}' has {', '.join(o.name for o in found)}",
                remedy=f"Learn one of it: dsp-gym plan {spec.job} --rate R --out FILE",
            )
        return [
            Operator(
                o.name, known[o.name].ratio, known[o.name].rate_per_task_per_s, o.least, o.most
            )
            for o in found
        ]

    @classmethod
    def load(cls, path: Path) -> PlannerModel:
        """Load a model that `save` wrote.

        Returns:
            The model.
        """
        return files.parse(cls, files.read_yaml(path), path)

    def save(self, path: Path) -> None:
        """Write the model as JSON, which YAML readers read too."""
        files.write_atomic(path, self.model_dump_json(indent=2) + "\n")


class LearnedDocuments(TypedDict):
    """Fields of a `CapacityPlan` that say what was learned, and how."""

    model: dict[str, object]
    measured: list[dict[str, object]]
    effort: dict[str, float]


class Learned:
    """A capacity model, and the measurements and effort behind it."""

    def __init__(
        self, model: PlannerModel, exploration: Exploration[BudgetMeasurement], optimizer: Optimizer
    ) -> None:
        self.model, self.exploration, self.optimizer = model, exploration, optimizer

    def documents(self) -> LearnedDocuments:
        """Return what a plan says of the learning.

        Returns:
            The model, the budgets measured and the effort, as a `CapacityPlan` has them.
        """
        model, found, optimizer = self.model, self.exploration, self.optimizer
        return {
            "model": {
                **model.surface.model_dump(),
                "learned_slots": list(model.learned_slots),
                "loocv_per_s": found.loocv_per_s,
                "extrapolation_per_s": found.extrapolation_per_s,
            },
            "measured": [
                {
                    "slots": m.slots,
                    "memory_level": m.memory_level,
                    "parallelism": m.parallelism,
                    "bids2_per_s": m.predicted_per_s,
                    "mst_per_s": m.mst_per_s,
                }
                for m in found.measured
            ],
            "effort": {
                "co_calls": optimizer.co_calls,
                "ce_calls": optimizer.ce_calls,
                "testbed_s": optimizer.seconds,
            },
        }


def learn(
    testbed: Testbed,
    backend: PlannerBackend,
    config: PlannerConfig,
    memory_levels: Sequence[int] | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Learned:
    """Explore the budgets of a testbed.

    Args:
        testbed: Runs the job.
        backend: Kind of the testbed.
        config: Parameters of learning.
        memory_levels: Profiles to consider; None: the configuration's, or all of the job file.
        tell: Reports each measurement.

    Returns:
        The model and the measurements behind it.

    Raises:
        ConfigError: The graph cannot be placed on the testbed's slots.
    """
    spec = testbed.spec
    levels = sorted(set(memory_levels or config.memory_levels or range(spec.memory.levels)))
    level_of = {profile_mib(spec, level): level for level in levels}
    low, high = _budgets(spec, config.testbed_slots)
    optimizer = Optimizer(testbed, config.estimator, tell)
    found = explore(
        BudgetGrid(low, high, tuple(sorted(level_of))),
        lambda slots, memory_mib: optimizer.measure(slots, level_of[memory_mib]),
        config.explorer,
    )
    largest: dict[int, BudgetMeasurement] = {}
    for m in found.measured:  # of equal budgets the last one, which used the best rates
        kept = largest.get(m.memory_level)
        if kept is None or m.slots >= kept.slots:
            largest[m.memory_level] = m
    model = PlannerModel(
        job=spec.job,
        backend=backend,
        surface=found.surface,
        memory_levels=tuple(levels),
        learned_slots=(low, max(m.slots for m in found.measured)),
        rates=tuple(
            ProfileRates(
                memory_level=level,
                vertices=tuple(
                    VertexRate(
                        name=name, ratio=r.ratio, rate_per_task_per_s=r.true_rate_per_task_per_s
                    )
                    for name, r in largest[level].seen.vertices.items()
                ),
            )
            for level in sorted(largest)
        ),
    )
    return Learned(model, found, optimizer)


def _budgets(spec: JobSpec, testbed_slots: int) -> tuple[int, int]:
    """Smallest and largest number of slots to try on a testbed."""
    low, high = slot_range(operators(spec, None))
    enough = min(high, low + 2)  # three budgets, unless the job cannot fill so many
    if testbed_slots < enough:
        needs = ", ".join(f"{o.name} {o.least}" for o in operators(spec, None))
        raise ConfigError(
            f"job '{spec.job}' needs at least {low} slots ({needs}; sources left out), and the "
            f"explorer {enough} to see how throughput grows: {enough - testbed_slots} more "
            "than the testbed has",
            key="testbed_slots",
            value=testbed_slots,
            remedy=f"Give it {enough} slots or more.",
        )
    return low, min(high, testbed_slots)


def profile_plan(
    model: PlannerModel,
    spec: JobSpec,
    planned_per_s: float,
    memory_level: int,
    rate_per_s: float = 0.0,
) -> ProfilePlan:
    """Invert the model: find the slots of one profile that reach a rate.

    Args:
        model: Model of the job.
        spec: The job.
        planned_per_s: The rate, with head-room.
        memory_level: The profile.
        rate_per_s: The rate that every vertex must carry at its largest parallelism.

    Returns:
        Slots, cost and tasks; no slots where the profile does not reach the rate.
    """
    low, high = slot_range(operators(spec, None))
    memory_mib = profile_mib(spec, memory_level)
    exact = model.surface.slots_for(planned_per_s, memory_mib, low)
    slots = None
    bound = _tightest(model, spec, memory_level)
    can = bound.carries_per_s(bound.most) >= rate_per_s
    if can and math.isfinite(exact) and exact <= high + 1:
        slots = max(low, math.ceil(exact - 1e-9))
    if slots is not None and slots > high:
        slots = None
    managed = level_mib(spec.memory.base_mib, memory_level)
    cost = None
    if slots is not None:
        # Slots are alike: their cost does not depend on the vertices in them.
        cost = slots * slot_cost(spec, memory_level)
    return ProfilePlan(memory_level, managed, memory_mib, slots, cost)


def answer(
    learned: Learned, spec: JobSpec, rate_per_s: float, config: PlannerConfig
) -> CapacityPlan:
    """Plan for a rate with the cheapest profile.

    On the simulator the plan's slots carry the rate by the throughput of the job file, with at most
    the head-room to spare (`check`).

    Returns:
        Slots, profile, parallelism and cost.
    """
    model, planned = learned.model, config.overprovisioning * rate_per_s
    profiles = [
        profile_plan(model, spec, planned, level, rate_per_s) for level in model.memory_levels
    ]
    checks: dict[int, HeldPlan] = {}
    if config.check and model.backend == "simulated":
        profiles, checks = _checked(model, spec, profiles, (rate_per_s, planned))
    feasible = [p for p in profiles if p.slots is not None and p.cost_per_hour is not None]
    if not feasible:
        _raise_unreachable(model, spec, rate_per_s, planned)
    chosen = min(feasible, key=lambda p: p.cost_per_hour or 0.0)
    assert chosen.slots is not None  # as filtered
    checked = checks.get(chosen.memory_level)
    if checked is None:
        tasks = bids2(model.operators(spec, chosen.memory_level), chosen.slots).parallelism
    else:
        tasks = dict(checked.parallelism)
    wanted = configuration(spec, tasks, chosen.memory_level)
    cost = requested(spec, wanted.parallelism, wanted.memory_level).money_per_hour(spec)
    return CapacityPlan(
        job=spec.job,
        backend=model.backend,
        rate_per_s=rate_per_s,
        planned_per_s=planned,
        slots=chosen.slots,
        profile=chosen,
        parallelism=wanted.parallelism,
        memory_level=wanted.memory_level,
        cost_per_hour=cost,
        currency=spec.prices.currency,
        predicted_per_s=float(model.surface.predict(chosen.slots, chosen.slot_mib)),
        profiles=profiles,
        **learned.documents(),
        mst_per_s=mst_of(spec, wanted.parallelism, chosen.memory_level),
        changed=None if checked is None else checked.changed,
        notes=source_notes(spec, rate_per_s),
    )


def _checked(
    model: PlannerModel,
    spec: JobSpec,
    profiles: Sequence[ProfilePlan],
    rates_per_s: tuple[float, float],
) -> tuple[list[ProfilePlan], dict[int, HeldPlan]]:
    """Hold profiles to the job file's own throughput.

    Returns:
        The profiles with the slots that carry the rate, and the plan of each level that has one.
    """
    checks: dict[int, HeldPlan] = {}
    found = []
    for profile in profiles:
        level = profile.memory_level
        holds = held(spec, model.operators(spec, level), level, rates_per_s, profile.slots)
        if holds is None:
            found.append(replace(profile, slots=None, cost_per_hour=None))
            continue
        checks[level] = holds
        cost = holds.slots * slot_cost(spec, level)
        found.append(replace(profile, slots=holds.slots, cost_per_hour=cost))
    if not checks:
        raise unreachable(spec, model.memory_levels, rates_per_s[0])
    return found, checks


def _tightest(model: PlannerModel, spec: JobSpec, memory_level: int) -> Operator:
    """Return the limiting vertex when every vertex runs at its largest parallelism."""
    known = model.operators(spec, memory_level)
    return min(known, key=lambda o: o.carries_per_s(o.most))


def _raise_unreachable(
    model: PlannerModel, spec: JobSpec, rate_per_s: float, planned_per_s: float
) -> None:
    tightest = [_tightest(model, spec, level) for level in model.memory_levels]
    best = max(tightest, key=lambda o: o.carries_per_s(o.most))
    carries = best.carries_per_s(best.most)
    if carries < rate_per_s:
        raise ConfigError(
            f"no budget of job '{spec.job}' reaches {rate_per_s:,.4g} records/s: vertex "
            f"'{best.name}' may have {best.most} tasks, which carry {carries:,.4g}/s",
            key="rate",
            value=rate_per_s,
            remedy="Plan for a lower rate, or let the vertex have more: --max-slots (the quota "
            "max_parallelism_per_vertex and max_parallelism of the job file), or scalable: true.",
        )
    _, high = slot_range(operators(spec, None))
    sustained = max(
        float(model.surface.predict(high, profile_mib(spec, level)))
        for level in model.memory_levels
    )
    raise ConfigError(
        f"no budget of job '{spec.job}' reaches {planned_per_s:,.4g} records/s (the rate with its "
        f"head-room): the job file allows {high} slots, which sustain {sustained:,.4g}/s by the "
        f"{model.surface.form} model",
        key="rate",
        value=planned_per_s,
        remedy="Plan for a lower rate, or lift the quota (max_parallelism_per_vertex of the job "
        "file, and the vertices' max_parallelism): --max-slots.",
    )
