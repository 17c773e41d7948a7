"""Late seconds, against values worked out by hand."""

from __future__ import annotations

import pytest

from dsp_gym.sizing.lateness import (
    COLD_SPEED,
    catch_up_s,
    cold_speed,
    late_share,
    rescale_late_s,
)


def test_a_load_at_the_capacity_is_late_half_of_the_time():
    assert late_share(1.0, 1.0, 0.03) == pytest.approx(0.5)


def test_two_standard_deviations_of_room_leave_one_second_in_forty_four():
    assert late_share(1.0, 1.06, 0.03) == pytest.approx(0.02275, rel=1e-3)


def test_a_load_above_the_capacity_is_late_longer_than_the_minute():
    assert late_share(1.25, 1.0, 0.03) == pytest.approx(3.0, rel=1e-6)
    assert late_share(9.0, 1.0, 0.03) == pytest.approx(6.0)


def test_no_load_is_never_late():
    assert late_share(0.0, 1.0, 0.03) == 0.0


def test_a_backlog_is_worked_off_by_the_spare_capacity():
    # 100 s of the load wait, 10 of them in time; each second works off half of one.
    assert catch_up_s(1.0, 1.5, 100.0, 10.0, 0.0) == pytest.approx((100 - 15) / 0.5)
    assert catch_up_s(1.0, 1.5, 15.0, 10.0, 0.0) == 0.0


def test_capacity_lost_to_cold_caches_is_worked_off_too():
    # 1.5 records/s for each second lost, by half a record/s.
    assert catch_up_s(1.0, 1.5, 115.0, 10.0, 20.0) == pytest.approx((100 + 20 * 1.5) / 0.5)


def test_a_backlog_that_is_gone_before_the_caches_are_warm_waits_for_no_more():
    # At half its speed the job has 1 record/s to spare, and is at it for 2 * 80 s.
    assert catch_up_s(1.0, 4.0, 100.0, 0.0, 80.0) == pytest.approx(100.0)


def test_where_more_is_lost_to_cold_caches_a_job_is_slower_until_they_are_warm():
    speeds = [cold_speed(lost) for lost in (0.0, 30.0, 90.0, 200.0, 600.0)]
    assert speeds[:3] == [COLD_SPEED] * 3
    assert COLD_SPEED > speeds[3] > speeds[4] > 0.0
    # At a tenth of its speed it works nothing off, so the loss comes on top of the backlog.
    assert catch_up_s(1.0, 4.0, 100.0, 0.0, 450.0) == pytest.approx((100 + 450 * 4.0) / 3.0)


def test_more_lost_to_cold_caches_never_makes_a_job_sooner():
    found = [catch_up_s(1.0, 2.5, 100.0, 1.0, lost) for lost in range(0, 400, 5)]
    assert found == sorted(found)


def test_a_job_that_never_catches_up_counts_an_hour():
    assert catch_up_s(2.0, 1.0, 1e9, 1.0, 0.0) == 3600.0


def test_a_rescale_is_late_while_the_job_is_down_and_until_it_has_caught_up():
    assert rescale_late_s(1.0, 2.0, 0.0, 60.0, 0.0, 0.0) == pytest.approx(60.0 + 60.0)


def test_late_seconds_do_not_depend_on_the_unit_of_the_load():
    for unit in (0.01, 100.0):
        assert late_share(unit, 1.05 * unit, 0.03) == pytest.approx(late_share(1.0, 1.05, 0.03))
        scaled = rescale_late_s(unit, 1.3 * unit, 5.0 * unit, 70.0, 1.6, 20.0)
        assert scaled == pytest.approx(rescale_late_s(1.0, 1.3, 5.0, 70.0, 1.6, 20.0))
