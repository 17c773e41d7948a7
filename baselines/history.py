"""The last two configurations seen running, with the metrics seen under each.

Justin compares the running configuration with the one before it. What counts is what was observed
running, never what was asked for: a decision may have been guarded, refused or failed.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dsp_gym.loop.protocols import Mask, State
from dsp_gym.loop.row_memory import Per, RowMemory
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology

__all__ = ["ConfigurationHistory", "Previous", "state_latency_ms"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

Previous = tuple[Flags, Ints, Ints, Floats, Floats, Floats]
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

    def observe(self, snapshot: MetricsSnapshot, latency: Floats, rate: Floats) -> None:
        """Remember what runs now; metrics seen later under the same configuration replace it."""
        m = self._memory
        _observe(
            snapshot.topology.row, snapshot.topology.tables.kind, snapshot.status,
            snapshot.parallelism, snapshot.memory_level,
            np.ascontiguousarray(snapshot.cache_hit_rate), latency, rate, m["seen"], m["exists"],
            m["parallelism"], m["level"], m["hit"], m["latency"], m["rate"],
            m["previous_parallelism"], m["previous_level"], m["previous_hit"],
            m["previous_latency"], m["previous_rate"],
        )  # fmt: skip

    def previous(self, snapshot: MetricsSnapshot) -> Previous:
        """The configuration that ran before the one in the snapshot, observed already or not."""
        m = self._memory
        moved = m["seen"] & snapshot.running
        if moved.any():
            differs = (m["parallelism"] != snapshot.parallelism) | (
                m["level"] != snapshot.memory_level
            )
            moved &= np.any(differs & snapshot.topology.mask, axis=1)
        if not moved.any():
            names = ("parallelism", "level", *_METRICS)
            _, p, level, hit, latency, rate = (None, *(m[f"previous_{n}"] for n in names))
            return m["exists"], p, level, hit, latency, rate
        rows = moved[:, None]
        return (
            m["exists"] | moved,
            np.where(rows, m["parallelism"], m["previous_parallelism"]),
            np.where(rows, m["level"], m["previous_level"]),
            np.where(rows, m["hit"], m["previous_hit"]),
            np.where(rows, m["latency"], m["previous_latency"]),
            np.where(rows, m["rate"], m["previous_rate"]),
        )


def state_latency_ms(snapshot: MetricsSnapshot) -> Floats:
    """Average state access latency: the mean of read and write latency where both are known."""
    latency = np.empty(snapshot.parallelism.shape)
    _mean_of_known(
        np.ascontiguousarray(snapshot.state_read_latency_ms),
        np.ascontiguousarray(snapshot.state_write_latency_ms),
        latency,
    )
    return latency


@njit(cache=True, nogil=True)
def _mean_of_known(read: Floats, write: Floats, latency: Floats) -> None:
    for j in range(read.shape[0]):
        for v in range(read.shape[1]):
            if np.isnan(read[j, v]):
                latency[j, v] = write[j, v]
            elif np.isnan(write[j, v]):
                latency[j, v] = read[j, v]
            else:
                latency[j, v] = (read[j, v] + write[j, v]) / 2


@njit(cache=True, nogil=True)
def _observe(
    row: Ints, kind: Ints, status: Ints, parallelism: Ints, level: Ints, hit: Floats,
    latency: Floats, rate: Floats, seen: Flags, exists: Flags, p_now: Ints, level_now: Ints,
    hit_now: Floats, latency_now: Floats, rate_now: Floats, p_then: Ints, level_then: Ints,
    hit_then: Floats, latency_then: Floats, rate_then: Floats,
) -> None:  # fmt: skip
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
            if not np.isnan(latency[j, v]):
                latency_now[j, v] = latency[j, v]
            if not np.isnan(rate[j, v]):
                rate_now[j, v] = rate[j, v]
        exists[j] = exists[j] or (moved and seen[j])
        seen[j] = True
