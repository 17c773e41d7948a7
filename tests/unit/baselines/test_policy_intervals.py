"""A policy that acts every minute does so in a real loop, whose turns vary by milliseconds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from dsp_gym.loop.protocols import Policy
from dsp_gym.loop.snapshot import JOB
from dsp_gym.policies import PolicyConfig, make
from tests.simulating import constant, exact, line

JITTER_S = np.array([0.0, -0.003, 0.004, -0.002, 0.0, -0.006, 0.001, -0.001])
"""Of successive turns, as a local loop on a quiet machine shows them."""

ACTS_EACH_MINUTE = {
    "ds2": {"interval_s": 60.0, "activation": 5, "warm_up_s": 0.0},
    "justin-paper": {"ds2": {"interval_s": 60.0, "activation": 5, "warm_up_s": 0.0}},
    "hpa-cpu": {"sync_period_s": 60.0},
    "hpa-varga": {"sync_period_s": 60.0},
    "dhalion": {"interval_s": 60.0},
    "dhalion-reactive": {"interval_s": 60.0, "rest_s": 0.0, "latency_s": 0.0},
    "ds2-reactive": {"interval_s": 60.0, "rest_s": 0.0},
    "aws-managed-flink": {"scale_up_s": 300.0},
    "dataflow": {"lasting_s": 120.0},
    "beam-flink": {"rest_s": 120.0},
    "daedalus": {"interval_s": 60.0, "rest_s": 0.0, "hold_s": 0.0},
    "conttune": {"ds2": {"interval_s": 60.0, "activation": 5, "warm_up_s": 0.0}},
}


def decided(policy: Policy, jitter_s: np.ndarray) -> Iterator[tuple[float, np.ndarray]]:
    """When a policy is asked about an overloaded job, late or early, and what it wants."""
    jobs = constant(line(), 3000.0, exact())
    policy.reset(jobs.topology, np.array([0]))
    for late_s in np.tile(jitter_s, 4):
        jobs.advance(60)
        snapshot = jobs.snapshot()
        snapshot.arrays.job[JOB.t_s] += late_s
        yield float(snapshot.t_s[0]), policy.decide(snapshot).parallelism.copy()


@pytest.mark.parametrize("policy", ACTS_EACH_MINUTE)
def test_milliseconds_of_a_turn_cost_no_policy_an_evaluation(policy):
    config = PolicyConfig(policy=policy, params=ACTS_EACH_MINUTE[policy])
    on_time, jittered = (
        [wanted for _, wanted in decided(make(config), share * JITTER_S)] for share in (0.0, 1.0)
    )
    np.testing.assert_array_equal(on_time, jittered)
    assert max(one[0, 1] for one in on_time) > 1  # the map, which ran with one task: it did act


def test_flinks_autoscaler_takes_a_sample_each_minute_of_a_real_loop():
    policy = make("flink-autoscaler")
    for t_s, _ in decided(policy, JITTER_S):
        assert policy.state()["memory"]["collected_ms"] == [round(t_s * 1000)]
