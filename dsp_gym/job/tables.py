"""Job files compiled to arrays: one row per job, one column per vertex in topological order.

The simulation and the analytic capacity read only these; forms of efficiency, popularity and skew
become lookup tables here, so that hot loops need not distinguish them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field

from dsp_gym.arrays import Column, Floats, Ints, filled
from dsp_gym.config.model import ConfigModel
from dsp_gym.job import cache, scaling
from dsp_gym.job.memory import FLUSHED_AT, flink_split, justin_split, level_mib
from dsp_gym.job.spec import MAX_INPUTS, JobSpec, Vertex

SOURCE, OPERATOR, SINK = 0, 1, 2
NO_WINDOW, TUMBLING, SLIDING, SESSION = 0, 1, 2, 3
VERTEX_KINDS = {"source": SOURCE, "operator": OPERATOR, "sink": SINK}
WINDOWS = {"tumbling": TUMBLING, "sliding": SLIDING, "session": SESSION}
MIB = 1024.0 * 1024.0


class MechanismSwitches(ConfigModel):
    """Mechanisms of the model, each on unless a study turns it off: one row per switch.

    Compiled jobs, the simulation and configurations read a switch by its name.
    """

    efficiency: bool = Field(True, description="tasks lose efficiency with parallelism")
    contention: bool = Field(True, description="slots in use on one TaskManager slow each other")
    cache: bool = Field(True, description="block cache and its misses")
    warm_up: bool = Field(True, description="the cache is cold after a restart")
    skew: bool = Field(True, description="the hottest subtask limits a vertex")
    backlog: bool = Field(
        True, description="sources owe what they could not emit; off: a generator without a log"
    )
    windows: bool = Field(True, description="windows hold records and fire in bursts")
    rescale: bool = Field(True, description="a rescale takes a savepoint and an outage")
    service_noise: bool = Field(True, description="service times vary")


class JobTables(NamedTuple):
    """K jobs of at most V vertices, P subtasks, L memory levels; one row per column.

    Padding that is divided by starts as 1, columns that may be absent as -1.
    """

    n: Annotated[Ints, Column("K", "vertices", "of the job")]
    kind: Annotated[Ints, Column("K V", "", "SOURCE, OPERATOR, SINK; -1 beyond n", -1)]
    upstream: Annotated[Ints, Column("K V inputs", "column", "of the input vertex, -1 = none", -1)]
    in_share: Annotated[
        Floats, Column("K V inputs", "0..1", "of the vertex's input that comes over this edge")
    ]
    ratio: Annotated[
        Floats,
        Column("K V", "", "input records per record of job load (DS2's cumulated selectivity)"),
    ]
    source_share: Annotated[
        Floats, Column("K V", "0..1", "of the job's load a source reads, 0 for others")
    ]
    selectivity: Annotated[Floats, Column("K V", "", "records out per record in")]
    cpu_s: Annotated[Floats, Column("K V", "s", "per record, without state", 1)]
    reads: Annotated[
        Floats, Column("K V", "", "state reads per record, sliding panes multiplied in")
    ]
    writes: Annotated[
        Floats, Column("K V", "", "state writes per record, sliding panes multiplied in")
    ]
    read_hit_s: Annotated[Floats, Column("K V", "s", "of a read that hits the cache")]
    read_miss_s: Annotated[Floats, Column("K V", "s", "more where it misses")]
    write_s: Annotated[Floats, Column("K V", "s", "of a write")]
    churn: Annotated[Floats, Column("K V", "0..1", "share of cached blocks replaced since")]
    index_hits: Annotated[Floats, Column("K V", "", "cached lookups beside each data block")]
    keys: Annotated[Floats, Column("K V", "", "distinct keys", 1)]
    entry_mib: Annotated[Floats, Column("K V", "MiB", "per state entry, space factor included")]
    unshared_mib: Annotated[
        Floats, Column("K V", "MiB", "working set every subtask has for itself")
    ]
    panes: Annotated[Floats, Column("K V", "", "a record belongs to", 1)]
    prefilled: Annotated[Ints, Column("K V", "0, 1", "state is full from the start")]
    stateful: Annotated[Ints, Column("K V", "0, 1", "keeps keyed state")]
    window: Annotated[Ints, Column("K V", "", "NO_WINDOW, TUMBLING, SLIDING, SESSION")]
    length_s: Annotated[Floats, Column("K V", "s", "of the window")]
    slide_s: Annotated[Floats, Column("K V", "s", "of the window", 1)]
    min_parallelism: Annotated[Ints, Column("K V", "subtasks", "lowest a policy may ask for")]
    max_parallelism: Annotated[
        Ints, Column("K V", "subtasks", "highest: key groups, quota, fixed vertices")
    ]
    key_groups: Annotated[Ints, Column("K V", "key groups", "Flink's max parallelism")]
    partitions: Annotated[Ints, Column("K V", "partitions", "of a source, 0 = unknown")]
    start_parallelism: Annotated[Ints, Column("K V", "subtasks", "of the job file")]
    start_level: Annotated[Ints, Column("K V", "level", "of the job file", -1)]
    useful: Annotated[Floats, Column("K V P+1", "subtasks", "linear-equivalent, p * e(p)", 1)]
    hot: Annotated[
        Floats, Column("K V P+1", ">= 1", "load of the hottest subtask over the mean", 1)
    ]
    hit: Annotated[
        Floats,
        Column("K V L+1 grid", "0..1", "hit rate at cache / working set of cache.CURVE_X", 1),
    ]
    level0_files: Annotated[Floats, Column("K V", "files", "that start a compaction, 0: none")]
    blocks_per_entry: Annotated[Floats, Column("K V", "blocks", "a state entry takes")]
    compaction_s: Annotated[Floats, Column("K V", "s", "lost per block that compactions read")]
    flush_mib: Annotated[Floats, Column("K V L+1", "MiB", "a MemTable when flushed, by level")]
    cache_mib: Annotated[
        Floats, Column("K V L+1", "MiB", "block cache by level, column 0 = no managed memory")
    ]
    write_factor: Annotated[
        Floats, Column("K V L+1", "", "write cost of a small MemTable by level", 1)
    ]
    memtable_mib: Annotated[
        Floats, Column("K V L+1", "MiB", "state whose reads a MemTable serves, by level")
    ]
    miss_factor: Annotated[
        Floats, Column("K V P+1", "", "cost of a miss relative to a single subtask", 1)
    ]
    levels: Annotated[Ints, Column("K", "levels", "of memory")]
    subtask_mib: Annotated[Floats, Column("K L+1", "MiB", "heap + network + managed by level")]
    buffer_records: Annotated[Floats, Column("K V", "records", "in the input buffers of a subtask")]
    slots: Annotated[Ints, Column("K", "slots", "per TaskManager")]
    tm_mib: Annotated[Floats, Column("K", "MiB", "of a TaskManager")]
    tm_cores: Annotated[Floats, Column("K", "cores", "of a TaskManager")]
    contention: Annotated[Floats, Column("K", "0..1", "speed lost per further slot in use")]
    slot_sharing: Annotated[Ints, Column("K", "0, 1", "subtasks of all vertices share slots")]
    rate_per_s: Annotated[Floats, Column("K", "records/s", "reference rate")]
    has_log: Annotated[Ints, Column("K", "0, 1", "what is not read waits in a log")]
    in_place: Annotated[Ints, Column("K", "0, 1", "rescale without redeploy")]
    outage_s: Annotated[Floats, Column("K quantiles", "s", "p10, p50, p90")]
    checkpoint_s: Annotated[
        Floats, Column("K", "s", "between checkpoints, of which a restart in place reads again")
    ]
    cold_s: Annotated[Floats, Column("K", "s", "in which tasks that a rescale adds do nothing")]
    has_signals: Annotated[Ints, Column("K", "0, 1", "gauges show other than the load")]
    cpu_response: Annotated[Floats, Column("K terms", "", "of the CPU load (signals.Response)")]
    lag_response: Annotated[Floats, Column("K terms", "s", "of the lag at rest (signals.Response)")]
    responses: Annotated[
        Floats, Column("K V gauges terms", "", "of busy and backpressured time (signals.Response)")
    ]
    savepoint_mib_s: Annotated[Floats, Column("K", "MiB/s", "written by a savepoint")]
    restore_mib_s: Annotated[Floats, Column("K", "MiB/s", "read by a restore")]
    slo_s: Annotated[Floats, Column("K", "s", "bound of the p95 latency")]
    core_hour: Annotated[Floats, Column("K", "money", "of a core for an hour")]
    gib_hour: Annotated[Floats, Column("K", "money", "of a GiB for an hour")]


def compile_jobs(
    specs: Sequence[JobSpec], mechanisms: MechanismSwitches | None = None
) -> JobTables:
    """Compile the given jobs to arrays, padded to the largest.

    Returns:
        One row per job, in the given order.
    """
    mechanisms = mechanisms or MechanismSwitches()
    orders = [spec.topological_order() for spec in specs]
    # Padding: V vertices, P subtasks and L memory levels of the largest job; index 0 of P + 1 means
    # no subtask, index 0 of L + 1 no managed memory.
    size_v = max(len(order) for order in orders)
    size_p = max(_cap(spec, vertex) for spec in specs for vertex in spec.vertices)
    size_l = max(spec.memory.levels for spec in specs)
    sizes = {
        "K": len(specs),
        "V": size_v,
        "inputs": MAX_INPUTS,
        "P+1": size_p + 1,
        "L+1": size_l + 1,
        "grid": cache.GRID,
        "quantiles": 3,
        "gauges": 2,
        "terms": 5,
    }
    tables = filled(JobTables, sizes)
    for k, (spec, order) in enumerate(zip(specs, orders, strict=True)):
        _fill_job(tables, k, spec, mechanisms)
        _fill_graph(tables, k, order)
        _fill_signals(tables, k, spec, order)
        for v, vertex in enumerate(order):
            _fill_vertex(tables, k, v, spec, vertex, mechanisms)
            if vertex.state is not None:
                _fill_state(tables, k, v, spec, vertex, mechanisms)
    return tables


def _cap(spec: JobSpec, vertex: Vertex) -> int:
    """Return the highest parallelism of a vertex: key groups and quota; some vertices are fixed."""
    if vertex.kind == "source" or not vertex.scalable:
        return vertex.parallelism
    return min(vertex.max_parallelism, spec.max_parallelism_per_vertex)


def _fill_job(tables: JobTables, k: int, spec: JobSpec, on: MechanismSwitches) -> None:
    memory, tm, rescale = spec.memory, spec.taskmanager, spec.rescale
    tables.n[k] = len(spec.vertices)
    tables.levels[k] = memory.levels
    for level in range(-1, memory.levels):
        tables.subtask_mib[k, level + 1] = (
            memory.heap_mib + memory.network_mib + level_mib(memory.base_mib, level)
        )
    if memory.uniform:
        # A task without managed memory pays for its slot all the same, but for one MiB: some code
        # divides by the difference, the managed memory of level 0.
        tables.subtask_mib[k, 0] = tables.subtask_mib[k, 1] - 1.0
    tables.slots[k], tables.tm_mib[k], tables.tm_cores[k] = tm.slots, tm.memory_mib, tm.cores
    tables.contention[k] = tm.contention if on.contention else 0.0
    tables.slot_sharing[k] = spec.slot_sharing
    tables.rate_per_s[k] = spec.source.rate_per_s
    tables.has_log[k] = spec.source.log and on.backlog
    tables.outage_s[k] = rescale.outage_s
    tables.in_place[k] = rescale.mode == "in_place"
    tables.checkpoint_s[k], tables.cold_s[k] = rescale.checkpoint_interval_s, rescale.cold_s
    tables.savepoint_mib_s[k] = rescale.savepoint_mib_per_s
    tables.restore_mib_s[k] = rescale.restore_mib_per_s
    tables.slo_s[k] = spec.slo.latency_s
    tables.core_hour[k], tables.gib_hour[k] = spec.prices.core_hour, spec.prices.gib_hour


def _fill_signals(tables: JobTables, k: int, spec: JobSpec, order: Sequence[Vertex]) -> None:
    if spec.signals is None:
        return
    tables.has_signals[k] = 1
    tables.cpu_response[k], tables.lag_response[k] = spec.signals.cpu, spec.signals.lag_s
    for v, vertex in enumerate(order):
        shown = spec.signals.vertices.get(vertex.name)
        if shown is not None:
            tables.responses[k, v] = shown.busy, shown.backpressured


def _fill_graph(tables: JobTables, k: int, order: Sequence[Vertex]) -> None:
    """Fill edges, and the input each vertex gets per record of job load."""
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
        # DS2's cumulated selectivity: records into v per record of load, summed over its inputs.
        tables.ratio[k, v] = sum(inflow)
        for i, edge in enumerate(vertex.inputs):
            tables.upstream[k, v, i] = column[edge.from_]
            tables.in_share[k, v, i] = inflow[i] / sum(inflow) if sum(inflow) > 0 else 1.0


def _fill_vertex(
    tables: JobTables, k: int, v: int, spec: JobSpec, vertex: Vertex, on: MechanismSwitches
) -> None:
    cap = _cap(spec, vertex)
    fixed = vertex.kind == "source" or not vertex.scalable
    tables.kind[k, v] = VERTEX_KINDS[vertex.kind]
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
    # Only hashed input is bound to keys; rebalanced input spreads evenly.
    hashed = any(edge.ship == "HASH" for edge in vertex.inputs)
    if on.skew and hashed:
        tables.hot[k, v, 1:] = scaling.hottest_share(vertex, p)
    if vertex.efficiency.form == "few_keys":  # loss is idle time: the load is uneven
        tables.hot[k, v, 1:] *= p / tables.useful[k, v, 1:]
        tables.useful[k, v, 1:] = p
    tables.useful[k, v, 0], tables.hot[k, v, 0] = 0.0, 1.0


def _fill_state(
    tables: JobTables, k: int, v: int, spec: JobSpec, vertex: Vertex, on: MechanismSwitches
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
    # A sliding window keeps a record in length / slide panes, each read and written separately.
    tables.reads[k, v], tables.writes[k, v] = state.reads * panes, state.writes * panes
    tables.read_hit_s[k, v] = state.read_hit_us * 1e-6
    # Lookups in upper levels make each miss dearer by as many blocks.
    looked_up = 1.0 + state.upper_lookups
    tables.read_miss_s[k, v] = state.read_miss_us * 1e-6 * looked_up if on.cache else 0.0
    tables.write_s[k, v] = state.write_us * 1e-6
    tables.keys[k, v] = state.keys
    tables.entry_mib[k, v] = state.value_bytes * state.space_factor / MIB
    tables.unshared_mib[k, v] = state.unshared_mib
    tables.prefilled[k, v] = state.prefilled and window is None
    blocks = cache.Blocks.of_state(state)
    tables.hit[k, v] = cache.hit_curve(blocks)
    tables.level0_files[k, v] = state.level0_files
    tables.blocks_per_entry[k, v] = state.value_bytes * state.space_factor / state.block_bytes
    tables.compaction_s[k, v] = state.compaction_us * 1e-6 if on.cache else 0.0
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
        # Without the mechanism "cache" every block is cached.
        tables.cache_mib[k, v, level + 1] = cached if on.cache else np.inf
        tables.memtable_mib[k, v, level + 1] = state.memtable_coverage * memtable
        flushed = FLUSHED_AT * memtable
        tables.flush_mib[k, v, level + 1] = flushed
        if state.level0_files > 0 and cached > 0:
            tables.hit[k, v, level + 1] = cache.level0_hit_curve(
                blocks, state.level0_files, flushed / cached, state.reads / max(state.writes, 1e-9)
            )
        tables.write_factor[k, v, level + 1] = cache.write_factor(
            memtable, state.small_memtable_penalty
        )
