from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.evaluation.statistics import (
    interquartile_mean,
    mean,
    paired_difference,
    stratified_bootstrap,
)


def draws(*key: int) -> np.random.Generator:
    return np.random.default_rng(key)


def test_the_interquartile_mean_is_that_of_the_middle_half():
    assert interquartile_mean([-1e9, 1, 2, 3, 4, 5, 6, 1e9]) == pytest.approx(3.5)
    assert interquartile_mean([9, 1, 5]) == pytest.approx(5)
    assert interquartile_mean([7]) == 7


def test_the_interquartile_mean_agrees_with_scipys_trimmed_mean():
    stats = pytest.importorskip("scipy.stats")
    for count in range(1, 40):
        values = draws(count).standard_normal((3, count))
        expected = stats.trim_mean(values, 0.25, axis=-1)
        assert interquartile_mean(values) == pytest.approx(expected)


def test_a_bootstrap_interval_covers_the_true_mean_as_often_as_it_says():
    trials = 300
    hits = 0
    for trial in range(trials):
        # Loads differ widely; the strata take that out.
        values = draws(1, trial).normal(0, 1, (4, 25)) + np.array([[-30.0], [-10], [10], [30]])
        found = stratified_bootstrap(values, mean, n=400, confidence=0.9, seed=trial)
        hits += found.low <= 0.0 <= found.high
    # Four standard errors around 0.9, less the percentile bootstrap's small-sample narrowness.
    assert 0.82 <= hits / trials <= 0.97


def test_a_bootstrap_interval_is_as_wide_as_theory_says():
    values = draws(2).standard_normal((5, 80))
    interval = stratified_bootstrap(values, mean, n=4000)
    within = values.std(axis=1)
    error = np.sqrt(np.mean(within**2) / values.size)
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * error, rel=0.08)


def test_loads_are_strata_so_that_differences_between_them_do_not_widen_the_interval():
    values = np.repeat([[0.0], [1000.0]], 10, axis=1)
    interval = stratified_bootstrap(values, mean)
    assert (interval.low, interval.high) == (500, 500)


def test_the_bootstrap_repeats_by_seed():
    values = draws(3).standard_normal((3, 10))
    assert stratified_bootstrap(values, seed=1) == stratified_bootstrap(values, seed=1)
    assert stratified_bootstrap(values, seed=1) != stratified_bootstrap(values, seed=2)


def test_pairing_takes_out_what_makes_a_load_hard():
    stream = draws(4)
    hardness = stream.normal(100, 30, (20, 1))
    ours = hardness - 5 + stream.normal(0, 1, (20, 5))
    theirs = hardness + stream.normal(0, 1, (20, 5))
    paired = paired_difference(ours, theirs)
    shuffled = paired_difference(ours, theirs[stream.permutation(20)])
    width = paired.high - paired.low
    assert width < 0.1 * (shuffled.high - shuffled.low)
    assert paired.estimate == pytest.approx(-5, abs=0.5)
    assert paired.low <= -5 <= paired.high
    assert paired.upper < -4
    assert not paired.upper < -5
    assert paired.lower > -6
    assert not shuffled.upper < -4


def test_one_sided_bounds_are_tighter_than_the_two_sided_interval():
    found = paired_difference(draws(5).standard_normal((20, 4)), np.zeros((20, 1)))
    assert found.low < found.lower < found.estimate < found.upper < found.high


def test_a_one_sided_bound_is_wrong_no_more_often_than_it_says():
    trials = 200
    wrong = sum(
        paired_difference(
            draws(6, trial).normal(0, 1, (30, 1)), np.zeros((30, 1)), n=400, confidence=0.9
        ).upper
        < 0
        for trial in range(trials)
    )
    # Ten per cent of 200 is 20, with a standard deviation of 4.2.
    assert 6 <= wrong <= 34


def test_a_policy_without_seeds_is_compared_with_each_training_seed():
    ours = np.array([[8.0, 10.0], [18.0, 20.0]])
    theirs = np.array([[10.0], [20.0]])
    assert paired_difference(ours, theirs).estimate == pytest.approx(-1)
    relative = paired_difference(ours, theirs, relative=True)
    assert relative.estimate == pytest.approx(14 / 15 - 1)


def test_a_training_seed_that_is_bad_everywhere_widens_the_crossed_interval():
    # Five training seeds, 50 loads: the effect is the seed's, so 250 scores are not 250 chances.
    effect = np.broadcast_to(np.array([-2.0, -1.0, 0.0, 1.0, 2.0]), (50, 5))
    theirs = np.zeros((50, 1))
    crossed = paired_difference(effect, theirs, seeds="crossed")
    nested = paired_difference(effect, theirs, seeds="nested")
    assert crossed.high - crossed.low > 4 * (nested.high - nested.low)
    # Theory: the mean of five draws from a population of standard deviation sqrt(2).
    assert crossed.high - crossed.low == pytest.approx(2 * 1.96 * np.sqrt(2 / 5), rel=0.1)


def test_scores_that_cannot_be_compared_are_refused():
    with pytest.raises(ValueError, match="NaN"):
        interquartile_mean([1.0, np.nan])
    with pytest.raises(ValueError, match="not empty"):
        interquartile_mean([])
    with pytest.raises(ValueError, match=r"expected \(loads, seeds\)"):
        stratified_bootstrap([1.0, 2.0])
    with pytest.raises(ValueError, match="2 and 3 loads"):
        paired_difference(np.ones((2, 1)), np.ones((3, 1)))
    with pytest.raises(ValueError, match="confidence is 95"):
        stratified_bootstrap(np.ones((2, 2)), confidence=95)
