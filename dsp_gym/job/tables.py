"""Job files compiled to arrays: one row per job, one column per vertex in topological order.

The simulation and the analytic capacity read only these; forms of efficiency, popularity and skew
become lookup tables here, so that hot loops know no cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dsp_gym.arrays import Floats, Ints
from dsp_gym.job import cache, scaling
from dsp_gym.job.memory import flink_split, justin_split, level_mib
from dsp_gym.job.spec import MAX_INPUTS, JobSpec, Vertex

SOURCE, OPERATOR, SINK = 0, 1, 2
NO_WINDOW, TUMBLING, SLIDING, SESSION = 0, 1, 2, 3
KINDS = {"source": SOURCE, "operator": OPERATOR, "sink": SINK}
WINDOWS = {"tumbling": TUMBLING, "sliding": SLIDING, "session": SESSION}
MIB = 1024.0 * 1024.0


class Mechanisms(NamedTuple):
    """Which mechanisms of the model are on; all of them unless a study turns one off."""

    efficiency: bool = True
    cache: bool = True
    skew: bool = True
    windows: bool = True
    contention: bool = True
    backlog: bool = True


class JobTables(NamedTuple):
    """K jobs of at most V vertices. Shapes: (K, V) unless said; times in s, memory in MiB."""

    n: Ints  # (K,) vertices of the job
    kind: Ints  # SOURCE, OPERATOR, SINK; -1 beyond n
    upstream: Ints  # (K, V, MAX_INPUTS) column of the input vertex, -1 = none
    in_share: Floats  # (K, V, MAX_INPUTS) share of the vertex's input that comes over this edge
    ratio: Floats  # input records per record of job load (DS2's cumulated selectivity)
    source_share: Floats  # share of the job's load a source reads, 0 for others
    selectivity: Floats
    cpu_s: Floats
    reads: Floats  # state reads per record, sliding panes multiplied in
    writes: Floats
    read_hit_s: Floats
    read_miss_s: Floats
    write_s: Floats
    churn: Floats  # share of cached blocks replaced since
    index_hits: Floats  # cached lookups beside each data block
    keys: Floats
    entry_mib: Floats  # MiB per state entry, space factor included
    unshared_mib: Floats
    panes: Floats
    prefilled: Ints
    stateful: Ints
    window: Ints  # NO_WINDOW, TUMBLING, SLIDING, SESSION
    length_s: Floats
    slide_s: Floats
    min_parallelism: Ints
    max_parallelism: Ints  # what a policy may ask for: key groups, quota, fixed vertices
    key_groups: Ints
    partitions: Ints  # 0 = unknown
    start_parallelism: Ints
    start_level: Ints
    useful: Floats  # (K, V, P + 1) linear-equivalent tasks p * e(p)
    hot: Floats  # (K, V, P + 1) load of the hottest subtask over the mean, >= 1
    hit: Floats  # (K, V, G) hit rate over cache / working set on cache.GRID
    cache_mib: Floats  # (K, V, L + 1) block cache by level, column 0 = no managed memory
    write_factor: Floats  # (K, V, L + 1) write cost factor of a small MemTable
    memtable_mib: Floats  # (K, V, L + 1) MiB of state whose reads a MemTable serves
    miss_factor: Floats  # (K, V, P + 1) cost of a miss relative to a single subtask
    levels: Ints  # (K,)
    subtask_mib: Floats  # (K, L + 1) heap + network + managed by level
    buffer_records: Floats  # (K, V) per subtask
    slots: Ints  # (K,) per TaskManager
    tm_mib: Floats  # (K,)
    tm_cores: Floats  # (K,)
    contention: Floats  # (K,)
    slot_sharing: Ints  # (K,)
    rate_per_s: Floats  # (K,)
    has_log: Ints  # (K,)
    in_place: Ints  # (K,) rescale without redeploy
    outage_s: Floats  # (K, 3) p10, p50, p90
    savepoint_mib_s: Floats  # (K,)
    restore_mib_s: Floats  # (K,)
    slo_s: Floats  # (K,)
    core_hour: Floats  # (K,)
    gib_hour: Floats  # (K,)


def compile_jobs(specs: Sequence[JobSpec], mechanisms: Mechanisms | None = None) -> JobTables:
    """Arrays of the given jobs, padded to the largest."""
    mechanisms = mechanisms or Mechanisms()
    orders = [spec.topological_order() for spec in specs]
    size_v = max(len(order) for order in orders)
    size_p = max(_cap(spec, vertex) for spec in specs for vertex in spec.vertices)
    size_l = max(spec.memory.levels for spec in specs)
    tables = _blank(len(specs), size_v, size_p, size_l)
    for k, (spec, order) in enumerate(zip(specs, orders, strict=True)):
        _fill_job(tables, k, spec, mechanisms)
        _fill_graph(tables, k, order)
        for v, vertex in enumerate(order):
            _fill_vertex(tables, k, v, spec, vertex, mechanisms)
            if vertex.state is not None:
                _fill_state(tables, k, v, spec, vertex, mechanisms)
    return tables


def _blank(jobs: int, vertices: int, parallelism: int, levels: int) -> JobTables:
    """Tables of zeros; padding that is divided by is 1, absent columns are -1."""
    shapes: dict[str, tuple[int, ...]] = {
        "upstream": (jobs, vertices, MAX_INPUTS),
        "in_share": (jobs, vertices, MAX_INPUTS),
        "useful": (jobs, vertices, parallelism + 1),
        "hot": (jobs, vertices, parallelism + 1),
        "hit": (jobs, vertices, cache.GRID),
        "cache_mib": (jobs, vertices, levels + 1),
        "write_factor": (jobs, vertices, levels + 1),
        "memtable_mib": (jobs, vertices, levels + 1),
        "miss_factor": (jobs, vertices, parallelism + 1),
        "subtask_mib": (jobs, levels + 1),
        "outage_s": (jobs, 3),
    }
    per_job = {
        "n",
        "levels",
        "slots",
        "tm_mib",
        "tm_cores",
        "contention",
        "slot_sharing",
        "rate_per_s",
        "has_log",
        "savepoint_mib_s",
        "restore_mib_s",
        "slo_s",
        "core_hour",
        "gib_hour",
        "in_place",
    }
    filled = {"kind": -1, "upstream": -1, "start_level": -1}
    ones = {
        "useful",
        "hot",
        "hit",
        "write_factor",
        "miss_factor",
        "cpu_s",
        "keys",
        "panes",
        "slide_s",
    }
    arrays: dict[str, Any] = {}
    for name, annotation in JobTables.__annotations__.items():
        shape = shapes.get(name, (jobs,) if name in per_job else (jobs, vertices))
        dtype = np.int64 if "Ints" in str(annotation) else np.float64
        arrays[name] = np.full(shape, filled.get(name, 1 if name in ones else 0), dtype)
    return JobTables(**arrays)


def _cap(spec: JobSpec, vertex: Vertex) -> int:
    """Highest parallelism of a vertex: key groups and quota; sources and fixed vertices stay."""
    if vertex.kind == "source" or not vertex.scalable:
        return vertex.parallelism
    return min(vertex.max_parallelism, spec.max_parallelism_per_vertex)


def _fill_job(tables: JobTables, k: int, spec: JobSpec, on: Mechanisms) -> None:
    memory, tm, rescale = spec.memory, spec.taskmanager, spec.rescale
    tables.n[k] = len(spec.vertices)
    tables.levels[k] = memory.levels
    for level in range(-1, memory.levels):
        tables.subtask_mib[k, level + 1] = (
            memory.heap_mib + memory.network_mib + level_mib(memory.base_mib, level)
        )
    tables.slots[k], tables.tm_mib[k], tables.tm_cores[k] = tm.slots, tm.memory_mib, tm.cores
    tables.contention[k] = tm.contention if on.contention else 0.0
    tables.slot_sharing[k] = spec.slot_sharing
    tables.rate_per_s[k] = spec.source.rate_per_s
    tables.has_log[k] = spec.source.log and on.backlog
    tables.outage_s[k] = rescale.outage_s
    tables.in_place[k] = rescale.mode == "in_place"
    tables.savepoint_mib_s[k] = rescale.savepoint_mib_per_s
    tables.restore_mib_s[k] = rescale.restore_mib_per_s
    tables.slo_s[k] = spec.slo.latency_s
    tables.core_hour[k], tables.gib_hour[k] = spec.prices.core_hour, spec.prices.gib_hour


def _fill_graph(tables: JobTables, k: int, order: Sequence[Vertex]) -> None:
    """Edges, and the input each vertex gets per record of job load."""
    column = {vertex.name: v for v, vertex in enumerate(order)}
    sources = [vertex for vertex in order if vertex.kind == "source"]
    shares = [1 / len(sources) if s.share is None else s.share for s in sources]
    share_of = {s.name: share / sum(shares) for s, share in zip(sources, shares, strict=True)}
    for v, vertex in enumerate(order):
        if vertex.kind == "source":
            tables.source_share[k, v] = tables.ratio[k, v] = share_of[vertex.name]
            continue
        inflow = [
            tables.ratio[k, u] * order[u].selectivity
            for u in (column[edge.from_] for edge in vertex.inputs)
        ]
        tables.ratio[k, v] = sum(inflow)
        for i, edge in enumerate(vertex.inputs):
            tables.upstream[k, v, i] = column[edge.from_]
            tables.in_share[k, v, i] = inflow[i] / sum(inflow) if sum(inflow) > 0 else 1.0


def _fill_vertex(
    tables: JobTables, k: int, v: int, spec: JobSpec, vertex: Vertex, on: Mechanisms
) -> None:
    cap = _cap(spec, vertex)
    fixed = vertex.kind == "source" or not vertex.scalable
    tables.kind[k, v] = KINDS[vertex.kind]
    tables.buffer_records[k, v] = vertex.buffer_records or spec.buffer_records
    tables.selectivity[k, v] = vertex.selectivity
    tables.cpu_s[k, v] = vertex.cpu_us_per_record * 1e-6
    tables.min_parallelism[k, v] = cap if fixed else 1
    tables.max_parallelism[k, v] = cap
    tables.key_groups[k, v] = vertex.max_parallelism
    tables.partitions[k, v] = vertex.partitions or 0
    tables.start_parallelism[k, v] = vertex.parallelism
    tables.start_level[k, v] = spec.memory.start_level
    size_p = tables.useful.shape[2] - 1
    p = np.arange(1, size_p + 1)
    tables.useful[k, v, 1:] = (
        scaling.useful_tasks(vertex.efficiency, p) if on.efficiency else p.astype(float)
    )
    hashed = any(edge.ship == "HASH" for edge in vertex.inputs)
    if on.skew and hashed:
        tables.hot[k, v, 1:] = scaling.hottest_share(vertex, p)
    if vertex.efficiency.form == "few_keys":  # what is lost is not busy: the load is uneven
        tables.hot[k, v, 1:] *= p / tables.useful[k, v, 1:]
        tables.useful[k, v, 1:] = p
    tables.useful[k, v, 0], tables.hot[k, v, 0] = 0.0, 1.0


def _fill_state(
    tables: JobTables, k: int, v: int, spec: JobSpec, vertex: Vertex, on: Mechanisms
) -> None:
    state = vertex.state
    assert state is not None
    window = state.window if on.windows else None
    panes = 1.0
    if window is not None:
        tables.window[k, v] = WINDOWS[window.kind]
        tables.length_s[k, v] = window.length_s
        tables.slide_s[k, v] = window.slide_s or window.length_s
        panes = window.length_s / (window.slide_s or window.length_s)
    tables.stateful[k, v] = 1
    tables.panes[k, v] = panes
    tables.reads[k, v], tables.writes[k, v] = state.reads * panes, state.writes * panes
    tables.read_hit_s[k, v] = state.read_hit_us * 1e-6
    tables.read_miss_s[k, v] = state.read_miss_us * 1e-6 if on.cache else 0.0
    tables.write_s[k, v] = state.write_us * 1e-6
    tables.keys[k, v] = state.keys
    tables.entry_mib[k, v] = state.value_bytes * state.space_factor / MIB
    tables.unshared_mib[k, v] = state.unshared_mib
    tables.prefilled[k, v] = state.prefilled and window is None
    tables.hit[k, v] = cache.hit_curve(state.popularity, state.keys)
    tables.churn[k, v], tables.index_hits[k, v] = state.churn, state.index_hits
    others = np.arange(tables.miss_factor.shape[2] - 1)
    tables.miss_factor[k, v, 1:] = 1.0 + state.miss_contention * others
    for level in range(-1, spec.memory.levels):
        managed = level_mib(spec.memory.base_mib, level)
        memtable, cached = (
            justin_split(managed)
            if spec.memory.split == "justin"
            else flink_split(managed, writes=state.writes > 0)
        )
        tables.cache_mib[k, v, level + 1] = cached if on.cache else np.inf
        tables.memtable_mib[k, v, level + 1] = state.memtable_coverage * memtable
        tables.write_factor[k, v, level + 1] = cache.write_factor(
            memtable, state.small_memtable_penalty
        )
