"""No policy that keeps the SLO costs less than the bound, for any job, load and decisions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.clairvoyant.bound import bounds, needed_per_s
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.job.sizing import sized
from dsp_gym.loop.topology import Topology
from tests.simulating import FAULTY, exact, line, random_job, wanted
from tests.strategies import seeds

FREE = exact(mechanisms={"rescale": False})
"""Rescaling costs nothing: what the bound grants to everyone, and the hardest case for it."""


def random_load(rng: np.random.Generator, seconds: int) -> np.ndarray:
    """A level with noise, steps and short peaks, sometimes nothing at all."""
    level = float(rng.choice([50.0, 500.0, 5000.0]))
    steps = np.repeat(rng.uniform(0, 1, seconds // 20 + 1), 20)[:seconds]
    peaks = (rng.uniform(size=seconds) < 0.03) * rng.uniform(0, 2, seconds)
    return level * (steps + peaks) * rng.uniform(0.8, 1.2, seconds)


def played(rng: np.random.Generator, rows: int, options=FREE, seconds: int = 120):
    """Rows that follow their load with little to spare; what each cost, and whether it kept up."""
    specs = [random_job(rng, f"random-{i}") for i in range(2)]
    topology = Topology.of(specs, [int(k) for k in rng.integers(0, 2, rows)])
    jobs = SimulatedJobs(topology, options)
    tables, row = jobs.topology.tables, topology.row
    rates = np.array([random_load(rng, seconds) for _ in range(rows)])
    level = rng.integers(-1, tables.levels[row][:, None], topology.mask.shape)
    level = np.where(topology.mask, level, -1)
    spare = rng.uniform(0.5, 1.05, rows)

    def follows(now: int, ahead: int) -> np.ndarray:
        seen = rates[:, now : now + ahead].max(axis=1) / spare
        return sized(tables, row, seen, 1.0, np.ones(rows), level)

    interval = int(rng.choice([1, 2, 5, 20]))
    jobs.reset(rng.integers(0, 2**62, rows), rates, parallelism=follows(0, interval),
               memory_level=level)  # fmt: skip
    cost, late, owed = np.zeros(rows), np.zeros(rows), np.zeros(rows)
    for now in range(0, seconds, interval):
        jobs.apply(wanted(follows(now, interval), level))
        outcome = jobs.advance(interval)
        cost += outcome.cost
        late += outcome.slo_s
        owed += outcome.arrived - outcome.processed
    held_back = (tables.has_log[row] == 0) & (owed > 1e-6)  # a generator that emitted less
    least, _ = bounds(tables, row, rates)
    return cost, (late == 0) & ~held_back, least


@pytest.mark.slow
@settings(max_examples=60)
@given(seed=seeds())
def test_nothing_that_keeps_the_slo_costs_less(seed):
    cost, feasible, least = played(np.random.default_rng(seed), 12)
    assert np.all(least[feasible] <= cost[feasible] * (1 + 1e-9))


@settings(max_examples=10)
@given(seed=seeds())
def test_faults_and_outages_only_make_it_dearer(seed):
    cost, feasible, least = played(np.random.default_rng(seed), 12, FAULTY)
    assert np.all(least[feasible] <= cost[feasible] * (1 + 1e-9))


def test_the_law_above_is_not_empty():
    results = [played(np.random.default_rng(seed), 40) for seed in range(4)]
    shares = np.concatenate([(least / cost)[feasible] for cost, feasible, least in results])
    assert len(shares) > 40
    assert shares.max() > 0.9  # and not for want of a bound


@settings(max_examples=20)
@given(seed=seeds(), more=st.floats(1.0, 3.0))
def test_more_load_is_never_cheaper(seed, more):
    rng = np.random.default_rng(seed)
    topology = Topology.of([random_job(rng)])
    rates = random_load(rng, 60)[None, :]
    less, _ = bounds(topology.tables, topology.row, rates)
    dear, _ = bounds(topology.tables, topology.row, rates * more)
    assert less[0] <= dear[0] * (1 + 1e-9)
    assert less[0] == pytest.approx(bounds(topology.tables, topology.row, rates)[0][0])


@pytest.mark.parametrize("seed", range(6))
def test_who_rescales_freely_all_the_time_comes_close_to_the_bound(seed):
    rng = np.random.default_rng(seed)
    # A task carries 1,000 records/s, and what the source takes is what the map works off.
    spec = line(slo={"latency_s": 5}, buffer_records=1)
    topology = Topology.of([spec])
    jobs = SimulatedJobs(topology, FREE)
    hours = np.arange(1200) / 1200 * 2 * np.pi
    rates = (6000 + 4000 * np.sin(hours + seed)) * rng.uniform(0.9, 1.1, 1200)
    strict = Topology.of([line(slo={"latency_s": 1}, buffer_records=1)]).tables
    target = np.cumsum(needed_per_s(strict, 0, rates))
    jobs.reset(np.array([seed]), rates[None, :])
    served = cost = late = 0.0
    for second in range(0, 1200, 5):  # a new speed counts with the next sample
        # Whole tasks, as many as what is left of the steadiest service needs.
        parallelism = jobs.state.parallelism.copy()
        parallelism[0, 1] = np.clip(np.ceil((target[second + 4] - served) / 5000), 1, 24)
        jobs.apply(wanted(parallelism, np.full_like(parallelism, -1)))
        outcome = jobs.advance(5)
        served += float(outcome.processed[0])
        cost += float(outcome.cost[0])
        late += float(outcome.slo_s[0])
    least, _ = bounds(topology.tables, topology.row, rates[None, :])
    assert late == 0
    assert 0.93 * cost < least[0] <= cost
