"""The rate of slots that a quota of tasks per vertex leaves unused."""

from __future__ import annotations

from dataclasses import dataclass

from dsp_gym.job.capacity import MstResult
from dsp_gym.job.placement import place
from dsp_gym.job.spec import JobSpec
from dsp_gym.job.validity import Validity, validity_of

_ROUND_OFF = 1e-9
"""Relative difference of two rates that is arithmetic."""


@dataclass(frozen=True, slots=True)
class LiftedQuota:
    """What slots carry without the quota of tasks per vertex."""

    rate_per_s: float
    validity: Validity

    def to_json(self) -> dict[str, object]:
        """Plain values for JSON.

        Returns:
            The rate, records/s, and how far it is to be trusted.
        """
        return {"rate_per_s": self.rate_per_s, "validity": self.validity.to_json(self.rate_per_s)}


def without_quota(spec: JobSpec, slots: int, within: MstResult) -> LiftedQuota | None:
    """Compute what the slots carry without the quota of tasks per vertex.

    Args:
        spec: the job.
        slots: number of slots, sources left out.
        within: what they carry within the quota.

    Returns:
        The rate; None where the quota does not bind.
    """
    if slots <= int(spec.max_parallelism_per_vertex):
        return None
    wide = spec.model_copy(update={"max_parallelism_per_vertex": slots})
    found = place(wide, slots).result
    if found.rate_per_s <= within.rate_per_s * (1 + _ROUND_OFF):
        return None  # key groups, or a vertex that is not scaled
    tasks = {v.name: v.parallelism for v in found.vertices}
    levels = {v.name: v.memory_level for v in found.vertices}
    return LiftedQuota(found.rate_per_s, validity_of(wide, tasks, levels, found.rate_per_s))
