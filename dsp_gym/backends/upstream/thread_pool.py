"""As few threads as the work needs, made when it needs them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

Work = Callable[[], Callable[[], None] | None]
"""Raises nothing. What it returns is called once the thread is free again."""


class DaemonPool:
    """Threads that take work in order; daemons, so that none keeps a process.

    Threads that compute share a processor: a second one does not add to the first, it only takes
    turns with it. Where most work computes, patience gives one thread all of it, and another thread
    only to work that a waiting one holds up.

    Args:
        most: threads at once.
        name: of each.
        idle_s: how long a thread without work waits for more, s.
        patience_s: a thread is added where work waits and none was begun for so long, by `look`;
            None: at once.
    """

    def __init__(
        self, most: int, name: str, idle_s: float = 30.0, patience_s: float | None = None
    ) -> None:
        self._most, self._name = most, name
        self._idle_s, self._patience_s = idle_s, patience_s
        self._work: deque[Work] = deque()
        self._changed = threading.Condition()
        self._threads = self._idle = 0
        self._begun_s = time.monotonic()  # when work was last begun
        self._is_closed = False

    def do(self, work: Work) -> None:
        """Have work done; it waits for a thread.

        Raises:
            RuntimeError: There is no thread, and the system gives none; the work is not done.
        """
        with self._changed:
            self._work.append(work)
            self._changed.notify()
            if self._threads == 0 or (self._patience_s is None and len(self._work) > self._idle):
                try:
                    self._add_thread()
                except RuntimeError:
                    self._work.pop()
                    raise

    def look(self) -> None:
        """Add a thread where work waits and the others are held up; to be called now and then."""
        with self._changed:
            held_up = time.monotonic() - self._begun_s > (self._patience_s or 0.0)
            if self._work and held_up and not self._idle:
                self._add_thread()

    def close(self) -> None:
        """Let the threads end; work that waits is not done."""
        with self._changed:
            self._is_closed = True
            self._work.clear()
            self._changed.notify_all()

    def _add_thread(self) -> None:
        if self._threads < self._most:
            try:
                threading.Thread(target=self._run, name=self._name, daemon=True).start()
            except RuntimeError:  # the system gives no more threads now
                if self._threads == 0:
                    raise
            else:
                self._threads += 1

    def _run(self) -> None:
        done = None
        while (work := self._next(done)) is not None:
            try:
                done = work()
            except BaseException:
                with self._changed:
                    self._threads -= 1
                raise

    def _next(self, done: Callable[[], None] | None) -> Work | None:
        """Wait for work; None: this thread is not needed."""
        with self._changed:
            self._idle += 1
            if done is not None:
                done()
            while not self._is_closed:
                if self._work:
                    self._idle -= 1
                    self._begun_s = time.monotonic()
                    return self._work.popleft()
                if not self._changed.wait(self._idle_s) and not self._work:
                    break
            self._idle -= 1
            self._threads -= 1
            return None
