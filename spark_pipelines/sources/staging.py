"""What a reader keeps as Parquet: rows of sources that Spark cannot read by itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dsp_gym.config.files import write_atomic
from dsp_gym.config.strict_json import parse_json
from dsp_gym.errors import DatasetError
from dsp_gym.job.spec import JobSpec
from dsp_gym.records.base import Body
from dsp_gym.records.parquet import write_parquet
from spark_pipelines.days import FROM_MS, day_of, is_unix
from spark_pipelines.sources import Partition, Piece, SourceFacts, TimeBase

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Row = tuple[float, str, int, str, float]
"""t_s, vertex, subtask, metric, value."""

Event = tuple[str, str, float, str, Mapping[str, object]]
"""job, run, t_s, kind, body."""


def hash_of(*parts: object) -> str:
    """Hash text and job files that a staged file is made from.

    Returns:
        64 hexadecimal digits.
    """
    texts = [part.model_dump_json() if isinstance(part, JobSpec) else str(part) for part in parts]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def clock_of(first_s: float, last_s: float, where: str) -> TimeBase:
    """Whose clock some times are on.

    Returns:
        `unix` or `run`.

    Raises:
        DatasetError: The times are in milliseconds, or on two clocks.
    """
    if last_s >= FROM_MS:
        raise DatasetError(
            f"{where}: times reach {last_s:.0f}, which are milliseconds, or milli- and seconds "
            "mixed",
            key="t_s",
            value=last_s,
            remedy="Give Unix seconds, or seconds of the run.",
        )
    if is_unix(first_s) != is_unix(last_s):
        raise DatasetError(
            f"{where}: times reach from {first_s:.0f} to {last_s:.0f}: some are Unix seconds, "
            "some seconds of a run",
            key="t_s",
            value=first_s,
            remedy="Put samples of two clocks into two sources.",
        )
    return "unix" if is_unix(first_s) else "run"


def stage_rows(
    folder: Path, source: str, job: str, run: str, sha256: str, rows: Iterable[Row]
) -> Piece:
    """Keep the samples of one run; a file that is there already for this hash is taken as it is.

    Args:
        folder: where to.
        source: the column `source`.
        job: the column `job`.
        run: the column `run`.
        sha256: of what the rows are made from.
        rows: samples; only looked at where the file is not there.

    Returns:
        The piece that the file holds.
    """
    file = folder / f"{sha256}.parquet"
    facts = file.with_suffix(".json")
    known = _facts(facts) if file.exists() else None
    if known is None:
        known = _write(file, facts, source, job, run, list(rows))
    return Piece(run, sha256, known["rows"], tuple((job, day) for day in known["days"]), file, run)


def _facts(file: Path) -> Body | None:
    """Facts of a staged file; None where they were not written, or not whole."""
    try:
        found: Body = parse_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found


def _write(file: Path, facts: Path, source: str, job: str, run: str, rows: list[Row]) -> Body:
    import pyarrow as pa

    times, vertices, subtasks, metrics, values = zip(*rows, strict=True) if rows else ((),) * 5
    days = [day_of(t_s) for t_s in times]
    table = pa.table(
        {
            "source": pa.array([source] * len(rows), pa.string()),
            "job": pa.array([job] * len(rows), pa.string()),
            "run": pa.array([run] * len(rows), pa.string()),
            "day": pa.array(days, pa.string()),
            "t_s": pa.array(times, pa.float64()),
            "vertex": pa.array(vertices, pa.string()),
            "subtask": pa.array(subtasks, pa.int32()),
            "metric": pa.array(metrics, pa.string()),
            "value": pa.array(values, pa.float64()),
        }
    )
    write_parquet(file, table)
    known = {"rows": len(rows), "days": sorted(set(days))}
    write_atomic(facts, json.dumps(known))
    return known


def read_staged(
    spark: SparkSession,
    pieces: Iterable[Piece],
    schema: StructType,
    only: Collection[Partition] | None,
) -> DataFrame:
    """Read staged files.

    Returns:
        Their rows of some partitions; None: all rows.
    """
    files = sorted(str(piece.file) for piece in pieces if piece.file is not None)
    if not files:
        return spark.createDataFrame([], schema)
    return kept_in(spark.read.schema(schema).parquet(*files), only)


def read_decisions(
    spark: SparkSession, facts: SourceFacts, only: Collection[Partition] | None
) -> DataFrame:
    """Read the files of a source of decisions; a run is read whole, whatever days it is in.

    Args:
        spark: the session.
        facts: with `decided`.
        only: partitions of which the runs are read; None: all.

    Returns:
        Rows of `schema.DECISIONS`.
    """
    from pyspark.sql import functions as f

    from spark_pipelines.schema import DECISIONS

    pieces = facts.holding(only)
    files = [str(piece.file) for piece in pieces]
    read = spark.read.schema(without(DECISIONS, "source")).parquet(*files)
    named = read.withColumn("source", f.lit(facts.name)).select(*DECISIONS.names)
    return kept_in(named, None if only is None else {p for one in pieces for p in one.partitions})


def kept_in(frame: DataFrame, only: Collection[Partition] | None) -> DataFrame:
    """Filter rows by partition.

    Returns:
        Rows of these partitions; None: all rows.
    """
    from pyspark.sql import functions as f

    if only is None:
        return frame
    by_job: dict[str, list[str]] = {}
    for job, day in only:
        by_job.setdefault(job, []).append(day)
    wanted = f.lit(False)
    for job, days in sorted(by_job.items()):
        wanted = wanted | ((f.col("job") == job) & f.col("day").isin(sorted(days)))
    return frame.where(wanted)


def events_frame(spark: SparkSession, source: str, events: Iterable[Event]) -> DataFrame:
    """Put events into a DataFrame.

    Returns:
        Rows of `schema.EVENTS`.
    """
    from spark_pipelines.schema import EVENTS

    rows = [
        (source, job, run, float(t_s), kind, json.dumps(dict(body), sort_keys=True))
        for job, run, t_s, kind, body in events
    ]
    return spark.createDataFrame(rows, EVENTS) if rows else no_events(spark)


def no_events(spark: SparkSession) -> DataFrame:
    """No event at all, said so that Spark sees it and plans no task for it.

    Returns:
        `schema.EVENTS` without a row.
    """
    from pyspark.sql import functions as f

    from spark_pipelines.schema import EVENTS

    nothing = (f.lit(None).cast(field.dataType).alias(field.name) for field in EVENTS.fields)
    return spark.range(1).where(f.lit(False)).select(*nothing)


def without(schema: StructType, *columns: str) -> StructType:
    """A schema without some columns.

    Returns:
        A new schema; the other columns keep their order.
    """
    return type(schema)([field for field in schema.fields if field.name not in columns])
