"""Measured runs as CSV (runs.csv, samples.csv.gz), kept as Parquet run by run."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

from dsp_gym.errors import DatasetError
from dsp_gym.job.catalog import load_job
from dsp_gym.records.flink_runs import read_flink_runs
from dsp_gym.records.hashes import file_sha256
from spark_pipelines.sources import Inputs, Partition, SourceFacts
from spark_pipelines.sources.config import FlinkRunsSource, expanded
from spark_pipelines.sources.parquet_files import texts_in
from spark_pipelines.sources.staging import events_frame, hash_of, read_staged, stage_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def survey(config: FlinkRunsSource, name: str, work: Path) -> SourceFacts:
    """Runs of the folder that a job file stands for, one piece each.

    Returns:
        The source's facts: complete runs only, their rows staged in `work`.
    """
    folder, spec = expanded(config.folder), load_job(config.job)
    runs = [
        run
        for run in read_flink_runs(folder, spec)
        if run.complete and any(fnmatch(run.name, pattern) for pattern in config.runs)
    ]
    if not runs:
        raise DatasetError(
            f"source '{name}': no run is named {', '.join(config.runs)}",
            file=folder,
            key="sources.runs",
        )
    files = (file_sha256(folder / "runs.csv"), file_sha256(folder / "samples.csv.gz"))
    pieces = tuple(
        stage_rows(
            work,
            name,
            spec.job,
            run.name,
            hash_of(*files, name, spec, run.name),
            run.samples().rows(),
        )
        for run in runs
    )
    loads = {run.name: run.load.name for run in runs}
    return SourceFacts(
        name,
        "flink_runs",
        str(folder),
        "run",
        pieces,
        {spec.job: spec},
        loads,
        detail={"runs": {run.name: run for run in runs}},
    )


def read(
    spark: SparkSession, facts: SourceFacts, only: Collection[Partition] | None = None
) -> Inputs:
    """Samples, and as events the configuration each run began with and its savepoint.

    Returns:
        `raw` and `events`; a run is read with all its days.
    """
    from spark_pipelines.schema import RAW

    pieces, job = facts.holding(only), next(iter(facts.specs))
    events = []
    for piece in pieces:
        run = facts.detail["runs"][piece.run]
        configuration = {
            "parallelism": dict(run.configuration.parallelism),
            "memory_level": dict(run.configuration.memory_level),
        }
        for event in run.events:
            body = configuration if event.kind == "running" else event.body
            events.append((job, run.name, event.t_s, event.kind, body))
    # Runs are whole: what is read is every day of theirs.
    raw = read_staged(spark, pieces, RAW, None)
    told = events_frame(spark, facts.name, events)
    return Inputs(raw, told, None, facts.specs, facts, texts_in(facts, pieces))
