"""The folder of a local cluster, and the command lines of Flink's processes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dsp_gym.backends.flink.local.distribution import FlinkLibraries, Java
from dsp_gym.backends.flink.local.prometheus_server import prometheus_config
from dsp_gym.backends.flink.local.settings import (
    FRAMEWORK_HEAP_MIB,
    FRAMEWORK_OFF_HEAP_MIB,
    METASPACE_MIB,
    ClusterSettings,
    Ports,
    flink_config,
    log4j_properties,
)
from dsp_gym.config.files import write_atomic


def default_home() -> Path:
    """Where a cluster lives by default: `$XDG_STATE_HOME/dsp-gym/flink`.

    Returns:
        That folder, under `~/.local/state` where the variable is unset; it need not exist.
    """
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "dsp-gym" / "flink"


LOG_OPTIONS = {"jobmanager": "web.log.path", "taskmanager": "taskmanager.log.path"}
"""Flink's option that names the log its web page shows, by part."""


@dataclass(frozen=True, slots=True)
class Home:
    """The folder of one cluster."""

    folder: Path

    @property
    def state_file(self) -> Path:
        """The started parts, as JSON; absent while nothing was started."""
        return self.folder / "cluster.json"

    @property
    def conf(self) -> Path:
        """Configuration files, written again at each start."""
        return self.folder / "conf"

    @property
    def logs(self) -> Path:
        """Logs and standard output."""
        return self.folder / "logs"

    @property
    def savepoints(self) -> Path:
        """Savepoints; kept."""
        return self.folder / "savepoints"

    @property
    def samples(self) -> Path:
        """What Prometheus stores; kept."""
        return self.folder / "prometheus"

    @property
    def temporary(self) -> tuple[Path, ...]:
        """What no later cluster needs."""
        return tuple(self.folder / name for name in ("tmp", "web", "checkpoints"))

    @property
    def taskmanager_files(self) -> Path:
        """Local state and blobs of the TaskManager; of use to the one that wrote them only."""
        return self.folder / "tmp" / "taskmanager"

    def pid_file(self, part: str) -> Path:
        """Where a process is written down.

        Returns:
            Path of the part's JSON file with pid and start time.
        """
        return self.folder / "pids" / f"{part}.json"

    def log(self, part: str) -> Path:
        """The log of a process.

        Returns:
            Path of the log file; Flink keeps older pieces beside it.
        """
        return self.logs / f"{part}.log"

    def output(self, part: str) -> Path:
        """The standard output of a process; Prometheus logs there.

        Returns:
            Path of the file that takes standard output and standard error.
        """
        return self.log(part) if part == "prometheus" else self.logs / f"{part}.out"

    def write(self, settings: ClusterSettings, ports: Ports) -> None:
        """Write every configuration file and make the folders they name."""
        for folder in (*self.temporary, self.logs, self.savepoints, self.samples):
            folder.mkdir(parents=True, exist_ok=True)
        write_atomic(self.conf / "config.yaml", flink_config(settings, ports, self.folder))
        write_atomic(self.conf / "log4j.properties", log4j_properties())
        targets = [
            f"127.0.0.1:{port}" for port in (ports.jobmanager_reporter, ports.taskmanager_reporter)
        ]
        text = prometheus_config(settings.scrape_interval_s, targets)
        write_atomic(self.conf / "prometheus.yml", text)


@dataclass(frozen=True, slots=True)
class FlinkProcesses:
    """Flink's command lines: its own start scripts are not in the libraries."""

    home: Home
    libraries: FlinkLibraries
    java: Java
    settings: ClusterSettings
    ports: Ports

    @property
    def environment(self) -> dict[str, str]:
        """What Flink finds its plugins and configuration by."""
        return {
            "FLINK_CONF_DIR": str(self.home.conf),
            "FLINK_LIB_DIR": str(self.libraries.lib),
            "FLINK_PLUGINS_DIR": str(self.libraries.plugins),
            "FLINK_LOG_DIR": str(self.home.logs),
        }

    def jobmanager(self) -> list[str]:
        """The JobManager of a session cluster.

        Returns:
            Its command line: program, JVM options, main class and arguments.
        """
        heap = self.settings.jobmanager_heap_mib
        return self._command(
            "jobmanager",
            [f"-Xmx{heap}m", f"-XX:MaxMetaspaceSize={METASPACE_MIB}m", "-XX:+UseSerialGC"],
            "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint",
            self.ports.jobmanager_reporter,
        )

    def taskmanager(self, resource_id: str) -> list[str]:
        """A TaskManager that the cluster will know by the given id.

        Returns:
            Its command line: program, JVM options, main class and arguments.
        """
        heap = FRAMEWORK_HEAP_MIB + self.settings.task_heap_mib
        direct = FRAMEWORK_OFF_HEAP_MIB + self.settings.network_mib
        return [
            *self._command(
                "taskmanager",
                [
                    f"-Xmx{heap}m",
                    f"-XX:MaxDirectMemorySize={direct}m",
                    f"-XX:MaxMetaspaceSize={METASPACE_MIB}m",
                    "-XX:+UseG1GC",
                ],
                "org.apache.flink.runtime.taskexecutor.TaskManagerRunner",
                self.ports.taskmanager_reporter,
            ),
            f"-Dtaskmanager.resource-id={resource_id}",
            f"-Dio.tmp.dirs={self.home.taskmanager_files}",
            f"-Dstate.backend.rocksdb.localdir={self.home.taskmanager_files}",
        ]

    def _command(self, part: str, memory: list[str], main: str, reporter_port: int) -> list[str]:
        return [
            str(self.java.path),
            *memory,
            *self.java.flags,
            f"-XX:ErrorFile={self.home.logs}/{part}-hs_err.log",
            f"-Ddsp-gym.log={self.home.log(part)}",
            f"-Dlog4j.configurationFile={(self.home.conf / 'log4j.properties').as_uri()}",
            "-cp",
            self.libraries.class_path,
            main,
            "--configDir",
            str(self.home.conf),
            f"-Dmetrics.reporter.prom.port={reporter_port}",
            f"-D{LOG_OPTIONS[part]}={self.home.log(part)}",  # the web page shows it
        ]


def failure_in(*logs: Path) -> str:
    """Find out from its output why a process ended.

    Returns:
        The line that says it best: the last cause, else the last error, else the last line.
    """
    lines = [line for log in logs for line in _last_lines(log)]
    for pattern in (r"Caused by: ", r"\b(ERROR|FATAL|Exception|level=error)\b", r"\S"):
        found = [line for line in lines if re.search(pattern, line)]
        if found:
            return found[-1].strip()[:300]
    return "it wrote nothing"


def _last_lines(log: Path, count: int = 200) -> Iterator[str]:
    if log.is_file():
        yield from log.read_text(encoding="utf-8", errors="replace").splitlines()[-count:]
