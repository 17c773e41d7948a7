"""Processes that outlive the program that started them, and are not mistaken for others.

A process is written down with its pid and the time it started: a pid alone may have been given to
another process since.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

from dsp_gym.config.files import write_atomic
from dsp_gym.config.strict_json import parse_json
from dsp_gym.errors import FlinkError

_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Process:
    """One process as it was written down when it started."""

    pid: int
    started: str  # as `start_time` gives it
    file: Path

    @classmethod
    def read(cls, file: Path) -> Process | None:
        """The process written down in a file; None where there is none, or it cannot be read.

        Returns:
            The process with the pid and start time of the file, alive or not.
        """
        try:
            document = parse_json(file.read_text(encoding="utf-8"))
            pid = document["pid"]
            return cls(pid, str(document["started"]), file) if type(pid) is int else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def is_alive(self) -> bool:
        """Whether it still runs, and is itself and not another one with its pid.

        Returns:
            True where the pid lives and its start time is the one in the file.
        """
        with contextlib.suppress(ChildProcessError, OSError):
            os.waitpid(self.pid, os.WNOHANG)  # our own child, ended: let its pid go
        return start_time(self.pid) == self.started

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, to this process only."""
        if self.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def stop(self, timeout_s: float = 20.0) -> None:
        """Ask it to end, then make it; forget it when it is gone."""
        self.signal(signal.SIGTERM)
        if not wait_until(lambda: not self.is_alive(), timeout_s):
            self.kill()
        self.file.unlink(missing_ok=True)

    def kill(self) -> None:
        """End it at once, as a crash would; it stays written down."""
        self.signal(signal.SIGKILL)
        if not wait_until(lambda: not self.is_alive(), 10.0):
            raise FlinkError(
                f"process {self.pid} did not end",
                file=self.file,
                remedy=f"End it yourself: kill -9 {self.pid}",
            )


def start(
    command: Sequence[str], *, file: Path, output: Path, environment: Mapping[str, str]
) -> Process:
    """Start a process in its own session and write it down.

    Args:
        command: Program and arguments; the program by its full path.
        file: Where it is written down.
        output: Where its standard output and error go.
        environment: Added to ours.

    Returns:
        The started process; its file is written.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    output.parent.mkdir(parents=True, exist_ok=True)
    to_output = (os.POSIX_SPAWN_OPEN, 1, str(output), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        to_output,
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    with _uninterrupted():
        # Not subprocess: it would warn of a child that outlives its handle, which is the point.
        pid = os.posix_spawn(
            command[0],
            list(command),
            {**os.environ, **environment},
            file_actions=actions,
            setsid=True,
        )
        started = start_time(pid)
        if started is None:
            raise FlinkError(f"{command[0]} ended at once", file=output)
        process = Process(pid, started, file)
        write_atomic(file, json.dumps({**asdict(process), "file": str(file)}, indent=1) + "\n")
    return process


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Put Ctrl-C off, so that no process is started without being written down."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        asked.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if asked:
        raise KeyboardInterrupt


def start_time(pid: int) -> str | None:
    """When a process started, exact enough to distinguish two with one pid.

    Returns:
        The boot and the clock ticks since it, or the date that `ps` lists; None: it has ended.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return None if Path("/proc/self/stat").exists() else listed_start_time(pid)
    # After the name in parentheses, which may hold anything: state is field 3, start field 22.
    fields = stat[stat.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else f"{boot} {fields[19]}"


def listed_start_time(pid: int) -> str | None:
    """When a process started, as `ps` lists it: for machines without /proc, such as macOS.

    Returns:
        The date in words, to the second; None: it has ended.
    """
    state, _, started = _ps(pid, "state=,lstart=").partition(" ")
    return started.strip() if started and not state.startswith("Z") else None


def resident_mib(pid: int) -> float | None:
    """Memory of a process.

    Returns:
        Resident MiB; None if it cannot be read.
    """
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except OSError:
        kib = _ps(pid, "rss=")
        return int(kib) / 1024 if kib.isdigit() else None


def _ps(pid: int, columns: str) -> str:
    try:
        answer = subprocess.run(
            ["ps", "-o", columns, "-p", str(pid)],
            capture_output=True,
            text=True,
            timeout=10,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip()


def is_port_free(port: int) -> bool:
    """Whether a program could listen there on loopback.

    Returns:
        True where the port can be bound, on loopback and on every address.
    """
    for host in ("127.0.0.1", ""):  # Flink's reporters listen on every address
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                return False
    return True


def free_ports(count: int) -> list[int]:
    """Find ports without a listener, below the range of outgoing connections.

    Each program looks from another place, so that two at a time seldom meet.

    Returns:
        As many ports as asked for.
    """
    first, last = 20_000, 32_000
    offset = os.getpid() * 37 % (last - first)
    order = (first + (offset + step) % (last - first) for step in range(last - first))
    free = (port for port in order if is_port_free(port))
    return [next(free) for _ in range(count)]


def wait_until(is_so: Callable[[], bool], timeout_s: float, poll_s: float = _POLL_S) -> bool:
    """Ask until it is so; False when it was not in time.

    Returns:
        True as soon as the condition holds; False after `timeout_s` seconds without.
    """
    end = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() >= end:
            return False
        time.sleep(poll_s)
    return True
