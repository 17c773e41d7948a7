"""A guarded trained network drives the real word count for twenty minutes; no record may be lost.

    python -m dsp_gym.studies.validation.drive [--policy FOLDER] [--minutes 20] [--out FILE.json]

The load is an hour of `diurnal-bursts` on a seed no agent was trained on, compressed three times;
then it is zero until everything has arrived. Every sentence has as many words as the job says, so
the words counted since the first start must be that many times the sentences emitted, across all
savepoints and resubmissions.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from dsp_gym.arrays import Floats
from dsp_gym.backends.config import PlaceConfig
from dsp_gym.backends.flink.backend import FlinkBackend
from dsp_gym.backends.flink.connection import reach
from dsp_gym.backends.flink.submission import load_arguments
from dsp_gym.config.files import load_model
from dsp_gym.control.config import RunConfig
from dsp_gym.control.start import started
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec
from dsp_gym.loads.generate import rates
from dsp_gym.loads.spec import LoadConfig
from dsp_gym.loop.configuration import Configuration
from dsp_gym.records.journal import read
from dsp_gym.studies.runner import run, write_figures
from dsp_gym.studies.running import WINDOW, CountedRecords, drained, submitted

JOB, NAME = "flink-wordcount", "drive"
LOAD, SEED, COMPRESSION = "diurnal-bursts", 9001, 3
INTERVAL_S = 30
DRAIN_S = 180.0


def compressed(seconds: int, peak_per_s: float, compression: int = COMPRESSION) -> Floats:
    """The load, records/s per real second: the mean of so many of its own seconds, then zero.

    Returns:
        (seconds + 1,) records/s; the largest is `peak_per_s`, the last is 0.
    """
    load = load_model(LoadConfig, "loads", LOAD).load
    slow = rates(load, seed=SEED, duration_s=seconds * compression)
    fast = slow.reshape(seconds, compression).mean(axis=1)
    return np.append(fast / fast.max() * peak_per_s, 0.0)


def main(
    policy: Annotated[str, typer.Option(help="A policy's name or folder.")] = "learned-q11",
    guardrails: Annotated[str, typer.Option(help="What its decisions pass.")] = "deployed",
    minutes: Annotated[float, typer.Option(min=1, help="How long it drives.")] = 20.0,
    out: Annotated[Path | None, typer.Option(help="Where the figures are written.")] = None,
    journal: Annotated[Path, typer.Option(help="Folder of the journal.")] = Path("runs/drive"),
    home: Annotated[Path | None, typer.Option(help="Folder of the local cluster.")] = None,
) -> None:
    """Let a policy drive the real word count and count what arrives."""
    place, spec, seconds = reach(PlaceConfig(home=home)), load_job(JOB), round(60 * minutes)
    rates = compressed(seconds, spec.source.rate_per_s)
    load = load_arguments(rates, journal, round(1000 * time.time()))
    config = RunConfig(
        job=JOB,
        job_name=NAME,
        where=place.config,
        policy=policy,
        guardrails=guardrails,
        interval_s=INTERVAL_S,
        window=WINDOW,
    )
    folder = journal / time.strftime("%Y%m%d-%H%M%S")
    with (
        submitted(place.rest, spec, NAME, load, Configuration.of_spec(spec)),
        started(config, mode="active", journal=folder) as run,
    ):
        run.run(duration_s=seconds)
        assert isinstance(run.backend, FlinkBackend)  # the place is a cluster
        counted = drained(run.backend.collector.source, spec, DRAIN_S)
    write_figures(_figures(folder, run.turns, counted, spec), out)


def _figures(
    journal: Path, turns: int, counted: CountedRecords, spec: JobSpec
) -> dict[str, object]:
    assert spec.flink is not None  # it has run
    entries = list(read(journal))
    kinds = Counter(entry.kind for entry in entries)
    slo_s = [entry.body["slo_s"] for entry in entries if entry.kind == "outcome"]
    trips = Counter(
        guardrail
        for entry in entries
        if entry.kind == "guard"
        for guardrail in {found["guardrail"] for found in entry.body["interventions"]}
    )
    complete = [entry.seq for entry in entries] == list(range(len(entries)))
    return {
        "job": JOB,
        "turns": turns,
        "entries": kinds,
        "events": Counter(e.body["event"] for e in entries if e.kind == "actuation"),
        "trips": trips,
        "slo_s": float(np.nansum(np.array(slo_s, dtype=np.float64))),
        "emitted": counted.emitted,
        "received": counted.received,
        "words": int(spec.flink.arguments["words"]),
        "holds": {
            "no record lost": counted.arrived,
            "journal complete": complete
            and all(kinds[k] == turns for k in ("snapshot", "decision", "guard", "outcome")),
        },
    }


if __name__ == "__main__":
    run(main)
