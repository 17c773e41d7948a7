"""The memory of last known metrics in compiled code: remember, look for gaps, fill them.

Values of a job that reports all that is needed wait in its snapshot. They are copied into the
memory only where a later snapshot may lack some, or is not remembered.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.lacking import COUNTERS, Lacked, Needs, find_lacking, is_among, is_complete
from dsp_gym.loop.snapshot import JOB, RUNNING, VERTEX, SnapshotArrays
from dsp_gym.loop.topology import JobFacts
from dsp_gym.numba_handles import Handle, direct

LONGEST_S = 600.0
"""Age in seconds beyond which a last known value no longer stands in for one that is lacking."""


class KnownValues(NamedTuple):
    """What decisions need, the last known values of it, and how old they are; for compiled code."""

    asked: Needs
    # (J,) the values of job j are still those of the snapshot that is kept; (J,) scratch: whether
    # it is to be looked at more closely.
    waits: Bools
    doubtful: Bools
    value: Floats  # (J, V, `Needs.rows`); NaN: never reported
    # When every vertex last reported all that is needed, and under which configuration, (J, V).
    known_s: Floats
    parallelism: Ints
    level: Ints


@njit(cache=True, nogil=True, borrows=True, forceinline=True)
def _remember(t: JobFacts, seen: SnapshotArrays, known: KnownValues, j: int) -> None:
    """Remember the configuration and the metrics of all vertices v of job j, if it runs."""
    if not _is_seen(seen, j):
        return
    # Compiled code copies several vertices at once only where each array is looked up beforehand.
    k, rows, vertex, value = t.row[j], known.asked.rows, seen.vertex, known.value
    n = t.n[k]
    now, now_level, before, before_level = (
        seen.parallelism,
        seen.memory_level,
        known.parallelism,
        known.level,
    )
    moved = False
    for v in range(n):
        moved |= (now[j, v] != before[j, v]) | (now_level[j, v] != before_level[j, v])
    if moved:
        for v in range(n):
            if now[j, v] != before[j, v] or now_level[j, v] != before_level[j, v]:
                # Shares of time say nothing about another configuration.
                before[j, v], before_level[j, v] = now[j, v], now_level[j, v]
                known.known_s[j, v] = -1e18
    for i in range(rows.shape[0]):
        m, of_sources = rows[i], known.asked.sources_only[i]
        for v in range(n):
            # A NaN differs from itself.
            if vertex[m, j, v] == vertex[m, j, v] and (not of_sources or t.kind[k, v] == SOURCE):
                value[j, v, i] = vertex[m, j, v]


@njit(cache=True, nogil=True, borrows=True, forceinline=True)
def _is_seen(seen: SnapshotArrays, j: int) -> bool:
    """Return whether job j runs and its metrics window holds something."""
    return bool(seen.status[j] == RUNNING and seen.job[JOB.window_fill, j] > 0.0)


@njit(cache=True, nogil=True, borrows=True, forceinline=True)
def _remember_whole(t: JobFacts, seen: SnapshotArrays, known: KnownValues, j: int) -> None:
    """Remember job j, all of whose vertices v report all that is needed."""
    _remember(t, seen, known, j)
    if _is_seen(seen, j):
        for v in range(t.n[t.row[j]]):
            known.known_s[j, v] = seen.job[JOB.t_s, j]


@njit(cache=True, nogil=True, borrows=True, forceinline=True)
def _is_plain(
    t: JobFacts, seen: SnapshotArrays, recent: Floats, known: KnownValues, j: int
) -> bool:
    """Return whether job j surely lacks nothing, nor any value that was known before.

    Without branches, several vertices are compared at once; NaN alone differs from itself.
    """
    k, asked, vertex, kind, stateful = t.row[j], known.asked, seen.vertex, t.kind, t.stateful
    n, waits, value, lost = t.n[k], known.waits[j], known.value, False
    for m in asked.of_all:
        for v in range(n):
            lost |= vertex[m, j, v] != vertex[m, j, v]
    for m in asked.of_source:
        is_missing = False
        for v in range(n):
            is_missing |= (kind[k, v] == SOURCE) & (vertex[m, j, v] != vertex[m, j, v])
        if is_missing:  # a job without a log reports no backlog, and never did
            for v in range(n):
                before = recent[m, j, v] if waits else value[j, v, asked.place[m]]
                lost |= (vertex[m, j, v] == vertex[m, j, v]) | (before == before)
    if lost:
        return False
    if asked.state:
        hit, hits = VERTEX.cache_hit_rate, VERTEX.cache_hits_total
        for v in range(n):
            counts = (stateful[k, v] == 1) | (vertex[hits, j, v] == vertex[hits, j, v])
            lost |= (vertex[hit, j, v] != vertex[hit, j, v]) & counts
    for i in asked.optional:
        m = asked.rows[i]
        if waits:
            for v in range(n):
                was_known = recent[m, j, v] == recent[m, j, v]
                lost |= (vertex[m, j, v] != vertex[m, j, v]) & was_known
        else:
            for v in range(n):
                was_known = value[j, v, i] == value[j, v, i]
                lost |= (vertex[m, j, v] != vertex[m, j, v]) & was_known
    return not lost


@direct
@njit(cache=True, nogil=True)
def look(
    facts: Handle[JobFacts],
    seen: SnapshotArrays,
    recent: Floats,
    known: Handle[KnownValues],
    remember: bool,
    waits: bool,
) -> bool:
    """Mark the jobs that may lack something as doubtful, and remember the others.

    Args:
        facts: The jobs.
        seen: The snapshot.
        recent: `vertex` block of the snapshot in which values wait.
        known: The memory.
        remember: Whether the values are remembered.
        waits: Whether they wait in the snapshot; otherwise they are copied at once.

    Returns:
        Whether a job is doubtful.
    """
    t, last, some = facts.arrays, known.arrays, False
    for j in range(seen.status.shape[0]):
        doubtful = not _is_plain(t, seen, recent, last, j)
        if remember and not doubtful:
            if not waits:
                _remember_whole(t, seen, last, j)
            elif _is_seen(seen, j):
                last.waits[j] = True
            else:
                doubtful = last.waits[j]  # nothing takes the place of the values that wait
        last.doubtful[j] = doubtful
        some = some or doubtful
    return some


@direct
@njit(cache=True, nogil=True)
def copy_waiting(
    facts: Handle[JobFacts], recent: SnapshotArrays, known: Handle[KnownValues]
) -> None:
    """Copy the values of doubtful jobs that wait in a snapshot."""
    t, last = facts.arrays, known.arrays
    for j in range(last.waits.shape[0]):
        if last.waits[j] and last.doubtful[j]:
            _remember_whole(t, recent, last, j)
            last.waits[j] = False


@direct
@njit(cache=True, nogil=True)
def look_closely(
    facts: Handle[JobFacts],
    seen: SnapshotArrays,
    known: Handle[KnownValues],
    doubtful: Bools,
    remember: bool,
) -> bool:
    """Remember the doubtful jobs that report all that is needed; return whether one does not."""
    t, last, some = facts.arrays, known.arrays, False
    for j in range(seen.status.shape[0]):
        if not doubtful[j]:
            continue
        if not is_complete(t, seen, last.asked, last.value, j):
            some = True
        elif remember:
            _remember_whole(t, seen, last, j)
    return some


@direct
@njit(cache=True, nogil=True)
def find_gaps(
    facts: Handle[JobFacts],
    seen: SnapshotArrays,
    known: Handle[KnownValues],
    doubtful: Bools,
    remember: bool,
    lacked: Lacked,
) -> bool:
    """Find what is lacking of the other doubtful jobs, and remember the rest of them."""
    t, last, some = facts.arrays, known.arrays, False
    for j in range(seen.status.shape[0]):
        if not doubtful[j] or is_complete(t, seen, last.asked, last.value, j):
            continue
        if find_lacking(t, seen, last.asked, last.value, j, lacked):
            some = True
        if remember:
            _remember(t, seen, last, j)
            for v in range(t.n[t.row[j]]):
                if _is_seen(seen, j) and not lacked.own[j, v]:
                    last.known_s[j, v] = seen.job[JOB.t_s, j]
    return some


@direct
@njit(cache=True, nogil=True)
def fill_gaps(
    facts: Handle[JobFacts], room: SnapshotArrays, known: Handle[KnownValues], lacked: Lacked
) -> None:
    """Write last known values where vertices v of jobs j lack some, unless they are too old."""
    t, last = facts.arrays, known.arrays
    for j in range(last.value.shape[0]):
        for v in range(t.n[t.row[j]]):
            same = (
                room.parallelism[j, v] == last.parallelism[j, v]
                and room.memory_level[j, v] == last.level[j, v]
            )
            fresh = room.job[JOB.t_s, j] - last.known_s[j, v] <= LONGEST_S
            if lacked.own[j, v] and same and fresh:
                for i, m in enumerate(last.asked.rows):
                    # A counter goes on: its last value says nothing about now.
                    if np.isnan(room.vertex[m, j, v]) and not is_among(COUNTERS, m):
                        room.vertex[m, j, v] = last.value[j, v, i]
    for j in range(room.status.shape[0]):
        for v in range(t.n[t.row[j]]):
            u = lacked.holder[j, v]
            lacked.filled[j, v] = u >= 0 and not np.isnan(room.vertex[lacked.metric[j, v], j, u])
