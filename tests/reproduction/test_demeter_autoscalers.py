"""Demeter CARS (demeter_cars_*.csv): the published autoscalers as policies, and their job files."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.config.files import find
from dsp_gym.job.catalog import load_job
from dsp_gym.policies.registry import make
from dsp_gym.simulation.options import SimulationOptions
from dsp_gym.studies.reproduce.closed_loop import InterruptedJobs, ReplayedOutage
from dsp_gym.studies.reproduce.demeter import SETUPS, simulate
from dsp_gym.studies.reproduce.demeter_jobs import JOBS, job_files


@pytest.mark.slow
def test_shipped_job_files_are_what_the_fit_writes(data_folder):
    for name, text in job_files(data_folder).items():
        assert find("jobs", name).read_text(encoding="utf-8") == text
    assert set(job_files(data_folder)) == set(JOBS)


@pytest.mark.validate
def test_a_seed_gives_the_same_day_twice_and_another_seed_another(data_folder):
    setup = SETUPS["reactive"]
    first, again, other = (simulate(setup, data_folder, seed) for seed in (3, 3, 4))
    assert first.slots == again.slots
    assert np.array_equal(first.late, again.late)
    assert first.slots != other.slots


def test_the_operators_keys_are_the_published_ones():
    options = make("demeter-operator").options
    assert (options.stabilization_ms, options.window_ms) == (120_000, 60_000)
    assert (options.utilization_target, options.utilization_boundary) == (0.35, 0.15)
    assert (options.restart_ms, options.catch_up_ms) == (60_000, 300_000)


@pytest.mark.parametrize(("read_again_s", "more"), [(0.0, 0.0), (24.0, 24.0)])
def test_a_failure_stops_the_job_and_reads_again(read_again_s, more):
    failure = ReplayedOutage(100, 10, reread_s=read_again_s)
    jobs = InterruptedJobs(load_job("demeter-cars"), SimulationOptions(trace=True), [failure])
    jobs.reset(np.array([0]), np.full((1, 200), 30_000.0))
    jobs.advance(110)
    processed, pending = jobs.trace[0, :110, 1], jobs.trace[0, 109, 5]
    assert processed[99] == pytest.approx(30_000.0, rel=0.05)
    assert not processed[100:110].any()
    assert pending >= (10 + more) * 30_000.0
    jobs.advance(60)
    assert jobs.trace[0, 169, 1] >= 30_000.0  # it catches up
