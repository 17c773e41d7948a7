"""Parallelism in place on Flink's adaptive scheduler (FLIP-291)."""

from __future__ import annotations

from dsp_gym.backends.flink.rescale.in_place import InPlaceActuator, Requirements, lower_bound
from dsp_gym.backends.flink.rescale.running import RunningJob
from dsp_gym.backends.flink.rescale.worker import Unreached
from dsp_gym.backends.flink.submission import Configuration
from dsp_gym.errors import FlinkError

__all__ = ["AdaptiveActuator", "requirements_of"]


def requirements_of(old: Requirements, job: RunningJob, wanted: Configuration) -> Requirements:
    """The body of `PUT /jobs/:jobid/resource-requirements`: every vertex, changed or not.

    Returns:
        Lower and upper bound of the parallelism by vertex id.
    """
    return {
        vertex_id: {
            "parallelism": {
                "lowerBound": lower_bound(old, vertex_id, wanted.parallelism[vertex]),
                "upperBound": wanted.parallelism[vertex],
            }
        }
        for vertex, vertex_id in job.vertex_ids.items()
    }


class AdaptiveActuator(InPlaceActuator):
    """Changes parallelism without a savepoint; needs `jobmanager.scheduler: adaptive`.

    Memory stays: that scheduler cuts a TaskManager into equal slots. A job of uniform slots has one
    level, so policies do not ask for another (`job.deployment.found_in_place`). For any other job a
    request that moves a memory level is refused as a whole. `ResubmitActuator` moves both.
    """

    def _requirements(self, job_id: str) -> Requirements:
        try:
            return self.rest.resource_requirements(job_id)
        except FlinkError as error:
            raise Unreached(
                f"the job cannot be rescaled in place: {error}",
                remedy="Start the cluster with the adaptive scheduler, or rescale by resubmission.",
            ) from error

    def _put(self, job_id: str, requirements: Requirements) -> None:
        self.rest.set_resource_requirements(job_id, requirements)

    def _changed(self, old: Requirements, job: RunningJob, wanted: Configuration) -> Requirements:
        moved = [
            f"{vertex} {level} to {wanted.memory_level[vertex]}"
            for vertex, level in job.configuration.memory_level.items()
            if wanted.memory_level[vertex] != level
        ]
        if moved:
            raise Unreached(
                "the adaptive scheduler gives every slot the same memory; asked to move the level "
                f"of {', '.join(moved)}",
                remedy="Describe the slots as they are (memory.levels: 1 and their base_mib in the "
                "job file), or take the default scheduler with rescaling by resubmission.",
            )
        return requirements_of(old, job, wanted)
