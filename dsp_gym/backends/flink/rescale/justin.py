"""Parallelism and memory in place, through the endpoint of Justin's patched Flink.

Endpoint, body and profiles follow the released code of Justin (Ugur et al.): `GET` and
`PUT /jobs/:jobid/justin`, a map from vertex id to parallelism bounds and a resource profile.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from dsp_gym.backends.flink.answers import ManagerAnswer
from dsp_gym.backends.flink.rescale.in_place import InPlaceActuator, Requirements, lower_bound
from dsp_gym.backends.flink.rescale.running import RunningJob
from dsp_gym.backends.flink.rescale.worker import Unreached
from dsp_gym.backends.flink.submission import Configuration
from dsp_gym.errors import FlinkError
from dsp_gym.job.memory import NO_MEMORY, level_mib

MIB = 1024 * 1024
SMALL_TASKMANAGER_MIB = 3 * 1024
"""Process memory up to which a TaskManager gets the small profile."""


@dataclass(frozen=True)
class SlotProfile:
    """Memory of one subtask in Justin's code, MiB; managed memory is that of level 0."""

    heap_mib: int
    managed_mib: int
    network_mib: int

    def of(self, level: int) -> dict[str, object]:
        """The resource profile of a subtask at a memory level, as the endpoint takes it.

        Returns:
            Cores and bytes by kind of memory, with the endpoint's own keys.
        """
        managed = level_mib(self.managed_mib, level)
        return {
            "cpuCores": {"name": "CPU", "value": 1, "zero": False},
            "taskHeapMemory": {"bytes": self.heap_mib * MIB},
            "taskOffHeapMemory": {"bytes": 0},
            "managedMemory": {"bytes": int(managed) * MIB},
            "networkMemory": {"bytes": self.network_mib * MIB},
        }


SMALL = SlotProfile(heap_mib=134, managed_mib=158, network_mib=39)
LARGE = SlotProfile(heap_mib=363, managed_mib=343, network_mib=84)


def profile_for(taskmanagers: Iterable[ManagerAnswer]) -> SlotProfile:
    """Choose the profile for TaskManagers as `GET /taskmanagers` lists them.

    Returns:
        Memory of one subtask, MiB.

    >>> three_gib = {"memoryConfiguration": {"totalProcessMemory": 3 * 2**30}}
    >>> profile_for([three_gib]).managed_mib
    158
    """
    sizes = [int(tm["memoryConfiguration"]["totalProcessMemory"]) for tm in taskmanagers]
    if not sizes:
        raise Unreached("the cluster has no TaskManager", remedy="Start one.")
    return SMALL if max(sizes) <= SMALL_TASKMANAGER_MIB * MIB else LARGE


def level_of(managed_bytes: int, base_mib: float) -> int:
    """The memory level of a subtask with that much managed memory.

    Returns:
        0 or more, each level twice the memory of the one below; `NO_MEMORY` for 0 bytes.

    >>> level_of(316 * 2**20, 158), level_of(0, 158)
    (1, -1)
    """
    if managed_bytes == 0:
        return NO_MEMORY
    level = math.log2(managed_bytes / MIB / base_mib)
    if abs(level - round(level)) > 0.01 or level < -0.01:
        raise Unreached(
            f"a subtask has {managed_bytes / MIB:g} MiB of managed memory, which "
            "is not a memory level of "
            f"{base_mib:g} MiB",
            remedy="Rescale the job once through Justin's own autoscaler, or restart it.",
        )
    return round(level)


class JustinActuator(InPlaceActuator):
    """Rescales a job on Justin's Flink; stock Flink answers 404 to its endpoint.

    The job file's `memory.base_mib` must be that of its profile, so that a level means the same
    to policy, price and cluster.
    """

    door = "PUT /jobs/:jobid/justin"

    def _read(self) -> RunningJob:
        """The job as it runs now; memory as the endpoint says, where it says so."""
        job = super()._read()
        levels = self._levels(job, self._requirements(job.id))
        return replace(job, configuration=Configuration(job.configuration.parallelism, levels))

    def _runs(self, job_id: str, wanted: Configuration) -> bool:
        return super()._runs(job_id, wanted) and self._read().configuration == wanted

    def _requirements(self, job_id: str) -> Requirements:
        try:
            with self.rest.reading():
                answer: Requirements = dict(self.rest.get(f"/jobs/{job_id}/justin"))
                return answer
        except FlinkError as error:
            if error.reason != "NotFound":
                raise
            raise Unreached(
                f"the job cannot be rescaled through Justin's endpoint: {error}",
                remedy="Run it on Justin's Flink, or set where.actuator: resubmit",
            ) from error

    def _put(self, job_id: str, requirements: Requirements) -> None:
        self.rest.put(f"/jobs/{job_id}/justin", requirements)

    def _levels(self, job: RunningJob, requirements: Requirements) -> dict[str, int]:
        levels = dict(job.configuration.memory_level)
        with self.rest.reading():
            for vertex, vertex_id in job.vertex_ids.items():
                profile = requirements.get(vertex_id, {}).get("resourceProfile", {})
                managed = profile.get("managedMemory")
                if managed is not None:
                    levels[vertex] = level_of(int(managed["bytes"]), self.spec.memory.base_mib)
        return levels

    def _to_put_back(self, old: Requirements, job: RunningJob) -> Requirements:
        """The same call as for any change: before the first one the endpoint knows no profiles."""
        return self._changed(old, job, job.configuration)

    def _changed(self, old: Requirements, job: RunningJob, wanted: Configuration) -> Requirements:
        with self.rest.reading():
            profile = profile_for(self.rest.taskmanagers())
        base_mib = self.spec.memory.base_mib
        if base_mib != profile.managed_mib:
            raise Unreached(
                f"memory level 0 of the job file is {base_mib:g} MiB; Justin's profile for these "
                f"TaskManagers has {profile.managed_mib}",
                remedy=f"Set memory.base_mib: {profile.managed_mib} in the job file.",
            )
        return {
            vertex_id: {
                "parallelism": {
                    "lowerBound": lower_bound(old, vertex_id, wanted.parallelism[vertex]),
                    "upperBound": wanted.parallelism[vertex],
                },
                "resourceProfile": profile.of(wanted.memory_level[vertex]),
            }
            for vertex, vertex_id in job.vertex_ids.items()
        }
