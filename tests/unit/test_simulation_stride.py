"""Quiet strides: seconds computed at once; any other stride leaves no trace."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.job.catalog import load_job
from dsp_gym.job.tables import NO_WINDOW
from dsp_gym.loop.topology import Topology
from dsp_gym.metrics.samples import SAMPLE_S
from dsp_gym.simulation.flow import flow
from dsp_gym.simulation.state import C, X, fixed_columns
from dsp_gym.simulation.stride import Q, lanes, quiet_stride
from tests.simulating import exact, line

SCRATCH = [X.allowed, X.blocked, X.emit, X.offer, X.now, X.wait_s]
"""What the next second computes anew."""


def begun(job, rate_per_s: float, seconds: int) -> SimulatedJobs:
    spec = load_job(job) if isinstance(job, str) else job
    jobs = SimulatedJobs(Topology.of([spec]), exact())
    jobs.reset(np.array([1]), np.array([[rate_per_s]]))
    jobs.advance(seconds)
    return jobs


def window_of(jobs: SimulatedJobs) -> int:
    windows = fixed_columns(jobs.topology.tables)[0, :, C.window] != NO_WINDOW
    return int(np.flatnonzero(windows)[0])


def both(jobs: SimulatedJobs, load: np.ndarray | None = None):
    """Whether the stride is quiet, its state and lanes; and the state second by second."""
    t, tick = jobs.topology.tables, int(jobs.state.tick[0])
    n, c = int(t.n[0]), fixed_columns(t)[0]
    rates = np.full(tick + SAMPLE_S, jobs.rates[0, -1])
    if load is not None:
        rates[tick : tick + len(load)] = load
    at_once, one_by_one = jobs.state.vertex[0].copy(), jobs.state.vertex[0].copy()
    q = lanes(n)
    graph = t.upstream[0], t.in_share[0]
    quiet = quiet_stride(n, c, *graph, at_once, rates, tick, q)
    seconds = [
        flow(n, c, *graph, one_by_one, rates[tick + i], tick + i)[:3] for i in range(SAMPLE_S)
    ]
    return quiet, at_once, q[n], one_by_one, np.array(seconds)


@pytest.mark.parametrize("job", ["line", "nexmark-q11", "random-dag-5"])
def test_a_quiet_stride_is_its_seconds(job):
    jobs = begun(line() if job == "line" else job, 300.0, 60)
    load = 300.0 * np.array([1.0, 0.9, 1.1, 0.7, 1.05])
    quiet, at_once, total, one_by_one, seconds = both(jobs, load)
    assert quiet
    np.testing.assert_array_equal(at_once, one_by_one)
    np.testing.assert_array_equal(total[Q.now, :SAMPLE_S], seconds[:, 0])
    np.testing.assert_array_equal(total[Q.wait_s, :SAMPLE_S], seconds[:, 2])


def test_a_window_may_fire_in_a_quiet_stride():
    spec = load_job("nexmark-q8")  # a tumbling window of 10 s, and results that fit into buffers
    jobs = begun(spec, 300.0, 25)
    window = int(
        np.flatnonzero(fixed_columns(jobs.topology.tables)[0, :, C.window] != NO_WINDOW)[0]
    )
    quiet, at_once, _, one_by_one, _ = both(jobs)
    assert quiet
    assert at_once[window, X.outbox] > 0.0  # it has fired
    np.testing.assert_array_equal(at_once, one_by_one)
    jobs.advance(SAMPLE_S)
    quiet, at_once, _, one_by_one, _ = both(jobs)  # in its first second the results leave
    assert quiet
    assert at_once[window, X.outbox] == 0.0
    np.testing.assert_array_equal(at_once, one_by_one)


def test_one_second_above_capacity_is_not_quiet_and_nothing_has_happened():
    jobs = begun(line(), 500.0, 60)  # the map carries 1,000 records/s
    before = jobs.state.vertex[0].copy()
    quiet, at_once, *_ = both(jobs, load=np.array([500.0, 500.0, 500.0, 1001.0, 500.0]))
    assert not quiet
    before[:, SCRATCH] = at_once[:, SCRATCH] = 0.0
    np.testing.assert_array_equal(at_once, before)


def test_records_that_wait_are_not_quiet():
    jobs = begun(line(), 500.0, 60)
    for column in (X.pending, X.queue):
        jobs.state.vertex[0, 0 if column == X.pending else 1, column] = 1.0
        assert not both(jobs)[0]
        jobs.state.vertex[0, :, column] = 0.0
    assert both(jobs)[0]


def test_results_without_room_put_the_windows_back():
    spec = load_job("nexmark-q8")
    jobs = begun(spec, 0.5 * spec.source.rate_per_s, 25)
    window = int(
        np.flatnonzero(fixed_columns(jobs.topology.tables)[0, :, C.window] != NO_WINDOW)[0]
    )
    columns = [X.outbox, X.pane, X.since, X.periods, X.missing, X.behind, X.content]
    jobs.state.vertex[0, window, X.pane] = 1e9  # fires at the end of the stride
    # It fires in the last second but one, so that the last one finds no room.
    jobs.state.tick[0] += 1
    before = jobs.state.vertex[0, window, columns].copy()
    quiet, at_once, *_ = both(jobs)
    assert not quiet
    np.testing.assert_array_equal(at_once[window, columns], before)
