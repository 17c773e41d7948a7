"""Steps of many loops on a bounded number of threads, each when it is due.

A step asks servers and may wait for them as long as their time limits let it. Loops whose last step
was slow therefore have threads of their own: however many servers hang, they hang there, and the
other loops' steps begin on time.
"""

from __future__ import annotations

import heapq
import threading
import time
from functools import partial
from typing import Protocol

from dsp_gym.backends.upstream.thread_pool import DaemonPool
from dsp_gym.loop.watchers import WATCHER_FAILURES

MOST_QUICK, MOST_SLOW = 24, 16
"""Steps at once: of loops whose servers answer, and of the others."""

SLOW_S = 1.0
"""A step that takes longer puts its loop among the slow ones, until one is quicker again."""


_AGAIN_S = 1.0
"""How long a step waits for which the system gives no thread."""


class ScheduledLoop(Protocol):
    """One loop, which a thread takes on from step to step."""

    def step(self) -> float | None:
        """Do what is due; may block, never raises.

        Returns:
            Seconds until the next step; None: there is none.
        """


class Scheduler:
    """Takes loops on until they end or `close` is called.

    Args:
        quick: steps at once of loops that answer in time.
        slow: steps at once of the others.
        slow_s: how long a quick step takes at most.
    """

    def __init__(
        self, quick: int = MOST_QUICK, slow: int = MOST_SLOW, slow_s: float = SLOW_S
    ) -> None:
        self._quick, self._slow = (DaemonPool(most, "dsp-gym jobs") for most in (quick, slow))
        self._slow_s = slow_s
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, ScheduledLoop]] = []
        self._pool_of: dict[ScheduledLoop, DaemonPool] = {}
        self._hurried: set[ScheduledLoop] = set()
        self._number = 0
        self._is_closed = False
        self._watch: threading.Thread | None = None

    def begin(self, loop: ScheduledLoop) -> None:
        """Take a loop on; its first step is due now."""
        with self._changed:
            self._pool_of[loop] = self._quick
            self._put(loop, time.monotonic())
            if self._watch is None:
                self._watch = threading.Thread(target=self._run, name="dsp-gym due", daemon=True)
                self._watch.start()

    def hurry(self, loop: ScheduledLoop) -> None:
        """Make every step of a loop due at once from now on."""
        with self._changed:
            if loop not in self._pool_of:
                return  # it has ended meanwhile
            self._hurried.add(loop)
            left = [entry for entry in self._due if entry[2] is not loop]
            if len(left) < len(self._due):
                self._due = left
                heapq.heapify(left)
                self._put(loop, time.monotonic())

    def close(self) -> None:
        """Let the threads end; to be called when every loop has ended."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._quick.close()
        self._slow.close()

    def _put(self, loop: ScheduledLoop, due_s: float) -> None:
        """Plan a step; to be called with the lock."""
        self._number += 1  # of two that are due at once the first one comes first
        heapq.heappush(self._due, (due_s, self._number, loop))
        self._changed.notify()

    def _run(self) -> None:
        """Hand every step to a thread when it is due."""
        while True:
            with self._changed:
                while not self._is_closed and not (
                    self._due and self._due[0][0] <= time.monotonic()
                ):
                    wait_s = self._due[0][0] - time.monotonic() if self._due else None
                    self._changed.wait(wait_s)
                if self._is_closed:
                    return
                loop = heapq.heappop(self._due)[2]
                pool = self._pool_of[loop]
            try:
                pool.do(partial(self._step, loop))
            except RuntimeError as error:  # the system gives no thread now
                WATCHER_FAILURES.add("due", error)
                with self._changed:
                    self._put(loop, time.monotonic() + _AGAIN_S)

    def _step(self, loop: ScheduledLoop) -> None:
        begun_s = time.monotonic()
        wait_s = loop.step()
        now_s = time.monotonic()
        with self._changed:
            if wait_s is None:
                self._pool_of.pop(loop, None)
                self._hurried.discard(loop)
                return
            is_slow = now_s - begun_s > self._slow_s
            self._pool_of[loop] = self._slow if is_slow else self._quick
            self._put(loop, now_s if loop in self._hurried else now_s + wait_s)
