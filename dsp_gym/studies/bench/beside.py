"""What `dsp-gym shadow` takes beside jobs on a cluster, which a stand-in plays.

The process is a real one, from its command line on, and so are its clients of Kubernetes and
Prometheus. All jobs decide at once: they are begun together and keep their intervals.
"""

from __future__ import annotations

import json
import math
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.errors import StorageError
from dsp_gym.job.spec import JobSpec
from dsp_gym.studies.bench.stand_in import NAMESPACE, SELECTOR, standing_in

HEAVY = (
    "matplotlib",
    "mlflow",
    "pandas",
    "pyarrow",
    "pyspark",
    "scipy.optimize",
    "scipy.stats",
    "sklearn",
    "torch",
)
"""What nothing of a shadow may import, whatever is installed beside it.

Numba itself imports SciPy's linear algebra where that is installed; the image has none.
"""

START_S = 600.0

_AT_EXIT = """
import atexit, json, sys
from pathlib import Path

def tell():
    found = [name for name in {heavy!r} if name in sys.modules]
    Path({file!r}).write_text(json.dumps(found))

atexit.register(tell)
"""


@dataclass(frozen=True, slots=True)
class Beside:
    """What was measured beside a number of jobs."""

    ready_s: float  # from the command line until every job had its first decision
    took_s: Floats  # of every decision, journal on disk included
    memory_mib: float  # resident, at the end
    threads: int  # at most
    heavy: tuple[str, ...]  # modules that should not have been imported


@dataclass(frozen=True, slots=True)
class Running:
    """A process that serves HTTP."""

    process: subprocess.Popen[bytes]
    port: int

    def get(self, path: str) -> bytes:
        """Ask for a page.

        Returns:
            Its body.

        Raises:
            OSError: It is not served, or not yet.
        """
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            body: bytes = answer.read()
        return body

    def ask(self, path: str) -> bytes | None:
        """Ask for a page of a process that is only just starting.

        Returns:
            Its body; None while it is not served.

        Raises:
            StorageError: The process has ended.
        """
        if self.process.poll() is not None:
            raise StorageError(f"dsp-gym shadow ended with {self.process.returncode}", file=path)
        try:
            return self.get(path)
        except OSError:
            return None


def _two_free_ports() -> int:
    """Find two neighbouring free ports; the lower one is returned."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port: int = free.getsockname()[1]
            with suppress(OSError), socket.create_server(("127.0.0.1", port + 1)):
                return port


@contextmanager
def running(file: Path, arguments: list[str], out: Path, before: str = "") -> Iterator[Running]:
    """Run `dsp-gym shadow` in a process, until the block ends.

    Args:
        file: its configuration.
        arguments: further words of the command line.
        out: where its output goes.
        before: Python code that it runs first.

    Yields:
        The process; it listens on a port that was free, and on the next one for probes.
    """
    port = _two_free_ports()
    code = f"{before}\nfrom dsp_gym.cli import main\nmain()"
    line = [
        sys.executable,
        "-c",
        code,
        "shadow",
        str(file),
        "--port",
        str(port),
        "--public",
        *arguments,
    ]
    with out.open("wb") as stream:
        process = subprocess.Popen(line, stdout=stream, stderr=subprocess.DEVNULL)
        try:
            yield Running(process, port)
        finally:
            process.terminate()
            process.wait()


def beside(
    document: dict[str, object],
    spec: JobSpec,
    folder: Path,
    *,
    jobs: int,
    decisions: int,
    interval_s: int = 5,
) -> Beside:
    """Watch jobs for a while.

    Args:
        document: the run's configuration without its place.
        spec: every job.
        folder: room for files.
        jobs: how many there are.
        decisions: of each, after the first one.
        interval_s: seconds between two decisions of a job.

    Returns:
        What it took.
    """
    tasks = {vertex.name: vertex.parallelism for vertex in spec.vertices}
    file, out, told = folder / "beside.yaml", folder / "beside.jsonl", folder / "heavy.json"
    with standing_in(jobs, tasks) as url:
        place = {
            "kubeconfig": str(_kubeconfig(folder / "kubeconfig", url)),
            "namespace": NAMESPACE,
            "selector": SELECTOR,
            "prometheus_url": url,
        }
        where = {"where": {"kubernetes": place}, "interval_s": interval_s}
        kept = {"journal": str(folder / f"at-{jobs}")}
        file.write_text(json.dumps({**document, **where, **kept}))
        begun = time.perf_counter()
        before = _AT_EXIT.format(heavy=HEAVY, file=str(told))
        with running(file, ["--json"], out, before) as shadow:
            _wait_for(shadow, jobs, 1)
            ready_s = time.perf_counter() - begun
            most = _wait_for(shadow, jobs, 1 + decisions)
            memory = memory_mib(shadow.process.pid)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    took = [line["seconds"] for line in lines if line.get("number", 1) > 1]
    return Beside(ready_s, np.array(took), memory, most, tuple(json.loads(told.read_text())))


def memory_mib(pid: int) -> float:
    """Read the resident memory of a process.

    Returns:
        MiB.
    """
    return _status(pid, "VmRSS") / 1024


def _wait_for(shadow: Running, jobs: int, decisions: int) -> int:
    """Wait until every job has so many decisions; returns the most threads seen meanwhile."""
    deadline, most, least = time.perf_counter() + START_S, 0, -math.inf
    while least < decisions:
        if time.perf_counter() > deadline:
            raise StorageError(f"{jobs} jobs have not made {decisions} decisions", file="/v1/jobs")
        time.sleep(0.02 + 0.005 * (jobs - 1))  # to ask about many takes the process a while
        most = max(most, _status(shadow.process.pid, "Threads"))
        body = shadow.ask("/v1/jobs")
        found = [] if body is None else json.loads(body)["jobs"]
        made = [job.get("decisions_made", 0) for job in found]
        least = min(made) if len(made) == jobs else -math.inf
    return most


def _status(pid: int, key: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1])
    raise StorageError(f"has no {key}", file=f"/proc/{pid}/status")


def _kubeconfig(file: Path, url: str) -> Path:
    context = {"cluster": "bench", "user": "bench", "namespace": NAMESPACE}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": {"server": url}}],
        "users": [{"name": "bench", "user": {"token": "read-only"}}],
        "contexts": [{"name": "bench", "context": context}],
    }
    file.write_text(json.dumps(document))
    return file
