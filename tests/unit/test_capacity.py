"""Maximal sustainable throughput against values worked out by hand."""

from __future__ import annotations

import math

import pytest

from dsp_gym.errors import ConfigError
from dsp_gym.job.capacity import mst
from dsp_gym.job.spec import JobSpec


def job(**changes):
    """A source, a map of 100 us per record and a sink of 1 us, half of the records passed on."""
    middle = {
        "name": "map",
        "inputs": [{"from": "in", "ship": "REBALANCE"}],
        "selectivity": 0.5,
        "cpu_us_per_record": 100,
        **changes.pop("map", {}),
    }
    return JobSpec.model_validate(
        {
            "job": "small",
            "source": {"rate_per_s": 1000},
            "vertices": [
                {"name": "in", "kind": "source", "cpu_us_per_record": 1},
                middle,
                {
                    "name": "out",
                    "kind": "sink",
                    "inputs": [{"from": "map", "ship": "REBALANCE"}],
                    "cpu_us_per_record": 1,
                },
            ],
            "memory": {"base_mib": 120, "levels": 3},
            **changes,
        }
    )


def test_a_linear_vertex_carries_its_tasks_over_its_service_time():
    result = mst(job(), {"map": 4})
    assert result.rate_per_s == pytest.approx(40_000)
    assert result.bottleneck == "map"


def test_a_vertex_behind_a_selectivity_sees_only_its_share():
    slow_sink = job(map={"cpu_us_per_record": 0.1}).model_dump(by_alias=True)
    slow_sink["vertices"][2]["cpu_us_per_record"] = 50
    result = mst(JobSpec.model_validate(slow_sink))
    assert result.rate_per_s == pytest.approx(40_000)  # 20 K/s at the sink, twice that before
    assert result.bottleneck == "out"


def test_the_source_can_be_the_limit():
    result = mst(job(map={"cpu_us_per_record": 1}), {"map": 20, "out": 20})
    assert (result.bottleneck, result.rate_per_s) == ("in", pytest.approx(1e6))


def test_loss_with_parallelism_follows_the_form():
    power = job(map={"efficiency": {"form": "power", "a": 0.5}})
    assert mst(power, {"map": 16}).rate_per_s == pytest.approx(4 * 10_000)


def test_neighbours_on_a_taskmanager_slow_each_other():
    crowded = job(taskmanager={"slots": 4, "contention": 0.1})
    assert mst(crowded, {"map": 2}).rate_per_s == pytest.approx(20_000 * 0.8)  # 3 slots in use
    assert mst(crowded, {"map": 12}).rate_per_s == pytest.approx(120_000 * 0.7)  # 4 at most


def test_with_slot_sharing_the_widest_vertex_fills_the_slots():
    shared = job(taskmanager={"slots": 4, "contention": 0.1}, slot_sharing=True)
    assert mst(shared, {"map": 2}).rate_per_s == pytest.approx(20_000 * 0.9)


def test_few_key_groups_overload_the_hottest_subtask():
    hashed = job(map={"inputs": [{"from": "in", "ship": "HASH"}], "max_parallelism": 4})
    assert mst(hashed, {"map": 3}).rate_per_s == pytest.approx(20_000)  # one holds 2 of 4 groups


def state(**changes):
    return {
        "reads": 1,
        "keys": 2**20,
        "value_bytes": 100,  # 100 MiB in all
        "read_hit_us": 100,
        "read_miss_us": 800,
        **changes,
    }


def stateful(**changes):
    return job(map={"inputs": [{"from": "in", "ship": "HASH"}], "state": state(**changes)})


def test_reads_that_miss_the_cache_cost_more():
    # No writes: the cache is 5/6 of 120 MiB = all 100 MiB; without memory every read misses.
    assert mst(stateful(), {}, {"map": 0}).rate_per_s == pytest.approx(5_000)
    assert mst(stateful(), {}, {"map": -1}).rate_per_s == pytest.approx(1_000)


def test_hit_rate_is_the_cached_share_of_a_subtasks_keys():
    result = mst(stateful(value_bytes=400), {"map": 2}, {"map": 0})
    loads = {load.name: load for load in result.vertices}
    assert loads["map"].hit_rate == pytest.approx(0.5)  # 100 of 200 MiB
    assert loads["in"].hit_rate is None
    assert result.rate_per_s == pytest.approx(2 / 600e-6)


def test_a_window_that_fills_with_load_meets_the_fixed_point():
    # Tumbling 1,000 s, one entry of 1 MiB per key, cache 100 MiB: the load that just fits has
    # keys * (1 - exp(-1000 rate / keys)) = working set.
    window = {"kind": "tumbling", "length_s": 1000}
    keys = 400.0
    spec = stateful(window=window, keys=keys, value_bytes=2**20)
    spec = spec.model_copy(update={"buffer_records": 2e6})  # no firing waits
    result = mst(spec, {"map": 1}, {"map": 0})
    rate = result.rate_per_s
    working_set = keys * (1 - math.exp(-1000 * rate / keys))
    service = 200e-6 + (1 - min(1, 100 / working_set)) * 800e-6
    assert rate == pytest.approx(1 / service)


def test_every_vertex_is_at_most_fully_used_and_the_bottleneck_is():
    result = mst(stateful(), {"map": 3}, {"map": 1})
    used = {load.name: load.utilization for load in result.vertices}
    assert max(used.values()) == pytest.approx(1.0)
    assert used[result.bottleneck] == max(used.values())


@pytest.mark.parametrize(
    ("parallelism", "levels", "message"),
    [
        ({"mapp": 1}, {}, "no vertex 'mapp'.*Did you mean 'map'"),
        ({"map": 0}, {}, "between 1 and"),
        ({"map": 25}, {}, r"max_parallelism_per_vertex \(24\)"),
        ({"in": 2}, {}, "stays at parallelism 1"),
        ({}, {"map": 3}, "between -1"),
    ],
)
def test_wrong_configurations_are_explained(parallelism, levels, message):
    with pytest.raises(ConfigError, match=message):
        mst(job(), parallelism, levels)


def test_parallelism_above_the_key_groups_names_them():
    with pytest.raises(ConfigError, match=r"key groups \(8\)"):
        mst(job(map={"max_parallelism": 8}), {"map": 9})
