"""Calls with a time limit, in threads that all callers share: a caller never waits longer.

Policies are asked one after the other, so one thread serves hundreds of them. Only a late call
keeps a thread to itself, until it ends; the late calls of one policy keep a few threads at most, so
that a policy that hangs on every job leaves the others theirs.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar

__all__ = ["MOST_CALLS", "LateError", "Worker", "Workers"]

T = TypeVar("T")

MOST_CALLS = 12
"""Calls at once, the late ones included; the next one is refused."""

MOST_OF_ONE = 4
"""Calls at once of callees with the same name."""

_IDLE_S = 30.0
"""A thread without a call ends after that long."""


class LateError(Exception):
    """No answer within the time limit."""


class _Call:
    def __init__(self, name: str, function: Callable[[], object]) -> None:
        self.name, self.function = name, function
        self.is_done = False
        self.error: BaseException | None = None
        self._ends = threading.Lock()  # what an event does, at a third of its time
        self._ends.acquire()

    def run(self) -> None:
        try:
            self.function()
        except BaseException as error:  # a policy that calls sys.exit ends its call, not the loop
            self.error = error

    def end(self) -> None:
        self.is_done = True
        self._ends.release()

    def wait(self, timeout_s: float) -> bool:
        """Whether it ended within that time; to be asked once."""
        return self._ends.acquire(timeout=timeout_s)


class Workers:
    """Threads made when they are needed; daemons, so that a call without end keeps no process.

    Args:
        most: threads at once.
        most_of_one: calls at once that bear the same name.
        idle_s: how long a thread waits for another call before it ends.
    """

    def __init__(
        self, most: int = MOST_CALLS, most_of_one: int = MOST_OF_ONE, idle_s: float = _IDLE_S
    ) -> None:
        self._most, self._most_of_one, self._idle_s = most, most_of_one, idle_s
        self._calls: SimpleQueue[_Call] = SimpleQueue()
        self._lock = threading.Lock()
        self._at_work: Counter[str] = Counter()
        self._threads = self._idle = 0

    def begin(self, name: str, function: Callable[[], object]) -> _Call | None:
        """Call a function in a thread.

        Returns:
            The call under way; None where every thread is at work, or too many are under that name.
        """
        call = _Call(name, function)
        with self._lock:
            if self._at_work[name] >= self._most_of_one:
                return None
            if self._idle > 0:
                self._idle -= 1  # a thread that waits is as good as taken
            elif self._threads < self._most:
                self._threads += 1
                threading.Thread(target=self._work, name="dsp-gym policies", daemon=True).start()
            else:
                return None
            self._at_work[name] += 1
        self._calls.put(call)
        return call

    def _work(self) -> None:
        while True:
            try:
                call = self._calls.get(timeout=self._idle_s)
            except Empty:
                with self._lock:
                    if self._idle > 0:  # otherwise a call is on its way
                        self._idle -= 1
                        self._threads -= 1
                        return
                continue
            call.run()
            with self._lock:
                self._at_work[call.name] -= 1
                self._idle += 1
            call.end()


_SHARED = Workers()


class Worker:
    """Calls of one callee; the caller stops waiting for a late one, and its answer is lost.

    Until a late call ends no other is begun, so that the callee needs no lock of its own.

    Args:
        name: of the callee; those of the same name share a bound.
        workers: the threads; None: those of the process.
    """

    def __init__(self, name: str, workers: Workers | None = None) -> None:
        self._name, self._workers = name, workers or _SHARED
        self._last: _Call | None = None

    def call(self, function: Callable[[], T], timeout_s: float) -> T:
        """Call a function in a thread.

        Returns:
            The answer of the function.

        Raises:
            LateError: The function did not return in time, the call before has not ended, or late
                calls keep every thread.
            BaseException: What the function raised.
        """
        if self._last is not None and not self._last.is_done:
            raise LateError("it is still at work on an earlier decision")
        answers: list[T] = []
        call = self._workers.begin(self._name, lambda: answers.append(function()))
        if call is None:
            raise LateError("earlier decisions, for other jobs, keep every thread it may have")
        self._last = call
        if not call.wait(timeout_s):
            raise LateError(f"it did not answer within {timeout_s:g} s")
        self._last = None
        if call.error is not None:
            raise call.error
        return answers[0]
