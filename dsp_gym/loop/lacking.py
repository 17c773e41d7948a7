"""Which metrics a decision on a vertex needs, and which of them are lacking.

A vertex lacks a metric where the metric is unknown (NaN) although another vertex of the job reports
it, or the vertex itself reported it before. A decision on a vertex is without evidence where the
vertex lacks what the decision needs, or where its demand comes through a vertex that does not
report its records. Where no vertex reports a metric, nothing is lacking: the policies' own rules
for unknown metrics hold. So they do while a job is down, of which nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.snapshot import (
    JOB,
    VERTEX,
    VERTEX_FLOATS,
    SnapshotArrays,
)
from dsp_gym.loop.topology import JobFacts
from dsp_gym.numba_handles import by_address

FLOW = ("records_in_per_s", "records_out_per_s")
"""Metrics of a vertex without which the demand of the vertices downstream is unknown."""

BACKLOG = ("pending_records", "pending_growth_per_s")
"""Metrics of a source that reads a log; no other reports them."""

_OF_STATE = ("cache_hit_rate", "state_read_latency_ms", "state_write_latency_ms")
_LOOKUPS = ("cache_hits_total", "cache_misses_total")


class Needs(NamedTuple):
    """The metrics that a decision on a vertex needs, as rows of a snapshot's `vertex` block."""

    of_vertex: Ints
    of_source: Ints  # of a source
    of_inputs: Ints  # of all vertices upstream
    of_all: Ints  # of the vertex itself or of those upstream: what every vertex shall report
    state: bool  # and, of a vertex that keeps state, its cache hit rate and latencies
    demand: bool  # without those upstream there is no decision, only a lower bound of it
    rows: Ints  # all of them, and further ones for which last known values stand in
    place: Ints  # (metrics,) of each metric among these, -1: it is not one of them
    optional: Ints  # places among these that not every vertex, nor every source, shall report
    sources_only: Bools  # (rows,) of a source alone


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
    of_all = _rows(dict.fromkeys((*of_vertex, *of_inputs)))
    is_of_all, is_of_source = np.isin(rows, of_all), np.isin(rows, _rows(of_source))
    return Needs(
        _rows(of_vertex),
        _rows(of_source),
        _rows(of_inputs),
        of_all,
        state,
        demand,
        rows,
        place,
        np.flatnonzero(~is_of_all & ~is_of_source),
        is_of_source & ~is_of_all,
    )


def _rows(names: Iterable[str]) -> Ints:
    return np.array([VERTEX_FLOATS.index(name) for name in names], np.int64)


_NOW = _rows(("pending_records", "busy_now_ms_per_s", "backpressured_now_ms_per_s"))
"""Gauges of now; all others are means over the metrics window."""

COUNTERS = _rows(_LOOKUPS)

NEVER: Floats = np.zeros((0, 0, 0))
"""Last known values of no jobs: nothing was reported before."""

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
            heard = heard and (not is_among(_NOW, m) or _is_fresh(t, seen, j))
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
def is_among(rows: Ints, m: int) -> bool:
    """Return whether a metric is one of some."""
    found = False
    for row in rows:
        found = found or row == m
    return found


@njit(cache=True, nogil=True, borrows=True, forceinline=True)
def is_complete(t: JobFacts, seen: SnapshotArrays, asked: Needs, value: Floats, j: int) -> bool:
    """Return whether every vertex of job j reports what is needed: nothing is to be looked for.

    Returns:
        False where a value is NaN, also where no vertex reports it.
    """
    k, vertex = t.row[j], seen.vertex
    n, unknown = t.n[k], False
    for m in asked.of_all:
        # Without a branch, several vertices are compared at once; NaN alone differs from itself.
        for v in range(n):
            unknown |= vertex[m, j, v] != vertex[m, j, v]
        if unknown:
            return False
    for v in range(n):
        if t.kind[k, v] == SOURCE:
            for m in asked.of_source:
                unknown |= vertex[m, j, v] != vertex[m, j, v]
    return not (unknown or (asked.state and _lacks_state(t, seen, asked, value, j)))


@njit(cache=True, nogil=True, borrows=True, forceinline=True)
def _lacks_state(t: JobFacts, seen: SnapshotArrays, asked: Needs, value: Floats, j: int) -> bool:
    """Return whether a vertex v of job j lacks a metric of its state.

    Only where one may be lacking `_first_of_state` is called: a call takes longer than the work.
    """
    vertex, stateful, k = seen.vertex, t.stateful, t.row[j]
    read, write = VERTEX.state_read_latency_ms, VERTEX.state_write_latency_ms
    before_read, before_write = asked.place[read], asked.place[write]
    for v in range(t.n[k]):
        may_lack = np.isnan(vertex[VERTEX.cache_hit_rate, j, v]) and (
            stateful[k, v] == 1 or not np.isnan(vertex[VERTEX.cache_hits_total, j, v])
        )
        if value.shape[0] > 0:
            may_lack |= np.isnan(vertex[read, j, v]) and not np.isnan(value[j, v, before_read])
            may_lack |= np.isnan(vertex[write, j, v]) and not np.isnan(value[j, v, before_write])
        if may_lack and _first_of_state(t, seen, asked, value, j, v) >= 0:
            return True
    return False


@njit(cache=True, nogil=True, borrows=True)
def lack_nothing(lacked: Lacked, j: int) -> None:
    """Write into row j what `Lacked.room` does into all: that nothing is lacking."""
    for v in range(lacked.holder.shape[1]):
        lacked.holder[j, v] = lacked.metric[j, v] = -1
        lacked.upstream[j, v] = lacked.upstream_metric[j, v] = -1
        lacked.is_bound[j, v] = lacked.own[j, v] = lacked.filled[j, v] = False


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
            if u >= 0 and sends[u] >= 0 and (sends[v] < 0 or is_among(asked.of_source, passed[v])):
                sends[v], passed[v] = sends[u], passed[u]
        holder[v], metric[v] = sends[v], passed[v]
        # Without the backlog of a source, the load is known from below.
        lacked.is_bound[j, v] = not asked.demand or is_among(asked.of_source, passed[v])
        if own >= 0:
            holder[v], metric[v], lacked.is_bound[j, v] = v, own, is_known_from_below
        if of_flow >= 0 or of_source >= 0:
            sends[v], passed[v] = v, of_flow if of_flow >= 0 else of_source
    return some
