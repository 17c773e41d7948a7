"""The hardest test of the guardrails: a random policy under the shipped chain."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.control.loop import ControlLoop
from dsp_gym.guardrails import build
from dsp_gym.job.catalog import load_job
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.topology import Topology
from dsp_gym.policies import make

JOBS = ("nexmark-q1", "nexmark-q3", "nexmark-q5", "nexmark-q8", "nexmark-q11")
LOADS, SECONDS, INTERVAL_S = 4, 4 * 3600, 60


class RandomPolicy:
    """Moves every vertex by up to four tasks and one memory level, all the time."""

    name = "random"

    def reset(self, jobs, seeds, mask=None):
        self._rng = np.random.default_rng(1)

    def decide(self, snapshot):
        shape = snapshot.parallelism.shape
        return ScalingDecision(
            snapshot.parallelism + self._rng.integers(-4, 5, shape),
            snapshot.memory_level + self._rng.integers(-1, 2, shape),
            ("",) * len(snapshot),
        )

    def state(self):
        return {}

    def restore(self, state): ...


def outcome(policy, guards):
    """SLO seconds and money of every job, 5 jobs x 4 sinusoidal loads of 4 h."""
    specs = [load_job(name) for name in JOBS]
    row = np.repeat(np.arange(len(JOBS)), LOADS)
    topology = Topology.of(specs, row.tolist())
    phase = np.random.default_rng(0).uniform(0, 2 * np.pi, len(row))[:, None]
    swing = 0.6 + 0.3 * np.sin(2 * np.pi * np.arange(SECONDS)[None, :] / 7200.0 + phase)
    peak = np.array([specs[k].source.rate_per_s for k in row])[:, None]
    jobs = SimulatedJobs(topology)
    jobs.reset(np.arange(len(row)), np.ascontiguousarray(peak * swing))
    policy.reset(topology, np.arange(len(row)))
    if guards is not None:
        guards.reset(topology, np.arange(len(row)))
    loop = ControlLoop(jobs, policy, guards, interval_s=INTERVAL_S)
    slo_s, cost = np.zeros(len(row)), np.zeros(len(row))
    for _ in range(SECONDS // INTERVAL_S):
        step = loop.step().outcome
        slo_s += step.slo_s
        cost += step.cost
    return slo_s, cost


@pytest.fixture(scope="module")
def fallback():
    return outcome(make("justin-paper"), None)


def test_it_does_no_worse_than_its_fallback_by_more_than_the_budget(fallback):
    slo_s, cost = outcome(RandomPolicy(), build("default", explain=False))
    assert np.mean(slo_s - fallback[0]) <= 0.01 * SECONDS
    assert cost.sum() <= 1.05 * fallback[1].sum()


def test_without_guardrails_it_does_far_worse(fallback):
    slo_s, _ = outcome(RandomPolicy(), None)
    assert np.mean(slo_s - fallback[0]) > 0.1 * SECONDS


def test_a_trained_policy_hands_over_on_a_job_unlike_its_training():
    """The bounds come from the policy's own folder."""
    from dsp_gym.backends.simulated.jobs import SimulatedJobs
    from dsp_gym.config.files import load_model
    from dsp_gym.control.loop import ControlLoop
    from dsp_gym.guardrails.chain import build_for
    from dsp_gym.guardrails.config import GuardrailsConfig
    from dsp_gym.job.catalog import load_job
    from dsp_gym.loop.topology import Topology
    from dsp_gym.policies.registry import make

    def handed_over(rate: float) -> float:
        policy = make("learned-q11")
        chain = build_for(policy, load_model(GuardrailsConfig, "guardrails", "deployed"))
        assert chain is not None
        spec = load_job("nexmark-q11")
        jobs = SimulatedJobs(Topology.of([spec]))
        parallelism = np.array([[1, 3, 1]])
        jobs.reset(np.array([1]), np.full((1, 3600), rate), parallelism=parallelism)
        loop = ControlLoop(jobs, policy, chain)
        loop.reset(np.array([1]))
        place = chain.names.index("fallback")
        return float(np.mean([loop.step().guarded.trips[0, place] for _ in range(60)]))

    assert handed_over(20_000.0) < 0.2  # as trained
    assert handed_over(5.0) > handed_over(20_000.0)  # nearly nothing arrives
