"""The smallest configuration that carries a load, against the analytic capacity."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.job.capacity import mst
from dsp_gym.job.catalog import list_jobs
from dsp_gym.job.sizing import cost_per_s, reference_cost_per_s, sized
from dsp_gym.loop.topology import Topology
from tests.simulating import line

SPECS = [spec for spec in list_jobs() if spec.job.startswith("nexmark")]


def configuration(spec, rate, utilization=1.0, factor=1.0):
    tables = Topology.of([spec]).tables
    level = tables.start_level.copy()
    return sized(
        tables, np.array([0]), np.array([rate]), utilization, np.array([factor]), level
    ), level


def test_tasks_follow_from_rate_capacity_and_utilization():
    spec = line()  # 1,000/s per task of the map
    assert configuration(spec, 3500.0)[0].tolist() == [[4, 4, 1]]
    assert configuration(spec, 3500.0, 0.7)[0].tolist() == [[4, 5, 1]]
    assert configuration(spec, 3500.0, 1.0, 2.0)[0].tolist() == [[4, 7, 1]]
    assert configuration(spec, 1e9)[0].tolist() == [[4, 24, 1]]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.job)
def test_a_sized_job_carries_its_load_and_one_task_less_does_not(spec):
    rate = 0.5 * spec.source.rate_per_s
    (parallelism,), _ = configuration(spec, rate)
    names = [vertex.name for vertex in spec.topological_order()]
    given = dict(zip(names, (int(p) for p in parallelism), strict=True))
    assert mst(spec, given).rate_per_s >= rate * (1 - 1e-9)
    for vertex in spec.vertices:
        if vertex.kind != "source" and vertex.scalable and given[vertex.name] > 1:
            less = given | {vertex.name: given[vertex.name] - 1}
            assert mst(spec, less).rate_per_s < rate, vertex.name


def test_cost_counts_cores_and_memory_without_sources():
    spec = line(prices={"core_hour": 3.6, "gib_hour": 3.6})
    tables = Topology.of([spec]).tables
    p, level = np.array([[4, 3, 1]]), np.array([[0, 1, -1]])
    gib = (3 * (134 + 39 + 316) + 134 + 39) / 1024
    found = cost_per_s(tables, np.array([0]), p, level)[0]
    assert found == pytest.approx((4 + gib) * 3.6 / 3600)


def test_the_unit_of_cost_is_the_smallest_configuration_at_the_reference_rate():
    spec = line(prices={"core_hour": 3.6, "gib_hour": 0.0})  # one core second costs 0.001
    topology = Topology.of([spec], [0, 0])
    rate = spec.source.rate_per_s  # 1,000/s per task of the map
    for headroom in (1.0, 0.7, 0.5):
        cores = int(np.ceil(rate / 1000 / headroom)) + 1  # and one sink
        found = reference_cost_per_s(topology.tables, topology.row, headroom)
        assert found == pytest.approx([cores / 1000] * 2)
