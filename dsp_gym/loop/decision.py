"""What is wanted, and what is allowed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dsp_gym.arrays import Bools, Ints


@dataclass(frozen=True, slots=True, eq=False)
class ScalingDecision:
    """A wanted configuration of J jobs, (J, V), with one reason per job.

    A decision equal to the running configuration asks for nothing.
    """

    parallelism: Ints
    memory_level: Ints
    reasons: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.parallelism)

    def changes(self, parallelism: Ints, memory_level: Ints, mask: Bools) -> Ints:
        """1 where the job would have to be rescaled from the given configuration, (J,)."""
        differs = (self.parallelism != parallelism) | (self.memory_level != memory_level)
        return np.asarray(np.any(differs & mask, axis=1), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Intervention:
    """One thing a guardrail changed in one job, in words."""

    job: int
    guardrail: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class GuardedDecision:
    """The allowed configuration, (J, V), and what was changed on the way and why."""

    parallelism: Ints
    memory_level: Ints
    proposed: ScalingDecision
    trips: Bools  # (J, guardrails) in chain order
    interventions: tuple[Intervention, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.parallelism)

    @classmethod
    def unchanged(cls, decision: ScalingDecision) -> GuardedDecision:
        """What no guardrail has touched."""
        trips = np.zeros((len(decision), 0), dtype=bool)
        return cls(decision.parallelism, decision.memory_level, decision, trips)
