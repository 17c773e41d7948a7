"""A few threads that do what they are given, in order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

__all__ = ["Threads"]


class Threads:
    """Threads made when there is work for them; daemons, so that none keeps a process.

    Args:
        most: threads.
        name: of each.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads = self._idle = 0
        self._lock = threading.Lock()

    def do(self, work: Callable[[], None]) -> None:
        """Have something done that raises nothing; it waits for a thread."""
        with self._lock:
            if self._idle > self._work.qsize() or self._threads >= self._most:
                self._work.put(work)
                return
            self._threads += 1
        self._work.put(work)
        threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def close(self) -> None:
        """Let the threads end; what waits is not done."""
        with self._lock:
            while not self._work.empty():
                self._work.get_nowait()
            for _ in range(self._threads):
                self._work.put(None)

    def _run(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            work = self._work.get()
            with self._lock:
                self._idle -= 1
            if work is None:
                return
            work()
