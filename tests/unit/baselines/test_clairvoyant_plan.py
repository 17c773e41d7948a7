from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.clairvoyant.plan import Terms, plan, serve
from dsp_gym.sizing.lateness import COLD_SPEED
from tests.strategies import seeds

TERMS = Terms(
    interval_s=10, savepoint_s=2, outage_s=5, late_s=1.5, slo_price=2.0, rescale_price=3.0
)


def price_of(
    choice, arrivals_per_s, capacity_per_s, cost_per_s, first, terms, late_share=None, cold_s=None
):
    """What a plan costs in the same model: decisions while the job is down or cold are lost."""
    steps, now, backlog, price = len(arrivals_per_s) // terms.interval_s, first, 0.0, 0.0
    k = 0

    def run(begin: int, end: int, speed: float = 1.0) -> float:
        nonlocal backlog
        capacity = speed * float(capacity_per_s[now])
        backlog, late = serve(arrivals_per_s, begin, end, backlog, capacity, terms.late_s)
        if late_share is not None and end > begin:
            late += float(late_share[(end - 1) // terms.interval_s, now]) * (end - begin - late)
        return float(cost_per_s[now]) * (end - begin) + terms.slo_price * late

    while k < steps:
        begin, end = k * terms.interval_s, (k + 1) * terms.interval_s
        if choice[k] != now:
            stop = begin + terms.savepoint_s
            again = stop + terms.outage_s
            wanted = int(choice[begin // terms.interval_s])
            warm = again + (0 if cold_s is None else int(cold_s[wanted]))
            k = -(-warm // terms.interval_s)
            if k > steps:
                return math.inf
            price += terms.rescale_price + run(begin, stop)
            price += (float(cost_per_s[now]) + terms.slo_price) * terms.outage_s
            backlog += float(arrivals_per_s[stop:again].sum())
            now = wanted
            price += run(again, warm, COLD_SPEED) + run(warm, k * terms.interval_s)
        else:
            price += run(begin, end)
            k += 1
    return price


def brute_force(load, capacity, cost, first, terms, **more):
    """The least price over every choice of a configuration at every step."""
    steps = len(load) // terms.interval_s
    return min(
        price_of(np.array(choice), load, capacity, cost, first, terms, **more)
        for choice in itertools.product(range(len(capacity)), repeat=steps)
    )


def instance(seed: int):
    rng = np.random.default_rng(seed)
    capacity = np.sort(rng.uniform(5, 100, 3))
    cost = np.sort(rng.uniform(0.1, 3, 3))
    load = np.repeat(rng.uniform(0, 90, 5), 10) * rng.uniform(0.7, 1.3, 50)
    terms = Terms(
        interval_s=10,
        savepoint_s=int(rng.integers(0, 9)),
        outage_s=int(rng.integers(1, 16)),
        late_s=float(rng.uniform(0.1, 4)),
        slo_price=float(rng.choice([0.0, 0.1, 1.0, 10.0])),
        rescale_price=float(rng.choice([0.0, 1.0, 10.0])),
    )
    return load, capacity, cost, int(rng.integers(3)), terms


@pytest.mark.slow
@settings(max_examples=60)
@given(seed=seeds())
def test_the_plan_is_the_best_of_all_plans(seed):
    found = plan(*instance(seed), labels=64)
    assert found.gap == 0
    assert found.price == pytest.approx(brute_force(*instance(seed)), rel=1e-9, abs=1e-9)


@settings(max_examples=60)
@given(seed=seeds())
def test_a_plan_costs_what_following_it_costs(seed):
    load, capacity, cost, first, terms = instance(seed)
    found = plan(load, capacity, cost, first, terms)
    assert price_of(found.choice, load, capacity, cost, first, terms) == pytest.approx(found.price)


@settings(max_examples=60)
@given(seed=seeds(), cold_s=st.lists(st.integers(0, 25), min_size=3, max_size=3))
def test_a_plan_with_cold_caches_is_the_best_and_costs_what_following_it_costs(seed, cold_s):
    cold = np.array(cold_s)
    found = plan(*instance(seed), cold_s=cold, labels=64)
    best = brute_force(*instance(seed), cold_s=cold)
    assert found.price == pytest.approx(best, rel=1e-9, abs=1e-9)
    assert price_of(found.choice, *instance(seed), cold_s=cold) == pytest.approx(found.price)


def test_cold_caches_make_a_rescale_come_earlier_or_not_at_all():
    load = np.repeat([20.0, 20.0, 20.0, 20.0, 90.0, 90.0, 90.0, 90.0], 10)
    capacity, cost = np.array([30.0, 100.0]), np.array([0.1, 0.2])
    warm = plan(load, capacity, cost, 0, TERMS).choice
    cold = plan(load, capacity, cost, 0, TERMS, cold_s=np.array([20, 20])).choice
    assert 0 < cold.tolist().index(1) < warm.tolist().index(1)
    never = plan(load[:40], capacity, cost, 1, TERMS, cold_s=np.array([20, 20])).choice
    assert never.tolist() == [1] * 4


@settings(max_examples=60)
@given(seed=seeds(), labels=st.integers(1, 3))
def test_with_few_labels_the_best_plan_lies_within_the_stated_gap(seed, labels):
    found = plan(*instance(seed), labels=labels)
    best = brute_force(*instance(seed))
    assert best - 1e-9 <= found.price <= best + found.gap + 1e-9


def test_a_steady_load_that_is_carried_asks_for_nothing():
    found = plan(np.full(60, 50.0), np.array([60.0, 120.0]), np.array([1.0, 2.0]), 0, TERMS)
    assert found.choice.tolist() == [0] * 6
    assert found.price == pytest.approx(60.0)


def test_a_long_quiet_time_is_worth_a_rescale_and_a_short_one_is_not():
    capacity, cost = np.array([60.0, 120.0]), np.array([1.0, 2.0])
    short, long = np.full(30, 50.0), np.full(200, 50.0)
    assert set(plan(short, capacity, cost, 1, TERMS).choice.tolist()) == {1}
    assert plan(long, capacity, cost, 1, TERMS).choice.tolist() == [0] * 20


def test_a_rescale_is_made_before_the_peak_it_is_for():
    load = np.repeat([20.0, 20.0, 20.0, 90.0, 90.0, 90.0], 10)
    found = plan(load, np.array([30.0, 100.0]), np.array([0.1, 0.2]), 0, TERMS)
    # 5 s down at 20/s owe 100 records, which are caught up before the peak comes.
    assert found.choice.tolist().index(1) < 3
    # 60 s at 0.1 and 0.2, five seconds down and two to catch up at most, one rescale.
    assert found.price <= 12 + 7 * TERMS.slo_price + TERMS.rescale_price
