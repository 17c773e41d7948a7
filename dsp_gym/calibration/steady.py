"""The steady state of a job in many configurations at once, as measurements would show it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.job.capacity import block_reads, mst_per_s, read_shares, slots_in_use, vertex_capacity
from dsp_gym.job.service import compiled, ticker_ratio
from dsp_gym.job.tables import SOURCE, JobTables

FAST_SPREAD = 0.3
"""Log spread of reads from memory; the histogram's own grain hides more of it."""


class AskedConfigurations(NamedTuple):
    """O configurations of one job of V vertices, and their loads."""

    parallelism: Ints  # (O, V) subtasks
    level: Ints  # (O, V) memory levels, -1 for none
    offered_per_s: Floats  # (O,) records/s; inf: more than the job can take
    is_mean: Bools  # (O,) whether a read latency is a mean; otherwise a histogram's median


class Steady(NamedTuple):
    """What they show. A vertex without state has no hit rate and no latencies: NaN."""

    rate_per_s: Floats  # (O,) records/s over all sources
    busy: Floats  # (O, V) 0..1, mean over subtasks
    hit: Floats  # (O, V) 0..1, of the block cache's tickers
    read_us: Floats  # (O, V)
    write_us: Floats  # (O, V)


def steady(tables: JobTables, asked: AskedConfigurations, read_spread: Floats) -> Steady:
    """Find the steady states.

    Args:
        tables: The compiled job, its only row.
        asked: O configurations.
        read_spread: (V,) log spread of the latency of reads from disk.

    Returns:
        One state for each.
    """
    shape = asked.parallelism.shape
    found = Steady(np.empty(shape[0]), *(np.full(shape, np.nan) for _ in range(4)))
    _steady(tables, *asked, read_spread, *found)
    return found


@compiled
def _steady(
    tables: JobTables,
    parallelism: Ints,
    levels: Ints,
    offered_per_s: Floats,
    is_mean: Bools,
    read_spread: Floats,
    rate_per_s: Floats,
    busy: Floats,
    hit: Floats,
    read_us: Floats,
    write_us: Floats,
) -> None:
    for o in range(len(parallelism)):
        p, level = parallelism[o], levels[o]
        rate = min(mst_per_s(tables, 0, p, level), offered_per_s[o])
        crowd = 1.0 - tables.contention[0] * (slots_in_use(tables, 0, p) - 1)
        rate_per_s[o] = rate
        for v in range(tables.n[0]):
            needed = rate * tables.ratio[0, v]
            capacity, served = vertex_capacity(tables, 0, v, p[v], level[v], needed)
            if tables.kind[0, v] != SOURCE:
                capacity *= crowd
            busy[o, v] = min(1.0, needed / capacity / tables.hot[0, v, p[v]])
            if tables.stateful[0, v] == 0:
                continue
            _, memtable = read_shares(tables, 0, v, p[v], level[v], needed)
            lookups, compacted = block_reads(tables, 0, v, p[v], level[v], needed)
            per_lookup = compacted * tables.writes[0, v]
            per_lookup /= max(lookups * tables.reads[0, v], 1e-9)
            hit[o, v] = ticker_ratio(served, memtable, tables.index_hits[0, v], per_lookup)
            fast = tables.read_hit_s[0, v] * 1e6
            miss = tables.read_miss_s[0, v] * tables.miss_factor[0, v, p[v]] * 1e6
            misses = lookups * (1.0 - served)  # per read
            if is_mean[o]:
                read_us[o, v] = fast + misses * miss
            else:
                untouched = served**lookups
                slow = fast + miss * misses / max(1.0 - untouched, 1e-9)
                read_us[o, v] = mixture_median(untouched, fast, slow, read_spread[v])
            write_us[o, v] = tables.write_s[0, v] * tables.write_factor[0, v, level[v] + 1] * 1e6


@compiled
def mixture_median(fast_share: float, fast: float, slow: float, slow_spread: float) -> float:
    """Take the median of a latency that is fast or slow, both log-normal, given their means.

    Returns:
        The median, in the unit of the means.

    >>> round(mixture_median(1.0, 4.0, 100.0, 0.5), 1)  # the median is below the mean
    3.8
    """
    low, high = math.log(min(fast, slow)) - 4.0, math.log(max(fast, slow)) + 4.0
    at_fast = math.log(fast) - 0.5 * FAST_SPREAD**2
    at_slow = math.log(slow) - 0.5 * slow_spread**2
    for _ in range(26):  # to 1e-6 of a logarithm
        middle = 0.5 * (low + high)
        below = fast_share * _normal((middle - at_fast) / FAST_SPREAD) + (
            1.0 - fast_share
        ) * _normal((middle - at_slow) / slow_spread)
        if below < 0.5:
            low = middle
        else:
            high = middle
    return math.exp(0.5 * (low + high))


@compiled
def _normal(z: float) -> float:
    return 0.5 * (1.0 + math.erf(z / math.sqrt(2.0)))
