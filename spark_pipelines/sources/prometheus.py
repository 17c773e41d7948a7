"""Prometheus: fetched chunk by chunk, kept as Parquet, so that nothing is asked for twice.

    ARCHIVE/2026-03-01/1772323200-1772326800.parquet   samples of one chunk
    ARCHIVE/2026-03-01/1772323200-1772326800.json      its rows, and ids of its job

Samples are asked for as they were scraped (range selectors), never interpolated. A chunk that is
not over yet is fetched but not kept. Chunks begin at multiples of their length, so another `since`
or `until` finds what is there.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, cast

from dsp_gym.backends.documents import MISFITS
from dsp_gym.backends.flink.job import FlinkJob
from dsp_gym.backends.flink.prometheus import PrometheusSamples
from dsp_gym.backends.flink.prometheus_api import StatusError
from dsp_gym.config.files import write_atomic
from dsp_gym.config.strict_json import parse_json
from dsp_gym.datasets.files import write_parquet
from dsp_gym.errors import DatasetError, FlinkError
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec
from dsp_gym.metrics.samples import Samples
from dsp_gym.records.hashes import file_sha256
from spark_pipelines.config import moment_s
from spark_pipelines.days import DAY_S, day_of
from spark_pipelines.sources import Inputs, Partition, Piece, SourceFacts
from spark_pipelines.sources.config import PrometheusSource, expanded
from spark_pipelines.sources.parquet_files import texts_in
from spark_pipelines.sources.staging import events_frame, hash_of, kept_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Fetch", "read", "survey"]

_GRACE_S = 60.0
"""A chunk that ended longer ago than this has all its scrapes."""
_OVERLAP_S = 30.0
"""The series of a job that was resubmitted may overlap its next one's by a scrape or two."""
_BACKOFF_S = 0.5


@dataclass(frozen=True, slots=True)
class _Ids:
    """What the collector asks of a job."""

    ids: tuple[str, ...]
    job_id: str = ""


class _Source(PrometheusSamples):
    """The collector's source, which takes no partial answer."""

    def __init__(self, url: str, ids: tuple[str, ...], spec: JobSpec, timeout_s: float) -> None:
        super().__init__(url, cast("FlinkJob", _Ids(ids)), spec, timeout_s)
        self._api.takes_partial = False

    def ids_of(self, job_name: str, since_s: float, until_s: float) -> list[str]:
        """The job ids that bore a name."""
        seconds = math.ceil(until_s - since_s)
        selector = f"flink_taskmanager_job_task_numRecordsIn{{job_name={json.dumps(job_name)}}}"
        query = f"count by (job_id) (count_over_time({selector}[{seconds}s]))"
        found = self._api.query(query, until_s)
        return sorted(series["metric"].get("job_id", "") for series in found)


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
    fetched: int = field(default=0, init=False)
    """Chunks that were asked for, not found in the archive."""
    _next_s: float = field(default=0.0, init=False)

    def chunks(self) -> Iterator[Path]:
        """Files of all chunks, in order of time; those that are missing are fetched.

        Yields:
            Paths of Parquet files; a `.json` of the same name stands beside each.
        """
        now_s, length = self.clock(), self.config.chunk_s
        until_s = now_s if self.config.until is None else moment_s(self.config.until)
        start = moment_s(self.config.since) // length * length
        while start < min(until_s, now_s):
            yield self._chunk(start, start + length, whole=start + length + _GRACE_S <= now_s)
            start += length

    def _chunk(self, since_s: float, until_s: float, *, whole: bool) -> Path:
        folder = self.archive / (day_of(since_s) if whole else ".growing")
        file = folder / f"{since_s:.0f}-{until_s:.0f}.parquet"
        if whole and file.exists() and file.with_suffix(".json").exists():
            return file
        self.fetched += 1
        samples, facts = self._asked(since_s, min(until_s, self.clock()))
        _keep(file, samples, facts)
        return file

    def _asked(self, since_s: float, until_s: float) -> tuple[Samples, dict[str, object]]:
        for attempt in range(self.config.retries + 1):
            try:
                return self._once(since_s, until_s)
            except FlinkError as error:
                if attempt == self.config.retries:
                    raise DatasetError(
                        f"source '{self.name}', job '{self.spec.job}', day {day_of(since_s)}, "
                        f"chunk {_text(since_s)} to {_text(until_s)}: {error.message}",
                        file=self.config.url,
                        remedy=f"{self.fetched - 1} chunks were fetched before; what was fetched "
                        "is kept, the same build continues from there.",
                    ) from error
                self.sleep(_BACKOFF_S * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def _once(self, since_s: float, until_s: float) -> tuple[Samples, dict[str, object]]:
        from requests import RequestException

        config, job_name = self.config, self.config.job_name or self.spec.job
        self._wait(1)
        try:
            ids = _Source(config.url, (), self.spec, config.timeout_s).ids_of(
                job_name, since_s, until_s
            )
        except (RequestException, StatusError, *MISFITS) as error:
            raise FlinkError(
                f"Prometheus did not answer as it should: {_line(error)}", api="prometheus"
            ) from error
        parts = []
        for job_id in ids:
            self._wait(2)  # tasks, then TaskManagers
            source = _Source(config.url, (job_id,), self.spec, config.timeout_s)
            # A selector is open at its start: a scrape at the boundary is the earlier chunk's.
            parts.append((job_id, source.samples(since_s, until_s)))
        parts = sorted((p for p in parts if len(p[1])), key=lambda part: part[1].t_s[0])
        self._refuse_two_jobs(parts)
        facts = {
            "rows": sum(len(samples) for _, samples in parts),
            "job_ids": [job_id for job_id, _ in parts],
        }
        return Samples.joined(samples for _, samples in parts), facts

    def _refuse_two_jobs(self, parts: list[tuple[str, Samples]]) -> None:
        for (one, before), (other, after) in pairwise(parts):
            both_s = float(before.t_s[-1]) - float(after.t_s[0])
            if both_s > _OVERLAP_S:
                raise DatasetError(
                    f"source '{self.name}', day {day_of(float(after.t_s[0]))}: two jobs are named "
                    f"'{self.config.job_name or self.spec.job}': {one} and {other} both ran for "
                    f"{both_s:.0f} s from {_text(float(after.t_s[0]))} on",
                    file=self.config.url,
                    key="sources.job_name",
                    remedy="Give each job a name of its own, or choose since and until so that "
                    "only one ran.",
                )

    def _wait(self, queries: int) -> None:
        now_s = self.clock()
        if self._next_s > now_s:
            self.sleep(self._next_s - now_s)
        self._next_s = max(now_s, self._next_s) + queries / self.config.queries_per_s


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
    # Metrics tell of no event: outages show in the samples.
    no_event = events_frame(spark, facts.name, ())
    return Inputs(raw, no_event, None, facts.specs, facts, texts_in(facts, pieces))


def _keep(file: Path, samples: Samples, facts: dict[str, object]) -> None:
    import pyarrow as pa

    table = pa.table(
        {
            "t_s": pa.array(samples.t_s, pa.float64()),
            "vertex": pa.array(samples.vertex.tolist(), pa.string()),
            "subtask": pa.array(samples.subtask, pa.int32()),
            "metric": pa.array(samples.metric.tolist(), pa.string()),
            "value": pa.array(samples.value, pa.float64(), from_pandas=False),
        }
    )
    write_parquet(file, table)
    write_atomic(file.with_suffix(".json"), json.dumps(facts, sort_keys=True))


def _text(t_s: float) -> str:
    seconds = int(t_s % DAY_S)
    return f"{day_of(t_s)} {seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def _line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]
