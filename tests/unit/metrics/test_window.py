"""Snapshots from raw samples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsp_gym.loop.snapshot import PER_JOB, PER_VERTEX, Status
from dsp_gym.loop.topology import Topology
from dsp_gym.metrics.samples import SAMPLE_S, Samples
from dsp_gym.metrics.window import Observed, WindowConfig, increase, snapshot_of
from tests.simulating import line

JOB = Topology.of([line()])
P = {"source": 1, "map": 2, "sink": 1}
WINDOW = WindowConfig(window_s=60, stabilization_s=30)
NOW = 1000.0
RATES = {"source": 100.0, "map": 50.0, "sink": 100.0}
MEANS = PER_VERTEX[PER_VERTEX.index("records_in_per_s") :]


def observed(status=Status.RUNNING, since=0.0, **rest):
    return Observed(NOW, status, since, P, {"map": 1}, **rest)


def rows(since=0.0, until=NOW, step=SAMPLE_S, busy_ms_per_s=250.0, jitter=None):
    """Samples of a job in a steady state, counters from 0 at `since`."""
    jitter = jitter or (lambda k: 0.0)
    for k, t in enumerate(np.arange(since + step, until + 1e-9, step)):
        at = t + jitter(k)
        for vertex, tasks in P.items():
            for subtask in range(tasks):
                if vertex != "source":
                    yield at, vertex, subtask, "records_in_total", RATES[vertex] * (at - since)
                if vertex != "sink":
                    yield at, vertex, subtask, "records_out_total", RATES[vertex] * (at - since)
                for name, share in (("busy", busy_ms_per_s), ("idle", 1000 - busy_ms_per_s)):
                    yield at, vertex, subtask, f"{name}_ms_total", share * (at - since)
                    yield at, vertex, subtask, f"{name}_ms_per_s", share


def snapshot(samples, known=None, window=WINDOW):
    made = snapshot_of(JOB, [known or observed()], [Samples.of(samples)], window)
    return made.job(0)


def test_a_steady_job_is_seen_as_it_is():
    seen = snapshot([*rows(), (NOW, "", 0, "tm_cpu_load", 0.2), (NOW, "", 1, "tm_cpu_load", 0.4)])
    assert seen.get("window_fill") == 1
    assert seen.get("tm_cpu_load") == pytest.approx(0.3)
    for vertex, tasks in P.items():
        assert seen.vertex(vertex, "records_in_per_s") == pytest.approx(tasks * RATES[vertex])
        assert seen.vertex(vertex, "busy_ms_per_s") == pytest.approx(250)
        assert seen.vertex(vertex, "busy_max_ms_per_s") == pytest.approx(250)
        assert seen.vertex(vertex, "busy_accumulated_ms_per_s") == pytest.approx(250 * tasks)
        assert seen.vertex(vertex, "idle_ms_per_s") == pytest.approx(750)
        assert seen.vertex(vertex, "busy_now_ms_per_s") == pytest.approx(250)
        assert seen.vertex(vertex, "cache_hit_rate") is None
        assert seen.vertex(vertex, "parallelism") == tasks
    assert seen.vertex("map", "records_in_total") == pytest.approx(2 * 50 * NOW)
    assert seen.vertex("map", "memory_level") == 1
    assert seen.vertex("sink", "records_out_per_s") is None


PATHS = st.lists(
    st.tuples(st.lists(st.floats(0, 5000), min_size=3, max_size=3), st.floats(0, 1e6)),
    min_size=12, max_size=12,
)  # fmt: skip


@settings(max_examples=40)
@given(path=PATHS, lost=st.sets(st.tuples(st.integers(0, 11), st.integers(0, 1)), max_size=8))
def test_means_are_those_of_a_plain_reference(path, lost):
    """Two subtasks of the map, each with its own path of counters, some samples lost."""
    begin = NOW - 55.0
    samples = [row for row in rows(until=NOW) if row[1] != "map"]
    kept = {0: [], 1: []}
    for subtask in (0, 1):
        count = busy = 0.0
        for k, (steps, pending) in enumerate(path):
            count += steps[subtask]
            busy += steps[2]
            if (k, subtask) not in lost:
                kept[subtask].append((begin + k * 5.0, count, busy))
                samples += [
                    (begin + k * 5.0, "map", subtask, "records_in_total", count),
                    (begin + k * 5.0, "map", subtask, "busy_ms_total", busy),
                    (begin + k * 5.0, "source", subtask, "pending_records", pending),
                ]
    seen = snapshot(samples)
    if min(len(series) for series in kept.values()) < 2:
        return  # too few for a rate: the tests on silence below
    ends = [(series[0], series[-1]) for series in kept.values()]
    rate = sum((b[1] - a[1]) / (b[0] - a[0]) for a, b in ends)
    busy = [min(1000.0, (b[2] - a[2]) / (b[0] - a[0])) for a, b in ends]
    assert seen.vertex("map", "records_in_per_s") == pytest.approx(rate)
    assert seen.vertex("map", "busy_ms_per_s") == pytest.approx(np.mean(busy))
    assert seen.vertex("map", "busy_max_ms_per_s") == pytest.approx(max(busy))
    grown = 0.0
    for subtask in (0, 1):
        known = [(k, path[k][1]) for k in range(12) if (k, subtask) not in lost]
        grown += (known[-1][1] - known[0][1]) / (5.0 * (known[-1][0] - known[0][0]))
    assert seen.vertex("source", "pending_growth_per_s") == pytest.approx(grown, abs=1e-6)


@given(
    steps=st.lists(st.floats(0, 100), min_size=1, max_size=20),
    restarts=st.sets(st.integers(1, 19), max_size=3),
)
def test_a_counter_that_restarts_at_zero_has_risen_by_all_its_steps(steps, restarts):
    values, total = [0.0], 0.0
    for k, step in enumerate(steps):
        began_anew = k in restarts and step < values[-1]
        values.append(step if began_anew else values[-1] + step)
        total += step
    rose, seconds = increase(5.0 * np.arange(len(values)), np.array(values)[:, None])
    assert rose[0] == pytest.approx(total)
    assert seconds[0] == 5.0 * len(steps)


def test_a_counter_seen_once_has_no_increase():
    rose, seconds = increase(np.array([5.0, 10.0]), np.array([[1.0, np.nan], [np.nan, np.nan]]))
    assert np.isnan([*rose, *seconds]).all()


def test_time_totals_that_fall_for_a_moment_did_not_restart():
    """Flink adds idle time late; what is busy until then is taken back."""
    bent = [
        (t, v, s, m, value + (300.0 * (t // 5 % 2) if m == "busy_ms_total" else 0.0))
        for t, v, s, m, value in rows(busy_ms_per_s=4.0)
    ]
    assert snapshot(bent).vertex("sink", "busy_ms_per_s") == pytest.approx(4.0, abs=300 / 60 + 1e-9)


def test_samples_from_before_the_restart_and_of_the_settling_time_are_left_out():
    since = NOW - 50.0
    old = [row for row in rows(until=since) if row[3] != "pending_records"]
    seen = snapshot([*old, *rows(since=since)], observed(since=since))
    assert seen.get("window_fill") == pytest.approx(20 / 60)
    assert seen.vertex("map", "records_in_per_s") == pytest.approx(100)
    assert seen.vertex("map", "records_in_total") == pytest.approx(100 * 50)
    young = snapshot([*old, *rows(since=NOW - 20)], observed(since=NOW - 20))
    assert young.get("window_fill") == 0
    assert young.vertex("map", "records_in_per_s") is None
    assert young.vertex("map", "records_in_total") == pytest.approx(100 * 20)


@pytest.mark.parametrize("status", [Status.RESTARTING, Status.FAILED])
def test_of_a_job_that_does_not_run_only_its_configuration_is_known(status):
    made = snapshot_of(JOB, [observed(status, outage_s=7.0)], [Samples.of(rows())], WINDOW)
    assert made.window_fill[0] == 0
    assert made.outage_s[0] == 7
    assert made.parallelism.tolist() == [[1, 2, 1]]
    assert made.memory_level.tolist() == [[-1, 1, -1]]
    for name in PER_VERTEX[2:]:
        assert np.isnan(getattr(made, name)).all(), name


@pytest.mark.parametrize("silent", [("map", 1), ("map", 0), ("sink", 0)])
def test_a_vertex_with_a_silent_subtask_is_unknown_and_the_others_are_as_before(silent):
    heard = [row for row in rows() if (row[1], row[2]) != silent]
    whole, made = (
        snapshot_of(JOB, [observed()], [Samples.of(samples)], WINDOW) for samples in (rows(), heard)
    )
    assert made.window_fill[0] == 1
    for v, vertex in enumerate(P):
        for name in MEANS:
            value, before = getattr(made, name)[0, v], getattr(whole, name)[0, v]
            if vertex != silent[0]:
                np.testing.assert_array_equal(value, before, name)
            elif not name.startswith("records_"):
                assert np.isnan(value), name


def test_a_rate_that_is_not_reported_is_that_of_the_neighbours():
    heard = [row for row in rows() if row[1] != "map"]
    made = snapshot(heard)
    assert made.vertex("map", "records_in_per_s") == pytest.approx(100)
    assert made.vertex("map", "records_out_per_s") == pytest.approx(100)
    assert made.vertex("map", "busy_ms_per_s") is None
    assert made.vertex("map", "records_in_total") is None


def test_a_vertex_that_lacks_one_metric_keeps_the_others():
    heard = [row for row in rows() if row[1] != "map" or not row[3].startswith("busy")]
    made = snapshot(heard)
    assert made.get("window_fill") == 1
    assert made.vertex("map", "busy_ms_per_s") is None
    assert made.vertex("map", "records_in_per_s") == pytest.approx(100)


@pytest.mark.parametrize("heard", [(), ("map", "sink")])
def test_a_window_in_which_no_source_reports_is_empty(heard):
    made = snapshot_of(
        JOB, [observed()], [Samples.of([row for row in rows() if row[1] in heard])], WINDOW
    )
    assert made.window_fill[0] == 0
    for name in MEANS:
        assert np.isnan(getattr(made, name)).all(), name


def test_a_vertex_that_has_just_come_back_does_not_report_yet():
    heard = [row for row in rows() if row[1] != "sink" or row[0] > NOW - 20.0]
    made = snapshot(heard)
    assert made.get("window_fill") == 1
    assert made.vertex("sink", "busy_ms_per_s") is None
    assert made.vertex("map", "busy_ms_per_s") == pytest.approx(250)


def test_one_sample_is_no_window():
    """A gauge would be known, a rate would not."""
    seen = snapshot(rows(since=NOW - 8.0), observed(since=NOW - 33.0))
    assert seen.get("window_fill") == 0
    assert seen.vertex("map", "busy_ms_per_s") is None


def test_without_time_totals_the_gauges_are_averaged():
    gauges = [row for row in rows() if not row[3].endswith("ms_total")]
    assert snapshot(gauges).vertex("map", "busy_ms_per_s") == pytest.approx(250)


def test_one_series_for_a_whole_vertex_stands_for_all_its_subtasks():
    whole = [(t, v, -1, m, value) for t, v, s, m, value in rows() if s == 0]
    assert snapshot(whole).get("window_fill") == 1


@pytest.mark.parametrize("missed", [1, 3, 8])
def test_rates_go_on_through_samples_lost_within_the_window(missed):
    lost = {NOW - 45.0 + 5.0 * k for k in range(missed)}
    seen = snapshot([row for row in rows() if row[0] not in lost])
    assert seen.get("window_fill") == 1
    assert seen.vertex("map", "records_in_per_s") == pytest.approx(100)


@pytest.mark.parametrize("missed", range(12))
def test_samples_lost_at_an_end_are_a_hole_where_gauges_would_be_old(missed):
    """Twelve samples fill the window; a known one covers the 5 s before it."""
    lacks = missed - 1 if missed > 4 else 0
    late = snapshot(rows(until=NOW - 5.0 * missed))
    assert late.get("window_fill") == pytest.approx((12 - lacks) / 12)
    at_start = [row for row in rows() if not NOW - 60.0 <= row[0] < NOW - 60.0 + 5.0 * missed]
    assert snapshot(at_start).get("window_fill") == pytest.approx((12 - lacks) / 12)


@pytest.mark.slow
@settings(max_examples=30)
@given(shifts=st.lists(st.floats(-1.0, 1.0), min_size=200, max_size=200))
def test_samples_a_little_early_or_late_fill_the_window(shifts):
    early = [r for r in rows(jitter=lambda k: shifts[k]) if r[0] <= NOW]
    assert snapshot(early).get("window_fill") == 1


def test_values_that_are_not_fresh_are_not_shown_as_of_now():
    old = [*rows(until=NOW - 25.0), (NOW - 25.0, "", 0, "tm_cpu_load", 0.5)]
    seen = snapshot(old)
    assert seen.vertex("map", "records_in_total") is None
    assert seen.vertex("map", "busy_now_ms_per_s") is None
    assert seen.get("tm_cpu_load") is None
    assert seen.get("window_fill") == pytest.approx(40 / 60)


@pytest.mark.parametrize("step", [15, 30, 60])
@pytest.mark.parametrize("age", [0.0, 0.3, 0.6, 0.95])
def test_a_job_that_is_scraped_rarely_is_seen_whenever_it_is_looked_at(step, age):
    window = WindowConfig(window_s=180, stabilization_s=30)
    scrapes = np.arange(0.0, NOW + step + 1.0, step).tolist()
    waiting = [(t, "source", 0, "pending_records", 40.0) for t in scrapes]
    made = [(t - age * step, *rest) for t, *rest in [*rows(until=NOW + step, step=step), *waiting]]
    made = [row for row in made if row[0] <= NOW]
    seen = snapshot(made, window=window)
    assert seen.get("window_fill") == 1
    assert seen.vertex("source", "pending_records") == 40.0
    assert seen.vertex("map", "records_in_per_s") == pytest.approx(2 * RATES["map"])


def test_subtasks_sampled_at_different_instants_are_summed():
    """Two TaskManagers are not scraped at one time."""
    shifted = [
        (t - 2.0 * (s == 1), v, s, m, value - (2.0 * 50 if m.startswith("records") and s else 0))
        for t, v, s, m, value in rows()
    ]
    seen = snapshot(shifted)
    assert seen.get("window_fill") == 1
    assert seen.vertex("map", "records_in_per_s") == pytest.approx(100)
    assert seen.vertex("map", "records_in_total") == pytest.approx(50 * NOW + 50 * (NOW - 2))


def test_latency_is_the_mean_of_the_slowest_sink_task():
    slow = [
        (NOW - 5.0 * k - 0.4 * s, "sink", s, "latency_p95_ms", 100.0 * (1 + s) + 10 * k)
        for k in range(12)
        for s in (0, 1)
    ]
    assert snapshot([*rows(), *slow]).get("latency_p95_s") == pytest.approx(0.255)


def test_hit_rate_is_that_of_the_window_and_state_is_that_of_now():
    state = [
        (t, "map", s, name, value)
        for t in np.arange(5.0, NOW + 1, 5.0)
        for s in (0, 1)
        for name, value in (
            ("cache_hits_total", 3.0 * t), ("cache_misses_total", 1.0 * t), ("state_bytes", 2.0**20)
        )
    ]  # fmt: skip
    seen = snapshot([*rows(), *state])
    assert seen.vertex("map", "cache_hit_rate") == pytest.approx(0.75)
    assert seen.vertex("map", "state_mib") == 2
    assert seen.vertex("map", "cache_hits_total") == pytest.approx(2 * 3 * NOW)


def test_counters_have_the_time_of_their_scrape():
    """The sources' newest samples count, each subtask's own; other vertices are scraped apart."""
    late = {"source": 0.8, "map": 0.1, "sink": 0.4}
    samples = [(t - late[vertex], vertex, *rest) for t, vertex, *rest in rows()]
    seen = snapshot(samples, observed(resumed_from_s=-12.0))
    assert seen.get("counted_s") == pytest.approx(NOW - 0.8)
    assert seen.get("resumed_from_s") == -12.0
    two = [(NOW - 3.0, "source", 1, "records_out_total", 7.0)]
    assert snapshot([*samples, *two]).get("counted_s") == pytest.approx(NOW - 1.9)
    assert snapshot(rows(until=NOW - 60)).get("counted_s") is None


def test_jobs_of_a_batch_are_seen_as_alone():
    two = Topology.of([line()], [0, 0])
    parts = [Samples.of(rows()), Samples.of(rows(busy_ms_per_s=900))]
    known = [observed(), observed(since=NOW - 60)]
    both = snapshot_of(two, known, parts, WINDOW)
    for j in (0, 1):
        alone = snapshot_of(JOB, [known[j]], [parts[j]], WINDOW)
        for name in (*PER_JOB, *PER_VERTEX):
            np.testing.assert_array_equal(getattr(both, name)[j], getattr(alone, name)[0], name)


def test_a_vertex_that_has_ended_carries_nothing_and_costs_the_others_nothing():
    ended = [row for row in rows() if row[1] != "map"]
    known = observed(running={"map": 0})
    seen = snapshot(ended, known)
    assert seen.get("window_fill") == 1
    assert seen.vertex("map", "records_in_per_s") == 0
    assert seen.vertex("map", "records_out_per_s") == 0
    assert seen.vertex("map", "busy_ms_per_s") is None
    assert seen.vertex("source", "records_out_per_s") == pytest.approx(
        P["source"] * RATES["source"]
    )


def test_a_vertex_of_which_a_subtask_has_ended_is_the_others():
    first = [row for row in rows() if row[1:3] != ("map", 1)]
    seen = snapshot(first, observed(running={"map": P["map"] - 1}))
    assert seen.vertex("map", "records_in_per_s") == pytest.approx((P["map"] - 1) * RATES["map"])
    assert seen.vertex("map", "busy_ms_per_s") == pytest.approx(250)
