"""Flushes and compactions: the closed forms beside a small tree with a cache of blocks."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import pytest

from dsp_gym.job.cache import Blocks, level0_hit_curve
from dsp_gym.job.capacity import vertex_capacity
from dsp_gym.job.catalog import load_job
from dsp_gym.job.service import compacted_blocks, hit_rate, level0_lookups, ticker_ratio
from dsp_gym.job.spec import Popularity, State
from dsp_gym.job.tables import compile_jobs

PER_BLOCK, FILES = 4, 4


@dataclass
class Counted:
    """Of one read-modify-write, on average."""

    served: float  # by the MemTable
    lookups: float  # of data blocks
    misses: float
    compacted: float  # blocks read by compactions


def a_tree(keys: int, memtable: int, cache: int) -> Counted:
    """Reads and writes uniform keys; compacts at once, so level 0 holds 0 to FILES - 1 files."""
    operations, warm = 40_000, 12_000
    rng = np.random.default_rng(0)
    table: set[int] = set()
    written, below, files = 0, 0, 0
    level0: list[tuple[int, np.ndarray]] = []
    cached: OrderedDict[tuple[int, int], None] = OrderedDict()
    counted = np.zeros(4)
    for i, key in enumerate(rng.integers(0, keys, operations).tolist()):
        one = np.zeros(4)
        if key in table:
            one[0] = 1
        else:
            looked_up = []
            for file, held in reversed(level0):
                at = min(int(held.searchsorted(key)), len(held) - 1)
                looked_up.append((file, at // PER_BLOCK))
                if held[at] == key:
                    break
            else:
                looked_up.append((below, key // PER_BLOCK))
            for block in looked_up:
                one[1:3] += 1, block not in cached
                cached[block] = None
                cached.move_to_end(block)
                if len(cached) > cache:
                    cached.popitem(last=False)
        table.add(key)
        written += 1
        if written == memtable:
            files += 1
            level0.append((files, np.array(sorted(table))))
            table, written = set(), 0
            if len(level0) == FILES:
                files += 1
                below = files
                one[3] = (keys + sum(len(held) for _, held in level0)) / PER_BLOCK
                level0 = []
        if i >= warm:
            counted += one
    return Counted(*(counted / (operations - warm)))


@pytest.mark.parametrize(("keys", "memtable", "cache"), [(4000, 200, 150), (2000, 1000, 500)])
def test_the_closed_forms_are_those_of_a_tree(keys, memtable, cache):
    seen = a_tree(keys, memtable, cache)
    u, x = memtable / keys, cache * PER_BLOCK / keys
    served = 1 - (1 - np.exp(-u)) / u  # the MemTable fills from empty to full
    assert seen.served == pytest.approx(served, abs=0.01)
    assert seen.compacted == pytest.approx(compacted_blocks(u, 1.0, FILES, 1 / PER_BLOCK), rel=0.1)
    lookups = (1 - served) * level0_lookups(u, 1.0, FILES)
    assert seen.lookups == pytest.approx(lookups, rel=0.1)
    curve = level0_hit_curve(Blocks(Popularity(), keys, PER_BLOCK), FILES, u / x, 1.0)
    misses = lookups * (1 - hit_rate(curve, x, 1.0))
    assert seen.misses == pytest.approx(misses, rel=0.12)


def test_a_compaction_reads_the_state_once_for_its_files():
    # 4 MemTables of 10 MiB are merged with 1,000 MiB: 26 bytes read per byte written.
    assert compacted_blocks(10.0, 1000.0, 4.0, 0.25) == pytest.approx(0.25 * 26, rel=0.01)
    assert compacted_blocks(10.0, 1000.0, 0.0, 0.25) == 0.0


def test_more_memory_and_more_tasks_mean_fewer_compactions():
    reads = [compacted_blocks(m, 100.0 / p, 4.0, 0.25) for m, p in ((5, 1), (10, 1), (10, 2))]
    assert reads[0] > 1.6 * reads[1] > 1.6 * 1.5 * reads[2]


def test_a_state_that_fits_into_a_memtable_is_found_in_the_newest_file():
    assert level0_lookups(1000.0, 10.0, 4.0) == pytest.approx(1.0)
    assert level0_lookups(0.0, 10.0, 4.0) == pytest.approx(2.5)
    assert level0_lookups(10.0, 10.0, 0.0) == 1.0


def test_tickers_count_what_compactions_read_as_misses():
    assert ticker_ratio(0.8, 0.0, 0.5, 0.0) == pytest.approx(1.3 / 1.5)
    assert ticker_ratio(0.8, 0.0, 0.5, 0.5) == pytest.approx(1.3 / 2.0)


def test_updates_with_little_memory_cost_more_at_every_parallelism():
    tables = compile_jobs([load_job("flink-runs-direct-update")])
    cost = [
        [p / vertex_capacity(tables, 0, 2, p, level, 0.0)[0] for level in range(4)]
        for p in (1, 2, 4)
    ]
    assert np.all(np.diff(cost, axis=1) < 0)


def test_a_tree_is_described_in_one_way():
    with pytest.raises(ValueError, match="give one of them"):
        State(keys=10, value_bytes=10, level0_files=4, upper_lookups=1)
    with pytest.raises(ValueError, match="needs level0_files"):
        State(keys=10, value_bytes=10, compaction_us=4)
