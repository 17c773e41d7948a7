"""Recordings: samples as they stand in the files, on the recording's clock or in Unix time."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dsp_gym.errors import DatasetError
from dsp_gym.records.hashes import file_sha256
from dsp_gym.records.recording import Recording, Run
from spark_pipelines.days import DAY_S, day_of
from spark_pipelines.scan import COLUMNS, Scan, ScannedFile
from spark_pipelines.sources import Inputs, Partition, Piece, SourceFacts
from spark_pipelines.sources.config import RecordingsSource, expanded
from spark_pipelines.sources.parquet_files import check_columns, days_between, texts_in
from spark_pipelines.sources.staging import Event, events_frame, hash_of, kept_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def survey(config: RecordingsSource, name: str, work: Path) -> SourceFacts:
    """Runs of the recording, one piece each; their files must be as they were recorded.

    Returns:
        The source's facts: runs whose name matches, aborted ones where the configuration takes
        them.
    """
    recording = Recording.open(expanded(config.folder, "recordings"))
    started_s = recording.manifest.started_unix_s or 0.0
    runs = [
        run
        for run in recording.runs
        if any(fnmatch(run.name, pattern) for pattern in config.runs)
        and (run.complete or config.aborted)
        and run.file is not None
        and not math.isnan(run.t_running_s)
    ]
    if not runs:
        raise DatasetError(
            f"source '{name}': no complete run is named {', '.join(config.runs)}",
            file=recording.folder,
            key="sources.runs",
            remedy=f"It has {', '.join(r.name for r in recording.runs) or 'no run at all'}.",
        )
    job = recording.spec.job
    pieces = []
    for run in runs:
        assert run.file is not None
        if file_sha256(run.file) != run.sha256:
            raise DatasetError(
                f"source '{name}', run '{run.name}' of job '{job}': "
                "the file has changed since it was recorded (sha256 differs)",
                file=run.file,
                remedy="Restore the file, or record that run again.",
            )
        rows, first_s, last_s = check_columns(run.file, name, {c: c for c in COLUMNS})
        days = days_between(started_s + first_s, started_s + last_s) if rows else ()
        sha256 = hash_of(run.sha256, recording.spec, _beside_samples(run))
        partitions = tuple((job, day) for day in days)
        pieces.append(Piece(run.name, sha256, rows, partitions, run.file, run.name))
    return SourceFacts(
        name,
        "recordings",
        str(recording.folder),
        "run" if recording.manifest.started_unix_s is None else "unix",
        tuple(pieces),
        {job: recording.spec},
        {run.name: run.load.name for run in runs},
        tuple(recording.notes()),
        {"runs": tuple(runs), "started_s": started_s},
    )


def read(
    spark: SparkSession, facts: SourceFacts, only: Collection[Partition] | None = None
) -> Inputs:
    """Samples and events of the runs.

    Returns:
        `raw`, its files and `events`, and the metrics that were recorded.
    """
    pieces, started_s = facts.holding(only), facts.detail["started_s"]
    job = next(iter(facts.specs))
    runs = {run.name: run for run in facts.detail["runs"]}
    events = [
        event
        for piece in pieces
        for event in _events(runs[piece.run], job, started_s, piece, cut=facts.clock == "unix")
    ]
    return Inputs(
        partial(_raw, spark, facts, pieces, only),
        events_frame(spark, facts.name, events),
        None,
        facts.specs,
        facts,
        texts_in(facts, pieces),
        _scan(facts, pieces, only),
    )


def _scan(facts: SourceFacts, pieces: Iterable[Piece], only: Collection[Partition] | None) -> Scan:
    job, is_unix = next(iter(facts.specs)), facts.clock == "unix"
    files = []
    for piece in pieces:
        cut = is_unix and len(piece.partitions) > 1
        files.append(ScannedFile(str(piece.file), f"{piece.run}@" if cut else piece.run, cut))
    days = None
    if is_unix and only is not None:
        days = frozenset(day for of, day in only if of == job)
    columns = {name: name for name in COLUMNS}
    return Scan(facts.name, job, tuple(files), columns, facts.detail["started_s"], days)


def _raw(
    spark: SparkSession,
    facts: SourceFacts,
    pieces: Collection[Piece],
    only: Collection[Partition] | None,
) -> DataFrame:
    """The samples, read by Spark itself."""
    from pyspark.sql import functions as f

    from spark_pipelines.days import day_of_column
    from spark_pipelines.schema import RAW

    started_s, job = facts.detail["started_s"], next(iter(facts.specs))
    files = [str(piece.file) for piece in pieces]
    by_file = spark.createDataFrame(
        [
            (Path(file).name, piece.run, len(piece.partitions) > 1)
            for file, piece in zip(files, pieces, strict=True)
        ],
        "file string, run string, cut boolean",
    )
    samples = spark.read.schema(
        "t_s double, vertex string, subtask int, metric string, value double"
    ).parquet(*files)
    t_s = f.col("t_s") + started_s if started_s else f.col("t_s")
    raw = (
        samples.withColumns({"file": f.col("_metadata.file_name"), "t_s": t_s})
        .join(f.broadcast(by_file), "file")
        .withColumns(
            {"source": f.lit(facts.name), "job": f.lit(job), "day": day_of_column(f.col("t_s"))}
        )
    )
    if facts.clock == "unix":
        named = f.when(f.col("cut"), f.concat("run", f.lit("@"), "day")).otherwise(f.col("run"))
        raw = kept_in(raw.withColumn("run", named), only)
    return raw.select(*RAW.names)


def _beside_samples(run: Run) -> str:
    """Text of a run beside its samples."""
    lines = "".join(event.line() for event in run.events)
    return f"{run.t_running_s!r} {run.t_end_s!r} {run.configuration!r} {run.load!r}\n{lines}"


def _events(run: Run, job: str, started_s: float, piece: Piece, *, cut: bool) -> Iterator[Event]:
    """Events of a run; each part of it begins with the configuration running then."""
    several = cut and len(piece.partitions) > 1
    begins = {run.t_running_s}
    if several:
        days = [day for _, day in piece.partitions]
        first = started_s + run.t_running_s
        midnights = ((first // DAY_S + n) * DAY_S for n in range(1, len(days) + 1))
        begins |= {t - started_s for t in midnights if t - started_s < run.t_end_s}
    for t_s in sorted(begins):
        at = run.configuration_at(t_s)
        body = {"parallelism": dict(at.parallelism), "memory_level": dict(at.memory_level)}
        yield job, _part(run, started_s + t_s, several), started_s + t_s, "running", body
    for event in run.events:
        # The first `running` is given above, with the configuration.
        if event.kind == "running" and event.t_s in begins:
            continue
        t_s = started_s + event.t_s
        yield job, _part(run, t_s, several), t_s, event.kind, event.body


def _part(run: Run, t_s: float, several: bool) -> str:
    return f"{run.name}@{day_of(t_s)}" if several else run.name
