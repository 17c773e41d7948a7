"""Calls with a time limit, in threads that all callers share: no caller waits longer.

Policies are asked one after the other, so one thread serves hundreds of them. Only a late call
keeps a thread to itself, until it ends; the late calls of one policy keep a few threads at most, so
that a policy that hangs on every job leaves the others theirs.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from dsp_gym.control.thread_pool import DaemonPool

T = TypeVar("T")

MOST_CALLS = 12
"""Calls at once, the late ones included; the next one is refused."""

MOST_OF_ONE = 4
"""Calls at once of callees with the same name."""


class LateError(Exception):
    """No answer within the time limit."""


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

    def begin(self, name: str, function: Callable[[], T]) -> Future[T] | None:
        """Call a function in a thread.

        Returns:
            Its answer to come; None where every thread is at work, or too many are under that name.
        """
        with self._lock:
            if self._at_work[name] >= self._most_of_one or self._at_work.total() >= self._most:
                return None
            self._at_work[name] += 1
        answer: Future[T] = Future()
        self._pool.do(lambda: self._called(name, function, answer))
        return answer

    def _called(
        self, name: str, function: Callable[[], T], answer: Future[T]
    ) -> Callable[[], None]:
        try:
            give = partial(answer.set_result, function())
        except BaseException as error:  # a policy that calls sys.exit ends its call, not the loop
            give = partial(answer.set_exception, error)

        def ended() -> None:
            with self._lock:
                self._at_work[name] -= 1
            give()

        return ended


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
        self._last: Future[Any] | None = None

    def call(self, function: Callable[[], T], timeout_s: float) -> T:
        """Call a function in a thread.

        Returns:
            The answer of the function.

        Raises:
            LateError: The function did not return in time, the call before has not ended, or late
                calls keep every thread.
            BaseException: What the function raised.
        """
        if self._last is not None and not self._last.done():
            raise LateError("it is still at work on an earlier decision")
        answer = self._workers.begin(self._name, function)
        if answer is None:
            raise LateError("earlier decisions, for other jobs, keep every thread it may have")
        self._last = answer
        try:
            return answer.result(timeout_s)
        except TimeoutError:
            if answer.done():  # just now, or the function raised it
                return answer.result()
            raise LateError(f"it did not answer within {timeout_s:g} s") from None
