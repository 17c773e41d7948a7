"""The configuration optimizer: the best configuration of a budget, and its throughput.

StreamBed, section 5: rates of a run with one task per vertex, kept by memory profile, go into
BIDS2; the capacity estimator measures the resulting configuration.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from baselines.streambed.bids2 import Operator, bids2, slot_range
from baselines.streambed.estimator import (
    Estimate,
    EstimatorConfig,
    ObservedRates,
    Testbed,
    estimate,
)
from dsp_gym.errors import ConfigError
from dsp_gym.job.memory import NO_MEMORY, level_mib
from dsp_gym.job.spec import JobSpec, Vertex
from dsp_gym.loop.configuration import Configuration


@dataclass(frozen=True, slots=True)
class BudgetMeasurement:
    """One budget, its best configuration, and the throughput of that configuration."""

    slots: int  # without sources, with sinks
    memory_level: int  # of every vertex: slots are alike
    slot_mib: float
    parallelism: dict[str, int]
    predicted_per_s: float  # BIDS2's objective
    mst_per_s: float
    seen: ObservedRates


class Optimizer:
    """An optimizer that measures budgets; `co_calls`, `ce_calls` and `seconds` count the effort.

    Args:
        testbed: runs the job.
        config: configuration of the capacity estimator.
        tell: called with a sentence on each measurement.
    """

    def __init__(
        self,
        testbed: Testbed,
        config: EstimatorConfig,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.testbed, self.config = testbed, config
        self.co_calls = self.ce_calls = 0
        self.seconds = 0.0  # time of the testbed
        self._tell = tell
        self._single: dict[int, Estimate] = {}

    def measure(self, slots: int, memory_level: int) -> BudgetMeasurement:
        """Measure the best configuration of a budget.

        The budget of one task per vertex is measured again each time, and its rates replace those
        of its profile; other budgets use the profile's latest rates.

        Returns:
            The budget's best configuration, with its predicted and measured throughput.
        """
        spec = self.testbed.spec
        self.co_calls += 1
        least, _ = slot_range(operators(spec, None))
        if slots == least or memory_level not in self._single:
            single = {o.name: o.least for o in operators(spec, None)}
            self._single[memory_level] = self._estimate(single, memory_level)
        known = self._single[memory_level]
        found = bids2(operators(spec, known.seen), slots)
        reached = known
        if slots != least:
            reached = self._estimate(found.parallelism, memory_level)
        return BudgetMeasurement(
            slots,
            memory_level,
            profile_mib(spec, memory_level),
            found.parallelism,
            found.rate_per_s,
            reached.mst_per_s,
            reached.seen,
        )

    def _estimate(self, parallelism: dict[str, int], memory_level: int) -> Estimate:
        spec = self.testbed.spec
        self.ce_calls += 1
        wanted = configuration(spec, parallelism, memory_level)
        found = estimate(self.testbed, wanted, self.config)
        self.seconds += found.seconds
        self._tell(
            f"{sum(parallelism.values())} slots of level {memory_level}: {found.mst_per_s:,.4g}/s"
        )
        return found


def operators(spec: JobSpec, seen: ObservedRates | None) -> list[Operator]:
    """Write the vertices for BIDS2; without an observation their rates are unknown.

    Returns:
        Operators in topological order, sources left out.
    """
    unknown = float("nan")
    found = []
    for vertex in spec.topological_order():
        if vertex.kind == "source":
            continue
        least, most = _bounds(spec, vertex)
        rates = None if seen is None else seen.vertices[vertex.name]
        ratio = unknown if rates is None else rates.ratio
        per_task = unknown if rates is None else rates.true_rate_per_task_per_s
        found.append(Operator(vertex.name, ratio, per_task, least, most))
    return found


def configuration(spec: JobSpec, parallelism: dict[str, int], memory_level: int) -> Configuration:
    """Spread tasks over slots of one profile; sources keep the parallelism of the job file.

    Returns:
        Tasks and memory level by vertex.
    """
    vertices = spec.topological_order()
    return Configuration(
        {v.name: parallelism.get(v.name, v.parallelism) for v in vertices},
        {v.name: NO_MEMORY if v.kind == "source" else memory_level for v in vertices},
    )


def profile_mib(spec: JobSpec, memory_level: int) -> float:
    """Add up heap, network and managed memory of one slot of a profile.

    Returns:
        MiB.
    """
    memory = spec.memory
    if not -1 <= memory_level < memory.levels:
        raise ConfigError(
            f"job '{spec.job}' has memory levels -1 (none) to {memory.levels - 1}",
            key="memory",
            value=memory_level,
            remedy="Name levels of the job file: --memory 0,1",
        )
    return memory.heap_mib + memory.network_mib + level_mib(memory.base_mib, memory_level)


def _bounds(spec: JobSpec, vertex: Vertex) -> tuple[int, int]:
    if not vertex.scalable:
        return vertex.parallelism, vertex.parallelism
    return 1, min(vertex.max_parallelism, spec.max_parallelism_per_vertex)
