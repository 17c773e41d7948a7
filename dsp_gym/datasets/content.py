"""The hash of what a table says: of its rows in order, whatever the bytes of its files are."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dsp_gym.config.text import first_line
from dsp_gym.records.parquet import pyarrow

if TYPE_CHECKING:
    import pyarrow as pa


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...


__all__ = ["content_sha256", "hash_files", "read_files"]


def hash_files(files: Iterable[Path]) -> tuple[int, str]:
    """Rows of Parquet files, one after the other, and the hash of their content.

    Returns:
        Rows in all, and 64 hexadecimal digits.

    Raises:
        StorageError: A file cannot be read.
    """
    table = read_files(files)
    return (0, content_sha256(None)) if table is None else (table.num_rows, content_sha256(table))


def read_files(files: Iterable[Path]) -> pa.Table | None:
    """Reads Parquet files, one after the other.

    Returns:
        One table; None where there is no file.
    """
    from dsp_gym.errors import StorageError

    arrow, parquet = pyarrow("reading a dataset")
    parts = []
    for file in files:
        try:
            # Not read_table: that one would take job= and day= of the path for columns.
            with parquet.ParquetFile(file) as opened:
                parts.append(opened.read())
        except (OSError, ValueError, arrow.ArrowException) as error:
            raise StorageError(
                f"cannot be read: {first_line(error)}",
                file=file,
                remedy="Build the dataset again.",
            ) from None
    return arrow.concat_tables(parts, promote_options="default") if parts else None


def content_sha256(table: pa.Table | None) -> str:
    """Hash of names, types and values of all columns; NaNs are alike, a null is no NaN.

    Returns:
        64 hexadecimal digits.
    """
    found = hashlib.sha256()
    if table is not None:
        for name in table.column_names:
            column = table[name].combine_chunks()
            array = column.chunk(0) if hasattr(column, "chunk") else column
            found.update(f"{name}:{_kind(array.type)}:{len(array)}\0".encode())
            _update(found, array)
    return found.hexdigest()


def _kind(kind: pa.DataType) -> str:
    """The type in words that do not depend on who wrote it: names inside lists are anybody's."""
    arrow, _ = pyarrow("reading a dataset")
    if arrow.types.is_dictionary(kind):
        return _kind(kind.value_type)
    if arrow.types.is_list(kind) or arrow.types.is_large_list(kind):
        return f"[{_kind(kind.value_type)}]"
    if arrow.types.is_struct(kind):
        return f"{{{','.join(f'{part.name}:{_kind(part.type)}' for part in kind)}}}"
    return str(kind)


def _update(found: _Hash, array: pa.Array) -> None:
    arrow, _ = pyarrow("reading a dataset")
    valid = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), dtype=bool)
    found.update(np.packbits(valid).tobytes())
    kind = array.type
    if arrow.types.is_dictionary(kind):
        _update(found, array.dictionary_decode())
    elif arrow.types.is_struct(kind):
        for part in array.flatten():  # with the struct's own nulls in them
            _update(found, part)
    elif arrow.types.is_list(kind) or arrow.types.is_large_list(kind):
        lengths = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        found.update(np.ascontiguousarray(lengths, dtype=np.int64).tobytes())
        _update(found, array.flatten())  # what a null list holds is left out
    elif arrow.types.is_string(kind) or arrow.types.is_large_string(kind):
        for text in array.to_pylist():
            found.update(b"\0" if text is None else text.encode() + b"\1")
    elif arrow.types.is_boolean(kind):
        values = array.fill_null(False).to_numpy(zero_copy_only=False)
        found.update(np.packbits(values).tobytes())
    else:
        values = np.array(array.fill_null(0).to_numpy(zero_copy_only=False))
        if values.dtype.kind == "f":
            values[np.isnan(values)] = np.nan
        found.update(np.ascontiguousarray(values).tobytes())
