"""The parallelism that makes the most of a number of task slots.

A small exact search: for a load, each vertex needs a smallest parallelism, independent of the
others, so the load fits if those add up to at most the slots; bisection finds the largest load that
fits. It solves the integer program of StreamBed's BIDS2 (max s; s * ratio_i <= capacity_i; sum p_i
<= P; sources left out, sinks counted) for capacities that are not linear in p.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dsp_gym.arrays import Ints
from dsp_gym.errors import ConfigError
from dsp_gym.job.capacity import MstResult, mst, mst_per_s, slots_in_use, vertex_capacity
from dsp_gym.job.memory import managed_mib_per_slot
from dsp_gym.job.service import compiled
from dsp_gym.job.spec import JobSpec
from dsp_gym.job.tables import SOURCE, JobTables, compile_jobs

_GROWTH = 1.1
"""Factor by which tasks grow in each try while waiting windows leave less than the load."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The configuration that carries the most on a number of slots."""

    slots: int  # in use, sources left out
    result: MstResult


def slots_of(parallelism: Mapping[str, int], *, shared: bool) -> int:
    """Count the task slots that vertices take.

    Where they share slots it is the largest parallelism, elsewhere the sum.

    Returns:
        Slots.

    >>> slots_of({"map": 6, "sink": 1}, shared=True), slots_of({"map": 6, "sink": 1}, shared=False)
    (6, 7)
    """
    return max(parallelism.values()) if shared else sum(parallelism.values())


@compiled
def needed_parallelism(
    tables: JobTables, k: int, levels: Ints, rate_per_s: float, crowd: float
) -> Ints:
    """Find the smallest parallelism per vertex that carries the load; 0 where none does.

    Args:
        tables: compiled jobs.
        k: row of the job.
        levels: (V,) memory level per vertex.
        rate_per_s: load of the job.
        crowd: share of its rate that a subtask keeps beside others on its TaskManager.

    Returns:
        (V,) subtasks, in topological order.
    """
    needed = np.zeros(tables.n[k], np.int64)
    for v in range(tables.n[k]):
        inflow = rate_per_s * tables.ratio[k, v]
        factor = 1.0 if tables.kind[k, v] == SOURCE else crowd
        for p in range(tables.min_parallelism[k, v], tables.max_parallelism[k, v] + 1):
            capacity, _ = vertex_capacity(tables, k, v, p, levels[v], inflow)
            if capacity * factor >= inflow:
                needed[v] = p
                break
    return needed


@compiled
def _largest_rate(
    tables: JobTables, k: int, levels: Ints, slots: int, crowd: float, bound: float
) -> float:
    low, high = 0.0, bound
    # 60 halvings exhaust a double's mantissa.
    for _ in range(60):
        rate = 0.5 * (low + high)
        needed = needed_parallelism(tables, k, levels, rate, crowd)
        total = 0
        fits = True
        for v in range(tables.n[k]):
            fits = fits and needed[v] > 0
            if tables.kind[k, v] != SOURCE:
                total += needed[v]
        if fits and total <= slots:
            low = rate
        else:
            high = rate
    return low


def place(spec: JobSpec, slots: int, level: int | None = None) -> Placement:
    """Find the parallelism that carries the most load on `slots` slots.

    Slots are counted without sources and with sinks. Each subtask has a slot to itself; with slot
    sharing, all vertices share one parallelism of at most `slots`.

    Args:
        spec: the job.
        slots: slots that may be used.
        level: memory level of every stateful vertex; None: the job file's.

    Returns:
        The parallelism by vertex and the load it carries.

    Raises:
        ConfigError: Fewer slots than vertices.
    """
    tables = compile_jobs([spec])
    order = spec.topological_order()
    level = spec.memory.start_level if level is None else level
    levels = np.full(len(order), level)
    least = sum(
        int(tables.min_parallelism[0, v]) for v in range(len(order)) if tables.kind[0, v] != SOURCE
    )
    if not spec.slot_sharing and slots < least:
        raise ConfigError(
            f"job '{spec.job}' needs at least {least} slots, one per subtask without the sources",
            value=slots,
        )
    if spec.slot_sharing:
        p = {vertex.name: _shared(tables, v, slots) for v, vertex in enumerate(order)}
        result = mst(spec, p, {vertex.name: level for vertex in order}, tables)
        return Placement(slots, result)
    bound = _bound_per_s(tables, levels)
    best: tuple[float, int, float] | None = None
    # Subtasks on an emptier TaskManager run faster, so each number of slots in use is tried.
    for crowded in range(min(least, int(tables.slots[0])), min(slots, int(tables.slots[0])) + 1):
        budget = slots if crowded == tables.slots[0] else crowded
        crowd = 1.0 - tables.contention[0] * (crowded - 1)
        rate = _largest_rate(tables, 0, levels, budget, crowd, bound)
        if best is None or rate > best[0]:
            best = (rate, crowded, crowd)
    assert best is not None  # the range above is never empty
    needed = needed_parallelism(tables, 0, levels, best[0], best[2])
    p = {vertex.name: int(needed[v]) for v, vertex in enumerate(order)}
    used = sum(p[vertex.name] for vertex in order if vertex.kind != "source")
    return Placement(used, mst(spec, p, {vertex.name: level for vertex in order}, tables))


def smallest(
    spec: JobSpec, rate_per_s: float, level: int, tables: JobTables | None = None
) -> MstResult | None:
    """Find the fewest tasks that carry a load forever.

    Each vertex takes the fewest tasks that carry its share. Where windows wait for their results to
    leave (`dsp_gym.job.bursts`), all get more until the job carries the load, then each is cut to
    the fewest tasks that still carry it.

    Args:
        spec: the job.
        rate_per_s: load, records/s over all sources.
        level: memory level of every vertex.
        tables: the compiled job, if at hand (its only row).

    Returns:
        The configuration and the load it carries; None where the bounds allow none.
    """
    tables = compile_jobs([spec]) if tables is None else tables
    order = spec.topological_order()
    n = len(order)
    levels = np.full(n, level)
    enough = rate_per_s * (1 - 1e-9)
    for crowded in range(1, int(tables.slots[0]) + 1):  # fewer slots in use run faster
        crowd = 1.0 - float(tables.contention[0]) * (crowded - 1)
        p = needed_parallelism(tables, 0, levels, rate_per_s, crowd)
        if p.all() and slots_in_use(tables, 0, p) <= crowded:
            break
    if not p.all():
        return None
    if mst_per_s(tables, 0, p, levels) < enough:
        wider = _widened(tables, p, levels, enough)
        if wider is None:
            return None
        p = wider
    tasks = {vertex.name: int(p[v]) for v, vertex in enumerate(order)}
    return mst(spec, tasks, {vertex.name: level for vertex in order}, tables)


def _widened(tables: JobTables, needed: Ints, levels: Ints, rate_per_s: float) -> Ints | None:
    """Add tasks beyond each vertex's own need, because windows wait; then trim one by one."""
    most = tables.max_parallelism[0, : len(needed)]
    p, factor = needed, 1.0
    while mst_per_s(tables, 0, p, levels) < rate_per_s:
        if (p == most).all():
            return None
        factor *= _GROWTH
        p = np.minimum(most, np.ceil(needed * factor - 1e-9).astype(np.int64))
    # The widest vertex first, by bisection: it has the most tasks to save.
    for v in np.argsort(-p, kind="stable").tolist():
        low, high = int(needed[v]), int(p[v])  # high carries the rate
        while low < high:
            tried = p.copy()
            tried[v] = (low + high) // 2
            if mst_per_s(tables, 0, tried, levels) >= rate_per_s:
                high = int(tried[v])
            else:
                low = int(tried[v]) + 1
        p[v] = high
    return p


def with_quota(spec: JobSpec, slots: int) -> JobSpec:
    """Raise a job's quota: every vertex that scales may have so many tasks.

    Returns:
        A copy of the job file; bounds that are higher stay.
    """
    vertices = tuple(
        v.model_copy(update={"max_parallelism": max(v.max_parallelism, slots)})
        if v.scalable and v.kind != "source"
        else v
        for v in spec.vertices
    )
    quota = max(spec.max_parallelism_per_vertex, slots)
    return spec.model_copy(update={"vertices": vertices, "max_parallelism_per_vertex": quota})


def with_slot_memory(spec: JobSpec, slot_memory_mib: float) -> JobSpec:
    """Give level 0 of a job the managed memory of slots of that size.

    Args:
        spec: the job.
        slot_memory_mib: TaskManager process memory / slots.

    Returns:
        A copy of the job file.

    Raises:
        ConfigError: Such a slot has no managed memory.
    """
    managed = managed_mib_per_slot(slot_memory_mib, spec.taskmanager.slots)
    if not math.isfinite(managed) or managed <= 0:
        raise ConfigError(
            "slot memory leaves no managed memory after JVM overhead and metaspace",
            value=slot_memory_mib,
            remedy="Give more MiB per slot, for instance 512.",
        )
    memory = spec.memory.model_copy(update={"base_mib": managed, "levels": 1, "start_level": 0})
    return spec.model_copy(update={"memory": memory})


def _shared(tables: JobTables, v: int, slots: int) -> int:
    return int(np.clip(slots, tables.min_parallelism[0, v], tables.max_parallelism[0, v]))


def _bound_per_s(tables: JobTables, levels: Ints) -> float:
    """Return a load that no parallelism within the bounds can carry."""
    bound = math.inf
    for v in range(int(tables.n[0])):
        if tables.ratio[0, v] > 0:
            low, high = tables.min_parallelism[0, v], tables.max_parallelism[0, v]
            best = max(
                vertex_capacity(tables, 0, v, p, levels[v], 0.0)[0]
                for p in range(int(low), int(high) + 1)
            )
            bound = min(bound, best / tables.ratio[0, v])
    return bound
