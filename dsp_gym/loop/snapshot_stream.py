"""Snapshots of one job, one after the other, as a client sends them.

Graph, bounds and prices of a job are in every `dsp-gym/snapshot/1`, and hardly ever change. They
are checked and compiled when they differ from those of the snapshot before; otherwise only metrics
and running configuration are read. Both ways refuse the same documents, in the same words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from types import NoneType
from typing import NamedTuple, TypeGuard

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.loop.documents import JOB_METRICS, VERTEX_METRICS
from dsp_gym.loop.snapshot import (
    JOB_FLOATS,
    VERTEX_FLOATS,
    MetricsSnapshot,
    Status,
    unknown_snapshot,
)
from dsp_gym.loop.topology import Topology
from dsp_gym.loop.wire import highest_parallelism, snapshot_from_json

_MOVING = frozenset({"t_s", "status", "metrics", "vertices"})
_MOVING_OF_VERTEX = frozenset({"parallelism", "memory_level", "metrics"})
_STATUS_OF = {name: int(status) for name, status in Status.__members__.items()}
_STATUSES = frozenset(_STATUS_OF)
_PLAIN = frozenset({float, int, NoneType})

LATEST_S = 1e15
"""Times beyond this get a closer look, s; up to there whole numbers are exact as floats."""

_T_S = JOB_FLOATS.index("t_s")
_JOB_ROWS = [JOB_FLOATS.index(name) for name in JOB_METRICS]
_VERTEX_ROWS = [VERTEX_FLOATS.index(name) for name in VERTEX_METRICS]

Json = Mapping[str, object]
Object = dict[str, object]
Fixed = tuple[Object, list[Object]]


class Names:
    """Names of metrics, and a getter of all of them from an object."""

    def __init__(self, listed: Sequence[str]) -> None:
        self.listed, self.known = tuple(listed), frozenset(listed)
        self.all_of = itemgetter(*listed)


_OF_JOB, _OF_VERTEX = Names(JOB_METRICS), Names(VERTEX_METRICS)


class Known(NamedTuple):
    """The facts that a reader knows of its job."""

    topology: Topology
    order: list[int]  # place in the document of each column
    bounds: list[tuple[int, int]]  # most tasks and highest level of each vertex, as in documents


class ReadRow(NamedTuple):
    """The changing part of a snapshot; vertices in the order of the document."""

    t_s: float
    status: str
    of_job: Sequence[float | None]  # JOB_METRICS
    of_vertices: Sequence[Sequence[float | None]]  # VERTEX_METRICS each
    running: Sequence[tuple[int, int]]  # tasks and level


def snapshot_of_rows(
    topology: Topology, order: Sequence[int], rows: Sequence[ReadRow]
) -> MetricsSnapshot:
    """Make a snapshot of jobs that share a graph.

    Args:
        topology: Topology of the rows.
        order: place in the documents of each column.
        rows: the values read, plain finite numbers or None.

    Returns:
        One row each, in their order.
    """
    seen = unknown_snapshot(topology)
    arrays, jobs, places = seen.arrays, len(rows), list(order)
    arrays.job[_T_S] = [row.t_s for row in rows]
    arrays.status[:] = [_STATUS_OF[row.status] for row in rows]
    # (rows, metrics) in the document, (metrics, rows) in the blocks.
    arrays.job[_JOB_ROWS] = np.array([row.of_job for row in rows], np.float64).T
    of_vertices = np.array([one for row in rows for one in row.of_vertices], np.float64)
    of_vertices = of_vertices.reshape(jobs, len(places), len(VERTEX_METRICS))
    arrays.vertex[_VERTEX_ROWS] = of_vertices[:, places].transpose(2, 0, 1)
    running = np.array([row.running for row in rows], np.int64)[:, places]
    arrays.parallelism[:], arrays.memory_level[:] = running[:, :, 0], running[:, :, 1]
    return seen


class SnapshotReader:
    """A reader of the snapshots of one job.

    Args:
        where: their origin, for errors.
    """

    def __init__(self, where: str = "snapshot") -> None:
        self._where = where
        self._fixed: Fixed | None = None
        self._topology: Topology | None = None
        self._order: list[int] = []
        self._bounds: list[tuple[int, int]] = []

    @property
    def known(self) -> Known | None:
        """The known facts of the job; None before the first snapshot."""
        if self._topology is None:
            return None
        return Known(self._topology, self._order, self._bounds)

    def read(self, document: Json) -> MetricsSnapshot:
        """Read the next snapshot of the job.

        Args:
            document: a `dsp-gym/snapshot/1`.

        Returns:
            A snapshot of one row; its topology is that of the snapshot before where no fixed fact
            has changed.

        Raises:
            SchemaError: The document is no snapshot, or contradicts itself.
        """
        found = self._quickly(document)
        if found is not None:
            return found
        snapshot = snapshot_from_json([document], self._where)
        self._remember(document, snapshot)
        return snapshot

    def _quickly(self, document: Json) -> MetricsSnapshot | None:
        """Read a snapshot with only new plain numbers; None: it needs a closer look."""
        vertices = _vertices(document)
        if self._topology is None or vertices is None or _fixed(document, vertices) != self._fixed:
            return None
        # Any value that is no plain number goes to the full check, which words the refusal.
        of_job = _numbers([document.get("metrics")], _OF_JOB)
        metrics = [vertex.get("metrics") for vertex in vertices]
        of_vertices = _numbers(metrics, _OF_VERTEX)
        running = [(v.get("parallelism"), v.get("memory_level", -1)) for v in vertices]
        t_s, status = document.get("t_s"), document.get("status")
        if of_job is None or of_vertices is None or not self._can_run(running):
            return None
        if not _is_time(t_s) or not isinstance(status, str) or status not in _STATUSES:
            return None
        seen = unknown_snapshot(self._topology)
        arrays = seen.arrays
        arrays.job[_T_S, 0], arrays.status[0] = t_s, Status[status]
        arrays.job[_JOB_ROWS, 0] = of_job[0]
        arrays.vertex[_VERTEX_ROWS, 0] = of_vertices[self._order].T
        tasks = np.array(running, np.int64)[self._order]
        arrays.parallelism[0], arrays.memory_level[0] = tasks.T
        return seen

    def _can_run(self, running: list[tuple[object, object]]) -> bool:
        """Return whether every vertex runs plain whole numbers within its bounds."""
        return all(
            type(tasks) is int
            and type(level) is int
            and 1 <= tasks <= most
            and -1 <= level <= highest
            for (tasks, level), (most, highest) in zip(running, self._bounds, strict=True)
        )

    def _remember(self, document: Json, snapshot: MetricsSnapshot) -> None:
        """Keep the fixed facts of a valid document."""
        self._topology, vertices = None, _vertices(document)
        if vertices is None:  # no list, as a caller in this process may pass
            return
        topology = snapshot.topology
        spec, names = topology.spec(0), topology.names(0)
        of_name = {vertex.name: vertex for vertex in spec.vertices}
        listed = [str(vertex["name"]) for vertex in vertices]
        quota, highest = spec.max_parallelism_per_vertex, spec.memory.levels - 1
        # Documents list vertices in any order, arrays in topological order.
        self._order = [listed.index(name) for name in names]
        self._bounds = [(highest_parallelism(of_name[name], quota), highest) for name in listed]
        self._topology, self._fixed = topology, _fixed(document, vertices)


def _is_time(t_s: object) -> TypeGuard[float]:
    return type(t_s) in (float, int) and isinstance(t_s, float | int) and abs(t_s) < LATEST_S


def _vertices(document: Json) -> list[Object] | None:
    """Return the vertices as a list of objects; None where they are no such list."""
    found = document.get("vertices") if type(document) is dict else None
    if not isinstance(found, list) or not all(type(vertex) is dict for vertex in found):
        return None
    return found


def _fixed(document: Json, vertices: list[Object]) -> Fixed:
    """Return the part of a document that stays from one snapshot to the next."""
    of_job = {key: value for key, value in document.items() if key not in _MOVING}
    kept = []
    for vertex in vertices:
        fixed = {key: value for key, value in vertex.items() if key not in _MOVING_OF_VERTEX}
        if not fixed.get("start_parallelism"):  # the running parallelism stands in for it
            fixed["start_parallelism"] = vertex.get("parallelism")
        kept.append(fixed)
    return of_job, kept


def _numbers(found: Sequence[object], names: Names) -> Floats | None:
    """Return metrics of several objects, (objects, names); None where one is no plain number."""
    rows: list[Sequence[object]] = []
    for one in found:
        if type(one) is not dict or not one.keys() <= names.known:
            return None
        # One C call for a complete object, the common case; else key by key.
        whole = len(one) == len(names.known)
        rows.append(names.all_of(one) if whole else [one.get(name) for name in names.listed])
    if not all(_PLAIN.issuperset(map(type, row)) for row in rows):
        return None
    try:
        values: Floats = np.array(rows, np.float64)
    except OverflowError:
        return None
    unknown = sum(row.count(None) for row in rows)
    return values if int(np.count_nonzero(np.isfinite(values))) + unknown == values.size else None
