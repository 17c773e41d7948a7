"""What the commands print: JSON for programs, tables for people."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

import typer

from dsp_gym.errors import ConfigError
from dsp_gym.redaction import redacted

_PIPED_WIDTH = 160
"""Columns of a table that is not shown on a terminal: wide enough not to cut names."""


def print_json(value: object) -> None:
    """Print one JSON document; numbers that are not finite become null, credentials are hidden."""
    from dsp_gym.config.strict_json import plain

    typer.echo(redacted(json.dumps(plain(value), indent=2, allow_nan=False)))


def json_line(value: object) -> str:
    """Write a value as one line of JSON.

    Returns:
        The line; numbers that are not finite are null.
    """
    from dsp_gym.config.strict_json import plain

    return json.dumps(plain(value), allow_nan=False)


def refuse_unwritable(file: Path, option: str) -> None:
    """Refuse a file that could not be written, before the work that fills it.

    Args:
        file: The page.
        option: That names it.

    Raises:
        ConfigError: The file is a folder, or there is no folder to hold it.
    """
    if file.is_dir():
        raise ConfigError("is a folder", key=option, value=str(file), remedy="Name a file in it.")
    if not file.parent.is_dir():
        remedy = f"Make it: mkdir -p {shlex.quote(str(file.parent))}"
        if file.parent.exists():
            remedy = f"'{file.parent}' is a file: choose another folder."
        raise ConfigError("there is no such folder", key=option, value=str(file), remedy=remedy)


def counted(number: int, noun: str) -> str:
    """Write a number with its noun, in the plural unless it is one.

    Returns:
        The number and the noun, such as `2 policies`.

    >>> counted(1, "job"), counted(2, "policy"), counted(0, "run")
    ('1 job', '2 policies', '0 runs')
    """
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun[:-1]}ies" if noun.endswith("y") else f"{number} {noun}s"


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str | None = None,
    right: Sequence[str] = (),
    bold: Sequence[int] = (),
) -> None:
    """Print a table.

    Args:
        columns: Heads.
        rows: Cells; None shows as a dash.
        title: Above the table.
        right: Columns that align right.
        bold: Rows that stand out on a terminal, by their place.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for place, row in enumerate(rows):
        # Text, because square brackets in a value are no markup.
        cells = (Text("–" if cell is None else str(cell)) for cell in row)
        table.add_row(*cells, style="bold" if place in bold else None)
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PIPED_WIDTH)
    console.print(table)
