from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from dsp_gym.errors import LoadError
from dsp_gym.loads import LoadSpec, rates

SPEC: TypeAdapter[LoadSpec] = TypeAdapter(LoadSpec)
DAY_S = 86_400


def load(**keys: Any) -> LoadSpec:
    return SPEC.validate_python(keys)


def test_a_constant_load_is_its_rate_times_its_scale():
    made = rates(load(form="constant", rate=0.4, scale=2.0), seed=0, duration_s=10)
    assert made.dtype == np.float64
    assert made.tolist() == [0.8] * 10


def test_a_step_holds_until_the_next_one():
    made = rates(load(form="step", steps=[[0, 1.0], [3, 0.5]]), seed=0, duration_s=3, dt_s=0.5)
    assert made.tolist() == [1.0] * 6
    made = rates(load(form="step", steps=[[0, 1.0], [3, 0.5]]), seed=0, duration_s=5)
    assert made.tolist() == [1.0, 1.0, 1.0, 0.5, 0.5]


def test_a_ramp_is_straight_and_flat_outside():
    ramp = load(form="ramp", from_rate=0.0, to_rate=1.0, from_s=2, to_s=6)
    made = rates(ramp, seed=0, duration_s=8)
    assert made == pytest.approx([0, 0, 0, 0.25, 0.5, 0.75, 1, 1])


def test_a_day_has_its_trough_at_phase_zero_and_its_peak_half_a_day_later():
    made = rates(load(form="diurnal", phase_s=0), seed=0, duration_s=DAY_S)
    t_s = np.arange(DAY_S)
    assert made == pytest.approx(0.6 - 0.4 * np.cos(2 * np.pi * t_s / DAY_S), abs=1e-12)
    assert made[0] == pytest.approx(0.2)
    assert made[DAY_S // 2] == pytest.approx(1.0)


def test_a_random_phase_reaches_all_hours():
    spec = load(form="diurnal", mean=0.5, amplitude=0.5)
    first = np.array([rates(spec, seed=seed, duration_s=1)[0] for seed in range(500)])
    # The cosine of a uniform angle: mean 0, standard deviation 1/sqrt(2).
    assert first.mean() == pytest.approx(0.5, abs=0.06)
    assert first.std() == pytest.approx(0.5 / np.sqrt(2), abs=0.03)


def test_noise_has_mean_one_and_the_variation_and_correlation_asked_for():
    spec = load(form="constant", noise_cv=0.2, noise_correlation_s=20)
    made = rates(spec, seed=1, duration_s=400_000)
    assert made.mean() == pytest.approx(1.0, abs=0.01)
    assert made.std() == pytest.approx(0.2, rel=0.05)
    log = np.log(made) - np.log(made).mean()
    assert np.mean(log[20:] * log[:-20]) / log.var() == pytest.approx(np.exp(-1), abs=0.03)


def test_noise_is_as_wide_at_the_start_as_later():
    spec = load(form="constant", noise_cv=0.2, noise_correlation_s=600)
    first = np.array([rates(spec, seed=seed, duration_s=2)[0] for seed in range(2000)])
    assert first.std() == pytest.approx(0.2, rel=0.08)


def test_uncorrelated_noise_is_white():
    spec = load(form="constant", noise_cv=0.2, noise_correlation_s=0)
    log = np.log(rates(spec, seed=1, duration_s=100_000))
    assert np.corrcoef(log[1:], log[:-1])[0, 1] == pytest.approx(0, abs=0.01)


def test_correlated_noise_follows_the_recursion_it_stands_for():
    smooth = np.log(
        rates(load(form="constant", noise_cv=0.1, noise_correlation_s=9), seed=4, duration_s=200)
    )
    white = np.log(
        rates(load(form="constant", noise_cv=0.1, noise_correlation_s=0), seed=4, duration_s=200)
    )
    shift = np.log1p(0.01) / 2
    keep = np.exp(-1 / 9)
    expected = [white[0] + shift]
    for shock in white[1:] + shift:
        expected.append(keep * expected[-1] + np.sqrt(1 - keep**2) * shock)
    assert smooth + shift == pytest.approx(expected, abs=1e-9)


def test_bursts_add_their_mean_by_littles_law_from_the_first_second_on():
    spec = load(form="burst", rate_per_h=12, magnitude=0.5, duration_s=[60, 180])
    # Bursts under way = arrivals per second * mean seconds each lasts.
    expected = 0.5 * 12 / 3600 * 120
    made = rates(spec, seed=3, duration_s=2_000_000)
    assert made.mean() == pytest.approx(expected, rel=0.03)
    first = np.mean([rates(spec, seed=seed, duration_s=1)[0] for seed in range(4000)])
    assert first == pytest.approx(expected, rel=0.1)


def test_one_burst_is_a_rectangle_of_its_magnitude_and_duration():
    spec = load(form="burst", rate_per_h=0.5, magnitude=0.3, duration_s=100)
    made = rates(spec, seed=0, duration_s=100_000)
    assert set(np.unique(made)) <= {0.0, 0.3, 0.6}
    edges = np.flatnonzero(np.diff(made))
    assert np.any(np.diff(edges) == 100)


def test_a_decaying_burst_falls_to_a_twentieth():
    spec = load(form="burst", rate_per_h=0.5, magnitude=1.0, duration_s=100, shape="decaying")
    made = rates(spec, seed=0, duration_s=20_000)
    begin = int(np.flatnonzero(np.diff(made) > 0.5)[0]) + 1
    assert 0.97 < made[begin] <= 1.0
    assert made[begin + 50] / made[begin] == pytest.approx(20**-0.5)
    assert made[begin + 99] == pytest.approx(0.05, rel=0.05)
    assert made[begin + 101] == 0


def test_a_rate_of_no_bursts_is_zero():
    assert not rates(load(form="burst", rate_per_h=0), seed=0, duration_s=100).any()


def test_a_flash_crowd_rises_and_decays_with_its_time_constants():
    peak = {"at_s": 300, "magnitude": 2.0, "rise_s": 20, "decay_s": 100}
    made = rates(load(form="flash_crowd", base=0.5, peaks=[peak]), seed=0, duration_s=600)
    assert made.argmax() == 300
    assert made[300] == pytest.approx(2.5)
    assert made[280] == pytest.approx(0.5 + 2 * np.exp(-1))
    assert made[400] == pytest.approx(0.5 + 2 * np.exp(-1))


def test_the_place_of_a_peak_is_drawn_within_its_range():
    peak = {"at_s": [100, 200], "magnitude": 1.0}
    spec = load(form="flash_crowd", peaks=[peak])
    places = {int(rates(spec, seed=seed, duration_s=400).argmax()) for seed in range(50)}
    assert min(places) >= 99
    assert max(places) <= 201
    assert len(places) > 20


def test_a_markov_load_spends_time_in_states_by_their_sojourn_also_at_the_start():
    states = [{"rate": r, "mean_sojourn_s": s} for r, s in [(0.0, 100), (1.0, 300), (3.0, 50)]]
    spec = load(form="markov_modulated", states=states)
    made = rates(spec, seed=5, duration_s=3_000_000, dt_s=5)
    shares = [float(np.mean(made == rate)) for rate in (0.0, 1.0, 3.0)]
    assert shares == pytest.approx([100 / 450, 300 / 450, 50 / 450], abs=0.02)
    first = np.array([rates(spec, seed=seed, duration_s=1)[0] for seed in range(3000)])
    assert np.mean(first == 1.0) == pytest.approx(300 / 450, abs=0.03)


def test_a_markov_load_never_jumps_to_where_it_is():
    states = [{"rate": rate, "mean_sojourn_s": 50} for rate in (1.0, 2.0)]
    made = rates(load(form="markov_modulated", states=states), seed=2, duration_s=500_000)
    visits = np.count_nonzero(np.diff(made)) + 1
    assert 500_000 / visits == pytest.approx(50, rel=0.05)


def test_a_sum_adds_parts_that_have_their_own_random_numbers():
    noisy = {"form": "constant", "noise_cv": 0.3, "noise_correlation_s": 0}
    both = rates(load(form="sum", parts=[noisy, noisy]), seed=0, duration_s=100_000)
    assert both.mean() == pytest.approx(2.0, abs=0.01)
    # Independent parts: variances add. The same numbers twice would give 0.6.
    assert both.std() == pytest.approx(0.3 * np.sqrt(2), rel=0.03)


def test_scale_and_noise_of_a_sum_apply_to_all_of_it():
    parts = [{"form": "constant", "rate": 0.2}, {"form": "constant", "rate": 0.3, "scale": 2}]
    assert rates(load(form="sum", scale=10, parts=parts), seed=0, duration_s=1) == pytest.approx(8)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"form": "constant", "rate": -1}, "greater than or equal to 0"),
        ({"form": "constant", "rate": float("nan")}, "finite"),
        ({"form": "constant", "scale": 0}, "greater than 0"),
        ({"form": "constant", "rat": 1}, "Extra inputs"),
        ({"form": "sawtooth"}, "there is no form 'sawtooth'"),
        ({"form": "diurnal", "mean": 0.2, "amplitude": 0.5}, "amplitude 0.5 exceeds mean 0.2"),
        ({"form": "step", "steps": [[5, 1.0]]}, "first step is at 5 s"),
        ({"form": "step", "steps": [[0, 1.0], [9, 1.0], [9, 2.0]]}, "must increase"),
        ({"form": "ramp", "from_rate": 0, "to_rate": 1, "from_s": 9, "to_s": 5}, "to_s is 5"),
        ({"form": "burst", "magnitude": [0.5, 0.2]}, r"low <= high, found \[0.5, 0.2\]"),
        ({"form": "burst", "magnitude": [-0.5, 0.2]}, "0 <= low"),
        ({"form": "burst", "duration_s": 0}, "duration_s is 0"),
        ({"form": "markov_modulated", "states": [{"rate": 1, "mean_sojourn_s": 1}]}, "at least 2"),
        ({"form": "trace", "path": "x", "compress": 0.5}, "greater than or equal to 1"),
        ({"form": "trace", "path": "x", "from_s": 9, "to_s": 9}, "more than from_s 9"),
    ],
)
def test_what_cannot_be_a_load_is_refused(keys, message):
    with pytest.raises(ValidationError, match=message):
        load(**keys)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": 0, "duration_s": 0}, "has no tick"),
        ({"seed": 0, "duration_s": 10, "dt_s": 0}, "has no tick"),
        ({"seed": 0, "duration_s": 0.5}, "has no tick"),
        ({"seed": -1, "duration_s": 10}, "value -1"),
    ],
)
def test_lengths_and_seeds_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(LoadError, match=message):
        rates(load(form="constant"), **arguments)
