"""The operator of a real Flink job, and the person who restarts what nothing else does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dsp_gym.backends.flink.rescale.running import RunningJob
from dsp_gym.backends.flink.rest import ENDED, FlinkRest
from dsp_gym.backends.flink.submission import Configuration, Submission
from dsp_gym.errors import FlinkError
from dsp_gym.job.spec import JobSpec
from dsp_gym.records.rescales import unfinished
from tests.fakes.flink_operator import FlinkOperator

__all__ = ["OperatedJob", "PatientOperator", "Person"]

Document = dict[str, Any]

_RETRY_S = 0.5


class OperatedJob:
    """A job that is scaled in place, by the bounds that Flink's adaptive scheduler takes."""

    def __init__(self, rest: FlinkRest, spec: JobSpec) -> None:
        self.rest, self.name, self.spec = rest, spec.job, spec
        found = RunningJob.find(rest, self.name, spec)
        self.job_id, self.ids = found.id, dict(found.vertex_ids)

    def names(self) -> dict[str, str]:
        """Name of each vertex by Flink's id, which follows from the program."""
        return {vertex_id: name for name, vertex_id in self.ids.items()}

    def as_asked(self, overrides: Mapping[str, int]) -> Configuration:
        """The configuration that the overrides of the resource ask for."""
        start = Configuration.of_spec(self.spec)
        tasks = {
            name: overrides.get(self.ids[name], number)
            for name, number in start.parallelism.items()
        }
        return Configuration(tasks, start.memory_level)

    def realize(self, overrides: Mapping[str, int], arguments: list[str]) -> None:
        self.job_id = self.rest.find_job(self.name).id
        wanted = self.rest.resource_requirements(self.job_id)
        for vertex_id, tasks in overrides.items():
            wanted[vertex_id] = {"parallelism": {"lowerBound": 1, "upperBound": tasks}}
        self.rest.set_resource_requirements(self.job_id, wanted)

    def state(self) -> str:
        try:
            self.job_id = self.rest.find_job(self.name).id
        except FlinkError as error:
            if error.reason == "NotFound":
                return "FAILED"
            raise
        return str(self.rest.get(f"/jobs/{self.job_id}/status")["status"])


class PatientOperator(FlinkOperator):
    """An operator that tries again while Flink is out of reach."""

    def _upgrade(self, body: Document) -> None:
        try:
            super()._upgrade(body)
        except FlinkError:
            self._ending.wait(_RETRY_S)

    def _heartbeat(self, body: Document) -> None:
        try:
            super()._heartbeat(body)
        except FlinkError:
            self._ending.wait(_RETRY_S)


class Person:
    """Starts a job again that a JobManager has forgotten, from its newest state on disk."""

    def __init__(self, rest: FlinkRest, submission: Submission, home: Path) -> None:
        self.rest, self.submission, self._home = rest, submission, home
        self._ids: set[str] = set()
        self.restarts: list[str] = []
        """States that it was started from."""

    def look(self) -> bool:
        """Note the ids of the job; whether there is one that has not ended."""
        named = [job for job in self.rest.jobs() if job.name == self.submission.job_name]
        self._ids |= {job.id for job in named}
        return any(job.state not in ENDED for job in named)

    def start(self, configuration: Configuration) -> None:
        """Submit it from its newest state.

        Raises:
            FlinkError: There is none, or it does not come up.
        """
        newest = self.newest_state()
        if newest is None:
            raise FlinkError(f"no state of {self.submission.job_name} is left")
        self.submission.submit(self.rest, configuration, newest.as_uri())
        self.restarts.append(str(newest))

    def newest_state(self) -> Path | None:
        """The newest checkpoint or savepoint of the job."""
        patterns = [f"checkpoints/{job_id}/chk-*/_metadata" for job_id in self._ids]
        patterns += [f"savepoints/savepoint-{job_id[:6]}-*/_metadata" for job_id in self._ids]
        found = [file for pattern in patterns for file in self._home.glob(pattern)]
        return max(found, key=lambda file: file.stat().st_mtime).parent if found else None


def is_left_to_dsp_gym(journal: Path) -> bool:
    """Whether a process of dsp-gym is at it, or will be when it starts, and has called nobody."""
    left = unfinished(journal) if journal.is_dir() else None
    return left is not None and not left.has_alarmed
