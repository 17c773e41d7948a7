from __future__ import annotations

import numpy as np
import pytest

from baselines.clairvoyant.candidates import candidates, described
from baselines.clairvoyant.frontier import frontier, released_every_s
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.job.capacity import mst_per_s
from dsp_gym.loop.topology import Topology
from tests.simulating import exact, line
from tests.strategies import spec_of


def bursting():
    """A tumbling window of 20 s before a map of which a task carries 1,000 records/s."""
    return spec_of(
        "bursting",
        {"name": "source", "kind": "source", "cpu_us_per_record": 1.0, "parallelism": 4},
        {
            "name": "window",
            "inputs": [{"from": "source"}],
            "state": {
                "reads": 1,
                "keys": 1e4,
                "value_bytes": 100,
                "window": {"kind": "tumbling", "length_s": 20},
            },
        },
        {"name": "map", "inputs": [{"from": "window"}], "cpu_us_per_record": 1000.0},
        {"name": "sink", "kind": "sink", "inputs": [{"from": "map"}], "scalable": False},
        buffer_records=1e6,
    )


def test_without_firing_windows_candidates_are_the_frontier():
    jobs = Topology.of([line()])
    found, gap = candidates(jobs, 0, 64)
    full = frontier(jobs.tables, 0)
    assert gap == 0
    np.testing.assert_array_equal(found.parallelism, full.parallelism)
    assert found.capacity_per_s == pytest.approx(full.rate_per_s)
    assert not found.late_share(np.array([10.0, 1e6])).any()


def test_what_a_window_releases_reaches_all_that_stand_behind_it():
    assert released_every_s(Topology.of([bursting()]).tables, 0).tolist() == [0, 0, 20, 20]


def test_a_vertex_behind_a_window_is_late_though_it_carries_the_mean():
    spec = bursting()
    jobs = Topology.of([spec])
    parallelism = np.array([[4, 24, 4, 1]])
    level = np.zeros_like(parallelism)
    assert mst_per_s(jobs.tables, 0, parallelism[0], level[0]) == pytest.approx(4000)
    found = described(jobs, 0, parallelism, level)
    # 20 s of 2,000/s fire at once: ten seconds of work, of which the last two are in time.
    share = found.late_share(np.array([0.0, 2000.0]))[:, 0]
    assert share[0] == pytest.approx(0.0, abs=0.05)
    assert share[1] == pytest.approx((10 - 1 - 2) / 20, abs=0.06)


def test_lateness_is_what_a_simulation_of_its_own_says():
    spec = bursting()
    jobs = Topology.of([spec])
    found, _ = candidates(jobs, 0, 24)
    rng = np.random.default_rng(0)
    for _ in range(5):
        n = int(rng.integers(len(found)))
        rate = float(rng.uniform(0.2, 0.9) * found.capacity_per_s[n])
        simulated = SimulatedJobs(jobs, exact())
        simulated.reset(
            np.array([1]), np.array([[rate]]),
            parallelism=found.parallelism[[n]], memory_level=found.level[[n]],
        )  # fmt: skip
        simulated.advance(200)
        outcome = simulated.advance(400)
        share = found.late_share(np.array([rate]))[0, n]
        assert outcome.slo_s[0] / 400 == pytest.approx(share, abs=0.1)


def test_dearer_candidates_work_bursts_off_in_time():
    found, _ = candidates(Topology.of([bursting()]), 0, 64)
    rate = 500.0
    share = found.late_share(np.array([rate]))[0]
    able = found.capacity_per_s >= rate
    assert share[able].min() == 0
    assert share[able].max() > 0.2
    assert found.cost_per_s[able & (share == 0)].min() > found.cost_per_s[able].min()
