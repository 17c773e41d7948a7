"""Memory tuning: TaskManager sizes from the memory in use, with a change of parallelism."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from baselines.flink_autoscaler.flink_memory import TM, FlinkMemory, MemoryRefused, derive
from baselines.flink_autoscaler.numbers import ceiling_text
from baselines.flink_autoscaler.options import Options
from baselines.flink_autoscaler.state import (
    HEAP,
    MANAGED,
    METASPACE,
    SLOTS,
)
from baselines.flink_autoscaler.units import memory_bytes, memory_text
from dsp_gym.arrays import Floats

REMOVED = (f"{TM}flink.size", f"{TM}managed.size", f"{TM}size", f"{TM}task.heap.size")
"""Keys that would contradict the tuned ones; `size` is the older name of `managed.size`."""

Inputs = Sequence[Mapping[str, str]]
"""Per vertex, in order: name of the input -> ship strategy."""


@dataclass
class _Budget:
    remaining: int

    def take(self, amount: int) -> int:
        given = min(amount, self.remaining)
        self.remaining -= given
        return given


@dataclass(frozen=True)
class Tuning:
    """Keys to set, and whether Flink's memory model accepts the configuration at all."""

    overrides: dict[str, str] = field(default_factory=dict)
    recommended: bool = False


def task_slots(options: Options) -> int:
    """Return the slots of a TaskManager.

    Returns:
        The Flink option `taskmanager.numberOfTaskSlots`; 1 where it is not set.
    """
    return int(options.flink.get("taskmanager.numberOfTaskSlots", "1"))


def total_memory(flink: Mapping[str, str], tm_memory: int) -> int:
    """Read the process memory of a TaskManager: configured, or that of its resource.

    Returns:
        Bytes; 0: unknown.
    """
    key = f"{TM}process.size"
    return memory_bytes(flink[key], key) if key in flink else tm_memory


def tune(
    options: Options,
    tm_memory: int,
    names: Sequence[str],
    inputs: Inputs,
    parallelism: Sequence[int],
    new: Sequence[int],
    globals_: Floats,
) -> Tuning:
    """Size TaskManagers for the new parallelisms.

    Args:
        options: Options with the memory keys of the specification.
        tm_memory: Bytes of one TaskManager, never exceeded; 0: unknown.
        names: Names of the vertices.
        inputs: Inputs of the vertices.
        parallelism: Running parallelism.
        new: Parallelism after the scaling.
        globals_: Evaluated metrics of the job, (GLOBALS, last and average).

    Returns:
        Keys to set; none where Flink refuses the configuration.
    """
    spec = _derived(options)
    if spec is None or tm_memory <= 0:
        return Tuning()
    # Whatever is not tuned is taken from the budget first.
    budget = _Budget(tm_memory)
    for fixed in (spec.framework_off_heap, spec.task_off_heap, spec.overhead):
        budget.take(fixed)
    # Metaspace before heap, so that the JVM starts; managed memory last, as it takes any amount.
    network = budget.take(_network(options, names, inputs, new))
    metaspace = budget.take(_with_overhead(globals_[METASPACE, 1], options))
    heap = budget.take(_with_overhead(globals_[HEAP, 1], options))
    managed = _managed(options, spec, globals_[MANAGED, 1], budget)
    # Fewer TaskManagers after a scale-down must hold the heap of all.
    if options.tuning_compensation:
        slots = _whole(globals_[SLOTS, 0])
        extra = compensated(heap, task_slots(options), slots, slots_after(slots, parallelism, new))
        heap += budget.take(extra - heap)
    total = tm_memory - budget.remaining
    if total <= 0:
        return Tuning()
    # Fractions are of total Flink memory, so its new size is added up part by part.
    flink = spec.flink + heap - spec.heap + managed - spec.managed + network - spec.network
    return Tuning(
        {
            f"{TM}managed.fraction": ceiling_text(managed / flink),
            f"{TM}network.min": memory_text(network),
            f"{TM}network.max": memory_text(network),
            f"{TM}jvm-metaspace.size": memory_text(metaspace),
            f"{TM}jvm-overhead.fraction": ceiling_text(spec.overhead / total),
            f"{TM}framework.heap.size": memory_text(0),
            f"{TM}process.size": memory_text(total),
        },
        recommended=True,
    )


def _derived(options: Options) -> FlinkMemory | None:
    """Return Flink's memory sizes; None where Flink would not start with them."""
    try:
        return derive(options.flink)
    except MemoryRefused:
        return None


def network_segments(
    parallelism: int, connected: int, ship: str, per_channel: int, floating: int
) -> int:
    """Count the network segments of one gate of a subtask.

    Returns:
        Segments of `taskmanager.memory.segment-size`.
    """
    if ship == "FORWARD" and parallelism == connected:
        # One channel to the peer, and the floating buffers of the gate.
        return per_channel + floating
    if ship in ("FORWARD", "RESCALE"):
        # RESCALE connects each subtask with a share of its peers.
        return math.ceil(connected / parallelism) * per_channel + floating
    # All other strategies connect every subtask with all peers.
    return connected * per_channel + floating


def slots_after(slots_used: int, parallelism: Sequence[int], new: Sequence[int]) -> int:
    """Count the slots after a scaling.

    Returns:
        The largest vertex if slots are shared, else the sum of all.
    """
    # Flink guesses slot sharing: the widest vertex as large as the used slots means sharing.
    return max(new) if max(parallelism) == slots_used else sum(new)


def compensated(heap: int, per_tm: int, slots_before: int, slots_now: int) -> int:
    """Raise the heap per TaskManager so that fewer of them hold the heap of all.

    Returns:
        Bytes per TaskManager.
    """
    # TaskManagers, rounded up.
    before, after = math.ceil(slots_before / per_tm), math.ceil(slots_now / per_tm)
    return int(max(1.0, before / after) * heap)


def _network(options: Options, names: Sequence[str], inputs: Inputs, new: Sequence[int]) -> int:
    conf = options.flink
    per_channel = int(conf.get("taskmanager.network.memory.buffers-per-channel", "2"))
    floating = int(conf.get("taskmanager.network.memory.floating-buffers-per-gate", "8"))
    segment = memory_bytes(conf.get(f"{TM}segment-size", "32 kb"), f"{TM}segment-size")
    # Parallelism after the scaling: buffers are sized for it.
    of = dict(zip(names, new, strict=True))
    segments = 0
    for name, into in zip(names, inputs, strict=True):
        for other, ship in into.items():
            # Both ends of an edge need buffers: the reading gate, and the writing result partition.
            for me, peer in ((of[name], of[other]), (of[other], of[name])):
                segments += network_segments(me, peer, ship, per_channel, floating)
    return segments * segment * task_slots(options)


def _managed(options: Options, spec: FlinkMemory, used: float, budget: _Budget) -> int:
    if _whole(used) <= 0:
        return 0
    # Any amount beyond the other needs goes to managed memory (RocksDB's cache).
    if options.tuning_maximize_managed:
        return budget.take(budget.remaining)
    return budget.take(spec.managed)


def _with_overhead(used: float, options: Options) -> int:
    # As Java's cast to long: towards zero.
    return int(_whole(used) * (1 + options.tuning_overhead))


def _whole(x: float) -> int:
    return 0 if np.isnan(x) else int(x)
