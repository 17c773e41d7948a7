"""StreamBed as a policy: it jumps to its plan for the observed demand, and holds it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from pydantic import Field

from baselines import reasons
from baselines.streambed.bids2 import Operator, bids2, fillings, slot_range
from baselines.streambed.optimizer import profile_mib
from baselines.streambed.plan import Learned, PlannerConfig, PlannerModel, answer, learn
from baselines.streambed.simulated import SimulatedTestbed
from dsp_gym.arrays import Floats, Ints
from dsp_gym.errors import ConfigError
from dsp_gym.job.placement import with_quota
from dsp_gym.job.spec import JobSpec
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.lacking import DEMANDED
from dsp_gym.loop.per_job_state import Kept, Parts, RowMemory
from dsp_gym.loop.protocols import Mask
from dsp_gym.loop.rates import ds2_rates
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.loop.unknown import LastKnown
from dsp_gym.policies.capabilities import Capabilities, ExplainingPolicy
from dsp_gym.policies.planner import CapacityPlan, PlanRequest


class StreambedConfig(PlannerConfig):
    """Parameters of the planner, and the conditions for a new plan."""

    model: Path | None = Field(
        None,
        description="capacity model that `dsp-gym plan --out` wrote, for instance from a real "
        "Flink; none: each job is explored on the simulator when the policy starts",
    )
    min_window_fill: float = Field(
        1.0, ge=0, le=1, description="share of the metrics window that must be covered to plan"
    )
    above: float = Field(
        1.05,
        ge=1,
        description="demand over the planned rate above which the policy plans again; within "
        "the plan's head-room",
    )
    below: float = Field(
        0.7,
        ge=0,
        lt=1,
        description="demand over the planned rate below which the policy plans again",
    )


class PlanTable:
    """The plans of one job: slots by rate and profile, configuration by slots."""

    def __init__(self, model: PlannerModel, spec: JobSpec) -> None:
        names = [v.name for v in spec.topological_order()]
        known = [model.operators(spec, level) for level in model.memory_levels]
        self.low, self.high = slot_range(known[0])
        shape = (len(known), self.high - self.low + 1, len(names))
        self.parallelism = np.zeros(shape, np.int64)  # by profile, slots above the fewest, vertex
        for profile, vertices in enumerate(known):
            for row, found in enumerate(fillings(vertices, self.high)):
                for name, tasks in found.parallelism.items():
                    self.parallelism[profile, row, names.index(name)] = tasks
        self.levels = np.array(model.memory_levels)
        self.memory_mib = [profile_mib(spec, level) for level in model.memory_levels]
        self._surface = model.surface
        self._price = np.array(
            [spec.prices.core_hour + m / 1024 * spec.prices.gib_hour for m in self.memory_mib]
        )

    def slots_for(self, rates_per_s: Floats) -> tuple[Ints, Ints]:
        """Find the cheapest plan for each rate, (n,) records/s.

        Returns:
            Slots and number of the memory profile, (n,) each; all slots where no profile suffices.
        """
        wanted = np.array(
            [
                [self._surface.slots_for(rate, mib, self.low) for rate in rates_per_s.tolist()]
                for mib in self.memory_mib
            ]
        ).reshape(len(self.memory_mib), len(rates_per_s))
        slots = np.clip(np.ceil(wanted - 1e-9), self.low, self.high)
        # Where no profile reaches the rate, take the closest one: fewest slots wanted.
        cost = np.where(wanted <= self.high, slots * self._price[:, None], np.inf)
        best = np.where(np.isfinite(cost).any(axis=0), cost.argmin(axis=0), wanted.argmin(axis=0))
        columns = np.arange(len(rates_per_s))
        return slots[best, columns].astype(np.int64), best.astype(np.int64)


class Streambed(Kept, ExplainingPolicy):
    """StreamBed (Rosinosky et al., DEBS 2024): explores small budgets, then jumps to its plan."""

    Config = StreambedConfig

    def __init__(self, config: StreambedConfig | None = None) -> None:
        self.name = "streambed"
        self.config = config or StreambedConfig()
        self.tables: list[PlanTable] = []
        """Plans of each job file, in the order of the batch's job files."""
        self._memory = RowMemory(
            {"planned_per_s": ("job", np.nan), "wanted": ("vertex", -1), "level": ("job", -1)}
        )
        self._last_known = LastKnown(DEMANDED)
        self._kept = Parts(plan=self._memory, last_known=self._last_known)

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        self._memory.reset(jobs, mask)
        self._last_known.reset(jobs, mask)
        self.tables = [PlanTable(self._model(spec), spec) for spec in jobs.specs]

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        m, topology = self._memory, snapshot.topology
        snapshot = self._last_known.filled(snapshot)
        kind = topology.tables.kind[topology.row]
        demand = np.where(kind == SOURCE, ds2_rates(snapshot).demand, 0.0).sum(axis=1)
        self._plan(snapshot, demand)
        planned = ~np.isnan(m["planned_per_s"])
        scaled = planned[:, None] & (kind > SOURCE)
        parallelism = np.where(scaled, m["wanted"], snapshot.parallelism)
        level = np.where(scaled, m["level"][:, None], snapshot.memory_level)
        return reasons.decision(snapshot, parallelism, level, self._why() if self.explain else None)

    def capabilities(self) -> Capabilities:
        return replace(super().capabilities(), plan_capacity=self.plan)

    def plan(self, request: PlanRequest) -> CapacityPlan:
        """Explore the job's budgets on the backend and plan for a rate.

        Returns:
            Slots and configuration for the rate.
        """
        if not (math.isfinite(request.rate_per_s) and request.rate_per_s > 0):
            raise ConfigError(
                "the rate of a plan must be above 0",
                key="rate",
                value=request.rate_per_s,
                remedy="Give records/s over all sources: --rate 50000",
            )
        changes = {
            "testbed_slots": request.testbed_slots,
            "memory_levels": request.memory_levels,
        }
        given = {key: value for key, value in changes.items() if value is not None}
        config = self.config.model_copy(update=given)
        if request.max_slots is not None:
            request = replace(request, spec=with_quota(request.spec, request.max_slots))
        learned = self._learned(request, config)
        if request.save is not None:
            learned.model.save(request.save)
        return answer(learned, request.spec, request.rate_per_s, config)

    @staticmethod
    def linear_capacity(vertices: Sequence[tuple[float, float]], slots: int) -> float:
        """Compute the capacity of slots by BIDS2, with vertices as (input ratio, rate per task).

        Returns:
            Source rate, records/s.
        """
        named = [Operator(f"v{i}", ratio, rate) for i, (ratio, rate) in enumerate(vertices)]
        return bids2(named, slots).rate_per_s

    def _learned(self, request: PlanRequest, config: StreambedConfig) -> Learned:
        if self.config.model is not None:
            raise ConfigError(
                "a policy with a saved model does not explore, so it cannot plan here",
                key="model",
                value=str(self.config.model),
                remedy="Plan with a policy without 'model'.",
            )
        if request.backend == "simulated":
            return _explored(request.spec.model_dump_json(by_alias=True), _planner_json(config))
        from baselines.streambed.live import live_testbed

        with live_testbed(request.spec, request.home, config.testbed_slots) as (testbed, slots):
            bounded = config.model_copy(update={"testbed_slots": slots})
            return learn(testbed, "flink", bounded, tell=request.tell)

    def _model(self, spec: JobSpec) -> PlannerModel:
        if self.config.model is not None:
            return PlannerModel.load(self.config.model)
        config = _planner_json(self.config)
        return _explored(spec.model_dump_json(by_alias=True), config).model

    def _plan(self, snapshot: MetricsSnapshot, demand: Floats) -> None:
        """Make a new plan for the jobs whose demand has left the planned range."""
        c, m, row = self.config, self._memory, snapshot.topology.row
        planned = m["planned_per_s"]
        known = snapshot.running & (snapshot.window_fill >= c.min_window_fill - 1e-9)
        known &= np.nan_to_num(demand) > 0
        with np.errstate(invalid="ignore"):  # NaN: no plan yet
            left = (demand > c.above * planned) | (demand < c.below * planned)
        due = known & (np.isnan(planned) | left)
        for k in np.unique(row[due]).tolist():
            jobs = np.flatnonzero(due & (row == k))
            table = self.tables[k]
            slots, profiles = table.slots_for(c.overprovisioning * demand[jobs])
            columns = table.parallelism.shape[2]
            m["wanted"][jobs, :columns] = table.parallelism[profiles, slots - table.low]
            m["level"][jobs] = table.levels[profiles]
            planned[jobs] = demand[jobs]

    def _why(self) -> reasons.Why:
        m = self._memory

        def reason(job: int, v: int) -> str:
            rate = reasons.amount(m["planned_per_s"][job])
            slots = int(np.maximum(m["wanted"][job], 0).sum())
            return f"plan for {rate}/s: {slots} slots of memory level {m['level'][job]}"

        return reason


def _planner_json(config: PlannerConfig) -> str:
    """Write the configuration of an exploration, without options that matter to plans only."""
    counted = set(PlannerConfig.model_fields) - {"overprovisioning", "check"}
    return config.model_dump_json(include=counted)


@lru_cache(maxsize=64)
def _explored(spec_json: str, config_json: str) -> Learned:
    """Explore a job on the simulator, once for each job file and configuration."""
    spec = JobSpec.model_validate_json(spec_json)
    config = PlannerConfig.model_validate_json(config_json)
    return learn(SimulatedTestbed(spec, config.seed), "simulated", config)
