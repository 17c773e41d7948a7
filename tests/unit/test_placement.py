"""Placing a job on task slots."""

from __future__ import annotations

import itertools

import pytest

from dsp_gym.errors import ConfigError
from dsp_gym.job.capacity import mst
from dsp_gym.job.catalog import load_job
from dsp_gym.job.memory import managed_mib_per_slot
from dsp_gym.job.placement import place, smallest, with_quota, with_slot_memory


def slots_of(spec, placement):
    return sum(
        load.parallelism
        for load in placement.result.vertices
        if spec.vertex(load.name).kind != "source"
    )


@pytest.mark.parametrize("slots", [4, 7, 10])
@pytest.mark.parametrize("name", ["streambed-q11", "nexmark-q3"])
def test_no_other_configuration_on_the_same_slots_carries_more(name, slots):
    spec = load_job(name)
    free = [v.name for v in spec.topological_order() if v.kind != "source" and v.scalable]
    fixed = sum(1 for v in spec.vertices if v.kind != "source" and not v.scalable)
    best = max(
        mst(spec, dict(zip(free, tasks, strict=True))).rate_per_s
        for tasks in itertools.product(range(1, slots + 1), repeat=len(free))
        if sum(tasks) + fixed <= slots
    )
    placement = place(spec, slots)
    assert placement.result.rate_per_s == pytest.approx(best, rel=1e-9)
    assert placement.slots == slots_of(spec, placement) <= slots


def test_contention_is_weighed_against_more_tasks():
    spec = load_job("streambed-q1")
    rates = [place(spec, slots).result.rate_per_s for slots in range(2, 17)]
    assert rates == sorted(rates)


def test_too_few_slots_are_refused():
    with pytest.raises(ConfigError, match="at least 4 slots"):
        place(load_job("streambed-q11"), 3)


def test_slot_memory_becomes_level_0():
    spec = with_slot_memory(load_job("streambed-q5"), 2048)
    assert spec.memory.base_mib == pytest.approx(managed_mib_per_slot(2048))
    assert spec.memory.levels == 1


def test_slots_without_managed_memory_are_refused():
    with pytest.raises(ConfigError, match="no managed memory"):
        with_slot_memory(load_job("streambed-q5"), 20)


def test_with_slot_sharing_every_vertex_takes_all_slots_it_may():
    spec = load_job("nexmark-q3").model_copy(update={"slot_sharing": True})
    result = place(spec, 5).result
    assert {load.name: load.parallelism for load in result.vertices} == {
        "auctions": 1, "persons": 1, "auction_filter": 5, "person_filter": 5, "join": 5, "sink": 1
    }  # fmt: skip


def test_windows_that_wait_get_tasks_until_the_job_carries_the_load():
    spec = load_job("bench-8")
    found = smallest(spec, 40_000.0, 0)
    assert found is not None
    assert found.rate_per_s >= 40_000.0 * (1 - 1e-9)
    tasks = {v.name: v.parallelism for v in found.vertices}
    for vertex in found.vertices:  # none has a task to spare
        if vertex.parallelism > 1 and spec.vertex(vertex.name).kind != "source":
            fewer = tasks | {vertex.name: vertex.parallelism - 1}
            levels = dict.fromkeys(tasks, 0)
            assert mst(spec, fewer, levels).rate_per_s < 40_000.0
    assert smallest(spec, 1e9, 0) is None


def test_a_higher_quota_lifts_key_groups_and_keeps_fixed_vertices():
    lifted = with_quota(load_job("nexmark-q11"), 512)
    assert lifted.max_parallelism_per_vertex == 512
    assert lifted.vertex("session").max_parallelism == 512
    assert lifted.vertex("sink") == load_job("nexmark-q11").vertex("sink")
