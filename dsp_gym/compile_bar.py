"""A bar on the terminal while functions are compiled, for commands that ask for one.

A library does not draw on the terminal of the program that uses it, and workers do not draw on that
of the process they work for: there a line in the log stands for it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Hashable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

_drawn_on: list[Console] = []
"""Consoles with a bar of the command at work, the newest last."""

_asked_by: int | None = None
"""The process that draws; a fork of it does not."""


def ask_for_compile_bar() -> None:
    """Let this process draw a bar on stderr while it compiles, if that is a terminal."""
    global _asked_by
    _asked_by = os.getpid()


@contextmanager
def beside_compile_bar(console: Console) -> Iterator[None]:
    """Name the console of a bar that is drawn in the block: that of compilation joins it there.

    Args:
        console: The terminal, with a live display of rich.
    """
    _drawn_on.append(console)
    try:
        yield
    finally:
        _drawn_on.remove(console)


class CompileBar:
    """How many of the functions that compiled code consists of are ready.

    The number in all is known for what was called so far, and grows with each further call of
    Python into compiled code.
    """

    def __init__(self) -> None:
        self._needed: set[Hashable] = set()
        self._ready: set[Hashable] = set()
        self._shown: Progress | None = None
        self._begun_s = 0.0
        self._taken_s = 0.0

    def begin(self, what: str, functions: Collection[Hashable]) -> bool:
        """Draw the bar, unless it is drawn or nobody asked for it.

        Args:
            what: The code is for this; a noun.
            functions: All functions that one call consists of.

        Returns:
            Whether the bar is there.
        """
        if self._shown is not None:
            return True
        if _asked_by != os.getpid():
            return False
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        console = _drawn_on[-1] if _drawn_on else Console(stderr=True)
        if not console.is_terminal or console.is_dumb_terminal:
            return False
        self._needed |= set(functions)
        shown = Progress(
            TextColumn("compiling {task.description} once, then kept"),
            BarColumn(bar_width=10),
            TextColumn("{task.completed:.0f} of {task.total:.0f} functions"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            redirect_stdout=False,
        )
        shown.add_task(what, total=len(self._needed), completed=self._counted())
        # The seconds of earlier bars count: to the user it is one wait.
        shown.tasks[0].start_time = shown.get_time() - self._taken_s
        shown.start()
        shown.refresh()  # at once, also beside a bar that is drawn ten times a second
        self._begun_s, self._shown = time.monotonic(), shown
        return True

    def made(self, function: Hashable) -> None:
        """Count a function that is compiled, or was read from disk.

        Args:
            function: The function.
        """
        self._ready.add(function)
        self._move()

    def end(self) -> None:
        """Clear the bar; what it counted is ready, or turned out not to be needed."""
        if self._shown is None:
            return
        self._ready |= self._needed
        self._move()
        self._shown.stop()
        self._shown = None
        self._taken_s += time.monotonic() - self._begun_s

    def _counted(self) -> int:
        return len(self._needed & self._ready)

    def _move(self) -> None:
        if self._shown is not None:
            self._shown.update(self._shown.tasks[0].id, completed=self._counted())
