"""Gauges that do not show the load, records read again after a restart, and cold new tasks."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.topology import Topology
from dsp_gym.simulation.state import X
from tests.simulating import ask, exact, line

SHOWN = {
    "cpu": [0.2, 0.5, 0.0, 0.0, 0.0],
    "lag_s": [2.0, 0.0, 0.0, 0.0, 0.0],
    "vertices": {
        "map": {"busy": [0.1, 0.4, 0, 0.1, 0], "backpressured": [0, 0.2, 0, 0, 0]},
        "sink": {"busy": [0.05, 0, 0, 0, 0]},
    },
}
RATE = 500.0
"""Half of what one task of the map carries."""


def started(spec: JobSpec, tasks: int, rate: float = RATE, seconds: int = 120) -> SimulatedJobs:
    jobs = SimulatedJobs(Topology.of([spec]), exact(measurement={"stabilization_s": 0}))
    jobs.reset(np.array([0]), np.full((1, 1), rate), parallelism=np.array([[4, tasks, 1]]))
    jobs.advance(seconds)
    return jobs


def with_partitions(spec: JobSpec) -> JobSpec:
    given = spec.model_dump(by_alias=True)
    given["vertices"][0]["partitions"] = 12
    return JobSpec.model_validate(given)


def test_gauges_show_the_signals_of_the_load():
    seen = started(line(signals=SHOWN), 1).snapshot()
    assert seen.busy_ms_per_s[0] == pytest.approx([0.0, 300.0, 50.0], abs=1)
    assert seen.backpressured_ms_per_s[0] == pytest.approx([0.0, 100.0, 0.0], abs=1)
    assert seen.idle_ms_per_s[0, 1] == pytest.approx(600.0, abs=2)
    assert seen.tm_cpu_load[0] == pytest.approx(0.45, abs=0.002)


def test_signals_know_the_number_of_tasks():
    # Two tasks at a quarter of what each does alone: 0.1 + 0.4 * 0.25 + 0.1 * 0.25 * ln 2.
    seen = started(line(signals=SHOWN), 2).snapshot()
    assert seen.busy_ms_per_s[0, 1] == pytest.approx(217.3, abs=1)


def test_signals_do_not_change_what_happens():
    plain, shown = started(line(), 1, 1200.0), started(line(signals=SHOWN), 1, 1200.0)
    assert np.array_equal(plain.state.vertex[..., X.pending], shown.state.vertex[..., X.pending])
    assert np.array_equal(plain.state.latency_s, shown.state.latency_s)


def test_the_fullest_partition_shows_a_lag_at_rest():
    seen = started(with_partitions(line(signals=SHOWN)), 1).snapshot()
    assert seen.pending_records[0, 0] == 0.0
    share = seen.pending_partitions_max_subtask[0, 0] / 12
    assert seen.pending_records_max_subtask[0, 0] == pytest.approx(2.0 * RATE * share, rel=0.01)


def test_a_restart_in_place_reads_again_what_came_since_the_checkpoint():
    rescale = {"mode": "in_place", "outage_s": [20, 20, 20]}
    found = []
    for interval_s in (0.0, 60.0):
        jobs = started(line(rescale=rescale | {"checkpoint_interval_s": interval_s}), 2)
        ask(jobs, map=3)
        found.append(float(jobs.state.vertex[0, 0, X.pending]))
    assert found[0] == 0.0
    assert 0.0 < found[1] <= 60 * RATE


def test_nothing_is_read_again_that_a_job_has_not_read():
    rescale = {"mode": "in_place", "outage_s": [20, 20, 20], "checkpoint_interval_s": 3600}
    jobs = started(line(rescale=rescale), 2, seconds=30)
    ask(jobs, map=3)
    assert jobs.state.vertex[0, 0, X.pending] <= 30 * RATE


@pytest.mark.parametrize(("before", "after", "waits"), [(1, 2, 0.5), (2, 4, 0.5), (4, 1, 0.0)])
def test_tasks_that_a_rescale_adds_are_cold(before, after, waits):
    rescale = {"mode": "in_place", "outage_s": [20, 20, 20], "cold_s": 30}
    jobs = started(line(rescale=rescale), before)
    ask(jobs, map=after)
    jobs.advance(20 + 29)
    # The share of the new tasks has waited since the outage began, the others have caught up.
    assert jobs.state.vertex[0, 0, X.pending] == pytest.approx(waits * RATE * 49, abs=2 * RATE)
    jobs.advance(200)
    assert jobs.state.vertex[0, 0, X.pending] == 0.0
    assert jobs.state.vertex[0, 0, X.cold] == 0.0


def test_a_job_starts_with_warm_tasks():
    rescale = {"mode": "in_place", "outage_s": [20, 20, 20], "cold_s": 30}
    assert started(line(rescale=rescale), 1, seconds=3).state.vertex[0, 0, X.pending] == 0.0
