"""A job as it is submitted to a real Flink: its program, its load, and its configuration."""

from __future__ import annotations

import hashlib
import math
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from dsp_gym.backends.flink.answers import JobAnswer, VertexAnswer, vertices_of
from dsp_gym.backends.flink.rest import ENDED, FlinkRest
from dsp_gym.config.files import write_atomic
from dsp_gym.errors import ConfigError, FlinkError
from dsp_gym.job.deployment import slot_levels
from dsp_gym.job.memory import NO_MEMORY
from dsp_gym.job.spec import FlinkProgram, JobSpec
from dsp_gym.loop.configuration import Configuration

__all__ = [
    "levels_named",
    "Configuration",
    "Submission",
    "all_running",
    "load_arguments",
    "running_levels",
    "unready",
]

_CONFIGURED = ("parallelism", "managed-mib", "slot-sharing", "job-name")
"""Arguments that follow from the configuration and the name, not from the load."""

PATIENCE_S = 25.0
"""How long a job may fail or lack slots on its way up: those of its predecessor come free."""

_POLL_S = 0.25


@dataclass(frozen=True, slots=True)
class Submission:
    """Everything about a job that stays the same over its resubmissions.

    `arguments` are those of the load (rate or load file, epoch, seed) and any that differ from the
    job file's.
    """

    spec: JobSpec
    job_name: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    slot_sharing: str = "per-vertex"  # or "default"

    @property
    def moves_memory(self) -> bool:
        """Whether it asks for the managed memory of each vertex."""
        return True

    @property
    def patience_s(self) -> float | None:
        """How long it may run otherwise than asked for, s; None: as long as it may come up."""
        return PATIENCE_S

    @classmethod
    def of_spec(
        cls, spec: JobSpec, arguments: Mapping[str, str], job_name: str | None = None
    ) -> Submission:
        """A job file under a load.

        Returns:
            The submission, named as the job file names the job unless `job_name` is given.
        """
        return cls(spec, job_name or spec.job, dict(arguments), slot_sharing_of(spec))

    @property
    def program(self) -> FlinkProgram:
        """The `flink` section of the job file.

        Raises:
            ConfigError: The job file has no `flink` section.
        """
        if self.spec.flink is None:
            raise ConfigError(
                f"the job {self.spec.job!r} can only be simulated: its file has no 'flink' section",
                remedy="Take a job that has one, such as flink-q5 (dsp-gym list jobs).",
            )
        return self.spec.flink

    def program_arguments(self, configuration: Configuration) -> list[str]:
        """The command line of the job's program.

        Returns:
            Options and values in turn, as `--key`, `value`.
        """
        program = self.program
        pairs: dict[str, str] = {"program": program.program, "job-name": self.job_name}
        pairs["parallelism"] = _listed(configuration.parallelism)
        managed = configuration.managed_mib(self.spec)
        if managed:
            pairs["managed-mib"] = _listed({name: round(mib) for name, mib in managed.items()})
        pairs["slot-sharing"] = self.slot_sharing
        pairs |= {key: _text(value) for key, value in program.arguments.items()}
        pairs |= self.arguments
        return [part for key, value in pairs.items() for part in (f"--{key}", value)]

    def run(self, configuration: Configuration) -> dict[str, object]:
        """The submission as Flink takes it.

        Returns:
            The body of `POST /jars/:jarid/run`, without savepoint and id.
        """
        arguments = self.program_arguments(configuration)
        return {"entryClass": self.program.entry_class, "programArgsList": arguments}

    def upload(self, rest: FlinkRest) -> str:
        """See that the cluster has the jar.

        Returns:
            The jar's id.
        """
        return rest.upload_jar(self.jar())

    def jar_by_hand(self, url: str) -> str:
        """Say how a person gives the jar to the cluster.

        Returns:
            A command and how it goes on, before the command that uses the jar's id.
        """
        return upload_by_hand(self.jar(), url)

    def placed(self, rest: FlinkRest, job_id: str, to: Configuration, timeout_s: float) -> None:
        """Ask for what the submission itself did not say: nothing, as the program is told all."""

    def check_change(self, rest: FlinkRest, wanted: Configuration) -> None:
        """Refuse, before the job is stopped, what the program would not build: it builds all."""

    def check(self, rest: FlinkRest, job: JobAnswer) -> None:
        """Refuse a job that could not be submitted again.

        Args:
            rest: the cluster.
            job: the job, as it runs.

        Raises:
            FlinkError: The jar is not there, or nobody has said which it is.
        """
        if self.spec.flink is None:
            raise FlinkError(
                f"job {self.job_name!r} could not be submitted again: nothing says from which jar "
                "and with which arguments",
                key="where.program",
                remedy="Say how you submit it, such as where: {program: {jar: words.jar, "
                "entry_class: com.example.Words, arguments: [--topic, words]}}, or rescale in "
                "place on the adaptive scheduler: where.actuator: adaptive",
            )
        jar = self.jar()
        if not jar.is_file():
            raise FlinkError(
                "the jar of the job is missing, so it could not be submitted again",
                file=jar,
                remedy="Build it, or name it in the job file: flink.jar",
            )

    def submit(
        self,
        rest: FlinkRest,
        configuration: Configuration,
        savepoint: str | None = None,
        *,
        timeout_s: float = 120.0,
        job_id: str | None = None,
    ) -> str:
        """Submit the job and wait until every subtask runs.

        Args:
            rest: the cluster.
            configuration: what it is to run with.
            savepoint: what it starts from; None: empty state.
            timeout_s: how long it may take to come up, s.
            job_id: Flink's id of it; one that Flink knows already is waited for, not doubled.

        Returns:
            The job's id.

        Raises:
            FlinkError: The job does not come up; its submission has been cancelled. One that has
                gone on from its savepoint is left alone: its newest state is its own. Or Flink has
                taken an earlier submission of that id, with another configuration.
        """
        run, jar_id = self.run(configuration), self.upload(rest)
        try:
            run_id = rest.run_program(jar_id, run, savepoint, job_id)
        except FlinkError as error:
            if job_id is None or not _is_alive(rest, job_id):
                raise
            if self.submitted(rest, job_id) not in (None, configuration):
                raise FlinkError(
                    f"job {job_id} has come up with another configuration: Flink has taken an "
                    "earlier submission"
                ) from error
            run_id = job_id  # only the answer was lost, or it was asked for before
        try:
            self.placed(rest, run_id, configuration, timeout_s)
            self.wait_until_ready(rest, run_id, configuration, timeout_s)
        except BaseException:
            _cancel(rest, run_id, has_state=savepoint is not None)
            raise
        return run_id

    def submitted(self, rest: FlinkRest, job_id: str) -> Configuration | None:
        """Read with which configuration a job was submitted.

        Args:
            rest: the cluster.
            job_id: the job.

        Returns:
            The configuration; None where Flink does not tell it, or not yet.
        """
        try:
            return self.of_running(rest, job_id, self.spec)[1]
        except FlinkError:
            return None

    def jar(self) -> Path:
        """The jar with the job's program.

        Returns:
            The jar of the job file's program, else the project's own.
        """
        if self.program.jar is not None:
            return Path(self.program.jar)
        from dsp_gym.backends.flink.local.distribution import jobs_jar

        return jobs_jar()

    def wait_until_ready(
        self, rest: FlinkRest, job_id: str, configuration: Configuration, timeout_s: float
    ) -> None:
        """Wait until every subtask of a submitted job runs; also while Flink is out of reach.

        Raises:
            FlinkError: The job does not come up, or Flink does not answer in time.
        """
        began, patience_s = time.monotonic(), self.patience_s or timeout_s
        trouble_at: float | None = None
        while True:
            now = time.monotonic()
            try:
                with rest.reading():
                    job = rest.job(job_id)
                    waiting = unready(job, self.spec, configuration)
                    runs = all_running(job)
                if waiting is None:
                    return
                cause = rest.exceptions(job_id)
            except FlinkError as error:
                if error.reason not in ("Unreachable", "Timeout") or now - began > timeout_s:
                    raise
                time.sleep(_POLL_S)
                continue
            now = time.monotonic()
            # All of a job that is not ready: the adaptive scheduler left some subtasks out.
            if trouble_at is None and (cause is not None or runs):
                trouble_at = now
            gave_up = trouble_at is not None and now - trouble_at > patience_s
            if job["state"] in ENDED or gave_up or now - began > timeout_s:
                raise FlinkError(
                    f"job {self.job_name!r} ({job_id}) did not come up in {now - began:.0f} s: "
                    f"it is {job['state']}, {waiting}; cause: {cause or 'none named'}",
                    remedy=self._resources(rest, configuration),
                )
            time.sleep(_POLL_S)

    def _resources(self, rest: FlinkRest, configuration: Configuration) -> str:
        """What it asks for and what there is, as a sentence."""
        managed = sum(
            mib * configuration.parallelism[name]
            for name, mib in configuration.managed_mib(self.spec).items()
        )
        with rest.reading():
            managers = rest.taskmanagers()
            slots = sum(int(manager["slotsNumber"]) for manager in managers)
            memory = sum(int(manager["totalResource"]["managedMemory"]) for manager in managers)
        return (
            f"It asks for {configuration.slots(self.slot_sharing)} slots and {managed:g} MiB of "
            f"managed memory; the cluster's {len(managers)} TaskManagers have {slots} slots and "
            f"{memory} MiB, shared with the jobs that run. Lower --parallelism or --level, cancel "
            "another job (dsp-gym flink down --job NAME), or start a larger cluster."
        )

    @classmethod
    def of_running(
        cls, rest: FlinkRest, job_id: str, spec: JobSpec
    ) -> tuple[Submission, Configuration]:
        """Read from Flink how a running job was submitted.

        Returns:
            The submission, and the running configuration.

        A job of a job file without a `flink` section may be anybody's: it runs at the levels of
        the job file, and there is no submission to repeat.

        Raises:
            FlinkError: The job is not of this job file, or was not submitted by this project.
        """
        arguments, job = rest.arguments(job_id), rest.job(job_id)
        with rest.reading():
            return cls._of_answers(arguments, job, job_id, spec)

    @classmethod
    def _of_answers(
        cls, arguments: Mapping[str, str], job: JobAnswer, job_id: str, spec: JobSpec
    ) -> tuple[Submission, Configuration]:
        if "parallelism" not in arguments or "slot-sharing" not in arguments:
            if spec.flink is None:
                submission = cls(spec, str(job["name"]), {}, slot_sharing_of(spec))
                return submission, configuration_of(job, job_id, spec, levels_of_slots(spec))
            raise FlinkError(
                f"job {job['name']!r} ({job_id}) shows no arguments of a job of dsp-gym",
                remedy="Submit it with: dsp-gym flink submit JOB, or say how you submit it: "
                "where.program",
            )
        kept = {key: value for key, value in arguments.items() if key not in _CONFIGURED}
        kept.pop("program", None)
        submission = cls(spec, str(job["name"]), kept, arguments["slot-sharing"])
        level = levels_named(arguments.get("managed-mib", ""), spec)
        if spec.memory.uniform:  # every slot has it, whatever was asked for
            level = slot_levels(spec)
        return submission, configuration_of(job, job_id, spec, level)


def configuration_of(
    job: JobAnswer, job_id: str, spec: JobSpec, memory_level: Mapping[str, int]
) -> Configuration:
    """The configuration that a job runs in.

    Args:
        job: as Flink shows it.
        job_id: its id.
        spec: its job file.
        memory_level: by vertex.

    Returns:
        Parallelism in the order of the job file, and those levels.

    Raises:
        FlinkError: The job is not of this job file.
    """
    parallelism = {name: int(one["parallelism"]) for name, one in vertices_of(job, spec).items()}
    missing = [vertex.name for vertex in spec.vertices if vertex.name not in parallelism]
    if missing:
        raise FlinkError(
            f"job {job['name']!r} ({job_id}) has no vertex {missing[0]!r} of job file "
            f"{spec.job!r}; it has {', '.join(v['name'] for v in job['vertices'])}",
            remedy="Name the job file it was submitted from.",
        )
    return Configuration({v.name: parallelism[v.name] for v in spec.vertices}, memory_level)


def upload_by_hand(jar: Path, url: str) -> str:
    """Say how a person uploads a jar.

    Args:
        jar: the file.
        url: of Flink's REST interface.

    Returns:
        A command for a shell and how it goes on, before the command that uses the jar's id.
    """
    form = shlex.quote(f"jarfile=@{jar}")
    return f"curl -H Expect: -F {form} {url}/jars/upload; then, with the jar's id that this answers"


def slot_sharing_of(spec: JobSpec) -> str:
    """How a job file says that subtasks share slots.

    Returns:
        `default`, or `per-vertex`.
    """
    return "default" if spec.slot_sharing else "per-vertex"


def levels_of_slots(spec: JobSpec) -> dict[str, int]:
    """Memory levels of a job that was submitted by others: those of the job file.

    Returns:
        Level by vertex, -1 without managed memory.
    """
    return (
        slot_levels(spec) if spec.memory.uniform else dict(Configuration.of_spec(spec).memory_level)
    )


def running_levels(rest: FlinkRest, job_id: str, spec: JobSpec) -> dict[str, int]:
    """Memory levels of a running job, of this project's submission or another's.

    A job that this project did not submit shows none: it runs at those of the job file.

    Args:
        rest: the cluster's REST interface.
        job_id: Flink's id of the job.
        spec: its job file.

    Returns:
        Level by vertex, -1 without managed memory.

    Raises:
        FlinkError: Flink does not answer, or the job is not of this job file.
    """
    arguments = rest.arguments(job_id)
    if "parallelism" not in arguments or "slot-sharing" not in arguments:
        return dict(Configuration.of_spec(spec).memory_level)
    return dict(Submission.of_running(rest, job_id, spec)[1].memory_level)


def levels_named(managed_mib: str, spec: JobSpec) -> dict[str, int]:
    """Read the memory levels that `vertex=MiB,...` asks for.

    Returns:
        Level by vertex, -1 for vertices that are not named.

    Raises:
        ValueError: A size is not a number.
        OverflowError: A size is no finite number.
    """
    pairs = (part.partition("=") for part in managed_mib.split(",") if part)
    managed = {name: float(mib) for name, _, mib in pairs}
    return {
        vertex.name: round(math.log2(managed[vertex.name] / spec.memory.base_mib))
        if vertex.name in managed
        else NO_MEMORY
        for vertex in spec.vertices
    }


def unready(job: JobAnswer, spec: JobSpec, configuration: Configuration) -> str | None:
    """What a job still lacks of running a configuration.

    Returns:
        A sentence; None if all of it runs.
    """
    if job["state"] != "RUNNING":
        return "not every task was placed"
    names = {str(one["id"]): name for name, one in vertices_of(job, spec).items()}
    for vertex in job["vertices"]:
        name = names.get(str(vertex["id"]))
        running = running_or_done(vertex)
        wanted = configuration.parallelism.get(name, vertex["parallelism"]) if name else running
        if vertex["parallelism"] != wanted or running != wanted:
            return (
                f"{running} of {wanted} subtasks of {name!r} run (Flink started "
                f"{vertex['parallelism']})"
            )
    return None


def all_running(job: JobAnswer) -> bool:
    """Whether a job (`FlinkRest.job`) runs, and every subtask of it that has not finished.

    A vertex calls itself RUNNING with its first subtask, so subtasks are counted. A bounded source
    ends, and with it what reads it alone; the rest of the job runs on.

    Returns:
        True where no subtask is still to come, or on its way out.
    """
    return job["state"] == "RUNNING" and all(
        running_or_done(vertex) == vertex["parallelism"] for vertex in job["vertices"]
    )


def running_or_done(vertex: VertexAnswer) -> int:
    """Count the subtasks of a vertex that run or have read all there was.

    Those that are created, scheduled, deploying, initializing (restoring state), canceling or
    reconciling are not among them, nor those that failed or were canceled.

    Returns:
        Subtasks.
    """
    return int(vertex["tasks"].get("RUNNING", 0)) + int(vertex["tasks"].get("FINISHED", 0))


def runs_whole(rest: FlinkRest, job_id: str) -> bool:
    """Ask whether a job and every subtask of it run.

    Returns:
        As `all_running`.

    Raises:
        FlinkError: Flink does not answer, or not as it should.
    """
    with rest.reading():
        return all_running(rest.job(job_id))


def load_arguments(rates_per_s: ArrayLike, directory: Path, epoch_ms: int) -> dict[str, str]:
    """Write a load as the job's program reads it.

    Args:
        rates_per_s: The rate over all sources in each second from the epoch, records/s; the last
            one holds for ever.
        directory: Where the file is written, named by its content.
        epoch_ms: Second 0, milliseconds of Unix time.

    Returns:
        The program's arguments that name the file and its epoch.
    """
    rates = np.atleast_1d(np.asarray(rates_per_s, dtype=np.float64))
    if rates.size == 0 or not np.isfinite(rates).all() or (rates < 0).any():
        raise ConfigError(
            "a load is a list of finite rates of 0 or more",
            key="rates_per_s",
            remedy="Check the load's file.",
        )
    changes = np.flatnonzero(rates[1:] != rates[:-1]) + 1
    text = "".join(f"{second},{rates[second]:.10g}\n" for second in (0, *changes))
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    file = write_atomic(directory.absolute() / f"load-{name}.csv", text)
    return {"load-file": str(file), "epoch-ms": str(epoch_ms)}


def _listed(values: Mapping[str, int]) -> str:
    return ",".join(f"{name}={value}" for name, value in values.items())


def _text(value: str | int | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_alive(rest: FlinkRest, job_id: str) -> bool:
    """Whether Flink knows a job that has not ended."""
    try:
        with rest.reading():
            return rest.job(job_id)["state"] not in ENDED
    except FlinkError:
        return False


def _cancel(rest: FlinkRest, job_id: str, *, has_state: bool) -> None:
    """End a job that did not come up; the error that says why is raised already."""
    try:
        if has_state and rest.has_checkpoint(job_id):
            return
        if _is_alive(rest, job_id):
            rest.cancel(job_id)
            rest.wait_for(job_id, ENDED, 30.0)
    except FlinkError:
        return
