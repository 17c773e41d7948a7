"""When a change that was asked of a job is taken back."""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Ints, finite
from dsp_gym.control.carried_load import CarriedLoad
from dsp_gym.control.modes import RollBackConfig
from dsp_gym.loop.backlog import behind
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
"""Late seconds that are forgiven for each second of work that waited: a job that is busy three
quarters of its time works off the backlog of one second in three (`work_off_s(0.75, 0.25)`).
"""

_LONGEST_REST_S = 86_400.0
"""A job that fails whenever it is scaled is scaled again after a rest that doubles, up to a day."""

_SOON_S = 300.0
"""A backlog that is worked off within so long is waited for: a roll-back is one more outage."""


class _Interval(NamedTuple):
    """What came of one interval, s."""

    t_s: float  # its end
    up_s: float
    late_s: float  # of those that the job was up
    down_s: float = 0.0


class TakeBack(NamedTuple):
    """The numbers that are to come back."""

    before: GuardedDecision  # (1, V)
    reason: str
    is_down: bool  # the job does not run with the new ones
    rest_s: float  # for how long nothing is enacted then


class RollBack:
    """Watches a change that was enacted, and says when the numbers from before must come back.

    A job that does not run again is rolled back, whatever was changed. Late seconds count only
    against a configuration that carries less than the one before: in place of any other, the
    numbers from before would make the job later still. The seconds of the restart do not count, nor
    those in which the job works off what waited already: before the change, during the restart, or
    while no process watched. Once the job has caught up, or is about to, none count: a roll-back is
    one more restart.
    """

    def __init__(self, config: RollBackConfig | None = None) -> None:
        self.config = config or RollBackConfig()
        self.carried = CarriedLoad()
        self._outcomes: deque[_Interval] = deque()
        self._before: GuardedDecision | None = None
        self._asked_s = self._looked_s = -math.inf
        self._waited_s = self._unwatched_s = 0.0
        self._has_returned = self._resumes = False
        self._failures = 0  # changes in a row after which the job did not run

    def asked(self, snapshot: MetricsSnapshot) -> None:
        """Watch the change that is asked of the job after this snapshot."""
        before = _as_before(snapshot.parallelism.copy(), snapshot.memory_level.copy())
        self._watch(float(snapshot.t_s[0]), before)
        self._waited_s = min(float(behind(snapshot).waits_s[0]), self.config.watch_s)

    def recall(self, t_s: float, before: Configuration, topology: Topology) -> None:
        """Watch a change that an earlier process asked of the job, unless it is watched already.

        Args:
            t_s: when it was asked for, Unix seconds.
            before: the configuration that ran.
            topology: the job.
        """
        if t_s > self._asked_s + _SAME_S:
            self._watch(t_s, _as_before(*_numbers(before, topology)))
            self._resumes = True

    def _watch(self, t_s: float, before: GuardedDecision) -> None:
        self._before, self._asked_s, self._looked_s = before, t_s, t_s
        self._waited_s = self._unwatched_s = 0.0
        self._has_returned = False

    def happened(self, t_s: float, outcome: Outcome) -> None:
        """Take in what came of the last interval, which ended at `t_s`."""
        up_s = float(outcome.seconds[0] - outcome.down_s[0])
        late_s = float(outcome.slo_s[0] - outcome.down_s[0])
        if math.isfinite(late_s):
            self._outcomes.append(_Interval(t_s, up_s, late_s, float(outcome.down_s[0])))
        while self._outcomes and self._outcomes[0].t_s < t_s - 2 * self.config.watch_s:
            self._outcomes.popleft()

    def due(self, snapshot: MetricsSnapshot) -> TakeBack | None:
        """Say which numbers are to come back, and why; None: none are.

        Returns:
            The configuration from before the change, (1, V), and the reason to return to it; None
            where no roll-back is due.
        """
        self.carried.observe(snapshot)
        t_s = float(snapshot.t_s[0])
        if self._resumes and math.isfinite(self._looked_s):
            self._unwatched_s += max(0.0, t_s - self._looked_s)
        self._resumes, self._looked_s = False, t_s
        if self._before is None:
            return None
        is_up = Status(int(snapshot.status[0])) in (Status.RUNNING, Status.SAVEPOINTING)
        self._has_returned |= is_up and t_s > self._asked_s
        if self._has_returned and t_s > self._asked_s + self.config.return_s:
            self._failures = 0
        reason = self._late(self._before, snapshot) if is_up else self._down(snapshot)
        if reason is None:
            if t_s > self._asked_s + self.config.return_s + self.config.watch_s:
                self._before = None
            return None
        before, self._before = self._before, None
        if np.array_equal(before.parallelism, snapshot.parallelism) and np.array_equal(
            before.memory_level, snapshot.memory_level
        ):
            return None  # the configuration from before runs already
        rest_s = self.config.cool_down_s
        if not is_up:
            rest_s = min(rest_s * 2.0**self._failures, max(rest_s, _LONGEST_REST_S))
            self._failures += 1
        return TakeBack(before, reason, not is_up, rest_s)

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
            "looked_s": finite(self._looked_s),
            "waited_s": self._waited_s,
            "unwatched_s": self._unwatched_s,
            "has_returned": self._has_returned,
            "failures": self._failures,
        }

    def restore(self, state: State, *, is_watched: bool = False) -> None:
        """Continue from the values of `state()`; `is_watched`: whether somebody watched since."""
        self._outcomes = deque(_Interval(*map(float, one)) for one in state["outcomes"])
        self._before = None
        if state["before"] is not None:
            tasks, level = (np.array(numbers, np.int64) for numbers in state["before"])
            self._before = _as_before(tasks, level)
        self._asked_s = _or_never(state["asked_s"])
        # Earlier releases kept none of these.
        self._looked_s = _or_never(state.get("looked_s", state["asked_s"]))
        self._waited_s = float(state.get("waited_s", 0.0))
        self._unwatched_s = float(state.get("unwatched_s", 0.0))
        self._has_returned = bool(state["has_returned"])
        self._failures = int(state.get("failures", 0))
        self._resumes = not is_watched

    def set_back(self, seconds: float) -> None:
        """Keep what is watched as long ago as before, though the clock went back by so much."""
        self._asked_s -= seconds
        self._looked_s -= seconds
        self._outcomes = deque(one._replace(t_s=one.t_s - seconds) for one in self._outcomes)

    def put_off(self, due: TakeBack) -> None:
        """Keep a roll-back due that was not asked for; the rest after it is no longer for that."""
        self._before = due.before
        if due.is_down:
            self._failures -= 1

    def _down(self, snapshot: MetricsSnapshot) -> str | None:
        """Say why a job that does not run is not waited for."""
        since_s = float(snapshot.t_s[0]) - self._asked_s - self._unwatched_s
        if since_s <= self.config.return_s or self._has_returned:
            return None
        status = Status(int(snapshot.status[0])).name
        unwatched = self._unwatched_s
        besides = f" and {unwatched:.0f} s in which nothing watched" if unwatched else ""
        return f"the job is {status} {since_s:.0f} s{besides} after the change was asked for"

    def _late(self, was: GuardedDecision, snapshot: MetricsSnapshot) -> str | None:
        """Say why the running configuration is to blame for lateness."""
        after = [o for o in self._outcomes if o.t_s > self._asked_s]
        before = [o for o in self._outcomes if o.t_s <= self._asked_s]
        up = [o for o in after if o.up_s > 0]
        if len(up) < _LEAST_OUTCOMES or not self.carried.is_less(snapshot, was):
            return None
        bound = _late_share(before) + self.config.slo_share
        if _late_share(up[-1:]) <= bound or behind(snapshot).drains_s[0] <= _SOON_S:
            return None
        owed_s = self._waited_s + self._unwatched_s + sum(o.down_s for o in after)
        if sum(o.late_s for o in after) - _CATCH_UP * owed_s <= bound * sum(o.up_s for o in after):
            return None
        return (
            f"{100 * _late_share(after):.0f} % of the seconds are outside the objective in a "
            f"configuration that carries less, {100 * _late_share(before):.0f} % were before"
        )


def _or_never(t_s: float | None) -> float:
    """Read a time that JSON could not hold."""
    return -math.inf if t_s is None else float(t_s)


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
