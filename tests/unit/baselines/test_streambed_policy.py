"""StreamBed as a policy: it jumps to its plan, holds it, and replans when demand leaves it."""

from __future__ import annotations

import numpy as np
import pytest

from baselines.streambed import policy as policies
from baselines.streambed.models import Surface
from baselines.streambed.plan import PlannerModel, ProfileRates, VertexRate
from baselines.streambed.policy import Streambed, StreambedConfig
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.control.loop import ControlLoop
from dsp_gym.errors import ConfigError
from dsp_gym.loop.topology import Topology
from tests.simulating import exact, line

SPEC = line(memory={"base_mib": 158, "levels": 1})
"""One task of the map carries 1000 records/s, the single sink a million."""

QUICK = {
    "estimator": {"warm_up_s": 30, "injection_s": 30, "observation_s": 15, "timeout_s": 60},
    "explorer": {"max_measurements": 4},
    "testbed_slots": 12,
}


def model(b: float = 1000.0) -> PlannerModel:
    """slots - 1 tasks of the map, 1000 records/s each."""
    return PlannerModel(
        job="line",
        backend="simulated",
        surface=Surface(form="linear", a=0.0, b=b, c=-b),
        memory_levels=(0,),
        learned_slots=(2, 12),
        rates=(
            ProfileRates(
                memory_level=0,
                vertices=(
                    VertexRate(name="map", ratio=1.0, rate_per_task_per_s=1000.0),
                    VertexRate(name="sink", ratio=1.0, rate_per_task_per_s=1e6),
                ),
            ),
        ),
    )


@pytest.fixture
def policy(tmp_path):
    model().save(tmp_path / "capacity.json")
    return Streambed(StreambedConfig(model=tmp_path / "capacity.json"))


def loop(policy, rates) -> ControlLoop:
    topology = Topology.of([SPEC])
    jobs = SimulatedJobs(topology, exact())
    jobs.reset(np.arange(1), np.array([rates], dtype=float))
    policy.reset(jobs.topology, np.arange(1))
    return ControlLoop(jobs, policy, None, interval_s=60)


def test_it_jumps_to_the_plan_for_110_percent_of_the_demand_and_holds(policy):
    control = loop(policy, [900.0])
    steps = [control.step() for _ in range(15)]
    # 1.1 * 900 = 990 records/s: one task of the map and the sink, two slots.
    assert all(step.decision.parallelism[0].tolist() == [4, 1, 1] for step in steps)
    control = loop(policy, [4000.0])
    steps = [control.step() for _ in range(30)]
    # Held back at first, it sees 4000/s arrive: 4400 take five tasks of the map, six slots.
    assert steps[-1].decision.parallelism[0].tolist() == [4, 5, 1]
    jump = next(s.decision.reasons[0] for s in steps if s.decision.reasons[0] != "hold")
    assert jump.startswith("map 1 at level 0 -> 5 at level 0 (plan for ")
    changed = [s for s in steps if s.decision.reasons[0] not in ("hold",)]
    assert all("6 slots of memory level 0" in s.decision.reasons[0] for s in changed)
    assert steps[-1].decision.reasons == ("hold",)


def test_it_plans_anew_above_and_below_what_it_planned_for(policy):
    control = loop(policy, [2000.0] * 1200 + [2080.0] * 1200 + [6000.0] * 1800 + [1000.0])
    seen = [control.step().decision.parallelism[0, 1] for _ in range(110)]
    assert seen[19] == 3  # 2200
    assert seen[39] == 3  # 4 % more is within the head-room
    assert seen[69] == 7  # 6600
    assert seen[-1] == 2  # 1100
    settled = [int(p) for i, p in enumerate(seen) if i and p != seen[i - 1]]
    assert settled[-1] == 2


def test_more_than_every_slot_carries_takes_every_slot(policy):
    policy.reset(Topology.of([SPEC]), np.arange(1))
    table = policy.tables[0]
    slots, profiles = table.slots_for(np.array([1e9, 10.0]))
    assert slots.tolist() == [table.high, table.low]
    assert profiles.tolist() == [0, 0]


def test_a_model_of_another_job_is_refused(policy):
    other = line(memory={"base_mib": 158, "levels": 1}).model_copy(
        update={"vertices": (*SPEC.vertices[:1], SPEC.vertices[1].model_copy(
            update={"name": "filter"}), SPEC.vertices[2].model_copy(update={"inputs": (
                SPEC.vertices[2].inputs[0].model_copy(update={"from_": "filter"}),)}))}
    )  # fmt: skip
    with pytest.raises(ConfigError, match="has vertices map, sink; job 'line' has filter, sink"):
        policy.reset(Topology.of([other]), np.arange(1))


def test_without_a_model_it_explores_each_job_once(monkeypatch):
    policy = Streambed(StreambedConfig(**QUICK))
    topology = Topology.of([SPEC], [0, 0, 0])
    policy.reset(topology, np.arange(3))
    monkeypatch.setattr(policies, "learn", None)  # what explores once more fails
    policy.reset(topology, np.arange(3))
    slots, _ = policy.tables[0].slots_for(np.array([4400.0]))
    assert slots.tolist() == [6]
