"""Metrics of a batch of jobs at one decision.

Gauges and cumulative counters are those of the newest scrape; every other vertex field is a mean
over the metrics window, which empties at a restart. Unknown is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, NamedTuple, SupportsFloat, TypeVar

import numpy as np

from dsp_gym.arrays import Bools, Column, ColumnIndex, Floats, Ints, columns_of, indices
from dsp_gym.job.memory import NO_MEMORY
from dsp_gym.loop.topology import Topology


class Status(IntEnum):
    """Job status as a collector reports it."""

    RUNNING = 0
    SAVEPOINTING = 1
    RESTARTING = 2
    FAILED = 3


RUNNING, SAVEPOINTING, RESTARTING, FAILED = (int(status) for status in Status)
"""The same as numbers, for compiled code."""

T = TypeVar("T")


class SnapshotArrays(NamedTuple):
    """A snapshot as compiled code takes it: few arrays, since each costs time at every call.

    All are C-contiguous and writeable, so a function that takes a snapshot is compiled once.
    """

    status: Ints  # (J,)
    parallelism: Ints  # (J, V)
    memory_level: Ints  # (J, V)
    job: Floats  # (len(JOB_FLOATS), J), rows as in JOB
    vertex: Floats  # (len(VERTEX_FLOATS), J, V), rows as in VERTEX


@dataclass(frozen=True, eq=False)
class MetricsSnapshot:
    """Metrics of J jobs of at most V vertices.

    Each field is one row of the table of metrics: name, type, axes, unit, meaning. Collectors, the
    JSON documents, datasets and compiled code take their columns from these rows. Do not write into
    the arrays of a snapshot: derived quantities are kept.
    """

    topology: Topology
    t_s: Annotated[Floats, Column("J", "s", "seconds on the collector's clock")]
    status: Annotated[Ints, Column("J", "Status", "job status")]
    running_since_s: Annotated[Floats, Column("J", "s", "t_s at which the job last became RUNNING")]
    window_s: Annotated[
        Floats, Column("J", "s", "configured length of the metrics window", least=0)
    ]
    window_fill: Annotated[
        Floats,
        Column(
            "J", "0..1", "share of the window covered since the last restart, 0..1", least=0, most=1
        ),
    ]
    latency_p95_s: Annotated[
        Floats, Column("J", "s", "end-to-end record latency, window residence left out")
    ]
    outage_s: Annotated[Floats, Column("J", "s", "duration of the last rescale's outage", least=0)]
    counted_s: Annotated[
        Floats, Column("J", "s", "time of the scrape of the sources' counters; unknown: t_s")
    ]
    resumed_from_s: Annotated[
        Floats,
        Column(
            "J",
            "s",
            "time of the checkpoint that the job resumed from: the sources' counters begin there; "
            "unknown: running_since_s - outage_s",
        ),
    ]
    tm_count: Annotated[Floats, Column("J", "TaskManagers", "TaskManagers running", least=0)]
    tm_cpu_load: Annotated[
        Floats, Column("J", "0..1", "CPU load, 0..1, mean over TaskManagers", least=0, most=1)
    ]
    tm_heap_used_mib: Annotated[
        Floats, Column("J", "MiB", "heap used, mean over TaskManagers", least=0)
    ]
    tm_heap_max_mib: Annotated[Floats, Column("J", "MiB", "heap limit of one TaskManager")]
    tm_gc_ms_per_s: Annotated[
        Floats, Column("J", "ms/s", "garbage collection time, mean over TaskManagers", least=0)
    ]
    tm_managed_used_mib: Annotated[
        Floats, Column("J", "MiB", "managed memory used, mean over TaskManagers", least=0)
    ]
    tm_metaspace_used_mib: Annotated[
        Floats, Column("J", "MiB", "metaspace used, mean over TaskManagers", least=0)
    ]
    parallelism: Annotated[Ints, Column("J V", "subtasks", "subtasks running")]
    memory_level: Annotated[
        Ints, Column("J V", "level", "memory level running; -1: no managed memory")
    ]
    records_in_total: Annotated[
        Floats, Column("J V", "records", "records received since the last restart", least=0)
    ]
    records_out_total: Annotated[
        Floats, Column("J V", "records", "records sent since the last restart", least=0)
    ]
    cache_hits_total: Annotated[
        Floats, Column("J V", "lookups", "block cache hits since the last restart", least=0)
    ]
    cache_misses_total: Annotated[
        Floats, Column("J V", "lookups", "block cache misses since the last restart", least=0)
    ]
    pending_records: Annotated[
        Floats, Column("J V", "records", "source: backlog of all partitions", least=0)
    ]
    pending_records_max_subtask: Annotated[
        Floats, Column("J V", "records", "source: backlog of the subtask that has most", least=0)
    ]
    pending_partitions_max_subtask: Annotated[
        Floats, Column("J V", "partitions", "source: partitions of that subtask", least=0)
    ]
    state_mib: Annotated[Floats, Column("J V", "MiB", "live state of all subtasks", least=0)]
    busy_now_ms_per_s: Annotated[
        Floats,
        Column("J V", "ms/s", "60 s gauge at t_s, mean over subtasks, 0..1000", least=0, most=1000),
    ]
    backpressured_now_ms_per_s: Annotated[
        Floats,
        Column("J V", "ms/s", "60 s gauge at t_s, mean over subtasks, 0..1000", least=0, most=1000),
    ]
    records_in_per_s: Annotated[
        Floats, Column("J V", "records/s", "window mean, summed over subtasks", least=0)
    ]
    records_out_per_s: Annotated[
        Floats, Column("J V", "records/s", "window mean, summed over subtasks", least=0)
    ]
    busy_ms_per_s: Annotated[
        Floats,
        Column("J V", "ms/s", "window mean, mean over subtasks, 0..1000", least=0, most=1000),
    ]
    busy_max_ms_per_s: Annotated[
        Floats, Column("J V", "ms/s", "window mean, hottest subtask, 0..1000", least=0, most=1000)
    ]
    busy_accumulated_ms_per_s: Annotated[
        Floats, Column("J V", "ms/s", "window mean, summed over subtasks", least=0)
    ]
    backpressured_ms_per_s: Annotated[
        Floats,
        Column("J V", "ms/s", "window mean, mean over subtasks, 0..1000", least=0, most=1000),
    ]
    idle_ms_per_s: Annotated[
        Floats,
        Column("J V", "ms/s", "window mean, mean over subtasks, 0..1000", least=0, most=1000),
    ]
    cache_hit_rate: Annotated[Floats, Column("J V", "0..1", "window mean, 0..1", least=0, most=1)]
    state_read_latency_ms: Annotated[
        Floats, Column("J V", "ms", "window mean of one state read", least=0)
    ]
    state_write_latency_ms: Annotated[
        Floats, Column("J V", "ms", "window mean of one state write", least=0)
    ]
    pending_growth_per_s: Annotated[
        Floats, Column("J V", "records/s", "source: growth of the backlog over the window")
    ]

    def __len__(self) -> int:
        return len(self.topology)

    def take(self, jobs: Ints, topology: Topology | None = None) -> MetricsSnapshot:
        """Copy some of the jobs.

        Args:
            jobs: (n,) rows.
            topology: of these jobs; None: it is made, which takes longer than all the rest.

        Returns:
            A snapshot of n jobs with copies of the values.
        """
        # Copies: a view would keep the whole batch alive.
        values = {name: getattr(self, name)[jobs] for name in PER_JOB + PER_VERTEX}
        return MetricsSnapshot(topology=topology or self.topology.take(jobs), **values)

    def kept(self, key: object) -> object | None:
        """Return a quantity derived from this snapshot, if it was kept.

        Args:
            key: Names the quantity, together with every argument it depends on.

        Returns:
            The quantity under the key; None where none was kept.
        """
        return self._found.get(key)

    def keep(self, key: object, found: T) -> T:
        """Keep a quantity derived from this snapshot, so that it is computed once.

        Args:
            key: As `kept` takes it.
            found: The quantity, which must not be written into from now on.

        Returns:
            The same quantity.
        """
        self._found[key] = found
        return found

    @cached_property
    def _found(self) -> dict[object, object]:
        """Derived quantities of the snapshot; a copy with other values starts without any."""
        return {}

    @cached_property
    def arrays(self) -> SnapshotArrays:
        """The snapshot for compiled code."""
        return _packed(self)

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            """Make the view of a metric of a snapshot of blocks when it is first read."""
            known = self.__dict__
            if "arrays" not in known:
                raise AttributeError(name)
            view = known[name] = _viewed(known["arrays"], name)
            return view

    def __reduce__(self) -> tuple[object, tuple[Topology, SnapshotArrays]]:
        return snapshot_of_arrays, (self.topology, self.arrays)

    def job(self, job: int) -> JobSnapshot:
        """Return one job with named access.

        Returns:
            A view of the row, its values by name.
        """
        return JobSnapshot(self, job)

    @property
    def running(self) -> Bools:
        """True for jobs that are RUNNING, (J,)."""
        return np.asarray(self.status == RUNNING)


SNAPSHOT_METRICS = columns_of(MetricsSnapshot)
"""The table of metrics; its order is the order of the fields."""

PER_JOB = tuple(name for name, _, column in SNAPSHOT_METRICS if column.axes == "J")
PER_VERTEX = tuple(name for name, _, column in SNAPSHOT_METRICS if column.axes == "J V")

INTEGERS = tuple(name for name, dtype, _ in SNAPSHOT_METRICS if dtype == np.int64)
"""Metrics that are whole numbers and always known."""

MOMENTS = ("t_s", "running_since_s", "counted_s", "resumed_from_s")
"""Metrics that are moments on the collector's clock; all others in seconds are durations."""

CONFIGURATION = ("parallelism", "memory_level")
"""The columns of the running configuration."""

JOB_FLOATS = tuple(name for name in PER_JOB if name not in INTEGERS)
VERTEX_FLOATS = tuple(name for name in PER_VERTEX if name not in INTEGERS)


JOB: ColumnIndex = indices("JOB", JOB_FLOATS)
"""Place of each metric in `SnapshotArrays.job`: `seen.job[JOB.latency_p95_s]` is (J,)."""

VERTEX: ColumnIndex = indices("VERTEX", VERTEX_FLOATS)
"""Place of each metric in `SnapshotArrays.vertex`: `seen.vertex[VERTEX.state_mib]` is (J, V)."""

_IN_JOB = {name: place for place, name in enumerate(JOB_FLOATS)}
_IN_VERTEX = {name: place for place, name in enumerate(VERTEX_FLOATS)}


def snapshot_of_arrays(topology: Topology, arrays: SnapshotArrays) -> MetricsSnapshot:
    """Wrap blocks of metrics as a snapshot, whose metrics are views of them.

    Args:
        topology: The jobs.
        arrays: Their metrics; the snapshot shares them.

    Returns:
        The snapshot; its `arrays` are those given.
    """
    # Past the constructor, which would make forty views that few callers read.
    snapshot = object.__new__(MetricsSnapshot)
    snapshot.__dict__.update(topology=topology, arrays=arrays, _found={})
    return snapshot


def _viewed(arrays: SnapshotArrays, name: str) -> Ints | Floats:
    """Return the view of one metric of the blocks, (J,) or (J, V)."""
    found: Ints | Floats
    if (place := _IN_VERTEX.get(name)) is not None:
        found = arrays.vertex[place]
    elif (place := _IN_JOB.get(name)) is not None:
        found = arrays.job[place]
    elif name in INTEGERS:
        found = getattr(arrays, name)
    else:
        raise AttributeError(f"a snapshot has no {name!r}")
    return found


def unknown_snapshot(topology: Topology) -> MetricsSnapshot:
    """Make a snapshot of jobs without any known values, for a collector to fill.

    Args:
        topology: J jobs of at most V vertices.

    Returns:
        Floats are NaN, jobs RUNNING with no subtasks and no managed memory. Its arrays may be
        written until it is handed on.
    """
    jobs, shape = len(topology), (len(topology), topology.max_vertices)
    arrays = SnapshotArrays(
        np.full(jobs, RUNNING, np.int64),
        np.zeros(shape, np.int64),
        np.full(shape, NO_MEMORY, np.int64),
        np.full((len(JOB_FLOATS), jobs), np.nan),
        np.full((len(VERTEX_FLOATS), *shape), np.nan),
    )
    return snapshot_of_arrays(topology, arrays)


def _packed(snapshot: MetricsSnapshot) -> SnapshotArrays:
    """Copy the metrics of a snapshot that was made from single arrays into blocks."""

    def block(names: Sequence[str], shape: tuple[int, ...]) -> Floats:
        values = np.empty((len(names), *shape))
        for place, name in enumerate(names):
            values[place] = getattr(snapshot, name)
        return values

    return SnapshotArrays(
        np.array(snapshot.status, np.int64),
        np.array(snapshot.parallelism, np.int64, order="C"),
        np.array(snapshot.memory_level, np.int64, order="C"),
        block(JOB_FLOATS, snapshot.status.shape),
        block(VERTEX_FLOATS, snapshot.parallelism.shape),
    )


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """One job of a snapshot: values by name, None where unknown."""

    batch: MetricsSnapshot
    index: int

    @property
    def vertices(self) -> tuple[str, ...]:
        """Vertex names in topological order."""
        return self.batch.topology.names(self.index)

    @property
    def status(self) -> Status:
        """Status of the job."""
        return Status(int(self.batch.status[self.index]))

    def get(self, name: str) -> float | None:
        """Return a per-job metric; None where unknown.

        Returns:
            The value, in the metric's own unit.
        """
        if name not in PER_JOB:
            raise KeyError(name)
        return _known(getattr(self.batch, name)[self.index])

    def vertex(self, vertex: str, name: str) -> float | None:
        """Return a per-vertex metric; None where unknown.

        Returns:
            The value, in the metric's own unit.
        """
        if name not in PER_VERTEX:
            raise KeyError(name)
        # Columns of a batch are padded: names give the place in this job's row.
        column = self.vertices.index(vertex)
        return _known(getattr(self.batch, name)[self.index, column])


def _known(value: SupportsFloat) -> float | None:
    number = float(value)
    return None if np.isnan(number) else number
