"""How long conditions have lasted, on the clock of the snapshots.

A rule such as "above 75 % for 15 minutes" needs to know since when something holds. A span restarts
with the job, in another configuration, and after a gap in what is known: nobody has seen what
happened meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from baselines.remembering import RememberingPolicy
from dsp_gym.arrays import Bools, Floats
from dsp_gym.compiling import njit
from dsp_gym.loop.due import is_due
from dsp_gym.loop.lacking import Needs
from dsp_gym.loop.per_job_state import Kept, Per, RowMemory
from dsp_gym.loop.protocols import Mask
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.loop.unknown import LastKnown


class Spans(Kept):
    """Since when conditions hold for every job.

    Args:
        names: The conditions.
        longest_gap_s: Time without knowledge of a condition that a span outlasts, s.
        sample_s: Time before a snapshot that its metrics stand for, s; a span begins there.
    """

    def __init__(
        self, names: Sequence[str] = (), *, longest_gap_s: float = 0.0, sample_s: float = 0.0
    ) -> None:
        self._longest_gap_s, self._sample_s = longest_gap_s, sample_s
        fields: dict[str, tuple[Per, bool | int | float]] = {
            "seen_s": ("job", -1e18),
            "changed_s": ("job", -1e18),
            "parallelism": ("vertex", -1),
        }
        for name in names:
            fields |= {_begin(name): ("job", np.nan), _last(name): ("job", -1e18)}
        self._memory = self._kept = RowMemory(fields)

    def reset(self, jobs: Topology, mask: Mask | None = None) -> None:
        """Forget all rows, or only those where the mask is True."""
        self._memory.reset(jobs, mask)

    def memories(self) -> tuple[RowMemory, ...]:
        """Return the whole memory.

        Returns:
            The one memory.
        """
        return (self._memory,)

    def changed_s(self, snapshot: MetricsSnapshot) -> Floats:
        """Note restarts and rescales since the last snapshot; call it once for every snapshot.

        Returns:
            Time of the last restart or rescale, (J,).
        """
        m, running = self._memory, snapshot.running
        now, since = snapshot.t_s, snapshot.running_since_s
        moved = (m["seen_s"] > -1e18) & np.any(m["parallelism"] != snapshot.parallelism, axis=1)
        # A rescale first seen now took place when the job came up, if that is since the last
        # snapshot.
        at = np.where(moved, np.where(since > m["seen_s"], since, now), -1e18)
        changed = np.fmin(np.fmax(np.fmax(m["changed_s"], since), at), now)
        m["changed_s"][running] = changed[running]
        m["seen_s"][running] = now[running]
        m["parallelism"][running] = snapshot.parallelism[running]
        return np.asarray(m["changed_s"])

    def since_s(self, name: str, snapshot: MetricsSnapshot, holds: Bools, fails: Bools) -> Floats:
        """Continue, begin or end the span of a condition; `changed_s` has seen the snapshot.

        Args:
            name: One of the conditions.
            snapshot: The metrics.
            holds: (J,) where the condition is known to hold.
            fails: (J,) where it is known not to hold; where neither is True, it is unknown.

        Returns:
            Time at which the span began, (J,); NaN where the condition does not hold now.
        """
        m, now = self._memory, snapshot.t_s
        begin, last, changed = m[_begin(name)], m[_last(name)], m["changed_s"]
        holds, fails = holds & snapshot.running, fails & snapshot.running
        goes_on = (begin >= changed) & (last <= now) & (now - last <= self._longest_gap_s)
        begins = holds & ~goes_on
        begin[begins] = np.fmax(now - self._sample_s, changed)[begins]
        last[holds] = now[holds]
        begin[fails] = np.nan
        return np.where(holds, begin, np.nan)


class SpanPolicy(RememberingPolicy):
    """A policy that remembers since when conditions hold, and last known metrics.

    Args:
        spans: The conditions.
        needs: The metrics that a decision on a vertex needs.
    """

    def __init__(self, spans: Spans, needs: Needs) -> None:
        self._spans, self._last_known = spans, LastKnown(needs)
        super().__init__(spans=spans, last_known=self._last_known)


def _begin(name: str) -> str:
    return f"{name}_since_s"


def _last(name: str) -> str:
    return f"{name}_last_s"


@njit(cache=True, nogil=True)
def are_over(now_s: Floats, since_s: Floats, long_s: float) -> Bools:
    """Return where a time is over, with the tolerance of `is_due`.

    Returns:
        (J,) flags; False where the begin is NaN.
    """
    found = np.empty(len(now_s), dtype=np.bool_)
    for j in range(len(now_s)):
        found[j] = is_due(now_s[j], since_s[j], long_s)
    return found
