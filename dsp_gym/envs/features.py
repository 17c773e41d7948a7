"""The features of the observation: one compiled function each, in the order of the flat vector.

To add one, write a function after the last of its kind: its name is the feature's name, its first
line the sentence of the documentation (so it is a noun phrase), its place in the file the index.
Sizes, spaces, tables and the encoder follow. Features are ratios, seconds and logarithms, so that
one policy can serve any job. The encoder writes an unknown feature of a vertex (NaN) as 0 and clips
every value to +-10.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar, cast

import numpy as np
from numba import config
from numpy.typing import NDArray

from dsp_gym.arrays import Bools, ColumnIndex, Floats, Floats32, indices
from dsp_gym.compiling import njit
from dsp_gym.job.tables import SINK, SOURCE
from dsp_gym.loop.rates import RATES
from dsp_gym.loop.snapshot import (
    JOB_FLOATS,
    RUNNING,
    VERTEX,
    VERTEX_FLOATS,
    SnapshotArrays,
)
from dsp_gym.loop.topology import JobFacts
from dsp_gym.numba_handles import Handle, Handles

LIMIT = 10.0
"""Largest absolute value of a feature."""


class Feature(NamedTuple):
    """One row of the table of features."""

    name: str
    unit: str
    about: str  # one sentence
    compute: Callable[..., float]  # compiled


class Vertex(Protocol):
    """One vertex of one snapshot, as a feature sees it; NaN is unknown.

    Every metric of a vertex stands under its name in `MetricsSnapshot`, such as `busy_ms_per_s`.
    """

    # from the job file
    kind: float  # SOURCE, OPERATOR, SINK
    min_parallelism: float
    max_parallelism: float
    levels: float  # memory levels of the job
    level_0_mib: float  # managed memory of one subtask at level 0
    hot: float  # key groups on the fullest subtask over the mean
    # running configuration
    parallelism: float
    memory_level: float
    # DS2's model of the snapshot
    true_rate_per_task: float  # records/s
    selectivity: float
    demand: float  # records/s
    optimal: float  # fractional parallelism
    # the encoder's memory
    last_hit_rate: float  # last known one, this snapshot's included
    parallelism_before: float  # of the configuration before the running one
    memory_level_before: float
    hit_rate_before: float  # last known under the configuration before
    read_latency_before: float  # the same, as the feature `read_latency`
    # of the whole job
    job_cores: float  # requested by all vertices but sources

    def __getattr__(self, name: str) -> float: ...


class Job(Protocol):
    """One job of one snapshot, as a feature sees it; NaN is unknown.

    Every metric of a job stands under its name in `MetricsSnapshot`, such as `latency_p95_s`.
    """

    status: float
    slo_s: float  # bound on the p95 latency, from the job file
    # sums over the vertices
    source_rate: float  # records/s that the sources emit
    backlog: float  # records
    backlog_growth: float  # records/s
    cores: float  # requested by all vertices but sources
    mib: float  # requested by all vertices but sources
    bottleneck: float  # largest known `wanted` of a vertex; 0: none is known
    # the encoder's memory
    rate_before: float  # source rate of the snapshot before; of this one, if it is the first
    rate_10min: float  # mean of about 10 minutes
    rate_60min: float  # mean of about an hour

    def __getattr__(self, name: str) -> float: ...


VERTEX_VALUES = (*VERTEX_FLOATS, *Vertex.__annotations__)
JOB_VALUES = (*JOB_FLOATS, *Job.__annotations__)
"""The values that a feature can read; metrics come first, in the order of the snapshot's blocks."""

VERTEX_MEMORY_COLUMNS = (
    "parallelism",
    "level",
    "hit_rate",
    "read_latency",
    "parallelism_before",
    "level_before",
    "hit_rate_before",
    "read_latency_before",
)
"""The encoder's memory of each vertex."""

JOB_MEMORY_COLUMNS = ("rate", "rate_10min", "rate_60min", "t_s")
"""The encoder's memory of each job."""

VERTEX_MEMORY: ColumnIndex = indices("VERTEX_MEMORY", VERTEX_MEMORY_COLUMNS)
JOB_MEMORY: ColumnIndex = indices("JOB_MEMORY", JOB_MEMORY_COLUMNS)
"""Place of each column of the memory."""


_VERTEX_NAMES = np.dtype([(name, np.float64) for name in VERTEX_VALUES])
_JOB_NAMES = np.dtype([(name, np.float64) for name in JOB_VALUES])


class EncoderMemory(NamedTuple):
    """The encoder's memory of J jobs, NaN: no value yet; and the place of their features."""

    vertex: Floats  # (J, V, len(VERTEX_MEMORY_COLUMNS))
    job: Floats  # (J, len(JOB_MEMORY_COLUMNS))
    job_at: int  # column of the observation at which the job's features begin


class EncoderRoom(NamedTuple):
    """Scratch for rates and the inputs of features, one per thread.

    `vertex` and `job` are views of `vertex_values` and `job_values` with names: the same memory.
    """

    emitted: Floats  # (V,), as `dsp_gym.loop.rates.traverse` takes it

    vertex_values: Floats  # (len(VERTEX_VALUES),)
    vertex: NDArray[np.void]  # (1,)
    job_values: Floats  # (len(JOB_VALUES),)
    job: NDArray[np.void]  # (1,)

    @classmethod
    def of(cls, vertices: int) -> EncoderRoom:
        """Allocate room for jobs of so many vertices.

        Returns:
            Arrays with undefined content.
        """
        vertex_values, job_values = np.empty(len(VERTEX_VALUES)), np.empty(len(JOB_VALUES))
        # A structured view gives features names (`vertex.busy_ms_per_s`) and the encoder a plain
        # array to fill in one loop; numba reads both without a copy.
        vertex, job = vertex_values.view(_VERTEX_NAMES), job_values.view(_JOB_NAMES)
        if vars(config)["DISABLE_JIT"]:  # plain Python has no attributes otherwise
            vertex, job = vertex.view(np.recarray), job.view(np.recarray)
        return cls(np.empty(vertices), vertex_values, vertex, job_values, job)


class _Scratch(threading.local):
    """Rooms of one thread, by number of vertices."""

    def __init__(self) -> None:
        self.rooms = Handles()


_SCRATCH = _Scratch()


def room_of_thread(vertices: int) -> Handle[EncoderRoom]:
    """Return the calling thread's scratch, allocated once.

    Returns:
        Room for the features of a job of so many vertices.
    """
    return _SCRATCH.rooms.of(vertices, lambda: EncoderRoom.of(vertices))


VERTEX_FEATURES: dict[str, Feature] = {}
"""Features of every vertex by name, in order."""

JOB_FEATURES: dict[str, Feature] = {}
"""Features of the job by name, in order."""

Function = TypeVar("Function", bound=Callable[..., float])


def vertex_feature(unit: str) -> Callable[[Function], Function]:
    """Add the decorated function of a `Vertex`, whose value has this unit, to the features.

    Returns:
        A decorator that adds a row with the compiled function to `VERTEX_FEATURES` and returns the
        function unchanged.
    """
    return _into(VERTEX_FEATURES, unit)


def job_feature(unit: str) -> Callable[[Function], Function]:
    """Add the decorated function of a `Job`, whose value has this unit, to the features.

    Returns:
        A decorator that adds a row with the compiled function to `JOB_FEATURES` and returns the
        function unchanged.
    """
    return _into(JOB_FEATURES, unit)


def _into(table: dict[str, Feature], unit: str) -> Callable[[Function], Function]:
    def add(function: Function) -> Function:
        name, about = function.__name__, (function.__doc__ or "").partition("\n")[0]
        if name in VERTEX_FEATURES or name in JOB_FEATURES:
            raise ValueError(
                f"there are two features named {name!r}; a name stands for one of them"
            )
        if not about:
            raise ValueError(
                f"feature {name!r} has no docstring; its first line is the documentation"
            )
        table[name] = Feature(name, unit, about, njit(nogil=True)(function))
        return function

    return add


@njit(cache=True, nogil=True)
def _log(x: float, base: float, scale: float, floor: float) -> float:
    return float(np.log(max(x / scale, floor)) / np.log(base))


@njit(cache=True, nogil=True)
def _latency(milliseconds: float) -> float:
    return 0.0 if np.isnan(milliseconds) else _log(milliseconds, 10.0, 0.01, 1e-3)


@njit(cache=True, nogil=True)
def _trend(rate: float, before: float) -> float:
    return _log(rate, 2.0, before, 1e-3) if rate > 0.0 else 0.0


# Features of every vertex.


@vertex_feature("flag")
def is_source(vertex: Vertex) -> float:
    """1 for a source."""
    return 1.0 if vertex.kind == SOURCE else 0.0


@vertex_feature("flag")
def is_sink(vertex: Vertex) -> float:
    """1 for a sink."""
    return 1.0 if vertex.kind == SINK else 0.0


@vertex_feature("flag")
def is_scalable(vertex: Vertex) -> float:
    """1 where parallelism can change."""
    return 1.0 if vertex.min_parallelism < vertex.max_parallelism else 0.0


@vertex_feature("flag")
def is_stateful(vertex: Vertex) -> float:
    """1 where RocksDB reports state."""
    return 0.0 if np.isnan(vertex.state_mib) else 1.0


@vertex_feature("share")
def busy(vertex: Vertex) -> float:
    """Busy share, mean over subtasks."""
    return vertex.busy_ms_per_s / 1000.0


@vertex_feature("share")
def busy_max(vertex: Vertex) -> float:
    """Busy share of the hottest subtask."""
    return vertex.busy_max_ms_per_s / 1000.0


@vertex_feature("share")
def backpressured(vertex: Vertex) -> float:
    """Backpressured share, mean over subtasks."""
    return vertex.backpressured_ms_per_s / 1000.0


@vertex_feature("share")
def idle(vertex: Vertex) -> float:
    """Idle share, mean over subtasks."""
    return vertex.idle_ms_per_s / 1000.0


@vertex_feature("log2")
def wanted(vertex: Vertex) -> float:
    """DS2's fractional parallelism over the running one; 0 where unknown or fixed."""
    if vertex.min_parallelism < vertex.max_parallelism and vertex.optimal > 0:
        return float(_log(vertex.optimal, 2.0, float(vertex.parallelism), 1e-3))
    return np.nan


@vertex_feature("log10")
def selectivity(vertex: Vertex) -> float:
    """Records out per record in."""
    if vertex.records_in_per_s > 0:
        return float(_log(vertex.records_out_per_s / vertex.records_in_per_s, 10.0, 1.0, 1e-6))
    return 0.0


@vertex_feature("share")
def observed_over_true(vertex: Vertex) -> float:
    """Records in over the true processing rate of the vertex."""
    if vertex.records_in_per_s > 0 and vertex.true_rate_per_task > 0:
        return vertex.records_in_per_s / (vertex.true_rate_per_task * vertex.parallelism)
    return 0.0


@vertex_feature("share")
def hit_rate(vertex: Vertex) -> float:
    """Cache hit rate; 1 where none was ever reported."""
    return 1.0 if np.isnan(vertex.last_hit_rate) else vertex.last_hit_rate


@vertex_feature("log10")
def read_latency(vertex: Vertex) -> float:
    """State read latency in 10 us."""
    return float(_latency(vertex.state_read_latency_ms))


@vertex_feature("log10")
def write_latency(vertex: Vertex) -> float:
    """State write latency in 10 us."""
    return float(_latency(vertex.state_write_latency_ms))


@vertex_feature("log2")
def state_per_task(vertex: Vertex) -> float:
    """1 + live state per subtask over the managed memory of level 0."""
    if np.isnan(vertex.state_mib):
        return 0.0
    per_task = vertex.state_mib / vertex.parallelism
    return float(np.log2(1.0 + per_task / vertex.level_0_mib))


@vertex_feature("log2")
def parallelism(vertex: Vertex) -> float:
    """Parallelism over 4."""
    return float(np.log2(vertex.parallelism / 4.0))


@vertex_feature("share")
def parallelism_share(vertex: Vertex) -> float:
    """Parallelism over its upper bound."""
    return vertex.parallelism / vertex.max_parallelism


@vertex_feature("share")
def memory_level(vertex: Vertex) -> float:
    """Memory level over the highest; -1 over it without managed memory."""
    return vertex.memory_level / max(1.0, vertex.levels - 1.0)


@vertex_feature("log2")
def last_move(vertex: Vertex) -> float:
    """Parallelism over the one before."""
    return float(np.log2(vertex.parallelism / vertex.parallelism_before))


@vertex_feature("levels")
def last_level_change(vertex: Vertex) -> float:
    """Memory level minus the one before."""
    return vertex.memory_level - vertex.memory_level_before


@vertex_feature("share")
def hit_rate_before(vertex: Vertex) -> float:
    """Cache hit rate under the configuration before; 1 where unknown."""
    return 1.0 if np.isnan(vertex.hit_rate_before) else vertex.hit_rate_before


@vertex_feature("log10")
def read_latency_before(vertex: Vertex) -> float:
    """State read latency in 10 us under the configuration before."""
    return 0.0 if np.isnan(vertex.read_latency_before) else vertex.read_latency_before


@vertex_feature("ratio")
def hot_share(vertex: Vertex) -> float:
    """Key groups on the fullest subtask over the mean, minus 1."""
    return vertex.hot - 1.0


@vertex_feature("share")
def cost_share(vertex: Vertex) -> float:
    """Share of the job's requested cores; 0 for a source."""
    if vertex.kind == SOURCE:
        return 0.0
    return vertex.parallelism / vertex.job_cores


# Features of the job.


@job_feature("flag")
def is_running(job: Job) -> float:
    """1 while the job runs."""
    return 1.0 if job.status == RUNNING else 0.0


@job_feature("share")
def window_fill(job: Job) -> float:
    """Share of the metrics window covered since the last restart."""
    return job.window_fill


@job_feature("log2")
def rate_trend(job: Job) -> float:
    """Source rate over that of the decision before."""
    return float(_trend(job.source_rate, job.rate_before))


@job_feature("log2")
def rate_trend_10min(job: Job) -> float:
    """Source rate over its mean of about 10 minutes."""
    return float(_trend(job.source_rate, job.rate_10min))


@job_feature("log2")
def rate_trend_60min(job: Job) -> float:
    """Source rate over its mean of about an hour."""
    return float(_trend(job.source_rate, job.rate_60min))


@job_feature("log10")
def backlog(job: Job) -> float:
    """1 + pending records in seconds of arrivals."""
    if job.source_rate > 0.0:
        return float(np.log10(1.0 + job.backlog / job.source_rate))
    if not np.isnan(job.rate_before):
        return float(np.log10(1.0 + job.backlog / max(job.rate_before, 1e-9)))
    return 0.0


@job_feature("ratio")
def backlog_growth(job: Job) -> float:
    """Growth of the backlog over the source rate."""
    if job.source_rate > 0.0:
        return job.backlog_growth / job.source_rate
    return 0.0


@job_feature("log10")
def latency(job: Job) -> float:
    """p95 latency over its bound."""
    if np.isnan(job.latency_p95_s):
        return 0.0
    return float(_log(job.latency_p95_s, 10.0, job.slo_s, 1e-4))


@job_feature("log10")
def latency_bound(job: Job) -> float:
    """Latency bound in seconds."""
    return float(np.log10(job.slo_s))


@job_feature("half hours")
def since_rescale(job: Job) -> float:
    """Time since the job last came up, at most 1."""
    return min(1.0, (job.t_s - job.running_since_s) / 1800.0)


@job_feature("100 s")
def outage(job: Job) -> float:
    """Last outage; 0.5 before there was one."""
    return 0.5 if np.isnan(job.outage_s) else job.outage_s / 100.0


@job_feature("log2")
def bottleneck(job: Job) -> float:
    """Largest `wanted` of the job's vertices."""
    return job.bottleneck


@job_feature("log2")
def cores(job: Job) -> float:
    """Requested cores over 8."""
    return float(np.log2(max(job.cores, 0.5) / 8.0))


@job_feature("log2")
def memory_per_core(job: Job) -> float:
    """Requested GiB per core."""
    return float(np.log2(max(job.mib, 1.0) / 1024.0 / max(job.cores, 0.5)))


# The encoder: fills in the inputs of features, vertex by vertex, and calls the functions above.


@njit(nogil=True)
def _clipped(value: float) -> float:
    return min(max(value, -LIMIT), LIMIT)


@njit(nogil=True)
def _known(value: float) -> float:
    return 0.0 if np.isnan(value) else min(max(value, -LIMIT), LIMIT)


def _writer(
    table: dict[str, Feature], bounded: Callable[[float], float]
) -> Callable[[object, Floats32], None]:
    """Compile a function that writes every feature of a table to its place.

    Numba cannot loop over different functions (a tuple of them has no common type), so the calls
    are written out, one line each; `bounded` applies to every value.
    """
    calls = [f"    out[{index}] = _bounded({name}(seen))" for index, name in enumerate(table)]
    # exec of our own names only: no text from outside gets here.
    scope: dict[str, Callable[..., float]] = {row.name: row.compute for row in table.values()}
    scope["_bounded"] = bounded
    exec("\n".join(["def _write(seen, out):", *calls]), scope)
    done = cast(Callable[[object, Floats32], None], njit(nogil=True)(scope["_write"]))
    return done


_write_vertex, _write_job = _writer(VERTEX_FEATURES, _known), _writer(JOB_FEATURES, _clipped)
_wanted = VERTEX_FEATURES["wanted"].compute

FV, FJ = len(VERTEX_FEATURES), len(JOB_FEATURES)
"""Number of features of a vertex and of a job."""


@njit(cache=True, nogil=True, borrows=True)
def encode_rows(
    chosen: Bools,
    t: JobFacts,
    seen: SnapshotArrays,
    rates: Floats,
    low: int,
    high: int,
    memory: EncoderMemory,
    room: EncoderRoom,
    out: Floats32,
) -> None:
    """Write the features of the chosen ones of jobs low..high-1, and update the encoder's memory.

    Args:
        chosen: (J,) jobs to encode.
        t: facts of the J jobs.
        seen: the snapshot.
        rates: (len(RATES), J, V) DS2's rates of the snapshot.
        low: first job.
        high: one past the last job.
        memory: memory of the encoder, changed in place.
        room: scratch, one per thread.
        out: (J, size) observations, changed in place.
    """
    vertex, job = room.vertex[0], room.job[0]
    for j in range(low, high):
        if not chosen[j]:
            continue
        k = t.row[j]  # the job file
        # Metrics lie first in the values, in the order of the blocks: copied without naming them.
        for i in range(seen.job.shape[0]):
            room.job_values[i] = seen.job[i, j]
        job.status = seen.status[j]
        job.slo_s = t.slo_s[k]
        _add_up(j, t, seen, job)
        job.bottleneck = 0.0
        for v in range(t.n[k]):
            m = memory.vertex[j, v]
            for i in range(seen.vertex.shape[0]):
                room.vertex_values[i] = seen.vertex[i, j, v]
            vertex.parallelism = seen.parallelism[j, v]
            vertex.memory_level = seen.memory_level[j, v]
            _remember_vertex(vertex, m)
            _fill_vertex(vertex, t, k, v, rates, j)
            vertex.job_cores = job.cores
            _write_vertex(vertex, out[j, v * FV : (v + 1) * FV])
            # The bottleneck is the largest `wanted`; 0 stands for none yet.
            more = _wanted(vertex)
            if not np.isnan(more):
                job.bottleneck = max(job.bottleneck, more) if job.bottleneck != 0.0 else more
        _remember_rate(job, memory.job[j])
        _write_job(job, out[j, memory.job_at : memory.job_at + FJ])


@njit(cache=True, nogil=True)
def _fill_vertex(vertex: Vertex, t: JobFacts, k: int, v: int, rates: Floats, j: int) -> None:
    """Write facts (job file k) and rates (job j) of a vertex of known parallelism."""
    vertex.kind = t.kind[k, v]
    vertex.min_parallelism = t.min_parallelism[k, v]
    vertex.max_parallelism = t.max_parallelism[k, v]
    vertex.levels = t.levels[k]
    vertex.level_0_mib = t.subtask_mib[k, 1] - t.subtask_mib[k, 0]
    vertex.hot = t.hot[k, v, int(vertex.parallelism)]
    vertex.true_rate_per_task = rates[RATES.true_rate_per_task, j, v]
    vertex.selectivity = rates[RATES.selectivity, j, v]
    vertex.demand = rates[RATES.demand, j, v]
    vertex.optimal = rates[RATES.optimal, j, v]


@njit(cache=True, nogil=True)
def _add_up(j: int, t: JobFacts, seen: SnapshotArrays, job: Job) -> None:
    """Sum up the vertices of job j."""
    k = t.row[j]
    read = seen.vertex[VERTEX.records_in_per_s, j]
    pending = seen.vertex[VERTEX.pending_records, j]
    growth = seen.vertex[VERTEX.pending_growth_per_s, j]
    rate = backlog = grows = cores = mib = 0.0
    for v in range(t.n[k]):
        if t.kind[k, v] == SOURCE:
            if not np.isnan(read[v]):
                rate += read[v]
            if not np.isnan(pending[v]):
                backlog += pending[v]
            if not np.isnan(growth[v]):
                grows += growth[v]
        else:
            cores += seen.parallelism[j, v]
            mib += seen.parallelism[j, v] * t.subtask_mib[k, seen.memory_level[j, v] + 1]
    job.source_rate, job.backlog, job.backlog_growth = rate, backlog, grows
    job.cores, job.mib = cores, mib


@njit(cache=True, nogil=True)
def _remember_vertex(vertex: Vertex, m: Floats) -> None:
    """Keep the running configuration in the memory `m`, and the one before when it changes."""
    p, level = vertex.parallelism, vertex.memory_level
    if np.isnan(m[VERTEX_MEMORY.parallelism]):
        # First snapshot: the configuration before is the running one.
        m[VERTEX_MEMORY.parallelism_before], m[VERTEX_MEMORY.level_before] = p, level
    elif m[VERTEX_MEMORY.parallelism] != p or m[VERTEX_MEMORY.level] != level:
        m[VERTEX_MEMORY.parallelism_before] = m[VERTEX_MEMORY.parallelism]
        m[VERTEX_MEMORY.level_before] = m[VERTEX_MEMORY.level]
        m[VERTEX_MEMORY.hit_rate_before] = m[VERTEX_MEMORY.hit_rate]
        m[VERTEX_MEMORY.read_latency_before] = m[VERTEX_MEMORY.read_latency]
    m[VERTEX_MEMORY.parallelism], m[VERTEX_MEMORY.level] = p, level
    if not np.isnan(vertex.state_read_latency_ms):
        m[VERTEX_MEMORY.read_latency] = _latency(vertex.state_read_latency_ms)
    if not np.isnan(vertex.cache_hit_rate):
        m[VERTEX_MEMORY.hit_rate] = vertex.cache_hit_rate
    vertex.last_hit_rate = m[VERTEX_MEMORY.hit_rate]
    vertex.parallelism_before = m[VERTEX_MEMORY.parallelism_before]
    vertex.memory_level_before = m[VERTEX_MEMORY.level_before]
    vertex.hit_rate_before = m[VERTEX_MEMORY.hit_rate_before]
    vertex.read_latency_before = m[VERTEX_MEMORY.read_latency_before]


@njit(cache=True, nogil=True)
def _remember_rate(job: Job, g: Floats) -> None:
    """Follow the source rate in the memory `g` of one job."""
    rate = job.source_rate
    if rate > 0.0 and np.isnan(g[JOB_MEMORY.rate]):
        g[JOB_MEMORY.rate] = g[JOB_MEMORY.rate_10min] = g[JOB_MEMORY.rate_60min] = rate
    elapsed = 0.0 if np.isnan(g[JOB_MEMORY.t_s]) else job.t_s - g[JOB_MEMORY.t_s]
    g[JOB_MEMORY.t_s] = job.t_s
    job.rate_before = g[JOB_MEMORY.rate]
    if rate > 0.0:
        # Exponential means: after `elapsed` seconds a share exp(-elapsed / span) of the old
        # remains.
        ten, sixty = g[JOB_MEMORY.rate_10min], g[JOB_MEMORY.rate_60min]
        g[JOB_MEMORY.rate_10min] += (rate - ten) * (1.0 - math.exp(-elapsed / 600.0))
        g[JOB_MEMORY.rate_60min] += (rate - sixty) * (1.0 - math.exp(-elapsed / 3600.0))
        g[JOB_MEMORY.rate] = rate
    job.rate_10min, job.rate_60min = g[JOB_MEMORY.rate_10min], g[JOB_MEMORY.rate_60min]
