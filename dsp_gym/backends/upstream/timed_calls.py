"""Calls with a time limit, in threads that all callers share: no caller waits longer.

A thread is the one way to bound a call whatever it waits for: a server that sends a byte a second,
a look-up of a name, a policy that hangs. A call whose caller has given up is late. It keeps its
thread until it ends, so late calls are counted, few at a time of one callee, and told to end.
"""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from dsp_gym.backends.upstream.interpreter_turn import waiting
from dsp_gym.backends.upstream.thread_pool import DaemonPool

T = TypeVar("T")

MOST_LATE = 12
"""Late calls at once; while there are as many, the next call is refused."""

MOST_OF_ONE = 4
"""Late calls at once of callees with the same name."""


COMPUTES_S = 0.2
"""A policy decides in less; one that takes longer waits for something."""


class LateError(Exception):
    """No answer within the time limit."""


class LateCalls(NamedTuple):
    """The late calls of one callee."""

    now: int  # threads that they keep
    ever: int  # since the process began


class Call(Generic[T]):
    """A call under way; its answer is lost once its caller has given up."""

    def __init__(self) -> None:
        self.answer: Future[T] = Future()
        self.is_late = False
        self._held: list[tuple[Callable[[], None], Callable[[], None]]] = []
        self._lock = threading.Lock()

    def hold(self, end: Callable[[], None], release: Callable[[], None]) -> None:
        """Take what the call waits for: `end` cuts it short, `release` follows the call."""
        with self._lock:
            self._held.append((end, release))
            if self.is_late:
                end()

    def give_up(self) -> None:
        """Cut short what the call waits for."""
        with self._lock:
            self.is_late = True
            for end, _ in self._held:
                end()

    def release(self) -> None:
        """Let go of what the call waited for."""
        with self._lock:
            for _, release in self._held:
                release()
            self._held.clear()


class _Mine(threading.local):
    call: Call[Any] | None = None  # that this thread is at work on
    until_s = math.inf  # deadline of the block that this thread is in, monotonic


_MINE = _Mine()


def ends_when_late(end: Callable[[], None], release: Callable[[], None]) -> None:
    """Name what the call of this thread waits for; without effect outside of a call.

    Args:
        end: cuts it short; called by another thread when the caller gives up. Must not block.
        release: called when the call has ended.
    """
    if _MINE.call is None:
        release()
    else:
        _MINE.call.hold(end, release)


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Let all calls of this block together take so long; of two such blocks the sooner end counts.

    Yields:
        None.
    """
    before = _MINE.until_s
    _MINE.until_s = min(before, time.monotonic() + seconds)
    try:
        yield
    finally:
        _MINE.until_s = before


class Workers:
    """Threads for calls.

    Args:
        most: late calls at once.
        most_of_one: late calls at once that bear the same name.
        idle_s: how long a thread waits for another call before it ends.
    """

    def __init__(
        self, most: int = MOST_LATE, most_of_one: int = MOST_OF_ONE, idle_s: float = 30.0
    ) -> None:
        self._most, self._most_of_one = most, most_of_one
        # Callers wait for their calls: there are as many threads as callers and late calls.
        self._pool = DaemonPool(sys.maxsize, "dsp-gym calls", idle_s)
        self._lock = threading.Lock()
        self._late: Counter[str] = Counter()
        self._ever: Counter[str] = Counter()

    def late(self) -> dict[str, LateCalls]:
        """Count the late calls, by the name of the callee.

        Returns:
            Those of every callee that was ever late.
        """
        with self._lock:
            return {name: LateCalls(self._late[name], ever) for name, ever in self._ever.items()}

    def begin(self, name: str, function: Callable[[], T]) -> Call[T] | None:
        """Call a function in a thread.

        Returns:
            The call; None where late calls keep as many threads as they may, or those of that name
            as many as they may.
        """
        with self._lock:
            if self._late[name] >= self._most_of_one or self._late.total() >= self._most:
                return None
        call: Call[T] = Call()
        self._pool.do(lambda: self._called(name, function, call))
        return call

    def wait(self, name: str, call: Call[T], timeout_s: float) -> T:
        """Wait for a call that was begun.

        Returns:
            The answer of the function.

        Raises:
            LateError: The function did not return in time, counted from now or as the `deadline`
                of the caller has it.
            BaseException: What the function raised.
        """
        left_s = max(0.0, min(timeout_s, _MINE.until_s - time.monotonic()))
        try:
            return _answer(call.answer, left_s)
        except TimeoutError:
            with self._lock:
                is_late = not call.answer.done()
                if is_late:
                    self._late[name] += 1
                    self._ever[name] += 1
                    call.is_late = True
            if not is_late:  # just now, or the function raised it
                return call.answer.result()
            call.give_up()
            raise LateError(f"it did not answer within {left_s:.2g} s") from None

    def call(self, name: str, function: Callable[[], T], timeout_s: float) -> T:
        """Call a function in a thread, and wait for its answer.

        Returns:
            The answer of the function.

        Raises:
            LateError: As `wait`, or late calls keep every thread that they may have.
            BaseException: What the function raised.
        """
        if _MINE.until_s <= time.monotonic():
            raise LateError("no time was left to ask it")
        call = self.begin(name, function)
        if call is None:
            raise LateError("earlier calls, whose time was over, have not ended")
        return self.wait(name, call, timeout_s)

    def _called(
        self, name: str, function: Callable[[], T], call: Call[T]
    ) -> Callable[[], None] | None:
        _MINE.call = call
        try:
            give = partial(call.answer.set_result, function())
        except BaseException as error:  # a policy that calls sys.exit ends its call, not the loop
            give = partial(call.answer.set_exception, error)
        finally:
            _MINE.call = None
            with contextlib.suppress(OSError):
                call.release()

        def ended() -> None:
            with self._lock:
                self._late[name] -= call.is_late
                give()

        return ended


def _answer(answer: Future[T], timeout_s: float) -> T:
    """Wait for an answer; what takes long does not compute, so that other loops may meanwhile."""
    try:
        return answer.result(min(timeout_s, COMPUTES_S))
    except TimeoutError:
        if answer.done() or timeout_s <= COMPUTES_S:
            raise
    with waiting():
        return answer.result(timeout_s - COMPUTES_S)


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
        self._last: Call[Any] | None = None

    def call(self, function: Callable[[], T], timeout_s: float) -> T:
        """Call a function in a thread.

        Returns:
            The answer of the function.

        Raises:
            LateError: The function did not return in time, the call before has not ended, or late
                calls keep every thread.
            BaseException: What the function raised.
        """
        if self._last is not None and not self._last.answer.done():
            raise LateError("it is still at work on an earlier decision")
        call = self._workers.begin(self._name, function)
        if call is None:
            raise LateError("earlier decisions, for other jobs, keep every thread it may have")
        self._last = call
        return self._workers.wait(self._name, call, timeout_s)
