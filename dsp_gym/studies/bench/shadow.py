"""What `dsp-gym shadow` takes beside a job: time per decision, memory, time until it is ready.

The job has sixteen vertices and four policies with the guardrails of a job that matters. Decisions
are timed in this process, from the snapshot to what every policy wants, journal on disk included.
Start and memory are those of a process of its own, with the clients of Prometheus and Kubernetes
loaded as they would be there. A replay is one, too, from its start to its end: a recording of the
simulated word count, by default of a day, watched as `configs/shadow/shadow-wordcount.yaml` says.
"""

from __future__ import annotations

import importlib.util
import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dsp_gym.backends.simulated.recording import SimulatedRecording
from dsp_gym.config.files import load_model, parse
from dsp_gym.control.config import RunConfig
from dsp_gym.control.places import Elsewhere
from dsp_gym.control.run import Hooks
from dsp_gym.control.serve.session import session
from dsp_gym.errors import StorageError
from dsp_gym.job.catalog import load_job
from dsp_gym.loop.configuration import Configuration
from dsp_gym.records.manifest import RecordedLoad
from dsp_gym.studies.bench.policies import LARGE, chain

__all__ = ["BARS", "Figure", "bench_shadow", "configuration"]

POLICIES = ("learned", "ds2", "justin-artifact", "flink-autoscaler")
REPLAY = "replay of a recorded week"
BARS = {"decision p99": 20.0, "memory": 250.0, "start to ready": 3.0, REPLAY: 120.0}
"""ms, MiB and s: what is allowed."""

WARM_UP = 50
START_S = 60.0
REPLAYED_AS = "shadow-wordcount"
CLIENTS = ("kubernetes.client", "prometheus_api_client")


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure."""

    name: str
    unit: str
    value: float
    bar: float | None = None
    method: str = ""  # where the name does not say how it was measured


def configuration(folder: Path) -> dict[str, object]:
    """Writes the job file of a chain of sixteen vertices into the folder.

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


def bench_shadow(decisions: int = 1440, starts: int = 3, replayed_h: int = 24) -> list[Figure]:
    """All figures.

    Args:
        decisions: that are timed; 1,440 are a day.
        starts: processes started one after the other; the median counts.
        replayed_h: hours of the recording that is replayed; 168 are a week.

    Returns:
        Figures with their bars.
    """
    with tempfile.TemporaryDirectory() as name:
        document = configuration(Path(name))
        figures = _decisions(document, decisions)
        found = [_started(document, Path(name)) for _ in range(starts)]
        figures += _replayed(Path(name), replayed_h)
    ready_s, memory_mib = (float(np.median(values)) for values in zip(*found, strict=True))
    return [
        *figures,
        Figure("memory", "MiB", memory_mib, BARS["memory"]),
        Figure("start to ready", "s", ready_s, BARS["start to ready"]),
    ]


def _decisions(document: dict[str, object], decisions: int) -> list[Figure]:
    config = parse(RunConfig, document, "bench")
    took: list[float] = []
    elsewhere = Elsewhere(load="diurnal", duration_s=60 * (decisions + WARM_UP + 1))
    with session(
        config,
        serve=False,
        mode="shadow",
        elsewhere=elsewhere,
        durable=True,
        hooks=Hooks(on_decision=lambda turn: took.append(turn.seconds)),
    ) as shown:
        begun = time.perf_counter()
        shown.run.run(steps=decisions + WARM_UP)
        whole_s = time.perf_counter() - begun
        journal = sum(
            file.stat().st_size for file in Path(str(document["journal"])).rglob("*.jsonl")
        )
    took_ms = 1000 * np.array(took[WARM_UP:])
    return [
        Figure("decision p50", "ms", float(np.percentile(took_ms, 50))),
        Figure("decision p99", "ms", float(np.percentile(took_ms, 99)), BARS["decision p99"]),
        Figure("decision longest", "ms", float(took_ms.max())),
        Figure("simulated decisions", "1/s", (decisions + WARM_UP) / whole_s),
        Figure("journal of one decision", "KiB", journal / 1024 / (decisions + WARM_UP)),
    ]


def _started(document: dict[str, object], folder: Path) -> tuple[float, float]:
    """Seconds until a process is ready, and the memory it holds some decisions later, MiB."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    file = folder / "shadow.yaml"
    file.write_text(json.dumps(document))
    loaded = [name for name in CLIENTS if importlib.util.find_spec(name.partition(".")[0])]
    code = "".join(f"import {name}\n" for name in loaded)
    code += "from dsp_gym.cli import main\nmain()"
    line = [
        sys.executable,
        "-c",
        code,
        "shadow",
        str(file),
        "--simulated",
        "diurnal",
        "--speed",
        "600",
        "--port",
        str(port),
    ]
    begun = time.perf_counter()
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            while not _is_ready(port):
                if process.poll() is not None or time.perf_counter() - begun > START_S:
                    raise StorageError("dsp-gym shadow did not start", file=file)
                time.sleep(0.02)
            ready_s = time.perf_counter() - begun
            _wait_for(port, decisions=60)
            return ready_s, _memory_mib(process.pid)
        finally:
            process.terminate()


def _replayed(folder: Path, hours: int) -> list[Figure]:
    """How fast a process goes through a recording, and how long a week of it takes at that."""
    spec = load_job("flink-wordcount")
    by_hour = 0.6 + 0.35 * np.sin(2 * np.pi * np.arange(hours) / 24)
    steps = tuple((3600.0 * h, float(spec.source.rate_per_s * x)) for h, x in enumerate(by_hour))
    recording = SimulatedRecording(folder / "recording", spec)
    load = RecordedLoad(name="diurnal", steps=steps)
    start = Configuration.of_spec(spec)
    recording.add("replayed", start, load, 3600 * hours)
    line = [
        sys.executable,
        "-c",
        "from dsp_gym.cli import main\nmain()",
        "shadow",
        REPLAYED_AS,
        "--replay",
        str(folder / "recording"),
        "--journal",
        str(folder / "replayed"),
    ]
    begun = time.perf_counter()
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    took_s = time.perf_counter() - begun
    if done.returncode != 0:
        raise StorageError(f"could not be replayed: {done.stderr[-300:]}", file=folder)
    config = load_model(RunConfig, "shadow", REPLAYED_AS)
    how = (
        f"a whole process on {hours} recorded hours, {3600 * hours // config.interval_s} decisions "
        f"{config.interval_s} s apart by {len(config.seats)} policies, in {took_s:.1f} s"
    )
    return [
        Figure("replay", "recorded hours/s", hours / took_s, method=how),
        Figure(REPLAY, "s", 168 * took_s / hours, BARS[REPLAY], f"{how}, times {168 / hours:g}"),
    ]


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:  # not listening yet, or 503
        return False


def _wait_for(port: int, decisions: int) -> None:
    deadline = time.perf_counter() + START_S
    made = 0
    while made < decisions and time.perf_counter() < deadline:
        time.sleep(0.2)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/status", timeout=5) as answer:
            made = json.load(answer)["decisions_made"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            answer.read()


def _memory_mib(pid: int) -> float:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise StorageError("has no VmRSS", file=f"/proc/{pid}/status")
