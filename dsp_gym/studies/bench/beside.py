"""What `dsp-gym shadow` takes beside jobs on a cluster, which a stand-in plays.

The process is a real one, from its command line on, and so are its clients of Kubernetes and
Prometheus. All jobs decide at once: they are begun together and keep their intervals.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.backends.flink.local.processes import free_ports
from dsp_gym.errors import StorageError
from dsp_gym.job.spec import JobSpec
from dsp_gym.studies.bench.machine import process_status
from dsp_gym.studies.bench.stand_in import NAMESPACE, SELECTOR, standing_in
from dsp_gym.studies.study import DSP_GYM

HEAVY = (
    "matplotlib",
    "mlflow",
    "pandas",
    "prometheus_api_client",
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
    (port,) = free_ports(1)
    with standing_in(jobs, tasks) as url, out.open("wb") as stream:
        place = {
            "kubeconfig": str(_kubeconfig(folder / "kubeconfig", url)),
            "namespace": NAMESPACE,
            "selector": SELECTOR,
            "prometheus_url": url,
        }
        run = {
            "where": {"kubernetes": place},
            "interval_s": interval_s,
            "journal": str(folder / f"at-{jobs}"),
            "serve": {"port": port, "probe_port": 0, "public": True},
        }
        file.write_text(json.dumps(document | run))
        code = f"{_AT_EXIT.format(heavy=HEAVY, file=str(told))}\n{DSP_GYM}"
        line = [sys.executable, "-c", code, "shadow", str(file), "--json"]
        begun = time.perf_counter()
        process = subprocess.Popen(line, stdout=stream, stderr=subprocess.DEVNULL)
        try:
            _wait_for(process, port, jobs, 1)
            ready_s = time.perf_counter() - begun
            most = _wait_for(process, port, jobs, 1 + decisions)
            memory_mib = process_status("VmRSS", process.pid) / 1024
        finally:
            process.terminate()
            process.wait()
    lines = map(json.loads, out.read_text().splitlines())
    took = [line["seconds"] for line in lines if line.get("number", 1) > 1]
    return Beside(ready_s, np.array(took), memory_mib, most, tuple(json.loads(told.read_text())))


def _wait_for(process: subprocess.Popen[bytes], port: int, jobs: int, decisions: int) -> int:
    """Wait until every job has so many decisions; returns the most threads seen meanwhile."""
    deadline, most = time.perf_counter() + START_S, 0
    made: list[int] = []
    while len(made) < jobs or min(made) < decisions:
        if time.perf_counter() > deadline or process.poll() is not None:
            raise StorageError(
                f"{jobs} jobs have not made {decisions} decisions (exit code of dsp-gym shadow: "
                f"{process.returncode})",
                file="/v1/jobs",
            )
        time.sleep(0.02 + 0.005 * (jobs - 1))  # to ask about many takes the process a while
        most = max(most, process_status("Threads", process.pid))
        with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/v1/jobs", timeout=10) as answer:
            made = [job.get("decisions_made", 0) for job in json.load(answer)["jobs"]]
    return most


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
