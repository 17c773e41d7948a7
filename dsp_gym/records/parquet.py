"""Samples and outcomes as Parquet: the same rows give the same bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dsp_gym.config.temporary import replacing
from dsp_gym.config.text import first_line
from dsp_gym.errors import DspGymError, MissingExtraError, SchemaError, StorageError
from dsp_gym.metrics.samples import Samples

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

COLUMNS = ("t_s", "job", "vertex", "subtask", "metric", "value")
ROWS_PER_GROUP = 65_536
"""Rows that are read at a time."""

_MOST_ROWS = 2_000_000
"""Of a file that is read whole."""


def pyarrow(purpose: str, extra: str = "spark") -> tuple[ModuleType, ModuleType]:
    """Import Arrow.

    Args:
        purpose: what needs it, for the error.
        extra: of this distribution, that brings it.

    Returns:
        The modules `pyarrow` and `pyarrow.parquet`.

    Raises:
        MissingExtraError: PyArrow is not installed.
    """
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise MissingExtraError(extra, purpose) from None
    return pyarrow, pyarrow.parquet


def write_parquet(file: Path, table: pa.Table, row_group_size: int | None = None) -> None:
    """Write a table beside its place first, synced, then rename it: no torn file can be met.

    Raises:
        StorageError: The file cannot be written; an earlier one is unchanged.
    """
    _write_tables(file, iter((table,)), row_group_size)


def _write_tables(file: Path, tables: Iterator[pa.Table], row_group_size: int | None) -> None:
    """Write one or more tables of the same columns as one file, as `write_parquet` does."""
    _, parquet = pyarrow("writing Parquet")
    first = next(tables)
    with (
        replacing(file) as stream,
        parquet.ParquetWriter(stream, first.schema, compression="zstd", version="2.6") as writer,
    ):
        for table in chain((first,), tables):
            writer.write_table(table, row_group_size)


def write_samples(file: Path, job: str, parts: Iterable[Samples]) -> None:
    """Write the samples of one run, whole or not at all.

    Args:
        file: replaced where it exists.
        job: name of the job.
        parts: at least one, in order of time; one is held at a time.
    """
    arrow, _ = pyarrow("writing a recording", "flink")
    names = arrow.dictionary(arrow.int32(), arrow.string())

    def table(samples: Samples) -> pa.Table:
        jobs = arrow.array([job] * len(samples), arrow.string())
        columns = {
            "t_s": arrow.array(samples.t_s, arrow.float64()),
            "job": jobs.dictionary_encode().cast(names),
            "vertex": arrow.array(samples.vertex.tolist(), arrow.string()).dictionary_encode(),
            "subtask": arrow.array(samples.subtask, arrow.int32()),
            "metric": arrow.array(samples.metric.tolist(), arrow.string()).dictionary_encode(),
            "value": arrow.array(samples.value, arrow.float64(), from_pandas=False),
        }
        return arrow.table(columns)

    _write_tables(file, map(table, parts), ROWS_PER_GROUP)


def write_table(file: Path, columns: Mapping[str, Iterable[object]]) -> None:
    """Write columns of equal length, lists or arrays, whole or not at all."""
    arrow, _ = pyarrow("writing a recording", "flink")
    table = arrow.table({name: arrow.array(values) for name, values in columns.items()})
    write_parquet(file, table, ROWS_PER_GROUP)


def read_samples(file: Path) -> Samples:
    """Read all samples of one run.

    Returns:
        The samples, in the order of the file.
    """
    parts = list(stream_samples(file))
    if not parts:
        return Samples.of(())
    joined = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("t_s", "vertex", "subtask", "metric", "value")
    }
    return Samples(**joined)


def stream_samples(file: Path) -> Iterator[Samples]:
    """Read the samples of one run in parts that fit in memory.

    Returns:
        Parts of at most `ROWS_PER_GROUP` samples, in order.
    """
    _, parquet = pyarrow("reading a recording", "flink")
    with _opened(parquet, file) as source:
        missing = [name for name in COLUMNS if name not in source.schema_arrow.names]
        if missing:
            raise SchemaError(f"has no column '{missing[0]}'", file=file)
        for batch in source.iter_batches(batch_size=ROWS_PER_GROUP):
            column = {name: batch.column(name) for name in COLUMNS}
            yield Samples(
                column["t_s"].to_numpy(zero_copy_only=False),
                _names(column["vertex"]),
                column["subtask"].to_numpy(zero_copy_only=False).astype(np.int32),
                _names(column["metric"]),
                column["value"].to_numpy(zero_copy_only=False),
            )


def _names(column: pa.Array) -> NDArray[np.str_]:
    """A column of few different names as an array of strings, (N,)."""
    coded = column if hasattr(column, "dictionary") else column.dictionary_encode()
    names = np.array(coded.dictionary.to_pylist(), dtype=np.str_)
    return names[coded.indices.to_numpy(zero_copy_only=False)] if len(names) else names


def read_table(file: Path) -> dict[str, list[object]]:
    """Read a small file.

    Returns:
        Values of every column by name.
    """
    _, parquet = pyarrow("reading a recording", "flink")
    with _opened(parquet, file) as source:
        rows = source.metadata.num_rows
        if rows > _MOST_ROWS:  # a few bytes can stand for any number of them
            raise ValueError(f"it has {rows} rows, {_MOST_ROWS} are the most")
        columns: dict[str, list[object]] = source.read().to_pydict()
    return columns


@contextmanager
def _opened(parquet: ModuleType, file: Path) -> Iterator[ParquetFile]:
    """The file, open; whatever of it cannot be read in the block is an error of ours."""
    try:
        with parquet.ParquetFile(file) as source:
            yield source
    except DspGymError:
        raise
    except FileNotFoundError:
        raise StorageError(
            "is missing from the recording", file=file, remedy="Record that run again."
        ) from None
    except Exception as error:  # pyarrow's own errors share no base but ValueError and OSError
        raise StorageError(
            f"is not a Parquet file, or is damaged: {first_line(error)}",
            file=file,
            remedy="Restore the file, or record that run again.",
        ) from None
