"""A policy that acts every minute does so in a real loop, whose turns are milliseconds off."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.loop.snapshot import JOB
from dsp_gym.policies import PolicyConfig, make
from tests.simulating import constant, exact, line

JITTER_S = np.array([0.0, -0.003, 0.004, -0.002, 0.0, -0.006, 0.001, -0.001])
"""Of successive turns, as a local loop on a quiet machine shows them."""

ACTS_EACH_MINUTE = {
    "ds2": {"interval_s": 60.0, "activation": 5, "warm_up_s": 0.0},
    "justin-paper": {"ds2": {"interval_s": 60.0, "activation": 5, "warm_up_s": 0.0}},
    "hpa-cpu": {"sync_period_s": 60.0},
    "dhalion": {"interval_s": 60.0},
    "flink-autoscaler": {"interval_s": 60.0},
}


def decided(policy: str, params: dict[str, object], jitter_s: np.ndarray) -> list[np.ndarray]:
    """What a policy wants of an overloaded job, whose turns come late or early."""
    jobs = constant(line(), 3000.0, exact())
    made = make(PolicyConfig(policy=policy, params=params))
    made.reset(jobs.topology, np.array([0]))
    found = []
    for late_s in np.tile(jitter_s, 4):
        jobs.advance(60)
        snapshot = jobs.snapshot()
        snapshot.arrays.job[JOB.t_s] += late_s
        found.append(made.decide(snapshot).parallelism.copy())
    return found


@pytest.mark.parametrize("policy", ACTS_EACH_MINUTE)
def test_milliseconds_of_a_turn_cost_no_policy_an_evaluation(policy):
    params = ACTS_EACH_MINUTE[policy]
    on_time, jittered = (decided(policy, params, share * JITTER_S) for share in (0.0, 1.0))
    np.testing.assert_array_equal(on_time, jittered)
    assert any((one != on_time[0]).any() for one in on_time)  # it did act
