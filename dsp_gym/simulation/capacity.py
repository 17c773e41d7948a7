"""Capacity of the running configuration: resources, contention, service times, hit rates."""

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

Row = Floats  # one row of an array; numba infers the rank, mypy needs a name

_TMS, _FREE_SLOTS, _FREE_MIB = range(3)
"""Columns of a run of TaskManagers that hold the same subtasks."""


def packing_room(vertices: int) -> Floats:
    """Allocate the runs of `bin_pack` for jobs of so many vertices.

    Returns:
        (2 V, 3) with undefined content.
    """
    return np.empty((2 * vertices, 3))


@njit(cache=True, nogil=True)
def bin_pack(
    kind: Ints,
    subtask_mib: Row,
    slots: int,
    levels: int,
    slot_sharing: int,
    parallelism: Ints,
    level: Ints,
    runs: Row,
) -> int:
    """Count the TaskManagers that hold the job's subtasks: first fit, largest subtask first.

    A TaskManager offers its slots and, to tasks, the memory of that many level-0 subtasks. Sources
    are left out.

    Args:
        kind: (n,) kind of each vertex of the job.
        subtask_mib: (L+1,) MiB of a subtask by memory level; column 0 is a subtask without managed
            memory.
        slots: Slots of a TaskManager.
        levels: Number of memory levels.
        slot_sharing: 1 where subtasks of all vertices share slots.
        parallelism: (V,) subtasks.
        level: (V,) memory levels.
        runs: (2 V, 3) scratch, as `packing_room` makes it.

    Returns:
        Number of TaskManagers.
    """
    room = slots * subtask_mib[1]
    # With slot sharing every slot holds one subtask of each vertex, so the widest vertex decides.
    if slot_sharing:
        widest = 1
        for v in range(len(kind)):
            if kind[v] != SOURCE:
                widest = max(widest, parallelism[v])
        return int((widest + slots - 1) // slots)
    known = 0
    # x is a column of subtask_mib. First fit decreasing: the largest subtasks choose first, and the
    # fixed order makes the count repeatable.
    for x in range(levels, -1, -1):
        for v in range(len(kind)):
            if kind[v] != SOURCE and level[v] + 1 == x:
                known = _place(runs, known, parallelism[v], subtask_mib[x], slots, room)
    used = 0
    for i in range(known):
        used += int(runs[i, _TMS])
    return used


@njit(cache=True, nogil=True)
def _place(runs: Row, known: int, tasks: int, need: float, slots: int, room: float) -> int:
    """Place the subtasks of a vertex, each of which needs so many MiB; return the number of runs.

    They are alike, so TaskManagers in a row that hold the same still do afterwards, but for the
    last one reached. A row of `runs` stands for such neighbours: there are at most two more after
    each vertex, and no array needs a number per TaskManager.
    """
    left, i = tasks, 0
    while left > 0:
        is_new = i == known
        if is_new:
            runs[i, _FREE_SLOTS], runs[i, _FREE_MIB] = slots, room
            known += 1
        # Subtask by subtask, so that memory is rounded as if each were placed alone. A new
        # TaskManager takes one in any case.
        free_slots, free_mib, fit = runs[i, _FREE_SLOTS], runs[i, _FREE_MIB], 0
        while fit < left and (
            (free_slots >= 1.0 and free_mib >= need - 1e-9) or (is_new and fit == 0)
        ):
            free_slots -= 1.0
            free_mib -= need
            fit += 1
        if fit > 0:
            if is_new:
                runs[i, _TMS] = (left + fit - 1) // fit
            tms = int(runs[i, _TMS])
            full = min(tms, left // fit)
            left -= full * fit
            if full < tms:  # the others stay as they are, next in line
                _split(runs, known, i, full)
                known += 1
            runs[i, _FREE_SLOTS], runs[i, _FREE_MIB] = free_slots, free_mib
        i += 1
    return known


@njit(cache=True, nogil=True)
def _split(runs: Row, known: int, i: int, tms: int) -> None:
    """Split run i of the known ones after so many TaskManagers; the others become run i + 1."""
    for r in range(known, i, -1):
        for column in range(3):
            runs[r, column] = runs[r - 1, column]
    runs[i, _TMS] = tms
    runs[i + 1, _TMS] -= tms


@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def configure(t: JobTables, s: SimulationState, k: int, j: int, runs: Row) -> None:
    """Derive what follows from the configuration of job j: resources, TaskManagers, speed, tables.

    k is the job's row of the tables t; of vertex v, p is the parallelism and x the state. `runs` is
    scratch of `bin_pack`.
    """
    cores = mib = 0.0
    # Totals of the job: cores and MiB without sources, subtasks, and the widest vertex.
    tasks = widest = 0
    for v in range(t.n[k]):
        # Tables are indexed by parallelism p and by column = memory level + 1 (0: no memory).
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
        # Sources run on TaskManagers that are not counted as the job's resources.
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
        runs,
    )
    # Subtasks that share a TaskManager slow each other down, linearly in their number.
    used = min(t.slots[k], widest if t.slot_sharing[k] else tasks)
    s.speed[j] = max(0.05, 1.0 - t.contention[k] * (used - 1))


@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def renew_capacity(
    n: int, c: Row, hit_curves: Row, x: Row, speed: float, factor: float, par: Parameters
) -> None:
    """Compute service time, hit rate and capacity of every vertex of one job, as of now.

    The chain of a vertex: content of the state -> working set -> hit rate of the block cache
    (`dsp_gym.job.service`) -> seconds per record -> records/s.

    Args:
        n: Number of vertices v.
        c: (V, len(C)) their fixed columns.
        hit_curves: (V, L+1, grid) hit rate over cache / working set.
        x: (V, len(X)) their state, changed in place.
        speed: Speed of the TaskManagers, 0..1.
        factor: Scale of CPU times.
        par: The simulation's parameters.
    """
    for v in range(n):
        hit, covered, lookups, compacted = 1.0, 0.0, 1.0, 0.0
        if c[v, C.stateful] > 0.0:
            held = entries(c[v, C.keys], x[v, X.content], c[v, C.panes], c[v, C.prefilled] > 0)
            x[v, X.state] = held * c[v, C.entry_mib]
            # A restarted job's cache is cold: only the blocks brought in so far can hit.
            cache = x[v, X.cache]
            if par.warm_up > 0:
                cache = min(cache, x[v, X.cached])
            wanted = working_set_mib(held, c[v, C.entry_mib], c[v, C.unshared_mib], x[v, X.tasks])
            # State is spread evenly: `mine` is the MiB of one subtask.
            mine, files = x[v, X.state] / x[v, X.tasks], c[v, C.level0_files]
            covered, lookups, compacted = read_and_compacted(
                x[v, X.memtable], x[v, X.flush], mine, files, c[v, C.blocks_per_entry]
            )
            x[v, X.lookups], x[v, X.compacted] = lookups, compacted
            curve = hit_curves[v, int(x[v, X.memory])]
            hit = served_share(hit_rate(curve, cache, wanted), c[v, C.churn], covered)
        x[v, X.hit], x[v, X.covered] = hit, covered
        # Seconds per record = cpu + reads x (hit or miss) + writes, of which cache misses and
        # compactions are the part that more memory saves.
        base = service_s(
            c[v, C.cpu_s] * factor,
            c[v, C.reads],
            c[v, C.read_hit_s],
            x[v, X.miss_s] * lookups,
            c[v, C.writes],
            c[v, C.write_s] * x[v, X.write_factor] + compacted * x[v, X.compaction_s],
            hit,
        )
        # Noise is standard normal; half the mean is the floor, so that no draw gives a time <= 0.
        base *= max(0.5, 1.0 + par.service_cv * x[v, X.noise])
        # Sources run on separate TaskManagers, so they do not share this job's contention.
        x[v, X.service_s] = base if c[v, C.kind] == SOURCE else base / speed
        # A vertex counts with its linear-equivalent subtasks (`useful` <= p), and the hottest
        # subtask limits all others: capacity = useful / (service_s x hot).
        x[v, X.busy_per] = x[v, X.service_s] / x[v, X.useful]
        x[v, X.load_per] = x[v, X.busy_per] * x[v, X.hot]
        x[v, X.capacity] = 1.0 / x[v, X.load_per]


@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def slowed(speed: float, tick: int, slow_until: int, tm_count: int, par: Parameters) -> float:
    """Return the speed of a job with a slow TaskManager, whose share suffers, or another version.

    Returns:
        Speed, in that of the job's file.
    """
    # A slow TaskManager recovers by the clock; another version stays.
    if tick < slow_until:
        speed *= 1.0 - (1.0 - par.slow_factor) / max(1.0, float(tm_count))
    return speed / par.deploy_factor if tick >= par.deploy_at else speed


@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def renew(t: JobTables, s: SimulationState, fixed: Row, k: int, j: int, par: Parameters) -> None:
    """Call `renew_capacity` for job j of a batch, row k of the tables t."""
    speed = slowed(s.speed[j], s.tick[j], s.slow_until[j], s.tm_count[j], par)
    renew_capacity(
        t.n[k],
        fixed[k],
        t.hit[k],
        s.vertex[j],
        speed,
        s.service_factor[j],
        par,
    )
