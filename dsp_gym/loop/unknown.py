"""What one vertex does not report costs only that vertex: decisions on all others stand.

- `LastKnown` hands a policy the snapshot with the last known values in the place of those lacking
  (`dsp_gym.loop.lacking`), so that rules that weigh all vertices of a job together treat the others
  as before.
- `hold_unknown` then keeps the running configuration where there is no evidence, or, for policies
  that decide on whole jobs, at least takes nothing away there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.loop.lacking import COUNTERS, Lacked, Needs, find_lacking, is_among, is_complete
from dsp_gym.loop.per_job_state import Kept, Per, RowMemory
from dsp_gym.loop.protocols import Mask, State
from dsp_gym.loop.snapshot import (
    JOB,
    RUNNING,
    VERTEX_FLOATS,
    MetricsSnapshot,
    SnapshotArrays,
    snapshot_of_arrays,
)
from dsp_gym.loop.topology import JobFacts, Topology
from dsp_gym.numba_handles import Handle, Handles, direct

LONGEST_S = 600.0
"""Age in seconds beyond which a last known value no longer stands in for one that is lacking."""

_NAMED = 3
"""Most values that a sentence names."""

_LACKED = "unknown"


class KnownValues(NamedTuple):
    """What decisions need, the last known values of it, and how old they are; for compiled code."""

    asked: Needs
    value: Floats  # (J, V, `Needs.rows`); NaN: never reported
    # When every vertex last reported all that is needed, and under which configuration, (J, V).
    known_s: Floats
    parallelism: Ints
    level: Ints


_FIELDS: dict[str, tuple[Per, bool | int | float]] = {
    "value": ("vertex", np.nan),
    "known_s": ("vertex", -1e18),
    "parallelism": ("vertex", -1),
    "level": ("vertex", -1),
}


class LastKnown(Kept):
    """The last known metrics of every vertex, in the place of those that it lacks.

    Args:
        asked: What a decision on a vertex needs.
    """

    def __init__(self, asked: Needs) -> None:
        self._kept = self._memory = RowMemory(_FIELDS, depth={"value": len(asked.rows)})
        self._table = partial(KnownValues, asked)
        self._last: tuple[MetricsSnapshot, MetricsSnapshot] | None = None

    def reset(self, jobs: Topology, mask: Mask | None = None) -> None:
        """Forget all rows, or only those where the mask is True."""
        self._memory.reset(jobs, mask)
        self._last = None

    def restore(self, state: State) -> None:
        """Continue from the values of `state()`."""
        super().restore(state)
        self._last = None

    def memories(self) -> tuple[RowMemory, ...]:
        """Return the whole memory.

        Returns:
            Memories by rows.
        """
        return (self._memory,)

    def filled(self, snapshot: MetricsSnapshot, *, remember: bool = True) -> MetricsSnapshot:
        """Return the snapshot with last known values where vertices lack what decisions need.

        Args:
            snapshot: J jobs.
            remember: Whether later snapshots may fall back on the values of this one.

        Returns:
            The snapshot itself where nothing is lacking; otherwise a copy, which `hold_unknown`
            knows. The last snapshot gives the same object again.
        """
        if self._last is not None and self._last[0] is snapshot:
            return self._last[1]
        found = _looked(snapshot, self._memory.handle(self._table), remember)
        if remember:
            self._last = snapshot, found
        return found


def marked(snapshot: MetricsSnapshot, asked: Needs) -> MetricsSnapshot:
    """Return the snapshot for `hold_unknown`, without any memory and with no value filled in.

    Args:
        snapshot: J jobs.
        asked: What a decision on a vertex needs.

    Returns:
        The snapshot itself where nothing is lacking.
    """
    return _looked(snapshot, _NOTHING_KNOWN.of(id(asked), lambda: _nothing_known(asked)), False)


_NOTHING_KNOWN = Handles()
"""By the id of what is asked, which each of them keeps alive."""


def _nothing_known(asked: Needs) -> KnownValues:
    return RowMemory.of_none(_FIELDS, {"value": 0}).arrays(partial(KnownValues, asked))


def _looked(
    snapshot: MetricsSnapshot, known: Handle[KnownValues], remember: bool
) -> MetricsSnapshot:
    """Return the snapshot, or a copy with last known values where something is lacking."""
    facts, seen = snapshot.topology.handle, snapshot.arrays
    if not _look(facts, seen, known, remember):
        return snapshot
    lacked = Lacked.room(seen.parallelism.shape)
    if not _find(facts, seen, known, remember, lacked):
        return snapshot
    copy = seen._replace(vertex=seen.vertex.copy())
    _fill(facts, copy, known, lacked)
    found = snapshot_of_arrays(snapshot.topology, copy)
    found.keep(_LACKED, lacked)
    return found


ALL, UNFILLED, NONE = 2, 1, 0
"""Which vertices without evidence keep their configuration; the others give up nothing."""


def hold_unknown(
    snapshot: MetricsSnapshot, parallelism: Ints, level: Ints, keeps: int = ALL
) -> tuple[Ints, Ints]:
    """Keep the running configuration of vertices where a decision is without evidence.

    Of a source that lacks its backlog the load is known from below: more may be given.

    Args:
        snapshot: J jobs, as `LastKnown.filled` or `marked` returned it.
        parallelism: (J, V) wanted.
        level: (J, V) wanted.
        keeps: `ALL`: every such vertex keeps its configuration. `UNFILLED`: those for which no
            last known value stands in; the others may get more tasks and memory, not less. `NONE`:
            all may get more.

    Returns:
        Parallelism and memory level, (J, V); the given arrays where nothing is lacking.
    """
    lacked = snapshot.kept(_LACKED)
    if not isinstance(lacked, Lacked):
        return parallelism, level
    tasks, memory = (np.array(a, np.int64, order="C") for a in (parallelism, level))
    _hold(snapshot.topology.facts, snapshot.arrays, lacked, keeps, tasks, memory)
    return tasks, memory


def told(snapshot: MetricsSnapshot, reasons: Sequence[str], hold: str) -> tuple[str, ...]:
    """Add to the reasons of a decision which values are lacking.

    Args:
        snapshot: J jobs, as `LastKnown.filled` or `marked` returned it.
        reasons: A sentence per job.
        hold: The sentence for a job that does not change, which gives way.

    Returns:
        The sentences, with "kept: METRIC of 'VERTEX' is unknown" where a value is lacking.
    """
    lacked = snapshot.kept(_LACKED)
    if not isinstance(lacked, Lacked):
        return tuple(reasons)
    found, jobs = list(reasons), snapshot.topology
    tables, row = jobs.tables, jobs.row
    # Of a vertex that nothing can be decided on nothing need be said.
    is_open = (tables.min_parallelism < tables.max_parallelism) | (tables.stateful == 1)
    for j in np.flatnonzero((is_open[row] & (lacked.holder >= 0)).any(axis=1)).tolist():
        said = unknown_values(snapshot, j, is_open[row[j]])
        found[j] = said if reasons[j] in ("", hold) else f"{reasons[j]}; {said}"
    return tuple(found)


def unknown_values(snapshot: MetricsSnapshot, job: int, among: Bools | None = None) -> str:
    """Name the values that decisions on a job lack.

    Args:
        snapshot: As `LastKnown.filled` or `marked` returned it.
        job: A row.
        among: (V,) the vertices whose decisions count; None: all.

    Returns:
        A sentence with metric and vertex of the first few; "" where nothing is lacking.
    """
    lacked = snapshot.kept(_LACKED)
    if not isinstance(lacked, Lacked):
        return ""
    names = snapshot.topology.names(job)
    of = slice(None) if among is None else among
    pairs = zip(lacked.metric[job, of].tolist(), lacked.holder[job, of].tolist(), strict=True)
    values = [f"{VERTEX_FLOATS[m]} of '{names[u]}'" for m, u in dict.fromkeys(pairs) if u >= 0]
    more = f" and {len(values) - _NAMED} more" if len(values) > _NAMED else ""
    verb = "is" if len(values) == 1 else "are"
    return f"kept: {', '.join(values[:_NAMED])}{more} {verb} unknown" if values else ""


@njit(cache=True, nogil=True, borrows=True, forceinline=True)
def _remember(t: JobFacts, seen: SnapshotArrays, known: KnownValues, j: int) -> None:
    """Remember the configuration and the metrics of all vertices v of job j, if it runs."""
    if not _is_seen(seen, j):
        return
    # Compiled code copies several vertices at once only where each array is looked up beforehand.
    n, rows, vertex, value = t.n[t.row[j]], known.asked.rows, seen.vertex, known.value
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
        m = rows[i]
        for v in range(n):
            if vertex[m, j, v] == vertex[m, j, v]:  # a NaN differs from itself
                value[j, v, i] = vertex[m, j, v]


@njit(cache=True, nogil=True, borrows=True, forceinline=True)
def _is_seen(seen: SnapshotArrays, j: int) -> bool:
    """Return whether job j runs and its metrics window holds something."""
    return bool(seen.status[j] == RUNNING and seen.job[JOB.window_fill, j] > 0.0)


@direct
@njit(cache=True, nogil=True)
def _look(
    facts: Handle[JobFacts], seen: SnapshotArrays, known: Handle[KnownValues], remember: bool
) -> bool:
    """Remember all jobs that report all that is needed; return whether one does not."""
    t, last, some = facts.arrays, known.arrays, False
    known_s = last.known_s
    for j in range(seen.status.shape[0]):
        if not is_complete(t, seen, last.asked, last.value, j):
            some = True
        elif remember:
            _remember(t, seen, last, j)
            if _is_seen(seen, j):
                for v in range(t.n[t.row[j]]):
                    known_s[j, v] = seen.job[JOB.t_s, j]
    return some


@direct
@njit(cache=True, nogil=True)
def _find(
    facts: Handle[JobFacts],
    seen: SnapshotArrays,
    known: Handle[KnownValues],
    remember: bool,
    lacked: Lacked,
) -> bool:
    """Find what is lacking of the other jobs, and remember the rest of them."""
    t, last, some = facts.arrays, known.arrays, False
    for j in range(seen.status.shape[0]):
        if is_complete(t, seen, last.asked, last.value, j):
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
def _fill(
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


@direct
@njit(cache=True, nogil=True)
def _hold(
    t: JobFacts, seen: SnapshotArrays, lacked: Lacked, keeps: int, p: Ints, level: Ints
) -> None:
    """Keep the configuration of vertices v of jobs j without evidence, or its lower bound."""
    for j in range(p.shape[0]):
        for v in range(t.n[t.row[j]]):
            if lacked.holder[j, v] < 0:
                continue
            now, now_level = seen.parallelism[j, v], seen.memory_level[j, v]
            kept = keeps == ALL or (keeps == UNFILLED and not lacked.filled[j, v])
            # A trade of tasks for memory takes away, too.
            takes = p[j, v] < now or level[j, v] < now_level
            if takes or (kept and not lacked.is_bound[j, v]):
                p[j, v], level[j, v] = now, now_level
