"""No change any more of a job that has run without one for a day.

Ververica's autopilot calls this its stable mode: it looks for a configuration that carries the
whole cycle of a job's load, and then leaves it alone.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.config.model import ConfigModel
from dsp_gym.guardrails.restriction import Restriction, hold
from dsp_gym.loop.per_job_state import RowMemory
from dsp_gym.loop.snapshot import MetricsSnapshot


class SettleConfig(ConfigModel):
    """The times after which a job is settled."""

    kind: Literal["settle"] = Field("settle", description="this guardrail")
    unchanged_s: float = Field(
        86_400.0,
        gt=0,
        description="time without a change after which the policy makes none any more, s "
        "(Ververica: 24 h)",
    )
    at_most_s: float | None = Field(
        259_200.0,
        gt=0,
        description="time after which it makes none any more, however often it made one, s "
        "(Ververica: 72 h); none: only a time without a change counts",
    )


class _Times(NamedTuple):
    """Since when every job is watched and unchanged, (J,)."""

    began_s: Floats
    changed_s: Floats
    settled: Bools


class Settle(Restriction):
    """Hold a job for good that has gone a day without a change, or is watched for three days.

    Both times restart with a change of a settled job, by its owner or by a guardrail that lets
    another policy decide.
    """

    name = "settle"
    kind = "held"

    def __init__(self, config: SettleConfig | None = None) -> None:
        super().__init__(
            RowMemory(
                {
                    "seen": ("job", False),
                    "settled": ("job", False),
                    "began_s": ("job", 0.0),
                    "changed_s": ("job", 0.0),
                    "parallelism": ("vertex", 0),
                    "level": ("vertex", -1),
                }
            )
        )
        self.config = config or SettleConfig()

    def restrict(self, snapshot: MetricsSnapshot, parallelism: Ints, level: Ints) -> Bools:
        return hold(snapshot, self._times(snapshot).settled, parallelism, level)

    def watch(self, snapshot: MetricsSnapshot) -> None:
        m, running, found = self._memory, snapshot.running, self._times(snapshot)
        m["began_s"][:], m["changed_s"][:] = found.began_s, found.changed_s
        m["settled"][:] = found.settled
        m["parallelism"][running] = snapshot.parallelism[running]
        m["level"][running] = snapshot.memory_level[running]
        m["seen"][running] = True

    def set_forward(self, seconds: float) -> None:
        """Count both times from as long ago as before."""
        self._memory["began_s"][...] += seconds
        self._memory["changed_s"][...] += seconds

    def reason(self, snapshot: MetricsSnapshot, job: int) -> str:
        found = self._times(snapshot)
        unchanged_s = snapshot.t_s[job] - found.changed_s[job]
        watched_s = snapshot.t_s[job] - found.began_s[job]
        if unchanged_s >= self.config.unchanged_s:
            return f"the job has settled: unchanged for {unchanged_s / 3600:.1f} h"
        return f"the job has settled: watched for {watched_s / 3600:.1f} h"

    def _times(self, snapshot: MetricsSnapshot) -> _Times:
        """Bring the memory up to a snapshot that it need not have seen yet."""
        m, t_s, c = self._memory, snapshot.t_s, self.config
        moved = (snapshot.parallelism != m["parallelism"]) | (snapshot.memory_level != m["level"])
        changed = snapshot.running & (moved & snapshot.topology.mask).any(axis=1)
        changed |= ~m["seen"]
        anew = ~m["seen"] | (changed & m["settled"])
        began_s = np.where(anew, t_s, m["began_s"])
        changed_s = np.where(changed, t_s, m["changed_s"])
        settled = t_s - changed_s >= c.unchanged_s
        if c.at_most_s is not None:
            settled |= t_s - began_s >= c.at_most_s
        return _Times(began_s, changed_s, settled)
