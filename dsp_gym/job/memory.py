"""Memory of a subtask: the size of a level, and how RocksDB divides it.

Sources: Justin, section 3 (MemTable and cache of 128, 256 and 512 MB); Flink's
RocksDBMemoryControllerUtils (block cache (3-w)/3, write buffers 2w/3 of managed memory for
write-buffer ratio w = 0.5); Flink's TaskManager memory model.
"""

from __future__ import annotations

import math

FULL_MEMTABLE_MIB = 64.0
"""Largest MemTable RocksDB uses here (Justin, section 3: one first-level SSTable)."""

LEAST_ROCKSDB_MIB = 3 * 8 * 8 / 7
"""Least managed memory of a subtask with which MemTables are not flushed all the time.

An arena block is an eighth of 64 MiB; it must fit into seven eighths of the third of managed memory
that MemTables get (Flink 2.1, RocksDBMemoryControllerUtils.validateArenaBlockSize, which warns
below it).
"""

FLUSHED_AT = 7 / 8
"""Share of its memory at which RocksDB's write buffer manager flushes a MemTable."""

NO_MEMORY = -1
"""Memory level of a subtask without managed memory (the papers' bottom)."""


def level_mib(base_mib: float, level: int) -> float:
    """Return the managed memory of one subtask at a level, MiB; 0 without managed memory.

    Returns:
        MiB: the base at level 0, twice as much with every level above.

    >>> level_mib(158, 1), level_mib(158, NO_MEMORY)
    (316.0, 0.0)
    """
    return 0.0 if level == NO_MEMORY else float(base_mib * 2**level)


def justin_split(managed_mib: float) -> tuple[float, float]:
    """Return MemTable and block cache of one subtask as Justin's text gives them, MiB.

    The MemTable is the largest power of two up to a quarter of managed memory, at most 64.

    Returns:
        MiB of MemTable, MiB of block cache.

    >>> justin_split(128), justin_split(256), justin_split(512)
    ((32.0, 96.0), (64.0, 192.0), (64.0, 448.0))
    """
    if managed_mib <= 0:
        return 0.0, 0.0
    memtable = min(FULL_MEMTABLE_MIB, 2.0 ** math.floor(math.log2(managed_mib / 4)))
    return memtable, managed_mib - memtable


def flink_split(managed_mib: float, *, writes: bool) -> tuple[float, float]:
    """Return MemTable and the block cache left to reads with Flink's managed RocksDB memory, MiB.

    The cache is 5/6 of managed memory; MemTables (1/3) are charged to it when there are writes.

    Returns:
        MiB of MemTable, MiB of block cache.

    >>> flink_split(120, writes=True), flink_split(120, writes=False)
    ((40.0, 60.0), (40.0, 100.0))
    """
    memtable = managed_mib / 3
    cache = managed_mib * 5 / 6
    return memtable, cache - memtable if writes else cache


def managed_mib_per_slot(slot_memory_mib: float, slots: int = 16, fraction: float = 0.4) -> float:
    """Return the managed memory of one slot from TaskManager process memory per slot, MiB.

    Flink's model: JVM overhead is 10 % of process memory, between 192 MiB and 1 GiB, and metaspace
    256 MiB, per TaskManager; managed memory is `fraction` of the rest.

    Args:
        slot_memory_mib: TaskManager process memory / slots.
        slots: slots of one TaskManager (StreamBed: 16).
        fraction: `taskmanager.memory.managed.fraction`, Flink's default.

    Returns:
        MiB.

    >>> round(managed_mib_per_slot(2048))
    787
    """
    process_mib = slot_memory_mib * slots
    overhead = min(max(0.1 * process_mib, 192.0), 1024.0)
    return max(0.0, (process_mib - overhead - 256.0) * fraction / slots)
