"""How much load a configuration can carry for ever: the maximal sustainable throughput (MST).

The analytic counterpart of the simulation: the same tables, the same service time. A vertex with p
subtasks carries

    capacity = useful(p) / hot(p) / service time * (1 - contention * (slots in use - 1))

records/s, where "slots in use" are those of the fullest TaskManager. Service time depends on the
cache hit rate, and the working set of a windowed state grows with the load, so the MST is the
largest load that every vertex can carry, found by bisection. Windows are taken at their fullest.

A window whose results do not fit into the buffers after it is blocked while they leave, so the job
carries less than its weakest vertex: then the MST is the largest load whose backlog does not grow
over whole periods of the windows (`dsp_gym.job.bursts`).
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

__all__ = [
    "MstResult",
    "VertexLoad",
    "block_reads",
    "mst",
    "mst_per_s",
    "read_shares",
    "slots_in_use",
    "starting_configuration",
    "vertex_capacity",
    "working_set",
]

_RATE_STEPS = 60
"""Halvings of the load interval: below 1e-15 of its width."""

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
    blocked: float  # 0..1 of the time a window takes nothing in, its results not yet gone


@dataclass(frozen=True, slots=True)
class MstResult:
    """What a configuration sustains."""

    rate_per_s: float
    bottleneck: str
    vertices: tuple[VertexLoad, ...]


@compiled
def _held(tables: JobTables, k: int, v: int, input_per_s: float) -> float:
    """State entries of vertex v while records arrive at a rate, its window full."""
    content = math.inf
    if tables.window[k, v] != NO_WINDOW:
        content = input_per_s * tables.length_s[k, v]
    prefilled = tables.prefilled[k, v] == 1
    return float(entries(tables.keys[k, v], content, tables.panes[k, v], prefilled))


@compiled
def working_set(tables: JobTables, k: int, v: int, parallelism: int, input_per_s: float) -> float:
    """Working set of one subtask of a stateful vertex while records arrive at a rate.

    Args:
        tables: compiled jobs.
        k: row of the job.
        v: column of the vertex.
        parallelism: its subtasks.
        input_per_s: records/s that arrive, which fill its window.

    Returns:
        MiB.
    """
    held = _held(tables, k, v, input_per_s)
    entry_mib, unshared_mib = tables.entry_mib[k, v], tables.unshared_mib[k, v]
    return float(working_set_mib(held, entry_mib, unshared_mib, float(parallelism)))


@compiled
def read_shares(
    tables: JobTables, k: int, v: int, parallelism: int, level: int, input_per_s: float
) -> tuple[float, float]:
    """Share of a vertex's reads that go to no SST file, and share its MemTable serves.

    Args:
        tables: compiled jobs.
        k: row of the job.
        v: column of the vertex.
        parallelism: its subtasks.
        level: its memory level, -1 for none.
        input_per_s: records/s that arrive, which fill its window.

    Returns:
        Both as 0..1.
    """
    if tables.stateful[k, v] == 0:
        return 1.0, 0.0
    count = _held(tables, k, v, input_per_s)
    working = working_set(tables, k, v, parallelism, input_per_s)
    hit = hit_rate(tables.hit[k, v, level + 1], tables.cache_mib[k, v, level + 1], working)
    memtable = memtable_share(
        tables.memtable_mib[k, v, level + 1], count * tables.entry_mib[k, v] / parallelism
    )
    return served_share(hit, tables.churn[k, v], memtable), memtable


@compiled
def block_reads(
    tables: JobTables, k: int, v: int, parallelism: int, level: int, input_per_s: float
) -> tuple[float, float]:
    """Data blocks a vertex's read looks up past the MemTable, and those compactions read per write.

    Args:
        tables: compiled jobs.
        k: row of the job.
        v: column of the vertex.
        parallelism: its subtasks.
        level: its memory level, -1 for none.
        input_per_s: records/s that arrive, which fill its window.

    Returns:
        Both as blocks.
    """
    if tables.stateful[k, v] == 0:
        return 1.0, 0.0
    count = _held(tables, k, v, input_per_s)
    state = count * tables.entry_mib[k, v] / parallelism
    flushed, files = tables.flush_mib[k, v, level + 1], tables.level0_files[k, v]
    compacted = compacted_blocks(flushed, state, files, tables.blocks_per_entry[k, v])
    return level0_lookups(flushed, state, files), compacted


@compiled
def vertex_capacity(
    tables: JobTables, k: int, v: int, parallelism: int, level: int, input_per_s: float
) -> tuple[float, float]:
    """Records/s a vertex can process, contention left out, and its hit rate.

    Args:
        tables: compiled jobs.
        k: row of the job.
        v: column of the vertex.
        parallelism: its subtasks.
        level: its memory level, -1 for none.
        input_per_s: records/s that arrive, which fill its window.

    Returns:
        Records/s, and a share 0..1.
    """
    hit, _ = read_shares(tables, k, v, parallelism, level, input_per_s)
    lookups, compacted = block_reads(tables, k, v, parallelism, level, input_per_s)
    shared = tables.miss_factor[k, v, parallelism]
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
    tasks = tables.useful[k, v, parallelism] / tables.hot[k, v, parallelism]
    return tasks / seconds, hit


@compiled
def slots_in_use(tables: JobTables, k: int, parallelism: Ints) -> int:
    """Slots in use on the fullest TaskManager; sources stand on separate TaskManagers.

    Returns:
        Slots, at least 1.
    """
    total = 0
    for v in range(tables.n[k]):
        if tables.kind[k, v] == SOURCE:
            continue
        if tables.slot_sharing[k] == 1:
            total = max(total, parallelism[v])
        else:
            total += parallelism[v]
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
    """Whether every vertex keeps up with that load."""
    for v in range(tables.n[k]):
        needed = rate * tables.ratio[k, v]
        factor = 1.0 if tables.kind[k, v] == SOURCE else crowd
        capacity, _ = vertex_capacity(tables, k, v, parallelism[v], levels[v], needed)
        if capacity * factor < needed:
            return False
    return True


@compiled
def _vertices_per_s(tables: JobTables, k: int, parallelism: Ints, levels: Ints) -> float:
    """Largest load that every vertex can carry, bursts left out."""
    crowd = 1.0 - tables.contention[k] * (slots_in_use(tables, k, parallelism) - 1)
    low, high = 0.0, math.inf
    for v in range(tables.n[k]):  # an empty window is the best case
        ratio = tables.ratio[k, v]
        if ratio > 0:
            factor = 1.0 if tables.kind[k, v] == SOURCE else crowd
            free, _ = vertex_capacity(tables, k, v, parallelism[v], levels[v], 0.0)
            high = min(high, free * factor / ratio)
    if _carries(tables, k, parallelism, levels, crowd, high * _JUST_BELOW):
        return high  # no state grows with the load: the best case is the case
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
    """Whether no backlog grows from period to period of the job's windows."""
    n = tables.n[k]
    crowd = 1.0 - tables.contention[k] * (slots_in_use(tables, k, parallelism) - 1)
    capacity, buffer = np.zeros(n), np.zeros(n)
    for v in range(n):
        free, _ = vertex_capacity(
            tables, k, v, parallelism[v], levels[v], rate * tables.ratio[k, v]
        )
        capacity[v] = free * (1.0 if tables.kind[k, v] == SOURCE else crowd)
        buffer[v] = tables.buffer_records[k, v] * parallelism[v]
    blocked[:] = 0.0
    if not is_blocked(tables, k, buffer, rate):
        return True
    return carried(tables, k, capacity, buffer, rate, blocked)


@compiled
def _mst(tables: JobTables, k: int, parallelism: Ints, levels: Ints) -> tuple[float, Floats]:
    """The MST, and the share of the time each window is blocked at it, (V,)."""
    blocked = np.zeros(tables.n[k])
    high = _vertices_per_s(tables, k, parallelism, levels)
    if not 0.0 < high < math.inf or _carries_bursts(
        tables, k, parallelism, levels, high * _JUST_BELOW, blocked
    ):
        return high, blocked
    low = 0.0
    for _ in range(_BURST_STEPS):
        rate = 0.5 * (low + high)
        if _carries_bursts(tables, k, parallelism, levels, rate, blocked):
            low = rate
        else:
            high = rate
    _carries_bursts(tables, k, parallelism, levels, low, blocked)
    return low, blocked


@compiled
def mst_per_s(tables: JobTables, k: int, parallelism: Ints, levels: Ints) -> float:
    """Largest load, records/s over all sources, that the configuration carries for ever.

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
    """Parallelism and memory level by vertex name that the job file starts with.

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
    """Maximal sustainable throughput of a configuration.

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
    start_p, start_level = starting_configuration(spec)
    p_of = start_p | _checked(spec, dict(parallelism or {}), _check_parallelism)
    level_of = start_level | _checked(spec, dict(levels or {}), _check_level)
    order = spec.topological_order()
    tables = compile_jobs([spec]) if tables is None else tables
    p = np.array([p_of[vertex.name] for vertex in order])
    level = np.array([level_of[vertex.name] for vertex in order])
    rate, blocked = _mst(tables, 0, p, level)
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
    if vertex.kind == "source" or not vertex.scalable:
        if value != vertex.parallelism:
            raise ConfigError(
                f"vertex '{name}' of job '{spec.job}' stays at parallelism {vertex.parallelism}",
                value=value,
                remedy="Leave it out.",
            )
        return
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
