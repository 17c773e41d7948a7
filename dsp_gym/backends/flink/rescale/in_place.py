"""A rescale without a restart of the job: requirements are put, then watched until they hold.

`AdaptiveActuator` puts them to Flink's adaptive scheduler (FLIP-291).
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Hashable

from dsp_gym.backends.flink.rescale.preflight import check_running, check_slots
from dsp_gym.backends.flink.rescale.running import (
    STALE_S,
    RunningJob,
    outage_of_rescale_s,
)
from dsp_gym.backends.flink.rescale.worker import OneJobActuator, Unreached
from dsp_gym.backends.flink.rest import ENDED, until_timeout
from dsp_gym.backends.flink.submission import Configuration, unready
from dsp_gym.config.strict_json import Document
from dsp_gym.errors import FlinkError
from dsp_gym.loop.protocols import ActuatorStatus

PATIENCE_S = 30.0
"""Least time for the old configuration to come back, however short the time limit is."""

Requirements = Document
"""By Flink's vertex id, as an endpoint reads and writes them."""


def lower_bound(requirements: Requirements, vertex_id: str, parallelism: int) -> int:
    """Least parallelism to ask for: what was asked before, at most the new parallelism.

    With the new parallelism itself the job would stop and wait where slots are short.

    Returns:
        A number of subtasks, 1 or more.
    """
    old = requirements.get(vertex_id, {}).get("parallelism", {}).get("lowerBound", 1)
    return max(1, min(parallelism, int(old)))


class InPlaceActuator(OneJobActuator):
    """Rescales through one endpoint of the job; a failure restores the former configuration."""

    door = "PUT /jobs/:jobid/resource-requirements"
    """The endpoint, for people."""

    _put_before: Requirements | None = None  # to be put back, once something else was put

    @abstractmethod
    def _requirements(self, job_id: str) -> Requirements:
        """What the endpoint says now."""

    @abstractmethod
    def _put(self, job_id: str, requirements: Requirements) -> None:
        """Ask the endpoint."""

    @abstractmethod
    def _changed(self, old: Requirements, job: RunningJob, wanted: Configuration) -> Requirements:
        """The requirements of the wanted configuration; refuses what the endpoint cannot do."""

    def _to_put_back(self, old: Requirements, job: RunningJob) -> Requirements:
        """What brings the job back to where it was, from what the endpoint said."""
        return old

    def _runs(self, job_id: str, wanted: Configuration) -> bool:
        """Whether the configuration runs in full."""
        self._check_alive(job_id)
        with self.rest.reading():
            return unready(self.rest.job(job_id), self.spec, wanted) is None

    def _check_alive(self, job_id: str) -> None:
        state = self.rest.state(job_id)
        if state in ENDED:
            cause = self.rest.exceptions(job_id)
            raise Unreached(f"the job ended meanwhile: {state}{f', {cause}' if cause else ''}")

    def _rescale(self, job: RunningJob, wanted: Configuration) -> None:
        self._put_before = None
        check_running(job)
        old = self._requirements(job.id)
        new = self._changed(old, job, wanted)
        check_slots(self.rest, job, wanted)
        before = self._to_put_back(old, job)
        if (reason := self._left_to_others()) is not None:
            raise Unreached(f"nothing was asked of the job: {reason}")
        # Before the call: one whose answer is lost may have been heard.
        self._watch.asking(mark_of(job.id, new), mark_of(job.id, before))
        self._put_before, self._is_asked = before, True
        self._put(job.id, new)
        asked = time.monotonic()
        self._emit("submitted", {"job_id": job.id, "requirements": new})
        self._wait(job.id, wanted, self.timeout_s)
        self._watch.stands(mark_of(job.id, new))
        seconds = time.monotonic() - asked
        outage_s = outage_of_rescale_s(self.rest, job.id)
        self._emit("running", {"job_id": job.id, "seconds": seconds, "outage_s": outage_s})

    def _wait(self, job_id: str, wanted: Configuration, timeout_s: float) -> None:
        """Watch until the configuration runs."""
        for _ in until_timeout(timeout_s, self.poll_s):
            trouble = ""
            try:
                if self._runs(job_id, wanted):
                    return
            except Unreached:
                raise
            except FlinkError as error:  # not reachable for a moment
                trouble = f"; {error}"
        raise Unreached(
            f"the new configuration did not run within {timeout_s:g} s{trouble}",
            status=ActuatorStatus.TIMED_OUT,
            remedy="Look at the cluster's free slots, or raise the time limit.",
        )

    def _recover(self, job: RunningJob, wanted: Configuration) -> None:
        """Put the old requirements back, and see that they hold.

        Those of somebody else are left alone.
        """
        old, self._put_before = self._put_before, None
        if old is None:
            return  # nothing was asked of the job
        patience_s = max(self.timeout_s, PATIENCE_S)
        deadline = time.monotonic() + patience_s
        while True:
            if (reason := self._left_to_others()) is not None:
                self._emit("left", {"job_id": job.id, "reason": reason})
                return
            try:
                self._check_alive(job.id)
                self._put(job.id, old)
                time.sleep(STALE_S)  # what is seen sooner may be from before
                self._wait(job.id, job.configuration, patience_s)
            except FlinkError as error:
                over = isinstance(error, Unreached) and error.status == ActuatorStatus.FAILED
                if over or time.monotonic() > deadline:
                    self._alarm(job, old, error)
                    return
                time.sleep(self.poll_s)
            else:
                # A request whose answer was lost may still arrive.
                self._watch.stands(mark_of(job.id, old), settled=False)
                self._emit("restored", {"job_id": job.id})
                return

    def _check_way(self, job: RunningJob) -> None:
        self._requirements(job.id)

    def _standing(self) -> Hashable:
        job_id = self.rest.find_job(self.job_name).id
        with self.rest.reading():
            return mark_of(job_id, self._requirements(job_id))

    def _described(self) -> tuple[str, str | None]:
        """What the endpoint says; it keeps no record of who has asked it."""
        job = self._read()
        with self.rest.reading():
            wanted = as_asked(job, self._requirements(job.id))
        return f"{wanted} (job {job.id})", None

    def _alarm(self, job: RunningJob, old: Requirements, error: FlinkError) -> None:
        self._emit(
            "alarm",
            {
                "reason": f"the job does not run as before the change: {error}",
                "job_id": job.id,
                "requirements": old,
                "remedy": f"If the job still runs, put the requirements given here: {self.door}",
            },
        )


def as_asked(job: RunningJob, requirements: Requirements) -> Configuration:
    """Read requirements as the configuration that they ask for.

    Returns:
        The upper bounds; the running tasks of a vertex without any.
    """
    most = {
        name: int(requirements[vertex_id]["parallelism"]["upperBound"])
        for name, vertex_id in job.vertex_ids.items()
        if vertex_id in requirements
    }
    tasks = {**job.configuration.parallelism, **most}
    return Configuration(tasks, job.configuration.memory_level)


def mark_of(job_id: str, requirements: Requirements) -> Hashable:
    """Make a value that is equal for requirements that ask for the same.

    Returns:
        The job, and the bounds of each vertex with the memory that its profile names.
    """
    return job_id, frozenset(
        (
            vertex_id,
            one.get("parallelism", {}).get("lowerBound"),
            one.get("parallelism", {}).get("upperBound"),
            one.get("resourceProfile", {}).get("managedMemory", {}).get("bytes"),
        )
        for vertex_id, one in requirements.items()
    )


def requirements_of(old: Requirements, job: RunningJob, wanted: Configuration) -> Requirements:
    """The body of `PUT /jobs/:jobid/resource-requirements`: every vertex, changed or not.

    Returns:
        Lower and upper bound of the parallelism by vertex id; of a vertex that is not in the job
        file as before.
    """
    others = {one: old[one] for one in old if one not in job.vertex_ids.values()}
    return others | {
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
                remedy="Start the cluster with jobmanager.scheduler: adaptive, or rescale by "
                "resubmission: where.actuator: resubmit, with where.program and where.savepoints",
            ) from error

    def _check_way(self, job: RunningJob) -> None:
        """Refuse a job whose tasks Flink chooses itself, or that would begin anew."""
        super()._check_way(job)
        with self.rest.reading():
            if self.rest.settings().get("scheduler-mode", "").lower() == "reactive":
                raise Unreached(
                    f"{self.rest.url} is in reactive mode: its jobs use every slot there is",
                    remedy="Start the cluster without scheduler-mode: reactive.",
                )
            if not self.rest.checkpoints_itself(job.id):
                raise Unreached(
                    f"job {self.job_name!r} writes no checkpoints, so it would begin anew with "
                    "empty state when it is rescaled in place",
                    remedy="Turn on execution.checkpointing.interval, or rescale with a savepoint: "
                    "where.actuator: resubmit, with where.program and where.savepoints",
                )

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
