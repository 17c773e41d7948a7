"""Folders of Parquet files that are whole or not there."""

from __future__ import annotations

import os
from pathlib import Path

from dsp_gym.records.parquet import pyarrow, write_parquet

__all__ = ["pyarrow", "sync_folder", "write_parquet"]


def sync_folder(folder: Path) -> None:
    """Makes the names of new files in a folder survive a crash.

    Raises:
        OSError: The folder cannot be opened or synced.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
