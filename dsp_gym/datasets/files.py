"""Parquet files that are whole or not there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsp_gym.errors import MissingExtraError, StorageError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["pyarrow", "sync_folder", "write_parquet"]


def pyarrow(purpose: str) -> tuple[Any, Any]:
    """Arrow and its Parquet module.

    Raises:
        MissingExtraError: They are not installed.
    """
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise MissingExtraError("spark", purpose) from None
    return pyarrow, pyarrow.parquet


def write_parquet(file: Path, table: pa.Table) -> None:
    """Writes a table beside its place first, synced, then renames it."""
    _, parquet = pyarrow("writing a dataset")
    temporary: str | None = None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        with os.fdopen(descriptor, "wb") as stream:
            parquet.write_table(table, stream, compression="zstd", version="2.6")
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, file)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise StorageError(
            f"cannot be written: {error.strerror or error}; nothing was left half-written",
            file=file,
            remedy="Free some space, or choose a folder that can be written to.",
        ) from error


def sync_folder(folder: Path) -> None:
    """Makes names of new files in a folder survive a crash."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
