from __future__ import annotations

import numpy as np
import pytest

from baselines.clairvoyant.bound import bounds, needed_per_s, taut_string
from baselines.clairvoyant.frontier import frontier, hull, lower_hull, thinned
from dsp_gym.job.capacity import mst
from dsp_gym.loop.topology import Topology
from tests.simulating import keyed, line


def tables_of(spec):
    return Topology.of([spec]).tables


def price_per_s(tasks: int, spec) -> float:
    """Tasks without managed memory, at the prices of the job file."""
    gib = (spec.memory.heap_mib + spec.memory.network_mib) / 1024
    return tasks * (spec.prices.core_hour + gib * spec.prices.gib_hour) / 3600


def test_the_hull_leaves_out_what_lies_above_a_line_between_its_neighbours():
    # From (0, 1): slope 0 to (1, 1), 2 to (2, 3), 1/2 on average to (3, 2): (2, 3) lies above.
    rates, costs = lower_hull(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0]))
    assert rates.tolist() == [0.0, 1.0, 3.0]
    assert costs.tolist() == [1.0, 1.0, 2.0]


def test_a_job_between_two_configurations_costs_what_lies_between():
    spec = line()  # a map task carries 1,000 records/s; source and sink are no limit
    cost = hull(tables_of(spec), 0)
    # One task of the sink and 1, 1, 2.5 tasks of the map.
    expected = [price_per_s(1 + tasks, spec) for tasks in (1, 1, 2.5)]
    assert cost(np.array([0.0, 1000.0, 2500.0])) == pytest.approx(expected)


def test_the_frontier_has_the_cheapest_configuration_for_every_load():
    found = frontier(tables_of(line()), 0)
    assert found.rate_per_s == pytest.approx(1000.0 * np.arange(1, 25))
    assert found.parallelism[:, 1].tolist() == list(range(1, 25))
    assert np.all(np.diff(found.cost_per_s) > 0)


def test_every_configuration_of_a_frontier_carries_what_it_says():
    spec = keyed()
    names = [vertex.name for vertex in spec.topological_order()]
    found = frontier(tables_of(spec), 0)
    assert found.level[:, 1].max() > found.level[:, 1].min()  # memory is worth its price for some
    assert found.level[:, 1].min() >= 0  # a vertex with state has some
    for rate, p, level in zip(found.rate_per_s, found.parallelism, found.level, strict=True):
        result = mst(
            spec,
            {"map": int(p[1])},
            {name: int(x) for name, x in zip(names, level, strict=True)},
        )
        assert result.rate_per_s == pytest.approx(rate, rel=1e-9)


def test_a_thinned_frontier_says_how_much_dearer_a_load_gets():
    full = frontier(tables_of(line()), 0)
    few, gap = thinned(full, 6)
    assert len(few) <= 7
    dearest = max(
        few.cost_per_s[few.cheapest(rate)] / cost
        for rate, cost in zip(full.rate_per_s, full.cost_per_s, strict=True)
    )
    assert gap == pytest.approx(dearest - 1)
    assert thinned(full, 24) == (full, 0.0)


def test_the_string_is_straight_where_it_can_be():
    low, high = np.array([0.0, 0.0, 0.0, 12.0]), np.array([5.0, 6.0, 12.0, 12.0])
    assert taut_string(low, high).tolist() == [3.0, 3.0, 3.0, 3.0]


def test_the_string_bends_only_at_the_curves():
    # Two at most may be served by the end of the second second, so the rest has to hurry.
    low, high = np.array([0.0, 0.0, 0.0, 12.0]), np.array([2.0, 2.0, 12.0, 12.0])
    assert taut_string(low, high).tolist() == [1.0, 1.0, 5.0, 5.0]


@pytest.mark.parametrize("seed", range(8))
def test_no_other_service_is_cheaper_says_a_linear_program(seed):
    optimize = pytest.importorskip("scipy.optimize", reason="needs the extra 'plan'")
    rng = np.random.default_rng(seed)
    size = 9
    high = np.cumsum(rng.integers(0, 10, size)).astype(float)
    low = np.maximum.accumulate(np.maximum(0.0, high - rng.uniform(0, 12, size)))
    slopes, offsets = np.array([0.0, 1.0, 4.0]), np.array([1.0, -2.0, -20.0])  # max of lines

    def cost(rates):
        return np.max(slopes * rates[:, None] + offsets, axis=1).sum()

    # Variables: rates, then costs; costs lie above every line, what is served between the curves.
    served = np.hstack([np.tril(np.ones((size, size))), np.zeros((size, size))])
    above = [np.hstack([slope * np.eye(size), -np.eye(size)]) for slope in slopes]
    best = optimize.linprog(
        np.r_[np.zeros(size), np.ones(size)],
        A_ub=np.vstack([served, -served, *above]),
        b_ub=np.r_[high, -low, *(np.full(size, -offset) for offset in offsets)],
        bounds=[(0, None)] * size + [(None, None)] * size,
    )
    assert cost(taut_string(low, high)) == pytest.approx(best.fun)


def test_a_peak_within_the_latency_bound_is_spread_over_it():
    spec = line(slo={"latency_s": 4})
    rates = np.full(300, 100.0)
    rates[150] = 700.0
    needed = needed_per_s(tables_of(spec), 0, rates)
    assert needed.sum() == pytest.approx(rates.sum(), rel=0.1)  # the last seconds may be owed
    assert needed.max() < 350
    assert np.all(np.cumsum(needed) <= np.cumsum(rates) + 1e-6)


def test_a_steady_load_is_bound_by_what_just_carries_it():
    spec = line()
    least, highest = bounds(tables_of(spec), np.zeros(1, int), np.full((1, 3600), 2500.0))
    assert highest[0] == pytest.approx(2500.0, rel=0.01)
    assert least[0] == pytest.approx(3600 * price_per_s(3.5, spec), rel=0.005)  # 2.5 and the sink
