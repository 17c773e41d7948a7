"""The speed of vertices according to a job file, before any measurement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.errors import PolicyError
from dsp_gym.job.capacity import block_reads, vertex_capacity, working_set
from dsp_gym.job.service import BLOCK_MIB, hit_rate
from dsp_gym.job.spec import JobSpec, UntimedJob
from dsp_gym.job.tables import NO_WINDOW, JobTables, compile_jobs
from dsp_gym.loop.topology import Topology

_HALVINGS = 30

_PARTS = 40
"""Steps in which a cache is filled."""


class Prior(NamedTuple):
    """Speed of K jobs before any measurement: V vertices, L memory levels, P tasks."""

    records_per_s: Floats  # (K, V, L + 1, P + 1) a vertex processes, windows full, one slot in use
    ratio: Floats  # (K, V) input records per record of job load; NaN: unknown
    lost_s: Floats  # (K,) capacity lost to cold caches after a restart, in seconds of it
    tables: JobTables  # the compiled job files
    is_filed: bool  # from job files; else a task processes one record per second, to be learned

    @classmethod
    def of_files(cls, jobs: Topology, specs: Sequence[JobSpec] = ()) -> Prior:
        """Take the prior from job files.

        Args:
            jobs: The batch.
            specs: Files in place of the jobs' own, found by their `job` name.

        Returns:
            The prior of each of the K distinct jobs; that of `none` where one of them has no times
            per record, such as a job known from its snapshots alone.

        Raises:
            PolicyError: A file has another graph or other bounds than its job.
        """
        tables, named = jobs.tables, {spec.job: spec for spec in specs}
        chosen = [named.get(own.job, own) for own in jobs.specs]
        if any(isinstance(one, UntimedJob) for one in chosen):
            return cls.none(jobs)
        if specs:
            for own, other in zip(jobs.specs, chosen, strict=True):
                _refuse_other_graph(own, other)
            tables = compile_jobs(chosen)
        shape = (*tables.cache_mib.shape, tables.useful.shape[2])
        records_per_s = np.zeros(shape)
        _fill(tables, records_per_s)
        lost_s = np.zeros(len(records_per_s))
        _lose(tables, records_per_s, lost_s)
        return cls(records_per_s, tables.ratio, lost_s, tables, True)

    @classmethod
    def none(cls, jobs: Topology) -> Prior:
        """Make the prior of unknown jobs: p tasks process p records per second until one was seen.

        Returns:
            The prior of each of the K distinct jobs.
        """
        tables = jobs.tables
        tasks = np.arange(tables.useful.shape[2], dtype=np.float64)
        shape = (*tables.cache_mib.shape, len(tasks))
        unknown = np.full(tables.ratio.shape, np.nan)
        lost_s = np.zeros(len(unknown))
        return cls(np.broadcast_to(tasks, shape).copy(), unknown, lost_s, tables, False)


def _graph(spec: JobSpec) -> list[tuple[object, ...]]:
    """Return the parts that have to agree: vertices, edges and bounds."""
    cap = spec.max_parallelism_per_vertex
    # Sorted topologically, so the order of vertices in a file does not matter.
    return [
        (
            vertex.name,
            vertex.kind,
            vertex.scalable,
            min(cap, vertex.max_parallelism),
            tuple(edge.from_ for edge in vertex.inputs),
        )
        for vertex in spec.topological_order()
    ]


def _refuse_other_graph(own: JobSpec, other: JobSpec) -> None:
    if _graph(own) != _graph(other) or own.memory.levels != other.memory.levels:
        ours = ", ".join(vertex.name for vertex in own.topological_order())
        theirs = ", ".join(vertex.name for vertex in other.topological_order())
        raise PolicyError(
            f"the job file taken as prior of '{own.job}' describes another job: its vertices are "
            f"{theirs}; those of the running job are {ours}, or their edges, largest parallelism "
            "or memory levels differ",
            remedy="Calibrate the job file on the running job, or leave it out of job_files.",
        )


@njit(cache=True, nogil=True)
def _fill(t: JobTables, records_per_s: Floats) -> None:
    """Fill in the largest input each vertex processes, its window filled by that input."""
    jobs, _, columns, sizes = records_per_s.shape
    for k in range(jobs):
        for v in range(t.n[k]):
            for column in range(min(columns, t.levels[k] + 1)):
                for p in range(1, min(sizes, t.max_parallelism[k, v] + 1)):
                    # An empty window is the best case: an upper bound for the bisection.
                    high, _ = vertex_capacity(t, k, v, p, column - 1, 0.0)
                    if t.window[k, v] != NO_WINDOW:  # a fuller window has a larger working set
                        low = 0.0
                        for _ in range(_HALVINGS):
                            rate = 0.5 * (low + high)
                            capacity, _ = vertex_capacity(t, k, v, p, column - 1, rate)
                            if capacity >= rate:
                                low = rate
                            else:
                                high = rate
                        high = low
                    records_per_s[k, v, column, p] = high


@njit(cache=True, nogil=True)
def _lose(t: JobTables, records_per_s: Floats, lost_s: Floats) -> None:
    """Fill in the largest loss of any vertex, at its start level and tasks for the reference rate.

    The largest, not the sum: the vertices of a job warm up at the same time.
    """
    for k in range(lost_s.shape[0]):
        for v in range(t.n[k]):
            column = t.start_level[k, v] + 1
            if t.stateful[k, v] == 0 or not t.cache_mib[k, v, column] < math.inf:
                continue
            wanted = t.ratio[k, v] * t.rate_per_s[k]
            p = 1
            while p < t.max_parallelism[k, v] and records_per_s[k, v, column, p] < wanted:
                p += 1
            lost_s[k] = max(lost_s[k], _cold_s(t, k, v, p, column, wanted))


@njit(cache=True, nogil=True)
def lost_by_restart_s(
    t: JobTables, k: int, parallelism: Ints, memory_level: Ints, rate_per_s: float
) -> float:
    """Compute the capacity that cold caches keep from a job after a restart.

    Args:
        t: Compiled jobs.
        k: Row of the job.
        parallelism: (V,) tasks it restarts with.
        memory_level: (V,) memory levels it restarts with.
        rate_per_s: Load of the job.

    Returns:
        Seconds of the capacity: the largest loss of any vertex, as they warm up at the same time.
    """
    lost_s = 0.0
    for v in range(t.n[k]):
        column = memory_level[v] + 1
        if t.stateful[k, v] == 1 and t.cache_mib[k, v, column] < math.inf:
            input_per_s = t.ratio[k, v] * rate_per_s
            lost_s = max(lost_s, _cold_s(t, k, v, parallelism[v], column, input_per_s))
    return lost_s


@njit(cache=True, nogil=True)
def _cold_s(t: JobTables, k: int, v: int, p: int, column: int, input_per_s: float) -> float:
    """Return the seconds that the misses of a cold cache cost one task, above those of a warm one.

    Every miss brings a block, or an entry where that is larger, as in the simulation.
    """
    working = working_set(t, k, v, p, input_per_s)
    cache = min(t.cache_mib[k, v, column], working)
    lookups, _ = block_reads(t, k, v, p, column - 1, input_per_s)
    miss_s = t.read_miss_s[k, v] * t.miss_factor[k, v, p] * lookups
    warm = hit_rate(t.hit[k, v, column], cache, working)
    brought = cache / _PARTS / max(BLOCK_MIB, t.entry_mib[k, v])
    total = 0.0
    # Filling a part of the cache takes `brought` misses, at the hit rate of that part: brought / (1
    # - hit) lookups, of which (warm - hit) would hit a warm cache.
    for part in range(_PARTS):
        hit = hit_rate(t.hit[k, v, column], cache * (part + 0.5) / _PARTS, working)
        if hit < warm:
            total += brought * (warm - hit) / (1.0 - hit)
    return float(total * miss_s)
