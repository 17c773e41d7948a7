"""Caches that fill after a restart: until then times per record are longer than they will be.

A filling cache misses less from minute to minute; one that is full misses as often as before,
however often that is.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.loop.per_job_state import Kept, Per, RowMemory
from dsp_gym.loop.protocols import Mask
from dsp_gym.loop.snapshot import JOB, RUNNING, VERTEX, MetricsSnapshot, SnapshotArrays
from dsp_gym.loop.topology import JobFacts, Topology
from dsp_gym.numba_handles import Handle, direct

_FALL, _LONGEST_S = 0.05, 3600.0
"""Share by which misses fall in a minute while a cache fills; and s after which it is full."""

_YOUNG_S = 300.0
"""Age of a run, s, up to which caches fill where no snapshot before shows whether they do."""

FEW_MISSES = 0.001
"""Share of reads that is no loss: a cache that misses no more is full."""


class Caches(NamedTuple):
    """The misses of each vertex's caches in the last snapshot, (J, V)."""

    misses: Floats  # share of reads; NaN: unknown
    seen_s: Floats  # time of the snapshot; NaN: there was none


CACHES: dict[str, tuple[Per, bool | int | float]] = {
    "misses": ("vertex", math.nan),
    "seen_s": ("vertex", math.nan),
}
"""Fields of `Caches`, and their first values."""


@njit(cache=True, nogil=True)
def fills(caches: Caches, seen: SnapshotArrays, j: int, v: int) -> bool:
    """Return whether the caches of vertex v of job j still fill, and remember its misses.

    Of the first snapshot after a restart that is not known: a young run counts as one that does.

    Args:
        caches: The memory, changed in place.
        seen: The snapshot, which is shown once.
        j: Row of the job.
        v: Column of the vertex.
    """
    t_s, since_s = seen.job[JOB.t_s, j], seen.job[JOB.running_since_s, j]
    misses, before = 1.0 - seen.vertex[VERTEX.cache_hit_rate][j, v], caches.misses[j, v]
    minutes = (t_s - caches.seen_s[j, v]) / 60.0
    is_first = not caches.seen_s[j, v] >= since_s
    caches.misses[j, v], caches.seen_s[j, v] = misses, t_s
    if math.isnan(misses) or misses <= FEW_MISSES or not t_s - since_s <= _LONGEST_S:
        return False
    if is_first or math.isnan(before):
        return bool(t_s - since_s <= _YOUNG_S)
    return bool(misses < before * math.exp(-_FALL * minutes))


@njit(cache=True, nogil=True)
def any_fills(t: JobFacts, caches: Caches, seen: SnapshotArrays, j: int) -> int:
    """Return 1 if any vertex of job j has filling caches, else 0; and remember all misses."""
    found = 0
    for v in range(t.n[t.row[j]]):
        if fills(caches, seen, j, v):
            found = 1
    return found


class Filling(NamedTuple):
    """The jobs whose caches fill, and the misses by which that shows."""

    fills: Ints  # (J,) 0 or 1
    misses: Floats  # as `Caches`
    seen_s: Floats  # likewise


FILLING: dict[str, tuple[Per, bool | int | float]] = {"fills": ("job", 0), **CACHES}
"""Fields of `Filling`, and their first values."""


class FillingCaches(Kept):
    """The jobs whose caches fill after a restart, from snapshot to snapshot."""

    def __init__(self) -> None:
        self.memory = self._kept = RowMemory(FILLING)

    def reset(self, jobs: Topology, mask: Mask | None = None) -> None:
        """Forget all caches; with a mask only those of rows where it is True."""
        self.memory.reset(jobs, mask)

    def observe(self, snapshot: MetricsSnapshot) -> None:
        """Take in a snapshot; of a job that is down nothing changes."""
        _observe(snapshot.topology.handle, snapshot.arrays, self.memory.handle(Filling))

    @property
    def rows(self) -> Bools:
        """The jobs whose caches filled in the last snapshot, (J,)."""
        return np.asarray(self.memory.arrays(Filling).fills == 1)


@direct
@njit(cache=True, nogil=True)
def _observe(facts: Handle[JobFacts], seen: SnapshotArrays, memory: Handle[Filling]) -> None:
    t, known = facts.arrays, memory.arrays
    for j in range(seen.status.shape[0]):
        if seen.status[j] == RUNNING:
            known.fills[j] = any_fills(t, Caches(known.misses, known.seen_s), seen, j)
