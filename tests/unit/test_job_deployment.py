from __future__ import annotations

import pytest

from dsp_gym.errors import ConfigError
from dsp_gym.job.catalog import load_job
from dsp_gym.job.deployment import (
    IN_PLACE_S,
    adaptive,
    cheapest_level,
    deployed,
    found_in_place,
    kept_memory,
    rescaled_in_place,
    slot_levels,
)
from dsp_gym.job.spec import Memory
from dsp_gym.job.tables import compile_jobs
from dsp_gym.loop.topology import Topology


def test_in_place_every_slot_has_and_costs_the_same_memory():
    spec = load_job("nexmark-q11")
    found = adaptive(spec, 2)
    before, after = compile_jobs([spec]), compile_jobs([found])
    assert after.levels[0] == 1
    assert after.subtask_mib[0].tolist() == pytest.approx([before.subtask_mib[0, 3]] * 2, abs=1)
    assert after.subtask_mib[0, 0] < after.subtask_mib[0, 1]  # features divide by the difference
    assert after.cache_mib[0, :, 1].tolist() == before.cache_mib[0, :, 3].tolist()
    assert after.in_place[0] == 1
    assert tuple(after.outage_s[0]) == IN_PLACE_S


def test_a_job_described_in_place_keeps_its_own_outages_and_takes_others_when_redeployed():
    spec = load_job("nexmark-q11")
    own = spec.rescale.model_copy(update={"mode": "in_place", "outage_s": (1.0, 2.0, 3.0)})
    described = spec.model_copy(update={"rescale": own})
    assert deployed(described, "adaptive").rescale.outage_s == (1.0, 2.0, 3.0)
    assert deployed(described, "default").rescale == spec.rescale
    assert deployed(spec, "default") is spec


def test_in_place_no_rescale_takes_longer_than_the_redeployment_it_replaces():
    spec = load_job("nexmark-q11")
    fast = spec.rescale.model_copy(update={"outage_s": (5.0, 12.0, 14.0)})
    found = adaptive(spec.model_copy(update={"rescale": fast}), 0)
    assert found.rescale.outage_s == (5.0, 10.0, 14.0)


def test_the_cheapest_level_is_the_least_memory_for_a_job_without_state():
    assert cheapest_level(load_job("nexmark-q1")) == 0
    assert cheapest_level(load_job("nexmark-q8")) > 0


def test_a_level_that_is_not_there_is_refused():
    spec = load_job("nexmark-q11")
    with pytest.raises(ConfigError, match="levels are 0 to 2"):
        adaptive(spec, 3)
    with pytest.raises(ConfigError, match="adaptive scheduler"):
        deployed(spec, "default", 1)


def test_slots_of_one_size_have_one_level_and_an_ordinary_job_does_not_mention_them():
    assert "uniform" not in load_job("nexmark-q11").model_dump()["memory"]
    with pytest.raises(ValueError, match="uniform slots have one size"):
        Memory(uniform=True)


def test_a_job_found_at_level_0_in_place_has_that_level_alone():
    spec = load_job("nexmark-q8")
    assert found_in_place(spec, {"source": -1, "join": 0}) == adaptive(spec, 0)
    assert found_in_place(spec, {"source": -1, "join": -1}) == adaptive(spec, 0)


def test_a_job_found_above_level_0_or_described_with_one_keeps_the_numbers_of_its_levels():
    spec = load_job("nexmark-q8")
    assert found_in_place(spec, {"source": -1, "join": 1}) == rescaled_in_place(spec)
    one = spec.model_copy(update={"memory": spec.memory.model_copy(update={"levels": 1})})
    assert found_in_place(one, {"source": -1, "join": 0}) == rescaled_in_place(one)


def test_a_job_whose_memory_nobody_changes_has_the_level_it_runs_at_alone():
    spec = load_job("nexmark-q8")
    kept = kept_memory(spec, {"source": -1, "join": 0})
    assert (kept.memory.levels, kept.memory.uniform, kept.rescale) == (1, True, spec.rescale)
    assert kept_memory(kept, {"source": -1, "join": 0}) == kept
    assert kept_memory(spec, {"source": -1, "join": 1}) == spec  # levels keep their numbers
    with pytest.raises(ConfigError, match=r"runs at memory level 1; its file has levels 0 to 0"):
        kept_memory(kept, {"source": -1, "join": 1})


def test_in_place_only_vertices_with_state_use_the_memory_of_their_slot():
    spec = adaptive(load_job("nexmark-q8"), 0)
    topology = Topology.of([spec])
    stateful = topology.tables.stateful[0]
    found = slot_levels(spec)
    assert [found[name] for name in topology.names(0)] == (stateful - 1).tolist()
    assert set(found.values()) == {-1, 0}
