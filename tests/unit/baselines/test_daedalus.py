"""Daedalus by hand: line, capacities, forecast, recovery, and the choice of the workers."""

from __future__ import annotations

import numpy as np
import pytest

from baselines.cholesky import factor, substitute
from baselines.daedalus import Daedalus, DaedalusConfig
from baselines.daedalus.capacity import add_sample, capacity_of, keep_capacity, rate_at
from baselines.daedalus.forecast import forecast_differences, forecast_line
from baselines.daedalus.memory import SEEN, DaedalusMemory, empty_memory
from baselines.daedalus.recovery import adapt, add_growth, is_usual, recovery_s
from dsp_gym.errors import ConfigError
from dsp_gym.loop.topology import Topology
from dsp_gym.policies import PolicyConfig, make
from tests.strategies import blank_snapshot, spec_of

VERTICES = (
    {"name": "source", "kind": "source", "parallelism": 2, "scalable": False},
    {"name": "map", "inputs": [{"from": "source"}]},
    {"name": "count", "inputs": [{"from": "map"}]},
    {"name": "sink", "kind": "sink", "inputs": [{"from": "count"}], "scalable": False},
)
TOPOLOGY = Topology.of([spec_of("chain", *VERTICES, max_parallelism_per_vertex=64)])
NAN = np.nan


def daedalus(topology=TOPOLOGY, **params):
    policy = Daedalus(DaedalusConfig(**params))
    policy.reset(topology, np.array([0]))
    return policy


def decided(policy, t_s=600.0, *, tasks=4, busy=500.0, hottest=NAN, read=1000.0, growth=0.0,
            lag=0.0, topology=TOPOLOGY, **values):  # fmt: skip
    """The decision on a job whose map is its busiest vertex."""
    snapshot = blank_snapshot(
        topology,
        t_s,
        **{
            "parallelism": [[2, tasks, tasks, 1]],
            "busy_ms_per_s": [[900.0, busy, 0.5 * busy, 900.0]],
            "busy_max_ms_per_s": [[900.0, hottest, NAN, 900.0]],
            "records_in_per_s": read,
            "records_out_per_s": read,
            "pending_growth_per_s": [[growth, NAN, NAN, NAN]],
            "pending_records": [[lag, NAN, NAN, NAN]],
        }
        | values,
    )
    return policy.decide(snapshot)


def workers(policy, *args, **values):
    """Tasks of map and count, which are the same."""
    found = decided(policy, *args, **values).parallelism[0].tolist()
    assert (found[0], found[3]) == (2, 1)
    assert found[1] == found[2]
    return found[1]


def memory():
    kept = empty_memory(20, 30.0, 15.0)
    kept.reset(TOPOLOGY)
    return kept.arrays(DaedalusMemory)


def test_cholesky_solves_and_refuses_what_is_not_positive_definite():
    a, b = np.array([[4.0, 0.0], [2.0, 5.0]]), np.array([8.0, 14.0])
    assert factor(a)
    substitute(a, b)
    assert b.tolist() == [0.75, 2.5]  # 4 x + 2 y = 8, 2 x + 5 y = 14
    assert not factor(np.array([[1.0, 0.0], [2.0, 4.0]]))


def test_a_workers_line_runs_through_what_was_seen():
    m = memory()
    assert np.isnan(rate_at(m, 0, 1.0, 0.02))
    add_sample(m, 0, 0.2, 100.0)
    assert rate_at(m, 0, 1.0, 0.02) == pytest.approx(500.0)  # one sample: through the origin
    add_sample(m, 0, 0.4, 180.0)
    assert rate_at(m, 0, 1.0, 0.02) == pytest.approx(420.0)  # 140 at 30 %, 40 per 10 %
    assert rate_at(m, 0, 0.9, 0.02) == pytest.approx(380.0)
    # A standard deviation of 10 % is too little to tell a slope here: 140 / 0.3.
    assert rate_at(m, 0, 1.0, 0.2) == pytest.approx(140.0 / 0.3)


def test_a_falling_line_tells_no_capacity():
    m = memory()
    add_sample(m, 0, 0.2, 180.0)
    add_sample(m, 0, 0.4, 100.0)
    assert rate_at(m, 0, 1.0, 0.02) == pytest.approx(140.0 / 0.3)


def test_capacities_are_as_seen_on_average_and_linear_elsewhere():
    m = memory()
    assert np.isnan(capacity_of(m, 0, 4))
    keep_capacity(m, 0, 60.0, 4, 400.0)
    keep_capacity(m, 0, 120.0, 4, 600.0)
    assert capacity_of(m, 0, 4) == 500.0
    assert capacity_of(m, 0, 8) == 1200.0  # twice the last measurement
    keep_capacity(m, 0, 180.0, 8, 1000.0)
    assert (capacity_of(m, 0, 4), capacity_of(m, 0, 2)) == (500.0, 250.0)
    for count in range(SEEN):  # of more than it remembers, it forgets the oldest
        keep_capacity(m, 0, 240.0 + count, 100 + count, 1.0)
    assert capacity_of(m, 0, 4) == pytest.approx(4 / (99 + SEEN))


def test_a_forecast_goes_on_with_what_differences_follow_each_other():
    ahead = np.empty(4)
    ramp = np.arange(0.0, 1000.0, 10.0)
    assert forecast_differences(ramp, 1, ahead)
    assert ahead == pytest.approx([1000.0, 1010.0, 1020.0, 1030.0])
    # The differences of a sine are 2 cos(step) times the last less the one before.
    wave = 100.0 + 50.0 * np.sin(0.3 * np.arange(44))
    assert forecast_differences(wave[:40], 2, ahead)
    assert ahead == pytest.approx(wave[40:], rel=1e-5)


def test_nothing_is_fitted_to_a_short_past_or_to_one_without_changes():
    ahead = np.empty(4)
    assert not forecast_differences(np.arange(10.0), 2, ahead)
    assert not forecast_differences(np.full(40, 7.0), 2, ahead)


def test_the_straight_line_runs_through_the_last_five_loops_and_never_below_zero():
    ahead = np.empty(3)
    forecast_line(np.array([500.0, 10.0, 20.0, 30.0, 40.0, 50.0]), ahead)
    assert ahead == pytest.approx([60.0, 70.0, 80.0])
    forecast_line(np.array([30.0, 15.0]), ahead)
    assert ahead.tolist() == [0.0, 0.0, 0.0]
    forecast_line(np.array([30.0]), ahead)
    assert ahead.tolist() == [30.0, 30.0, 30.0]


def test_a_recovery_is_downtime_and_what_waits_over_what_is_spare():
    ahead = np.full(10, 200.0)
    # 1,000 and 30 s of 200/s wait; 100/s are spare: 30 + 70 s, into the second minute.
    assert recovery_s(300.0, 1000.0, 30.0, ahead, 60.0) == pytest.approx(100.0)
    assert recovery_s(300.0, 0.0, 90.0, ahead, 60.0) == pytest.approx(90.0 + 180.0)
    assert np.isinf(recovery_s(200.0, 1000.0, 30.0, ahead, 60.0))
    assert np.isinf(recovery_s(210.0, 1e6, 30.0, ahead, 60.0))  # beyond ten minutes


def test_a_downtime_moves_by_a_second_towards_the_observed_recovery():
    m = memory()
    m.predicted_s[0], m.is_open[0], m.is_up[0] = 100.0, True, True
    adapt(m, 0, 120.0, 1.0)
    assert (m.up_s[0], m.down_s[0], bool(m.is_open[0])) == (31.0, 15.0, False)
    m.is_up[0] = False
    adapt(m, 0, 90.0, 1.0)
    assert (m.up_s[0], m.down_s[0]) == (31.0, 14.0)


def test_a_job_has_recovered_when_it_falls_behind_as_usual():
    m = memory()
    for growth in (-10.0, 10.0):
        add_growth(m, 0, growth)
    assert is_usual(m, 0, 9.0)
    assert not is_usual(m, 0, -500.0)  # works off a backlog


def test_the_fewest_workers_that_carry_the_load_and_recover_in_time():
    # Half busy with 1,000/s: 500/s per worker. Two would carry just the load; three recover from
    # 10 s + 15 s of it with 500/s to spare, in 15 + 50 s.
    found = decided(daedalus())
    assert found.parallelism[0].tolist() == [2, 3, 3, 1]
    assert "carries 1,500/s of 1,000/s, forecast up to 1,000/s; recovery 65 s" in found.reasons[0]
    # Within a minute not even the running four would, which are judged as if they were restarted:
    # 30 s + 40 s of load with 1,000/s to spare. With five 1,500/s are: 57 s.
    assert workers(daedalus(target_recovery_s=60.0)) == 5


def test_skew_counts():
    # The hottest task is at 70 %, the mean at 50 %: with the hottest at 100 % it is at 80 %, 400/s.
    assert workers(daedalus(), hottest=700.0) == 3
    # At 90 %: 300/s each, so four carry 1,200/s, and three less than the load.
    assert workers(daedalus(), hottest=900.0) == 4


def test_an_overload_is_sized_for_what_is_offered():
    # 250/s per worker, 1,500/s offered: seven have 250/s to spare for 40 s of load, 30 + 240 s.
    assert workers(daedalus(), busy=1000.0, growth=500.0) == 7
    # Within 100 s ten do: 1,000/s to spare, 30 + 60 s.
    assert workers(daedalus(target_recovery_s=100.0), busy=1000.0, growth=500.0) == 10


def test_where_no_number_suffices_the_most_run():
    assert workers(daedalus(), busy=1000.0, growth=1e6) == 64


def test_no_scale_down_while_more_waits_than_a_second_of_capacity():
    assert workers(daedalus(), lag=3000.0) == 4
    assert workers(daedalus(), lag=1900.0) == 3


def test_a_new_number_must_carry_the_whole_forecast():
    policy = daedalus(hold_s=180.0)
    found = [
        workers(policy, 300.0 + 60 * loop, busy=read / 2, read=read)
        for loop, read in enumerate((900.0, 920.0, 940.0, 960.0, 980.0))
    ]
    # 500/s each. Two carry 900/s for ever; from the second loop on a line rises to 1,120/s.
    assert found == [2, 3, 3, 3, 3]
    steep = daedalus(hold_s=180.0)
    for loop, read in enumerate((600.0, 700.0, 800.0, 900.0, 1000.0)):
        found = workers(steep, 300.0 + 60 * loop, busy=read / 2, read=read)
    # To 2,000/s: three are not taken, and four, which run, need only carry their recovery.
    assert found == 4


def test_it_rests_three_minutes_and_holds_until_ten_while_nothing_presses():
    policy = daedalus()
    for t_s in (480.0, 540.0):
        assert workers(policy, t_s) == 4
    assert workers(policy, 600.0) == 3
    pressed = daedalus()
    assert workers(pressed, 240.0, running_since_s=[100.0], busy=1000.0, growth=500.0) == 4
    # 250/s each after 180 s: capacity is below the load.
    assert workers(pressed, 360.0, running_since_s=[100.0], busy=1000.0, growth=500.0) == 7


def test_it_looks_every_minute():
    policy = daedalus()
    assert workers(policy, 600.0) == 3
    assert workers(policy, 630.0) == 4
    assert workers(policy, 660.0) == 3  # not enacted the first time


def test_the_model_leaves_out_two_minutes_after_a_restart():
    policy = daedalus(rest_s=0.0, hold_s=0.0)
    # The window of two minutes reaches back to 80 s after the start.
    assert workers(policy, 600.0, running_since_s=[400.0]) == 4
    assert policy.state()["memory"]["samples"] == [0]
    assert workers(policy, 660.0, running_since_s=[400.0]) == 3


def test_a_rescale_that_was_asked_for_adapts_its_downtime():
    policy = daedalus()
    assert workers(policy, 600.0) == 3  # recovery predicted: 65 s
    up = {"running_since_s": [680.0], "outage_s": [20.0], "busy": 666.0}
    assert workers(policy, 720.0, tasks=3, **up) == 3
    # Seen recovered 60 s after it went down: sooner.
    assert policy.state()["memory"]["down_s"] == [14.0]
    assert workers(policy, 780.0, tasks=5, **(up | {"running_since_s": [770.0]})) == 5
    assert policy.state()["memory"]["up_s"] == [30.0]  # nobody had predicted that one


def test_what_is_not_known_keeps_the_workers():
    for unknown in (
        {"busy": NAN}, {"read": NAN}, {"growth": NAN}, {"lag": NAN}, {"status": [2]}
    ):  # fmt: skip
        assert workers(daedalus(), **unknown) == 4, unknown


def test_a_generator_without_a_log_offers_what_it_emits():
    source = {"rate_per_s": 1000.0, "log": False}
    jobs = Topology.of([spec_of("chain", *VERTICES, source=source, max_parallelism_per_vertex=64)])
    assert workers(daedalus(jobs), topology=jobs, growth=NAN, lag=NAN) == 3


def test_vertices_keep_their_own_bounds():
    capped = [dict(v) for v in VERTICES]
    capped[2] |= {"max_parallelism": 5}
    jobs = Topology.of([spec_of("chain", *capped, max_parallelism_per_vertex=64)])
    found = decided(daedalus(jobs), topology=jobs, busy=1000.0, growth=500.0)
    assert found.parallelism[0].tolist() == [2, 7, 5, 1]


def test_a_hold_shorter_than_the_rest_is_refused():
    with pytest.raises(ConfigError, match="hold_s 60 is below rest_s 180"):
        make(PolicyConfig(policy="daedalus", params={"hold_s": 60}))
