"""What may be claimed, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dsp_gym.control.config import RunConfig
from dsp_gym.control.modes import INCUMBENT
from dsp_gym.whatif.blocks import with_gone
from dsp_gym.whatif.claims import figures_of, fleet_saving, model_errors
from dsp_gym.whatif.history import Decided, WatchedPolicy
from dsp_gym.whatif.result import Trust
from dsp_gym.whatif.verdict import judged
from tests.unit.whatif.histories import DAY_S, TERMS, history, observed, policy_replay, replayed

MONTH_DAYS = 365 / 12


def claim(now, policy, found=None, **given):
    replay = replayed(now, found, ds2=policy_replay(policy, **given))
    return judged(history(), replay, "ds2", TERMS)


def failing(found):
    return [one.subject for one in found.reasons if not one.holds]


def test_the_same_saving_every_day_has_an_interval_of_a_point():
    found = claim([10.0] * 8, [7.0] * 8)
    assert found.saving_per_month.value == pytest.approx(3 * MONTH_DAYS)
    assert found.saving_per_month.low == pytest.approx(3 * MONTH_DAYS)
    assert found.saving.value == pytest.approx(0.3)
    assert found.claimed_per_month == pytest.approx(3 * MONTH_DAYS)
    assert found.verdict == "promote"


def test_days_that_differ_widen_the_interval_and_its_lower_end_is_claimed():
    found = claim([10.0] * 8, [9.0, 5.0] * 4)
    saved = found.saving_per_month
    assert saved.value == pytest.approx(3 * MONTH_DAYS)
    assert MONTH_DAYS < saved.low < saved.value < saved.high < 5 * MONTH_DAYS
    assert found.claimed_per_month == saved.low


def test_seeds_that_differ_widen_the_interval_as_days_do():
    own = policy_replay([7.0] * 8, seeds=2)
    cost = tuple((5.0, 9.0) for _ in range(8))
    own = own.model_copy(update={"sums": {**own.sums, "cost": cost}})
    base = policy_replay([10.0] * 8, seeds=2)
    replay = replayed([10.0] * 8, ds2=own)
    replay = replay.model_copy(
        update={"seeds": 2, "policies": {**replay.policies, "incumbent": base}}
    )
    saving = figures_of(replay, "ds2")["saving"]
    assert (saving.value, saving.low, saving.high) == pytest.approx((0.3, 0.1, 0.5))


def test_a_model_that_is_off_by_more_than_five_per_cent_in_cost_claims_nothing():
    found = claim([10.0] * 8, [7.0] * 8, observed(cost=1.0, model_cost=1.06))
    assert (found.verdict, found.claimed_per_month) == ("keep watching", 0)
    (reason,) = (one for one in found.reasons if not one.holds)
    assert "cost of the deployed configurations is off by 6.0 %" in reason.text
    assert not model_errors(observed(cost=1.0, model_cost=1.04), Trust())


def test_its_error_in_cost_widens_the_interval():
    found = claim([10.0] * 8, [7.0] * 8, observed(cost=1.0, model_cost=1.04))
    assert found.saving_per_month.low == pytest.approx(0.96 * 3 * MONTH_DAYS)
    assert found.claimed_per_month == found.saving_per_month.low


def test_a_model_that_is_off_by_more_than_two_points_of_lateness_claims_nothing():
    found = claim([10.0] * 8, [7.0] * 8, observed(late=0.0, model_late=0.021))
    assert found.claimed_per_month == 0
    (wrong,) = model_errors(observed(late=0.0, model_late=0.021), Trust())
    assert "more than 2 points apart" in wrong


def test_a_backlog_that_is_off_by_a_quarter_claims_nothing_but_a_small_one_may_differ():
    (wrong,) = model_errors(observed(lag_s=40.0, model_lag_s=60.0), Trust())
    assert "60 s of arrivals, observed were 40 s" in wrong
    assert not model_errors(observed(lag_s=0.5, model_lag_s=2.4), Trust())


def test_without_a_measured_lateness_nothing_is_claimed():
    (wrong,) = model_errors(observed(late=None, model_late=None), Trust())
    assert "lateness was not measured" in wrong


def test_a_saving_that_is_paid_with_lateness_is_not_claimed():
    found = claim([10.0] * 8, [7.0] * 8, late_s=864.0)
    assert found.later.value == pytest.approx(0.01)
    assert (found.verdict, found.claimed_per_month) == ("reject", 0)
    assert failing(found) == ["SLO"]


def test_less_than_a_week_is_too_little():
    found = claim([10.0] * 8, [7.0] * 8, observed(days=2.5))
    assert (found.verdict, failing(found)) == ("keep watching", ["days observed"])
    assert found.reasons[0].found == "2.5 of 7 days"


def beside(asked, trips):
    """A job of ten days in slots of 5 minutes, with a policy that was asked in some of them."""
    job = history()
    none = np.full(job.parallelism.shape, -1)
    trips_s = {"cool_down": job.t_s[-1] - 300.0 * np.arange(trips)}
    decided = Decided(none, none, none, asked, trips_s, {})
    return replace(
        job,
        watched=WatchedPolicy(
            RunConfig(job="nexmark-q1", policy="ds2"), {"ds2": decided}, np.empty(0)
        ),
    )


def test_a_policy_that_was_added_late_is_judged_by_the_time_in_which_it_was_asked():
    replay = replayed([10.0] * 10, ds2=policy_replay([7.0] * 10))
    asked = np.arange(2880) >= 2880 - 72  # for six hours
    found = judged(beside(asked, trips=24), replay, "ds2", TERMS)
    assert (found.verdict, found.claimed_per_month) == ("keep watching", 0)
    assert failing(found) == ["days observed", "guardrails"]
    reasons = {one.subject: one for one in found.reasons}
    assert reasons["days observed"].found == "6 hours of 7 days"
    assert reasons["days observed"].text.startswith("0.25 days since the policy was first asked")
    assert reasons["guardrails"].text.startswith("96.0 guardrail trips a day")
    whole = judged(beside(asked | True, trips=24), replay, "ds2", TERMS)
    assert (whole.verdict, failing(whole)) == ("promote", [])


def test_a_policy_that_is_seldom_asked_is_watched_further():
    replay = replayed([10.0] * 10, ds2=policy_replay([7.0] * 10))
    found = judged(beside(np.arange(2880) % 10 > 0, trips=0), replay, "ds2", TERMS)
    assert (found.verdict, failing(found)) == ("keep watching", ["coverage"])
    never = judged(beside(np.zeros(2880, bool), trips=0), replay, "ds2", TERMS)
    assert failing(never) == ["days observed", "coverage"]


def test_a_policy_that_costs_more_is_rejected():
    found = claim([7.0] * 8, [10.0] * 8)
    assert (found.verdict, found.claimed_per_month) == ("reject", 0)


def test_the_fleet_saves_the_sum_and_its_jobs_share_their_days():
    found = [
        replayed([10.0] * 6, ds2=policy_replay(costs * 3)) for costs in ([4.0, 8.0], [8.0, 4.0])
    ]
    saved = fleet_saving(found, "ds2")
    # What one saves less on a day the other saves more: together they save the same every day.
    assert saved.value == pytest.approx(8 * MONTH_DAYS)
    assert saved.low == pytest.approx(saved.high) == pytest.approx(saved.value)


def test_a_job_with_fewer_days_adds_its_mean_where_it_has_none():
    short = replayed([10.0], ds2=policy_replay([9.0]))
    long = replayed([10.0] * 9, ds2=policy_replay([9.0] * 9))
    saved = fleet_saving([short, long], "ds2")
    assert saved.value == pytest.approx(2 * MONTH_DAYS)
    assert saved.low == pytest.approx(2 * MONTH_DAYS)


def test_no_figure_lies_beyond_what_is_possible():
    wrong = observed(late=0.0, model_late=0.9, cost=1.0, model_cost=3.0)
    figures = figures_of(replayed([10.0] * 4, wrong, ds2=policy_replay([0.1] * 4)), "ds2")
    assert figures["saving"].high == 1.0
    assert figures["late"].low == 0.0
    assert np.isfinite(figures["later"].high)
    assert figures["later"].high <= 1.0


def test_time_in_which_the_job_was_gone_is_late_for_every_policy():
    found = claim([10.0] * 8, [7.0] * 8, observed(late=0.1, model_late=0.1, gone=0.1), late_s=864.0)
    assert found.late.value == pytest.approx(0.1 + 0.9 * 0.01)
    assert found.later.value == pytest.approx(0.9 * 0.01)


def test_late_and_later_are_shares_of_the_same_time():
    """Late 30 % now, all of it gone: 10 % of the other time are 7 points, so late 37 %."""
    seen = observed(late=0.3, model_late=0.3, gone=0.3)
    replay = replayed([10.0] * 8, seen, ds2=policy_replay([7.0] * 8, late_s=0.1 * DAY_S))
    figures = figures_of(replay, "ds2")
    assert figures["late"].value == pytest.approx(0.37)
    assert figures["later"].value == pytest.approx(0.07)
    assert figures["later"].low == figures["later"].high == pytest.approx(0.07)


def test_an_assumed_outage_is_a_share_of_that_time_too():
    """Gone for half of it: outages of 10 % of the other time are 5 points."""
    own = policy_replay([7.0] * 8, late_s=0.1 * DAY_S, rescales=4, down_s=0.1 * DAY_S)
    replay = replayed([10.0] * 8, observed(late=0.5, model_late=0.5, gone=0.5), ds2=own)
    (assumed,) = judged(history(), replay, "ds2", TERMS).assumed
    assert assumed.late == pytest.approx(0.05)
    assert assumed.decides  # without outages it is not later at all


def test_it_is_part_of_what_was_observed():
    struck = history(days=1.0)
    arrived, late = struck.arrived.copy(), struck.late.copy()
    arrived[100:112], late[100:112] = np.nan, 1.0  # an hour of the day
    struck = replace(struck, arrived=arrived, late=late)
    at = np.flatnonzero(np.isfinite(arrived))
    seen = with_gone(struck, observed(late=0.0, model_late=0.01), at)
    assert seen.late == pytest.approx(1 / 24)
    assert seen.late_error == pytest.approx(0.01 * 23 / 24)


def test_an_assumed_outage_that_makes_the_model_untrusted_decides():
    replay = replayed([10.0] * 8, observed(late=0.0, model_late=0.03), ds2=policy_replay([7.0] * 8))
    deployed = policy_replay([10.0] * 8, late_s=0.03 * DAY_S, rescales=4, down_s=0.03 * DAY_S)
    replay = replay.model_copy(update={"policies": {**replay.policies, INCUMBENT: deployed}})
    (assumed,) = judged(history(), replay, "ds2", TERMS).assumed
    assert assumed.of == "outage_s"
    assert assumed.decides
