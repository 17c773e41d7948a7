"""What `dsp-gym shadow` takes beside jobs: time per decision, memory, threads, time until ready.

Each job has sixteen vertices and four policies with the guardrails of a job that matters. Decisions
of one job are timed in this process, from the snapshot to what every policy wants, journal on disk
included. What a process takes is measured at one of its own, beside 1, 20 and 100 jobs on a
stand-in for a cluster. A replay is a process, too, from its start to its end: a recording of the
simulated word count, by default of a day, watched as `configs/shadow/shadow-wordcount.yaml` says.
"""

from __future__ import annotations

import math
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.backends.simulated.recording import SimulatedRecording
from dsp_gym.config.files import load_model, parse
from dsp_gym.control.backend_of import Substitute
from dsp_gym.control.config import RunConfig
from dsp_gym.control.serve.session import session
from dsp_gym.control.turn import Hooks
from dsp_gym.errors import StorageError
from dsp_gym.job.catalog import load_job
from dsp_gym.loop.configuration import Configuration
from dsp_gym.records.manifest import RecordedLoad
from dsp_gym.studies.bench.beside import beside
from dsp_gym.studies.bench.machine import Figure, timed
from dsp_gym.studies.bench.policies import LARGE, chain
from dsp_gym.studies.study import dsp_gym

POLICIES = ("learned-q11", "ds2", "justin-artifact", "flink-autoscaler")
REPLAY = "replay of a recorded week"
BARS = {
    "decision p99": 5.0,
    "memory": 150.0,
    "threads": 20.0,
    "start to ready": 1.5,
    "heavy modules": 0.0,
    "decision p99, 20 jobs": 20.0,
    "decision p99, 100 jobs": 25.0,
    "memory, 100 jobs": 300.0,
    "threads, 100 jobs": 100.0,
    REPLAY: 120.0,
}
"""ms, MiB and s: what is allowed."""

WARM_UP = 50
REPLAYED_AS = "shadow-wordcount"
JOBS = (1, 20, 100)
TURN_S = 0.1
"""Processor time of a turn of one job, rounded up: many jobs need a longer interval."""


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
    one, of = jobs == 1, "" if jobs == 1 else f", {jobs} jobs"
    interval_s = max(5, math.ceil(TURN_S * jobs))
    made = 3 if one else decisions
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
    elsewhere = Substitute(load="diurnal", duration_s=60 * (decisions + WARM_UP + 1))
    with session(
        config,
        serve=False,
        mode="shadow",
        substitute=elsewhere,
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
    load = RecordedLoad(name="diurnal", steps=steps)
    recording.add("replayed", Configuration.of_spec(spec), load, 3600 * hours)
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
