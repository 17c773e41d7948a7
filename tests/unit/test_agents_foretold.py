"""Forecasts by laws: a law counted on ramps foretells ramps, and intervals hold what they say."""

from __future__ import annotations

import numpy as np
import pytest

from agents.planning.load import BIN, LEVELS
from agents.studies.foretold import _interval, foretell, law_of

pytestmark = pytest.mark.slow


def ramps(phase: int) -> np.ndarray:
    """Half a day of a load that rises for four hours and falls at once."""
    return 0.2 + 0.004 * ((np.arange(720) + phase) % 240)


def test_a_law_counted_on_ramps_foretells_ramps_better_than_persistence():
    found = foretell(law_of([ramps(17 * n) for n in range(14)], 10.0), [ramps(100)], 24.0)
    assert found.error.shape == found.persistence.shape == found.covered.shape
    assert (found.skill() > 0.5).all()


def test_a_law_that_never_met_a_rise_foretells_none():
    flat = law_of([np.full(720, 0.02 + BIN * n) for n in range(LEVELS)], 0.1)
    found = foretell(flat, [ramps(0)], 24.0)
    np.testing.assert_allclose(found.error, found.persistence, atol=BIN)


def test_an_interval_is_the_middle_of_its_distribution_and_leaves_gaps_out():
    chances = np.zeros(LEVELS)
    chances[[10, 20]] = 0.5
    low, high = _interval(chances, 0.5, 0.8)
    assert low == pytest.approx(0.5 + (10 + 0.2) * BIN)
    assert high == pytest.approx(0.5 + (20 + 0.8) * BIN)
