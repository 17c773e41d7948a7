"""A library of laws of the load: what tells them apart, and what the planner makes of them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from agents.planning.chain import RARE, counted, pooled
from agents.planning.laws import add_laws, chain_of, empty_row, hear, laws_of, shares_of
from agents.planning.load import MOODS, STATES, states_of
from agents.planning.policy import MdpConfig, MdpPolicy

CALM = 0.5 + 0.02 * np.sin(np.arange(2880) / 230)
WILD = np.where(np.arange(2880) // 40 % 2, 0.9, 0.3) + 0.01 * np.sin(np.arange(2880) / 3)
COUNTS = np.stack([counted([CALM]), counted([WILD])])
LAWS = laws_of([pooled(one, 40.0) for one in COUNTS], RARE)


def heard(load, memory_h=8.0):
    evidence = np.zeros(2)
    states = states_of(load)
    for before, after in pairwise(states):
        hear(LAWS, before, after, memory_h, evidence)
    return shares_of(evidence)


def test_before_any_minute_all_laws_are_alike():
    np.testing.assert_array_equal(shares_of(np.zeros(2)), [0.5, 0.5])


@pytest.mark.parametrize(("load", "law"), [(CALM, 0), (WILD, 1)])
def test_a_load_is_told_by_its_minutes(load, law):
    assert heard(load[700:900])[law] > 0.99


def test_a_load_that_changes_its_law_is_believed_after_a_while():
    turned = heard(np.r_[CALM[:1440], WILD[:240]])
    assert turned[1] > 0.99
    assert heard(np.r_[WILD[:240], CALM[:1440]])[0] > 0.99


def test_a_minute_that_nobody_measured_is_no_evidence():
    evidence = np.array([0.0, -3.0])
    hear(LAWS, -1, 5, 8.0, evidence)
    hear(LAWS, 5, -1, 8.0, evidence)
    np.testing.assert_array_equal(evidence, [0.0, -3.0])


def test_a_minute_that_no_law_expected_changes_no_odds():
    evidence = np.zeros(2)
    hear(LAWS, 3, STATES - 1, 1e9, evidence)
    np.testing.assert_allclose(evidence, 0.0, atol=1e-6)


def test_laws_are_weighed_by_their_probability():
    state = 12 * MOODS + 2 * 3

    def after(*shares):
        row = empty_row(STATES)
        listed = add_laws(LAWS, np.array(shares), state, row, 0)
        assert set(row.places[:listed]) == set(np.flatnonzero(row.minutes))
        return row.minutes

    both = after(0.25, 0.75)
    np.testing.assert_allclose(both, 0.25 * after(1.0, 0.0) + 0.75 * after(0.0, 1.0))
    assert both.sum() == pytest.approx(LAWS.minutes[state])


def test_the_chain_of_a_law_that_is_certain_is_that_law():
    chain = chain_of(LAWS, np.array([0.0, 1.0]), np.zeros(0, np.int64), 1.0, RARE)
    np.testing.assert_array_equal(chain.size, LAWS.size[1])
    for s, size in enumerate(chain.size):
        np.testing.assert_array_equal(chain.state[s, :size], LAWS.state[1, s, :size])
        np.testing.assert_allclose(chain.probability[s, :size], LAWS.probability[1, s, :size])


def test_a_law_that_is_told_stands_in_for_all_others():
    policy = MdpPolicy(MdpConfig(known_law=True), COUNTS)
    assert policy.shared()[0].laws.size.shape == (1, STATES)
