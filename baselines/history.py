"""The last two running configurations, with the metrics under each.

Justin compares the running configuration with the one before it. Only observed configurations
count, never requests: guardrails may have changed a decision, Flink refused it, or the rescale
failed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.loop.per_job_state import Kept, Per, RowMemory
from dsp_gym.loop.protocols import Mask
from dsp_gym.loop.snapshot import RUNNING, VERTEX, MetricsSnapshot, SnapshotArrays
from dsp_gym.loop.topology import JobFacts, Topology
from dsp_gym.numba_handles import Handle, direct


class Previous(NamedTuple):
    """The configuration of one job before the running one, and the metrics seen under it."""

    exists: bool
    parallelism: Ints  # (V,)
    level: Ints  # (V,)
    hit: Floats  # (V,) cache hit rate, 0..1
    latency: Floats  # (V,) state access, ms
    rate: Floats  # (V,) true processing rate of the vertex, records/s


class Remembered(NamedTuple):
    """The running configuration and the one before it, with the newest metrics of each."""

    seen: Bools  # (J,) whether a configuration was seen
    exists: Bools  # (J,) whether there was one before it
    parallelism: Ints  # (J, V)
    level: Ints
    hit: Floats
    latency: Floats
    rate: Floats
    previous_parallelism: Ints
    previous_level: Ints
    previous_hit: Floats
    previous_latency: Floats
    previous_rate: Floats


_METRICS = ("hit", "latency", "rate")


class ConfigurationHistory(Kept):
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
        self._memory = self._kept = RowMemory(fields)

    def reset(self, jobs: Topology, mask: Mask | None = None) -> None:
        self._memory.reset(jobs, mask)

    def memories(self) -> tuple[RowMemory, ...]:
        """Return the whole memory.

        Returns:
            The one memory.
        """
        return (self._memory,)

    def observe(self, snapshot: MetricsSnapshot, rate_per_task: Floats) -> None:
        """Remember the running configuration and the metrics under it, newer over older ones.

        Args:
            snapshot: The metrics.
            rate_per_task: (J, V) true rate of one task, records/s.
        """
        observe(snapshot.topology.handle, snapshot.arrays, rate_per_task, self.memory)

    @property
    def arrays(self) -> Remembered:
        """The two configurations that `previous` looks up."""
        return self._memory.arrays(Remembered)

    @property
    def memory(self) -> Handle[Remembered]:
        """The two configurations that `previous` looks up, for compiled code."""
        return self._memory.handle(Remembered)


@njit(cache=True, nogil=True)
def access_ms(read: float, write: float) -> float:
    """Average state access latency over reads and writes, where both are known.

    Returns:
        ms; NaN where neither is known.
    """
    if np.isnan(read):
        return write
    return read if np.isnan(write) else (read + write) / 2


@njit(cache=True, nogil=True, borrows=True)
def previous(t: JobFacts, seen: SnapshotArrays, m: Remembered, j: int) -> Previous:
    """Look up the configuration before the running one, whether that was observed or not.

    Returns:
        Configuration and metrics of row j, (V,).
    """
    if m.seen[j] and seen.status[j] == RUNNING:
        # The snapshot runs another configuration than the memory: that one is the previous.
        for v in range(t.n[t.row[j]]):
            if (
                m.parallelism[j, v] != seen.parallelism[j, v]
                or m.level[j, v] != seen.memory_level[j, v]
            ):
                return Previous(
                    True, m.parallelism[j], m.level[j], m.hit[j], m.latency[j], m.rate[j]
                )
    return Previous(
        m.exists[j],
        m.previous_parallelism[j],
        m.previous_level[j],
        m.previous_hit[j],
        m.previous_latency[j],
        m.previous_rate[j],
    )


@njit(cache=True, nogil=True, borrows=True)
def remember(
    t: JobFacts,
    seen: SnapshotArrays,
    rate_per_task: Floats,
    m: Remembered,
) -> None:
    """Remember configuration and metrics of every running job (row j, job file k, vertex v)."""
    p, level = seen.parallelism, seen.memory_level
    hit = seen.vertex[VERTEX.cache_hit_rate]
    read = seen.vertex[VERTEX.state_read_latency_ms]
    write = seen.vertex[VERTEX.state_write_latency_ms]
    jobs, vertices = p.shape
    for j in range(jobs):
        if seen.status[j] != RUNNING:
            continue
        k = t.row[j]
        moved = not m.seen[j]
        for v in range(vertices):
            if t.kind[k, v] >= 0 and (
                m.parallelism[j, v] != p[j, v] or m.level[j, v] != level[j, v]
            ):
                moved = True
        for v in range(vertices):
            if moved and m.seen[j]:
                m.previous_parallelism[j, v] = m.parallelism[j, v]
                m.previous_level[j, v] = m.level[j, v]
                m.previous_hit[j, v] = m.hit[j, v]
                m.previous_latency[j, v] = m.latency[j, v]
                m.previous_rate[j, v] = m.rate[j, v]
            if moved:
                m.parallelism[j, v], m.level[j, v] = p[j, v], level[j, v]
                m.hit[j, v] = m.latency[j, v] = m.rate[j, v] = np.nan
            # Unknown values leave the last known ones of the same configuration.
            if not np.isnan(hit[j, v]):
                m.hit[j, v] = hit[j, v]
            latency = access_ms(read[j, v], write[j, v])
            if not np.isnan(latency):
                m.latency[j, v] = latency
            rate = rate_per_task[j, v] * p[j, v]
            if not np.isnan(rate):
                m.rate[j, v] = rate
        m.exists[j] = m.exists[j] or (moved and m.seen[j])
        m.seen[j] = True


@direct
@njit(cache=True, nogil=True)
def observe(
    facts: Handle[JobFacts],
    seen: SnapshotArrays,
    rate_per_task: Floats,
    memory: Handle[Remembered],
) -> None:
    """Call `remember` from Python."""
    remember(facts.arrays, seen, rate_per_task, memory.arrays)
