"""The memory of a TaskManager as Flink derives it from its configuration.

Rules of `ProcessMemoryUtils` and `TaskExecutorFlinkMemoryUtils`: from task heap and managed memory,
from the total Flink memory, or from the total process memory, in this order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from baselines.flink_autoscaler.units import memory_bytes

TM = "taskmanager.memory."
DEFAULTS = {
    "framework.heap.size": "128 mb",
    "framework.off-heap.size": "128 mb",
    "task.off-heap.size": "0",
    "managed.fraction": "0.4",
    "network.fraction": "0.1",
    "network.min": "64 mb",
    "network.max": str(2**63 - 1),
    "jvm-metaspace.size": "256 mb",
    "jvm-overhead.fraction": "0.1",
    "jvm-overhead.min": "192 mb",
    "jvm-overhead.max": "1 gb",
}


class MemoryRefused(ValueError):
    """Flink would not start a TaskManager with these sizes."""


@dataclass(frozen=True)
class FlinkMemory:
    """Bytes per kind of memory of one TaskManager."""

    framework_heap: int
    framework_off_heap: int
    task_heap: int
    task_off_heap: int
    network: int
    managed: int
    metaspace: int
    overhead: int

    @property
    def heap(self) -> int:
        """The JVM's heap, bytes."""
        return self.framework_heap + self.task_heap

    @property
    def flink(self) -> int:
        """Total Flink memory, bytes."""
        return (
            self.heap + self.framework_off_heap + self.task_off_heap + self.network + self.managed
        )


def derive(conf: Mapping[str, str]) -> FlinkMemory:
    """Derive the memory of a TaskManager from its configuration.

    Returns:
        Bytes per kind of memory.

    Raises:
        MemoryRefused: The sizes contradict each other, or none is given.
    """
    # Heap and managed memory given: the rest is derived from these two, whatever else is set.
    fine = "task.heap.size" in _Sizes(conf) and "managed.size" in _Sizes(conf)
    sizes = _Sizes(conf)
    if fine or "flink.size" in sizes:
        parts = _explicit(sizes) if fine else _within(sizes, sizes["flink.size"])
        metaspace, total = sizes["jvm-metaspace.size"], sum(parts.values())
        if "process.size" in sizes:
            overhead = sizes["process.size"] - total - metaspace
            # With a total and its parts both given, the overhead is the rest and must be within
            # bounds.
            if not sizes["jvm-overhead.min"] <= overhead <= sizes["jvm-overhead.max"]:
                raise MemoryRefused("JVM overhead outside its bounds")
        else:
            # A share of the process, from its parts: parts / (1 - share) is the process.
            share = sizes.fraction("jvm-overhead.fraction")
            overhead = sizes.capped(total + metaspace, share / (1 - share), "jvm-overhead")
        return FlinkMemory(**parts, metaspace=metaspace, overhead=overhead)
    # The last of the three ways: everything from the process size.
    if "process.size" not in sizes:
        raise MemoryRefused("no memory size is configured")
    process, metaspace = sizes["process.size"], sizes["jvm-metaspace.size"]
    overhead = sizes.capped(process, sizes.fraction("jvm-overhead.fraction"), "jvm-overhead")
    if metaspace + overhead > process:
        raise MemoryRefused("metaspace and overhead exceed the process")
    parts = _within(sizes, process - metaspace - overhead)
    return FlinkMemory(**parts, metaspace=metaspace, overhead=overhead)


class _Sizes:
    """Sizes by the end of their key, with Flink's defaults."""

    def __init__(self, conf: Mapping[str, str]) -> None:
        self._conf = dict(conf)
        if f"{TM}size" in conf:  # the older name of managed.size
            self._conf.setdefault(f"{TM}managed.size", conf[f"{TM}size"])

    def __contains__(self, name: str) -> bool:
        return f"{TM}{name}" in self._conf

    def __getitem__(self, name: str) -> int:
        key = f"{TM}{name}"
        return memory_bytes(self._conf.get(key, DEFAULTS.get(name, "0")), key)

    def fraction(self, name: str) -> float:
        """Return a share, with the error of Java's float."""
        # Java parses fractions as float: 0.1f differs from 0.1 in the eighth digit.
        return float(np.float32(self._conf.get(f"{TM}{name}", DEFAULTS[name])))

    def capped(self, base: int, share: float, name: str) -> int:
        """Return a share of a size, between `<name>.min` and `<name>.max`."""
        return min(max(_times(base, share), self[f"{name}.min"]), self[f"{name}.max"])


# Flink multiplies by BigDecimal of the shortest text of the double, as here.
def _times(size: int, share: float) -> int:
    return int(Decimal(size) * Decimal(repr(share)))


def _fixed(sizes: _Sizes) -> dict[str, int]:
    return {
        "framework_heap": sizes["framework.heap.size"],
        "framework_off_heap": sizes["framework.off-heap.size"],
        "task_off_heap": sizes["task.off-heap.size"],
    }


def _explicit(sizes: _Sizes) -> dict[str, int]:
    parts = _fixed(sizes)
    parts |= {"task_heap": sizes["task.heap.size"], "managed": sizes["managed.size"]}
    rest = sum(parts.values())
    if "flink.size" in sizes:
        parts["network"] = _checked_network(sizes, sizes["flink.size"] - rest)
    else:
        # Again a share of the sum that includes the part itself.
        share = sizes.fraction("network.fraction")
        parts["network"] = sizes.capped(rest, share / (1 - share), "network")
    return parts


def _within(sizes: _Sizes, total: int) -> dict[str, int]:
    parts = _fixed(sizes)
    if "managed.size" in sizes:
        parts["managed"] = sizes["managed.size"]
    else:
        parts["managed"] = _times(total, sizes.fraction("managed.fraction"))
    if "task.heap.size" in sizes:
        parts["task_heap"] = sizes["task.heap.size"]
        parts["network"] = _checked_network(sizes, total - sum(parts.values()))
        return parts
    parts["network"] = sizes.capped(total, sizes.fraction("network.fraction"), "network")
    # The task heap is what all other parts leave.
    parts["task_heap"] = total - sum(parts.values())
    if parts["task_heap"] < 0:
        raise MemoryRefused("the parts exceed the total Flink memory")
    return parts


def _checked_network(sizes: _Sizes, rest: int) -> int:
    if not sizes["network.min"] <= rest <= sizes["network.max"]:
        raise MemoryRefused("network memory outside its bounds")
    return rest
