"""Amazon Managed Service for Apache Flink: its rule and its durations, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from baselines.aws_managed_flink import AwsManagedFlink, AwsManagedFlinkConfig
from dsp_gym.errors import ConfigError
from dsp_gym.loop.topology import Topology
from dsp_gym.policies import PolicyConfig, make
from tests.strategies import blank_snapshot, chain_spec

TOPOLOGY = Topology.of([chain_spec(max_parallelism_per_vertex=64, slot_sharing=True)])
MINUTE, HOUR = 60.0, 3600.0


def aws(**params):
    policy = AwsManagedFlink(AwsManagedFlinkConfig(**params))
    policy.reset(TOPOLOGY, np.array([0]))
    return policy


def decided(policy, t_s, cpu, p=(4, 4), **values):
    snapshot = blank_snapshot(
        TOPOLOGY,
        t_s,
        **{
            "running_since_s": [-1e6],
            "parallelism": [[2, *p, 1]],
            "tm_cpu_load": [cpu],
            "busy_ms_per_s": [[0.0, 0.0, 0.0, 0.0]],
            "records_in_per_s": [[1000.0] * 4],
        }
        | values,
    )
    return policy.decide(snapshot)


def tasks(policy, t_s, cpu, p=(4, 4), **values):
    """Tasks of map and window; source and sink are fixed."""
    found = decided(policy, t_s, cpu, p, **values).parallelism[0].tolist()
    assert (found[0], found[3]) == (2, 1)
    return tuple(found[1:3])


def test_fifteen_data_points_at_75_percent_double_the_parallelism():
    policy = aws()
    for minute in range(14):
        assert tasks(policy, minute * MINUTE, 0.75) == (4, 4)
    assert tasks(policy, 14 * MINUTE, 0.75) == (8, 8)
    assert tasks(policy, 15 * MINUTE, 0.9) == (8, 8)  # wanted until it has come


def test_one_data_point_below_begins_the_count_again():
    policy = aws()
    for minute in range(30):
        assert tasks(policy, minute * MINUTE, 0.74 if minute == 13 else 0.99)[0] == (
            8 if minute >= 28 else 4
        )


def test_every_vertex_changes_by_the_same_factor_up_to_its_maximum():
    policy = aws()
    for minute in range(14):
        tasks(policy, minute * MINUTE, 0.8, (3, 40))
    assert tasks(policy, 14 * MINUTE, 0.8, (3, 40)) == (6, 64)


def test_the_quota_of_the_application_bounds_it_and_takes_nothing_away():
    policy = aws(max_parallelism=10)
    for minute in range(14):
        tasks(policy, minute * MINUTE, 0.8, (6, 12))
    assert tasks(policy, 14 * MINUTE, 0.8, (6, 12)) == (10, 12)


def test_after_a_rescale_fifteen_more_data_points_are_needed():
    policy = aws()
    for minute in range(15):
        tasks(policy, minute * MINUTE, 0.8)
    up = {"running_since_s": [14.5 * MINUTE]}
    for minute in range(15, 29):
        assert tasks(policy, minute * MINUTE, 0.8, (8, 8), **up) == (8, 8)
    # Up since 14.5 min; the first data point stands for half a minute.
    assert tasks(policy, 29.5 * MINUTE, 0.8, (8, 8), **up) == (16, 16)


def test_six_hours_below_10_percent_halve_the_parallelism_rounded_up():
    policy = aws()
    for minute in range(359):
        assert tasks(policy, minute * MINUTE, 0.099, (5, 8)) == (5, 8)
    assert tasks(policy, 359 * MINUTE, 0.099, (5, 8)) == (3, 4)


def test_10_percent_are_not_below_10_percent():
    policy = aws(scale_down_s=60.0)
    assert tasks(policy, 0.0, 0.1) == (4, 4)
    assert tasks(policy, 60.0, 0.1) == (4, 4)
    assert tasks(policy, 120.0, 0.05) == (2, 2)


def test_the_applications_own_parallelism_is_the_least():
    quick = {"scale_down_s": 60.0}
    assert tasks(aws(parallelism=6, **quick), 0.0, 0.05, (8, 20)) == (6, 10)
    assert tasks(aws(parallelism=6, **quick), 0.0, 0.05, (4, 6)) == (4, 6)  # nor raised to it
    started = Topology.of([chain_spec()]).tables.start_parallelism[0, 1:3]
    assert started.tolist() == [1, 1]
    assert tasks(aws(**quick), 0.0, 0.05, (1, 3)) == (1, 2)


def test_the_hottest_task_counts_where_the_mean_of_the_taskmanagers_hides_it():
    quick = aws(scale_up_s=60.0)
    hot = {"busy_max_ms_per_s": [[0.0, 760.0, 0.0, 0.0]]}
    assert tasks(quick, 0.0, 0.3, **hot) == (8, 8)


def test_busy_time_stands_in_for_an_unknown_load():
    busy = {"busy_ms_per_s": [[10.0, 800.0, 300.0, 20.0]]}
    assert tasks(aws(scale_up_s=60.0), 0.0, np.nan, **busy) == (8, 8)
    idle = {"busy_ms_per_s": [[10.0, 40.0, 30.0, 20.0]]}  # 8 % of the four slots
    assert tasks(aws(scale_down_s=60.0), 0.0, np.nan, **idle) == (2, 2)


def test_a_vertex_that_does_not_report_lets_nothing_be_taken_away():
    idle = {"busy_ms_per_s": [[10.0, np.nan, 30.0, 20.0]]}
    assert tasks(aws(scale_down_s=60.0), 0.0, 0.05, **idle) == (4, 4)


@pytest.mark.parametrize(("gap", "expected"), [(5, 8), (6, 4)])
def test_a_gap_between_data_points_begins_the_count_again(gap, expected):
    policy = aws()
    for minute in (*range(9), *range(8 + gap, 15)):
        found = tasks(policy, minute * MINUTE, 0.8)
    assert found == (expected, expected)


def test_a_load_that_is_unknown_for_a_while_does_not_end_the_count():
    policy = aws()
    unknown = {"busy_ms_per_s": [[np.nan] * 4]}
    for minute in range(15):
        found = tasks(policy, minute * MINUTE, np.nan if minute == 7 else 0.8, **unknown)
    assert found == (8, 8)


def test_decisions_further_apart_than_a_data_point_last_as_long():
    policy = aws()
    found = [tasks(policy, t_s, 0.8)[0] for t_s in (0.0, 300.0, 600.0, 900.0)]
    assert found == [4, 4, 4, 8]


def test_the_reason_names_load_and_duration():
    reason = decided(aws(scale_up_s=60.0), 0.0, 0.8).reasons[0]
    assert "map 4 at level 0 -> 8 at level 0 (CPU 80%, at least 75% for 1 min)" in reason
    reason = decided(aws(scale_down_s=60.0), 0.0, 0.05).reasons[0]
    assert "(CPU 5%, below 10% for 1 min)" in reason


def test_loads_that_undo_each_other_are_refused():
    with pytest.raises(ConfigError, match=r"half the tasks have twice the load"):
        make(PolicyConfig(policy="aws-managed-flink", params={"scale_down_cpu": 0.4}))
