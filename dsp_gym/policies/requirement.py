"""What a policy's model says a job needs now, apart from when the policy would act on it."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

from dsp_gym.arrays import Ints
from dsp_gym.loop.snapshot import MetricsSnapshot

__all__ = ["CapacityModel", "Requirement"]


class Requirement(NamedTuple):
    """Configuration needed for the observed demand, (J, V); the running one where unknown."""

    parallelism: Ints
    memory_level: Ints
    horizontal: Ints  # parallelism needed if memory stays as it is


@runtime_checkable
class CapacityModel(Protocol):
    """A policy that can say what is needed without deciding to rescale."""

    def required(self, snapshot: MetricsSnapshot) -> Requirement:
        """Compute what is needed now: no interval, warm-up, activation or utilisation band.

        Returns:
            Configurations (J, V).
        """

    def observe(self, snapshot: MetricsSnapshot) -> None:
        """Remember what is seen, as `decide` does, without deciding."""
