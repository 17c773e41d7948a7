"""One job of a Flink cluster, followed by name: it has another id after every resubmission."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence

from dsp_gym.backends.flink.answers import JobAnswer, VertexAnswer, vertices_of
from dsp_gym.backends.flink.rest import ENDED, FlinkRest, JobSummary, bearing
from dsp_gym.backends.flink.source import RealJob
from dsp_gym.backends.flink.submission import all_running, running_levels
from dsp_gym.backends.upstream.timed_calls import deadline
from dsp_gym.config.strict_json import Document
from dsp_gym.errors import FlinkError
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.snapshot import Status
from dsp_gym.metrics.window import Observed

_LOG = logging.getLogger(__name__)

UNKNOWN = float("nan")

MOST_PARALLELISM = 2**15
"""Of a vertex; Flink has no more key groups."""


class FlinkJob(RealJob):
    """Follows the one job of a name over restarts and resubmissions.

    Args:
        rest: The cluster's REST interface.
        name: Name of the job.
        spec: Its job file.
        own_id: Its id now, where several jobs bear the name; None: only one may.
        submitted: Ids that it had since, as a journal has them.
    """

    def __init__(
        self,
        rest: FlinkRest,
        name: str,
        spec: JobSpec,
        own_id: str | None = None,
        submitted: Collection[str] = (),
    ) -> None:
        super().__init__(name, spec)
        self.rest = rest
        self._own_id = own_id
        self._submitted = frozenset(submitted)
        self._has_met = False  # whether it has been seen, under whatever id
        self._others: frozenset[str] = frozenset()  # ids that have run beside it
        self._run: tuple[str, float] | None = None  # id and running since, of the run seen last
        self._seen_running_s = UNKNOWN
        self._outage_s = self._resumed_from_s = UNKNOWN
        self._tm_count = UNKNOWN
        self._running: Mapping[str, int] = {}
        self._parallelism: Mapping[str, int] = {v.name: v.parallelism for v in spec.vertices}
        self._memory_level: Mapping[str, int] = {}
        self._levels_of: str | None = None  # the id whose arguments said so
        self._besides: tuple[str, ...] = ()  # vertices that are not in the job file

    @property
    def job_id(self) -> str:
        """Id of the job that bears the name now.

        Raises:
            FlinkError: None or several do, or Flink does not answer.
        """
        running = [job for job in self.rest.jobs() if job.state not in ENDED]
        own = self._own(bearing(self.name, running))
        if own is None:
            raise self.rest.missing(self.name, running)
        return self._remembered(own)

    def _own(self, named: Sequence[JobSummary]) -> str | None:
        """Choose this job among those of its name that have not ended.

        A job that is submitted again has another id: it is the one that did not run beside the
        former. Before the job was seen, that is the one that started after the former had ended.

        Returns:
            Its id; None where it does not run.

        Raises:
            FlinkError: It may be one or another.
        """
        ids = {job.id for job in named}
        if self._own_id is None:
            candidates = ids
        elif self._has_met:
            candidates = ids & {self._own_id} or ids - self._others
        else:
            candidates = ids & {self._own_id} or self._successors(self._own_id, named)
        if len(candidates) > 1:
            raise self.rest.ambiguous(self.name, named)
        for own in candidates:
            self._has_met = True
            if self._own_id is not None:
                self._own_id, self._others = own, frozenset(ids - candidates)
            return own
        return None

    def _successors(self, own_id: str, named: Sequence[JobSummary]) -> set[str]:
        """Choose the jobs that can be this one, submitted again while nobody looked."""
        ended_s = self._ended_s(own_id)  # NaN where Flink does not know it
        found = {j.id for j in named if j.id in self._submitted or j.start_s >= ended_s}
        if named and not found:
            if len(named) > 1:
                raise self.rest.ambiguous(self.name, named)
            raise FlinkError(
                f"{self.rest.url}: job {own_id} does not run, and job {named[0].id} of its name, "
                f"{self.name!r}, may be another: nothing shows that it was started afterwards",
                reason="NotFound",
                remedy="If it is the same job, put its id into where.job_id.",
            )
        return found

    def vertex_ids(self, job_id: str) -> dict[str, str]:
        """Flink's ids of the vertices of the job file.

        Returns:
            Id by the vertex's name.
        """
        with self.rest.reading():
            return {n: str(v["id"]) for n, v in self._vertices(self.rest.job(job_id)).items()}

    def observe(self, now_s: float) -> Observed:
        """Look at the job.

        While Flink does not answer, the status is RESTARTING and the rest is what was known last.

        Returns:
            Status and configuration at `now_s`, Unix seconds.

        Raises:
            FlinkError: Several jobs bear the name.
        """
        with deadline(self.rest.timeout_s):
            return self._observed(now_s)

    def _observed(self, now_s: float) -> Observed:
        self.trouble = None
        try:
            jobs = self.rest.jobs()
        except FlinkError as error:
            self.trouble = error
            return self._known(now_s, Status.RESTARTING)
        mine = bearing(self.name, jobs)
        job_id = self._own([job for job in mine if job.state not in ENDED])
        if job_id is None:
            # A JobManager that lost its leadership suspends a job; the next one runs it.
            is_suspended = any(job.state == "SUSPENDED" for job in mine)
            return self._known(now_s, Status.RESTARTING if is_suspended else Status.FAILED)
        try:
            return self._known(now_s, self._look(self._remembered(job_id), now_s))
        except FlinkError as error:
            self.trouble = error
            return self._known(now_s, Status.RESTARTING)

    def _known(self, now_s: float, status: Status) -> Observed:
        since_s = now_s if self._run is None else min(now_s, self._run[1])
        return Observed(
            t_s=now_s,
            status=status,
            running_since_s=since_s,
            parallelism=self._parallelism,
            memory_level=self._memory_level,
            outage_s=self._outage_s,
            resumed_from_s=self._resumed_from_s,
            tm_count=self._tm_count,
            running=self._running,
        )

    def _look(self, job_id: str, now_s: float) -> Status:
        """Take in what Flink says of a job that has not ended."""
        with self.rest.reading():
            return self._taken_in(self.rest.job(job_id), job_id, now_s)

    def _taken_in(self, job: JobAnswer, job_id: str, now_s: float) -> Status:
        vertices = self._vertices(job)
        self._tm_count = float(len(self.rest.taskmanagers()))
        if self._levels_of != job_id:
            self._memory_level = running_levels(self.rest, job_id, self.spec)
            self._levels_of = job_id
        # While it waits for resources, the adaptive scheduler knows no parallelism.
        seen = {name: int(vertex["parallelism"]) for name, vertex in vertices.items()}
        if max(seen.values(), default=0) > MOST_PARALLELISM:
            raise ValueError(f"a parallelism of {max(seen.values())}")
        self._parallelism = {**self._parallelism, **{n: p for n, p in seen.items() if p > 0}}
        self._running = {
            name: int(vertex["tasks"].get("RUNNING", 0))
            for name, vertex in vertices.items()
            if vertex["tasks"].get("FINISHED", 0)
        }
        if not all_running(job):
            return Status.RESTARTING
        since_s = self._running_since_s(job)
        checkpoints = self.rest.checkpoints(job_id)
        if self._run != (job_id, since_s):
            before_id = job_id if self._run is None else self._run[0]
            self._outage_s = since_s - self._stopped_s(job, since_s)
            before = checkpoints if before_id == job_id else self._checkpoints_of(before_id)
            self._resumed_from_s = _taken_s(_latest(checkpoints, "restored"), before)
            self._run = (job_id, since_s)
        self._seen_running_s = now_s
        return Status.SAVEPOINTING if _is_savepointing(checkpoints) else Status.RUNNING

    def _vertices(self, job: JobAnswer) -> dict[str, VertexAnswer]:
        """Flink's vertices by their name in the job file."""
        names = [vertex.name for vertex in self.spec.vertices]
        found = vertices_of(job, self.spec)
        missing = [name for name in names if name not in found]
        if missing:
            raise FlinkError(
                f"{self.rest.url}: job {self.name!r} has no vertex {missing[0]!r}, it has: "
                f"{', '.join(vertex['name'] for vertex in job['vertices'])}",
                remedy=f"Name the job file that describes it; this one is {self.spec.job!r}.",
            )
        self._tell_unknown(job, {str(vertex["id"]) for vertex in found.values()})
        return {name: found[name] for name in names}

    def _tell_unknown(self, job: JobAnswer, known: set[str]) -> None:
        """Say once which vertices of the job are not in the job file."""
        besides = tuple(
            vertex["name"]
            for vertex in job["vertices"]
            # The committer of a sink carries no records.
            if vertex["id"] not in known and "Committer" not in vertex["name"]
        )
        if besides and besides != self._besides:
            _LOG.warning(
                "%s: job %r has vertices that the job file %r has not: %s; they are not watched. "
                "dsp-gym discover writes a file of the present graph.",
                self.rest.url,
                self.name,
                self.spec.job,
                ", ".join(map(repr, besides)),
            )
        self._besides = besides

    def _running_since_s(self, job: JobAnswer) -> float:
        """When the last subtask began to run, its state restored."""
        latest_ms = 0
        for vertex in job["vertices"]:
            times = self.rest.get(f"/jobs/{job['jid']}/vertices/{vertex['id']}/subtasktimes")
            for subtask in times["subtasks"]:
                latest_ms = max(latest_ms, int(subtask["timestamps"].get("RUNNING", 0)))
        return latest_ms / 1000.0

    def _stopped_s(self, job: JobAnswer, since_s: float) -> float:
        """When the run before the one since `since_s` ended; NaN where that is not known."""
        restarting_s = int(job["timestamps"].get("RESTARTING", 0)) / 1000.0
        before_s = 0.0
        if self._run is not None:
            before_id, before_s = self._run
            if before_id != job["jid"]:
                return self._ended_s(before_id)
        if before_s < restarting_s <= since_s:
            return restarting_s
        # The adaptive scheduler rebuilds the job, and forgets when the old one left RUNNING.
        created_s = int(job["timestamps"].get("CREATED", 0)) / 1000.0
        return created_s if before_s < created_s <= since_s else self._seen_running_s

    def _ended_s(self, job_id: str) -> float:
        try:
            ended_ms = int(self.rest.job(job_id).get("end-time", -1))
        except FlinkError:  # a restarted JobManager does not know it
            ended_ms = -1
        return ended_ms / 1000.0 if ended_ms > 0 else self._seen_running_s

    def _checkpoints_of(self, job_id: str) -> Document:
        try:
            return self.rest.checkpoints(job_id)
        except FlinkError:  # a restarted JobManager does not know it
            return {}


def _taken_s(restored: Document | None, known: Document) -> float:
    """When the checkpoint was taken that a job resumed from; NaN where Flink has forgotten it.

    Args:
        restored: The checkpoint; None: the job began without one.
        known: Checkpoints of the id that the job had when it was taken.
    """
    last = (_latest(known, kind) for kind in ("completed", "savepoint"))
    for one in (*known.get("history", ()), *last):
        if restored is not None and one is not None and one["id"] == restored["id"]:
            return int(one["trigger_timestamp"]) / 1000.0
    return UNKNOWN


def _latest(checkpoints: Document, kind: str) -> Document | None:
    found: Document | None = (checkpoints.get("latest") or {}).get(kind)
    return found


def _is_savepointing(checkpoints: Document) -> bool:
    history = checkpoints.get("history", [])
    return any(c.get("is_savepoint") and c.get("status") == "IN_PROGRESS" for c in history)
