"""The processes of dsp-gym: started, ended, frozen, and started again as a kubelet would."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import yaml

__all__ = ["ROOT", "Replica"]

ROOT = Path(__file__).resolve().parents[2]
INTERVAL_S = 3
_AGAIN_S = 1.0
_END_S = 20.0


class Replica:
    """One `dsp-gym shadow --apply`, which is started again whenever it has ended.

    Args:
        name: its own.
        folder: for its configuration, log, journal and clock.
        document: its configuration; the journal is named here.
        job: the job's name, of which the journal's folder is called.
        path: folders on the import path.
    """

    def __init__(
        self, name: str, folder: Path, document: Mapping[str, object], job: str, path: str
    ) -> None:
        folder.mkdir(parents=True)
        self.name, self.folder = name, folder
        self.journal = folder / "journal" / job
        self.log = folder / "log.txt"
        self.exits: list[int] = []
        """Exit codes since the start, those of kills included."""
        self.kills = self.starts = 0
        self._clock = folder / "clock"
        self._config = folder / "run.yaml"
        self._config.write_text(yaml.safe_dump({**document, "journal": str(folder / "journal")}))
        self._path = path
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._again_s = 0.0
        self._limit: int | None = None
        self._frozen = self._is_to_restart = False
        self.step(0.0)

    @property
    def is_alive(self) -> bool:
        """Whether it runs; also while it is frozen."""
        return self._process is not None and self._process.poll() is None

    def tend(self) -> None:
        """Start it if it has ended, but not at once."""
        if self._is_to_restart:
            self._is_to_restart = False
            self.kill()
        process = self._process
        if process is not None and process.poll() is not None:
            self.exits.append(process.returncode)
            self._process = None
            self._again_s = time.monotonic() + _AGAIN_S
        if self._process is None and time.monotonic() >= self._again_s:
            self._start()

    def kill(self, again_s: float = 0.0) -> None:
        """End it at once; it is started again after that many seconds."""
        if self._process is None or self._process.poll() is not None:
            return
        self.kills += 1
        self._process.kill()
        self._process.wait()
        self.tend()
        self._again_s = time.monotonic() + again_s

    def restart(self) -> None:
        """Have it started anew, as a person does who has changed its job."""
        self._is_to_restart = True

    def freeze(self, *, frozen: bool) -> None:
        """Stop it where it is, or wake it."""
        self._frozen = frozen
        if self.is_alive:
            self._signal(signal.SIGSTOP if frozen else signal.SIGCONT)

    def fill_disk(self, spare: int | None) -> None:
        """No file of it grows beyond its journal and so many bytes; None: as before."""
        self._limit = None
        if spare is not None:
            segments = self.journal.glob("*.jsonl")
            self._limit = spare + max((file.stat().st_size for file in segments), default=0)
        self._limit_files()

    def step(self, seconds: float) -> None:
        """Set its wall clock that much ahead of the machine's."""
        other = self._clock.with_suffix(".new")
        other.write_text(f"{seconds}")
        other.replace(self._clock)

    def end(self) -> None:
        """End it for good, awake or not."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._reader is not None:
            self._reader.join()

    def _start(self) -> None:
        line = [sys.executable, "-m", "tests.nemesis.program", str(self._clock), str(INTERVAL_S),
                "shadow", str(self._config), "--apply", "--sole", "--no-serve"]  # fmt: skip
        env = {**os.environ, "PYTHONPATH": self._path, "PYTHONUNBUFFERED": "1"}
        self._process = subprocess.Popen(
            line, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._copy, args=(self._process,), daemon=True)
        self._reader.start()
        self.starts += 1
        self._limit_files()
        if self._frozen:
            self._signal(signal.SIGSTOP)

    def _copy(self, process: subprocess.Popen[bytes]) -> None:
        """What it prints, with the time; a pipe takes it also where no file may grow."""
        assert process.stdout is not None
        with process.stdout, self.log.open("ab") as log:
            log.write(f"{time.time():.2f} process {process.pid} starts\n".encode())
            for line in process.stdout:
                log.write(f"{time.time():.2f} ".encode() + line)
                log.flush()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _limit_files(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        _, hard = resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE)
        soft = hard if self._limit is None else self._limit
        resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (soft, hard))
