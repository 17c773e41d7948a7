"""A policy's own window: means from samples of counters and gauges, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from baselines.own_window import OwnWindow
from dsp_gym.loop.topology import Topology
from tests.strategies import blank_snapshot, spec_of

SPEC = spec_of(
    "pair",
    {"name": "source", "kind": "source"},
    {"name": "sink", "kind": "sink", "inputs": [{"from": "source"}]},
)
JOBS = Topology.of([SPEC])


def window(seconds=60.0):
    made = OwnWindow(seconds)
    made.reset(JOBS)
    return made


def sample(
    made, t_s, taken=np.nan, *, sent=np.nan, pending=np.nan, busy=np.nan, cpu=np.nan, **more
):
    """The means after a sample of the source; the sink reports nothing."""
    return made.seen(
        blank_snapshot(
            JOBS,
            t_s,
            records_in_total=[[taken, np.nan]],
            records_out_total=[[sent, np.nan]],
            pending_records=[[pending, np.nan]],
            busy_now_ms_per_s=[[busy, np.nan]],
            backpressured_now_ms_per_s=[[100.0 if busy == busy else np.nan, np.nan]],
            tm_cpu_load=[cpu],
            **more,
        )
    )


def test_rates_are_rises_of_counters_over_the_window_alone():
    made = window()
    for step in range(31):  # 150 s: 100 records/s at first, 300/s in the last minute
        t_s = 600.0 + 5 * step
        taken = 100.0 * min(5 * step, 90) + 300.0 * max(0, 5 * step - 90)
        seen = sample(made, t_s, taken, sent=2 * taken, pending=50.0 * step)
    assert seen.records_in_per_s[0, 0] == pytest.approx(300.0)
    assert seen.records_out_per_s[0, 0] == pytest.approx(600.0)
    assert seen.pending_growth_per_s[0, 0] == pytest.approx(10.0)
    assert (seen.window_s[0], seen.window_fill[0]) == (60.0, 1.0)
    assert np.isnan(seen.records_in_per_s[0, 1])


def test_shares_of_time_are_means_of_gauges_and_add_up():
    made = window()
    for t_s, busy in ((600.0, 200.0), (605.0, 400.0), (610.0, 900.0)):
        seen = sample(made, t_s, busy=busy)
    assert seen.busy_ms_per_s[0, 0] == pytest.approx(500.0)
    assert seen.backpressured_ms_per_s[0, 0] == 100.0
    assert seen.idle_ms_per_s[0, 0] == pytest.approx(400.0)


def test_a_restart_empties_all_but_the_cpu_load_of_taskmanagers():
    made = window()
    sample(made, 600.0, 1000.0, cpu=0.2)
    sample(made, 620.0, 3000.0, cpu=0.4)
    seen = sample(made, 640.0, 50.0, cpu=0.9, running_since_s=[635.0], records_in_per_s=7.0)
    assert seen.records_in_per_s[0, 0] == 7.0  # one sample says nothing: the collector's mean
    assert seen.tm_cpu_load[0] == pytest.approx(0.5)
    seen = sample(made, 650.0, 550.0, cpu=0.9, running_since_s=[635.0])
    assert seen.records_in_per_s[0, 0] == pytest.approx(50.0)
    assert seen.window_fill[0] == pytest.approx(10 / 60)


def test_snapshots_closer_than_a_scrape_add_no_samples():
    made = window()
    for step in range(61):
        seen = sample(made, 600.0 + step, 10.0 * step)
    assert made.state()["written"] == [13]
    assert seen.records_in_per_s[0, 0] == pytest.approx(10.0)


def test_a_job_that_is_down_keeps_what_the_collector_says():
    made = window()
    sample(made, 600.0, 1000.0)
    down = sample(made, 605.0, status=[2], records_in_per_s=3.0)
    assert down.records_in_per_s[0, 0] == 3.0
    assert made.state()["written"] == [1]


def test_the_snapshot_given_is_left_alone():
    made, given = window(), blank_snapshot(JOBS, 600.0, records_in_total=1.0)
    made.seen(given)
    assert given.window_s[0] == 120.0
