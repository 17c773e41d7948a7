"""A configuration of one job by vertex name, common to decisions and running jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from dsp_gym.arrays import Ints
from dsp_gym.job.capacity import starting_configuration
from dsp_gym.job.memory import NO_MEMORY, level_mib
from dsp_gym.job.placement import slots_of
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.topology import Topology


class Configured(Protocol):
    """An object with the configuration of a batch of jobs: a snapshot, a decision."""

    @property
    def parallelism(self) -> Ints: ...

    @property
    def memory_level(self) -> Ints: ...


@dataclass(frozen=True, slots=True)
class Configuration:
    """Parallelism and memory level of every vertex, by name; level -1 is no managed memory."""

    parallelism: Mapping[str, int]
    memory_level: Mapping[str, int]

    @classmethod
    def of_spec(cls, spec: JobSpec) -> Configuration:
        """Return the configuration that the job file starts with.

        Returns:
            Parallelism and memory level by vertex name.
        """
        return cls(*starting_configuration(spec))

    @classmethod
    def of_row(cls, configured: Configured, topology: Topology, row: int = 0) -> Configuration:
        """Return one row of a snapshot or a decision.

        Returns:
            Parallelism and memory level by vertex name.
        """
        names = topology.names(row)
        return cls(
            {name: int(configured.parallelism[row, v]) for v, name in enumerate(names)},
            {name: int(configured.memory_level[row, v]) for v, name in enumerate(names)},
        )

    def slots(self, slot_sharing: str) -> int:
        """Count its task slots.

        Returns:
            The greatest parallelism where all vertices share slots, else the sum.
        """
        return slots_of(self.parallelism, shared=slot_sharing == "default")

    def managed_mib(self, spec: JobSpec) -> dict[str, float]:
        """Return the managed memory of one subtask by vertex, MiB; only of vertices with some.

        Returns:
            MiB by vertex name.
        """
        return {
            name: level_mib(spec.memory.base_mib, level)
            for name, level in self.memory_level.items()
            if level != NO_MEMORY
        }

    def __str__(self) -> str:
        """Return `vertex=parallelism@level`; without a level where there is no managed memory."""
        return " ".join(
            f"{name}={tasks}" + (f"@{level}" if (level := self.memory_level[name]) >= 0 else "")
            for name, tasks in self.parallelism.items()
        )
