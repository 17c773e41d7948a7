"""The cheapest configuration for a load: monotone, true in the simulator, free of scale."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.job.capacity import mst_per_s
from dsp_gym.job.catalog import load_job
from dsp_gym.job.sizing import cost_per_s
from dsp_gym.loop.topology import Topology
from dsp_gym.sizing import Frontiers, Prior, ServiceModel
from dsp_gym.sizing.lateness import late_share
from tests.simulating import exact, keyed, line
from tests.strategies import random_topology

SEEDS = st.integers(0, 2**32 - 1)


def frontiers(jobs, most=24, enough=2.0):
    model = ServiceModel()
    model.reset(jobs, Prior.of_files(jobs))
    found = Frontiers.empty(jobs, most)
    every = np.ones(len(jobs), dtype=bool)
    found.find(jobs, model, every, enough * jobs.tables.rate_per_s[jobs.row])
    return found


@given(SEEDS)
def test_it_rises_in_cost_and_in_capacity_and_keeps_the_bounds(seed):
    jobs = random_topology(np.random.default_rng(seed), 3)
    found = frontiers(jobs, most=8)
    tables = jobs.tables
    for j, k in enumerate(jobs.row.tolist()):
        count = int(found.size[j])
        assert 1 <= count <= 8
        assert np.all(np.diff(found.rate_per_s[j, :count]) > 0)
        assert np.all(np.diff(found.cost_per_s[j, :count]) > 0)
        mask = jobs.mask[j]
        p, level = found.parallelism[j, :count][:, mask], found.level[j, :count][:, mask]
        assert np.all(p >= tables.min_parallelism[k][mask])
        assert np.all(p <= tables.max_parallelism[k][mask])
        has_state = (tables.stateful[k] == 1) & (tables.kind[k] > 0)
        assert np.all(level[:, has_state[mask]] >= 0)  # no managed memory is for others
        assert np.all((level >= -1) & (level < tables.levels[k]))
        rows = np.full(count, k)
        full = found.parallelism[j, :count], found.level[j, :count]
        np.testing.assert_allclose(found.cost_per_s[j, :count], cost_per_s(tables, rows, *full))


def test_no_other_configuration_carries_as_much_for_less():
    """Against all configurations of a job with two vertices that can be scaled."""
    spec = keyed({"keys": 4e5}, max_parallelism_per_vertex=12, source={"rate_per_s": 8000.0})
    jobs = Topology.of([spec])
    found = frontiers(jobs, most=64)
    count = int(found.size[0])
    for p, level in itertools.product(range(1, 13), range(3)):
        tasks, memory = np.array([4, p, 1]), np.array([-1, level, -1])
        rate = mst_per_s(jobs.tables, 0, tasks, memory)
        cost = cost_per_s(jobs.tables, np.array([0]), tasks[None], memory[None])[0]
        if rate <= found.rate_per_s[0, count - 1]:
            places, _ = found.grid(np.array([[rate * (1 - 1e-6)]]), 0.03)
            assert found.cost_per_s[0, places[0, 0]] <= cost * (1 + 1e-9)


@pytest.mark.parametrize(
    "spec",
    [line(source={"rate_per_s": 6000.0}), keyed({"keys": 4e5}, source={"rate_per_s": 8000.0})],
    ids=["line", "keyed"],
)
def test_a_configuration_carries_its_rate_in_the_simulator_and_no_more(spec):
    found = frontiers(Topology.of([spec]))
    places = np.unique([0, int(found.size[0]) // 2, int(found.size[0]) - 1])
    jobs = Topology.of([spec], [0] * (2 * len(places)))
    shares = np.repeat([0.98, 1.04], len(places))
    loads = shares * np.tile(found.rate_per_s[0, places], 2)
    simulated = SimulatedJobs(jobs, exact())
    simulated.reset(
        np.arange(len(jobs)),
        np.repeat(loads[:, None], 3600, axis=1),
        parallelism=np.tile(found.parallelism[0, places], (2, 1)),
        memory_level=np.tile(found.level[0, places], (2, 1)),
    )
    simulated.advance(1200)  # caches warm up
    before = np.nansum(simulated.collector.snapshot().pending_records, axis=1)
    arrived = simulated.advance(1200).arrived
    grown = (np.nansum(simulated.collector.snapshot().pending_records, axis=1) - before) / arrived
    carries = shares < 1
    assert np.all(grown[carries] <= 0.001)
    assert np.all(grown[~carries] >= 0.01)


@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_a_job_of_other_speed_has_the_same_configurations(factor):
    found = []
    for times in (1.0, factor):
        spec = line(cpu_us=1000.0 / times, source={"rate_per_s": 6000.0 * times})
        vertices = tuple(
            v.model_copy(update={"cpu_us_per_record": 1.0 / times}) if v.name != "map" else v
            for v in spec.vertices
        )
        found.append(frontiers(Topology.of([spec.model_copy(update={"vertices": vertices})])))
    one, other = found
    np.testing.assert_array_equal(one.parallelism, other.parallelism)
    np.testing.assert_allclose(one.rate_per_s * factor, other.rate_per_s)
    np.testing.assert_allclose(one.cost_per_s, other.cost_per_s)


def test_thinning_keeps_the_cheapest_and_the_largest():
    jobs = Topology.of([load_job("random-dag-5")])
    full, few = frontiers(jobs, most=64), frontiers(jobs, most=6)
    last, end = int(full.size[0]) - 1, int(few.size[0]) - 1
    assert end <= 5
    assert few.rate_per_s[0, 0] == full.rate_per_s[0, 0]
    assert few.rate_per_s[0, end] == full.rate_per_s[0, last]


def test_a_grid_of_loads_is_answered_with_what_a_search_of_all_configurations_finds():
    """Two jobs, each with a vertex of up to 12 tasks and 3 memory levels, or none."""
    slow = keyed({"keys": 4e5}, max_parallelism_per_vertex=12, source={"rate_per_s": 8000.0})
    fast = line(max_parallelism_per_vertex=12, source={"rate_per_s": 6000.0})
    jobs = Topology.of([slow, fast])
    model = ServiceModel()
    model.reset(jobs, Prior.of_files(jobs))
    found = Frontiers.empty(jobs, 64)
    found.find(jobs, model, np.ones(2, dtype=bool), np.full(2, np.inf))
    most = found.rate_per_s[:, -1]
    rates = np.outer(most, np.linspace(1.2, 0.01, 200))  # the first are more than any carries
    places, late = found.grid(rates, 0.03)
    for j, levels in enumerate((range(3), [-1])):
        tried = [
            (np.array([[4, p, 1]] * 2), np.array([[-1, level, -1]] * 2))
            for p, level in itertools.product(range(1, 13), levels)
        ]
        carried = np.array([model.capacity_per_s(jobs, p, level)[j] for p, level in tried])
        row = np.array([jobs.row[j]])
        costs = np.array([cost_per_s(jobs.tables, row, p[:1], x[:1])[0] for p, x in tried])
        for g, rate in enumerate(rates[j]):
            enough = carried >= min(rate, most[j]) * (1 - 1e-9)
            best = min(np.flatnonzero(enough), key=lambda i: (costs[i], -carried[i]))
            p, level = found.parallelism[j, places[j, g]], found.level[j, places[j, g]]
            assert (p[1], level[1]) == (tried[best][0][0, 1], tried[best][1][0, 1])
            assert late[j, g] == late_share(rate, carried[best], 0.03)
    assert np.all(late[rates > most[:, None]] > 0.5)


def test_a_load_that_a_configuration_just_carries_is_late_half_of_the_time():
    found = frontiers(Topology.of([line(source={"rate_per_s": 6000.0})]))
    places, late = found.grid(np.array([[500.0, 1000.0, 1001.0, 4500.0]]), 0.05)
    assert found.parallelism[0, places[0], 1].tolist() == [1, 1, 2, 5]
    assert late[0] == pytest.approx([0.0, 0.5, 0.0, 0.0132], abs=1e-3)


def test_a_job_of_which_nothing_is_known_has_no_frontier():
    jobs = Topology.of([line()])
    model = ServiceModel()
    model.reset(jobs, Prior.none(jobs))
    found = Frontiers.empty(jobs, 8)
    found.find(jobs, model, np.array([True]), np.array([1e4]))
    assert found.size.tolist() == [0]
    places, late = found.grid(np.array([[1.0, 2.0]]), 0.03)
    assert places.tolist() == [[-1, -1]]
    assert np.isnan(late).all()
