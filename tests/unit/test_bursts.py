"""Windows that wait for room: throughput against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.job.bursts import blocked_share, fired_share, period_s
from dsp_gym.job.capacity import mst
from dsp_gym.loop.topology import Topology
from dsp_gym.simulation.state import X
from tests.simulating import constant, exact
from tests.strategies import spec_of


def joined(sink_us: float = 1000.0, buffer: float = 2000.0, **window: object):
    """A window of 5,000 records/s with 0.2 results each; the sink takes 1e6 / sink_us of them."""
    return spec_of(
        "joined",
        {"name": "source", "kind": "source", "cpu_us_per_record": 1.0},
        {
            "name": "window",
            "inputs": [{"from": "source", "ship": "REBALANCE"}],
            "cpu_us_per_record": 200.0,
            "selectivity": 0.2,
            "state": {
                "reads": 0,
                "keys": 10,
                "value_bytes": 8,
                "window": {"kind": "tumbling", "length_s": 10} | window,
            },
        },
        {
            "name": "sink",
            "kind": "sink",
            "inputs": [{"from": "window", "ship": "REBALANCE"}],
            "cpu_us_per_record": sink_us,
            "buffer_records": buffer,
            "scalable": False,
        },
    )


def test_a_window_waits_for_the_results_that_find_no_room():
    assert blocked_share(100.0, 100.0, 50.0) == 0.0
    assert blocked_share(125.0, 100.0, 50.0) == 0.5
    assert blocked_share(200.0, 100.0, 50.0) == 1.0
    assert blocked_share(200.0, 100.0, 0.0) == 1.0


def test_a_period_fires_when_what_belongs_to_it_has_come_in():
    assert fired_share(100.0, 0.0, 1.0) == 1.0
    assert fired_share(100.0, 20.0, 1.0) == -1.0  # twenty records are still on their way
    assert fired_share(100.0, -20.0, 1.0) == pytest.approx(0.8)  # twenty belong to the next
    assert fired_share(100.0, 100.0, 2.0) == 1.0  # the older of two periods
    assert fired_share(90.0, 100.0, 2.0) == -1.0
    assert fired_share(0.0, -20.0, 1.0) == 1.0  # all of nothing; twenty belong to the next


def test_work_and_waiting_of_a_window_add_up_over_its_period():
    # min(C, D / s, (1 + b / (D T)) / (1 / C + s / D)), C = D / s = 5,000, b = 2,000, D T = 10,000
    found = mst(joined())
    assert found.rate_per_s == pytest.approx(1.2 * 2500, rel=2e-3)
    assert found.bottleneck == "window"
    window = found.vertices[1]
    assert window.blocked == pytest.approx(0.4, abs=4e-3)
    assert window.utilization + window.blocked == pytest.approx(1.0, abs=4e-3)


def test_buffers_that_hold_a_firing_leave_the_weakest_vertex_as_the_limit():
    found = mst(joined(buffer=10_000.0))
    assert found.rate_per_s == pytest.approx(5000.0, rel=1e-9)
    assert [vertex.blocked for vertex in found.vertices] == [0.0, 0.0, 0.0]


def test_the_weakest_vertex_limits_where_a_window_has_time_to_wait():
    # With four tasks work takes a quarter of the time: 1 / (1 / 20,000 + 1 / 5,000) * 1.2 = 4,800.
    assert mst(joined(), {"window": 4}).rate_per_s == pytest.approx(4800.0, rel=1e-3)
    assert mst(joined(), {"window": 8}).rate_per_s == pytest.approx(5000.0, rel=1e-3)


def test_a_sliding_window_waits_in_each_of_its_slides():
    # As above with T = 2 s and D T = 2,000: the buffer holds a firing.
    sliding = joined(kind="sliding", slide_s=2)
    assert mst(sliding).rate_per_s == pytest.approx(5000.0, rel=1e-3)
    # A fifth of the buffer: (1 + 400 / 2,000) / (1 / 5,000 + 1 / 5,000).
    small = joined(buffer=400.0, kind="sliding", slide_s=2)
    assert mst(small).rate_per_s == pytest.approx(3000.0, rel=1e-2)  # in steps of a second


@pytest.mark.parametrize("window", [{}, {"kind": "sliding", "slide_s": 2}])
def test_the_simulation_carries_just_that(window):
    spec = joined(buffer=400.0, **window)
    limit = mst(spec).rate_per_s
    jobs = SimulatedJobs(Topology.of([spec], [0, 0]), exact())
    jobs.reset(np.array([1, 1]), limit * np.array([[0.99], [1.03]]))
    jobs.advance(300)
    carried = jobs.advance(600).processed / 600
    assert carried[0] == pytest.approx(0.99 * limit, rel=1e-3)
    assert carried[1] < 1.015 * limit


def test_a_backlog_is_worked_off_at_the_same_rate():
    # Windows follow the records, not the clock: behind, a job is no slower than on time.
    spec = joined(buffer=400.0)
    limit = mst(spec).rate_per_s
    jobs = constant(spec, 3 * limit, exact())
    jobs.advance(300)
    jobs.rates[:] = 0.9 * limit
    jobs.advance(300)  # the first periods still hold the records of three
    behind = jobs.state.vertex[0, 0, X.pending]
    jobs.advance(600)
    taken = 600 * 0.9 * limit + behind - jobs.state.vertex[0, 0, X.pending]
    assert taken == pytest.approx(600 * limit, rel=0.03)


def test_a_window_waits_as_backpressured_time_even_where_nothing_waits_before_it():
    jobs = constant(joined(sink_us=500.0), 2500.0, exact())
    jobs.advance(600)
    seen = jobs.snapshot()
    # 5,000 results, 2,000 of them in the buffer; the sink takes 2,000/s: 1.5 s of ten.
    assert seen.backpressured_ms_per_s[0, 1] == pytest.approx(150.0, abs=10.0)
    assert seen.busy_ms_per_s[0, 1] == pytest.approx(500.0, abs=20.0)


def test_windows_fire_together_after_the_least_common_multiple_of_their_slides():
    tables = Topology.of(
        [joined(), joined(kind="sliding", slide_s=2), joined(kind="session")]
    ).tables
    assert [period_s(tables, k) for k in range(3)] == [10, 2, 0]
