"""The throughput model behind a fit: `dsp_gym.job.capacity` in closed form.

The working set of a fitted job does not grow with its load, so the largest load a vertex carries
needs no search: with p subtasks

    useful(p) / (seconds + (1 - hit(memory)) * miss seconds) / ratio * crowd

records/s at the sources, and the job carries the least of these. `crowd` is what a subtask keeps
beside the others on its TaskManager.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.calibration.mst_tables import MeasuredOperator, Measurements
from dsp_gym.job.memory import flink_split, managed_mib_per_slot
from dsp_gym.job.scaling import share_kept


@dataclass(frozen=True, slots=True)
class ScalingForm:
    """How throughput may fall behind linear scaling."""

    name: str
    efficiency: str  # form of `dsp_gym.job.spec.Efficiency`
    contention: bool = False  # subtasks of one TaskManager slow each other
    few_keys: bool = False  # operators keyed behind a window scale by themselves, and less


SCALING_FORMS = (
    ScalingForm("contention", "contention"),
    ScalingForm("linear", "linear"),
    ScalingForm("power", "power"),
    ScalingForm("usl", "usl"),
    ScalingForm("linear + TaskManager contention", "linear", contention=True),
    ScalingForm("contention + few keys behind windows", "contention", few_keys=True),
)
"""The first is taken unless another predicts left-out measurements clearly better."""


@dataclass(frozen=True, slots=True)
class MemoryEffect:
    """State of one operator that does not fit the cache of a small slot."""

    operator: int
    working_set_mib: float  # per subtask
    miss_s: float  # extra seconds of a record whose state is not cached
    a: float  # of the contention form, as this operator scales


@dataclass(frozen=True, slots=True)
class MstModel:
    """A fitted job."""

    form: ScalingForm
    working: tuple[int, ...]  # operators that take slots
    few_keys: tuple[int, ...]  # those that scale by `few_keys_a`
    seconds: tuple[float, ...]  # of a record in one task; 0 where an operator was never busy
    ratio: tuple[float, ...]  # input rate / source rate
    a: float = 0.0
    b: float = 0.0
    few_keys_a: float = 0.0
    contention: float = 0.0
    memory: MemoryEffect | None = None
    slots_per_taskmanager: int = 16

    def mst_per_s(self, parallelism: Sequence[int], memory_mib: float) -> float:
        """Largest load the configuration carries, records/s.

        Returns:
            Records/s at the job's sources, after the contention of the TaskManager's slots.
        """
        carried = [
            self.useful(v, parallelism[v]) / (self._seconds(v, memory_mib) * self.ratio[v])
            for v in self.working
            if self.seconds[v] * self.ratio[v] > 0
        ]
        used = min(sum(parallelism[v] for v in self.working), self.slots_per_taskmanager)
        return min(carried) * (1 - self.contention * (used - 1))

    def useful(self, v: int, p: int) -> float:
        """Linear-equivalent tasks of p tasks, non-decreasing in p as `job.scaling.useful_tasks`.

        Returns:
            A number from 1 to p: how many tasks without loss would do the same work.
        """
        form, a, b = self.efficiency(v)
        q = np.arange(1.0, p + 1)
        kept: Floats = q * share_kept(form, a, b, q)
        return float(kept.max())

    def efficiency(self, v: int) -> tuple[str, float, float]:
        """Name of an operator's efficiency form, and its two parameters.

        Returns:
            The form's name, then its parameters a and b; b is 0 for a form of one parameter.
        """
        if v in self.few_keys:
            return "contention", self.few_keys_a, 0.0
        if self.memory is not None and v == self.memory.operator:
            return "contention", self.memory.a, 0.0
        return self.form.efficiency, self.a, self.b

    def _seconds(self, v: int, memory_mib: float) -> float:
        seconds = self.seconds[v]
        effect = self.memory
        if effect is None or effect.operator != v:
            return seconds
        hit = min(1.0, cache_mib(memory_mib, self.slots_per_taskmanager) / effect.working_set_mib)
        return seconds + (1 - hit) * effect.miss_s


def cache_mib(slot_memory_mib: float, slots: int) -> float:
    """Block cache of a slot, as `dsp-gym plan --slot-memory-mib` gives it to state that is read.

    Returns:
        Block cache of a slot, MiB, as `dsp-gym plan --slot-memory-mib` gives it to state that is
        read.
    """
    return flink_split(managed_mib_per_slot(slot_memory_mib, slots), writes=False)[1]


def keyed(operator: MeasuredOperator) -> bool:
    """Its input is partitioned by key, so it may have keyed state.

    Returns:
        True where an input arrives by HASH.
    """
    return "HASH" in operator.ships


def behind_windows(measurements: Measurements) -> tuple[int, ...]:
    """Find keyed operators downstream of a window: one firing may hit few keys at a time.

    Returns:
        Their places among the operators.
    """
    behind: set[int] = set()
    found = []
    for v, operator in enumerate(measurements.operators):
        fed = any(u in behind for u in operator.inputs)
        if fed and keyed(operator):
            found.append(v)
        if fed or "window" in operator.operator:
            behind.add(v)
    return tuple(found)
