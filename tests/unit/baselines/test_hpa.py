"""Kubernetes' HPA, rule by rule."""

from __future__ import annotations

import numpy as np
import pytest

from baselines.hpa import HpaCpu, HpaCpuConfig
from dsp_gym.loop.topology import Topology
from tests.strategies import blank_snapshot, chain_spec

TOPOLOGY = Topology.of([chain_spec(max_parallelism_per_vertex=64)])


def hpa(**params):
    policy = HpaCpu(HpaCpuConfig(**{"target_utilization": 0.5} | params))
    policy.reset(TOPOLOGY, np.array([0]))
    return policy


def tasks(policy, p, busy, t_s=600.0, **values):
    """Tasks of map and window after a decision; the source and the sink are always busy."""
    snapshot = blank_snapshot(
        TOPOLOGY,
        t_s,
        parallelism=[[2, *p, 1]],
        busy_now_ms_per_s=[[1000.0, *busy, 1000.0]],
        **values,
    )
    decision = policy.decide(snapshot)
    assert decision.parallelism[0, [0, 3]].tolist() == [2, 1]
    return tuple(decision.parallelism[0, 1:3].tolist())


def test_desired_is_current_times_metric_over_target_rounded_up():
    assert tasks(hpa(), (4, 4), (700.0, 800.0)) == (6, 7)


def test_a_ratio_within_the_tolerance_changes_nothing():
    assert tasks(hpa(), (10, 10), (549.0, 451.0)) == (10, 10)
    assert tasks(hpa(tolerance=0.0), (10, 10), (549.0, 500.0)) == (11, 10)


def test_scale_up_adds_at_most_four_pods_or_doubles():
    assert tasks(hpa(target_utilization=0.1), (1, 10), (1000.0, 1000.0)) == (5, 20)


def test_scale_down_takes_the_highest_recommendation_of_five_minutes():
    policy = hpa()
    assert tasks(policy, (8, 8), (500.0, 500.0), 600.0) == (8, 8)
    assert tasks(policy, (8, 8), (100.0, 500.0), 660.0) == (8, 8)
    assert tasks(policy, (8, 8), (200.0, 500.0), 900.0) == (4, 8)  # 600 is 300 s ago: out
    assert tasks(policy, (8, 8), (100.0, 500.0), 960.0) == (4, 8)


def test_scale_up_may_be_stabilised_too():
    policy = hpa(behavior={"scale_up": {"stabilization_window_s": 60}})
    assert tasks(policy, (4, 4), (500.0, 500.0), 600.0) == (4, 4)
    assert tasks(policy, (4, 4), (750.0, 500.0), 630.0) == (4, 4)
    assert tasks(policy, (4, 4), (750.0, 500.0), 675.0) == (6, 4)


def test_scale_down_may_be_limited_per_decision():
    policy = hpa(
        behavior={
            "scale_down": {
                "stabilization_window_s": 0,
                "policies": [{"type": "Percent", "value": 25, "period_s": 15}],
            }
        }
    )
    assert tasks(policy, (8, 8), (50.0, 500.0)) == (6, 8)


def test_missing_metrics_and_pods_that_are_not_ready_change_nothing():
    assert tasks(hpa(), (4, 4), (np.nan, 1000.0)) == (4, 8)
    assert tasks(hpa(), (4, 4), (1000.0, 1000.0), running_since_s=[560.0]) == (4, 4)
    assert tasks(hpa(), (4, 4), (1000.0, 1000.0), status=[2]) == (4, 4)


def test_it_syncs_every_fifteen_seconds():
    policy = hpa()
    assert tasks(policy, (4, 4), (1000.0, 500.0), 600.0) == (8, 4)
    assert tasks(policy, (4, 4), (1000.0, 500.0), 614.0) == (4, 4)
    assert tasks(policy, (4, 4), (1000.0, 500.0), 615.0) == (8, 4)


def test_one_count_for_the_job_weighs_all_pods_and_moves_all_vertices():
    # 6 tasks at 1000 and 2 at 200 are 800 on average: 6 * 0.8 / 0.5 = 9.6.
    policy = hpa(per_vertex=False)
    assert tasks(policy, (6, 2), (1000.0, 200.0)) == (10, 10)


def test_it_never_touches_memory():
    snapshot = blank_snapshot(TOPOLOGY, memory_level=[[-1, 0, 2, -1]], busy_now_ms_per_s=900.0)
    np.testing.assert_array_equal(hpa().decide(snapshot).memory_level, snapshot.memory_level)


def test_a_target_above_one_is_refused():
    with pytest.raises(ValueError, match="target_utilization"):
        HpaCpuConfig(target_utilization=80)


def cpu(policy, p, load, t_s=600.0, **values):
    """Tasks of map and window where TaskManagers have a CPU load and tasks are idle."""
    return tasks(policy, (p, p), (0.0, 0.0), t_s, tm_cpu_load=[load], **values)


ON_CPU = {"metric": "cpu", "per_vertex": False, "restarts_pods": False}


def test_on_cpu_one_count_follows_the_load_of_taskmanagers():
    assert cpu(hpa(**ON_CPU), 4, 0.7) == (6, 6)
    assert cpu(hpa(**ON_CPU), 4, np.nan) == (4, 4)


def test_the_cpu_load_may_be_a_mean_that_goes_on_through_a_restart():
    policy = hpa(**ON_CPU, cpu_window_s=60.0)
    for step in range(9):
        assert cpu(policy, 4, 0.5, 600.0 + 5 * step) == (4, 4)
    # After a restart of the job; nine samples of 0.5 and four of 0.9 are a mean of 0.62.
    found = [cpu(policy, 4, 0.9, 645.0 + t, running_since_s=[643.0]) for t in (0, 5, 10, 15)]
    assert found == [(4, 4), (4, 4), (4, 4), (5, 5)]


def test_an_added_pod_counts_as_idle_until_it_is_ready():
    policy = hpa(**ON_CPU, readiness_s=60.0)
    assert cpu(policy, 4, 0.6, 600.0) == (5, 5)
    # Four of five at 0.6 and one at nothing: 0.48 of 0.5.
    assert cpu(policy, 5, 0.6, 630.0, running_since_s=[620.0]) == (5, 5)
    assert cpu(policy, 5, 0.6, 690.0, running_since_s=[620.0]) == (6, 6)


def test_cpu_is_of_the_job_and_its_window_of_cpu():
    with pytest.raises(ValueError, match="set per_vertex: false"):
        HpaCpuConfig(metric="cpu")
    with pytest.raises(ValueError, match="set metric: cpu"):
        HpaCpuConfig(cpu_window_s=60.0)


def test_the_reason_on_cpu_names_the_load():
    seen = blank_snapshot(TOPOLOGY, parallelism=[[2, 4, 4, 1]], tm_cpu_load=[0.7])
    assert "CPU 70%, target 50%" in hpa(**ON_CPU).decide(seen).reasons[0]
