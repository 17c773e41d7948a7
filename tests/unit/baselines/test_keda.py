"""KEDA's Kafka scaler by hand, and the HPA behind it."""

from __future__ import annotations

import numpy as np
import pytest

from baselines.keda import Keda, KedaConfig, lag_replicas
from dsp_gym.errors import ConfigError
from dsp_gym.loop.topology import Topology
from dsp_gym.policies import PolicyConfig, make
from tests.strategies import blank_snapshot, spec_of

QUICK = {"scale_up": {"policies": [{"type": "Pods", "value": 100, "period_s": 15}]}}


def topology(partitions=None):
    source = {"name": "source", "kind": "source", "parallelism": 2, "scalable": False}
    if partitions:
        source["partitions"] = partitions
    spec = spec_of(
        "chain",
        source,
        {"name": "map", "inputs": [{"from": "source"}]},
        {"name": "sink", "kind": "sink", "inputs": [{"from": "map"}]},
        max_parallelism_per_vertex=64,
    )
    return Topology.of([spec])


def keda(jobs, **params):
    policy = Keda(KedaConfig(**{"lag_threshold_records": 1000, "behavior": QUICK} | params))
    policy.reset(jobs, np.array([0]))
    return policy


def tasks(policy, jobs, lag, running=4, t_s=600.0, **values):
    snapshot = blank_snapshot(
        jobs, t_s, parallelism=[[2, running, running]], pending_records=[[lag, np.nan, np.nan]],
        **values,
    )  # fmt: skip
    decision = policy.decide(snapshot)
    assert decision.parallelism[0, 0] == 2
    assert decision.parallelism[0, 1] == decision.parallelism[0, 2]
    return int(decision.parallelism[0, 1])


def replicas(current, lag, threshold, partitions=0):
    wanted = lag_replicas(
        np.array([current]), np.array([float(lag)]), threshold, np.array([partitions]), 0.1
    )
    return int(wanted[0])


def test_replicas_are_the_lag_over_the_threshold_rounded_up():
    assert replicas(4, 12_001, 1000.0) == 13
    assert replicas(4, 1, 1000.0) == 1
    assert replicas(4, 0, 1000.0) == 0


def test_replicas_within_the_tolerance_of_the_average_stay():
    # 12 replicas may have 12,000; 12,900 is 1.075 of that.
    assert replicas(12, 12_900, 1000.0) == 12
    assert replicas(12, 13_300, 1000.0) == 14


def test_replicas_beyond_the_partitions_would_idle():
    assert replicas(4, 1e6, 1000.0, partitions=20) == 20
    jobs = topology(partitions=20)
    assert tasks(keda(jobs), jobs, 1e6) == 20
    assert tasks(keda(jobs, allow_idle_consumers=True), jobs, 1e6) == 64
    unknown = topology()
    assert tasks(keda(unknown), unknown, 1e6) == 64


def test_the_counts_of_the_scaled_object_hold():
    jobs = topology()
    assert tasks(keda(jobs, max_replicas=10), jobs, 1e6) == 10
    quick = {"scale_down": {"stabilization_window_s": 0}}
    assert tasks(keda(jobs, min_replicas=3, behavior=quick), jobs, 100.0) == 3


def test_the_hpa_behind_it_doubles_at_most_and_waits_before_it_scales_down():
    jobs = topology()
    policy = keda(jobs, behavior={})
    assert tasks(policy, jobs, 1e6, running=8, t_s=600.0) == 16
    assert tasks(policy, jobs, 500.0, running=16, t_s=660.0) == 16
    assert tasks(policy, jobs, 500.0, running=16, t_s=1000.0) == 1


def test_after_the_cool_down_without_activity_the_least_replicas_run():
    jobs = topology()
    slow = {"scale_down": {"select_policy": "Disabled"}}
    policy = keda(jobs, activation_lag_records=200.0, behavior=slow)
    assert tasks(policy, jobs, 3_000.0, t_s=600.0) == 4
    assert tasks(policy, jobs, 150.0, t_s=700.0) == 4
    assert tasks(policy, jobs, 150.0, t_s=900.0) == 4  # 300 s, and not more
    assert tasks(policy, jobs, 150.0, t_s=915.0) == 1
    policy = keda(jobs, activation_lag_records=100.0, behavior=slow)
    for t_s in (600.0, 700.0, 900.0, 915.0):
        assert tasks(policy, jobs, 150.0, t_s=t_s) == 4  # active all the time


def test_an_unknown_lag_or_a_restarting_job_changes_nothing():
    jobs = topology()
    policy = keda(jobs)
    assert tasks(policy, jobs, np.nan, t_s=600.0) == 4
    assert tasks(policy, jobs, np.nan, t_s=9000.0) == 4
    assert tasks(policy, jobs, 1e6, t_s=9060.0, status=[2]) == 4


def test_its_reason_names_lag_and_threshold():
    jobs = topology()
    snapshot = blank_snapshot(jobs, parallelism=[[2, 4, 4]], pending_records=12_000.0)
    assert "(lag 12,000 records, 1000 per replica)" in keda(jobs).decide(snapshot).reasons[0]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"min_replicas": 8, "max_replicas": 4}, "min_replicas 8 is above max_replicas 4"),
        ({"lag_threshold_records": 0}, "lag_threshold_records"),
        ({"lagThreshold": 5}, "lagThreshold"),
    ],
)
def test_wrong_parameters_are_refused(params, message):
    with pytest.raises(ConfigError, match=message):
        make(PolicyConfig(policy="keda", params=params))
