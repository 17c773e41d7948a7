"""The wanted configuration, and the allowed one."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dsp_gym.arrays import Bools, Ints


@dataclass(frozen=True, slots=True, eq=False)
class ScalingDecision:
    """A wanted configuration of J jobs, (J, V), with one reason per job.

    A decision equal to the running configuration changes nothing.
    """

    parallelism: Ints
    memory_level: Ints
    reasons: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.parallelism)

    def changes(self, parallelism: Ints, memory_level: Ints, mask: Bools) -> Ints:
        """Return 1 where the job would have to be rescaled from the given configuration, (J,).

        Returns:
            (J,) 0 or 1.
        """
        # Padding columns beyond a job's vertices hold any value: the mask leaves them out.
        differs = (self.parallelism != parallelism) | (self.memory_level != memory_level)
        return np.asarray(np.any(differs & mask, axis=1), dtype=np.int64)


InterventionKind = Literal["limited", "held", "replaced"]
"""The kinds of interventions.

limited: vertices were moved into a range; held: the running configuration is kept; replaced:
another policy's decision stands.
"""


@dataclass(frozen=True, slots=True)
class Intervention:
    """One change a guardrail made to the decision on one job: data first, the sentence from it."""

    job: int  # row of the batch
    guardrail: str
    reason: str  # for people; "" where no words are asked for, as in a large batch
    kind: InterventionKind = "limited"
    by: str | None = None  # the policy whose decision stands, where kind is "replaced"


@dataclass(frozen=True, slots=True, eq=False)
class GuardedDecision:
    """The allowed configuration of J jobs, (J, V), and every change on the way with its reason."""

    parallelism: Ints
    memory_level: Ints
    proposed: ScalingDecision
    trips: Bools  # (J, guardrails) in chain order
    interventions: tuple[Intervention, ...] = ()
    replaced_by: tuple[str | None, ...] = ()
    """(J,) the policy that decides instead, even where it decides the same; () where unknown."""
    unfamiliar: tuple[tuple[str, ...] | None, ...] = ()
    """(J,) features outside the range of the training; None: no training; () where unknown."""

    def __len__(self) -> int:
        return len(self.parallelism)

    @classmethod
    def unchanged(cls, decision: ScalingDecision) -> GuardedDecision:
        """Return a decision that no guardrail has changed.

        Returns:
            The decision itself as the allowed one, with no guardrail in `trips`.
        """
        trips = _no_trips(len(decision))
        return cls(decision.parallelism, decision.memory_level, decision, trips)


# Cached: a loop without guardrails asks for it at every decision.
@functools.cache
def _no_trips(jobs: int) -> Bools:
    """Return the flags of no guardrails, (J, 0)."""
    return np.zeros((jobs, 0), dtype=bool)
