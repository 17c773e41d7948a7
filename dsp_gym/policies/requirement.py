"""The needs of a job according to a policy's model, apart from the time to act on them."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

from dsp_gym.arrays import Ints
from dsp_gym.loop.snapshot import MetricsSnapshot

__all__ = ["CapacityModel", "Requirement"]


class Requirement(NamedTuple):
    """Configuration needed for the observed demand, (J, V); the running one where unknown."""

    parallelism: Ints
    memory_level: Ints
    horizontal: Ints  # parallelism needed if memory stays unchanged


@runtime_checkable
class CapacityModel(Protocol):
    """A policy that can compute needs without deciding to rescale."""

    def required(self, snapshot: MetricsSnapshot) -> Requirement:
        """Compute present needs: no interval, warm-up, activation or utilisation band.

        Returns:
            Configurations (J, V).
        """

    def observe(self, snapshot: MetricsSnapshot) -> None:
        """Remember a snapshot, as `decide` does, without deciding."""
