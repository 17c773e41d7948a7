"""What `dsp-gym shadow` takes beside jobs: time per decision, memory, threads, time until ready.

Each job has sixteen vertices and four policies with the guardrails of a job that matters. Decisions
of one job are timed in this process, from the snapshot to what every policy wants, journal on disk
included. What a process takes is measured at one of its own, beside 1, 30, 100 and 300 jobs on a
stand-in for a cluster. A replay is a process, too, from its start to its end: a recording of the
simulated word count, by default of a day, watched as `configs/shadow/shadow-wordcount.yaml` says.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.backends.flink.local.processes import free_ports
from dsp_gym.backends.simulated.recording import SimulatedRecording
from dsp_gym.config.files import load_model, parse
from dsp_gym.control.backend_of import Substitute
from dsp_gym.control.config import RunConfig
from dsp_gym.control.serve.session import session
from dsp_gym.control.turn import Hooks
from dsp_gym.errors import StorageError
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.configuration import Configuration
from dsp_gym.records.manifest import RecordedLoad
from dsp_gym.studies.bench.machine import Figure, process_status, processor_s, timed
from dsp_gym.studies.bench.policies import LARGE, chain
from dsp_gym.studies.bench.stand_in import NAMESPACE, SELECTOR, standing_in
from dsp_gym.studies.runner import DSP_GYM, dsp_gym

POLICIES = ("learned-q11", "ds2", "justin-artifact", "flink-autoscaler")
REPLAY = "replay of a recorded week"
BARS = {
    "decision p99": 5.0,
    "memory": 150.0,
    "threads": 20.0,
    "start to ready": 1.5,
    "heavy modules": 0.0,
    "decision p99, 30 jobs": 20.0,
    "memory, 30 jobs": 230.0,
    "decision p99, 100 jobs": 25.0,
    "memory, 100 jobs": 300.0,
    "threads, 100 jobs": 100.0,
    "memory, 300 jobs": 500.0,
    REPLAY: 120.0,
}
"""ms, MiB and s: what is allowed."""

WARM_UP = 50
REPLAYED_AS = "shadow-wordcount"
JOBS = (1, 30, 100, 300)
TURN_S = 0.1
"""Processor time of a turn of one job, rounded up: many jobs need a longer interval."""

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

Numba itself imports SciPy's linear algebra where that is installed; the image has none, and a
measured process finds none.
"""

START_S = 600.0

_AS_IN_THE_IMAGE = """
import atexit, json, sys
from pathlib import Path

sys.modules["scipy"] = None  # importing it fails

def tell():
    found = [name for name in {heavy!r} if name in sys.modules]
    Path({file!r}).write_text(json.dumps(found))

atexit.register(tell)
"""


def configuration(folder: Path) -> dict[str, object]:
    """Write the job file of a chain of sixteen vertices into a folder.

    Returns:
        A run's configuration with four policies on it.
    """
    job = folder / "chain.yaml"
    job.write_text(chain(LARGE).model_dump_json(by_alias=True, exclude_defaults=True))
    return {
        "job": str(job),
        "policies": [*POLICIES, "incumbent"],
        "guardrails": "deployed",
        "interval_s": 60,
        "journal": str(folder / "journal"),
    }


def bench_shadow(
    decisions: int = 1440,
    starts: int = 3,
    replayed_h: int = 24,
    jobs: Sequence[int] = JOBS,
    of_each: int = 10,
) -> list[Figure]:
    """Measure all figures.

    Args:
        decisions: that are timed; 1,440 are a day.
        starts: processes started one after the other; the median counts.
        replayed_h: hours of the recording that is replayed; 168 are a week.
        jobs: how many jobs a process watches, one process after the other.
        of_each: decisions of each of several jobs.

    Returns:
        Figures with their bars.
    """
    with tempfile.TemporaryDirectory() as name:
        document = configuration(Path(name))
        figures = _decisions(document, decisions)
        for number in jobs:
            figures += _beside(document, Path(name), number, starts, of_each)
        figures += _replayed(Path(name), replayed_h)
    return figures


def _beside(
    document: dict[str, object], folder: Path, jobs: int, starts: int, decisions: int
) -> list[Figure]:
    """Measure a process beside so many jobs."""
    one = jobs == 1
    of = "" if one else f", {jobs} jobs"
    interval_s = max(5, math.ceil(TURN_S * jobs))
    made = 2 if one else decisions
    found = [
        beside(document, chain(LARGE), folder, jobs=jobs, decisions=made, interval_s=interval_s)
        for _ in range(starts if one else 1)
    ]
    how = f"a process beside {jobs} jobs of a stand-in, decisions every {interval_s} s"
    heavy = sorted({name for each in found for name in each.heavy})
    said = f"imported by the process: {', '.join(heavy) or 'none'}"
    figures = [
        Figure(name + of, unit, float(np.median(values)), BARS.get(name + of), method)
        for name, unit, values, method in (
            ("memory", "MiB", [each.memory_mib for each in found], how),
            ("threads", "", [each.threads for each in found], how),
            ("cores", "", [each.cores for each in found], how),
            ("start to ready", "s", [each.ready_s for each in found], how),
            ("heavy modules", "", [len(heavy)], said),
        )
    ]
    return figures if one else [*_times(found[0].took_s, of, how), *figures[:-1]]


def _times(took_s: Floats, of: str = "", method: str = "") -> list[Figure]:
    """Sum up the times of decisions."""
    return [
        Figure(name, "ms", float(np.percentile(1000 * took_s, share)), BARS.get(name), method)
        for share, name in ((50, f"decision p50{of}"), (99, f"decision p99{of}"))
    ]


def _decisions(document: dict[str, object], decisions: int) -> list[Figure]:
    config = parse(RunConfig, document, "bench")
    took: list[float] = []
    with session(
        config,
        serve=False,
        mode="shadow",
        substitute=Substitute(load="diurnal", duration_s=60 * (decisions + WARM_UP + 1)),
        durable=True,
        hooks=Hooks(on_decision=lambda turn: took.append(turn.seconds)),
    ) as shown:
        (whole_s,) = timed(lambda: shown.run.run(steps=decisions + WARM_UP), 1)
        journal = sum(
            file.stat().st_size for file in Path(str(document["journal"])).rglob("*.jsonl")
        )
    return [
        *_times(np.array(took[WARM_UP:])),
        Figure("decision longest", "ms", 1000 * max(took[WARM_UP:])),
        Figure("simulated decisions", "1/s", (decisions + WARM_UP) / whole_s),
        Figure("journal of one decision", "KiB", journal / 1024 / (decisions + WARM_UP)),
    ]


def _replayed(folder: Path, hours: int) -> list[Figure]:
    """Measure how fast a process replays a recording, and compute the time of a week."""
    spec = load_job("flink-wordcount")
    by_hour = 0.6 + 0.35 * np.sin(2 * np.pi * np.arange(hours) / 24)
    steps = tuple((3600.0 * h, float(spec.source.rate_per_s * x)) for h, x in enumerate(by_hour))
    recording = SimulatedRecording(folder / "recording", spec)
    recording.add(
        "replayed",
        Configuration.of_spec(spec),
        RecordedLoad(name="diurnal", steps=steps),
        3600 * hours,
    )
    line = dsp_gym("shadow", REPLAYED_AS, folder / "recording", "--journal", folder / "replayed")
    begun = time.perf_counter()
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    took_s = time.perf_counter() - begun
    if done.returncode != 0:
        raise StorageError(f"could not be replayed: {done.stderr[-300:]}", file=folder)
    config = load_model(RunConfig, "shadow", REPLAYED_AS)
    how = (
        f"a whole process on {hours} recorded hours, {3600 * hours // config.interval_s} decisions "
        f"{config.interval_s} s apart by {len(config.all_policies)} policies, in {took_s:.1f} s"
    )
    return [
        Figure("replay", "recorded hours/s", hours / took_s, method=how),
        Figure(REPLAY, "s", 168 * took_s / hours, BARS[REPLAY], f"{how}, times {168 / hours:g}"),
    ]


@dataclass(frozen=True, slots=True)
class Beside:
    """What was measured beside a number of jobs."""

    ready_s: float  # from the command line until every job had its first decision
    took_s: Floats  # of every decision, journal on disk included
    memory_mib: float  # resident, p95 of the time after the second decisions
    cores: float  # processor time over time, after the second decisions
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
        decisions: of each, after the second one.
        interval_s: seconds between two decisions of a job.

    Returns:
        What it took.
    """
    file, out, told = folder / "beside.yaml", folder / "beside.jsonl", folder / "heavy.json"
    tasks = {vertex.name: vertex.parallelism for vertex in spec.vertices}
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
        code = f"{_AS_IN_THE_IMAGE.format(heavy=HEAVY, file=str(told))}\n{DSP_GYM}"
        line = [sys.executable, "-c", code, "shadow", str(file), "--json"]
        begun = time.perf_counter()
        process = subprocess.Popen(line, stdout=stream, stderr=subprocess.DEVNULL)
        try:
            _wait_for(process, port, jobs, 1)
            ready_s = time.perf_counter() - begun
            # What the start has read in is given back after the first decisions.
            _wait_for(process, port, jobs, 2)
            resident: list[int] = []
            used_s, since_s = processor_s(process.pid), time.perf_counter()
            most = _wait_for(process, port, jobs, 2 + decisions, resident)
            passed_s = time.perf_counter() - since_s
            cores = (processor_s(process.pid) - used_s) / passed_s
            memory_mib = float(np.quantile(resident, 0.95)) / 1024
        finally:
            process.terminate()
            process.wait()
    lines = map(json.loads, out.read_text().splitlines())
    took = [line["seconds"] for line in lines if line.get("number", 1) > 1]
    heavy = tuple(json.loads(told.read_text()))
    return Beside(ready_s, np.array(took), memory_mib, cores, most, heavy)


def _wait_for(
    process: subprocess.Popen[bytes],
    port: int,
    jobs: int,
    decisions: int,
    resident: list[int] | None = None,
) -> int:
    """Wait until every job has so many decisions; returns the most threads seen meanwhile.

    Memory is noted in `resident`, KiB.
    """
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
        if resident is not None:
            resident.append(process_status("VmRSS", process.pid))
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
