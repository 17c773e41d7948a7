"""Flink's REST interface, as far as this project uses it."""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from dsp_gym.backends.flink.answers import JobAnswer, ManagerAnswer, Overview, taken_apart
from dsp_gym.backends.upstream.access import AccessConfig
from dsp_gym.backends.upstream.answers import Diagnosis, is_page, of_error, of_page, of_status
from dsp_gym.backends.upstream.timed_calls import LateError
from dsp_gym.config.strict_json import Document, Json, parse_json
from dsp_gym.errors import FlinkError, MissingExtraError
from dsp_gym.metrics.flink import cleaned

if TYPE_CHECKING:
    from dsp_gym.backends.upstream.session import BoundedSession

ENDED = frozenset({"FAILED", "CANCELED", "FINISHED", "SUSPENDED"})
"""States a job does not leave."""

_RUN_TIMEOUT_S = 60.0
"""For what builds a job graph in the JobManager: seconds on two busy cores."""

_POLL_S = 0.25

_NEVER_MS = 2**63 - 1
"""The interval of checkpoints of a job that writes none by itself."""

_LONGEST = 300
"""Characters of what Flink says is wrong."""


@dataclass(frozen=True, slots=True)
class JobSummary:
    """One job the cluster knows."""

    id: str
    name: str
    state: str
    start_s: float  # Unix seconds


@dataclass(frozen=True, slots=True)
class Jar:
    """One jar that the cluster has."""

    id: str
    name: str  # of the file
    entries: tuple[str, ...]  # main classes of its manifest


@dataclass(frozen=True, slots=True)
class JobPlan:
    """The job that a jar would submit."""

    name: str
    parallelism: Mapping[str, int]  # by id of the vertex


def bearing(name: str, jobs: Sequence[JobSummary]) -> list[JobSummary]:
    """Choose the jobs of a name, as Flink has it or as its Prometheus reporter writes it.

    Returns:
        Those of the very name; where there is none, those whose name reaches Prometheus as this.
    """
    exact = [job for job in jobs if job.name == name]
    return exact or [job for job in jobs if cleaned(job.name) == name]


@dataclass(frozen=True, slots=True)
class SavepointStatus:
    """How far a savepoint is."""

    done: bool
    location: str | None  # where it was written; None while under way and when it failed
    failure: str | None  # root cause in one line


class FlinkRest:
    """One Flink cluster. Whatever goes wrong is a `FlinkError` that names the address asked.

    Args:
        url: of its REST interface.
        timeout_s: longest wait for a whole answer, s.
        access: account, certificates and proxy; None: those of the address, or of the environment.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8081",
        timeout_s: float = 10.0,
        access: AccessConfig | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self.timeout_s = timeout_s
        self.access = access

    @cached_property
    def session(self) -> BoundedSession:
        """The connections to it."""
        try:
            from dsp_gym.backends.upstream.session import BoundedSession
        except ImportError as error:
            raise MissingExtraError("flink", "talking to Flink") from error
        # A connection each: one that was kept may be dead by the time that a rescale needs it.
        return BoundedSession(self.access, "rest_account", keeps=False)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Take answers apart in this block: one of another shape than Flink's is a `FlinkError`.

        Yields:
            None.
        """
        with taken_apart(
            f"{self.url} answered something that is not Flink's",
            "Another program listens there, or a release of Flink that is not known; name the "
            "address of Flink's REST interface.",
        ):
            yield

    def get(self, path: str) -> Json:
        """Get the document at a path.

        Returns:
            The parsed JSON.
        """
        return self._call("GET", path)

    def post(self, path: str, body: object = None, timeout_s: float | None = None) -> Json:
        """Post a JSON document.

        Returns:
            The parsed answer.
        """
        return self._call("POST", path, body, timeout_s)

    def put(self, path: str, body: object) -> Json:
        """Put a JSON document.

        Returns:
            The parsed answer.
        """
        return self._call("PUT", path, body)

    def patch(self, path: str, body: object = None) -> Json:
        """Patch with a JSON document.

        Returns:
            The parsed answer.
        """
        return self._call("PATCH", path, body)

    def overview(self) -> Overview:
        """Ask for Flink's version, slots and TaskManagers (`/overview`).

        Returns:
            The answer; values by Flink's names.
        """
        answer: Overview = self.get("/overview")
        return answer

    def jobs(self) -> list[JobSummary]:
        """List every job the cluster remembers, ended ones too.

        Returns:
            Id, name, state and start of each.
        """
        with self.reading():
            return [
                JobSummary(
                    str(job["jid"]), str(job["name"]), str(job["state"]), job["start-time"] / 1000
                )
                for job in self.get("/jobs/overview")["jobs"]
            ]

    def find_job(self, name: str) -> JobSummary:
        """Find the one job of that name that has not ended.

        Returns:
            The job.

        Raises:
            FlinkError: No job of that name is running, or several are.
        """
        jobs = [job for job in self.jobs() if job.state not in ENDED]
        named = bearing(name, jobs)
        if len(named) == 1:
            return named[0]
        if named:
            raise self.ambiguous(name, named)
        raise self.missing(name, jobs)

    def missing(self, name: str, running: Sequence[JobSummary]) -> FlinkError:
        """Make the error of a job that does not run."""
        names = ", ".join(sorted({job.name for job in running})) or "none"
        return FlinkError(
            f"{self.url}: no job named {name!r} runs; running: {names}",
            reason="NotFound",
            remedy="Submit it: dsp-gym flink submit JOB; a job that has run before needs "
            "--savepoint PATH, or its state starts empty.",
        )

    def ambiguous(self, name: str, named: Sequence[JobSummary]) -> FlinkError:
        """Make the error of a name that several running jobs bear."""
        ids = ", ".join(job.id for job in named)
        return FlinkError(
            f"{self.url}: {len(named)} jobs are named {name!r}: {ids}",
            remedy="Say which one by its id: where.job_id in a configuration, the id in place of "
            "the name on the command line. To act on one, stop the others: dsp-gym flink down "
            "--job JOB_ID",
        )

    def job(self, job_id: str) -> JobAnswer:
        """Ask for one job.

        Returns:
            Its vertices, and when it entered each state, ms of Unix time.

        Raises:
            FlinkError: It was answered about another job.
        """
        answer: JobAnswer = self.get(f"/jobs/{job_id}")
        with self.reading():
            answered = str(answer.get("jid", job_id))
        if answered != job_id:
            raise FlinkError(
                f"{self.url}: asked for job {job_id}, answered about job {answered} "
                f"({answer.get('name', '')!r})",
                reason="Conflict",
                remedy="A proxy or a service there leads to another cluster: name the address of "
                "the job's own JobManager.",
            )
        return answer

    def checkpoints(self, job_id: str) -> Document:
        """Ask for the statistics of a job's checkpoints.

        Returns:
            Flink's answer.
        """
        answer: Document = self.get(f"/jobs/{job_id}/checkpoints")
        return answer

    def has_checkpoint(self, job_id: str) -> bool:
        """Ask whether a job has completed a checkpoint itself, not only taken over another's.

        Returns:
            True where it has gone on from the state it was started with.
        """
        latest = self.checkpoints(job_id)["latest"]
        return latest["completed"] is not None

    def checkpoints_itself(self, job_id: str) -> bool:
        """Ask whether a job writes checkpoints by itself, from time to time.

        Returns:
            False where only savepoints are taken of it.
        """
        config = self._checkpointing(job_id)
        if config is None:
            return False
        with self.reading():
            return int(config["interval"]) < _NEVER_MS

    def checkpoints_after_ends(self, job_id: str) -> bool:
        """Ask whether checkpoints and savepoints are possible once a task has read all there was.

        Returns:
            True, Flink's default, also where it does not tell.
        """
        config = self._checkpointing(job_id) or {}
        return config.get("checkpoints_after_tasks_finish") is not False

    def _checkpointing(self, job_id: str) -> Json:
        """How a job writes checkpoints; None where it writes none."""
        try:
            return self.get(f"/jobs/{job_id}/checkpoints/config")
        except FlinkError as error:
            if error.reason != "NotFound":
                raise
            return None

    def arguments(self, job_id: str) -> dict[str, str]:
        """Ask for the program arguments that a job of ours was submitted with.

        Returns:
            Value by argument.
        """
        with self.reading():
            config = self.get(f"/jobs/{job_id}/config").get("execution-config") or {}
            return {key: str(value) for key, value in (config.get("user-config") or {}).items()}

    def exceptions(self, job_id: str) -> str | None:
        """Ask for the newest failure of a job.

        Returns:
            Its root cause in one line; None without a failure.
        """
        with self.reading():
            answer = self.get(f"/jobs/{job_id}/exceptions?maxExceptions=1")
            entries = (answer.get("exceptionHistory") or {}).get("entries") or []
            trace = entries[0].get("stacktrace") if entries else answer.get("root-exception")
            return root_cause(trace) if trace else None

    def upload_jar(self, path: Path) -> str:
        """Upload a jar, unless the cluster has one of the same content.

        Returns:
            The jar's id.
        """
        try:
            content = path.read_bytes()
        except OSError as error:
            raise FlinkError(
                f"cannot be read: {error.strerror}", file=path, remedy="Build it: make flink-jobs"
            ) from error
        name = f"{path.stem}-{hashlib.sha256(content).hexdigest()[:16]}.jar"
        for known in self.jars():
            if known.name == name:
                return known.id
        boundary = uuid.uuid4().hex
        head = (
            f"--{boundary}\r\n"
            f'Content-Disposition: form-data; name="jarfile"; filename="{name}"\r\n'
            "Content-Type: application/java-archive\r\n\r\n"
        )
        body = head.encode() + content + f"\r\n--{boundary}--\r\n".encode()
        kind = f"multipart/form-data; boundary={boundary}"
        answer = self._send("POST", "/jars/upload", body, kind, _RUN_TIMEOUT_S)
        with self.reading():
            return Path(answer["filename"]).name

    def jars(self) -> list[Jar]:
        """List the jars that were uploaded.

        Returns:
            Id, name and main classes of each.
        """
        with self.reading():
            return [
                Jar(
                    str(one["id"]),
                    str(one["name"]),
                    tuple(str(entry["name"]) for entry in one.get("entry") or ()),
                )
                for one in self.get("/jars")["files"]
            ]

    def plan(self, jar_id: str, run: Mapping[str, object]) -> JobPlan:
        """Ask for the job that a jar would submit; its main class is run up to the submission.

        Args:
            jar_id: the jar.
            run: what `run_program` would post.

        Returns:
            Name of the job, and the parallelism of its vertices.
        """
        with self.reading():
            plan = self.post(f"{_path_of(jar_id)}/plan", dict(run), _RUN_TIMEOUT_S)["plan"]
            tasks = {str(node["id"]): int(node["parallelism"]) for node in plan["nodes"]}
            return JobPlan(str(plan["name"]), tasks)

    def run_jar(
        self,
        jar_id: str,
        entry_class: str,
        arguments: Sequence[str],
        savepoint: str | None = None,
        job_id: str | None = None,
    ) -> str:
        """Submit the job that a jar's main class builds.

        Returns:
            The job's id, as `run_program`.
        """
        run = {"entryClass": entry_class, "programArgsList": list(arguments)}
        return self.run_program(jar_id, run, savepoint, job_id)

    def run_program(
        self,
        jar_id: str,
        run: Mapping[str, object],
        savepoint: str | None = None,
        job_id: str | None = None,
    ) -> str:
        """Submit the job that a jar builds.

        Flink takes a job of one id once: with an id of ours, asking again doubles nothing.

        Args:
            jar_id: the jar.
            run: main class, arguments and options, by Flink's names.
            savepoint: what it starts from; None: empty state.
            job_id: of the job; None: Flink chooses one.

        Returns:
            The job's id.
        """
        body: dict[str, object] = dict(run)
        if savepoint is not None:
            body["savepointPath"] = savepoint
        if job_id is not None:
            body["jobId"] = job_id
        with self.reading():
            return str(self.post(f"{_path_of(jar_id)}/run", body, _RUN_TIMEOUT_S)["jobid"])

    def stop_with_savepoint(
        self, job_id: str, directory: str, trigger_id: str | None = None
    ) -> str:
        """Ask a job to write a savepoint and end.

        Flink takes a trigger id it has seen before for the same request.

        Returns:
            The trigger's id, for `savepoint`.
        """
        body: dict[str, object] = {"targetDirectory": directory, "drain": False}
        if trigger_id is not None:
            body["triggerId"] = trigger_id
        with self.reading():
            return str(self.post(f"/jobs/{job_id}/stop", body)["request-id"])

    def savepoint(self, job_id: str, trigger_id: str) -> SavepointStatus:
        """Ask how far a savepoint is.

        Returns:
            Whether it is done, where it is, and why it failed.
        """
        with self.reading():
            answer = self.get(f"/jobs/{job_id}/savepoints/{trigger_id}")
            done = answer["status"]["id"] == "COMPLETED"
            operation = answer.get("operation") or {}
            cause = operation.get("failure-cause")
            told = "" if not cause else cause.get("stack-trace") or cause.get("class", "")
            failure = root_cause(told) if cause else None
            location = operation.get("location")
            return SavepointStatus(done, None if location is None else str(location), failure)

    def cancel(self, job_id: str) -> None:
        """Ask a job to end now, without a savepoint."""
        self.patch(f"/jobs/{job_id}?mode=cancel")

    def wait_for(self, job_id: str, states: Container[str], timeout_s: float) -> str:
        """Wait until a job is in one of some states, or has ended.

        Returns:
            The state it is in.

        Raises:
            FlinkError: The job reached none of the states in time.
        """
        for _ in until_timeout(timeout_s):
            with self.reading():
                state = str(self.job(job_id)["state"])
            if state in states or state in ENDED:
                return state
        raise FlinkError(
            f"{self.url}: job {job_id} is still {state} after {timeout_s:g} s",
            reason="Timeout",
            remedy=f"Look at {self.url}/#/job/running/{job_id}/overview",
        )

    def scheduler(self) -> str:
        """Ask which scheduler the cluster's jobs have.

        Returns:
            Flink's word, such as adaptive; `default` where the cluster does not say.
        """
        return self.settings().get("jobmanager.scheduler", "default").lower()

    def settings(self) -> dict[str, str]:
        """Ask for the configuration of the JobManager.

        Returns:
            Value by option; empty where the cluster does not show it.
        """
        try:
            settings = self.get("/jobmanager/config")
        except FlinkError as error:
            if error.reason != "NotFound":
                raise
            return {}
        with self.reading():
            return {str(one["key"]): str(one["value"]) for one in settings}

    def resource_requirements(self, job_id: str) -> Document:
        """Ask for the bounds of each vertex's parallelism (adaptive scheduler).

        Returns:
            Bounds by Flink's vertex id.
        """
        with self.reading():
            return dict(self.get(f"/jobs/{job_id}/resource-requirements"))

    def set_resource_requirements(self, job_id: str, body: Mapping[str, object]) -> None:
        """Set the bounds of every vertex's parallelism (adaptive scheduler)."""
        self.put(f"/jobs/{job_id}/resource-requirements", dict(body))

    def taskmanagers(self) -> list[ManagerAnswer]:
        """List every TaskManager.

        Returns:
            Slots, memory, and free and total resources of each.
        """
        with self.reading():
            return list(self.get("/taskmanagers")["taskmanagers"])

    def state(self, job_id: str) -> str:
        """Ask for the state of a job now; unlike `job`, Flink has no cache for this.

        Returns:
            Flink's word, such as RUNNING.
        """
        with self.reading():
            return str(self.get(f"/jobs/{job_id}/status")["status"])

    def free_slots(self) -> int:
        """Count the task slots that no job holds.

        Returns:
            Task slots.
        """
        with self.reading():
            return int(self.overview()["slots-available"])

    def latest(self, job_id: str, kind: str) -> Document | None:
        """Ask for the statistics of a job's last checkpoint of a kind.

        Args:
            job_id: the job.
            kind: completed, or savepoint.

        Returns:
            Flink's statistics; None without such a checkpoint.
        """
        with self.reading():
            found = self.checkpoints(job_id)["latest"][kind]
            return dict(found) if found else None

    def _call(
        self, method: str, path: str, body: object = None, timeout_s: float | None = None
    ) -> Json:
        data = None if body is None else json.dumps(body).encode()
        return self._send(method, path, data, "application/json", timeout_s)

    def _send(
        self, method: str, path: str, data: bytes | None, kind: str, timeout_s: float | None = None
    ) -> Json:
        url = f"{self.url}/{path.lstrip('/')}"
        headers = {"Connection": "close"} | ({} if data is None else {"Content-Type": kind})
        limit_s = timeout_s or self.timeout_s
        try:
            answer = self.session.ask(method, url, limit_s, data=data, headers=headers)
        except (OSError, LateError, ValueError) as error:
            raise _failed(f"{method} {url}", of_error(error, key="rest_account")) from error
        if answer.status >= 300:
            credentials = self.session.credentials
            found = of_status(
                answer.status,
                answer.content,
                answer.headers,
                key="rest_account" if credentials.access.file is not None else "",
                trouble=credentials.trouble,
            )
            if found is not None and not _is_flinks(answer.content):
                raise _failed(f"{method} {url}", found)
            raise FlinkError(
                f"{method} {url} answered {answer.status}: {_first_error(answer.content)}",
                reason="NotFound" if answer.status == 404 else "Other",
                remedy=_REMEDIES.get(answer.status),
            )
        if is_page(answer.content, answer.headers):
            found = of_page(answer.content)
            raise FlinkError(f"{method} {url} {found.said}", remedy=found.remedy)
        try:
            return parse_json(answer.content) if answer.content else {}
        except ValueError as error:
            raise FlinkError(
                f"{method} {url} answered something that is not JSON: {answer.content[:80]!r}",
                remedy="Another program listens there; name the address of Flink's REST interface.",
            ) from error


def _path_of(jar_id: str) -> str:
    """The path of a jar, whose id holds the name of its file."""
    return f"/jars/{quote(jar_id, safe='')}"


def _failed(asked: str, trouble: Diagnosis) -> FlinkError:
    """The error for a question without an answer of Flink's."""
    is_up = trouble.reason in ("Unreachable", "Timeout", "Other")
    ask = "Is the cluster up? dsp-gym flink status (start it: dsp-gym flink up)"
    remedy = trouble.remedy or (ask if is_up else None)
    return FlinkError(f"{asked}: {trouble.said}", reason=trouble.reason, remedy=remedy)


def _is_flinks(content: bytes) -> bool:
    """Whether an error is Flink's own, and says more than its status does."""
    return content[:200].lstrip().startswith(b'{"errors"')


_REMEDIES = {
    404: "Flink forgets jobs when it restarts: dsp-gym flink status lists what it knows.",
    503: "The cluster is starting or ending; try again in a few seconds.",
}


def until_timeout(timeout_s: float, pause_s: float = _POLL_S) -> Iterator[None]:
    """Repeat a look until the time is over, with a pause after each; there is one at least."""
    end_s = time.monotonic() + timeout_s
    while True:
        yield
        if time.monotonic() > end_s:
            return
        time.sleep(pause_s)


def root_cause(trace: str) -> str:
    r"""The last cause in a Java stack trace, in one line and without its package.

    Returns:
        The name of the exception and its text; the trace itself where it holds no cause.

    >>> root_cause("a.b.Outer: late\n\tat x.y(Z.java:1)\nCaused by: a.b.Inner: no slots\n\tat x.y")
    'Inner: no slots'
    """
    lines = [line.strip() for line in trace.replace("\r", "").split("\n")]
    lines = [line for line in lines if line and not line.startswith(("at ", "... "))]
    causes = [line for line in lines if line.startswith("Caused by: ")] or lines[:1]
    last = causes[-1].removeprefix("Caused by: ") if causes else trace.strip()
    name, colon, text = last.partition(":")
    short = name.rpartition(".")[2] if " " not in name else name
    return f"{short}{colon}{text}"


def _first_error(body: bytes) -> str:
    """What Flink says is wrong, in one line; its list ends with the server's stack trace."""
    try:
        errors = parse_json(body)["errors"]
        text = [str(error) for error in errors if error]
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace").strip() or "nothing"
    trace = next((error for error in text if "Caused by: " in error), None)
    if trace is not None:
        return root_cause(
            trace.replace("<Exception on server side:", "").removesuffix(
                "End of exception on server side>"
            )
        )[:_LONGEST]
    return root_cause(text[0])[:_LONGEST] if text else "nothing"
