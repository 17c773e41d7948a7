"""Samples of simulated jobs: those a collector could have taken, and no others."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.backends.simulated.recording import SimulatedRecording, simulated_samples
from dsp_gym.loop.configuration import Configuration
from dsp_gym.loop.topology import Topology
from dsp_gym.metrics.samples import Samples
from dsp_gym.records.manifest import RecordedLoad
from dsp_gym.records.recording import Recording, gaps_in
from dsp_gym.simulation.options import Faults
from tests.simulating import ask, constant, exact, keyed

RESCALE = {"outage_s": [20, 35, 60]}


@pytest.mark.parametrize("mode", ["redeploy", "in_place"])
def test_a_job_that_is_down_reports_nothing(mode):
    jobs = constant(keyed(rescale={"mode": mode, **RESCALE}), 2000.0, exact(), map=4)
    before = simulated_samples(jobs, 60)
    ask(jobs, map=7)
    after = simulated_samples(jobs, 240)
    up_s = float(jobs.state.running_since[0])
    down_s = up_s - float(jobs.state.outage_s[0])
    assert up_s - down_s > 15
    # It reports while it writes its savepoint, until it stops, and again when it is back.
    grid = np.arange(5.0, 301.0, 5.0)
    seen = np.unique(np.concatenate([before.t_s, after.t_s]))
    assert seen.tolist() == grid[(grid <= down_s) | (grid > up_s)].tolist()


def test_a_long_run_is_written_hour_by_hour_as_it_is_at_once(tmp_path):
    seconds = 2 * 3600 + 1803
    load = RecordedLoad(name="steady", steps=((0, 1000.0),))
    recording = SimulatedRecording(tmp_path / "r", keyed(), exact())
    record = recording.add("a", Configuration.of_spec(keyed()), load, seconds)
    jobs = SimulatedJobs(Topology.of([keyed()]), exact())
    jobs.reset(np.array([0]), np.full((1, seconds), 1000.0))
    whole = simulated_samples(jobs, seconds)
    read = Recording.open(tmp_path / "r").run("a").samples()
    assert list(read.rows()) == list(whole.rows())
    assert record.rows == len(whole)
    assert record.gaps == gaps_in(whole, 0.0, float(seconds))


def test_counters_begin_anew_when_a_job_is_back():
    faults = Faults(failures_per_hour=20, recovery_s=20)
    jobs = constant(keyed(), 2000.0, exact(faults=faults), map=4)
    samples = simulated_samples(jobs, 900)
    assert 0 < jobs.state.running_since[0] < 800  # it failed
    own = int(jobs.state.samples_taken[0])
    shares = [_mean(samples, f"{n}_ms_total", 900.0) for n in ("busy", "backpressured", "idle")]
    assert sum(shares) == pytest.approx(5000.0 * own)  # since it is back, all of the time


def _mean(samples: Samples, metric: str, t_s: float) -> float:
    """Over the subtasks of the map."""
    chosen = (samples.t_s == t_s) & (samples.vertex == "map") & (samples.metric == metric)
    return float(samples.value[chosen].mean())
