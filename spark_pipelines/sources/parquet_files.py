"""What Parquet files show without Spark: columns, types, rows, from when to when, which metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from dsp_gym.config.text import first_line
from dsp_gym.errors import DatasetError, did_you_mean
from dsp_gym.records.parquet import pyarrow
from spark_pipelines.days import DAY_S, day_of
from spark_pipelines.sources import Piece, SourceFacts

if TYPE_CHECKING:
    from pyarrow import DataType
    from pyarrow.parquet import ParquetFile


def check_columns(
    file: Path,
    source: str,
    columns: Mapping[str, str],
    *,
    original: Path | None = None,
) -> tuple[int, float, float]:
    """Rows of a file, and its first and last time; text must be text and numbers numbers.

    Args:
        file: the file.
        source: for messages.
        columns: our name of each that it must have, `t_s` among them, and the file's.
        original: the user's own file, where this one was made from it; for messages.

    Returns:
        Rows, first and last time in s.

    Raises:
        DatasetError: The file is not Parquet, is damaged, lacks a column or has it of another
            type, or has rows of which none has a time.
    """
    pa, parquet = pyarrow("reading a source")
    named = original or file
    try:
        opened = parquet.ParquetFile(file)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DatasetError(
            f"source '{source}': is not a Parquet file, or is truncated: {first_line(error)}",
            file=named,
            remedy="Restore the file, or take it out of the source.",
        ) from None
    with opened:
        rows = opened.metadata.num_rows
        if rows == 0:  # nothing shows the types, so they may be any
            return 0, 0.0, 0.0
        where = f"source '{source}'"
        for ours, name in columns.items():
            _refuse_column(pa, opened, ours, name, where, named)
        times = _range(opened, columns["t_s"])
    if times is None:
        raise DatasetError(
            f"source '{source}': the column '{columns['t_s']}' has no time in any of {rows} rows",
            file=named,
            key=columns["t_s"],
            remedy="Write the times, or take the file out of the source.",
        )
    return rows, *times


def _refuse_column(
    pa: ModuleType, opened: ParquetFile, ours: str, name: str, where: str, file: Path
) -> None:
    """Refuse a column that is missing, or of another type than ours."""
    schema = opened.schema_arrow
    if name not in schema.names:
        raise DatasetError(
            f"{where}: has no column '{name}'",
            file=file,
            key=name,
            remedy=did_you_mean(name, schema.names),
        )
    found = schema.field(name).type
    if not _fits(pa, ours, found):
        raise DatasetError(
            f"{where}: column '{name}' is {found}, expected "
            f"{'text' if ours in _TEXT else 'a number'}; it begins {_sample(opened, name)}",
            file=file,
            key=name,
            remedy="Write it with that type.",
        )


def days_between(first_s: float, last_s: float) -> tuple[str, ...]:
    """Every day from one time to another.

    Returns:
        Days in rising order, both ends included.
    """
    count = int(last_s // DAY_S) - int(first_s // DAY_S)
    return tuple(day_of((first_s // DAY_S + n) * DAY_S) for n in range(count + 1))


def days_of_cell(file: Path) -> tuple[str, ...]:
    """The days that a file with a column `day` has rows of.

    Returns:
        Days in rising order, each once.
    """
    pa, parquet = pyarrow("reading a source")
    try:
        days = parquet.read_table(file, columns=["day"])["day"].unique().to_pylist()
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DatasetError(f"cannot be read: {first_line(error)}", file=file) from None
    return tuple(sorted(days))


def texts_in(facts: SourceFacts, pieces: Iterable[Piece], column: str = "metric") -> frozenset[str]:
    """The texts that stand in a column: a few, of which a file holds each once in its dictionary.

    Returns:
        The different texts of all pieces.

    Raises:
        DatasetError: A file cannot be read.
    """
    pa, _ = pyarrow("reading a source")
    found: set[str] = set()
    for piece in pieces:
        assert piece.file is not None  # samples are read from files
        try:
            found |= texts_of(piece.file, column)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise facts.unreadable(piece, first_line(error)) from None
    return frozenset(found)


def texts_of(file: Path, column: str) -> set[str]:
    """As `texts_in`, of one file; errors are Arrow's.

    Returns:
        The texts, each once.
    """
    _, parquet = pyarrow("reading a source")
    found: set[str] = set()
    with parquet.ParquetFile(file, read_dictionary=[column]) as opened:
        for batch in opened.iter_batches(columns=[column]):
            found.update(batch.column(0).dictionary.to_pylist())
    return found


_TEXT = ("vertex", "metric", "job", "run")


def _fits(pa: ModuleType, name: str, found: DataType) -> bool:
    kind = found.value_type if pa.types.is_dictionary(found) else found
    if name in _TEXT:
        return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
    if name == "subtask":
        return bool(pa.types.is_integer(kind))
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _range(opened: ParquetFile, time: str) -> tuple[float, float] | None:
    """From the statistics of the row groups where all have them, else from the column."""
    metadata, found = opened.metadata, list[float]()
    at = opened.schema_arrow.names.index(time)
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(at).statistics
        if statistics is None or not statistics.has_min_max:
            column = opened.read(columns=[time])[time].to_numpy()
            found = column[np.isfinite(column)]
            break
        found += [statistics.min, statistics.max]
    return (float(np.min(found)), float(np.max(found))) if len(found) else None


def _sample(opened: ParquetFile, name: str) -> str:
    for batch in opened.iter_batches(batch_size=3, columns=[name]):
        return ", ".join(repr(value) for value in batch.column(0).to_pylist())
    return "with nothing"
