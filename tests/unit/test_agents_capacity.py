"""An agent of capacity actions: reasons of its decisions, and states in which it must hold."""

from __future__ import annotations

import json

import numpy as np
import pytest

from agents.capacity import CapacityAgent
from agents.folder import PolicyDocument, read_folder
from agents.shipped import policy_folder
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.envs.config import CapacityConfig
from dsp_gym.loop.decision import GuardedDecision, ScalingDecision
from dsp_gym.loop.snapshot import (
    PER_VERTEX,
    VERTEX,
    MetricsSnapshot,
    SnapshotArrays,
    snapshot_of_arrays,
)
from dsp_gym.loop.topology import Topology
from tests.simulating import exact, line

COUNTERS = ("records_in_total", "records_out_total", "pending_records")
RATES = ("records_in_per_s", "records_out_per_s", "pending_growth_per_s")
BUSY = tuple(name for name in PER_VERTEX if name.startswith("busy_"))


def without(snapshot: MetricsSnapshot, *names: str) -> MetricsSnapshot:
    """The snapshot of a job that does not report these metrics."""
    vertex = snapshot.arrays.vertex.copy()
    for name in names:
        vertex[getattr(VERTEX, name)] = np.nan
    arrays = SnapshotArrays(*snapshot.arrays[:-1], vertex)
    return snapshot_of_arrays(snapshot.topology, arrays)


class Plant:
    """A job under constant load, and a shipped agent that looks at it every minute."""

    def __init__(self, rate_per_s: float, prior="job-file", *, slots=24, tasks=4, ranges=None):
        spec = line(max_parallelism_per_vertex=slots)
        self.jobs = SimulatedJobs(Topology.of([spec]), exact())
        self.jobs.reset(
            np.array([1]),
            np.full((1, 7200), rate_per_s),
            parallelism=np.array([[4, tasks, 1]]),
            memory_level=np.full((1, 3), -1),
        )
        document, self.weights = read_folder(policy_folder("shipped:ppo"))
        assert isinstance(document, PolicyDocument)
        sizing = {"sizing": CapacityConfig(prior=prior)}
        observation = document.observation.model_copy(update={"quantiles": ranges or {}})
        update = {"action": document.action.model_copy(update=sizing), "observation": observation}
        self.document = document.model_copy(update=update)
        self.agent = self.fresh()

    def fresh(self) -> CapacityAgent:
        agent = CapacityAgent(self.document, self.weights, 2.0)
        agent.reset(self.jobs.topology, None)
        return agent

    def minutes(self, count: int, *missing: str, seconds: int = 60) -> str:
        """The reason of the last decision; none is applied."""
        for _ in range(count):
            self.jobs.advance(seconds)
            decision, _ = self.agent.decide(self.seen(*missing), explain=True)
        return decision.reasons[0]

    def seen(self, *missing: str) -> MetricsSnapshot:
        return without(self.jobs.snapshot(), *missing)

    def is_held(self, *missing: str) -> bool:
        return not self.agent._ready.masks(self.seen(*missing))[0, 1:].any()


def test_each_reason_to_do_nothing_but_hold_has_its_sentence():
    assert Plant(3000.0).minutes(1, seconds=10) == (
        "hold: less than a fifth of the metrics window is covered"
    )
    assert Plant(0.0).minutes(5) == "hold: no load has been counted yet"
    unseen = Plant(3000.0, prior="none").minutes(5, *BUSY)
    assert unseen == (
        "hold: some vertex has not been seen busy, and there is no job file to start from"
    )
    assert Plant(9000.0, slots=4).minutes(5) == (
        "hold: every multiple of the load leads to the running configuration"
    )
    stopped = Plant(3000.0)
    stopped.minutes(3)
    more = ScalingDecision(np.array([[4, 6, 1]]), stopped.seen().memory_level, ("",))
    stopped.jobs.apply(GuardedDecision.unchanged(more))
    assert stopped.minutes(1, seconds=5) == "hold: the job is not running"


def test_without_counters_it_follows_the_rates():
    plant = Plant(3000.0, tasks=20)
    said = {plant.minutes(1, *COUNTERS) for _ in range(20)}
    assert any(one.startswith("load 3,000/s") for one in said)
    assert not any("no measurement" in one for one in said)


def test_without_any_measurement_of_the_load_it_holds_after_ten_minutes():
    plant, nothing = Plant(3000.0, tasks=20), COUNTERS + RATES
    plant.minutes(5)
    for _ in range(10):
        assert "no measurement" not in plant.minutes(1, *nothing)
    assert not plant.is_held(*nothing)
    saved = json.loads(json.dumps(plant.agent.state()))
    assert plant.minutes(1, *nothing) == "hold: no measurement of the load for ten minutes"
    assert plant.is_held(*nothing)

    again = plant.fresh()
    again.restore(saved)
    decision, _ = again.decide(plant.seen(*nothing), explain=True)
    assert decision.reasons == ("hold: no measurement of the load for ten minutes",)

    assert "no measurement" not in plant.minutes(1)
    assert not plant.is_held()


def test_far_outside_its_training_it_says_which_features_are():
    ranges = {"cost_1": (-3.0, 3.0), "history": (-2.0, -1.0), "grain": (50.0, 60.0)}
    plant = Plant(3000.0, ranges=ranges)
    assert plant.minutes(5).endswith("; outside the range of its training: history, grain")
    assert ";" not in Plant(3000.0, ranges={"cost_1": (-3.0, 3.0)}).minutes(5)
    assert ";" not in Plant(0.0, ranges=ranges).minutes(5)  # nothing is known of it


@pytest.mark.parametrize("explain", [True, False])
def test_what_was_chosen_has_a_probability(explain):
    plant = Plant(0.0)
    plant.jobs.advance(60)
    decision, chosen = plant.agent.decide(plant.seen(), explain)
    assert chosen.tolist() == [1.0]
    assert bool(decision.reasons[0]) == explain
