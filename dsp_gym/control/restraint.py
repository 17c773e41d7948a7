"""Stops a policy whose changes lead nowhere.

A lag that never falls, however many tasks there are; a metric that answers the policy's own
changes; another controller that undoes them: each makes a policy ask for change after change, and
each change is an outage.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from dsp_gym.control.modes import RestraintConfig
from dsp_gym.control.permission import Held
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.backlog import behind
from dsp_gym.loop.protocols import State
from dsp_gym.loop.snapshot import MetricsSnapshot

_HOUR_S = 3600.0


class Restraint:
    """Counts the changes that were asked of a job, and what its increases gained.

    Args:
        config: its bounds.
    """

    def __init__(self, config: RestraintConfig | None = None) -> None:
        self.config = config or RestraintConfig()
        self._asked_s: deque[float] = deque()
        self._vain = 0  # increases in a row that gained nothing, the last one not judged yet
        self._read_per_s = math.nan  # records read before the last increase
        self._until_s = -math.inf

    def against(self, seen: MetricsSnapshot, *, increases: bool) -> Held | None:
        """Say why a change is not asked of the job; None: it may be.

        Args:
            seen: the job, (1,).
            increases: whether the running configuration carries less than the one wanted.

        Returns:
            The reason as a word and a sentence: `too_many` changes within the hour, or `runaway`,
            increases that gain nothing.
        """
        t_s, c = float(seen.t_s[0]), self.config
        while self._asked_s and self._asked_s[0] <= t_s - _HOUR_S:
            self._asked_s.popleft()
        if len(self._asked_s) >= c.changes_per_hour:
            left_s = self._asked_s[0] + _HOUR_S - t_s
            said = f"{len(self._asked_s)} changes within an hour; the next in {left_s:.0f} s"
            return Held("too_many", said)
        if not increases:
            return None
        if self._in_vain(seen) >= c.vain_increases and t_s >= self._until_s:
            self._until_s, self._vain, self._read_per_s = t_s + c.pause_s, 0, math.nan
        if t_s < self._until_s:
            said = (
                f"{c.vain_increases} increases in a row raised the records read by less than "
                f"{100 * c.gain:g} %, and the job is as far behind; no more for another "
                f"{self._until_s - t_s:.0f} s"
            )
            return Held("runaway", said)
        return None

    def asked(self, seen: MetricsSnapshot, *, increases: bool) -> None:
        """Count a change that is asked of the job after this snapshot."""
        self._asked_s.append(float(seen.t_s[0]))
        if increases:
            self._vain = self._in_vain(seen)
            self._read_per_s = _read_per_s(seen) if _falls_behind(seen) else math.nan

    def _in_vain(self, seen: MetricsSnapshot) -> int:
        """Count the increases in a row that gained nothing, the last one included."""
        if not _falls_behind(seen):
            return 0
        gained = _read_per_s(seen) >= (1.0 + self.config.gain) * self._read_per_s
        return 0 if gained or math.isnan(self._read_per_s) else self._vain + 1

    def set_back(self, seconds: float) -> None:
        """Keep all as long ago as before, though the clock went back by so much."""
        self._asked_s = deque(t_s - seconds for t_s in self._asked_s)
        self._until_s -= seconds

    def state(self) -> State:
        """List what outlives a restart.

        Returns:
            JSON values; `restore` of them continues.
        """
        return {
            "asked_s": list(self._asked_s),
            "vain": self._vain,
            "read_per_s": None if math.isnan(self._read_per_s) else self._read_per_s,
            "until_s": None if math.isinf(self._until_s) else self._until_s,
        }

    def restore(self, state: State) -> None:
        """Continue from the values of `state()`."""
        self._asked_s = deque(map(float, state["asked_s"]))
        self._vain = int(state["vain"])
        read, until = state["read_per_s"], state["until_s"]
        self._read_per_s = math.nan if read is None else float(read)
        self._until_s = -math.inf if until is None else float(until)


def _read_per_s(seen: MetricsSnapshot) -> float:
    """Add up the records that the sources read; NaN where none reports them."""
    jobs = seen.topology
    sources = (jobs.tables.kind[jobs.row] == SOURCE) & jobs.mask
    known = seen.records_in_per_s[sources]
    return float(np.sum(known)) if known.size else math.nan


def _falls_behind(seen: MetricsSnapshot) -> bool:
    """Find out whether the job is behind, and its backlog does not shrink."""
    now = behind(seen)
    return bool(now.is_behind[0] and np.isinf(now.drains_s[0]))
