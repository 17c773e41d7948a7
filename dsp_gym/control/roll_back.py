"""When a change that was asked of a job is taken back."""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Bools, Ints, finite
from dsp_gym.control.modes import RollBackConfig
from dsp_gym.loop.configuration import Configuration
from dsp_gym.loop.decision import GuardedDecision, ScalingDecision
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.protocols import State
from dsp_gym.loop.snapshot import MetricsSnapshot, Status
from dsp_gym.loop.topology import Topology

_SAME_S = 30.0
"""Longest time between a snapshot and the record of its change; a later one is another change."""

_LEAST_OUTCOMES = 3
"""Intervals after a change before it is judged: one may hold nothing but the outage."""

_CATCH_UP = 3.0
"""Late seconds that are forgiven for each second of an outage: a job that is busy three quarters
of its time works off the backlog of one second in three.
"""


class _Interval(NamedTuple):
    """What came of one interval, s."""

    t_s: float  # its end
    up_s: float
    late_s: float  # of those that the job was up
    down_s: float = 0.0


class RollBack:
    """Watches a change that was enacted, and says when the numbers from before must come back.

    A job that does not run again is rolled back, whatever was changed. Late seconds count only
    against a change that took tasks or memory away: after another change, fewer tasks would make
    the job later still. The seconds of the restart do not count, nor those in which the job works
    off the backlog of the restart. Once the job has caught up none count: a roll-back is one more
    restart.
    """

    def __init__(self, config: RollBackConfig | None = None) -> None:
        self.config = config or RollBackConfig()
        self._outcomes: deque[_Interval] = deque()
        self._before: GuardedDecision | None = None
        self._asked_s = -math.inf
        self._takes_away = self._has_returned = False

    def asked(self, snapshot: MetricsSnapshot, guarded: GuardedDecision) -> None:
        """Watch a change that was asked of the job."""
        before = _as_before(snapshot.parallelism.copy(), snapshot.memory_level.copy())
        self._watch(float(snapshot.t_s[0]), before, guarded, snapshot.topology.mask)

    def recall(
        self, t_s: float, before: Configuration, wanted: Configuration, topology: Topology
    ) -> None:
        """Watch a change that an earlier process asked of the job, unless it is watched already.

        Args:
            t_s: when it was asked for, Unix seconds.
            before: the configuration that ran.
            wanted: the configuration that was asked for.
            topology: the job.
        """
        if t_s > self._asked_s + _SAME_S:
            was, asked = (_as_before(*_numbers(one, topology)) for one in (before, wanted))
            self._watch(t_s, was, asked, topology.mask)

    def _watch(
        self, t_s: float, before: GuardedDecision, asked: GuardedDecision, mask: Bools
    ) -> None:
        self._before, self._asked_s = before, t_s
        less = (asked.parallelism < before.parallelism) | (asked.memory_level < before.memory_level)
        self._takes_away = bool((less & mask).any())
        self._has_returned = False

    def happened(self, t_s: float, outcome: Outcome) -> None:
        """Take in what came of the last interval, which ended at `t_s`."""
        up_s = float(outcome.seconds[0] - outcome.down_s[0])
        late_s = float(outcome.slo_s[0] - outcome.down_s[0])
        if math.isfinite(late_s):
            self._outcomes.append(_Interval(t_s, up_s, late_s, float(outcome.down_s[0])))
        while self._outcomes and self._outcomes[0].t_s < t_s - 2 * self.config.watch_s:
            self._outcomes.popleft()

    def due(self, snapshot: MetricsSnapshot) -> tuple[GuardedDecision, str] | None:
        """Say which numbers are to come back, and why; None: none are.

        Returns:
            The configuration from before the change, (1, V), and the reason to return to it; None
            where no roll-back is due.
        """
        if self._before is None:
            return None
        t_s = float(snapshot.t_s[0])
        reason = self._reason(Status(int(snapshot.status[0])), t_s)
        if reason is None:
            if t_s > self._asked_s + self.config.return_s + self.config.watch_s:
                self._before = None
            return None
        before, self._before = self._before, None
        if np.array_equal(before.parallelism, snapshot.parallelism) and np.array_equal(
            before.memory_level, snapshot.memory_level
        ):
            return None  # the configuration from before runs already
        return before, reason

    def state(self) -> State:
        """List what outlives a restart.

        Returns:
            JSON values; `restore` of them continues.
        """
        before = self._before
        numbers = None
        if before is not None:
            numbers = [before.parallelism.tolist(), before.memory_level.tolist()]
        return {
            "outcomes": [list(outcome) for outcome in self._outcomes],
            "before": numbers,
            "asked_s": finite(self._asked_s),
            "takes_away": self._takes_away,
            "has_returned": self._has_returned,
        }

    def restore(self, state: State) -> None:
        """Continue from the values of `state()`."""
        self._outcomes = deque(_Interval(*map(float, one)) for one in state["outcomes"])
        self._before = None
        if state["before"] is not None:
            tasks, level = (np.array(numbers, np.int64) for numbers in state["before"])
            self._before = _as_before(tasks, level)
        self._asked_s = -math.inf if state["asked_s"] is None else float(state["asked_s"])
        self._takes_away = bool(state["takes_away"])
        self._has_returned = bool(state["has_returned"])

    def set_back(self, seconds: float) -> None:
        """Keep what is watched as long ago as before, though the clock went back by so much."""
        self._asked_s -= seconds
        self._outcomes = deque(one._replace(t_s=one.t_s - seconds) for one in self._outcomes)

    def put_off(self, before: GuardedDecision) -> None:
        """Keep a roll-back due that could not be asked for."""
        self._before = before

    def _reason(self, status: Status, t_s: float) -> str | None:
        is_up = status in (Status.RUNNING, Status.SAVEPOINTING)
        since_s = t_s - self._asked_s
        self._has_returned |= is_up and since_s > 0
        if not is_up:
            if since_s <= self.config.return_s or self._has_returned:
                return None
            return f"the job is {status.name} {since_s:.0f} s after the change was asked for"
        after = [o for o in self._outcomes if o.t_s > self._asked_s]
        before = [o for o in self._outcomes if o.t_s <= self._asked_s]
        up = [o for o in after if o.up_s > 0]
        if not self._takes_away or len(up) < _LEAST_OUTCOMES:
            return None
        bound = _late_share(before) + self.config.slo_share
        if _late_share(up[-1:]) <= bound:
            return None
        left_s = _CATCH_UP * sum(o.down_s for o in after)
        if sum(o.late_s for o in after) - left_s <= bound * sum(o.up_s for o in after):
            return None
        return (
            f"{100 * _late_share(after):.0f} % of the seconds are outside the objective after "
            f"tasks or memory were taken away, {100 * _late_share(before):.0f} % were before"
        )


def _numbers(configuration: Configuration, topology: Topology) -> tuple[Ints, Ints]:
    """Write a configuration as parallelism and memory level of the only job, (1, V)."""
    names = topology.names(0)
    tasks = [configuration.parallelism[name] for name in names]
    level = [configuration.memory_level[name] for name in names]
    return np.array([tasks], np.int64), np.array([level], np.int64)


def _as_before(parallelism: Ints, memory_level: Ints) -> GuardedDecision:
    """Write the configuration from before a change as a decision, (1, V)."""
    reasons = ("as before the change",)
    return GuardedDecision.unchanged(ScalingDecision(parallelism, memory_level, reasons))


def _late_share(outcomes: list[_Interval]) -> float:
    up_s = sum(o.up_s for o in outcomes)
    return sum(o.late_s for o in outcomes) / up_s if up_s > 0 else 0.0
