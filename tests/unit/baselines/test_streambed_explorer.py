"""The three models and the explorer, on surfaces that are known."""

from __future__ import annotations

import builtins
import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest

from baselines.streambed.explorer import (
    BudgetGrid,
    ExplorerConfig,
    expected_improvement,
    explore,
)
from baselines.streambed.models import FORMS, Surface, extrapolation_error, fit, loocv
from dsp_gym.errors import MissingExtraError

SPACE = BudgetGrid(4, 24, (512.0, 1024.0, 2048.0))


@dataclass(frozen=True)
class Budget:
    slots: int
    slot_mib: float
    mst_per_s: float


class Known:
    """Measures a known surface, with noise if asked."""

    def __init__(self, surface: Surface, noise: float = 0.0) -> None:
        self.surface, self.noise = surface, noise
        self.rng = np.random.default_rng(1)
        self.asked: list[tuple[int, float]] = []

    def __call__(self, slots: int, memory_mib: float) -> Budget:
        self.asked.append((slots, memory_mib))
        factor = 1 + self.noise * self.rng.standard_normal()
        return Budget(slots, memory_mib, float(self.surface.predict(slots, memory_mib)) * factor)


def surface(form: str) -> Surface:
    return Surface(form=form, a=3.0, b=1000.0, c=-500.0)


def points(form: str, slots=(2, 3, 5, 8, 13, 21)) -> list[tuple[float, float, float]]:
    return [
        (float(s), m, float(surface(form).predict(s, m))) for s in slots for m in (512.0, 2048.0)
    ]


@pytest.mark.parametrize("form", FORMS)
def test_equations_6_to_8_are_recovered_from_their_own_points(form):
    found = fit(points(form), form)
    assert (found.a, found.b, found.c) == pytest.approx((3.0, 1000.0, -500.0), rel=1e-6)
    assert loocv(points(form), form) == pytest.approx(0.0, abs=1e-6)
    for other in set(FORMS) - {form}:
        assert loocv(points(form), other) > 1.0
        assert extrapolation_error(points(form), other) > 1.0


def test_loocv_by_hand():
    # Memory does not vary. Without (1, 10): the line through (2, 20), (3, 40) says 0 at 1;
    # without (2, 20): 25 at 2; without (3, 40): 30 at 3. Errors -10, 5, -10.
    three = [(1.0, 512.0, 10.0), (2.0, 512.0, 20.0), (3.0, 512.0, 40.0)]
    assert loocv(three, "linear") == pytest.approx(math.sqrt((100 + 25 + 100) / 3))


def test_the_50_50_test_trains_on_the_fewest_slots():
    # Linear at 1 and 2 slots says 30 at 3 and 40 at 4; measured 20 and 20: errors 10 and 20.
    four = [(4.0, 512.0, 20.0), (1.0, 512.0, 10.0), (3.0, 512.0, 20.0), (2.0, 512.0, 20.0)]
    assert extrapolation_error(four, "linear") == pytest.approx(math.sqrt((100 + 400) / 2))


@pytest.mark.parametrize("form", FORMS)
def test_the_inverse_query_is_the_inverse(form):
    rate = float(surface(form).predict(17.0, 1024.0))
    assert surface(form).slots_for(rate, 1024.0) == pytest.approx(17.0)


def test_a_model_that_does_not_rise_never_reaches_a_rate():
    falling = Surface(form="log", a=0.0, b=-1.0, c=100.0)
    assert falling.slots_for(100.5, 512.0) == math.inf
    assert falling.slots_for(90.0, 512.0, 5) == 5.0
    flat = Surface(form="log", a=0.0, b=0.0, c=100.0)
    assert (flat.slots_for(99.0, 512.0, 3), flat.slots_for(101.0, 512.0, 3)) == (3.0, math.inf)
    assert Surface(form="log", a=0.0, b=1e-3, c=0.0).slots_for(1e6, 512.0) == math.inf


def test_expected_improvement_by_hand():
    # One point, deviation 2, mean 1 below the best: z = 0.5, EI = 1 Phi(0.5) + 2 phi(0.5).
    found = expected_improvement(np.array([4.0]), np.array([2.0]), 5.0)
    assert found[0] == pytest.approx(0.69146 + 2 * 0.35207, abs=1e-4)
    # What is sure to be worse improves nothing.
    assert expected_improvement(np.array([6.0]), np.array([0.0]), 5.0)[0] == 0.0


@pytest.mark.slow
def test_section_6_the_corners_come_first():
    known = Known(surface("linear"), noise=0.05)
    explore(SPACE, known)
    assert known.asked[:4] == [(4, 512.0), (4, 2048.0), (24, 512.0), (24, 2048.0)]


@pytest.mark.slow
def test_section_6_at_least_three_more_and_it_stops_when_the_error_rises_by_a_tenth():
    for seed in range(3):
        known = Known(surface("sqrt"), noise=0.05)
        known.rng = np.random.default_rng(seed)
        found = explore(SPACE, known)
        errors = found.errors_per_s
        assert 7 <= len(found.measured) <= 20
        assert len(errors) == len(found.measured) - 3  # one for the corners, one for each further
        rises = [after > 1.1 * before for before, after in itertools.pairwise(errors)]
        assert not any(rises[2:-1])  # the third measurement after the corners is the first that may
        assert rises[-1] or len(found.measured) == 20


@pytest.mark.slow
def test_it_looks_away_from_the_corners_and_not_at_one_place_only():
    known = Known(surface("linear"), noise=0.03)
    explore(SPACE, known)
    slots = [s for s, _ in known.asked[4:]]
    assert 8 <= slots[0] <= 20
    assert len(set(known.asked[4:])) > 1


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_the_form_behind_the_measurements_is_chosen(form):
    found = explore(SPACE, Known(surface(form), noise=0.002))
    assert found.surface.form == form
    assert min(found.extrapolation_per_s, key=found.extrapolation_per_s.get) == form
    far = found.surface.slots_for(float(surface(form).predict(240.0, 1024.0)), 1024.0)
    assert far == pytest.approx(240.0, rel=0.1)


@pytest.mark.slow
def test_one_profile_gets_no_slope_over_memory():
    one = BudgetGrid(4, 24, (1024.0,))
    found = explore(one, Known(surface("linear"), noise=0.01))
    assert found.surface.a == 0.0
    assert {m.slots for m in found.measured[:4]} == {4, 14, 19, 24}


def test_a_job_with_a_single_budget_is_measured_twice_and_does_not_rise():
    found = explore(
        BudgetGrid(3, 3, (512.0,)), Known(surface("linear")), ExplorerConfig(max_measurements=4)
    )
    assert found.surface.b == 0.0


@pytest.mark.slow
def test_the_same_question_is_explored_alike():
    first, again = (Known(surface("log"), noise=0.02) for _ in range(2))
    assert explore(SPACE, first) == explore(SPACE, again)
    assert first.asked == again.asked


def test_without_scikit_learn_the_extra_is_named(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("sklearn"):
            raise ModuleNotFoundError(name=name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"dsp-gym\[plan\]"):
        explore(SPACE, Known(surface("log")))
