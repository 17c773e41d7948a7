"""A fake Flink that stops jobs with savepoints and submits them: the calls of a resubmission.

A job counts the records that it has taken from its source, a thousand a second; its savepoint holds
that count, and the next job goes on from it. So one sees which records were processed twice, or by
nobody. As Flink does, it takes a job of one id once, and knows a trigger by the id it was given.
"""

from __future__ import annotations

import hashlib
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["RATE_PER_S", "FakeJob", "Pace", "ResubmittingCluster", "check_exactly_once"]

RATE_PER_S = 1000.0
_FIRST_VERTEX = 0xABC


@dataclass(frozen=True)
class Pace:
    """How long things take, s."""

    savepoint_s: float = 0.1
    end_s: float = 0.05  # from the savepoint to the end of the job
    build_s: float = 0.05  # from the request to the job's existence
    start_s: float = 0.1  # until every subtask runs


@dataclass
class FakeJob:
    """One job; times are monotonic seconds."""

    id: str
    arguments: dict[str, str]
    begins_at: int  # first record it takes
    created_s: float
    runs_s: float  # when it begins to take records
    stops_s: float = float("inf")  # when its savepoint is complete
    ends_s: float = float("inf")
    state_at_end: str = "FINISHED"
    triggers: dict[str, str] = field(default_factory=dict)  # location by trigger
    asked_tasks: dict[str, int] = field(default_factory=dict)  # by vertex, where others ask for it

    def records(self, now_s: float) -> int:
        """How many it has taken from the source."""
        return max(0, int((min(now_s, self.stops_s) - self.runs_s) * RATE_PER_S))

    def state(self, now_s: float) -> str:
        if now_s >= self.ends_s:
            return self.state_at_end
        return "RUNNING" if now_s >= self.runs_s else "CREATED"

    def requirements(self) -> dict[str, Any]:
        """As the adaptive scheduler states them."""
        tasks = dict(part.split("=") for part in self.arguments["parallelism"].split(","))
        return {
            f"{number:032x}": {
                "parallelism": {
                    "lowerBound": 1,
                    "upperBound": self.asked_tasks.get(name, int(count)),
                }
            }
            for number, (name, count) in enumerate(tasks.items(), start=_FIRST_VERTEX)
        }


class ResubmittingCluster:
    """A cluster with one jar.

    Args:
        jar: the file; the cluster has it already.
        savepoints: folder that it writes to.
        pace: how long things take.
    """

    silent = False

    def __init__(self, jar: Path, savepoints: Path, pace: Pace | None = None) -> None:
        self.pace = pace or Pace()
        self.savepoints = savepoints
        digest = hashlib.sha256(jar.read_bytes()).hexdigest()[:16]
        self.jar_id = f"{jar.stem}-{digest}.jar"
        self.jobs: dict[str, FakeJob] = {}
        self.checkpointed: set[str] = set()
        """Ids of jobs that have completed a checkpoint of their own."""
        self.slots_available = 64
        self.scheduler = "default"
        self.asked: list[tuple[str, str]] = []
        self._known_ids: set[str] = set()
        self._lock = threading.Lock()

    def start(self, job_id: str, arguments: dict[str, str], begins_at: int = 0) -> FakeJob:
        """A job that runs at once."""
        now_s = time.monotonic()
        self._known_ids.add(job_id)
        self.jobs[job_id] = FakeJob(job_id, arguments, begins_at, now_s, now_s)
        return self.jobs[job_id]

    def forget(self) -> None:
        """Forget ended jobs and finished triggers, as after a restart of the JobManager."""
        now_s = time.monotonic()
        self.jobs = {i: j for i, j in self.jobs.items() if now_s < j.ends_s}
        self._known_ids = set(self.jobs)

    def alive(self) -> list[FakeJob]:
        """Jobs that have not ended."""
        now_s = time.monotonic()
        return [job for job in self.jobs.values() if now_s < job.ends_s]

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Status code and document."""
        if method != "GET":
            self.asked.append((method, path))
        parts = path.partition("?")[0].strip("/").split("/")
        if method == "POST" and parts[:1] == ["jars"]:
            return self._run(body)
        with self._lock:
            if (method == "GET" and parts[0] != "jobs") or path == "/jobs/overview":
                return self._of_cluster(path)
            if method == "POST" and parts[0] == "savepoint-disposal":
                return 202, {"request-id": "disposal"}
            job = self.jobs.get(parts[1])
            if job is None:
                return 404, {"errors": [f"Job {parts[1]} not found"]}
            return self._of_job(method, job, parts[2:], body)

    def _of_cluster(self, path: str) -> tuple[int, Any]:
        now_s, resource = time.monotonic(), {"managedMemory": 64 * 1024}
        unix_s = time.time() - now_s  # of the start of the monotonic clock
        manager = {"freeResource": resource, "totalResource": resource, "slotsNumber": 72}
        found = {
            "/overview": {
                "flink-version": "2.1.0",
                "slots-total": 72,
                "slots-available": self.slots_available,
            },
            "/taskmanagers": {"taskmanagers": [manager]},
            "/taskmanagers/tm/metrics": [],
            "/jobmanager/config": [{"key": "jobmanager.scheduler", "value": self.scheduler}],
            "/jars": {"files": [{"name": self.jar_id, "id": self.jar_id}]},
            "/jobs/overview": {
                "jobs": [
                    {
                        "jid": job.id,
                        "name": job.arguments["job-name"],
                        "state": job.state(now_s),
                        "start-time": round(1000 * (unix_s + job.created_s)),
                    }
                    for job in self.jobs.values()
                ]
            },
        }.get(path.partition("?")[0])
        return (404, {"errors": ["Not found."]}) if found is None else (200, found)

    def _run(self, body: Any) -> tuple[int, Any]:
        """Build the job graph, which takes a while, and take the job."""
        time.sleep(self.pace.build_s)
        given = body["programArgsList"]
        arguments = {k.removeprefix("--"): v for k, v in zip(given[::2], given[1::2], strict=True)}
        job_id = body.get("jobId") or uuid.uuid4().hex
        with self._lock:
            if job_id in self._known_ids:
                trace = "DuplicateJobSubmissionException: Job has already been submitted."
                return 500, {"errors": [trace]}
            begins_at, now_s = 0, time.monotonic()
            if "savepointPath" in body:
                written = Path(body["savepointPath"]) / "_metadata"
                begins_at = int(written.read_text())
            self._known_ids.add(job_id)
            self.jobs[job_id] = FakeJob(
                job_id, arguments, begins_at, now_s, now_s + self.pace.start_s
            )
        return 200, {"jobid": job_id}

    def _of_job(self, method: str, job: FakeJob, rest: list[str], body: Any) -> tuple[int, Any]:
        now_s = time.monotonic()
        match method, rest:
            case "GET", []:
                return 200, self._document(job, now_s)
            case "GET", ["status"]:
                return 200, {"status": job.state(now_s)}
            case "GET", ["resource-requirements"] if self.scheduler == "adaptive":
                return 200, job.requirements()
            case "GET", ["config"]:
                return 200, {"execution-config": {"user-config": job.arguments}}
            case "GET", ["exceptions"]:
                return 200, {"exceptionHistory": {"entries": []}}
            case "GET", ["checkpoints"]:
                path = f"file:{self.savepoints.parent}/checkpoints/{job.id}/chk-1"
                done = {"external_path": path} if job.id in self.checkpointed else None
                return 200, {"latest": {"completed": done, "savepoint": None}, "history": []}
            case "GET", ["vertices", _]:
                times = {"DEPLOYING": 0, "INITIALIZING": 0}
                start_ms = round(1000 * job.runs_s)
                one = {"taskmanager-id": "tm", "start-time": start_ms, "status-duration": times}
                return 200, {"subtasks": [one]}
            case "GET", ["vertices", _, "metrics"]:
                return 200, []
            case "GET", ["savepoints", trigger]:
                return self._trigger(job, trigger, now_s)
            case "POST", ["stop"]:
                return self._stop(job, body, now_s)
            case "PATCH", []:
                job.stops_s, job.ends_s, job.state_at_end = now_s, now_s, "CANCELED"
                return 202, {}
        return 404, {"errors": ["Not found."]}

    def _stop(self, job: FakeJob, body: Any, now_s: float) -> tuple[int, Any]:
        trigger = body["triggerId"]
        if trigger not in job.triggers:
            if job.triggers or job.state(now_s) != "RUNNING":
                return 409, {"errors": ["The job is not running, or stops already."]}
            job.stops_s = now_s + self.pace.savepoint_s
            job.ends_s = job.stops_s + self.pace.end_s
            folder = self.savepoints / f"savepoint-{job.id[:6]}-{trigger[:12]}"
            job.triggers[trigger] = str(folder)
            count = job.begins_at + job.records(job.stops_s)
            threading.Timer(self.pace.savepoint_s, _write, (folder, count)).start()
        return 202, {"request-id": trigger}

    def _trigger(self, job: FakeJob, trigger: str, now_s: float) -> tuple[int, Any]:
        location = job.triggers.get(trigger)
        if location is None:
            return 404, {"errors": [f"Trigger {trigger} not found"]}
        if not (Path(location) / "_metadata").exists():
            return 200, {"status": {"id": "IN_PROGRESS"}}
        return 200, {"status": {"id": "COMPLETED"}, "operation": {"location": location}}

    def _document(self, job: FakeJob, now_s: float) -> dict[str, Any]:
        state = job.state(now_s)
        tasks = dict(part.split("=") for part in job.arguments["parallelism"].split(","))
        vertices = [
            {
                "id": f"{number:032x}",
                "name": name,
                "parallelism": int(count),
                "tasks": {"RUNNING": int(count)} if state == "RUNNING" else {},
            }
            for number, (name, count) in enumerate(tasks.items(), start=_FIRST_VERTEX)
        ]
        ended_ms = round(1000 * job.ends_s) if now_s >= job.ends_s else -1
        return {
            "jid": job.id,
            "name": job.arguments["job-name"],
            "state": state,
            "end-time": ended_ms,
            "timestamps": {"CREATED": round(1000 * job.created_s)},
            "vertices": vertices,
        }


def check_exactly_once(cluster: ResubmittingCluster) -> None:
    """One job runs; every record was taken once, by the job before or by the one after it."""
    (runs,) = cluster.alive()
    now_s = time.monotonic()
    assert runs.state(now_s) == "RUNNING"
    expected = 0
    for job in sorted(cluster.jobs.values(), key=lambda one: one.runs_s):
        if job.records(now_s) > 0:
            assert job.begins_at == expected
            expected = job.begins_at + job.records(now_s)
    assert expected == runs.begins_at + runs.records(now_s) > 0


def _write(folder: Path, count: int) -> None:
    folder.mkdir(parents=True)
    (folder / "_metadata.part").write_text(str(count))
    (folder / "_metadata.part").replace(folder / "_metadata")
