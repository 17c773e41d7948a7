"""Policies whose whole memory is kept in rows, one for each job."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from dsp_gym.arrays import Ints
from dsp_gym.loop.per_job_state import Kept, Parts, Restorable, RowMemory
from dsp_gym.loop.protocols import Mask
from dsp_gym.loop.topology import Topology
from dsp_gym.policies.capabilities import Capabilities, ExplainingPolicy


class Remembering(Restorable, Protocol):
    """A part of a policy that remembers something of every job."""

    def reset(self, jobs: Topology, mask: Mask | None = None) -> None:
        """Forget all rows, or only those where the mask is True."""

    def memories(self) -> tuple[RowMemory, ...]:
        """Return the whole memory."""


class RememberingPolicy(Kept, ExplainingPolicy):
    """A policy made of parts that remember.

    Args:
        parts: Each by the name under which its state is saved.
    """

    def __init__(self, **parts: Remembering | RowMemory) -> None:
        self._parts = tuple(parts.values())
        self._kept = Parts(**parts)

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        """Forget all rows, or only those where the mask is True."""
        for part in self._parts:
            part.reset(jobs, mask)

    def capabilities(self) -> Capabilities:
        """Say that requests may share a batch.

        Returns:
            Those of a policy that explains itself, and its memories.
        """
        return replace(super().capabilities(), memories=self.memories)

    def memories(self) -> tuple[RowMemory, ...]:
        """Return the whole memory.

        Returns:
            Those of the parts, in their order.
        """
        found: list[RowMemory] = []
        for part in self._parts:
            found += [part] if isinstance(part, RowMemory) else part.memories()
        return tuple(found)
