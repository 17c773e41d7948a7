"""Calls with a time limit, in threads that all callers share: no caller waits longer.

Policies are asked one after the other, so one thread serves hundreds of them. Only a late call
keeps a thread to itself, until it ends; the late calls of one policy keep a few threads at most, so
that a policy that hangs on every job leaves the others theirs.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from dsp_gym.control.thread_pool import DaemonPool

__all__ = ["MOST_CALLS", "LateError", "Worker", "Workers"]

T = TypeVar("T")

MOST_CALLS = 12
"""Calls at once, the late ones included; the next one is refused."""

MOST_OF_ONE = 4
"""Calls at once of callees with the same name."""


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
        """Wait for the end, once.

        Returns:
            Whether it ended within that time.
        """
        return self._ends.acquire(timeout=timeout_s)


class Workers:
    """Threads for calls, which refuse the calls that they have no thread for.

    Args:
        most: calls at once.
        most_of_one: calls at once that bear the same name.
        idle_s: how long a thread waits for another call before it ends.
    """

    def __init__(
        self, most: int = MOST_CALLS, most_of_one: int = MOST_OF_ONE, idle_s: float = 30.0
    ) -> None:
        self._most, self._most_of_one = most, most_of_one
        self._pool = DaemonPool(most, "dsp-gym policies", idle_s)
        self._lock = threading.Lock()
        self._at_work: Counter[str] = Counter()

    def begin(self, name: str, function: Callable[[], object]) -> _Call | None:
        """Call a function in a thread.

        Returns:
            The call under way; None where every thread is at work, or too many are under that name.
        """
        call = _Call(name, function)
        with self._lock:
            if self._at_work[name] >= self._most_of_one or self._at_work.total() >= self._most:
                return None
            self._at_work[name] += 1
        self._pool.do(lambda: self._made(call))
        return call

    def _made(self, call: _Call) -> Callable[[], None]:
        call.run()
        return lambda: self._ended(call)

    def _ended(self, call: _Call) -> None:
        with self._lock:
            self._at_work[call.name] -= 1
        call.end()


_SHARED = Workers()


class Worker:
    """Calls of one callee; the caller stops waiting for a late one, and its answer is lost.

    Until a late call ends no other is begun, so that the callee needs no lock.

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
