"""Service time of a record: the scalar formulas the simulation and the analytic capacity share.

Compiled with numba so that the simulation kernel calls the very same code as `dsp-gym plan`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from dsp_gym.arrays import Floats
from dsp_gym.compiling import njit
from dsp_gym.job.tables import JobTables
from dsp_gym.numba_handles import by_address

BLOCK_MIB = 4096 / (1024.0 * 1024.0)
"""MiB that a miss brings into the block cache: a block of RocksDB's default size."""

_F = TypeVar("_F", bound=Callable[..., object])

# Compiled functions take the tables by address: passed as a tuple, numba would copy the descriptors
# of all their arrays at each call.
by_address(JobTables)


def compiled(function: _F) -> _F:
    """Compile a function on its first call and keep the machine code on disk.

    Returns:
        The compiled function, called as the original.
    """
    return njit(cache=True, nogil=True)(function)


@compiled
def entries(keys: float, content: float, panes: float, prefilled: bool) -> float:
    """Count the state entries over all subtasks.

    Args:
        keys: distinct keys.
        content: records that are in the window (or have arrived, without a window); infinity where
            the state has had time to see every key.
        panes: windows each record belongs to.
        prefilled: every key has a value, whichever records have arrived.

    Returns:
        Entries.
    """
    if prefilled:
        return keys * panes
    # Balls into bins, uniform: keys touched by `content` records are keys (1 - exp(-content /
    # keys)); expm1 keeps digits where content is small.
    return keys * -math.expm1(-content / keys) * panes


@compiled
def hit_rate(hit_curve_row: Floats, cache_mib: float, working_set_mib: float) -> float:
    """Return the share of reads served from the block cache, linear between points of the curve.

    The points lie at cache / working set = (i / half)^2 (`cache.CURVE_X`), dense where it is small.

    Returns:
        0..1.
    """
    if cache_mib <= 0.0:
        return 0.0
    last = hit_curve_row.shape[0] - 1
    half = last // 2
    if cache_mib >= 4.0 * working_set_mib:
        return float(hit_curve_row[last])
    x = cache_mib / working_set_mib
    # The square root inverts the spacing of the points, so no search is needed.
    left = min(int(half * math.sqrt(x)), last - 1)
    below, above = left / half, (left + 1) / half
    share = (x - below * below) / (above * above - below * below)
    return float(hit_curve_row[left] * (1.0 - share) + hit_curve_row[left + 1] * share)


@compiled
def memtable_share(memtable_mib: float, state_mib: float) -> float:
    """Return the share of reads served by a MemTable with random keys of a subtask's state.

    Returns:
        0..1.
    """
    if memtable_mib <= 0.0:
        return 0.0
    # Sampling keys with replacement: 1 - exp(-MemTable / state) of them are in the MemTable.
    return -math.expm1(-memtable_mib / max(state_mib, 1e-9))


@compiled
def level0_lookups(memtable_mib: float, state_mib: float, files: float) -> float:
    """Return the data blocks that a read looks up when no MemTable serves it.

    Level 0 holds up to `files` - 1 files, half of them on average, each a flushed MemTable of
    random keys of the state. A read opens them from the newest on until one has its key, then the
    level below.

    Args:
        memtable_mib: size of a MemTable when it is flushed.
        state_mib: live state of the subtask.
        files: number of level-0 files that starts a compaction; 0: there is one level.

    Returns:
        Lookups, at least 1.

    >>> level0_lookups(1e-9, 100.0, 4.0), level0_lookups(1e9, 100.0, 4.0)
    (2.5, 1.0)
    """
    if files <= 1.0:
        return 1.0
    # Below 1e-6 the quotient loses its digits; the limit u -> 0 is half the files and the level
    # below.
    u = memtable_mib / max(state_mib, 1e-9)
    if u < 1e-6:
        return 0.5 * (files - 1.0) + 1.0
    # A geometric series: each file has the key with probability 1 - exp(-u).
    below = math.exp(-0.5 * (files - 1.0) * u)
    return (1.0 - below) / -math.expm1(-u) + below


@compiled
def compacted_blocks(
    memtable_mib: float, state_mib: float, files: float, blocks_per_entry: float
) -> float:
    """Return the blocks that compactions read for one write.

    `files` flushed MemTables are merged with the whole level below, which is the state. A MemTable
    holds each version of a key; a flush keeps only the last ones.

    Args:
        memtable_mib: size of a MemTable when it is flushed.
        state_mib: live state of the subtask.
        files: number of level-0 files that starts a compaction; 0: there are no compactions.
        blocks_per_entry: size of an entry in blocks.

    Returns:
        Blocks per write.

    >>> round(compacted_blocks(10.0, 1000.0, 4.0, 0.25), 1)  # 1,040 MiB read for 40 written
    6.5
    """
    if files <= 0.0 or memtable_mib <= 0.0 or state_mib <= 0.0:
        return 0.0
    u = memtable_mib / state_mib
    # Per compaction, in units of the state: files (1 - exp(-u)) from level 0 and 1 from below,
    # shared by files u writes.
    return blocks_per_entry * (-math.expm1(-u) + 1.0 / files) / u


@compiled
def read_and_compacted(
    memtable_mib: float, flush_mib: float, state_mib: float, files: float, blocks_per_entry: float
) -> tuple[float, float, float]:
    """Compute `memtable_share`, `level0_lookups` and `compacted_blocks` of one subtask at once.

    They share an exponential, which is most of their work.

    Args:
        memtable_mib: MemTable of `memtable_share`.
        flush_mib: size of a MemTable when it is flushed, for the other two.
        state_mib: live state of the subtask.
        files: number of level-0 files that starts a compaction.
        blocks_per_entry: size of an entry in blocks.

    Returns:
        The results of the three, bit for bit.
    """
    lookups, compacted = 1.0, 0.0
    new = 0.0  # share of the state that a flushed MemTable holds
    # Every branch repeats the arithmetic of the three functions above in the same order: tests hold
    # the results bit for bit.
    if files > 0.0 and (files > 1.0 or flush_mib > 0.0):
        u = flush_mib / max(state_mib, 1e-9)
        new = -math.expm1(-u)
        if files > 1.0:
            if u < 1e-6:
                lookups = 0.5 * (files - 1.0) + 1.0
            else:
                below = math.exp(-0.5 * (files - 1.0) * u)
                lookups = (1.0 - below) / new + below
        if state_mib < 1e-9:
            compacted = compacted_blocks(flush_mib, state_mib, files, blocks_per_entry)
        elif flush_mib > 0.0:
            compacted = blocks_per_entry * (new + 1.0 / files) / u
    same = new > 0.0 and memtable_mib == flush_mib
    return new if same else memtable_share(memtable_mib, state_mib), lookups, compacted


@compiled
def served_share(hit: float, churn: float, memtable: float) -> float:
    """Return the share of reads that go to no SST file.

    Args:
        hit: hit rate of the block cache, were its blocks never replaced.
        churn: share of cached blocks that flushes and compactions have replaced.
        memtable: share of reads the MemTable serves before the cache.

    Returns:
        0..1.
    """
    return memtable + (1.0 - memtable) * hit * (1.0 - churn)


@compiled
def ticker_ratio(served: float, memtable: float, index_hits: float, compacted: float) -> float:
    """Return the hit ratio of RocksDB's block cache tickers.

    Reads that the MemTable serves count neither as hit nor as miss; index blocks hit.

    Args:
        served: share of the lookups of data blocks that go to no SST file.
        memtable: share of reads the MemTable serves.
        index_hits: cached lookups beside each data block.
        compacted: blocks that compactions read, all missed, per lookup of a data block.

    Returns:
        0..1.

    >>> ticker_ratio(0.5, 0.0, 0.0, 0.0), ticker_ratio(0.5, 0.0, 1.0, 0.0)
    (0.5, 0.75)
    >>> ticker_ratio(0.75, 0.5, 0.0, 0.0), ticker_ratio(0.5, 0.0, 0.0, 1.0)
    (0.5, 0.25)
    """
    asked = 1.0 - memtable
    if asked + compacted <= 0.0:
        return 1.0
    return (asked * index_hits + served - memtable) / (asked * (1.0 + index_hits) + compacted)


@compiled
def working_set_mib(
    entry_count: float, entry_mib: float, unshared_mib: float, parallelism: float
) -> float:
    """Return the working set of one subtask: its part of the entries and its unshared part.

    Returns:
        MiB.
    """
    return unshared_mib + entry_count * entry_mib / parallelism


@compiled
def service_s(
    cpu_s: float,
    reads: float,
    read_hit_s: float,
    read_miss_s: float,
    writes: float,
    write_s: float,
    hit: float,
) -> float:
    """Return the seconds one subtask needs for a record; a miss costs `read_miss_s` besides a hit.

    Returns:
        Seconds of busy time per record, before noise.
    """
    return cpu_s + reads * (read_hit_s + (1.0 - hit) * read_miss_s) + writes * write_s
