"""What a configuration carries now: resources held, contention, service times, hit rates."""

from __future__ import annotations

import numpy as np

from dsp_gym.arrays import Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.job.service import (
    entries,
    hit_rate,
    read_and_compacted,
    served_share,
    service_s,
    working_set_mib,
)
from dsp_gym.job.tables import SOURCE, JobTables
from dsp_gym.simulation.options import Parameters
from dsp_gym.simulation.state import C, SimulationState, X

Row = Floats


@njit(cache=True, nogil=True)
def bin_pack(
    kind: Ints,
    subtask_mib: Row,
    slots: int,
    levels: int,
    slot_sharing: int,
    parallelism: Ints,
    level: Ints,
) -> int:
    """TaskManagers that hold the job's subtasks, sources left out: first fit, largest first.

    A TaskManager offers its slots and, for tasks, the memory of that many level-0 subtasks.

    Args:
        kind: (n,) of each vertex of the job.
        subtask_mib: (L+1,) of a subtask by memory level, column 0 holds "no memory".
        slots: Of a TaskManager.
        levels: Of memory.
        slot_sharing: 1 where subtasks of all vertices share slots.
        parallelism: (V,) subtasks.
        level: (V,) memory levels.

    Returns:
        Number of TaskManagers.
    """
    room = slots * subtask_mib[1]
    if slot_sharing:
        widest = 1
        for v in range(len(kind)):
            if kind[v] != SOURCE:
                widest = max(widest, parallelism[v])
        return int((widest + slots - 1) // slots)
    total = 0
    for v in range(len(kind)):
        if kind[v] != SOURCE:
            total += parallelism[v]
    free_slots = np.full(total, slots, np.int64)
    free_mib = np.full(total, room)
    used = 0
    for x in range(levels, -1, -1):
        need = subtask_mib[x]
        for v in range(len(kind)):
            if kind[v] == SOURCE or level[v] + 1 != x:
                continue
            tm = 0
            for _ in range(parallelism[v]):
                while tm < used and (free_slots[tm] < 1 or free_mib[tm] < need - 1e-9):
                    tm += 1
                if tm == used:
                    used += 1
                free_slots[tm] -= 1
                free_mib[tm] -= need
    return used


@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def configure(t: JobTables, s: SimulationState, k: int, j: int) -> None:
    """What follows from the configuration of job j: resources, TaskManagers, speed, tables.

    k is the job's row of the tables t; of vertex v, p is the parallelism and x the state.
    """
    cores = mib = 0.0
    tasks = widest = 0
    for v in range(t.n[k]):
        p, x = s.parallelism[j, v], s.vertex[j, v]
        column = s.level[j, v] + 1
        x[X.tasks], x[X.useful], x[X.hot] = p, t.useful[k, v, p], t.hot[k, v, p]
        x[X.cache] = t.cache_mib[k, v, column]
        x[X.write_factor] = t.write_factor[k, v, column]
        x[X.memtable] = t.memtable_mib[k, v, column]
        x[X.flush], x[X.memory] = t.flush_mib[k, v, column], column
        x[X.compaction_s] = t.compaction_s[k, v] * t.miss_factor[k, v, p]
        x[X.miss_s] = t.read_miss_s[k, v] * t.miss_factor[k, v, p]
        x[X.buffer] = t.buffer_records[k, v] * p
        if t.kind[k, v] == SOURCE:
            continue
        cores += p
        mib += p * t.subtask_mib[k, column]
        tasks += p
        widest = max(widest, p)
    s.cores[j], s.mib[j] = cores, mib
    s.tm_count[j] = bin_pack(
        t.kind[k, : t.n[k]],
        t.subtask_mib[k],
        t.slots[k],
        t.levels[k],
        t.slot_sharing[k],
        s.parallelism[j],
        s.level[j],
    )
    used = min(t.slots[k], widest if t.slot_sharing[k] else tasks)
    s.speed[j] = max(0.05, 1.0 - t.contention[k] * (used - 1))


@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def renew_capacity(
    n: int, c: Row, hit_curves: Row, x: Row, speed: float, factor: float, par: Parameters
) -> None:
    """Service time, hit rate and capacity of every vertex of one job, as of now.

    Args:
        n: Vertices v.
        c: (V, len(C)) their fixed columns.
        hit_curves: (V, L+1, grid) hit rate over cache / working set.
        x: (V, len(X)) their state, changed in place.
        speed: Of the TaskManagers, 0..1.
        factor: Scale of CPU times.
        par: The simulation's parameters.
    """
    for v in range(n):
        hit, covered, lookups, compacted = 1.0, 0.0, 1.0, 0.0
        if c[v, C.stateful] > 0.0:
            held = entries(c[v, C.keys], x[v, X.content], c[v, C.panes], c[v, C.prefilled] > 0)
            x[v, X.state] = held * c[v, C.entry_mib]
            cache = x[v, X.cache]
            if par.warm_up > 0:
                cache = min(cache, x[v, X.cached])
            wanted = working_set_mib(held, c[v, C.entry_mib], c[v, C.unshared_mib], x[v, X.tasks])
            mine, files = x[v, X.state] / x[v, X.tasks], c[v, C.level0_files]
            covered, lookups, compacted = read_and_compacted(
                x[v, X.memtable], x[v, X.flush], mine, files, c[v, C.blocks_per_entry]
            )
            x[v, X.lookups], x[v, X.compacted] = lookups, compacted
            curve = hit_curves[v, int(x[v, X.memory])]
            hit = served_share(hit_rate(curve, cache, wanted), c[v, C.churn], covered)
        x[v, X.hit], x[v, X.covered] = hit, covered
        base = service_s(
            c[v, C.cpu_s] * factor,
            c[v, C.reads],
            c[v, C.read_hit_s],
            x[v, X.miss_s] * lookups,
            c[v, C.writes],
            c[v, C.write_s] * x[v, X.write_factor] + compacted * x[v, X.compaction_s],
            hit,
        )
        base *= max(0.5, 1.0 + par.service_cv * x[v, X.noise])
        # Sources stand on separate TaskManagers.
        x[v, X.service_s] = base if c[v, C.kind] == SOURCE else base / speed
        x[v, X.busy_per] = x[v, X.service_s] / x[v, X.useful]
        x[v, X.load_per] = x[v, X.busy_per] * x[v, X.hot]
        x[v, X.capacity] = 1.0 / x[v, X.load_per]


@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def slowed(speed: float, slow: bool, tm_count: int, par: Parameters) -> float:
    """Speed of a job while one of its TaskManagers is slow: that one's share suffers.

    Returns:
        0..1.
    """
    return speed * (1.0 - (1.0 - par.slow_factor) / max(1.0, float(tm_count))) if slow else speed


@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def renew(t: JobTables, s: SimulationState, fixed: Row, k: int, j: int, par: Parameters) -> None:
    """`renew_capacity` of job j of a batch."""
    speed = slowed(s.speed[j], s.tick[j] < s.slow_until[j], s.tm_count[j], par)
    renew_capacity(
        t.n[k],
        fixed[k],
        t.hit[k],
        s.vertex[j],
        speed,
        s.service_factor[j],
        par,
    )
