"""Varga et al., equations 1 to 5 by hand, and the policy they make."""

from __future__ import annotations

import numpy as np
import pytest

from baselines.varga import HpaVarga, HpaVargaConfig
from baselines.varga_equations import (
    desired_replicas,
    lag_metric,
    relative_lag_change_rate,
    source_lag,
    utilization,
)
from dsp_gym.errors import ConfigError
from dsp_gym.loop.topology import Topology
from dsp_gym.policies import PolicyConfig, make
from tests.strategies import blank_snapshot, chain_spec, spec_of

TOPOLOGY = Topology.of([chain_spec(max_parallelism_per_vertex=64)])
NOW = {"scale_down": {"stabilization_window_s": 0}}


def varga(topology=TOPOLOGY, **params):
    params = {"behavior": NOW} | params
    policy = HpaVarga(HpaVargaConfig(**params))
    policy.reset(topology, np.array([0]))
    return policy


def tasks(policy, p=4, t_s=600.0, *, busy=800.0, lag=0.0, growth=0.0, rate=1000.0, **values):
    """Tasks of map and window, both at p; source and sink are fixed and always busy."""
    snapshot = blank_snapshot(
        TOPOLOGY,
        t_s,
        **{
            "window_s": [60.0],
            "parallelism": [[2, p, p, 1]],
            "busy_now_ms_per_s": [[1000.0, busy, busy, busy]],
            "pending_records": [[lag, np.nan, np.nan, np.nan]],
            "pending_growth_per_s": [[growth, np.nan, np.nan, np.nan]],
            "records_in_per_s": [[rate, rate, rate, rate]],
        }
        | values,
    )
    decision = policy.decide(snapshot)
    assert decision.parallelism[0, [0, 3]].tolist() == [2, 1]
    return tuple(decision.parallelism[0, 1:3].tolist())


def test_equation_1_takes_the_larger_of_the_metrics():
    # ceil(4 * 1.5) = 6, ceil(4 * 0.5) = 2; ceil(4 * 0.3) = 2, ceil(4 * 0.7) = 3.
    assert desired_replicas(4, 1.5, 0.5, 0.1) == 6
    assert desired_replicas(4, 0.3, 0.7, 0.1) == 3


def test_equation_1_passes_over_a_negative_metric():
    assert desired_replicas(4, -1.0, 0.5, 0.1) == 2


def test_equation_1_with_a_metric_missing_scales_up_but_not_down():
    assert desired_replicas(4, np.nan, 1.5, 0.1) == 6
    assert desired_replicas(4, np.nan, 0.5, 0.1) == -1
    assert desired_replicas(4, np.nan, np.nan, 0.1) == -1


def test_equation_2_on_the_papers_example_of_a_million_records():
    # 20 partitions of 50,000 records, four consumers of five partitions each.
    assert source_lag(np.nan, 250_000.0, 5.0, 20) == 1_000_000.0


def test_equation_2_overestimates_the_lag_of_a_skewed_log():
    # One subtask has 90,000 of the 100,000 records in its 2 of 8 partitions: 45,000 * 8.
    assert source_lag(100_000.0, 90_000.0, 2.0, 8) == 360_000.0


def test_equation_2_is_the_sum_of_the_lags_where_only_that_is_known():
    assert source_lag(100_000.0, np.nan, np.nan, 8) == 100_000.0
    assert source_lag(100_000.0, 90_000.0, 2.0, 0) == 100_000.0
    assert np.isnan(source_lag(np.nan, np.nan, np.nan, 8))


def test_equation_3_is_one_plus_the_growth_of_the_lag_over_the_rate():
    # 500 more per second on 1000 taken in; 200 less; nothing taken in says nothing.
    assert relative_lag_change_rate(500.0, 1000.0) == 1.5
    assert relative_lag_change_rate(-200.0, 1000.0) == 0.8
    assert np.isnan(relative_lag_change_rate(500.0, 0.0))


def test_equation_4_turns_the_sign_below_the_threshold():
    assert [lag_metric(lag, 100.0, 1.5) for lag in (150.0, 50.0, 100.0)] == [1.5, -1.5, 0.0]
    assert np.isnan(lag_metric(np.nan, 100.0, 1.5))


def test_equation_4_of_an_idle_source_does_not_keep_the_replicas_up():
    relative = relative_lag_change_rate(0.0, 0.0)
    assert lag_metric(0.0, 100.0, relative) == 0.0
    assert np.isnan(lag_metric(200.0, 100.0, relative))


def test_equation_5_averages_over_the_tasks_that_are_not_sources():
    # 1 - (6 * 100 + 2 * 900) / 8 / 1000 = 0.7; the source's ten idle tasks do not count.
    idle, count = np.array([1000.0, 100.0, 900.0]), np.array([0, 6, 2])
    assert utilization(idle, count) == pytest.approx(0.7)


def test_equation_5_alone_scales_down_to_half_as_in_the_papers_example():
    # Target 0.8, utilisation 0.4: "the new parallelism should be half of the original".
    assert tasks(varga(), 8, busy=400.0) == (4, 4)


def test_equations_3_and_1_scale_up_by_the_relative_growth_of_the_lag():
    # 1 + 600 / 1000 = 1.6; ceil(5 * 1.6) = 8, while utilisation at its target asks for 5.
    assert tasks(varga(), 5, lag=50_000, growth=600.0) == (8, 8)


def test_equation_4_a_constant_lag_above_the_threshold_keeps_the_replicas():
    assert tasks(varga(), 8, busy=400.0, lag=50_000) == (8, 8)
    assert tasks(varga(), 8, busy=400.0, lag=5_000) == (4, 4)
    assert tasks(varga(lag_threshold_records=1000), 8, busy=400.0, lag=5_000) == (8, 8)


def test_a_lag_target_below_one_overshoots():
    # 1.5 / 0.8 = 1.875; ceil(4 * 1.875) = 8.
    assert tasks(varga(lag_target=0.8), 4, lag=50_000, growth=500.0) == (8, 8)


def test_per_vertex_each_has_its_own_utilisation_and_the_jobs_lag():
    busy = {"busy_now_ms_per_s": [[1000.0, 400.0, 960.0, 100.0]]}
    assert tasks(varga(per_vertex=True), 8, **busy) == (4, 10)
    assert tasks(varga(per_vertex=True), 8, lag=5e4, growth=500.0, **busy) == (12, 12)


def test_waiting_for_output_is_idle_as_in_flink_1_12_or_not_as_since():
    waits = {"backpressured_now_ms_per_s": 400.0}
    assert tasks(varga(), 8, busy=400.0, **waits) == (4, 4)
    assert tasks(varga(backpressured_is_idle=False), 8, busy=400.0, **waits) == (8, 8)


def test_without_gauges_the_window_says_how_idle_tasks_are():
    unknown = {"busy_now_ms_per_s": np.nan, "backpressured_ms_per_s": 100.0}
    assert tasks(varga(), 8, idle_ms_per_s=500.0, **unknown) == (4, 4)


def test_of_a_longer_window_the_last_minute_counts():
    policy, counted = varga(), {"window_s": [600.0]}
    # The window says nothing grows; 15 s samples say 500 of 1000 per second do.
    for step in range(5):
        decided = tasks(
            policy,
            t_s=600.0 + 15 * step,
            lag=50_000 + 500 * 15 * step,
            records_in_total=[[15_000.0 * step, np.nan, np.nan, np.nan]],
            **counted,
        )
        assert decided == ((6, 6) if step >= 2 else (4, 4))  # half a minute is known


def test_the_minute_begins_anew_with_a_restart():
    policy, counted = varga(), {"window_s": [600.0]}
    total = {"records_in_total": [[1e6, np.nan, np.nan, np.nan]]}
    tasks(policy, t_s=600.0, lag=50_000, **counted, **total)
    total = {"records_in_total": [[1e3, np.nan, np.nan, np.nan]], "running_since_s": [640.0]}
    assert tasks(policy, t_s=660.0, lag=80_000, **counted, **total) == (4, 4)


def test_a_job_without_a_log_is_scaled_by_utilisation_alone():
    topology = Topology.of([chain_spec(source={"rate_per_s": 1000.0, "log": False})])
    snapshot = blank_snapshot(topology, parallelism=[[2, 8, 8, 1]], busy_now_ms_per_s=400.0)
    assert varga(topology).decide(snapshot).parallelism[0].tolist() == [2, 4, 4, 1]


def test_an_unknown_lag_holds_back_the_scale_down():
    assert tasks(varga(), 8, busy=400.0, lag=np.nan) == (8, 8)


def test_two_sources_add_up():
    spec = spec_of(
        "join",
        {"name": "a", "kind": "source"},
        {"name": "b", "kind": "source"},
        {"name": "join", "kind": "sink", "inputs": [{"from": "a"}, {"from": "b"}]},
        max_parallelism_per_vertex=64,
    )
    topology = Topology.of([spec])
    row = topology.names(0)
    snapshot = blank_snapshot(
        topology,
        window_s=[60.0],
        parallelism=[[1, 1, 4]],
        busy_now_ms_per_s=800.0,
        pending_records=[[8_000.0, 8_000.0, np.nan]],
        pending_growth_per_s=[[400.0, 100.0, np.nan]],
        records_in_per_s=[[600.0, 400.0, 1000.0]],
    )
    decision = varga(topology).decide(snapshot)
    assert decision.parallelism[0, row.index("join")] == 6
    assert "lag 16,000 records, relative change 1.5 counts" in decision.reasons[0]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"utilization_target": 80}, "utilization_target"),
        ({"lag_threshold": 5}, "Did you mean 'lag_threshold_records'"),
        ({"lag_threshold_records": -1}, "lag_threshold_records"),
    ],
)
def test_wrong_parameters_are_refused(params, message):
    with pytest.raises(ConfigError, match=message):
        make(PolicyConfig(policy="hpa-varga", params=params))


def over_a_minute(policy, lags, *, busy=400.0, begin_s=600.0, since_s=0.0, taken_per_s=1000.0):
    """The decision after samples of the lag, 5 s apart, whose tasks read 1000/s."""
    for step, lag in enumerate(lags):
        t_s = begin_s + 5 * step
        found = tasks(
            policy,
            t_s=t_s,
            busy=busy,
            lag=lag,
            records_in_total=taken_per_s * (t_s - since_s),
            running_since_s=[since_s],
        )
    return found


def test_espa_counts_the_lag_of_each_replica_against_the_threshold():
    growing = {"lag": 150_000.0, "growth": 500.0, "busy": 100.0}
    # 150,000 are above 50,000 of the job, but not above 200,000 of four replicas.
    assert tasks(varga(lag_threshold_records=50_000.0), **growing) == (6, 6)
    assert tasks(varga(lag_threshold_records=50_000.0, threshold_per_replica=True), **growing) == (
        1,
        1,
    )


def test_espa_counts_sources_which_have_one_task_per_replica():
    # Two sources always busy, 4 + 4 + 1 tasks at 400 ms/s, target 0.4: (2 + 3.6) / 11 = 0.51.
    assert tasks(varga(utilization_target=0.4), busy=400.0) == (4, 4)
    assert tasks(varga(utilization_target=0.4, counts_sources=True), busy=400.0) == (6, 6)


def test_espa_a_new_task_whose_gauge_is_not_updated_counts_as_fully_utilised():
    # Idle for 0 ms/s is a utilisation of 1: ceil(4 * 1 / 0.5) = 8, instead of ceil(4 * 0.4 / 0.5).
    started = {"t_s": 600.0, "busy": 400.0}
    policy = {"utilization_target": 0.5, "gauges_start_s": 10.0}
    assert tasks(varga(**policy), **started, running_since_s=[595.0]) == (8, 8)
    assert tasks(varga(**policy), **started, running_since_s=[590.0]) == (4, 4)
    assert tasks(varga(utilization_target=0.5), **started, running_since_s=[595.0]) == (4, 4)


def test_kafkas_records_lag_max_is_the_highest_of_a_minute():
    # The lag is gone, yet for a minute Kafka's consumers report it, here as a rise.
    lags = [0.0] * 6 + [500_000.0] + [0.0] * 6
    assert over_a_minute(varga(), lags) == (2, 2)
    assert over_a_minute(varga(lag_max_s=60.0), lags) == (8, 8)
    # When it is past, equation 4 turns the sign of its fall, which calls for tasks once more.
    assert over_a_minute(varga(lag_max_s=60.0), lags + [0.0] * 9) == (8, 8)
    assert over_a_minute(varga(lag_max_s=60.0), lags + [0.0] * 24) == (2, 2)


def test_a_query_of_a_minute_goes_on_through_a_restart():
    def after_restart(policy):
        over_a_minute(policy, [0.0] * 13)
        return over_a_minute(policy, [300_000.0] * 4, begin_s=680.0, since_s=670.0)

    # The lag of the outage is a rise over the minute; since the new start alone it is none.
    assert after_restart(varga(lag_threshold_records=50_000.0)) == (4, 4)
    assert after_restart(varga(lag_threshold_records=50_000.0, spans_restarts=True)) == (8, 8)


def test_a_query_shows_the_last_sample_until_there_is_another():
    def just_restarted(policy):
        over_a_minute(policy, [0.0] * 6 + [300_000.0] * 7)
        unknown = {"lag": np.nan, "rate": np.nan, "growth": np.nan, "busy_now_ms_per_s": np.nan}
        return tasks(policy, t_s=675.0, running_since_s=[674.0], window_fill=[0.0], **unknown)

    assert just_restarted(varga()) == (4, 4)
    assert just_restarted(varga(spans_restarts=True)) == (8, 8)


def test_the_first_fetch_of_a_consumer_saw_the_whole_backlog_of_an_outage():
    def first_lag(policy, taken):
        over_a_minute(policy, [0.0] * 13, begin_s=600.0)
        tasks(policy, t_s=690.0, records_in_total=taken, running_since_s=[680.0])
        samples = policy.state()["samples"]["lag"][0]
        return samples[policy.state()["written"]["written"][0] - 1]

    # 10 s after the start 30,000 records were read, 10,000 of which have arrived since.
    assert first_lag(varga(lag_max_s=60.0), 30_000.0) == pytest.approx(20_000.0)
    assert first_lag(varga(lag_max_s=60.0), 8_000.0) == 0.0
    assert first_lag(varga(), 30_000.0) == 0.0


def test_espa_the_mended_rule_rests_two_minutes_after_a_change():
    late = {"lag": 500_000.0, "growth": 500.0}
    policy = varga(rest_s=120.0, behavior={})
    assert tasks(policy, 4, 600.0, **late) == (6, 6)
    since = {"running_since_s": [625.0], "outage_s": 15.0}  # it began at 610 s
    assert tasks(policy, 6, 630.0, **since, **late) == (6, 6)
    assert tasks(policy, 6, 720.0, **since, **late) == (6, 6)
    assert tasks(policy, 6, 735.0, **since, **late) == (9, 9)


def test_espa_replicas_that_were_just_added_have_no_metrics():
    late = {"lag": 500_000.0, "growth": 500.0, "busy": 100.0}
    policy = varga(restarts_pods=False, readiness_s=30.0)
    assert tasks(policy, 4, 600.0, **late) == (6, 6)
    # Four of six at 1.5 and two at nothing are on target.
    assert tasks(policy, 6, 630.0, running_since_s=[620.0], **late) == (6, 6)
    assert tasks(policy, 6, 660.0, running_since_s=[620.0], **late) == (9, 9)
