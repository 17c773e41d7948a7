"""Refusals of a cluster before anything is started; the rest is tested in tests/integration."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dsp_gym.backends.flink.local import processes
from dsp_gym.backends.flink.local.cluster import LocalCluster
from dsp_gym.backends.flink.local.distribution import find_libraries
from dsp_gym.backends.flink.local.settings import ClusterSettings
from dsp_gym.cli import app
from dsp_gym.errors import FlinkError

ANY = ClusterSettings(rest_port=0, prometheus_port=0)


@pytest.fixture
def old_flink() -> Iterator[int]:
    """The port of something that says it is an older Flink."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"flink-version": "1.20.1", "taskmanagers": 1}')

        def log_message(self, format: str, *args: object) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=[0.02], daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def nothing_is_left(home: Path) -> bool:
    return not (home / "cluster.json").exists() and not list((home / "pids").glob("*"))


def test_a_flink_that_is_not_ours_is_named_with_its_version(old_flink: int, tmp_path: Path) -> None:
    settings = ClusterSettings(rest_port=old_flink, prometheus_port=0)
    with pytest.raises(
        FlinkError,
        match=rf"port {old_flink} \(Flink's REST interface\) is taken by a Flink 1\.20\.1 that "
        r"this folder did not start\. .*--rest-port 0",
    ):
        LocalCluster.up(settings, tmp_path)
    assert nothing_is_left(tmp_path)


@pytest.mark.slow  # it is asked twice, a second each
def test_a_port_taken_by_another_program_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        settings = ClusterSettings(rest_port=0, rpc_port=port, prometheus=False)
        with pytest.raises(FlinkError, match=r"the JobManager's RPC\) is taken by another program"):
            LocalCluster.up(settings, tmp_path)
    assert nothing_is_left(tmp_path)


@pytest.fixture
def spawned(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was started, in spite of all."""
    commands: list[object] = []
    monkeypatch.setattr(processes, "start", lambda command, **_: commands.append(command))
    return commands


def test_without_java_nothing_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spawned: list[object]
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(FlinkError, match="apt-get install openjdk-17-jdk-headless"):
        LocalCluster.up(ANY, tmp_path / "home")
    assert spawned == []
    assert nothing_is_left(tmp_path / "home")


def test_without_prometheus_nothing_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spawned: list[object]
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(FlinkError, match="apt-get install prometheus, or go without"):
        LocalCluster.up(ANY, tmp_path / "home")
    assert spawned == []
    assert nothing_is_left(tmp_path / "home")


def test_a_folder_where_nothing_was_started_says_so(tmp_path: Path) -> None:
    with pytest.raises(FlinkError, match=r"no Flink cluster was started here\. Start one"):
        LocalCluster.attach(tmp_path)
    for command in ("status", "down --job x", "submit flink-q1"):
        result = CliRunner().invoke(app, ["flink", *command.split(), "--home", str(tmp_path)])
        assert result.exit_code == 2
        assert "no Flink cluster was started here" in result.output


def test_down_twice_is_down(tmp_path: Path) -> None:
    for _ in range(2):
        result = CliRunner().invoke(app, ["flink", "down", "--home", str(tmp_path)])
        assert result.exit_code == 0
        assert "nothing ran" in result.output


def test_a_state_file_of_another_release_is_not_taken_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"settings": {"colour": "red"}}')
    with pytest.raises(FlinkError, match="has no list of the started processes"):
        LocalCluster.up(ANY, tmp_path)


def written_state(home: Path, pid: int, started: str) -> None:
    ports = {"rest": 1, "rpc": 2, "prometheus": 3, "jobmanager_reporter": 4,
             "taskmanager_reporter": 5}  # fmt: skip
    state = {"settings": {}, "ports": ports, "flink_version": find_libraries().version}
    (home / "cluster.json").write_text(json.dumps(state))
    (home / "pids").mkdir()
    for part in ("jobmanager", "taskmanager", "prometheus"):
        (home / "pids" / f"{part}.json").write_text(json.dumps({"pid": pid, "started": started}))


def test_stale_pid_files_are_dead_parts_and_nobody_is_killed_for_them(tmp_path: Path) -> None:
    written_state(tmp_path, os.getpid(), "before the machine was started again")
    cluster = LocalCluster.attach(tmp_path)
    assert [part.state for part in cluster.status().parts] == ["dead"] * 3
    result = CliRunner().invoke(app, ["flink", "status", "--home", str(tmp_path)])
    assert result.exit_code == 1
    assert "Start the dead parts" in result.stderr
    assert cluster.down() == ()
    assert nothing_is_left(tmp_path)


def test_other_settings_or_libraries_than_those_that_run_are_refused(tmp_path: Path) -> None:
    started = processes.start_time(os.getpid())
    assert started is not None
    written_state(tmp_path, os.getpid(), started)
    with pytest.raises(FlinkError, match="scheduler is default, asked for adaptive"):
        LocalCluster.up(ClusterSettings(scheduler="adaptive"), tmp_path)
    result = CliRunner().invoke(app, ["flink", "up", "--slots", "3", "--home", str(tmp_path)])
    assert (result.exit_code, "slots is 16, asked for 3" in result.stderr) == (2, True)
    state = tmp_path / "cluster.json"
    state.write_text(state.read_text().replace(find_libraries().version, "2.0.1"))
    with pytest.raises(FlinkError, match=r"a cluster of Flink 2\.0\.1 runs here, 2\.1"):
        LocalCluster.up(None, tmp_path)


def test_a_job_without_a_flink_section_is_refused_with_those_that_have_one(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["flink", "submit", "nexmark-q5", "--home", str(tmp_path)])
    assert result.exit_code == 2
    assert "Jobs that have one: flink-" in result.stderr


def test_options_that_cannot_be_are_refused_by_name(tmp_path: Path) -> None:
    for line, said in (
        ("--configuration sesion=2", "Did you mean 'session'?"),
        ("--configuration session=0", "the parallelism of 'session' must be 1 to"),
        ("--configuration session=1@9", "the memory level of 'session' must be -1 to"),
    ):
        arguments = ["flink", "submit", "flink-q11", *line.split(), "--home", str(tmp_path)]
        result = CliRunner().invoke(app, arguments)
        assert (result.exit_code, said in result.stderr) == (2, True), result.stderr
