"""The smallest configuration that carries a load, for starts and as the unit of cost."""

from __future__ import annotations

import numpy as np

from dsp_gym.arrays import Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.job.capacity import vertex_capacity
from dsp_gym.job.tables import SOURCE, JobTables


@njit(cache=True, nogil=True)
def sized(
    t: JobTables,
    row: Ints,
    rate_per_s: Floats,
    utilization: float,
    service_factor: Floats,
    level: Ints,
) -> Ints:
    """Find the smallest parallelism (J, V) at which no vertex is busier than `utilization`.

    Full TaskManagers are assumed. A vertex that even its largest parallelism would leave too busy
    gets the largest.

    Args:
        t: compiled jobs.
        row: (J,) row of the tables of each job.
        rate_per_s: (J,) load of the whole job.
        utilization: 0..1.
        service_factor: (J,) scale of CPU times.
        level: (J, V) memory levels.

    Returns:
        Subtasks per vertex, (J, V).
    """
    parallelism = np.ones(level.shape, np.int64)
    for j in range(row.shape[0]):
        k = row[j]
        # j counts rows of the batch, k rows of the tables, v vertices.
        crowd = 1.0 - t.contention[k] * (t.slots[k] - 1)
        for v in range(t.n[k]):
            needed = rate_per_s[j] * t.ratio[k, v]
            p = t.min_parallelism[k, v]
            while p < t.max_parallelism[k, v] and t.kind[k, v] != SOURCE:
                capacity, _ = vertex_capacity(t, k, v, p, level[j, v], needed)
                if capacity * crowd * utilization / service_factor[j] >= needed:
                    break
                p += 1
            parallelism[j, v] = p
    return parallelism


@njit(cache=True, nogil=True)
def cost_per_s(t: JobTables, row: Ints, parallelism: Ints, level: Ints) -> Floats:
    """Return the cost of requested resources, sources left out.

    Returns:
        Money per second, (J,).
    """
    cost = np.zeros(row.shape[0])
    for j in range(row.shape[0]):
        k = row[j]
        for v in range(t.n[k]):
            if t.kind[k, v] != SOURCE:
                gib = t.subtask_mib[k, level[j, v] + 1] / 1024.0
                one = t.core_hour[k] + gib * t.gib_hour[k]
                cost[j] += parallelism[j, v] * one / 3600.0
    return cost


def reference_cost_per_s(t: JobTables, row: Ints, headroom: float) -> Floats:
    """Return the unit in which a reward counts cost.

    It is the cost of the smallest configuration that carries the job's reference rate at the start
    level. Every reward uses this unit, so rewards of different origin can be compared.

    Args:
        t: Compiled jobs.
        row: (J,) row of the tables of each job.
        headroom: Utilization the configuration aims at, 0..1; `start_headroom` of an environment.

    Returns:
        Money per second, (J,).
    """
    level = t.start_level[row]
    smallest = sized(t, row, t.rate_per_s[row], headroom, np.ones(len(row)), level)
    return np.asarray(cost_per_s(t, row, smallest, level))
