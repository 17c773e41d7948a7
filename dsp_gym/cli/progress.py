"""The progress bar on stderr of commands that take minutes to hours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["long_bar"]


@contextmanager
def long_bar() -> Iterator[Progress]:
    """Share done, time taken and left, and the newest `figures`, a field its tasks must have.

    Without a terminal it draws nothing: ask `bar.console.is_terminal`, and print lines instead.

    Yields:
        The bar, started; it is cleared when the block ends.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[figures]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        yield bar
