"""A law of the load by hand, and a planner that plans with it."""

from __future__ import annotations

import numpy as np
import pytest

from agents.planning.chain import TABLE, pooled, read_counts, write_counts
from agents.planning.config import MdpConfig
from agents.planning.laws import chain_of
from agents.planning.load import BIN, LEVELS, MOODS, STATES, levels
from agents.planning.policy import MdpPolicy
from agents.planning.value import Offer, StepPrices, solve
from agents.planning.walk import WalkConfig, level_steps, walk_weights
from dsp_gym.config.files import parse
from dsp_gym.errors import ConfigError

MIDDLES = (np.arange(LEVELS) + 0.5) * BIN
STILL = {"std_1h": 0.0, "pull_per_h": 0.0, "jumps_per_day": 0.0}


def after(hours: float, start: float, **weights) -> tuple[float, float]:
    """Mean and standard deviation of the level some hours after a start."""
    steps = np.linalg.matrix_power(level_steps(WalkConfig(**STILL | weights)), round(60 * hours))
    chances = steps[int(start / BIN)]
    mean = float(chances @ MIDDLES)
    return mean, float(np.sqrt(chances @ (MIDDLES - mean) ** 2))


@pytest.mark.parametrize("std_1h", [0.0, 0.03, 0.3, 1.0])
@pytest.mark.parametrize("pull_per_h", [0.0, 0.5, 10.0])
@pytest.mark.parametrize("jumps_per_day", [0.0, 3.0, 1440.0])
def test_rows_are_probabilities(std_1h, pull_per_h, jumps_per_day):
    walk = WalkConfig(std_1h=std_1h, pull_per_h=pull_per_h, jumps_per_day=jumps_per_day)
    steps = level_steps(walk)
    assert steps.min() >= 0.0
    np.testing.assert_allclose(steps.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(walk_weights(walk, 7.0).sum(axis=1), 7.0, atol=1e-9)


@pytest.mark.parametrize("std_1h", [0.02, 0.1, 0.35])
def test_without_a_pull_the_walk_is_symmetric_and_as_wide_as_it_says(std_1h):
    steps = level_steps(WalkConfig(**STILL | {"std_1h": std_1h}))
    np.testing.assert_allclose(steps, steps.T, atol=1e-12)
    mean, std = after(0.25, 0.82, std_1h=std_1h)
    assert mean == pytest.approx(0.82, abs=1e-3)
    assert std == pytest.approx(std_1h / 2.0, rel=1e-2)  # a quarter of an hour, half the width


def test_the_pull_leads_back_at_the_rate_it_says():
    for start in (0.1, 1.1):
        mean, _ = after(2.0, start, pull_per_h=0.5)
        began = (int(start / BIN) + 0.5) * BIN
        assert mean - 0.5 == pytest.approx((began - 0.5) * (1 - 0.5 / 60) ** 120, rel=1e-6)


def test_jumps_are_as_many_as_it_says_and_lead_anywhere_up_to_twice_the_mean():
    steps = level_steps(WalkConfig(**STILL | {"jumps_per_day": 144.0}))
    stay = np.diag(steps)
    assert stay[30] == pytest.approx(0.9)  # a tenth of the minutes jump
    assert stay[3] == pytest.approx(0.9 + 0.1 / 25)  # of which some lead to where it was
    assert np.count_nonzero(steps[30]) == 26
    assert steps[30, :25] == pytest.approx(0.1 / 25)


def test_trend_and_peak_stay_as_they_are():
    weights = walk_weights(WalkConfig(), 40.0)
    before, to = np.nonzero(weights)
    assert set(before % MOODS - to % MOODS) == {0}


def test_a_planner_drops_no_jump_however_rare():
    policy = MdpPolicy(MdpConfig.model_validate({"walk": STILL | {"jumps_per_day": 1.0}}))
    laws = policy.shared()[0].laws
    assert laws.size[0, 30 * MOODS] == 26
    assert laws.probability[0, 30 * MOODS].max() == pytest.approx(1 - 1 / 1440)


def test_the_table_is_not_read_where_there_is_a_walk(tmp_path):
    walked = MdpPolicy(MdpConfig(walk=WalkConfig())).shared()[-1]
    np.testing.assert_array_equal(walked, walk_weights(WalkConfig(), 40.0))
    counted = MdpPolicy().shared()[-1]
    np.testing.assert_array_equal(counted, pooled(read_counts(TABLE), 40.0))
    write_counts(tmp_path / "table", np.eye(STATES))
    with pytest.raises(ConfigError, match="two laws of one load"):
        parse(MdpConfig, {"transitions": str(tmp_path / "table"), "walk": {}}, "params")


def test_a_walk_takes_the_place_of_what_a_trained_policy_counted():
    trained = MdpPolicy(MdpConfig(path="shipped:planning")).config
    walked = MdpPolicy(MdpConfig(path="shipped:planning", walk=WalkConfig()))
    assert walked.config.late_price == trained.late_price
    np.testing.assert_array_equal(walked.shared()[-1], walk_weights(WalkConfig(), 40.0))


def test_one_mood_is_solved_for_all():
    """As the whole chain of states is: no mood leads to another."""
    policy = MdpPolicy(MdpConfig(walk=WalkConfig(), own_weight=0.0))
    load = policy.shared()[0]
    offer = Offer(np.array([0.3, 0.6, 1.2]), np.array([0.5, 0.8, 1.5]))
    terms = StepPrices(2.5, 6.0, 20.0, 5.0, 1.0, 0.03, 0.9972, 2.0)
    own, evidence = np.zeros(0, np.int64), np.zeros(1)
    whole = solve(chain_of(load.laws, np.ones(1), own, 0.0, load.rare), levels(), offer, terms)
    np.testing.assert_allclose(
        policy._valued(offer, own, evidence, terms), whole, rtol=1e-12, atol=1e-9
    )
