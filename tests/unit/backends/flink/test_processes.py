from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsp_gym.backends.flink.local import processes
from dsp_gym.backends.flink.local.processes import Process, free_ports, is_port_free, wait_until

SLEEP = str(shutil.which("sleep"))


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Process]:
    process = processes.start(
        [SLEEP, "60"], file=tmp_path / "pids" / "sleeper.json", output=tmp_path / "out",
        environment={},
    )  # fmt: skip
    yield process
    process.stop(timeout_s=1)


def test_a_process_is_written_down_and_read_again(sleeper: Process) -> None:
    again = Process.read(sleeper.file)
    assert again == sleeper
    assert again.is_alive()
    assert os.getsid(again.pid) == again.pid  # a session of its own: Ctrl-C does not reach it


def test_a_stopped_process_is_gone_and_forgotten(sleeper: Process) -> None:
    sleeper.stop()
    assert not sleeper.is_alive()
    assert not sleeper.file.exists()


def test_a_killed_process_is_dead_though_it_is_still_written_down(sleeper: Process) -> None:
    sleeper.kill()
    assert not sleeper.is_alive()
    assert Process.read(sleeper.file) == sleeper


def test_a_stranger_with_a_recycled_pid_is_not_touched(sleeper: Process, tmp_path: Path) -> None:
    stale = tmp_path / "stale.json"
    stale.write_text(json.dumps({"pid": sleeper.pid, "started": "another time"}))
    recorded = Process.read(stale)
    assert recorded is not None
    assert not recorded.is_alive()
    recorded.stop()
    assert sleeper.is_alive()
    assert not stale.exists()


def test_a_process_that_ignores_the_polite_signal_is_ended_all_the_same(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    script = (
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"open({str(ready)!r}, 'w')\n"
        "time.sleep(60)"
    )
    process = processes.start(
        [sys.executable, "-c", script],
        file=tmp_path / "pid.json",
        output=tmp_path / "out",
        environment={},
    )
    assert wait_until(ready.exists, 10)
    process.stop(timeout_s=0.3)
    assert not process.is_alive()


def test_a_torn_record_is_no_process(tmp_path: Path) -> None:
    file = tmp_path / "pid.json"
    assert Process.read(file) is None
    for text in ("", "{", "[]", '{"pid": "x", "started": ""}', '{"pid": 1}'):
        file.write_text(text)
        assert Process.read(file) is None


def test_output_and_environment_reach_the_process(tmp_path: Path) -> None:
    process = processes.start(
        ["/bin/sh", "-c", "echo $GREETING; echo two >&2; exec sleep 5"],
        file=tmp_path / "pid.json",
        output=tmp_path / "logs" / "out",
        environment={"GREETING": "one"},
    )
    output = tmp_path / "logs" / "out"
    assert wait_until(lambda: output.read_text() == "one\ntwo\n", 5)
    process.stop(timeout_s=1)


def test_ctrl_c_while_a_process_starts_waits_until_it_is_written_down(tmp_path: Path) -> None:
    script = textwrap.dedent(f"""
        import os, signal
        from pathlib import Path
        from dsp_gym.backends.flink.local import processes
        spawn = os.posix_spawn
        def interrupted(*args, **kwargs):
            pid = spawn(*args, **kwargs)
            os.kill(os.getpid(), signal.SIGINT)
            return pid
        os.posix_spawn = interrupted
        folder = Path({str(tmp_path)!r})
        try:
            processes.start([{SLEEP!r}, "60"], file=folder / "pid.json", output=folder / "out",
                            environment={{}})
        except KeyboardInterrupt:
            print("interrupted")
    """)
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                            timeout=30, check=True)  # fmt: skip
    assert answer.stdout == "interrupted\n"
    process = Process.read(tmp_path / "pid.json")
    assert process is not None
    assert process.is_alive()
    process.stop(timeout_s=1)


def test_a_port_somebody_listens_on_is_not_free() -> None:
    (port,) = free_ports(1)
    assert is_port_free(port)
    with socket.socket() as taken:
        # As servers do: connections of an earlier listener may still be in TIME_WAIT.
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        assert not is_port_free(port)
        assert port not in free_ports(1)
    assert is_port_free(port)


def test_free_ports_are_apart_and_below_those_of_outgoing_connections() -> None:
    ports = free_ports(6)
    assert len(set(ports)) == 6
    assert all(20_000 <= port < 32_000 for port in ports)


def test_memory_of_a_process_is_told(sleeper: Process) -> None:
    memory = processes.resident_mib(sleeper.pid)
    assert memory is not None
    assert 0.1 < memory < 50
    own = processes.resident_mib(os.getpid())
    assert own is not None
    assert own > memory


def test_start_times_agree_where_there_is_no_proc(sleeper: Process) -> None:
    if shutil.which("ps") is None:
        pytest.skip("no ps")
    listed = processes.listed_start_time(sleeper.pid)
    assert listed is not None
    assert time.strftime("%Y") in listed
    assert listed == processes.listed_start_time(sleeper.pid)
    sleeper.signal(signal.SIGKILL)
    assert wait_until(lambda: not sleeper.is_alive(), 5)
    assert processes.listed_start_time(sleeper.pid) is None
