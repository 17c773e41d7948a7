"""Memory of a subtask: levels, and RocksDB's use of them."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.job.cache import CURVE_X, Blocks, hit_curve, lru_curve, write_factor
from dsp_gym.job.memory import flink_split, justin_split, level_mib, managed_mib_per_slot
from dsp_gym.job.service import hit_rate
from dsp_gym.job.spec import Popularity, State


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
    assert hit_curve(Blocks(Popularity(), 1e6)) == pytest.approx(np.minimum(CURVE_X, 1.0))


@pytest.mark.parametrize("ratio", [0.0, 0.001, 0.3, 0.5, 0.97, 1.0, 7.0, np.inf])
def test_a_hit_rate_lies_between_the_points_of_its_curve(ratio):
    found = hit_rate(hit_curve(Blocks(Popularity(), 1e6)), 200.0 * ratio, 200.0)
    assert found == pytest.approx(min(ratio, 1.0))


@pytest.mark.parametrize("exponent", [0.5, 0.99, 1.3])
def test_popular_keys_hit_more_than_their_share_of_the_cache(exponent):
    curve = hit_curve(Blocks(Popularity(form="zipf", exponent=exponent), 1e6))
    within = CURVE_X < 1
    assert np.all(np.diff(curve) >= 0)
    assert np.all(curve[within][1:] > CURVE_X[within][1:])
    assert (curve[0], curve[-1]) == (0.0, 1.0)


def test_a_cache_of_the_hottest_keys_bounds_lru_from_above():
    n, exponent = 1000, 1.0
    p = np.arange(1, n + 1) ** -exponent
    ideal = np.interp(CURVE_X, np.arange(n + 1) / n, np.r_[0, np.cumsum(p)] / p.sum())
    curve = hit_curve(Blocks(Popularity(form="zipf", exponent=exponent), n))
    assert np.all(curve <= ideal + 0.01)


def test_blocks_that_mix_hot_and_cold_keys_hit_less():
    law = Popularity(form="zipf", exponent=0.8)
    alone, mixed = (hit_curve(Blocks(law, 1e6, keys_per_block=n)) for n in (1.0, 36.0))
    middle = (CURVE_X > 0) & (CURVE_X < 0.9)
    assert np.all(mixed[middle] < alone[middle])
    assert np.all(mixed[middle] > CURVE_X[middle])


def test_the_closed_form_is_an_lru_cache_of_blocks_of_random_keys():
    keys, per_block, exponent = 4000, 8, 0.8
    rng = np.random.default_rng(3)
    weight = rng.permutation(np.arange(1, keys + 1) ** -exponent)
    block_of = np.arange(keys) // per_block
    looked_up = block_of[rng.choice(keys, 120_000, p=weight / weight.sum())]
    curve = lru_curve(Blocks(Popularity(form="zipf", exponent=exponent), keys, per_block))
    for size in (25, 100, 250):
        cached: dict[int, None] = {}
        hits = 0
        for at, block in enumerate(looked_up.tolist()):
            hits += at >= 20_000 and block in cached
            cached.pop(block, None)
            cached[block] = None
            if len(cached) > size:
                del cached[next(iter(cached))]
        said = np.interp(size * per_block / keys, curve.size, curve.data)
        assert hits / 100_000 == pytest.approx(said, abs=0.015)


def test_small_upper_levels_are_cached_first():
    # Half of the lookups go to a tenth of the bytes: the same rate as uniform only at the end.
    curve = hit_curve(Blocks(Popularity(), 1e6, upper_lookups=1.0, level_ratio=9.0))
    small, full = np.searchsorted(CURVE_X, [0.05, 1.0])
    assert curve[small] > 2 * CURVE_X[small]
    assert curve[full] == pytest.approx(1.0, abs=0.01)


def test_index_blocks_take_their_place_before_data_blocks():
    blocks = Blocks(Popularity(), 1e6, index_lookups=1.0, index_share=0.02)
    lru = lru_curve(blocks)
    at = np.searchsorted(lru.size, 0.1)
    assert lru.index[at] > 0.98
    assert lru.data[at] == pytest.approx(lru.size[at] - 0.02, abs=0.001)
    assert lru.overall(blocks)[at] == pytest.approx((lru.index[at] + lru.data[at]) / 2)


def test_blocks_read_once_push_others_out():
    curve = hit_curve(Blocks(Popularity(), 1e6, cold=0.3))
    within = (CURVE_X > 0) & (CURVE_X < 1)
    assert np.all(curve[within] < CURVE_X[within])
    assert curve[-1] == 1.0


def test_hit_curves_without_churn_levels_or_zipf_stay_as_they_were():
    state = State(reads=1, keys=1e6, value_bytes=100)
    assert hit_curve(Blocks.of_state(state)) == pytest.approx(np.minimum(CURVE_X, 1.0))
    assert state.model_dump(exclude_defaults=True).keys() == {"reads", "keys", "value_bytes"}
    assert not {"block_bytes", "upper_lookups", "level_ratio", "index_share"} & set(
        state.model_dump()
    )


def test_a_write_costs_more_with_a_smaller_memtable():
    assert write_factor(16, 0.03) == pytest.approx(1.06)
    assert write_factor(0, 0.03) > write_factor(8, 0.03) > write_factor(64, 0.03) == 1.0
