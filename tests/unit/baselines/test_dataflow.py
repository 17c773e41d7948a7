"""Google Cloud Dataflow's streaming autoscaling, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from baselines.dataflow import Dataflow, DataflowConfig
from dsp_gym.errors import ConfigError
from dsp_gym.loop.topology import Topology
from dsp_gym.policies import PolicyConfig, make
from tests.strategies import blank_snapshot, chain_spec

TOPOLOGY = Topology.of([chain_spec(max_parallelism_per_vertex=200, slot_sharing=True)])
NAN = np.nan


def dataflow(**params):
    policy = Dataflow(DataflowConfig(**params))
    policy.reset(TOPOLOGY, np.array([0]))
    return policy


def decided(policy, t_s, p=(4, 4), *, cpu=0.5, backlog_s=0.0, growth=0.0, **values):
    """A decision at a throughput of 1000 records/s."""
    snapshot = blank_snapshot(
        TOPOLOGY,
        t_s,
        **{
            "running_since_s": [-1e6],
            "parallelism": [[2, *p, 1]],
            "tm_cpu_load": [cpu],
            "busy_ms_per_s": [[100.0] * 4],
            "records_in_per_s": [[1000.0] * 4],
            "pending_records": [[1000.0 * backlog_s, NAN, NAN, NAN]],
            "pending_growth_per_s": [[1000.0 * growth, NAN, NAN, NAN]],
        }
        | values,
    )
    return policy.decide(snapshot)


def after(policy, p=(4, 4), *, from_s=0.0, minutes=2, **seen):
    """Tasks of map and window after some minutes of the same; nothing changes before."""
    for minute in range(minutes):
        assert decided(policy, from_s + 60.0 * minute, p, **seen).reasons == ("hold",)
    found = decided(policy, from_s + 60.0 * minutes, p, **seen).parallelism[0].tolist()
    assert (found[0], found[3]) == (2, 1)
    return tuple(found[1:3])


def test_a_backlog_of_two_minutes_gets_workers_that_clear_it_in_150_s():
    # 4 workers read 1000/s; 300 s of backlog in 150 s: 1000 + 2000 more. 4 * 3 = 12.
    assert after(dataflow(), backlog_s=300.0) == (12, 12)


def test_what_comes_more_than_is_read_needs_workers_too():
    # 4 * (1 + 0.3 + 30 / 150) = 6; without growth 4.8, rounded up.
    assert after(dataflow(), backlog_s=30.0, growth=0.3) == (6, 6)
    assert after(dataflow(), backlog_s=30.0) == (5, 5)


def test_a_backlog_that_shrinks_fast_enough_needs_none():
    # 4 * (1 - 0.25 + 30 / 150) = 3.8.
    assert after(dataflow(), cpu=0.9, backlog_s=30.0, growth=-0.25) == (4, 4)


def test_the_time_to_clear_is_an_option():
    assert after(dataflow(clear_s=60.0), backlog_s=300.0) == (24, 24)


def test_a_backlog_with_idle_cpus_waits_for_something_else():
    assert after(dataflow(), cpu=0.2, backlog_s=300.0) == (4, 4)
    assert after(dataflow(), cpu=0.21, backlog_s=300.0) == (12, 12)


def test_workers_are_at_most_the_maximum_which_takes_none_away():
    assert after(dataflow(), (60, 60), backlog_s=300.0) == (100, 100)
    assert after(dataflow(), (120, 120), backlog_s=300.0) == (120, 120)


def test_without_a_backlog_75_percent_of_the_cpus_are_used():
    # 10 * 0.45 / 0.75 = 6.
    assert after(dataflow(), (10, 10), cpu=0.45) == (6, 6)
    assert after(dataflow(), (10, 10), cpu=0.45, backlog_s=9.9) == (6, 6)
    assert after(dataflow(min_workers=8), (10, 10), cpu=0.45) == (8, 8)


def test_without_a_backlog_busy_cpus_change_nothing():
    assert after(dataflow(), (10, 10), cpu=0.75) == (10, 10)
    assert after(dataflow(), (10, 10), cpu=0.95) == (10, 10)


def test_a_target_that_cannot_be_reached_changes_nothing():
    assert after(dataflow(), (2, 2), cpu=0.5) == (2, 2)  # 2 * 0.5 / 0.75 = 1.33


def test_a_hint_is_a_target_in_both_directions():
    # 10 * 0.45 / 0.3 = 15; 10 * 0.15 / 0.3 = 5, where 0.75 would leave two.
    hinted = {"worker_utilization_hint": 0.3, "least_cpu": 0.1}
    assert after(dataflow(**hinted), (10, 10), cpu=0.45) == (15, 15)
    assert after(dataflow(**hinted), (10, 10), cpu=0.15) == (5, 5)
    assert after(dataflow(), (10, 10), cpu=0.15) == (2, 2)


def test_a_backlog_overrides_a_smaller_wish_of_the_hint():
    # By load 4 * 0.45 / 0.3 = 6, by backlog 12.
    hinted = dataflow(worker_utilization_hint=0.3)
    assert after(hinted, cpu=0.45, backlog_s=300.0) == (12, 12)


def test_a_condition_begins_anew_when_it_changes_and_after_a_rescale():
    policy = dataflow()
    decided(policy, 0.0, backlog_s=300.0)
    decided(policy, 60.0, backlog_s=5.0, cpu=0.8)
    assert after(policy, from_s=120.0, backlog_s=300.0) == (12, 12)
    later = {"running_since_s": [250.0], "from_s": 300.0}
    assert after(policy, (12, 12), backlog_s=30.0, **later) == (15, 15)


def test_a_snapshot_without_metrics_neither_ends_nor_acts():
    policy = dataflow()
    lost = {"pending_records": [[NAN] * 4], "cpu": NAN, "busy_ms_per_s": [[NAN] * 4]}
    decided(policy, 0.0, backlog_s=300.0)
    assert decided(policy, 60.0, **lost).parallelism[0, 1] == 4
    assert decided(policy, 120.0, **lost).parallelism[0, 1] == 4
    assert decided(policy, 180.0, backlog_s=300.0).parallelism[0, 1] == 12


def test_a_gap_begins_the_duration_anew():
    policy = dataflow()
    decided(policy, 0.0, backlog_s=300.0)
    assert decided(policy, 301.0, backlog_s=300.0).reasons == ("hold",)
    assert decided(policy, 421.0, backlog_s=300.0).parallelism[0, 1] == 12


def test_a_backlog_without_throughput_tells_nothing():
    stuck = {"records_in_per_s": [[0.0] * 4]}
    assert after(dataflow(), backlog_s=300.0, cpu=0.9, **stuck) == (4, 4)


def test_the_reason_names_backlog_load_and_workers():
    policy = dataflow()
    for t_s in (0.0, 60.0, 120.0):
        (reason,) = decided(policy, t_s, backlog_s=300.0).reasons
    assert "(backlog 300 s, CPU 50%: 12 workers read it in 150 s)" in reason
    policy = dataflow()
    for t_s in (0.0, 60.0, 120.0):
        (reason,) = decided(policy, t_s, (10, 10), cpu=0.45).reasons
    assert "(CPU 45%, backlog 0 s: 6 workers for 75%)" in reason


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"min_workers": 9, "max_workers": 8}, "min_workers 9 is above max_workers 8"),
        ({"worker_utilization_hint": 0.2}, "least_cpu 0.2 is not below the CPU load to aim at"),
        ({"worker_utilization_hint": 0.95}, "worker_utilization_hint"),
    ],
)
def test_options_that_contradict_each_other_are_refused(params, said):
    with pytest.raises(ConfigError, match=said):
        make(PolicyConfig(policy="dataflow", params=params))
