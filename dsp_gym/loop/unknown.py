"""What one vertex does not report costs only that vertex.

A vertex lacks a metric where the metric is unknown (NaN) although another vertex of the job reports
it, or the vertex itself reported it before. A decision on a vertex is without evidence where the
vertex lacks what the decision needs, or where its demand comes through a vertex that does not
report its records. Decisions on all other vertices stand:

- `LastKnown` hands a policy the snapshot with the last known values in the place of those lacking,
  so that rules that weigh all vertices of a job together treat the others as before.
- `hold_unknown` then keeps the running configuration where there is no evidence, or, for policies
  that decide on whole jobs, at least takes nothing away there.

Where no vertex reports a metric, nothing is lacking: the policies' own rules for unknown metrics
hold. So they do while a job is down, of which nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.per_job_state import Kept, Parts, Per, RowMemory
from dsp_gym.loop.protocols import Mask, State
from dsp_gym.loop.snapshot import (
    JOB,
    RUNNING,
    VERTEX,
    VERTEX_FLOATS,
    MetricsSnapshot,
    SnapshotArrays,
    snapshot_of_arrays,
)
from dsp_gym.loop.topology import JobFacts, Topology
from dsp_gym.numba_handles import Handle, by_address, direct

LONGEST_S = 600.0
"""Age in seconds beyond which a last known value no longer stands in for one that is lacking."""

FLOW = ("records_in_per_s", "records_out_per_s")
"""Metrics of a vertex without which the demand of the vertices downstream is unknown."""

BACKLOG = ("pending_records", "pending_growth_per_s")
"""Metrics of a source that reads a log; no other reports them."""

_OF_STATE = ("cache_hit_rate", "state_read_latency_ms", "state_write_latency_ms")
_LOOKUPS = ("cache_hits_total", "cache_misses_total")

_NAMED = 3
"""Most values that a sentence names."""

_LACKED = "unknown"


class Needs(NamedTuple):
    """The metrics that a decision on a vertex needs, as rows of a snapshot's `vertex` block."""

    of_vertex: Ints
    of_source: Ints  # of a source
    of_inputs: Ints  # of all vertices upstream
    state: bool  # and, of a vertex that keeps state, its cache hit rate and latencies
    demand: bool  # without those upstream there is no decision, only a lower bound of it
    rows: Ints  # all of them, and further ones for which last known values stand in
    place: Ints  # (metrics,) of each metric among these, -1: it is not one of them


by_address(Needs)


def needs(
    of_vertex: Sequence[str] = ("records_in_per_s", "busy_ms_per_s"),
    of_source: Sequence[str] = BACKLOG,
    of_inputs: Sequence[str] = FLOW,
    *,
    state: bool = False,
    demand: bool = True,
    besides: Sequence[str] = (),
) -> Needs:
    """Name the metrics that a decision on a vertex needs.

    Args:
        of_vertex: Metrics of the vertex itself.
        of_source: Further ones of a source, which the vertices downstream of it need as well.
        of_inputs: Metrics of every vertex upstream.
        state: Whether a vertex with state needs its cache hit rate and latencies.
        demand: Whether the decision follows from what the vertices upstream send; otherwise a
            vertex may get more without it, but not less.
        besides: Metrics that the decision can do without, and takes as last known where a vertex
            lacks others.

    Returns:
        The needs, for compiled code.
    """
    of_state = (*_OF_STATE, *_LOOKUPS) if state else ()
    rows = _rows(dict.fromkeys((*of_vertex, *of_source, *of_inputs, *of_state, *besides)))
    place = np.full(len(VERTEX_FLOATS), -1)
    place[rows] = np.arange(len(rows))
    return Needs(_rows(of_vertex), _rows(of_source), _rows(of_inputs), state, demand, rows, place)


def _rows(names: Iterable[str]) -> Ints:
    return np.array([VERTEX_FLOATS.index(name) for name in names], np.int64)


_NOW = _rows(("pending_records", "busy_now_ms_per_s", "backpressured_now_ms_per_s"))
"""Gauges of now; all others are means over the metrics window."""

_COUNTERS = _rows(_LOOKUPS)

DEMANDED = needs()
"""What a decision needs that sizes a vertex for its demand."""

SIZED = needs(state=True)
"""What a decision needs that gives a vertex tasks and memory for its demand."""

OBSERVED = needs(
    (
        "records_in_per_s",
        "busy_ms_per_s",
        "busy_max_ms_per_s",
        "backpressured_ms_per_s",
        "idle_ms_per_s",
    ),
    state=True,
    besides=("busy_accumulated_ms_per_s", "busy_now_ms_per_s", "state_mib"),
)
"""What a network needs that observes all metrics of a vertex."""


class Lacked(NamedTuple):
    """The values that decisions on J jobs need and that are unknown, (J, V) each.

    Columns are those of vertices that lack a value, -1: nothing is lacking; metrics are rows of the
    snapshot's `vertex` block.
    """

    holder: Ints  # the vertex whose value a decision on v needs
    metric: Ints
    upstream: Ints  # the vertex, v or above it, without which what v sends on is unknown
    upstream_metric: Ints
    is_bound: Bools  # v may get more without the value
    own: Bools  # v does not report all that is needed of it
    filled: Bools  # the last known value stands in

    @classmethod
    def room(cls, shape: tuple[int, ...]) -> Lacked:
        """Allocate room for J jobs of V vertices.

        Returns:
            Arrays that say that nothing is lacking.
        """
        columns = np.full((4, *shape), -1)
        flags = np.zeros((3, *shape), np.bool_)
        return cls(*columns, *flags)


class Values(NamedTuple):
    """The last known values, for compiled code."""

    value: Floats  # (J, V, `Needs.rows`); NaN: never reported


class Completeness(NamedTuple):
    """When every vertex last reported all that is needed, and under which configuration, (J, V)."""

    known_s: Floats
    parallelism: Ints
    level: Ints


_VALUES: dict[str, tuple[Per, bool | int | float]] = {"value": ("vertex", np.nan)}
_COMPLETE: dict[str, tuple[Per, bool | int | float]] = {
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
        self._needs = asked
        # A depth of 1 would leave out the last axis.
        self._values = RowMemory(_VALUES, depth=max(2, len(asked.rows)))
        self._complete = RowMemory(_COMPLETE)
        self._kept = Parts(values=self._values, complete=self._complete)
        self._last: tuple[MetricsSnapshot, MetricsSnapshot] | None = None

    def reset(self, jobs: Topology, mask: Mask | None = None) -> None:
        """Forget all rows, or only those where the mask is True."""
        for memory in self.memories():
            memory.reset(jobs, mask)
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
        return self._values, self._complete

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
        values, complete = self._values.handle(Values), self._complete.handle(Completeness)
        found = _looked(snapshot, self._needs, values, complete, remember)
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
    return _looked(snapshot, asked, _NO_VALUES, _NONE_COMPLETE, False)


_NO_VALUES = RowMemory.of_none(_VALUES, len(VERTEX_FLOATS)).handle(Values)
_NONE_COMPLETE = RowMemory.of_none(_COMPLETE).handle(Completeness)


def _looked(
    snapshot: MetricsSnapshot,
    asked: Needs,
    values: Handle[Values],
    complete: Handle[Completeness],
    remember: bool,
) -> MetricsSnapshot:
    """Return the snapshot, or a copy with last known values where something is lacking."""
    facts, seen = snapshot.topology.handle, snapshot.arrays
    if not _look(facts, seen, asked, values, complete, remember):
        return snapshot
    lacked = Lacked.room(seen.parallelism.shape)
    if not _find(facts, seen, asked, values, complete, remember, lacked):
        return snapshot
    copy = seen._replace(vertex=seen.vertex.copy())
    _fill(facts, copy, asked, values, complete, lacked)
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


@njit(cache=True, nogil=True, borrows=True)
def is_hit_unknown(t: JobFacts, seen: SnapshotArrays, j: int, v: int) -> bool:
    """Return whether the cache hit rate of a vertex with state is unknown, rather than undefined.

    A vertex that read no records has no hit rate, nor has one that counts its lookups and looked
    nothing up; see `_first_of_state` for one that did.

    Returns:
        False for a vertex without state or without managed memory, and where nothing is fresh.
    """
    if t.stateful[t.row[j], v] != 1 or seen.memory_level[j, v] < 0:
        return False
    lookups = seen.vertex[VERTEX.cache_hits_total, j, v]
    lookups += seen.vertex[VERTEX.cache_misses_total, j, v]
    is_idle = seen.vertex[VERTEX.records_in_per_s, j, v] == 0.0
    unknown = np.isnan(seen.vertex[VERTEX.cache_hit_rate, j, v]) and np.isnan(lookups)
    return bool(unknown and not is_idle and _is_fresh(t, seen, j))


@njit(cache=True, nogil=True, borrows=True)
def is_reported(t: JobFacts, seen: SnapshotArrays, j: int, m: int) -> bool:
    """Return whether some vertex of job j reports metric m.

    Returns:
        False where it is unknown of all.
    """
    found = False
    for v in range(t.n[t.row[j]]):
        found = found or not np.isnan(seen.vertex[m, j, v])
    return found


@njit(cache=True, nogil=True, borrows=True)
def _first_lacking(
    t: JobFacts, seen: SnapshotArrays, asked: Needs, value: Floats, rows: Ints, j: int, v: int
) -> int:
    """Return the first of some metrics that vertex v lacks; -1: none."""
    for m in rows:
        if np.isnan(seen.vertex[m, j, v]):
            # With an empty window, or without fresh samples, nothing is known of any vertex.
            heard = seen.job[JOB.window_fill, j] > 0.0
            heard = heard and (not _is_among(_NOW, m) or _is_fresh(t, seen, j))
            before = heard and value.shape[0] > 0 and not np.isnan(value[j, v, asked.place[m]])
            if before or is_reported(t, seen, j, m):
                return int(m)
    return -1


@njit(cache=True, nogil=True, borrows=True)
def _is_fresh(t: JobFacts, seen: SnapshotArrays, j: int) -> bool:
    """Return whether some vertex of job j reports counters and gauges of now."""
    counters, gauges = VERTEX.records_in_total, VERTEX.busy_now_ms_per_s
    return is_reported(t, seen, j, counters) or is_reported(t, seen, j, gauges)


@njit(cache=True, nogil=True, borrows=True)
def _has_looked_up(seen: SnapshotArrays, asked: Needs, value: Floats, j: int, v: int) -> bool:
    """Return whether vertex v has used its cache since the last snapshot, within a full window."""
    gained = 0.0
    for m in (VERTEX.cache_hits_total, VERTEX.cache_misses_total):
        gained += seen.vertex[m, j, v] - value[j, v, asked.place[m]]
    return bool(gained > 0.0 and seen.job[JOB.window_fill, j] >= 1.0)


@njit(cache=True, nogil=True, borrows=True)
def _first_of_state(
    t: JobFacts, seen: SnapshotArrays, asked: Needs, value: Floats, j: int, v: int
) -> int:
    """Return the first metric of its state that vertex v lacks; -1: none.

    Other vertices tell nothing about it: not all read and write.
    """
    if is_hit_unknown(t, seen, j, v):
        return VERTEX.cache_hit_rate
    is_idle = seen.vertex[VERTEX.records_in_per_s, j, v] == 0.0
    if value.shape[0] == 0 or is_idle or not seen.job[JOB.window_fill, j] > 0.0:
        return -1
    if np.isnan(seen.vertex[VERTEX.cache_hit_rate, j, v]) and _has_looked_up(
        seen, asked, value, j, v
    ):
        return VERTEX.cache_hit_rate
    for m in (VERTEX.state_read_latency_ms, VERTEX.state_write_latency_ms):
        if np.isnan(seen.vertex[m, j, v]) and not np.isnan(value[j, v, asked.place[m]]):
            return int(m)
    return -1


@njit(cache=True, nogil=True, borrows=True)
def _is_among(rows: Ints, m: int) -> bool:
    """Return whether a metric is one of some."""
    found = False
    for row in rows:
        found = found or row == m
    return found


@njit(cache=True, nogil=True, borrows=True)
def is_complete(t: JobFacts, seen: SnapshotArrays, asked: Needs, value: Floats, j: int) -> bool:
    """Return whether every vertex of job j reports what is needed: nothing is to be looked for.

    Returns:
        False where a value is NaN, also where no vertex reports it.
    """
    k, complete, vertex = t.row[j], True, seen.vertex
    for v in range(t.n[k]):
        for m in asked.of_vertex:
            complete = complete and not np.isnan(vertex[m, j, v])
        for m in asked.of_inputs:
            complete = complete and not np.isnan(vertex[m, j, v])
        if t.kind[k, v] == SOURCE:
            for m in asked.of_source:
                complete = complete and not np.isnan(vertex[m, j, v])
        if asked.state:
            complete = complete and _first_of_state(t, seen, asked, value, j, v) < 0
    return complete


@njit(cache=True, nogil=True)
def room_for(shape: tuple[int, int]) -> Lacked:
    """Allocate what `Lacked.room` does, in compiled code.

    Returns:
        Arrays that say that nothing is lacking.
    """
    return Lacked(
        np.full(shape, -1),
        np.full(shape, -1),
        np.full(shape, -1),
        np.full(shape, -1),
        np.zeros(shape, np.bool_),
        np.zeros(shape, np.bool_),
        np.zeros(shape, np.bool_),
    )


@njit(cache=True, nogil=True, borrows=True)
def find_lacking(
    t: JobFacts, seen: SnapshotArrays, asked: Needs, value: Floats, j: int, lacked: Lacked
) -> bool:
    """Find what vertices v of job j (job file k) lack; u is an input of v.

    Args:
        t: The jobs.
        seen: The snapshot.
        asked: What a decision on a vertex needs.
        value: (J, V, `Needs.rows`) last known values, or of no jobs.
        j: Row of the job.
        lacked: Filled in for the row.

    Returns:
        Whether a vertex lacks anything.
    """
    k, some = t.row[j], False
    holder, metric = lacked.holder[j], lacked.metric[j]
    sends, passed = lacked.upstream[j], lacked.upstream_metric[j]
    for v in range(t.n[k]):
        of_source = -1
        if t.kind[k, v] == SOURCE:
            of_source = _first_lacking(t, seen, asked, value, asked.of_source, j, v)
        of_flow = _first_lacking(t, seen, asked, value, asked.of_inputs, j, v)
        own = _first_lacking(t, seen, asked, value, asked.of_vertex, j, v)
        if own < 0 and asked.state:
            own = _first_of_state(t, seen, asked, value, j, v)
        is_known_from_below = own < 0 and (of_source >= 0 or not asked.demand)
        own = of_source if own < 0 else own
        lacked.own[j, v] = own >= 0 or of_flow >= 0
        some = some or lacked.own[j, v]
        # Topological order: inputs have said what is lacking above them.
        for i in range(t.upstream.shape[2]):
            u = t.upstream[k, v, i]
            if u >= 0 and sends[u] >= 0 and (sends[v] < 0 or _is_among(asked.of_source, passed[v])):
                sends[v], passed[v] = sends[u], passed[u]
        holder[v], metric[v] = sends[v], passed[v]
        # Without the backlog of a source, the load is known from below.
        lacked.is_bound[j, v] = not asked.demand or _is_among(asked.of_source, passed[v])
        if own >= 0:
            holder[v], metric[v], lacked.is_bound[j, v] = v, own, is_known_from_below
        if of_flow >= 0 or of_source >= 0:
            sends[v], passed[v] = v, of_flow if of_flow >= 0 else of_source
    return some


@njit(cache=True, nogil=True, borrows=True)
def _remember(
    t: JobFacts,
    seen: SnapshotArrays,
    asked: Needs,
    value: Floats,
    last: Completeness,
    j: int,
    lacks: Bools,
) -> None:
    """Remember what is known of the vertices v of job j, if it runs; (V,) flags: v lacks some."""
    if seen.status[j] != RUNNING or not seen.job[JOB.window_fill, j] > 0.0:
        return
    for v in range(t.n[t.row[j]]):
        p, level = seen.parallelism[j, v], seen.memory_level[j, v]
        if p != last.parallelism[j, v] or level != last.level[j, v]:
            # Shares of time say nothing about another configuration.
            last.parallelism[j, v], last.level[j, v] = p, level
            last.known_s[j, v] = -1e18
        if not lacks[v]:
            last.known_s[j, v] = seen.job[JOB.t_s, j]
        for i, m in enumerate(asked.rows):
            if not np.isnan(seen.vertex[m, j, v]):
                value[j, v, i] = seen.vertex[m, j, v]


@direct
@njit(cache=True, nogil=True)
def _look(
    facts: Handle[JobFacts],
    seen: SnapshotArrays,
    asked: Needs,
    values: Handle[Values],
    complete: Handle[Completeness],
    remember: bool,
) -> bool:
    """Remember all jobs that report all that is needed; return whether one does not."""
    t, value, some = facts.arrays, values.arrays.value, False
    nothing = np.zeros(seen.parallelism.shape[1], np.bool_)
    for j in range(seen.status.shape[0]):
        if not is_complete(t, seen, asked, value, j):
            some = True
        elif remember:
            _remember(t, seen, asked, value, complete.arrays, j, nothing)
    return some


@direct
@njit(cache=True, nogil=True)
def _find(
    facts: Handle[JobFacts],
    seen: SnapshotArrays,
    asked: Needs,
    values: Handle[Values],
    complete: Handle[Completeness],
    remember: bool,
    lacked: Lacked,
) -> bool:
    """Find what is lacking of the other jobs, and remember the rest of them."""
    t, value, some = facts.arrays, values.arrays.value, False
    for j in range(seen.status.shape[0]):
        if is_complete(t, seen, asked, value, j):
            continue
        if find_lacking(t, seen, asked, value, j, lacked):
            some = True
        if remember:
            _remember(t, seen, asked, value, complete.arrays, j, lacked.own[j])
    return some


@direct
@njit(cache=True, nogil=True)
def _fill(
    facts: Handle[JobFacts],
    room: SnapshotArrays,
    asked: Needs,
    values: Handle[Values],
    complete: Handle[Completeness],
    lacked: Lacked,
) -> None:
    """Write last known values where vertices v of jobs j lack some, unless they are too old."""
    t, value, last = facts.arrays, values.arrays.value, complete.arrays
    for j in range(value.shape[0]):
        for v in range(t.n[t.row[j]]):
            same = (
                room.parallelism[j, v] == last.parallelism[j, v]
                and room.memory_level[j, v] == last.level[j, v]
            )
            fresh = room.job[JOB.t_s, j] - last.known_s[j, v] <= LONGEST_S
            if lacked.own[j, v] and same and fresh:
                for i, m in enumerate(asked.rows):
                    # A counter goes on: its last value says nothing about now.
                    if np.isnan(room.vertex[m, j, v]) and not _is_among(_COUNTERS, m):
                        room.vertex[m, j, v] = value[j, v, i]
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
