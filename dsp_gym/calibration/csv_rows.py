"""Rows of a CSV table whose columns are known by name."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Sequence
from pathlib import Path

from dsp_gym.config.text import decoded
from dsp_gym.errors import ConfigError


def read_rows(
    file: Path,
    columns: Sequence[str] = (),
    remedy: str = "Name a CSV table with a header.",
    *,
    whole: bool = False,
) -> list[dict[str, str]]:
    """Read the rows of a table with a header; fields are text.

    Args:
        file: the table; one whose name ends in .gz is decompressed.
        columns: that it has to have.
        remedy: what to do where it cannot be read.
        whole: refuse a row with more or fewer fields than the header.

    Returns:
        One dict per row; fields are text, empty if the cell is.

    Raises:
        ConfigError: The file cannot be read, or has no such column.
    """
    try:
        content = file.read_bytes()
        if file.suffix == ".gz":
            content = gzip.decompress(content)
        text = decoded(content, file)
        reader = csv.DictReader(io.StringIO(text, newline=""))
        header = reader.fieldnames or ()
        read = list(reader)
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ConfigError(f"cannot be read: {why}", file=file, remedy=remedy) from error
    if whole:
        _refuse_other_lengths(read, header, file)
    rows = [{key: value or "" for key, value in row.items() if key} for row in read]
    missing = [column for column in columns if column not in header]
    if missing:
        raise ConfigError(
            f"has no column '{missing[0]}'",
            file=file,
            remedy=f"It needs the columns {', '.join(columns)}.",
        )
    return rows


def _refuse_other_lengths(
    rows: list[dict[str | None, str | list[str] | None]], header: Sequence[str], file: Path
) -> None:
    for number, row in enumerate(rows, start=2):
        more = row.get(None)
        if more is not None or None in row.values():
            fields = sum(value is not None for key, value in row.items() if key)
            found = fields + (len(more) if more is not None else 0)
            raise ConfigError(
                f"row {number} has {found} fields, the header {len(header)}",
                file=file,
                value=str(row.get("run") or ""),
                remedy="Give every row a field per column, empty where nothing is known.",
            )


def measured_rows(file: Path) -> list[dict[str, str]]:
    """Read the rows of a table of the folder of measured data.

    Returns:
        One dict per row, as `read_rows` gives it.

    Raises:
        ConfigError: The file cannot be read.
    """
    remedy = "Name the folder of measured data: --data FOLDER, or DSP_GYM_DATA."
    return read_rows(file, remedy=remedy)
