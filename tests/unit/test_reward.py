"""Reward terms worked out by hand, and their weighted sum."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.envs.reward import TERM_TABLE, TERMS, RewardWeights, reward, reward_terms
from dsp_gym.loop.outcome import OUTCOME_FIELDS, Outcome
from dsp_gym.simulation.outcome import simulated_outcome
from dsp_gym.simulation.state import OUTCOME


def outcome(**values: float) -> Outcome:
    columns = {name: np.array([values.get(name, 0.0)]) for name in OUTCOME_FIELDS}
    return Outcome(**columns)


def test_terms_are_what_they_say():
    happened = outcome(seconds=60, cost=0.6, slo_s=15, pending_s=np.e - 1, rescales=1)
    terms = reward_terms(happened, np.array([0.005]))  # 0.3 in a minute
    assert [float(term[0]) for term in terms.values()] == pytest.approx([2.0, 0.25, 1.0, 1.0])
    assert tuple(terms) == TERMS


def test_a_perfect_interval_costs_what_the_reference_costs():
    terms = reward_terms(outcome(seconds=60, cost=0.3), np.array([0.005]))
    assert reward(terms, RewardWeights())[0] == pytest.approx(-1.0)


def test_lateness_that_no_metric_shows_costs_nothing():
    terms = reward_terms(outcome(seconds=60, cost=0.3, slo_s=np.nan), np.array([0.005]))
    assert reward(terms, RewardWeights())[0] == pytest.approx(-1.0)


@pytest.mark.parametrize("name", TERMS)
def test_a_weight_scales_its_own_term_and_worse_is_less(name):
    terms = {name: np.array([float(i + 1)]) for i, name in enumerate(TERMS)}
    none = dict.fromkeys(TERMS, 0.0)
    one = reward(terms, RewardWeights(**(none | {name: 1.0})))[0]
    two = reward(terms, RewardWeights(**(none | {name: 2.0})))[0]
    assert one == -terms[name][0]
    assert two == 2 * one


def test_an_interval_of_no_seconds_has_terms():
    terms = reward_terms(simulated_outcome(np.zeros((1, len(OUTCOME)))), np.array([0.005]))
    assert all(float(term[0]) == 0 for term in terms.values())


def test_every_term_has_a_unit_a_sentence_and_a_weight():
    assert tuple(RewardWeights.model_fields) == TERMS
    for name, field in RewardWeights.model_fields.items():
        assert field.description, name
        assert TERM_TABLE[name].unit, name
