"""Quantiles of the latency histogram, and an outcome from the kernel's columns."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.simulation.outcome import histogram_quantile, simulated_outcome
from dsp_gym.simulation.state import LATENCY_BINS, LATENCY_MAX_S, LATENCY_MIN_S, OUTCOME
from tests.simulating import constant, exact, line

EDGES = np.geomspace(LATENCY_MIN_S, LATENCY_MAX_S, LATENCY_BINS + 1)


def test_a_quantile_lies_in_the_bin_that_holds_it():
    histogram = np.zeros((1, LATENCY_BINS))
    histogram[0, 10], histogram[0, 40] = 95, 5
    low, high = histogram_quantile(histogram, 0.5)[0], histogram_quantile(histogram, 0.99)[0]
    assert EDGES[10] <= low <= EDGES[11]
    assert EDGES[40] <= high <= EDGES[41]


def test_quantiles_rise_and_span_what_was_counted():
    histogram = np.random.default_rng(0).integers(0, 9, (5, LATENCY_BINS)).astype(float)
    values = np.array([histogram_quantile(histogram, q) for q in np.linspace(0, 1, 21)])
    assert np.all(np.diff(values, axis=0) >= 0)
    assert np.all((values >= LATENCY_MIN_S) & (values <= LATENCY_MAX_S * (1 + 1e-9)))


def test_where_nothing_was_counted_there_is_no_quantile():
    assert np.isnan(histogram_quantile(np.zeros((1, LATENCY_BINS)), 0.5)[0])


def test_the_quantile_of_a_steady_job_is_its_latency_within_a_bin():
    jobs = constant(line(), 500.0, exact())
    latency = jobs.advance(100).latency_p95_s[0]
    found = histogram_quantile(jobs.state.histogram, 0.5)[0]
    assert found == pytest.approx(latency, rel=EDGES[1] / EDGES[0] - 1)


def test_latency_of_an_outcome_is_its_sum_over_its_seconds():
    columns = np.zeros((2, len(OUTCOME)))
    columns[:, 0], columns[:, 3] = [60, 0], [30, 0]
    assert simulated_outcome(columns).latency_p95_s.tolist() == [0.5, 0.0]


def test_cost_is_what_is_requested_and_what_is_provisioned():
    spec = line(prices={"core_hour": 1.0, "gib_hour": 0.5})
    jobs = constant(spec, 10.0, exact(), map=3)
    outcome = jobs.advance(3600)
    # sources stand elsewhere: 3 + 1 tasks of 1 core and 134 + 39 + 158 MiB, on one TaskManager
    gib = 4 * (134 + 39 + 158) / 1024
    assert outcome.core_s[0] == 4 * 3600
    assert outcome.cost[0] == pytest.approx(4 * 1.0 + gib * 0.5)
    assert outcome.tm_s[0] == 3600
    assert outcome.cost_provisioned[0] == pytest.approx(4 * 1.0 + 2.0 * 0.5)
