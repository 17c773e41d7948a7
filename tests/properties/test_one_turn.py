"""Equal snapshots get equal guarded decisions in the gym, the loops, `decide` and HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsp_gym.backends.base import SelfContained
from dsp_gym.cli.decide import answers
from dsp_gym.control.guarded_policy import GuardedPolicy
from dsp_gym.control.loop import ControlLoop
from dsp_gym.control.serve.decide import Decisions, Question
from dsp_gym.envs.batch import AutoscaleBatch
from dsp_gym.envs.config import EnvConfig
from dsp_gym.envs.scenarios import scenario
from dsp_gym.guardrails.chain import build_for
from dsp_gym.loop.decision import GuardedDecision, ScalingDecision
from dsp_gym.loop.protocols import Policy
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.turn import take_turn
from dsp_gym.loop.wire import decision_to_json, snapshot_to_json
from dsp_gym.policies import PolicyConfig, make
from tests.simulating import begun

POLICIES = ("ds2", "justin-artifact", "hpa-cpu", "dhalion", "planner", "learned-q11")
STEPS = 12


class Recorded(SelfContained):
    """Snapshots, one after the other, of jobs that nobody can change."""

    actuator = None

    def __init__(self, seen: Sequence[MetricsSnapshot]) -> None:
        self.topology = seen[0].topology
        self._seen: Iterator[MetricsSnapshot] = iter(seen)

    def snapshot(self) -> MetricsSnapshot:
        return next(self._seen)

    def apply(self, guarded: GuardedDecision) -> None:
        raise AssertionError("it has no actuator")

    def status(self) -> np.ndarray:
        raise AssertionError("it has no actuator")

    def advance(self, seconds: int) -> None:
        pass


def answer(guarded: GuardedDecision, seen: MetricsSnapshot) -> dict:
    return decision_to_json(guarded, seen.job(0))


def with_file(policy: str, job: str) -> str | PolicyConfig:
    """The policy; one that needs the job's file is given it, because no snapshot holds it."""
    if policy != "planner":
        return policy
    return PolicyConfig(policy=policy, params={"job_files": [job]})


def in_the_gym(
    job: str, policy: str | PolicyConfig, guardrails: str | None, seed: int, surge: float
) -> tuple[list[MetricsSnapshot], list[dict]]:
    """Snapshots of one episode under a load that jumps, and what the environment enacted."""
    made = scenario(job)
    decider = make(policy)
    chain = None if guardrails is None else build_for(decider, guardrails)
    env = AutoscaleBatch(made.specs[:1], [0], made.loads, config=EnvConfig(), guardrails=chain)
    reference = float(env.topology.tables.rate_per_s[0])
    rates = np.full((1, 7200), 0.2 * reference)
    rates[0, 240:] = surge * reference
    begun(env, np.array([seed]), rates)
    decider.reset(env.topology, np.array([0]))
    seen, given_ = [], []
    for _ in range(STEPS):
        snapshot = env.snapshot
        step = env.enact(decider.decide(snapshot))
        seen.append(snapshot)
        given_.append(answer(step.guarded, snapshot))
    return seen, given_


@settings(max_examples=12)
@given(
    job=st.sampled_from(["nexmark-q1", "nexmark-q11", "nexmark-q3"]),
    policy=st.sampled_from(POLICIES),
    guardrails=st.sampled_from(["default", "deployed", "floor"]),
    seed=st.integers(0, 2**31),
    surge=st.floats(0.1, 3.0),
)
def test_all_who_ask_a_policy_get_the_same_guarded_decision(job, policy, guardrails, seed, surge):
    named = with_file(policy, job)
    seen, expected = in_the_gym(job, named, guardrails, seed, surge)
    seeds = np.array([0])

    def made() -> tuple[Policy, object]:
        decider = make(named)
        return decider, build_for(decider, guardrails)

    loop = ControlLoop(Recorded(seen), *made())
    loop.reset(seeds)
    assert [answer(loop.step().guarded, snapshot) for snapshot in seen] == expected

    seat = GuardedPolicy(*made())
    seat.reset(seen[0].topology, seeds)
    judged = []
    for snapshot in seen:
        judged.append(seat.decide(snapshot))
        assert seat.settle(snapshot, judged[-1], enacted=True) is None
    assert [answer(one.guarded, s) for one, s in zip(judged, seen, strict=True)] == expected

    documents = [snapshot_to_json(snapshot.job(0)) for snapshot in seen]
    lines = [(f"line {n}", json.dumps(document)) for n, document in enumerate(documents)]
    assert list(answers(lines, made)) == expected

    served = Decisions({policy: lambda: GuardedPolicy(*made())}, policy)
    assert [
        served.answer(Question(json.dumps(document).encode(), None, "", True))
        for document in documents
    ] == expected
    served.close()


@pytest.mark.parametrize("policy", ["ds2", "planner", "learned-ppo", "learned-q11"])
def test_a_turn_without_guardrails_is_the_policys_own_decision(policy):
    (snapshot, *_), _ = in_the_gym("nexmark-q11", policy, None, 1, 1.0)
    decider = make(policy)
    decider.reset(snapshot.topology, np.array([0]))
    wanted: list[ScalingDecision] = []

    def decide(seen: MetricsSnapshot) -> ScalingDecision:
        wanted.append(decider.decide(seen))
        return wanted[0]

    guarded = take_turn(snapshot, decide)
    assert len(wanted) == 1
    assert guarded.proposed is wanted[0]
    np.testing.assert_array_equal(guarded.parallelism, wanted[0].parallelism)
    assert guarded.interventions == ()
