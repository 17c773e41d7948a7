"""Time between rescales, and no going back and forth."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numba import njit
from pydantic import Field

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.config.model import ConfigModel
from dsp_gym.guardrails.restriction import Restriction
from dsp_gym.loop.decision import GuardedDecision
from dsp_gym.loop.row_memory import RowMemory
from dsp_gym.loop.snapshot import MetricsSnapshot

__all__ = ["CoolDown", "CoolDownConfig"]


class CoolDownConfig(ConfigModel):
    """Periods of rest, s."""

    kind: Literal["cool_down"] = Field("cool_down", description="this guardrail")
    scale_up_s: float = Field(
        0.0, ge=0, description="rest after a (re)start before tasks are added, s (Flink: none)"
    )
    scale_down_s: float = Field(
        300.0, ge=0, description="rest after a (re)start before tasks or memory are taken, s"
    )
    reversal_s: float = Field(
        600.0, ge=0, description="rest before a vertex moves against its last move, s (flapping)"
    )


class CoolDown(Restriction):
    """Holds back moves that come too soon after a rescale, or against the last move.

    The last move is told from the configurations observed running.
    """

    name = "cool_down"

    def __init__(self, config: CoolDownConfig | None = None) -> None:
        super().__init__(
            RowMemory(
                {
                    "seen": ("job", False),
                    "parallelism": ("vertex", 0),
                    "level": ("vertex", -1),
                    "moved": ("vertex", 0),
                    "moved_s": ("vertex", -1e18),
                }
            )
        )
        self.config = config or CoolDownConfig()

    def restrict(self, snapshot: MetricsSnapshot, parallelism: Ints, level: Ints) -> Bools:
        c, m = self.config, self._memory
        trips = np.zeros(len(parallelism), dtype=bool)
        _rest(
            snapshot.topology.row,
            snapshot.topology.tables.n,
            np.ascontiguousarray(snapshot.t_s),
            np.ascontiguousarray(snapshot.running_since_s),
            snapshot.parallelism,
            snapshot.memory_level,
            c.scale_up_s,
            c.scale_down_s,
            c.reversal_s,
            m["seen"],
            m["parallelism"],
            m["level"],
            m["moved"],
            m["moved_s"],
            parallelism,
            level,
            trips,
        )
        return trips

    def commit(self, snapshot: MetricsSnapshot, guarded: GuardedDecision) -> None:
        m = self._memory
        _remember(
            snapshot.topology.row,
            snapshot.topology.tables.n,
            snapshot.status,
            np.ascontiguousarray(snapshot.running_since_s),
            snapshot.parallelism,
            snapshot.memory_level,
            m["seen"],
            m["parallelism"],
            m["level"],
            m["moved"],
            m["moved_s"],
        )

    def reason(self, snapshot: MetricsSnapshot, job: int) -> str:
        age = snapshot.t_s[job] - snapshot.running_since_s[job]
        return (
            f"running for {age:.0f} s since the last rescale; rest is {self.config.scale_up_s:g} s "
            f"up, {self.config.scale_down_s:g} s down, {self.config.reversal_s:g} s in reverse"
        )


@njit(cache=True, nogil=True)
def _direction(p: int, level: int, p_before: int, level_before: int) -> int:
    """1 for more tasks or memory, -1 for less, 0 for neither or a trade of one for the other."""
    tasks, memory = np.sign(p - p_before), np.sign(level - level_before)
    if tasks * memory < 0:
        return 0
    return int(tasks + memory if tasks == 0 or memory == 0 else tasks)


@njit(cache=True, nogil=True)
def _rest(
    row: Ints,
    n: Ints,
    t_s: Floats,
    since: Floats,
    running: Ints,
    running_level: Ints,
    up: float,
    down: float,
    reversal: float,
    seen: Bools,
    p_seen: Ints,
    level_seen: Ints,
    moved: Ints,
    moved_s: Floats,
    p: Ints,
    level: Ints,
    trips: Bools,
) -> None:
    for j in range(p.shape[0]):
        age = t_s[j] - since[j]
        for v in range(n[row[j]]):
            now, now_level = running[j, v], running_level[j, v]
            last, last_s = moved[j, v], moved_s[j, v]
            if seen[j] and (now != p_seen[j, v] or now_level != level_seen[j, v]):
                last = _direction(now, now_level, p_seen[j, v], level_seen[j, v])
                last_s = since[j]
            fresh = t_s[j] - last_s < reversal
            to_p, to_level = p[j, v], level[j, v]
            if age < up or (fresh and last < 0):
                to_p, to_level = min(to_p, now), min(to_level, now_level)
            if age < down or (fresh and last > 0):
                to_p, to_level = max(to_p, now), max(to_level, now_level)
            if to_p != p[j, v] or to_level != level[j, v]:
                p[j, v], level[j, v] = to_p, to_level
                trips[j] = True


@njit(cache=True, nogil=True)
def _remember(
    row: Ints,
    n: Ints,
    status: Ints,
    since: Floats,
    running: Ints,
    running_level: Ints,
    seen: Bools,
    p_seen: Ints,
    level_seen: Ints,
    moved: Ints,
    moved_s: Floats,
) -> None:
    for j in range(running.shape[0]):
        if status[j] != 0:
            continue
        for v in range(n[row[j]]):
            now, now_level = running[j, v], running_level[j, v]
            if seen[j] and (now != p_seen[j, v] or now_level != level_seen[j, v]):
                moved[j, v] = _direction(now, now_level, p_seen[j, v], level_seen[j, v])
                moved_s[j, v] = since[j]
            p_seen[j, v], level_seen[j, v] = now, now_level
        seen[j] = True
