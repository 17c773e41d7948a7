"""Prometheus: the history of a job, fetched chunk by chunk and kept as Parquet.

How it is fetched and kept: `dsp_gym.backends.flink.history`.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dsp_gym.backends.flink.history import FlinkHistory, HistoryOptions
from dsp_gym.config.strict_json import parse_json
from dsp_gym.errors import DatasetError, FlinkError
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec
from dsp_gym.records.hashes import file_sha256
from spark_pipelines.days import DAY_S, day_of, moment_s
from spark_pipelines.sources import Inputs, Partition, Piece, SourceFacts
from spark_pipelines.sources.config import PrometheusSource, expanded
from spark_pipelines.sources.parquet_files import texts_in
from spark_pipelines.sources.staging import events_frame, hash_of, kept_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class Fetch:
    """Fetches chunks of one job.

    Args:
        config: the source.
        name: the column `source`, for messages.
        spec: the job.
        archive: where chunks are kept.
        clock: Unix seconds.
        sleep: waits that many seconds.
    """

    config: PrometheusSource
    name: str
    spec: JobSpec
    archive: Path
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        config = self.config
        options = HistoryOptions(
            config.chunk_s, config.queries_per_s, config.timeout_s, config.retries
        )
        self._history = FlinkHistory(
            config.url,
            config.job_name or self.spec.job,
            self.spec,
            keep=self.archive,
            options=options,
            account=config.account,
            clock=self.clock,
            sleep=self.sleep,
        )

    @property
    def fetched(self) -> int:
        """Chunks that were asked for, not found in the archive."""
        return self._history.fetched

    def chunks(self) -> Iterator[Path]:
        """Files of all chunks, in order of time; those that are missing are fetched.

        Yields:
            Paths of Parquet files; a `.json` of the same name stands beside each.

        Raises:
            DatasetError: A chunk cannot be had.
        """
        since_s, config = moment_s(self.config.since), self.config
        until_s = math.inf if config.until is None else moment_s(config.until)
        at_s = since_s // config.chunk_s * config.chunk_s
        try:
            for chunk in self._history.chunks(since_s, until_s):
                at_s = chunk.until_s
                yield chunk.file
        except FlinkError as error:
            chunk_text = f"{_text(at_s)} to {_text(at_s + config.chunk_s)}"
            raise DatasetError(
                f"source '{self.name}', job '{self.spec.job}', day {day_of(at_s)}, "
                f"chunk {chunk_text}: {error.message}",
                file=config.url,
                remedy=error.remedy,
            ) from error


def survey(config: PrometheusSource, name: str, work: Path) -> SourceFacts:
    """Chunks, fetched where they are missing; one piece each.

    Returns:
        The source's facts: one piece per chunk that has rows.
    """
    spec = load_job(config.job)
    archive = work.parent.parent / ".archive" / name
    archive = expanded(config.archive) if config.archive else archive
    shutil.rmtree(archive / ".growing", ignore_errors=True)
    fetch = Fetch(config, name, spec, archive)
    since_s = moment_s(config.since)
    until_s = math.inf if config.until is None else moment_s(config.until)
    pieces = []
    for file in fetch.chunks():
        facts = parse_json(file.with_suffix(".json").read_text(encoding="utf-8"))
        if facts["rows"] == 0:
            continue
        began_s, ended_s = (float(part) for part in file.stem.split("-"))
        sha256 = hash_of(file_sha256(file), spec, max(began_s, since_s), min(ended_s, until_s))
        days = dict.fromkeys((day_of(began_s), day_of(ended_s)))
        pieces.append(
            Piece(file.name, sha256, facts["rows"], tuple((spec.job, day) for day in days), file)
        )
    if not pieces:
        raise DatasetError(
            f"source '{name}': Prometheus has no sample of a job '{config.job_name or spec.job}' "
            f"from {config.since} to {config.until or 'now'}",
            file=config.url,
            key="sources.job_name",
            remedy="See which names it has: count by (job_name) "
            "(flink_taskmanager_job_task_numRecordsIn)",
        )
    return SourceFacts(
        name,
        "prometheus",
        config.url,
        "unix",
        tuple(pieces),
        {spec.job: spec},
        detail={"since_s": since_s, "until_s": until_s},
    )


def read(
    spark: SparkSession, facts: SourceFacts, only: Collection[Partition] | None = None
) -> Inputs:
    """Samples of the chunks; a run is a day.

    Returns:
        `raw` within the times asked for, and `events` without rows.
    """
    from pyspark.sql import functions as f

    from spark_pipelines.days import day_of_column
    from spark_pipelines.schema import RAW

    job = next(iter(facts.specs))
    pieces = facts.holding(only)
    frame = spark.read.schema(
        "t_s double, vertex string, subtask int, metric string, value double"
    ).parquet(*(str(piece.file) for piece in pieces))
    inside = (f.col("t_s") >= facts.detail["since_s"]) & (f.col("t_s") < facts.detail["until_s"])
    named = frame.where(inside).withColumns(
        {"source": f.lit(facts.name), "job": f.lit(job), "day": day_of_column(f.col("t_s"))}
    )
    raw = kept_in(named.withColumn("run", f.col("day")).select(*RAW.names), only)
    # Metrics show no event: outages show in the samples.
    no_event = events_frame(spark, facts.name, ())
    return Inputs(raw, no_event, None, facts.specs, facts, texts_in(facts, pieces))


def _text(t_s: float) -> str:
    seconds = int(t_s % DAY_S)
    return f"{day_of(t_s)} {seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
