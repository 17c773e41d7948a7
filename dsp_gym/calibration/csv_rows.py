"""Rows of a CSV table whose columns are known by name."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from dsp_gym.config.text import decoded
from dsp_gym.errors import ConfigError


def read_rows(
    file: Path, columns: Sequence[str] = (), remedy: str = "Name a CSV table with a header."
) -> list[dict[str, str]]:
    """Read the rows of a table with a header; fields are text.

    Args:
        file: the table.
        columns: that it has to have.
        remedy: what to do where it cannot be read.

    Returns:
        One dict per row; fields are text, empty if the cell is.

    Raises:
        ConfigError: The file cannot be read, or has no such column.
    """
    try:
        text = decoded(file.read_bytes(), file)
        reader = csv.DictReader(io.StringIO(text, newline=""))
        header = reader.fieldnames or ()
        rows = [{key: value or "" for key, value in row.items() if key} for row in reader]
    except (OSError, csv.Error) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"cannot be read: {why}", file=file, remedy=remedy) from error
    missing = [column for column in columns if column not in header]
    if missing:
        raise ConfigError(
            f"has no column '{missing[0]}'",
            file=file,
            remedy=f"It needs the columns {', '.join(columns)}.",
        )
    return rows


def measured_rows(file: Path) -> list[dict[str, str]]:
    """Read the rows of a table of the folder of measured data.

    Returns:
        One dict per row, as `read_rows` gives it.

    Raises:
        ConfigError: The file cannot be read.
    """
    remedy = "Name the folder of measured data: --data FOLDER, or DSP_GYM_DATA."
    return read_rows(file, remedy=remedy)
