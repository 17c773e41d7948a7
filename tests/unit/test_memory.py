"""Memory of a subtask: levels, and what RocksDB makes of them."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.job.cache import GRID, hit_curve, write_factor
from dsp_gym.job.memory import flink_split, justin_split, level_mib, managed_mib_per_slot
from dsp_gym.job.spec import Popularity


@pytest.mark.parametrize(("level", "mib"), [(-1, 0), (0, 158), (1, 316), (2, 632)])
def test_justins_levels(level, mib):
    assert level_mib(158, level) == mib


@pytest.mark.parametrize(
    ("managed", "memtable", "cache"),
    [(128, 32, 96), (256, 64, 192), (512, 64, 448), (158, 32, 126), (0, 0, 0)],
)
def test_justins_split(managed, memtable, cache):
    assert justin_split(managed) == (memtable, cache)


def test_flinks_split_charges_memtables_to_the_cache_when_there_are_writes():
    assert flink_split(600, writes=False)[1] - flink_split(600, writes=True)[1] == 200


@pytest.mark.parametrize(
    ("per_slot", "slots", "managed"),
    [
        # Process memory less overhead (10 %, 192 to 1,024 MiB) and 256 MiB of metaspace, times 0.4.
        (512, 16, (8192 - 819.2 - 256) * 0.4 / 16),
        (2048, 16, (32768 - 1024 - 256) * 0.4 / 16),
        (512, 4, (2048 - 204.8 - 256) * 0.4 / 4),
        (1024, 1, (1024 - 192 - 256) * 0.4),
    ],
)
def test_flinks_memory_model(per_slot, slots, managed):
    assert managed_mib_per_slot(per_slot, slots) == pytest.approx(managed)


def test_justins_taskmanager_has_158_mib_per_slot():
    # 2,048 MB and 4 slots (section 5); the model is a good half MiB off.
    assert managed_mib_per_slot(512, 4) == pytest.approx(158, abs=1)


def test_uniform_keys_hit_in_proportion_to_the_cache():
    assert hit_curve(Popularity(), 1e6) == pytest.approx(np.linspace(0, 1, GRID))


@pytest.mark.parametrize("exponent", [0.5, 0.99, 1.3])
def test_popular_keys_hit_more_than_their_share_of_the_cache(exponent):
    curve = hit_curve(Popularity(form="zipf", exponent=exponent), 1e6)
    assert np.all(np.diff(curve) >= 0)
    assert np.all(curve[1:-1] > np.linspace(0, 1, GRID)[1:-1])
    assert (curve[0], curve[-1]) == (0.0, 1.0)


def test_a_cache_of_the_hottest_keys_bounds_lru_from_above():
    n, exponent = 1000, 1.0
    p = np.arange(1, n + 1) ** -exponent
    ideal = np.interp(
        np.linspace(0, 1, GRID), np.arange(n + 1) / n, np.r_[0, np.cumsum(p)] / p.sum()
    )
    curve = hit_curve(Popularity(form="zipf", exponent=exponent), n)
    assert np.all(curve <= ideal + 0.01)


def test_a_write_costs_more_with_a_smaller_memtable():
    assert write_factor(16, 0.03) == pytest.approx(1.06)
    assert write_factor(0, 0.03) > write_factor(8, 0.03) > write_factor(64, 0.03) == 1.0
