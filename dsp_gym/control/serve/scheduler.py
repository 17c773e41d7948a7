"""Steps of many loops on a bounded number of threads, each when it is due.

A step asks servers and may wait for them as long as their time limits let it. Loops whose last step
was slow therefore have threads of their own: however many servers hang, they hang there, and the
other loops' steps begin on time.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from typing import Protocol

__all__ = ["MOST_QUICK", "MOST_SLOW", "SLOW_S", "Scheduler", "ScheduledLoop"]

MOST_QUICK, MOST_SLOW = 24, 16
"""Steps at once: of loops whose servers answer, and of the others."""

SLOW_S = 1.0
"""A step that takes longer puts its loop among the slow ones, until one is quicker again."""

_IDLE_S = 30.0
"""A thread that is not needed ends after that long."""


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
        clock: seconds that only go forward.
    """

    def __init__(
        self,
        quick: int = MOST_QUICK,
        slow: int = MOST_SLOW,
        slow_s: float = SLOW_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._quick, self._slow = _Lane(quick, self), _Lane(slow, self)
        self._slow_s, self.clock = slow_s, clock
        self._lane_of: dict[ScheduledLoop, _Lane] = {}
        self._hurried: set[ScheduledLoop] = set()

    def begin(self, loop: ScheduledLoop) -> None:
        """Take a loop on; its first step is due now."""
        self._lane_of[loop] = self._quick
        self._quick.put(loop, self.clock())

    def hurry(self, loop: ScheduledLoop) -> None:
        """Make every step of a loop due at once from now on."""
        self._hurried.add(loop)
        lane = self._lane_of.get(loop)
        if lane is not None:  # otherwise it has ended meanwhile
            lane.hurry(loop)

    def close(self) -> None:
        """Let the threads end; to be called when every loop has ended."""
        self._quick.close()
        self._slow.close()

    def take_step(self, loop: ScheduledLoop) -> None:
        """Let a loop do what is due, and say when it goes on and where."""
        begun_s = self.clock()
        wait_s = loop.step()
        now_s = self.clock()
        if wait_s is None:
            self._lane_of.pop(loop, None)
            self._hurried.discard(loop)
            return
        lane = self._slow if now_s - begun_s > self._slow_s else self._quick
        self._lane_of[loop] = lane
        lane.put(loop, now_s + wait_s)
        if loop in self._hurried:  # looked at last: `hurry` may have found no step to move
            lane.hurry(loop)


class _Lane:
    """Threads that wait for the next step that is due; at most `most`, made as they are needed.

    One of those that wait keeps watch; before it begins a step, another one takes the watch.
    """

    def __init__(self, most: int, lanes: Scheduler) -> None:
        self._most, self._lanes = most, lanes
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, ScheduledLoop]] = []
        self._number = self._threads = self._waiting = 0
        self._is_watched = self._is_closed = False

    def put(self, loop: ScheduledLoop, due_s: float) -> None:
        with self._changed:
            self._number += 1  # of two that are due at once the first one comes first
            heapq.heappush(self._due, (due_s, self._number, loop))
            if self._waiting == 0 and self._threads < self._most:
                self._add_thread()
            elif self._due[0][2] is loop:
                self._changed.notify_all()

    def hurry(self, loop: ScheduledLoop) -> None:
        with self._changed:
            found = [entry for entry in self._due if entry[2] is loop]
            for entry in found:
                self._due.remove(entry)
            heapq.heapify(self._due)
        if found:
            self.put(loop, self._lanes.clock())

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _add_thread(self) -> None:
        self._threads += 1
        threading.Thread(target=self._work, name="dsp-gym jobs", daemon=True).start()

    def _work(self) -> None:
        while (loop := self._next()) is not None:
            try:
                self._lanes.take_step(loop)
            except BaseException:
                with self._changed:
                    self._threads -= 1
                raise

    def _next(self) -> ScheduledLoop | None:
        """The step that is due, when it is; None: this thread is not needed."""
        with self._changed:
            while not self._is_closed:
                wait_s = self._due[0][0] - self._lanes.clock() if self._due else _IDLE_S
                if self._due and wait_s <= 0:
                    loop = heapq.heappop(self._due)[2]
                    if self._due and self._waiting > 0:
                        self._changed.notify()  # it takes the watch
                    elif self._due and self._threads < self._most:
                        self._add_thread()
                    return loop
                keeps_watch = not self._is_watched
                self._is_watched = True
                self._waiting += 1
                told = self._changed.wait(wait_s if keeps_watch else _IDLE_S)
                self._waiting -= 1
                if keeps_watch:
                    self._is_watched = False
                elif not told and (self._is_watched or not self._due):
                    break
            self._threads -= 1
            return None
