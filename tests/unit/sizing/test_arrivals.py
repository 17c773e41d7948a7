"""The load of the last minute: exact from counters through restarts and gaps."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.loop.snapshot import Status
from dsp_gym.loop.topology import Topology
from dsp_gym.sizing.arrivals import Arrivals
from tests.simulating import line
from tests.strategies import blank_snapshot

JOB = Topology.of([line()])


def seen(t_s, processed=np.nan, pending=np.nan, **values):
    def source(value):
        return [[value, np.nan, np.nan]]

    return blank_snapshot(
        JOB,
        t_s,
        records_in_total=source(processed),
        pending_records=source(pending),
        records_in_per_s=source(values.pop("rate", np.nan)),
        pending_growth_per_s=source(values.pop("growth", np.nan)),
        **values,
    )


def measured(*snapshots):
    arrivals = Arrivals()
    arrivals.reset(JOB)
    return [float(arrivals.observe(snapshot)[0]) for snapshot in snapshots]


def test_what_arrived_was_read_or_waits():
    found = measured(seen(0.0, 1000.0, 50.0), seen(60.0, 6400.0, 650.0))
    assert found[1] == pytest.approx((5400 + 600) / 60)


def test_the_window_tells_where_there_is_no_earlier_counter():
    assert measured(seen(0.0, 1000.0, 50.0, rate=80.0, growth=20.0))[0] == pytest.approx(100.0)


def test_the_window_tells_where_there_are_no_counters():
    first, second = measured(seen(0.0, rate=80.0), seen(60.0, rate=90.0, growth=-10.0))
    assert (first, second) == pytest.approx((80.0, 80.0))


def test_without_counters_and_rates_nothing_tells():
    assert np.isnan(measured(seen(0.0), seen(60.0))).all()


def test_a_window_that_has_just_begun_tells_nothing():
    assert np.isnan(measured(seen(0.0, rate=80.0, window_fill=0.2))[0])


def test_counters_that_began_anew_with_a_restart_count_from_zero():
    down = seen(60.0, 1000.0, 3000.0, status=Status.RESTARTING)
    back = seen(120.0, 4000.0, 6000.0, running_since_s=90.0)
    found = measured(seen(0.0, 1000.0, 0.0), down, back)
    assert found[1:] == pytest.approx([3000 / 60, (4000 + 3000) / 60])


def test_counters_that_are_gone_while_the_job_is_down_are_made_up_for():
    down = seen(60.0, status=Status.RESTARTING)
    back = seen(120.0, 4000.0, 6000.0, running_since_s=90.0)
    found = measured(seen(0.0, 1000.0, 0.0), down, back)
    assert np.isnan(found[1])
    assert found[2] == pytest.approx((4000 + 6000) / 120)


def test_the_time_between_the_last_counters_and_the_stop_does_not_count():
    down = seen(60.0, status=Status.RESTARTING)
    back = seen(120.0, 4000.0, 6000.0, running_since_s=90.0, outage_s=50.0)
    found = measured(seen(0.0, 1000.0, 0.0), down, back)
    assert found[2] == pytest.approx((4000 + 6000) / (120 - 40))


def test_a_restart_between_two_snapshots_tells_nothing():
    assert np.isnan(measured(seen(0.0, 9e6, 0.0), seen(60.0, 10.0, 0.0, running_since_s=30.0))[1])


def test_a_counter_that_went_back_tells_nothing():
    assert np.isnan(measured(seen(0.0, 9e6, 0.0), seen(60.0, 10.0, 0.0))[1])


def test_no_load_is_a_load_of_zero():
    assert measured(seen(0.0, 10.0, 0.0), seen(60.0, 10.0, 0.0))[1] == 0.0


def test_its_state_continues():
    first, second = Arrivals(), Arrivals()
    first.reset(JOB)
    second.reset(JOB)
    first.observe(seen(0.0, 1000.0, 50.0))
    second.restore(first.state())
    assert second.observe(seen(60.0, 1600.0, 50.0)) == pytest.approx([10.0])


def test_counters_count_from_scrape_to_scrape():
    """Decisions every 5 s see counters of every 5 s, scraped up to a second before."""
    found = measured(seen(5.0, 400.0, 0.0, counted_s=4.0), seen(10.0, 1000.0, 0.0, counted_s=10.0))
    assert found[1] == pytest.approx(100.0)


def test_counters_begin_with_the_savepoint_that_the_job_resumed_from():
    """A source stops reading when its savepoint begins, seconds before its job ends."""
    down = seen(60.0, status=Status.RESTARTING)
    back = seen(
        72.0, 2400.0, 0.0, running_since_s=70.0, outage_s=8.0, resumed_from_s=48.0, counted_s=72.0
    )
    assert measured(seen(45.0, 9e6, 0.0), down, back)[2] == pytest.approx(2400 / 24)


def test_records_read_again_since_a_checkpoint_count_from_its_time():
    back = seen(60.0, 7000.0, 0.0, running_since_s=50.0, resumed_from_s=-10.0)
    assert measured(seen(0.0, 9e6, 0.0), back)[1] == pytest.approx(100.0)
