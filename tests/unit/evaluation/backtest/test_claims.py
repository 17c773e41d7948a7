"""Permitted claims, worked out by hand."""

from __future__ import annotations

import pytest

from dsp_gym.control.modes import INCUMBENT
from dsp_gym.evaluation.backtest.claims import BacktestTrust, claim_of, fleet_saving, model_errors
from tests.unit.evaluation.backtest.histories import observed, replayed

TRUST = BacktestTrust()
MONTH_DAYS = 365 / 12


def claimed(now, policy, found=None):
    return claim_of(replayed(INCUMBENT, now), replayed("ds2", policy), found or observed(), TRUST)


def test_the_same_saving_every_day_has_an_interval_of_a_point():
    found = claimed([10.0] * 5, [7.0] * 5)
    assert found.saving_per_month.value == pytest.approx(3 * MONTH_DAYS)
    assert found.saving_per_month.low == pytest.approx(3 * MONTH_DAYS)
    assert found.saving.value == pytest.approx(0.3)
    assert found.claimed_per_month == pytest.approx(3 * MONTH_DAYS)


def test_days_that_differ_widen_the_interval_and_its_lower_end_is_claimed():
    found = claimed([10.0] * 8, [9.0, 5.0] * 4)
    saved = found.saving_per_month
    assert saved.value == pytest.approx(3 * MONTH_DAYS)
    assert MONTH_DAYS < saved.low < saved.value < saved.high < 5 * MONTH_DAYS
    assert found.claimed_per_month == saved.low


def test_a_model_that_is_off_by_more_than_five_per_cent_in_cost_claims_nothing():
    found = claimed([10.0] * 5, [7.0] * 5, observed(cost=1.0, model_cost=1.06))
    assert found.claimed_per_month == 0
    assert "cost of the deployed configurations is off by 6.0 %" in found.why_not[0]
    assert not model_errors(observed(cost=1.0, model_cost=1.04), TRUST)


def test_its_error_in_cost_widens_the_interval():
    found = claimed([10.0] * 5, [7.0] * 5, observed(cost=1.0, model_cost=1.04))
    assert found.saving_per_month.low == pytest.approx(0.96 * 3 * MONTH_DAYS)
    assert found.claimed_per_month == found.saving_per_month.low


def test_a_model_that_is_off_by_more_than_two_points_of_lateness_claims_nothing():
    found = claimed([10.0] * 5, [7.0] * 5, observed(late=0.0, model_late=0.021))
    assert found.claimed_per_month == 0
    assert "more than 2 points apart" in found.why_not[0]


def test_without_a_measured_lateness_nothing_is_claimed():
    found = claimed([10.0] * 5, [7.0] * 5, observed(late=None, model_late=None))
    assert found.claimed_per_month == 0
    assert "lateness was not measured" in found.why_not[0]


def test_a_saving_that_is_paid_with_lateness_is_not_claimed():
    now = replayed(INCUMBENT, [10.0] * 5)
    later = replayed("ds2", [7.0] * 5, late_s=864.0)
    found = claim_of(now, later, observed(), TRUST)
    assert found.later.value == pytest.approx(0.01)
    assert found.claimed_per_month == 0
    assert "late up to 1 points more" in found.why_not[0]


def test_less_than_a_day_is_too_little():
    found = claimed([10.0] * 5, [7.0] * 5, observed(days=0.5))
    assert found.claimed_per_month == 0
    assert "covers 12 hours; a claim needs 24 hours" in found.why_not[0]


def test_a_policy_that_costs_more_says_so():
    found = claimed([7.0] * 5, [10.0] * 5)
    assert found.claimed_per_month == 0
    assert found.why_not == ("it saves nothing on this history",)


def test_the_fleet_saves_the_sum_and_its_jobs_share_their_days():
    pairs = [
        (replayed(INCUMBENT, [10.0] * 6), replayed("ds2", [4.0, 8.0] * 3)),
        (replayed(INCUMBENT, [10.0] * 6), replayed("ds2", [8.0, 4.0] * 3)),
    ]
    found = [(observed(), claim_of(*pair, observed(), TRUST)) for pair in pairs]
    saved = fleet_saving(pairs, found)
    # What one saves less on a day the other saves more: together they save the same every day.
    assert saved.value == pytest.approx(8 * MONTH_DAYS)
    assert saved.low == pytest.approx(saved.high) == pytest.approx(saved.value)


def test_a_job_with_fewer_days_adds_its_mean_where_it_has_none():
    short = (replayed(INCUMBENT, [10.0]), replayed("ds2", [9.0]))
    long = (replayed(INCUMBENT, [10.0] * 9), replayed("ds2", [9.0] * 9))
    found = [(observed(), claim_of(*pair, observed(), TRUST)) for pair in (short, long)]
    saved = fleet_saving([short, long], found)
    assert saved.value == pytest.approx(2 * MONTH_DAYS)
    assert saved.low == pytest.approx(2 * MONTH_DAYS)
