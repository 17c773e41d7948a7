"""The planner's forecast: quantiles of a chain worked out by hand, and its own past."""

from __future__ import annotations

import numpy as np
import pytest

from agents.planning.forecast import AHEAD, LoadForecasts, highest_rises
from agents.planning.load import BIN, MOODS, STATES, state_of
from agents.planning.policy import MdpConfig, MdpPolicy
from dsp_gym.control.serve.sizes import size_of
from dsp_gym.loop.forecast import Forecast
from dsp_gym.policies.capabilities import capabilities_of


def chain(*jumps: tuple[int, int, float]) -> np.ndarray:
    """Each state stays as it is, but those that jump by some levels."""
    weights = np.eye(STATES)
    for state, by_levels, chance in jumps:
        weights[state, state] = 1.0 - chance
        weights[state, state + by_levels * MOODS] = chance
    return 7.0 * weights  # rows need not sum to 1


def test_a_load_that_never_moves_is_forecast_where_it_is():
    minutes = np.full(100, 0.5)
    assert LoadForecasts(chain()).look_forward(minutes) == pytest.approx((0.5, 0.0))


def test_the_quantile_rises_when_one_course_in_ten_does():
    state = state_of(np.full(100, 0.5))
    # After 20 minutes 1 - (1 - c)^20 of the courses are 3 levels higher: 9.5 % and 10.5 %.
    less, more = 1 - 0.905 ** (1 / AHEAD), 1 - 0.895 ** (1 / AHEAD)
    states = np.array([state])
    assert highest_rises(chain((state, 3, less)), states).tolist() == [0.0]
    assert highest_rises(chain((state, 3, more)), states) == pytest.approx([3 * BIN])


def test_a_load_that_falls_back_is_forecast_at_its_highest():
    state = state_of(np.full(100, 0.5))
    weights = chain((state, 2, 1.0))
    above = state + 2 * MOODS
    weights[above] = 0.0
    weights[above, state - 5 * MOODS] = 1.0
    assert highest_rises(weights, np.array([state])) == pytest.approx([2 * BIN])


def test_the_error_is_that_of_past_forecasts_against_what_came():
    # The chain says: stay. The load has doubled 50 minutes ago, in one jump.
    minutes = np.concatenate([np.full(50, 0.4), np.full(50, 0.8)])
    _, error = LoadForecasts(chain()).look_forward(minutes)
    # Starts 30, 35, 40, 45, 50: their 20 minutes end beyond the jump, so 0.4 was half of what came.
    # At 30 the highest is that of minute 50, the last one before it. Later ones were right.
    assert error == pytest.approx(4 * 0.5 / 11, abs=0.02)


def test_a_young_load_has_a_forecast_but_no_error():
    forecast, error = LoadForecasts(chain()).look_forward(np.full(49, 0.5))
    assert forecast == pytest.approx(0.5)
    assert np.isnan(error)
    assert not np.isnan(LoadForecasts(chain()).look_forward(np.full(50, 0.5))[1])


def test_the_document_tells_what_is_known():
    found = Forecast(np.array([1200.0, np.nan]), np.array([np.nan, 0.1]), 1200.0, 0.9)
    assert found.document(0) == {
        "records_in_per_s": 1200.0,
        "horizon_s": 1200.0,
        "quantile": 0.9,
        "error": None,
    }
    assert found.document(1) is None


def test_the_planner_forecasts_and_has_none_before_its_first_job():
    policy = MdpPolicy()
    assert capabilities_of(policy).forecast == policy.forecast
    assert policy.forecast() is None


def test_planners_that_start_alike_share_what_is_large():
    def held(policy: MdpPolicy) -> list[int]:
        return [id(one) for one in policy.shared()]

    one, other = MdpPolicy(), MdpPolicy()
    assert held(one) == held(other)
    assert held(MdpPolicy(MdpConfig(neighbours=7.0))) != held(one)
    assert held(MdpPolicy(counts=np.eye(STATES)[None])) != held(one)
    size = size_of(one, one.shared())
    assert size < size_of(one) / 4
