"""The greatest load a configuration can carry forever: maximal sustainable throughput (MST).

The analytic counterpart of the simulation: the same tables, the same service time. A vertex with p
subtasks carries

    capacity = useful(p) / hot(p) / service time * (1 - contention * (slots in use - 1))

records/s, where "slots in use" are those of the fullest TaskManager. Service time depends on the
cache hit rate, and the working set of a windowed state grows with the load, so the MST is the
largest load that every vertex can carry, found by bisection. Windows are taken at their fullest.

A window whose results do not fit into the buffers after it is blocked while they leave, so the job
carries less than its weakest vertex: then the MST is the largest load whose backlog does not grow
over whole periods of the windows (`dsp_gym.job.bursts`).

Letters: k is the job's row of the tables, v a vertex (its column, in topological order), V their
number and p a parallelism.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from dsp_gym.arrays import Floats, Ints
from dsp_gym.errors import ConfigError, did_you_mean
from dsp_gym.job.bursts import carried, is_blocked
from dsp_gym.job.service import (
    compacted_blocks,
    compiled,
    entries,
    hit_rate,
    level0_lookups,
    memtable_share,
    served_share,
    service_s,
    working_set_mib,
)
from dsp_gym.job.spec import JobSpec
from dsp_gym.job.tables import NO_WINDOW, SOURCE, JobTables, compile_jobs

_RATE_STEPS = 60
"""Halvings of the load interval: to less than 1e-15 of its width."""

_BURST_STEPS = 16
"""The same where windows are blocked: to 2e-5 of the load that the weakest vertex carries."""

_JUST_BELOW = 1.0 - 1e-12
"""Leaves room for rounding where a load is exactly what can be carried."""


@dataclass(frozen=True, slots=True)
class VertexLoad:
    """One vertex at the job's MST."""

    name: str
    parallelism: int
    memory_level: int
    capacity_per_s: float  # records/s it could process at that load
    utilization: float  # input rate / capacity; with `blocked` 1 at the bottleneck
    hit_rate: float | None  # None: stateless
    blocked: float  # 0..1 of the time a window waits for its results to leave


@dataclass(frozen=True, slots=True)
class MstResult:
    """The load that a configuration sustains."""

    rate_per_s: float
    bottleneck: str
    vertices: tuple[VertexLoad, ...]


@compiled
def _held(tables: JobTables, k: int, v: int, input_per_s: float) -> float:
    """Return the state entries of vertex v while records arrive at a rate, its window full."""
    # Without a window the state has had time to see every key.
    content = math.inf
    if tables.window[k, v] != NO_WINDOW:
        # Records in a full window: rate times length. A record counts once, `panes` multiplies
        # later.
        content = input_per_s * tables.length_s[k, v]
    prefilled = tables.prefilled[k, v] == 1
    return float(entries(tables.keys[k, v], content, tables.panes[k, v], prefilled))


@compiled
def working_set(tables: JobTables, k: int, v: int, parallelism: int, input_per_s: float) -> float:
    """Return the working set of one subtask of a stateful vertex while records arrive at a rate.

    Args:
        tables: compiled jobs.
        k: row of the job.
        v: column of the vertex.
        parallelism: its subtasks.
        input_per_s: records/s that arrive and fill its window.

    Returns:
        MiB.
    """
    held = _held(tables, k, v, input_per_s)
    entry_mib, unshared_mib = tables.entry_mib[k, v], tables.unshared_mib[k, v]
    # Keys are spread evenly: each subtask holds 1 / p of the entries.
    return float(working_set_mib(held, entry_mib, unshared_mib, float(parallelism)))


@compiled
def read_shares(
    tables: JobTables, k: int, v: int, parallelism: int, level: int, input_per_s: float
) -> tuple[float, float]:
    """Return the share of a vertex's reads that go to no SST file, and the share of its MemTable.

    Args:
        tables: compiled jobs.
        k: row of the job.
        v: column of the vertex.
        parallelism: its subtasks.
        level: its memory level, -1 for none.
        input_per_s: records/s that arrive and fill its window.

    Returns:
        Both as 0..1.
    """
    # Stateless vertices read nothing: all of their reads count as served.
    if tables.stateful[k, v] == 0:
        return 1.0, 0.0
    count = _held(tables, k, v, input_per_s)
    working = working_set(tables, k, v, parallelism, input_per_s)
    # Per-level columns are shifted by one: column 0 is level -1, no managed memory.
    hit = hit_rate(tables.hit[k, v, level + 1], tables.cache_mib[k, v, level + 1], working)
    memtable = memtable_share(
        tables.memtable_mib[k, v, level + 1], count * tables.entry_mib[k, v] / parallelism
    )
    return served_share(hit, tables.churn[k, v], memtable), memtable


@compiled
def block_reads(
    tables: JobTables, k: int, v: int, parallelism: int, level: int, input_per_s: float
) -> tuple[float, float]:
    """Return the data blocks looked up per read past the MemTable, and compacted per write.

    Args:
        tables: compiled jobs.
        k: row of the job.
        v: column of the vertex.
        parallelism: its subtasks.
        level: its memory level, -1 for none.
        input_per_s: records/s that arrive and fill its window.

    Returns:
        Blocks that a read looks up, and blocks that compactions read for one write.
    """
    if tables.stateful[k, v] == 0:
        return 1.0, 0.0
    count = _held(tables, k, v, input_per_s)
    # Live state of one subtask, MiB.
    state = count * tables.entry_mib[k, v] / parallelism
    flushed, files = tables.flush_mib[k, v, level + 1], tables.level0_files[k, v]
    compacted = compacted_blocks(flushed, state, files, tables.blocks_per_entry[k, v])
    return level0_lookups(flushed, state, files), compacted


@compiled
def vertex_capacity(
    tables: JobTables, k: int, v: int, parallelism: int, level: int, input_per_s: float
) -> tuple[float, float]:
    """Return the records/s a vertex can process, contention left out, and its hit rate.

    Args:
        tables: compiled jobs.
        k: row of the job.
        v: column of the vertex.
        parallelism: its subtasks.
        level: its memory level, -1 for none.
        input_per_s: records/s that arrive and fill its window.

    Returns:
        Records/s, and a share 0..1.
    """
    hit, _ = read_shares(tables, k, v, parallelism, level, input_per_s)
    lookups, compacted = block_reads(tables, k, v, parallelism, level, input_per_s)
    # Subtasks share a disk: misses and compactions grow dearer with their number.
    shared = tables.miss_factor[k, v, parallelism]
    # The time of one record in one subtask, s: CPU, then reads that hit or miss, then writes with
    # the compactions they cause.
    seconds = service_s(
        tables.cpu_s[k, v],
        tables.reads[k, v],
        tables.read_hit_s[k, v],
        tables.read_miss_s[k, v] * shared * lookups,
        tables.writes[k, v],
        tables.write_s[k, v] * tables.write_factor[k, v, level + 1]
        + compacted * tables.compaction_s[k, v] * shared,
        hit,
    )
    # Linear-equivalent subtasks, limited by the hottest one (see the module's formula).
    tasks = tables.useful[k, v, parallelism] / tables.hot[k, v, parallelism]
    return tasks / seconds, hit


@compiled
def slots_in_use(tables: JobTables, k: int, parallelism: Ints) -> int:
    """Return the slots in use on the fullest TaskManager; sources run on separate ones.

    Returns:
        Slots, at least 1.
    """
    # With slot sharing a slot holds one subtask of each vertex, so the widest vertex counts;
    # without, each subtask takes a slot.
    total = 0
    for v in range(tables.n[k]):
        if tables.kind[k, v] == SOURCE:
            continue
        if tables.slot_sharing[k] == 1:
            total = max(total, parallelism[v])
        else:
            total += parallelism[v]
    # The fullest TaskManager is full as soon as there are as many subtasks as it has slots.
    return int(max(1, min(total, tables.slots[k])))


@compiled
def _carries(
    tables: JobTables,
    k: int,
    parallelism: Ints,
    levels: Ints,
    crowd: float,
    rate: float,
) -> bool:
    """Return whether every vertex keeps up with that load."""
    for v in range(tables.n[k]):
        # ratio: records that reach the vertex per record of load.
        needed = rate * tables.ratio[k, v]
        # Sources run on TaskManagers that are not crowded.
        factor = 1.0 if tables.kind[k, v] == SOURCE else crowd
        capacity, _ = vertex_capacity(tables, k, v, parallelism[v], levels[v], needed)
        if capacity * factor < needed:
            return False
    return True


@compiled
def _vertices_per_s(tables: JobTables, k: int, parallelism: Ints, levels: Ints) -> float:
    """Return the largest load that every vertex can carry, bursts left out."""
    # `crowd` is the speed that contention leaves, 0..1.
    crowd = 1.0 - tables.contention[k] * (slots_in_use(tables, k, parallelism) - 1)
    low, high = 0.0, math.inf
    # high becomes the load that the weakest vertex would carry with empty state.
    for v in range(tables.n[k]):  # an empty window is the best case
        ratio = tables.ratio[k, v]
        if ratio > 0:
            factor = 1.0 if tables.kind[k, v] == SOURCE else crowd
            free, _ = vertex_capacity(tables, k, v, parallelism[v], levels[v], 0.0)
            high = min(high, free * factor / ratio)
    # Shaved by 1e-12, so that rounding does not deny a load that is carried exactly.
    if _carries(tables, k, parallelism, levels, crowd, high * _JUST_BELOW):
        return high  # no state grows with the load: the best case holds
    # State grows with the load, so capacity falls with it, and bisection is safe.
    for _ in range(_RATE_STEPS):
        rate = 0.5 * (low + high)
        if _carries(tables, k, parallelism, levels, crowd, rate):
            low = rate
        else:
            high = rate
    return 0.5 * (low + high)


@compiled
def _carries_bursts(
    tables: JobTables, k: int, parallelism: Ints, levels: Ints, rate: float, blocked: Floats
) -> bool:
    """Return whether no backlog grows from period to period of the job's windows."""
    n = tables.n[k]
    crowd = 1.0 - tables.contention[k] * (slots_in_use(tables, k, parallelism) - 1)
    capacity, buffer = np.zeros(n), np.zeros(n)
    # Capacities at this load: state, and with it the service time, depends on it.
    for v in range(n):
        free, _ = vertex_capacity(
            tables, k, v, parallelism[v], levels[v], rate * tables.ratio[k, v]
        )
        capacity[v] = free * (1.0 if tables.kind[k, v] == SOURCE else crowd)
        # Every subtask has buffers: more subtasks hold more records.
        buffer[v] = tables.buffer_records[k, v] * parallelism[v]
    blocked[:] = 0.0
    # The common case is cheap: no window overfills the buffers after it.
    if not is_blocked(tables, k, buffer, rate):
        return True
    return carried(tables, k, capacity, buffer, rate, blocked)


@compiled
def _mst(tables: JobTables, k: int, parallelism: Ints, levels: Ints) -> tuple[float, Floats]:
    """Return the MST, and the share of the time each window is blocked at it, (V,)."""
    blocked = np.zeros(tables.n[k])
    high = _vertices_per_s(tables, k, parallelism, levels)
    # A limit of 0 or infinity leaves nothing to bisect.
    if not 0.0 < high < math.inf or _carries_bursts(
        tables, k, parallelism, levels, high * _JUST_BELOW, blocked
    ):
        return high, blocked
    low = 0.0
    # Larger loads only lengthen queues, so what is carried at a load is carried below it.
    for _ in range(_BURST_STEPS):
        rate = 0.5 * (low + high)
        if _carries_bursts(tables, k, parallelism, levels, rate, blocked):
            low = rate
        else:
            high = rate
    # Once more at the result: the last try above may have been a load that is not carried.
    _carries_bursts(tables, k, parallelism, levels, low, blocked)
    return low, blocked


@compiled
def mst_per_s(tables: JobTables, k: int, parallelism: Ints, levels: Ints) -> float:
    """Return the largest load, records/s over all sources, that a configuration sustains.

    Args:
        tables: compiled jobs.
        k: row of the job.
        parallelism: (V,) subtasks.
        levels: (V,) memory levels, -1 for none.

    Returns:
        Records/s.
    """
    rate, _ = _mst(tables, k, parallelism, levels)
    return rate


def starting_configuration(spec: JobSpec) -> tuple[dict[str, int], dict[str, int]]:
    """Return parallelism and memory level by vertex name that the job file starts with.

    Returns:
        Subtasks by name, and memory level by name (-1: no managed memory).
    """
    return (
        {vertex.name: vertex.parallelism for vertex in spec.vertices},
        {vertex.name: spec.memory.start_level for vertex in spec.vertices},
    )


def mst(
    spec: JobSpec,
    parallelism: Mapping[str, int] | None = None,
    levels: Mapping[str, int] | None = None,
    tables: JobTables | None = None,
) -> MstResult:
    """Compute the maximal sustainable throughput of a configuration.

    Args:
        spec: the job.
        parallelism: subtasks by vertex name; vertices left out keep the job file's.
        levels: memory level by vertex name, -1 for none; vertices left out keep the job file's.
        tables: the compiled job, if at hand (its only row).

    Returns:
        The load in records/s, the vertex that limits it, and every vertex at that load.

    Raises:
        ConfigError: A vertex is unknown, or a number is outside its bounds.
    """
    # Given values replace those of the job file.
    start_p, start_level = starting_configuration(spec)
    p_of = start_p | _checked(spec, dict(parallelism or {}), _check_parallelism)
    level_of = start_level | _checked(spec, dict(levels or {}), _check_level)
    order = spec.topological_order()
    tables = compile_jobs([spec]) if tables is None else tables
    p = np.array([p_of[vertex.name] for vertex in order])
    level = np.array([level_of[vertex.name] for vertex in order])
    rate, blocked = _mst(tables, 0, p, level)
    # The contention of `_vertices_per_s`, for the capacities that are reported.
    crowd = 1.0 - tables.contention[0] * (slots_in_use(tables, 0, p) - 1)
    loads = []
    for v, vertex in enumerate(order):
        needed = rate * tables.ratio[0, v]
        capacity, hit = vertex_capacity(tables, 0, v, p[v], level[v], needed)
        capacity *= 1.0 if vertex.kind == "source" else crowd
        loads.append(
            VertexLoad(
                vertex.name,
                int(p[v]),
                int(level[v]),
                float(capacity),
                float(needed / capacity),
                float(hit) if vertex.state is not None else None,
                float(blocked[v]),
            )
        )
    # A window's busy and blocked time add up: the vertex with no time left is the bottleneck.
    bottleneck = max(loads, key=lambda load: load.utilization + load.blocked)
    return MstResult(float(rate), bottleneck.name, tuple(loads))


def _checked(
    spec: JobSpec, given: dict[str, int], check: Callable[[JobSpec, str, int], None]
) -> dict[str, int]:
    names = [vertex.name for vertex in spec.vertices]
    for name, value in given.items():
        if name not in names:
            raise ConfigError(
                f"job '{spec.job}' has no vertex '{name}'", remedy=did_you_mean(name, names)
            )
        check(spec, name, value)
    return given


def _check_parallelism(spec: JobSpec, name: str, value: int) -> None:
    vertex = spec.vertex(name)
    # Its own number is accepted, so that a whole configuration can be passed.
    if vertex.kind == "source" or not vertex.scalable:
        if value != vertex.parallelism:
            raise ConfigError(
                f"vertex '{name}' of job '{spec.job}' stays at parallelism {vertex.parallelism}",
                value=value,
                remedy="Leave it out.",
            )
        return
    # Flink cannot use more subtasks of a vertex than it has key groups.
    cap = min(vertex.max_parallelism, spec.max_parallelism_per_vertex)
    if not 1 <= value <= cap:
        why = (
            f"its key groups ({vertex.max_parallelism})"
            if cap == vertex.max_parallelism
            else f"max_parallelism_per_vertex ({cap})"
        )
        raise ConfigError(
            f"parallelism of vertex '{name}' of job '{spec.job}' must be between 1 and {why}",
            value=value,
        )


def _check_level(spec: JobSpec, name: str, value: int) -> None:
    if not -1 <= value < spec.memory.levels:
        raise ConfigError(
            f"memory level of vertex '{name}' of job '{spec.job}' must be between -1 (none) "
            f"and {spec.memory.levels - 1}",
            value=value,
        )
