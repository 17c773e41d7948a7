"""A real Flink cluster and a real Prometheus on this machine, on loopback.

They outlive the program that started them. Everything about a cluster is in its home folder: what
runs (pid and start time of each process), with which settings, its logs, savepoints and samples.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dsp_gym.backends.flink.answers import Overview
from dsp_gym.backends.flink.local import processes
from dsp_gym.backends.flink.local.distribution import (
    FlinkLibraries,
    find_java,
    find_libraries,
    find_prometheus,
    same_minor,
)
from dsp_gym.backends.flink.local.launch import (
    FlinkProcesses,
    Home,
    default_home,
    failure_in,
)
from dsp_gym.backends.flink.local.processes import Process, wait_until
from dsp_gym.backends.flink.local.prometheus_server import is_ready, prometheus_command
from dsp_gym.backends.flink.local.settings import ClusterSettings
from dsp_gym.backends.flink.local.state import (
    ClusterState,
    check_port,
    check_same,
    choose_ports,
    locked,
    read_state,
)
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.config.files import write_atomic
from dsp_gym.errors import FlinkError

JOBMANAGER, TASKMANAGER, PROMETHEUS = "jobmanager", "taskmanager", "prometheus"

_START_S = 90.0
"""A JVM is up in about 10 s on two busy cores; more only where something is wrong."""

_SILENT_S = 10.0
"""A JobManager that is up and says nothing for so long hangs."""


@dataclass(frozen=True, slots=True)
class PartStatus:
    """One process of a cluster."""

    name: str
    state: Literal["running", "dead", "silent"]  # silent: runs, but does not answer
    pid: int | None
    memory_mib: float | None
    address: str
    log: Path


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """What is seen of a cluster; None where the JobManager does not answer."""

    home: Path
    settings: ClusterSettings
    parts: tuple[PartStatus, ...]
    flink_version: str | None
    slots_total: int | None
    slots_available: int | None
    jobs_running: int | None

    @property
    def healthy(self) -> bool:
        """Whether every part runs and answers."""
        return all(part.state == "running" for part in self.parts)


class LocalCluster:
    """One cluster, by its home folder. Made by `up` or `attach`."""

    def __init__(self, home: Home, state: ClusterState) -> None:
        self.home = home
        self.settings = state.settings
        self.ports = state.ports
        self._version = state.flink_version
        self.rest_url = f"http://127.0.0.1:{state.ports.rest}"
        self.rest = FlinkRest(self.rest_url)

    @classmethod
    def up(cls, settings: ClusterSettings | None = None, home: Path | None = None) -> LocalCluster:
        """Start the parts that are down; without such a part nothing happens.

        Args:
            settings: None keeps those of the cluster that is there, else takes the defaults.
            home: Its folder; None is `default_home()`.

        Returns:
            The cluster, once every part answers.

        Raises:
            FlinkError: A part cannot be started, a port is taken, or a cluster with other settings
                runs there. What this call started has been ended.
            MissingExtraError: Flink's libraries are not installed.
        """
        place = Home((home or default_home()).absolute())
        libraries = find_libraries()
        with locked(place):
            state = read_state(place)
            if state is not None and cls(place, state).any_alive():
                check_same(place, state, settings, libraries)
                cluster = cls(place, state)
            else:
                chosen = settings or (state.settings if state else ClusterSettings())
                cluster = cls._prepared(place, chosen, libraries)
            cluster._start_missing(libraries)
        return cluster

    @classmethod
    def attach(cls, home: Path | None = None) -> LocalCluster:
        """The cluster that was started in a folder, whether it still runs or not.

        Returns:
            The cluster, whose parts may have ended since.

        Raises:
            FlinkError: None was.
        """
        found = cls.find(home)
        if found is None:
            raise FlinkError(
                "no Flink cluster was started here",
                file=home or default_home(),
                remedy="Start one: dsp-gym flink up",
            )
        return found

    @classmethod
    def find(cls, home: Path | None = None) -> LocalCluster | None:
        """The same; None where none was started, or it was ended.

        Returns:
            The cluster of that home folder, whether its processes still live or not; None without a
            state file.
        """
        place = Home((home or default_home()).absolute())
        state = read_state(place)
        return None if state is None else cls(place, state)

    @property
    def prometheus_url(self) -> str | None:
        """Address of Prometheus; None where the cluster has none."""
        port = self.ports.prometheus
        return f"http://127.0.0.1:{port}" if self.settings.prometheus else None

    @property
    def savepoints(self) -> Path:
        """Where savepoints go."""
        return self.home.savepoints

    @property
    def logs(self) -> Path:
        """Where logs are."""
        return self.home.logs

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of its processes."""
        flink = (JOBMANAGER, TASKMANAGER)
        return (*flink, PROMETHEUS) if self.settings.prometheus else flink

    def down(self) -> tuple[str, ...]:
        """End what `up` started, and nothing else.

        Logs, savepoints and Prometheus' samples stay.

        Returns:
            Names of the parts that were running.
        """
        with locked(self.home):
            running = tuple(part for part in self.parts if self.process(part) is not None)
            for part in reversed(self.parts):
                self.stop(part)
            for folder in self.home.temporary:
                shutil.rmtree(folder, ignore_errors=True)
            self.home.state_file.unlink(missing_ok=True)
        return running

    def status(self) -> ClusterStatus:
        """Look at every part.

        Returns:
            Address, slots, jobs and the state of each part; None where the JobManager does not
            answer.
        """
        seen: Overview = {}
        with contextlib.suppress(FlinkError):
            seen = FlinkRest(self.rest_url, timeout_s=3.0).overview()
            self._version = seen["flink-version"]
        return ClusterStatus(
            self.home.folder,
            self.settings,
            tuple(self._part_status(part, seen) for part in self.parts),
            self._version if seen else None,
            seen.get("slots-total"),
            seen.get("slots-available"),
            seen.get("jobs-running"),
        )

    def pid(self, part: str) -> int | None:
        """Process id of a part.

        Returns:
            The id; None if the part is down.
        """
        process = self.process(part)
        return process.pid if process else None

    @classmethod
    def _prepared(
        cls, home: Home, settings: ClusterSettings, libraries: FlinkLibraries
    ) -> LocalCluster:
        """A cluster that may be started: ports chosen, configuration written."""
        state = ClusterState(
            settings=settings, ports=choose_ports(settings), flink_version=libraries.version
        )
        for folder in home.temporary:  # what a killed predecessor left
            shutil.rmtree(folder, ignore_errors=True)
        home.write(settings, state.ports)
        write_atomic(home.state_file, state.model_dump_json(indent=1) + "\n")
        return cls(home, state)

    def any_alive(self) -> bool:
        """Whether a process of any part still runs.

        Returns:
            True where at least one recorded process is alive.
        """
        return any(self.process(part) is not None for part in self.parts)

    def process(self, part: str) -> Process | None:
        """Return the process of a part; None if it is down."""
        process = Process.read(self.home.pid_file(part))
        return process if process is not None and process.is_alive() else None

    def stop(self, part: str) -> None:
        """End a part and wait until it has ended."""
        process = Process.read(self.home.pid_file(part))
        if process is not None:
            process.stop()

    def _start_missing(self, libraries: FlinkLibraries) -> None:
        missing = [part for part in self.parts if self.process(part) is None]
        if JOBMANAGER in missing and TASKMANAGER not in missing:
            self.stop(TASKMANAGER)  # it would wait for a JobManager that has forgotten it
            missing = [part for part in self.parts if part != PROMETHEUS or part in missing]
        try:
            starts = [self._prepare(part, libraries) for part in missing]
            waits = [start() for start in starts]
            for wait in waits:
                wait()
            self._check_version(libraries)
        except BaseException:
            for part in reversed(missing):
                self.stop(part)
            if not self.any_alive():
                self.home.state_file.unlink(missing_ok=True)
            raise

    def start(self, part: str) -> None:
        """Start a part unless it runs, and wait until it answers."""
        """Starts a part unless it runs, and waits until it answers."""
        if self.process(part) is None:
            self._prepare(part, find_libraries())()()

    def _prepare(self, part: str, libraries: FlinkLibraries) -> Callable[[], Callable[[], None]]:
        """Refuse what cannot work; what starts the part, which gives what waits for it."""
        resource_id = f"taskmanager-{uuid.uuid4().hex[:8]}"
        command, environment = self._command(part, resource_id, libraries)
        for port, name, remedy in self._listens(part):
            check_port(port, name, remedy)
        answers = {
            JOBMANAGER: self._jobmanager_answers,
            TASKMANAGER: lambda: self._knows_taskmanager(resource_id),
            PROMETHEUS: self._prometheus_answers,
        }[part]

        def start() -> Callable[[], None]:
            if part == TASKMANAGER:  # state of one that was killed
                shutil.rmtree(self.home.taskmanager_files, ignore_errors=True)
                self.home.taskmanager_files.mkdir(parents=True)
            process = processes.start(
                command,
                file=self.home.pid_file(part),
                output=self.home.output(part),
                environment=environment,
            )
            return lambda: self._wait_for(part, process, answers)

        return start

    def _command(
        self, part: str, resource_id: str, libraries: FlinkLibraries
    ) -> tuple[list[str], dict[str, str]]:
        if part == PROMETHEUS:
            command = prometheus_command(
                find_prometheus(),
                config=self.home.conf / "prometheus.yml",
                storage=self.home.samples,
                port=self.ports.prometheus,
                retention_days=self.settings.retention_days,
            )
            return command, {}
        flink = FlinkProcesses(self.home, libraries, find_java(), self.settings, self.ports)
        command = flink.jobmanager() if part == JOBMANAGER else flink.taskmanager(resource_id)
        return command, flink.environment

    def _listens(self, part: str) -> list[tuple[int, str, str]]:
        """Ports of a part, what they are, and how they are moved."""
        ports = self.ports
        again = "start again for others: dsp-gym flink down, dsp-gym flink up"
        moved = "take another port: dsp-gym flink up"
        return {
            JOBMANAGER: [
                (ports.rest, "Flink's REST interface", f"{moved} --rest-port 0 (a free one)"),
                (ports.rpc, "the JobManager's RPC", again),
                (ports.jobmanager_reporter, "the JobManager's metrics", again),
            ],
            TASKMANAGER: [(ports.taskmanager_reporter, "the TaskManager's metrics", again)],
            PROMETHEUS: [
                (ports.prometheus, "Prometheus", f"{moved} --prometheus-port 0 (a free one)")
            ],
        }[part]

    def _wait_for(self, part: str, process: Process, answers: Callable[[], bool]) -> None:
        alive = True

        def settled() -> bool:
            nonlocal alive
            alive = process.is_alive()
            return not alive or answers()

        in_time = wait_until(settled, _START_S, 0.25)
        if alive and in_time:
            return
        log, output = self.home.log(part), self.home.output(part)
        end = "ended while it started" if not alive else f"did not answer within {_START_S:g} s"
        raise FlinkError(
            f"the {part} {end}: {failure_in(output, log)}",
            file=log,
            remedy="The log file has the details.",
        )

    def _jobmanager_answers(self) -> bool:
        with contextlib.suppress(FlinkError):
            return "flink-version" in FlinkRest(self.rest_url, timeout_s=2.0).overview()
        return False

    def _knows_taskmanager(self, resource_id: str) -> bool:
        with contextlib.suppress(FlinkError):
            return any(manager["id"] == resource_id for manager in self.rest.taskmanagers())
        return False

    def _prometheus_answers(self) -> bool:
        return self.prometheus_url is not None and is_ready(self.prometheus_url)

    def _check_version(self, libraries: FlinkLibraries) -> None:
        if not wait_until(self._jobmanager_answers, _SILENT_S, 0.5):
            raise FlinkError(
                f"the jobmanager (process {self.pid(JOBMANAGER)}) runs, but does not answer at "
                f"{self.rest_url}",
                file=self.home.log(JOBMANAGER),
                remedy="Restart it: dsp-gym flink down --home "
                f"{shlex.quote(str(self.home.folder))}, then up.",
            )
        version = str(self.rest.overview()["flink-version"])
        if not same_minor(version, libraries.version):
            raise FlinkError(
                f"Flink {version} answers at {self.rest_url}, expected {libraries.version}",
                remedy="Take another port: dsp-gym flink up --rest-port 0",
            )

    def _part_status(self, part: str, seen: Overview) -> PartStatus:
        process = self.process(part)
        answers = {
            JOBMANAGER: bool(seen),
            TASKMANAGER: bool(seen.get("taskmanagers")),
            PROMETHEUS: process is not None and self._prometheus_answers(),
        }[part]
        state: Literal["running", "dead", "silent"] = "running" if answers else "silent"
        return PartStatus(
            part,
            "dead" if process is None else state,
            process.pid if process else None,
            processes.resident_mib(process.pid) if process else None,
            f"http://127.0.0.1:{self._listens(part)[0][0]}",
            self.home.log(part),
        )
