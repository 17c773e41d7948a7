"""The contract of every guardrail, alone and in a chain; laws over random jobs: properties."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dsp_gym.guardrails.chain import ORDER
from dsp_gym.loop.decision import GuardedDecision, ScalingDecision
from dsp_gym.loop.protocols import Guardrail
from tests.guarding import CHAINS, PARTS, chain
from tests.strategies import random_decision, random_snapshot, random_topology


@pytest.fixture(params=PARTS)
def guardrail(request):
    (only,) = chain(request.param).guardrails
    return only


def tick(seed: int, jobs: int = 6):
    rng = np.random.default_rng(seed)
    topology = random_topology(rng, jobs)
    return random_snapshot(rng, topology), random_decision(rng, topology)


def test_it_is_a_guardrail_with_a_place_in_the_chain(guardrail):
    assert isinstance(guardrail, Guardrail)
    assert guardrail.name in ORDER


def test_it_leaves_the_decision_and_the_snapshot_as_they_were(guardrail):
    snapshot, decision = tick(1)
    guardrail.reset(snapshot.topology, np.arange(6))
    before = [a.copy() for a in (decision.parallelism, decision.memory_level, snapshot.parallelism)]
    guarded = guardrail.allow(snapshot, decision)
    guardrail.commit(snapshot, guarded)
    after = (decision.parallelism, decision.memory_level, snapshot.parallelism)
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)
    assert guarded.proposed is decision


def test_every_change_is_explained_and_nothing_else_is(guardrail):
    said = 0
    for seed in range(12):
        snapshot, decision = tick(seed)
        guardrail.reset(snapshot.topology, np.arange(6))
        guarded = guardrail.allow(snapshot, decision)
        jobs = [intervention.job for intervention in guarded.interventions]
        assert jobs == np.flatnonzero(guarded.trips[:, 0]).tolist()
        assert all(len(i.reason) > 10 for i in guarded.interventions)
        assert all(i.guardrail == guardrail.name for i in guarded.interventions)
        said += len(jobs)
    assert said or guardrail.name in ("excess_budget", "cool_down", "settle")  # these need a past


def test_reset_of_some_rows_leaves_the_others(guardrail):
    snapshot, decision = tick(2)
    guardrail.reset(snapshot.topology, np.arange(6))
    guardrail.commit(snapshot, guardrail.allow(snapshot, decision))
    kept = guardrail.state()
    guardrail.reset(snapshot.topology, np.arange(6), np.zeros(6, dtype=bool))
    assert guardrail.state() == kept


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_explains_on_request_what_it_did_silently(name):
    silent, loud = chain(name), chain(name, explain=True)
    snapshot, decision = tick(3)
    for guards in (silent, loud):
        guards.reset(snapshot.topology, np.arange(6))
    guarded, told = silent.allow(snapshot, decision), loud.allow(snapshot, decision)
    assert list(guarded.interventions) == [replace(i, reason="") for i in told.interventions]
    assert len(told.interventions) == told.trips.sum()
    assert told.trips.shape == (6, len(silent.names))


def test_guardrails_of_others_take_part_and_act_first():
    class OneTask:
        name = "one-task"

        def reset(self, jobs, seeds, mask=None): ...

        def allow(self, snapshot, decision):
            p = np.minimum(decision.parallelism, 1)
            trips = np.any(p != decision.parallelism, axis=1)[:, None]
            return GuardedDecision(p, decision.memory_level, decision, trips)

        def commit(self, snapshot, guarded): ...

        def state(self):
            return {}

        def restore(self, state): ...

    from dsp_gym.guardrails import Chain

    bounds = chain("bounds_and_quota").guardrails[0]
    guards = Chain([bounds, OneTask()])
    assert guards.names == ("one-task", "bounds_and_quota")
    snapshot, _ = tick(4)
    wanted = ScalingDecision(snapshot.parallelism + 3, snapshot.memory_level, ("",) * 6)
    guarded = guards.allow(snapshot, wanted)
    tables, row = snapshot.topology.tables, snapshot.topology.row
    free = tables.min_parallelism[row] < tables.max_parallelism[row]
    assert np.all(guarded.parallelism[free & snapshot.topology.mask] == 1)
    assert guarded.trips[:, 0].all()
