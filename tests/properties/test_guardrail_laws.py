"""Laws of every chain, over random jobs, metrics and decisions."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsp_gym.guardrails import Chain, GuardrailsConfig, build
from dsp_gym.guardrails.chain import PASSES
from dsp_gym.loop.backlog import behind
from tests.guarding import CHAINS, FLOOR, again, chain
from tests.strategies import random_decision, random_snapshot, random_topology, seeds

few = settings(max_examples=12)


def run(guards, seed, jobs=4, steps=4):
    """Snapshots, decisions and what was allowed over a few ticks; half of it comes to run."""
    rng = np.random.default_rng(seed)
    topology = random_topology(rng, jobs)
    guards.reset(topology, np.arange(jobs))
    previous = None
    for step in range(steps):
        snapshot = random_snapshot(rng, topology, 600.0 + 60.0 * step, previous=previous)
        decision = random_decision(rng, topology)
        yield snapshot, decision, guards.allow(snapshot, decision)
        guards.commit(snapshot, guards.allow(snapshot, decision))
        previous = snapshot


@pytest.mark.parametrize("name", CHAINS)
@given(seed=seeds())
@few
def test_guarding_twice_changes_nothing(name, seed):
    guards = chain(name)
    for snapshot, _, once in run(guards, seed):
        twice = guards.allow(snapshot, again(once))
        np.testing.assert_array_equal(twice.parallelism, once.parallelism)
        np.testing.assert_array_equal(twice.memory_level, once.memory_level)


@pytest.mark.parametrize(
    "name", [n for n in CHAINS if n in ("bounds_and_quota", "default", "strict")]
)
@given(seed=seeds())
@few
def test_what_is_allowed_is_inside_the_bounds(name, seed):
    for snapshot, _, guarded in run(chain(name), seed):
        tables, row = snapshot.topology.tables, snapshot.topology.row
        mask, p, level = snapshot.topology.mask, guarded.parallelism, guarded.memory_level
        assert np.all((p >= tables.min_parallelism[row])[mask])
        assert np.all((p <= tables.max_parallelism[row])[mask])
        assert np.all((level < tables.levels[row][:, None])[mask])
        assert np.all((level >= -1)[mask])
        needs_memory = mask & (tables.stateful[row] == 1) & (snapshot.memory_level >= 0)
        assert np.all((level >= 0)[needs_memory])


@pytest.mark.parametrize("name", CHAINS)
@given(seed=seeds())
@few
def test_trips_are_told_exactly_where_something_was_changed(name, seed):
    for snapshot, decision, guarded in run(chain(name), seed):
        differs = (guarded.parallelism != decision.parallelism) | (
            guarded.memory_level != decision.memory_level
        )
        changed = np.any(differs & snapshot.topology.mask, axis=1)
        tripped = np.any(guarded.trips, axis=1)
        assert np.all(tripped >= changed)
        if guarded.trips.shape[1] == 1:
            np.testing.assert_array_equal(tripped, changed)


@pytest.mark.parametrize("name", CHAINS)
@given(seed=seeds())
@few
def test_a_batch_gives_what_its_jobs_give_alone(name, seed):
    whole = list(run(chain(name), seed, jobs=3))
    for job in range(3):
        rows, alone = np.array([job]), chain(name)
        alone.reset(whole[0][0].topology.take(rows), rows)
        for snapshot, decision, guarded in whole:
            one = snapshot.take(rows)
            wanted = type(decision)(
                decision.parallelism[rows], decision.memory_level[rows], ("random",)
            )
            allowed = alone.allow(one, wanted)
            np.testing.assert_array_equal(allowed.parallelism[0], guarded.parallelism[job])
            np.testing.assert_array_equal(allowed.memory_level[0], guarded.memory_level[job])
            np.testing.assert_array_equal(allowed.trips[0], guarded.trips[job])
            alone.commit(one, allowed)


@pytest.mark.parametrize("name", CHAINS)
@given(seed=seeds())
@few
def test_its_state_as_json_continues_where_it_stopped(name, seed):
    first, other = chain(name), chain(name)
    for step, (snapshot, decision, guarded) in enumerate(run(first, seed)):
        if step >= 2:
            allowed = other.allow(snapshot, decision)
            np.testing.assert_array_equal(allowed.parallelism, guarded.parallelism)
            np.testing.assert_array_equal(allowed.memory_level, guarded.memory_level)
            other.commit(snapshot, allowed)
        else:
            if step == 0:
                other.reset(snapshot.topology, np.arange(len(snapshot)))
            before = chain(name)
            before.reset(snapshot.topology, np.arange(len(snapshot)))
            before.restore(json.loads(json.dumps(other.state(), allow_nan=False)))
            before.commit(snapshot, before.allow(snapshot, decision))
            other = before


WITHOUT_QUOTA = (
    "default",
    "strict",
    "excess_budget",
    "freeze",
    "cool_down",
    "settle",
    "step_limit",
)


@pytest.mark.parametrize("name", WITHOUT_QUOTA)
@given(seed=seeds(), late=st.booleans())
@few
def test_no_guardrail_takes_from_a_job_that_is_behind(name, seed, late):
    """A user's own bounds and quota excepted: those are hard."""
    parts = chain(name).guardrails
    guards = Chain([one for one in parts if one.name != "bounds_and_quota"], explain=False)
    rng = np.random.default_rng(seed)
    topology = random_topology(rng, 4)
    guards.reset(topology, np.arange(4))
    previous = None
    with_state = topology.tables.stateful[topology.row] == 1
    for step in range(4):
        seen = random_snapshot(rng, topology, 600.0 + 60.0 * step, previous=previous)
        if late:
            seen = replace(seen, latency_p95_s=np.full(4, 1e4))
        decision = random_decision(rng, topology)
        guarded = guards.allow(seen, decision)
        rows = behind(seen).is_behind[:, None] & topology.mask
        least = np.minimum(decision.parallelism, seen.parallelism)
        assert (guarded.parallelism >= least)[rows].all()
        least = np.minimum(decision.memory_level, seen.memory_level)
        assert (guarded.memory_level >= least)[rows & with_state].all()
        guards.commit(seen, guarded)
        previous = seen


@given(seed=seeds())
@few
def test_the_compiled_pass_does_what_the_guardrails_do_one_after_the_other(seed):
    guards = chain("default")
    for snapshot, decision, guarded in run(guards, seed):
        p, level = decision.parallelism.copy(), decision.memory_level.copy()
        # `run` has committed nothing of this snapshot yet. What hard bounds have changed is
        # weighed once more, until they change nothing.
        trips, again = np.zeros((len(guards.guardrails), len(p)), bool), np.ones(len(p), bool)
        for _ in range(PASSES):
            changed = np.array([one.restrict(snapshot, p, level) for one in guards.guardrails])
            trips |= changed & again
            again &= changed[-1]
            if not again.any():
                break
        np.testing.assert_array_equal(guarded.parallelism, p)
        np.testing.assert_array_equal(guarded.memory_level, level)
        np.testing.assert_array_equal(guarded.trips, trips.T)


def test_asking_any_number_of_times_before_the_commit_changes_nothing():
    asked, once = chain("strict"), chain("strict")
    pairs = zip(run(asked, 7), run(once, 7), strict=True)
    for (snapshot, decision, many), (_, _, single) in pairs:
        for _ in range(3):
            many = asked.allow(snapshot, decision)
        np.testing.assert_array_equal(many.parallelism, single.parallelism)


@given(seed=seeds(), margin=st.sampled_from([0.0, 0.2]))
@few
def test_step_limit_and_capacity_floor_do_not_undo_each_other(seed, margin):
    """What the floor raises a decision to, the step limit lets a policy ask for."""
    floor = {"kind": "capacity_floor", "policy": FLOOR, "margin": margin}
    parts = [{"kind": "step_limit"}, floor]
    guards = build(GuardrailsConfig.model_validate({"guardrails": parts}), explain=False)
    limit = guards.guardrails[guards.names.index("step_limit")]
    for snapshot, _, guarded in run(guards, seed):
        p, level = guarded.parallelism.copy(), guarded.memory_level.copy()
        assert not limit.restrict(snapshot, p, level).any()
