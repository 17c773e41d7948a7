"""The first step of a turn: look at the job, and say why nothing may be asked of it now."""

from __future__ import annotations

import math

from dsp_gym.backends.base import Backend, reason_to_hold
from dsp_gym.control.event_handler import EventHandler, TurnFailure, words
from dsp_gym.control.permission import Held
from dsp_gym.loop.snapshot import MetricsSnapshot

STEP_S = 2.0
"""Seconds by which a clock that is only corrected does not differ between two decisions."""

GAP_INTERVALS = 3.0
"""Intervals since the last decision above which a decision follows a gap."""


class JobCollector:
    """Takes snapshots of a job, and watches the clock that they are taken by.

    Args:
        backend: the job.
        events: receives what goes wrong.
        interval_s: seconds between decisions.
    """

    def __init__(self, backend: Backend, events: EventHandler, interval_s: int) -> None:
        self._backend, self._events, self._interval_s = backend, events, interval_s
        self._last_s = -math.inf
        self._offset_s: float | None = None  # of the clock to one that nobody can set
        self.set_forward_s = 0.0
        """By how much the clock was set forward before the last snapshot; 0: it went on."""
        self.held: Held | None = None
        """Why nothing may be asked of the job, as of the last snapshot."""
        self.set_back_s = 0.0
        """By how much the clock went back before the last snapshot, as if an interval had passed;
        0: it went on."""

    def collect(self) -> MetricsSnapshot | None:
        """Look at the job; never raises.

        Returns:
            What is seen; None where the job cannot be looked at, and `held` says why.
        """
        self.set_back_s = self.set_forward_s = 0.0
        try:
            seen = self._backend.collector.snapshot()
            trouble = reason_to_hold(self._backend, seen)
        except Exception as error:  # a server may answer anything
            failed = TurnFailure.of_api("collector", error)
            self._events.fail(failed)
            self.held = Held("collector", failed.reason)
            return None
        self.held = None
        if trouble is not None:
            self._events.fail(TurnFailure.of_api("collector", trouble), written=False)
            self.held = Held("collector", words(trouble))
        self._look_at_clock(float(seen.t_s[0]))
        return seen

    def _look_at_clock(self, t_s: float) -> None:
        before_s = self._offset_s
        self._offset_s = self._backend.now_s() - self._backend.elapsed_s()
        step_s = 0.0 if before_s is None else self._offset_s - before_s
        ahead_s = t_s - self._last_s
        self._last_s = t_s
        if ahead_s <= 0:
            reason = f"the clock went back by {-ahead_s:.0f} s; policies and guardrails start over"
            self.held = Held(self.held.code if self.held else "clock", reason)
            self.set_back_s = self._interval_s - ahead_s
        elif step_s > STEP_S:
            self.set_forward_s = step_s
            reason = f"the clock was set forward by {step_s:.0f} s; what rests, rests as long"
        elif math.isfinite(ahead_s) and ahead_s > GAP_INTERVALS * self._interval_s:
            reason = f"{ahead_s:.0f} s went by since the last decision"
        else:
            return
        self._events.fail(TurnFailure("clock", reason), written=False)
