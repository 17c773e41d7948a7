"""Samples and outcomes as Parquet: the same rows give the same bytes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dsp_gym.errors import MissingExtraError, SchemaError, StorageError
from dsp_gym.metrics.samples import Samples

__all__ = [
    "COLUMNS",
    "read_samples",
    "read_table",
    "stream_samples",
    "write_samples",
    "write_table",
]

COLUMNS = ("t_s", "job", "vertex", "subtask", "metric", "value")
ROWS_PER_GROUP = 65_536
"""Rows that are read at a time."""


def write_samples(file: Path, job: str, samples: Samples) -> None:
    """Writes the samples of one run, whole or not at all."""
    arrow, _ = _pyarrow("writing a recording")
    names = arrow.dictionary(arrow.int32(), arrow.string())
    columns = {
        "t_s": arrow.array(samples.t_s, arrow.float64()),
        "job": arrow.array([job] * len(samples), arrow.string()).dictionary_encode().cast(names),
        "vertex": arrow.array(samples.vertex.tolist(), arrow.string()).dictionary_encode(),
        "subtask": arrow.array(samples.subtask, arrow.int32()),
        "metric": arrow.array(samples.metric.tolist(), arrow.string()).dictionary_encode(),
        "value": arrow.array(samples.value, arrow.float64(), from_pandas=False),
    }
    _write(file, arrow.table(columns))


def write_table(file: Path, columns: Mapping[str, Any]) -> None:
    """Writes columns of equal length, whole or not at all."""
    arrow, _ = _pyarrow("writing a recording")
    _write(file, arrow.table({name: arrow.array(values) for name, values in columns.items()}))


def read_samples(file: Path) -> Samples:
    """All samples of one run."""
    parts = list(stream_samples(file))
    if not parts:
        return Samples.of(())
    joined = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("t_s", "vertex", "subtask", "metric", "value")
    }
    return Samples(**joined)


def stream_samples(file: Path) -> Iterator[Samples]:
    """The samples of one run in parts that fit in memory, in order."""
    _, parquet = _pyarrow("reading a recording")
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


def _names(column: Any) -> Any:
    """A column of few different names as an array of strings, (N,)."""
    coded = column if hasattr(column, "dictionary") else column.dictionary_encode()
    names = np.array(coded.dictionary.to_pylist(), dtype=np.str_)
    return names[coded.indices.to_numpy(zero_copy_only=False)] if len(names) else names


def read_table(file: Path) -> dict[str, list[Any]]:
    """Every column of a small file."""
    _, parquet = _pyarrow("reading a recording")
    with _opened(parquet, file) as source:
        columns: dict[str, list[Any]] = source.read().to_pydict()
    return columns


def _opened(parquet: Any, file: Path) -> Any:
    try:
        return parquet.ParquetFile(file)
    except FileNotFoundError:
        raise StorageError(
            "is missing from the recording", file=file, remedy="Record that run again."
        ) from None
    except Exception as error:  # pyarrow's own errors share no base but ValueError and OSError
        raise StorageError(f"is no Parquet file: {error}", file=file) from None


def _write(file: Path, table: Any) -> None:
    """Beside the target first, synced, then renamed, so that no torn file can be met."""
    _, parquet = _pyarrow("writing a recording")
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            parquet.write_table(
                table, stream, row_group_size=ROWS_PER_GROUP, compression="zstd", version="2.6"
            )
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, file)
    except OSError as error:
        raise StorageError(
            f"cannot be written: {error.strerror or error}; nothing was left half-written",
            file=file,
            remedy="Free some space, or choose a folder that can be written to.",
        ) from error
    finally:
        Path(temporary).unlink(missing_ok=True)


def _pyarrow(purpose: str) -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise MissingExtraError("flink", purpose) from None
    return pyarrow, pyarrow.parquet
