"""The progress bars on stderr of commands that take seconds to hours."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from dsp_gym.compile_bar import beside_compile_bar

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, Task

LINE_EVERY_S = 60.0
"""How often a command without a terminal says how far it is."""

_TELLING = 0.01
"""Share of the work from which on the time it took shows the time left."""


@contextmanager
def bar(*columns: ProgressColumn, transient: bool = True, lines: bool = True) -> Iterator[Progress]:
    """Draw a bar on stderr; without a terminal, print a line a minute.

    Args:
        columns: Of the bar.
        transient: Clear the bar when the block ends.
        lines: Write lines without a terminal; not where the command writes its own.

    Yields:
        The bar, started.
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    drawn = console.is_terminal
    with Progress(*columns, console=console, transient=transient, disable=not drawn) as shown:
        if drawn:
            with beside_compile_bar(console):
                yield shown
            return
        if not lines:
            yield shown
            return
        ended = threading.Event()
        teller = threading.Thread(target=_tell, args=(shown, ended), name="progress", daemon=True)
        teller.start()
        try:
            yield shown
        finally:
            ended.set()
            teller.join()


def _tell(shown: Progress, ended: threading.Event) -> None:
    """Write a line for each task under way, until the work has ended."""
    begun = time.monotonic()
    while not ended.wait(LINE_EVERY_S):
        for task in shown.tasks:
            if not task.finished:
                typer.echo(_line(task, time.monotonic() - begun), err=True)


def _line(task: Task, taken_s: float) -> str:
    """Describe how far a task is, after so many seconds."""
    done, total = task.completed, task.total
    said = task.description.strip()
    if total and done:
        said = f"{said} {100 * done / total:.0f} %".strip()
        if done >= _TELLING * total:
            said += f", about {_clock(taken_s * (total - done) / done)} left"
    return f"{_clock(taken_s)}  {said}".rstrip()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


@contextmanager
def long_bar() -> Iterator[Progress]:
    """Show the share done, the time left, and the newest `figures`, a field its tasks must have.

    Without a terminal it draws nothing: ask `bar.console.is_terminal`, and print lines instead.

    Yields:
        The bar, started; it stays when the block ends.
    """
    with bar(*long_columns(), transient=False, lines=False) as shown:
        yield shown


def long_columns() -> tuple[ProgressColumn, ...]:
    """List the columns of `long_bar`.

    Returns:
        Columns that fit 80 characters; figures that do not are cut.
    """
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

    return (
        _text("{task.description}", 16),
        BarColumn(bar_width=12),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(),
        TextColumn("left"),
        _text("{task.fields[figures]}", 32),
    )


def cells_columns() -> tuple[ProgressColumn, ...]:
    """List the columns of a bar over cells of work.

    Returns:
        Columns that fit 80 characters; what does not is cut. `said` says how many are done: the
        number in all is not known at first.
    """
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

    return (
        _text("{task.description}", 20),
        BarColumn(bar_width=10),
        _text("{task.fields[said]}", 32),
        TimeRemainingColumn(),
        TextColumn("left"),
    )


def _text(form: str, width: int) -> ProgressColumn:
    """Make a column of a largest width, so that those beside it are never cut for it."""
    from rich.progress import TextColumn
    from rich.table import Column

    return TextColumn(form, table_column=Column(no_wrap=True, overflow="ellipsis", max_width=width))
