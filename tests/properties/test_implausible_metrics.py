"""Implausible metrics are no evidence: nothing is given up for them, and the reason names them.

What policies do without the value is tested with unknown metrics.
"""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.guardrails.chain import build_for
from dsp_gym.job.catalog import load_job
from dsp_gym.loop.decision import GuardedDecision, ScalingDecision
from dsp_gym.loop.plausible import doubted, doubts, plausible
from dsp_gym.loop.snapshot import SNAPSHOT_METRICS, MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.loop.turn import take_turn
from dsp_gym.policies import make
from tests.strategies import random_snapshot, random_topology

SERVICES = ("aws-managed-flink", "dataflow", "beam-flink")
RULES = (
    "hpa-cpu", "hpa-varga", "keda", "dhalion", "daedalus", "conttune", "ds2", "ds2-justin",
    "flink-autoscaler", "dhalion-reactive", "ds2-reactive",
)  # fmt: skip
TRAINED = ("planner", "learned-ppo", "learned-q11", "mdp", "planner-no-file")
POLICIES = (*RULES, *SERVICES, "justin-paper", "justin-artifact", "static", *TRAINED)
BEFORE, AFTER = 6, 3

BOUNDED = {n: c for n, _, c in SNAPSHOT_METRICS if np.isfinite(c.least) or np.isfinite(c.most)}
"""Metrics that have a range."""


@functools.cache
def seen() -> tuple[MetricsSnapshot, ...]:
    """A job whose map has one task at 60 % of what it can do; every minute looked at once."""
    spec = load_job("nexmark-q11")
    jobs = SimulatedJobs(Topology.of([spec]))
    count = BEFORE + 1 + AFTER
    rate = 0.15 * spec.source.rate_per_s
    start = np.array([[1, 3, 1]])
    jobs.reset(np.array([3]), np.full((1, 300 + 60 * count), rate), parallelism=start)
    jobs.advance(300)
    found = []
    for _ in range(count):
        found.append(jobs.collector.snapshot())
        kept = ScalingDecision(found[-1].parallelism, found[-1].memory_level, ("",))
        jobs.actuator.apply(GuardedDecision.unchanged(kept))
        jobs.advance(60)
    return tuple(found)


@st.composite
def corruptions(draw):
    """Some metrics and a value that none of them can have."""
    names = draw(st.lists(st.sampled_from(sorted(BOUNDED)), min_size=1, max_size=3, unique=True))
    found = {}
    for name in names:
        column = BOUNDED[name]
        wrong = [st.just(float("inf")), st.just(float("-inf"))]
        if np.isfinite(column.least):
            beyond = 0.2 * column.most if np.isfinite(column.most) else 1.0
            wrong.append(st.floats(-1e12, column.least - beyond))
        if np.isfinite(column.most):
            wrong.append(st.floats(1.2 * column.most, 1e12))
        found[name] = draw(st.one_of(wrong))
    return found


def corrupted(snapshot: MetricsSnapshot, wrong: dict[str, float], vertex: int) -> MetricsSnapshot:
    copy = snapshot.take(np.arange(len(snapshot)))
    for name, value in wrong.items():
        array = getattr(copy, name)
        array[(0,) if array.ndim == 1 else (0, vertex)] = value
    return copy


@functools.cache
def watching(policy: str, guardrails: str | None):
    """A policy that has seen the job for some minutes, and its guardrails, with their states."""
    made = make(policy)
    chain = None if guardrails is None else build_for(made, guardrails)
    made.reset(seen()[0].topology, np.array([0]))
    if chain is not None:
        chain.reset(seen()[0].topology, np.array([0]))
    for snapshot in seen()[:BEFORE]:
        take_turn(snapshot, made.decide, chain)
    states = json.dumps([made.state(), None if chain is None else chain.state()])
    return made, chain, states


def restored(policy: str, guardrails: str | None):
    made, chain, states = watching(policy, guardrails)
    state, of_chain = json.loads(states)
    made.restore(state)
    if chain is not None:
        chain.restore(of_chain)
    return made, chain


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("guardrails", [None, "deployed"])
@given(wrong=corruptions(), vertex=st.integers(0, 2))
@settings(max_examples=8)
def test_a_metric_out_of_its_range_is_named_and_takes_nothing(policy, guardrails, wrong, vertex):
    made, chain = restored(policy, guardrails)
    snapshot = corrupted(seen()[BEFORE], wrong, vertex)
    guarded = take_turn(snapshot, made.decide, chain)
    (reason,) = guarded.proposed.reasons
    assert "metrics out of their range are no evidence" in reason
    assert any(name in reason for name in wrong)
    if any(BOUNDED[name].axes == "J" for name in wrong):
        assert reason.startswith("hold: ")
        np.testing.assert_array_equal(guarded.parallelism, snapshot.parallelism)
        np.testing.assert_array_equal(guarded.memory_level, snapshot.memory_level)
        return
    careful = doubted(plausible(snapshot)).vertices
    assert careful[0, vertex]
    assert np.all((guarded.parallelism >= snapshot.parallelism)[careful])
    assert np.all((guarded.memory_level >= snapshot.memory_level)[careful])


@pytest.mark.parametrize("policy", POLICIES)
@given(wrong=corruptions(), vertex=st.integers(0, 2))
@settings(max_examples=4)
def test_it_does_not_come_back_later(policy, wrong, vertex):
    """What a policy decides after a corrupted minute stays near what it decides without one."""
    decided = []
    for snapshot in (seen()[BEFORE], corrupted(seen()[BEFORE], wrong, vertex)):
        made, _ = restored(policy, None)
        turns = [take_turn(s, made.decide) for s in (snapshot, *seen()[BEFORE + 1 :])]
        decided.append(max(int(turn.parallelism.max()) for turn in turns[1:]))
    assert decided[1] <= decided[0] + 1


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ["busy_ms_per_s", "records_in_per_s"])
def test_a_needed_metric_that_is_unknown_lets_the_chain_hold_its_vertex(policy, name):
    made, chain = restored(policy, "deployed")
    snapshot = corrupted(seen()[BEFORE], {name: float("nan")}, 1)
    guarded = take_turn(snapshot, made.decide, chain)
    assert guarded.parallelism[0, 1] == snapshot.parallelism[0, 1]
    assert guarded.memory_level[0, 1] == snapshot.memory_level[0, 1]
    for one in guarded.interventions:
        if one.kind == "held":
            assert one.reason == f"kept: {name} of 'session' is unknown"


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20)
def test_every_value_within_its_range_is_plausible(seed):
    rng = np.random.default_rng(seed)
    snapshot = random_snapshot(rng, random_topology(rng, 4))
    assert plausible(snapshot) is snapshot
    assert doubts(snapshot) == ()


@given(seed=st.integers(0, 2**32 - 1), wrong=corruptions())
@settings(max_examples=20)
def test_only_the_value_becomes_unknown(seed, wrong):
    rng = np.random.default_rng(seed)
    clean = random_snapshot(rng, random_topology(rng, 3))
    snapshot = corrupted(clean, wrong, 0)
    found = plausible(snapshot)
    assert plausible(found) is found is plausible(snapshot)
    first, *others = doubts(found)
    assert first != ""
    assert others == ["", ""]
    of_job = any(BOUNDED[name].axes == "J" for name in wrong)
    for name, _, _ in SNAPSHOT_METRICS:
        expected = getattr(snapshot, name).copy()
        if name in wrong:
            expected[(0,) if expected.ndim == 1 else (0, 0)] = np.nan
        if name == "window_fill" and of_job:
            expected[0] = 0.0
        np.testing.assert_array_equal(getattr(found, name), expected)


def test_busyness_summed_over_subtasks_may_grow_with_them():
    (snapshot, *_) = seen()
    tasks = int(snapshot.parallelism[0, 1])
    for summed, fits in ((1000.0 * tasks, True), (1200.0 * tasks, False)):
        one = corrupted(snapshot, {"busy_accumulated_ms_per_s": summed}, 1)
        assert (plausible(one) is one) == fits
