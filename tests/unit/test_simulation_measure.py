"""Observations of a simulated job: windows, delays, gauges, noise and gaps."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.loop.plausible import doubts, plausible
from dsp_gym.loop.snapshot import JOB_FLOATS, Status
from dsp_gym.loop.topology import Topology
from dsp_gym.simulation.options import Measurement
from tests.simulating import ask, constant, exact, keyed, line
from tests.strategies import spec_of


def seen(jobs: SimulatedJobs, name: str, vertex: str = "map") -> float | None:
    return jobs.snapshot().job(0).vertex(vertex, name)


def test_the_window_fills_after_stabilisation_and_delay():
    measurement = {"window_s": 120, "stabilization_s": 60, "delay_s": 5}
    jobs = constant(line(), 10.0, exact(measurement=measurement))
    fills = []
    for _ in range(10):
        jobs.advance(25)
        fills.append(float(jobs.snapshot().window_fill[0]))
    # 65 s go by before anything counts
    assert fills == pytest.approx(
        [0, 0, 10 / 120, 35 / 120, 60 / 120, 85 / 120, 110 / 120, 1, 1, 1]
    )


def test_the_window_empties_at_a_restart_and_gauges_of_the_configuration_do_not():
    jobs = constant(line(), 10.0, exact())
    jobs.advance(300)
    ask(jobs, map=2)
    jobs.advance(60)
    snapshot = jobs.snapshot()
    assert snapshot.window_fill[0] == 0
    assert seen(jobs, "busy_ms_per_s") is None
    assert seen(jobs, "parallelism") == 2
    assert snapshot.running_since_s[0] == 300 + jobs.state.outage_s[0]
    assert seen(jobs, "records_in_total") < 700


def test_while_the_job_is_down_only_rest_knows_anything():
    jobs = constant(keyed(), 900.0, exact())
    jobs.advance(300)
    assert seen(jobs, "cache_misses_total") > 0
    ask(jobs, map=2)
    while jobs.snapshot().status[0] != Status.RESTARTING:
        jobs.advance(5)
    snapshot = jobs.snapshot()
    known = {"t_s", "running_since_s", "window_s", "window_fill", "outage_s", "tm_count"}
    unknown = [i for i, name in enumerate(JOB_FLOATS) if name not in known]
    assert np.isnan(snapshot.arrays.vertex).all()
    assert np.isnan(snapshot.arrays.job[unknown]).all()
    assert snapshot.window_fill[0] == 0
    assert (snapshot.tm_count[0], seen(jobs, "parallelism")) == (1, 1)
    assert plausible(snapshot) is snapshot


def test_counters_of_new_tasks_begin_at_zero_once_a_sample_of_them_has_arrived():
    jobs = constant(line(), 100.0, exact(measurement={"delay_s": 10}))
    jobs.advance(300)
    ask(jobs, map=2)
    jobs.advance(20)
    counted = []
    for _ in range(5):
        snapshot = jobs.snapshot()
        assert snapshot.status[0] == Status.RUNNING
        assert doubts(plausible(snapshot)) == ()
        counted.append(seen(jobs, "records_in_total", "sink"))
        jobs.advance(5)
    assert counted[:3] == [None, None, None]
    # The sources catch up on 20 s first; the map carries 1,000/s on each task.
    assert 0 < counted[3] < counted[4] < 100 * 40


def test_the_window_holds_only_the_new_load():
    jobs = SimulatedJobs(Topology.of([line()]), exact())
    rates = np.concatenate([np.full(600, 100.0), np.full(600, 300.0)])[None, :]
    jobs.reset(np.array([1]), rates)
    jobs.advance(600 + 60 + 5)
    assert seen(jobs, "records_in_per_s") == pytest.approx((100 + 300) / 2)
    jobs.advance(60)
    assert seen(jobs, "records_in_per_s") == pytest.approx(300)


@pytest.mark.parametrize("delay_s", [0, 5, 60])
def test_what_is_seen_is_as_old_as_the_delay(delay_s):
    measurement = {"window_s": 5, "stabilization_s": 0, "delay_s": delay_s, "gauge_s": 5}
    jobs = SimulatedJobs(Topology.of([line()]), exact(measurement=measurement))
    rates = np.repeat(np.arange(100.0), 5)[None, :]  # one more record/s every 5 s
    jobs.reset(np.array([1]), rates)
    jobs.advance(200)
    assert seen(jobs, "records_in_per_s") == pytest.approx(39 - delay_s / 5)
    assert seen(jobs, "busy_ms_per_s") == pytest.approx(39 - delay_s / 5)


@pytest.mark.parametrize("delay_s", [0, 30])
def test_counters_and_gauges_of_now_are_as_old_as_the_delay(delay_s):
    measurement = {"delay_s": delay_s, "window_s": 5, "stabilization_s": 0}
    late = constant(keyed(), 20_000.0, exact(measurement=measurement))
    prompt = constant(keyed(), 20_000.0, exact(measurement=measurement | {"delay_s": 0}))
    late.advance(200)
    prompt.advance(200 - delay_s)
    then, now = prompt.snapshot().arrays.vertex, late.snapshot().arrays.vertex
    np.testing.assert_array_equal(now, then)
    for name in ("records_out_total", "cache_misses_total", "state_mib", "busy_now_ms_per_s"):
        assert seen(late, name) > 0
    assert seen(late, "pending_records", "source") > 0


@pytest.mark.parametrize("delay_s", [0, 30])
def test_counters_say_which_second_they_are_of(delay_s):
    jobs = constant(line(), 100.0, exact(measurement={"delay_s": delay_s}))
    jobs.advance(delay_s)
    assert np.isnan(jobs.snapshot().counted_s[0])
    for second in (203, 205, 309):
        jobs.advance(second - int(jobs.state.tick[0]))
        counted = float(jobs.snapshot().counted_s[0])
        assert counted == second - second % 5 - delay_s
        assert seen(jobs, "records_in_total") == pytest.approx(100 * counted, abs=10)


def test_delays_differ_between_runs_and_are_those_of_their_seeds():
    options = exact(measurement={"delay_s": 5, "delay_up_to_s": 60})
    jobs = SimulatedJobs(Topology.of([line()], [0] * 200), options)
    seeds = np.arange(200) + 7
    rates = np.full((200, 600), 100.0)
    jobs.reset(seeds, rates)
    delays = jobs.state.delay_s.copy()
    assert set(delays % 5) == {0}
    assert (delays.min(), delays.max()) == (5, 60)
    # Log-uniform: as many below the geometric mean as above it.
    assert 0.4 < float((delays < np.sqrt(5 * 60)).mean()) < 0.6
    jobs.advance(300)
    np.testing.assert_array_equal(jobs.snapshot().counted_s, 300 - delays)
    some = np.arange(200) % 3 == 0
    jobs.reset(seeds[::-1], rates, mask=some)
    np.testing.assert_array_equal(jobs.state.delay_s, np.where(some, delays[::-1], delays))
    with pytest.raises(ValueError, match="0 < delay_s <= delay_up_to_s, found 30 and 10"):
        Measurement(delay_s=30, delay_up_to_s=10)
    assert "delay_up_to_s" not in Measurement().model_dump()


def test_a_gap_in_the_metrics_shows_nothing_as_new():
    jobs = constant(line(), 100.0, exact())
    jobs.advance(300)
    jobs.state.gap_until[0] = 400
    jobs.advance(15)
    assert seen(jobs, "records_in_total") == pytest.approx(100 * 300, abs=150)  # 15 s ago
    jobs.advance(15)
    assert seen(jobs, "records_in_total") is None
    assert jobs.snapshot().window_fill[0] == pytest.approx(95 / 120)
    jobs.advance(100)
    # Counters went on meanwhile, and the rate is their rise over all of the window.
    assert seen(jobs, "records_in_total") == pytest.approx(100 * 425, abs=150)
    assert seen(jobs, "records_in_per_s") == pytest.approx(100)


def test_time_gauges_are_means_of_their_span_and_rates_are_not():
    measurement = {"window_s": 5, "stabilization_s": 0, "delay_s": 0, "gauge_s": 60}
    jobs = SimulatedJobs(Topology.of([line()]), exact(measurement=measurement))
    rates = np.concatenate([np.full(300, 100.0), np.full(300, 700.0)])[None, :]
    jobs.reset(np.array([1]), rates)
    jobs.advance(300 + 15)
    assert seen(jobs, "records_in_per_s") == pytest.approx(700)
    # 15 of the last 60 s at 700 ms/s
    assert seen(jobs, "busy_now_ms_per_s") == pytest.approx((15 * 700 + 45 * 100) / 60)
    jobs.advance(45)
    assert seen(jobs, "busy_now_ms_per_s") == pytest.approx(700)


@pytest.mark.parametrize("lost", [0.2, 0.5, 0.9])
def test_lost_samples_leave_a_hole_only_at_the_ends_and_the_mean_unharmed(lost):
    """As counters go on, only an end without a sample for more than 20 s is uncovered."""
    jobs = constant(line(), 300.0, exact(measurement={"missing_probability": lost}))
    filled = []
    for _ in range(200):
        jobs.advance(120)
        fill = float(jobs.snapshot().window_fill[0])
        filled.append(fill == 1.0)
        if fill > 0:
            assert seen(jobs, "records_in_per_s") == pytest.approx(300)
    assert np.mean(filled[2:]) == pytest.approx((1 - lost**5) ** 2, abs=0.1)


def test_noise_has_the_relative_size_asked_for_and_no_bias():
    measurement = {"window_s": 5, "stabilization_s": 0, "delay_s": 0, "gauge_s": 5}
    quiet = exact(measurement=measurement)
    noisy = quiet.model_copy(
        update={"measurement": quiet.measurement.model_copy(update={"noise_cv": 0.05})}
    )
    jobs = constant(line(), 400.0, noisy)
    busy = []
    for _ in range(500):
        jobs.advance(5)
        busy.append(seen(jobs, "busy_ms_per_s"))
    assert np.mean(busy) == pytest.approx(400, rel=0.01)
    assert np.std(busy) / 400 == pytest.approx(0.05, rel=0.15)


def test_a_saturated_task_reads_1000_in_spite_of_noise():
    jobs = constant(line(), 5000.0, exact().model_copy(update={"service_cv": 0.0}))
    jobs.advance(600)
    assert seen(jobs, "busy_ms_per_s") == 1000


def test_counters_are_of_the_run_and_hit_rate_is_of_the_window():
    spec = keyed({"reads": 1, "writes": 0, "keys": 1e4, "value_bytes": 1000})  # 10 MiB: fits
    jobs = constant(spec, 2000.0, exact())
    jobs.advance(1200)
    hits, misses = seen(jobs, "cache_hits_total"), seen(jobs, "cache_misses_total")
    assert hits + misses == pytest.approx(seen(jobs, "records_in_total"))
    assert misses > 0  # it was cold
    assert seen(jobs, "cache_hit_rate") == pytest.approx(1)
    assert seen(jobs, "state_read_latency_ms") == pytest.approx(0.01)
    assert seen(jobs, "state_write_latency_ms") is None
    assert seen(jobs, "state_mib") == pytest.approx(1e7 / 2**20)


def test_vertices_without_state_report_none_of_it():
    jobs = constant(line(), 10.0, exact())
    jobs.advance(300)
    for name in ("cache_hits_total", "cache_hit_rate", "state_read_latency_ms", "state_mib"):
        assert seen(jobs, name) is None


def test_the_fullest_subtask_of_a_source_has_the_most_partitions():
    spec = line()
    vertices = tuple(
        v.model_copy(update={"partitions": 10}) if v.kind == "source" else v for v in spec.vertices
    )
    jobs = constant(spec.model_copy(update={"vertices": vertices}), 5000.0, exact())
    jobs.advance(100)
    assert seen(jobs, "pending_partitions_max_subtask", "source") == 3  # 10 on 4 subtasks
    pending = seen(jobs, "pending_records", "source")
    assert seen(jobs, "pending_records_max_subtask", "source") == pytest.approx(pending * 0.3)


def test_padding_is_unknown_everywhere():
    narrow = spec_of(
        "narrow",
        {"name": "source", "kind": "source"},
        {"name": "sink", "kind": "sink", "inputs": [{"from": "source"}]},
    )
    jobs = SimulatedJobs(Topology.of([narrow, keyed()]), exact())
    jobs.reset(np.array([1, 2]), np.full((2, 1), 10.0))
    jobs.advance(300)
    snapshot = jobs.snapshot()
    assert np.isnan(snapshot.busy_ms_per_s[0, 2])
    assert np.isnan(snapshot.records_in_total[0, 2])
    assert snapshot.parallelism[0, 2] == 0


def test_windows_of_counted_times_know_at_once_what_flink_s_gauges_take_a_minute_for():
    """Flink's TimerGauge averages over 60 s; its cumulated times do not."""
    rates = np.concatenate([np.full(120, 200.0), np.full(120, 800.0)])
    measurement = {"window_s": 10, "stabilization_s": 0, "delay_s": 0}
    gauged, counted = (
        SimulatedJobs(
            Topology.of([line()]), exact(measurement=measurement | {"counts_times": counts})
        )
        for counts in (False, True)
    )
    seen = {}
    for name, jobs in (("gauged", gauged), ("counted", counted)):
        jobs.reset(np.zeros(1, np.int64), rates[None])
        jobs.advance(120)
        assert jobs.snapshot().busy_ms_per_s[0, 1] == pytest.approx(200.0, rel=0.01)
        jobs.advance(30)
        shot = jobs.snapshot()
        seen[name] = shot.busy_ms_per_s[0, 1], shot.busy_now_ms_per_s[0, 1]
    assert seen["counted"] == pytest.approx((800.0, 500.0), rel=0.01)
    assert seen["gauged"] == pytest.approx((475.0, 500.0), rel=0.01)


def test_flinks_gauges_take_a_task_for_busy_until_they_are_first_updated():
    """TaskIOMetricGroup: busy is what is not idle, and idle time is counted every 5 s."""
    measurement = {"window_s": 10, "stabilization_s": 0, "delay_s": 0, "counts_times": True}
    jobs = SimulatedJobs(Topology.of([line()]), exact(measurement=measurement))
    jobs.reset(np.zeros(1, np.int64), np.full((1, 1), 200.0))
    seen = []
    for _ in range(2):
        jobs.advance(5)
        shot = jobs.snapshot()
        seen.append((shot.busy_now_ms_per_s[0, 1], shot.busy_ms_per_s[0, 1]))
    assert seen[0] == pytest.approx((1000.0, 200.0), rel=0.01)
    assert seen[1] == pytest.approx((200.0, 200.0), rel=0.01)
