"""Archived samples as Parquet or CSV, long or wide."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING

from dsp_gym.config.text import first_line
from dsp_gym.errors import DatasetError, did_you_mean
from dsp_gym.job.catalog import load_job
from dsp_gym.metrics.flink import BY_NAME
from dsp_gym.records.hashes import file_sha256
from dsp_gym.records.parquet import pyarrow, write_parquet
from spark_pipelines.scan import Scan, ScannedFile
from spark_pipelines.sources import Inputs, Partition, Piece, SourceFacts
from spark_pipelines.sources.config import ArchivesSource, expanded
from spark_pipelines.sources.parquet_files import check_columns, days_between, texts_in
from spark_pipelines.sources.staging import clock_of, hash_of, kept_in

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_LONG = {
    "t_s": "double",
    "vertex": "string",
    "subtask": "int",
    "metric": "string",
    "value": "double",
}
_WIDE = {name: _LONG[name] for name in ("t_s", "vertex", "subtask")}
"""Columns of both layouts, and Spark's types of them."""

_Files = dict[tuple[tuple[str, str], ...], list[str]]
"""Paths by the columns that are read of them and their types: Spark reads such files at once."""


def survey(config: ArchivesSource, name: str, work: Path) -> SourceFacts:
    """Files below the folder, one piece each.

    Returns:
        The source's facts: its files in the order of their paths.
    """
    folder, spec = expanded(config.folder), load_job(config.job)
    # One whose name begins with a dot is still being written.
    there = (file for file in folder.glob(config.files) if not file.name.startswith("."))
    found = sorted(file for file in there if file.is_file())
    if not found:
        raise DatasetError(
            f"source '{name}': no file below it matches {config.files}",
            file=folder,
            key="sources.files",
            remedy="Name the folder of the samples, and a glob such as **/*.parquet.",
        )
    wanted = _LONG if config.layout == "long" else _WIDE
    columns = {column: config.columns.get(column, column) for column in wanted}
    settings = config.model_dump_json(exclude={"name", "folder"})  # no row depends on them
    pieces, first_s, last_s = [], float("inf"), float("-inf")
    for file in found:
        sha256 = hash_of(file_sha256(file), spec, settings)
        readable = file
        if file.suffix != ".parquet":
            readable = _as_parquet(file, work, sha256, name, _types(config))
        rows, begin_s, end_s = check_columns(readable, name, columns, original=file)
        if rows == 0:
            continue
        clock_of(begin_s, end_s, f"source '{name}', {file}")
        first_s, last_s = min(first_s, begin_s), max(last_s, end_s)
        days = tuple((spec.job, day) for day in days_between(begin_s, end_s))
        # What is a row is known when it has been read: a wide one holds many values.
        pieces.append(
            Piece(
                str(file.relative_to(folder)),
                sha256,
                rows if config.layout == "long" else -1,
                days,
                readable,
            )
        )
    if not pieces:
        raise DatasetError(
            f"source '{name}': is empty: {len(found)} files without a row", file=folder
        )
    clock = clock_of(first_s, last_s, f"source '{name}', {folder}")
    if clock == "run":  # it is kept whole, so a day may depend on any of its files
        every = tuple((spec.job, day) for day in days_between(first_s, last_s))
        pieces = [replace(piece, partitions=every) for piece in pieces]
    return SourceFacts(
        name,
        "archives",
        str(folder),
        clock,
        tuple(pieces),
        {spec.job: spec},
        detail={"config": config},
    )


def read(
    spark: SparkSession, facts: SourceFacts, only: Collection[Partition] | None = None
) -> Inputs:
    """Samples of the files, in the long form.

    Returns:
        `raw`, its files where they are long, and no events.
    """
    config: ArchivesSource = facts.detail["config"]
    pieces = facts.holding(only)
    files = _by_schema(config, facts, pieces)
    return Inputs(
        partial(_raw, spark, facts, pieces, files, only),
        None,
        None,
        facts.specs,
        facts,
        _metrics(config, facts, files, pieces),
        _scan(config, facts, pieces, only) if config.layout == "long" else None,
    )


def _scan(
    config: ArchivesSource,
    facts: SourceFacts,
    pieces: Iterable[Piece],
    only: Collection[Partition] | None,
) -> Scan:
    by_day, job = facts.clock == "unix", next(iter(facts.specs))
    files = tuple(
        ScannedFile(str(piece.file), "" if by_day else config.run, by_day, piece.partitions[0][1])
        for piece in pieces
    )
    days = None
    if by_day and only is not None:
        days = frozenset(day for of, day in only if of == job)
    columns = {name: config.columns.get(name, name) for name in _LONG}
    return Scan(facts.name, job, files, columns, days=days)


def _types(config: ArchivesSource) -> dict[str, str]:
    """Spark's type of each column that is read, by the files' name of it."""
    ours = _LONG if config.layout == "long" else {**_WIDE, **dict.fromkeys(BY_NAME, "double")}
    return {config.columns.get(name, name): kind for name, kind in ours.items()}


def _by_schema(config: ArchivesSource, facts: SourceFacts, pieces: Iterable[Piece]) -> _Files:
    pa, parquet = pyarrow("reading a source")
    found: _Files = {}
    wanted = _types(config)
    for piece in pieces:
        try:
            schema = parquet.read_schema(piece.file)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise facts.unreadable(piece, first_line(error)) from None
        there = sorted((part.name, str(part.type)) for part in schema if part.name in wanted)
        found.setdefault(tuple(there), []).append(str(piece.file))
    return found


def _raw(
    spark: SparkSession,
    facts: SourceFacts,
    pieces: Collection[Piece],
    files: _Files,
    only: Collection[Partition] | None,
) -> DataFrame:
    """The samples, read by Spark itself."""
    from pyspark.sql import functions as f

    from spark_pipelines.days import FROM_MS, day_of_column
    from spark_pipelines.schema import RAW

    config: ArchivesSource = facts.detail["config"]
    # A row without a time has no day: it is judged on the first one of its file.
    first = {str(piece.file): piece.partitions[0][1] for piece in pieces}
    of_file = f.create_map(*(f.lit(text) for pair in sorted(first.items()) for text in pair))
    t_s = f.col(config.columns.get("t_s", "t_s"))
    own = f.when(t_s.between(0, FROM_MS), day_of_column(t_s))
    # Of `_metadata` Spark would make a whole struct for every row, asked for or not.
    its_first = f.element_at(of_file, _path_of(f.input_file_name()))
    day = f.coalesce(own, its_first, f.lit(min(first.values())))
    types = _types(config)
    frames = (
        spark.read.parquet(*some)
        .withColumn("_day", day)
        .select("_day", *(f.col(name).cast(types[name]) for name, _ in columns))
        for columns, some in files.items()
    )
    frame = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)
    long = _renamed(frame, config) if config.layout == "long" else _melted(frame, config)
    named = long.withColumns(
        {"source": f.lit(facts.name), "job": f.lit(next(iter(facts.specs))), "day": f.col("_day")}
    )
    by_day = facts.clock == "unix"
    run = f.col("day") if by_day else f.lit(config.run)
    raw = named.withColumn("run", run).select(
        *(f.col(field.name).cast(field.dataType) for field in RAW.fields)
    )
    return kept_in(raw, only) if by_day else raw


def _metrics(
    config: ArchivesSource,
    facts: SourceFacts,
    files: _Files,
    pieces: Iterable[Piece],
) -> frozenset[str]:
    if config.layout == "long":
        return texts_in(facts, pieces, config.columns.get("metric", "metric"))
    found = _metric_columns(config, {name for columns in files for name, _ in columns})
    if not found:
        _, parquet = pyarrow("reading a source")
        names = parquet.read_schema(next(iter(pieces)).file).names
        raise DatasetError(
            f"source '{facts.name}': no column is a metric, found {', '.join(names)}",
            file=facts.path,
            key="sources.columns",
            remedy=f"Name them, our name first, such as busy_ms_per_s: COLUMN. "
            f"{did_you_mean(names[-1], BY_NAME)}",
        )
    return frozenset(found.values())


def _metric_columns(config: ArchivesSource, columns: Collection[str]) -> dict[str, str]:
    """The metric of each column that is one."""
    ours = {config.columns.get(metric, metric): metric for metric in BY_NAME}
    return {column: ours[column] for column in columns if column in ours}


def _path_of(uri: Column) -> Column:
    """The path of file:/a or file:///a; Spark quotes other letters than Python does, and no `+`."""
    from pyspark.sql import functions as f

    path = f.regexp_replace(uri, r"^file:/+", "/")
    return f.url_decode(f.regexp_replace(path, r"\+", "%2B"))


def _renamed(frame: DataFrame, config: ArchivesSource) -> DataFrame:
    from pyspark.sql import functions as f

    return frame.select(*(f.col(config.columns.get(c, c)).alias(c) for c in _LONG), "_day")


def _melted(frame: DataFrame, config: ArchivesSource) -> DataFrame:
    """One row per time and metric; values that are null are no samples."""
    from pyspark.sql import functions as f

    metrics = _metric_columns(config, frame.columns)
    pairs = f.array(
        *(
            f.struct(f.lit(metric).alias("metric"), f.col(column).alias("value"))
            for column, metric in metrics.items()
        )
    )
    keys = [f.col(config.columns.get(c, c)).alias(c) for c in _WIDE]
    rows = frame.select(*keys, "_day", f.explode(pairs).alias("pair")).select(
        *_WIDE, "_day", "pair.*"
    )
    return rows.where(f.col("value").isNotNull())


def _as_parquet(file: Path, work: Path, sha256: str, source: str, types: Mapping[str, str]) -> Path:
    """A CSV as Parquet, columns that are read in their type, whatever stands in this file."""
    pa, _ = pyarrow("reading a source")
    from pyarrow import csv as arrow_csv

    kept = work / f"{sha256}.parquet"
    if kept.exists():
        return kept
    arrow = {"double": pa.float64(), "int": pa.int32(), "string": pa.string()}
    read_as = arrow_csv.ConvertOptions(
        column_types={name: arrow[kind] for name, kind in types.items()}
    )
    try:
        table = arrow_csv.read_csv(file, convert_options=read_as)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _unreadable_csv(file, source, first_line(error)) from None
    write_parquet(kept, table)
    return kept


def _unreadable_csv(file: Path, source: str, cause: str) -> DatasetError:
    """The error for a CSV, with its column where a value is no number."""
    remedy = "Write a line of column names, as many values in every line, and numbers as times, "
    remedy += "subtasks and values."
    key, wrong = None, re.search(r"In CSV column #(\d+): .*invalid value '(.*)'", cause)
    if wrong is not None:
        with file.open(encoding="utf-8", newline="") as lines:
            key = next(csv.reader(lines))[int(wrong[1])]
        cause = f"column '{key}' holds '{wrong[2]}', expected a number"
    text = f"source '{source}': cannot be read as CSV: {cause}"
    return DatasetError(text, file=file, key=key, remedy=remedy)
