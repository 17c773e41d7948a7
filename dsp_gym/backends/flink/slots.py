"""The task slots of a Flink cluster that a job may use."""

from __future__ import annotations

from collections.abc import Mapping

from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.job.placement import slots_of
from dsp_gym.job.spec import JobSpec

__all__ = ["slots_within_reach"]


def slots_within_reach(rest: FlinkRest, spec: JobSpec, parallelism: Mapping[str, int]) -> int:
    """Count the slots that are free and those that the job holds.

    Returns:
        Task slots.
    """
    held = slots_of(parallelism, shared=spec.slot_sharing)
    return rest.free_slots() + held
