"""Calls in a thread of their own, each with a time limit: a caller never waits longer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

__all__ = ["LateError", "Worker"]

T = TypeVar("T")


class LateError(Exception):
    """No answer within the time limit."""


class _Call:
    def __init__(self, function: Callable[[], object]) -> None:
        self.function = function
        self.done = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.function()
        except BaseException as error:  # a policy that calls sys.exit ends its thread, not the loop
            self.error = error
        self.done.set()


class Worker:
    """One thread; the caller stops waiting for a late call, and its answer is thrown away.

    Until it ends no other call is begun, so that what is called needs no lock of its own. The
    thread is a daemon: a call that never ends does not keep the process.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._last: _Call | None = None

    def call(self, function: Callable[[], T], timeout_s: float) -> T:
        """Call a function in the thread.

        Returns:
            The answer of the function.

        Raises:
            LateError: The function did not return in time, or the call before has not ended.
            BaseException: What the function raised.
        """
        if self._last is not None and not self._last.done.is_set():
            raise LateError("it is still at work on an earlier decision")
        answers: list[T] = []
        call = self._last = _Call(lambda: answers.append(function()))
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._calls.put(call)
        if not call.done.wait(timeout_s):
            raise LateError(f"it did not answer within {timeout_s:g} s")
        if call.error is not None:
            raise call.error
        return answers[0]

    def close(self) -> None:
        """Let the thread end after the call it is at."""
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call.run()
