"""The last two configurations seen running, with the metrics seen under each.

Justin compares the running configuration with the one before it. What counts is what was observed
running, never what was asked for: a decision may have been guarded, refused or failed.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.loop.protocols import Mask, State
from dsp_gym.loop.row_memory import Per, RowMemory
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology

__all__ = ["ConfigurationHistory", "Previous", "access_ms"]


Previous = tuple[Bools, Ints, Ints, Floats, Floats, Floats]
"""Exists (J,), then parallelism, level, hit rate, latency ms, rate per s of the vertex (J, V)."""

_METRICS = ("hit", "latency", "rate")


class ConfigurationHistory:
    """Memory of the running configuration and the one before it."""

    def __init__(self) -> None:
        vertex: dict[str, int | float] = {"parallelism": -1, "level": -1}
        vertex |= dict.fromkeys(_METRICS, np.nan)
        fields: dict[str, tuple[Per, bool | int | float]] = {
            "seen": ("job", False),
            "exists": ("job", False),
        }
        for name, first in vertex.items():
            fields[name] = fields[f"previous_{name}"] = ("vertex", first)
        self._memory = RowMemory(fields)

    def reset(self, jobs: Topology, mask: Mask | None = None) -> None:
        self._memory.reset(jobs, mask)

    def state(self) -> State:
        return self._memory.state()

    def restore(self, state: State) -> None:
        self._memory.restore(state)

    def observe(self, snapshot: MetricsSnapshot, rate_per_task: Floats) -> None:
        """Remember what runs now; metrics seen later under the same configuration replace it."""
        m = self._memory
        _observe(
            snapshot.topology.row,
            snapshot.topology.tables.kind,
            snapshot.status,
            snapshot.parallelism,
            snapshot.memory_level,
            np.ascontiguousarray(snapshot.cache_hit_rate),
            np.ascontiguousarray(snapshot.state_read_latency_ms),
            np.ascontiguousarray(snapshot.state_write_latency_ms),
            rate_per_task,
            m["seen"],
            m["exists"],
            m["parallelism"],
            m["level"],
            m["hit"],
            m["latency"],
            m["rate"],
            m["previous_parallelism"],
            m["previous_level"],
            m["previous_hit"],
            m["previous_latency"],
            m["previous_rate"],
        )

    def previous(self, snapshot: MetricsSnapshot) -> Previous:
        """The configuration that ran before the one in the snapshot, observed already or not."""
        m = self._memory
        moved = np.zeros(len(snapshot), dtype=bool)
        some = _moved(
            snapshot.topology.row,
            snapshot.topology.tables.n,
            snapshot.status,
            m["seen"],
            m["parallelism"],
            m["level"],
            snapshot.parallelism,
            snapshot.memory_level,
            moved,
        )
        then: Previous = (
            m["exists"],
            m["previous_parallelism"],
            m["previous_level"],
            m["previous_hit"],
            m["previous_latency"],
            m["previous_rate"],
        )
        if not some:
            return then
        rows = moved[:, None]
        return (
            m["exists"] | moved,
            np.where(rows, m["parallelism"], then[1]),
            np.where(rows, m["level"], then[2]),
            np.where(rows, m["hit"], then[3]),
            np.where(rows, m["latency"], then[4]),
            np.where(rows, m["rate"], then[5]),
        )


@njit(cache=True, nogil=True)
def access_ms(read: float, write: float) -> float:
    """Average state access latency: the mean of reads and writes where both are known."""
    if np.isnan(read):
        return write
    return read if np.isnan(write) else (read + write) / 2


@njit(cache=True, nogil=True)
def _moved(
    row: Ints,
    n: Ints,
    status: Ints,
    seen: Bools,
    p_now: Ints,
    level_now: Ints,
    p: Ints,
    level: Ints,
    moved: Bools,
) -> bool:
    some = False
    for j in range(p.shape[0]):
        if seen[j] and status[j] == 0:
            for v in range(n[row[j]]):
                if p_now[j, v] != p[j, v] or level_now[j, v] != level[j, v]:
                    moved[j] = some = True
    return some


@njit(cache=True, nogil=True)
def _observe(
    row: Ints,
    kind: Ints,
    status: Ints,
    parallelism: Ints,
    level: Ints,
    hit: Floats,
    read: Floats,
    write: Floats,
    rate_per_task: Floats,
    seen: Bools,
    exists: Bools,
    p_now: Ints,
    level_now: Ints,
    hit_now: Floats,
    latency_now: Floats,
    rate_now: Floats,
    p_then: Ints,
    level_then: Ints,
    hit_then: Floats,
    latency_then: Floats,
    rate_then: Floats,
) -> None:
    jobs, vertices = parallelism.shape
    for j in range(jobs):
        if status[j] != 0:
            continue
        moved = not seen[j]
        for v in range(vertices):
            if kind[row[j], v] >= 0 and (
                p_now[j, v] != parallelism[j, v] or level_now[j, v] != level[j, v]
            ):
                moved = True
        for v in range(vertices):
            if moved and seen[j]:
                p_then[j, v], level_then[j, v] = p_now[j, v], level_now[j, v]
                hit_then[j, v], latency_then[j, v] = hit_now[j, v], latency_now[j, v]
                rate_then[j, v] = rate_now[j, v]
            if moved:
                p_now[j, v], level_now[j, v] = parallelism[j, v], level[j, v]
                hit_now[j, v] = latency_now[j, v] = rate_now[j, v] = np.nan
            if not np.isnan(hit[j, v]):
                hit_now[j, v] = hit[j, v]
            latency = access_ms(read[j, v], write[j, v])
            if not np.isnan(latency):
                latency_now[j, v] = latency
            rate = rate_per_task[j, v] * parallelism[j, v]
            if not np.isnan(rate):
                rate_now[j, v] = rate
        exists[j] = exists[j] or (moved and seen[j])
        seen[j] = True
