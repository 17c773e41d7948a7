"""As few threads as get on with the work they are given, in order."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

__all__ = ["IDLE_S", "PATIENCE_S", "Threads"]

PATIENCE_S = 0.05
"""Work that waits while nothing was begun for so long gets a thread of its own."""

IDLE_S = 5.0
"""A thread beyond the first ends after so long without work."""


class Threads:
    """One thread, and more while it is held up; daemons, so that none keeps a process.

    Threads that compute share a processor: a second one does not add to the first, it only takes
    turns with it. Those that wait for something do not hold up the others.

    Args:
        most: threads.
        name: of each.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._work: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._threads = self._idle = 0
        self._begun_s = time.monotonic()  # when work was last begun
        self._is_closed = False

    def do(self, work: Callable[[], None]) -> None:
        """Have something done that raises nothing; it waits for a thread."""
        with self._changed:
            self._work.append(work)
            if self._idle:
                self._changed.notify()
            elif self._threads == 0:
                self._add_thread()

    def look(self) -> None:
        """Add a thread where work waits and the others are held up; to be called now and then."""
        with self._changed:
            held_up = time.monotonic() - self._begun_s > PATIENCE_S
            if self._work and held_up and not self._idle and self._threads < self._most:
                self._add_thread()

    def close(self) -> None:
        """Let the threads end; what waits is not done."""
        with self._changed:
            self._is_closed = True
            self._work.clear()
            self._changed.notify_all()

    def _add_thread(self) -> None:
        self._threads += 1
        threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            work()

    def _next(self) -> Callable[[], None] | None:
        """The work that waited longest; None: this thread is not needed."""
        with self._changed:
            while not self._is_closed:
                if self._work:
                    self._begun_s = time.monotonic()
                    return self._work.popleft()
                self._idle += 1
                told = self._changed.wait(IDLE_S)
                self._idle -= 1
                if not told and not self._work and self._threads > 1:
                    break
            self._threads -= 1
            return None
