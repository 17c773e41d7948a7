"""Small sources of datasets, each written by the code that writes real ones."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.backends.simulated.recording import SimulatedRecording, simulated_samples
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.configuration import Configuration
from dsp_gym.loop.decision import GuardedDecision, ScalingDecision
from dsp_gym.loop.topology import Topology
from dsp_gym.loop.wire import decision_to_json, snapshot_to_json
from dsp_gym.metrics.samples import Samples
from dsp_gym.records.journal import Journal
from dsp_gym.records.manifest import RecordedLoad
from tests.simulating import exact, line

MARCH_1 = 1_772_323_200.0
"""2026-03-01T00:00:00Z."""
DAY_S = 86_400.0
LOAD_PER_S = 1500.0


def job_file(folder: Path, spec: JobSpec | None = None) -> str:
    """A job file of the job, and its path."""
    file = folder / "job.yaml"
    document = (spec or line()).model_dump(mode="json", by_alias=True, exclude_none=True)
    file.write_text(json.dumps(document))  # JSON is YAML
    return str(file)


def simulated(spec: JobSpec | None = None, rate_per_s: float = LOAD_PER_S) -> SimulatedJobs:
    """One simulated job under a constant load."""
    jobs = SimulatedJobs(Topology.of([spec or line()]), exact())
    jobs.reset(np.arange(1), np.array([[rate_per_s]]))
    return jobs


def recording(folder: Path, seconds: int = 600, runs: int = 2, maps: int = 2) -> Path:
    """A recording of a simulated job with so many tasks of its map."""
    made = SimulatedRecording(folder, line(), exact())
    load = RecordedLoad(name="steady", steps=((0.0, LOAD_PER_S),))
    running = Configuration({"source": 4, "map": maps, "sink": 1}, dict.fromkeys(line_names(), -1))
    for number in range(runs):
        made.add(f"run-{number}", running, load, seconds, seed=number)
    return folder


def line_names() -> list[str]:
    """Vertices of the small job."""
    return [vertex.name for vertex in line().vertices]


def day_of_samples(day: int, seconds: int = 600, begin_s: float = 3600.0) -> Samples:
    """Some minutes of a simulated job on a day of March 2026."""
    found = simulated_samples(simulated(), seconds)
    at = MARCH_1 + day * DAY_S + begin_s
    return Samples(found.t_s + at, found.vertex, found.subtask, found.metric, found.value)


def archive_file(file: Path, samples: Samples, **changed: Any) -> Path:
    """The samples as Parquet in the long form."""
    columns = {
        "t_s": pa.array(samples.t_s),
        "vertex": pa.array(samples.vertex.tolist()),
        "subtask": pa.array(samples.subtask),
        "metric": pa.array(samples.metric.tolist()),
        "value": pa.array(samples.value),
    }
    columns |= {name: column for name, column in changed.items() if column is not None}
    file.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(
        pa.table({n: c for n, c in columns.items() if n not in changed or changed[n] is not None}),
        file,
    )
    return file


def archive(folder: Path, days: int = 2, seconds: int = 600) -> Path:
    """A file of samples for each day."""
    for day in range(days):
        archive_file(folder / f"day-{day}.parquet", day_of_samples(day, seconds))
    return folder


def write_journal(
    folder: Path, day: int, turns: int = 8, *, applied: bool = True, policy: str = "scaler"
) -> Path:
    """A loop over a simulated job that takes the map to three tasks at its third turn."""
    jobs = simulated()
    with Journal(folder, segment_mib=0.02) as journal:
        for turn in range(turns):
            at_s = MARCH_1 + day * DAY_S + 3600.0
            seen = jobs.snapshot()
            t_s = at_s + float(seen.t_s[0])
            body = snapshot_to_json(seen.job(0))
            body["t_s"] = t_s
            body["metrics"]["running_since_s"] += at_s
            wanted = seen.parallelism.copy()
            if turn == 2:
                wanted[0, line_names().index("map")] = 3
            decision = ScalingDecision(wanted, seen.memory_level.copy(), ("it is time",))
            guarded = GuardedDecision.unchanged(decision)
            with journal.decision():
                journal.append("snapshot", t_s, "line", policy, body)
                asked = decision_to_json(decision, seen.job(0))
                journal.append("decision", t_s, "line", policy, asked)
                allowed = decision_to_json(guarded, seen.job(0))
                journal.append("guard", t_s, "line", policy, allowed)
                told = {"event": "decided", "asked": turn == 2, "applied": applied, "held": None}
                journal.append("actuation", t_s, "line", policy, told)
            if applied:
                jobs.apply(guarded)
            outcome = {k: float(v[0]) for k, v in asdict(jobs.advance(60)).items()}
            journal.append("outcome", t_s + 60, "line", policy, outcome)
    return folder
