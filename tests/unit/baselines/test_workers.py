"""CPU load, backlog and workers of a whole job, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from baselines.workers import (
    highest_cpu,
    job_backlog,
    mean_cpu,
    whole,
    with_workers,
    workers,
)
from dsp_gym.loop.topology import Topology
from tests.strategies import blank_snapshot, chain_spec

NAN = np.nan


def jobs(**rest):
    return Topology.of([chain_spec(max_parallelism_per_vertex=64, **rest)])


def source(value):
    return [[value, NAN, NAN, NAN]]


def backlog(pending=0.0, growth=0.0, read=1000.0, topology=None):
    found = job_backlog(
        blank_snapshot(
            topology or jobs(),
            pending_records=source(pending),
            pending_growth_per_s=source(growth),
            records_in_per_s=source(read),
        )
    )
    return found.time_s[0], found.growth[0]


def test_the_backlog_is_counted_in_seconds_of_the_throughput():
    assert backlog(pending=45_000.0, growth=-250.0) == (45.0, -0.25)


def test_the_backlogs_of_all_sources_add_up():
    both = chain_spec()
    second = both.vertices[0].model_copy(update={"name": "other"})
    sink = both.vertices[-1]
    inputs = (*sink.inputs, sink.inputs[0].model_copy(update={"from_": "other"}))
    last = sink.model_copy(update={"inputs": inputs})
    spec = both.model_copy(update={"vertices": (*both.vertices[:-1], second, last)})
    topology = Topology.of([spec])
    is_source = topology.tables.kind[0] == 0
    assert is_source.sum() == 2
    snapshot = blank_snapshot(
        topology,
        pending_records=np.where(is_source, 3000.0, NAN),
        pending_growth_per_s=np.where(is_source, 50.0, NAN),
        records_in_per_s=np.full(5, 100.0),
    )
    found = job_backlog(snapshot)
    assert (found.time_s[0], found.growth[0]) == (30.0, 0.5)


def test_without_throughput_only_the_absence_of_a_backlog_is_known():
    assert backlog(pending=0.0, growth=0.0, read=0.0) == (0.0, 0.0)
    time_s, growth = backlog(pending=5.0, growth=1.0, read=0.0)
    assert np.isnan(time_s)
    assert np.isnan(growth)


def test_an_unknown_backlog_of_a_log_is_unknown_and_a_generator_has_none():
    assert np.isnan(backlog(pending=NAN)[0])
    generator = jobs(source={"rate_per_s": 1000.0, "log": False})
    assert backlog(pending=NAN, growth=NAN, topology=generator) == (0.0, 0.0)


def cpu(load=NAN, busy=(100.0, 400.0, 600.0, 200.0), hottest=(NAN,) * 4, shared=False):
    return blank_snapshot(
        jobs(slot_sharing=shared),
        tm_cpu_load=[load],
        busy_ms_per_s=[busy],
        busy_max_ms_per_s=[hottest],
    )


def test_taskmanagers_show_the_load_of_the_workers_where_tasks_share_slots():
    assert mean_cpu(cpu(0.4, shared=True))[0] == 0.4
    # Slots of their own: a saturated task loads one core of many.
    assert mean_cpu(cpu(0.4))[0] == 0.6


def test_a_slot_is_as_busy_as_its_tasks_together():
    # 2 sources, 4 maps, 4 windows and a sink in 4 slots: (0.2 + 1.6 + 2.4 + 0.2) / 4 = 1.1.
    four = {"parallelism": [[2, 4, 4, 1]], "tm_cpu_load": [NAN]}
    topology = jobs(slot_sharing=True)
    full = blank_snapshot(topology, busy_ms_per_s=[[100.0, 400.0, 600.0, 200.0]], **four)
    assert mean_cpu(full)[0] == 1.0
    half = blank_snapshot(topology, busy_ms_per_s=[[50.0, 200.0, 300.0, 100.0]], **four)
    assert mean_cpu(half)[0] == pytest.approx(0.55)


def test_the_mean_is_unknown_where_a_vertex_does_not_report():
    assert np.isnan(mean_cpu(cpu(busy=(100.0, 900.0, NAN, 200.0)))[0])


@pytest.mark.parametrize(
    ("snapshot", "least", "most"),
    [
        (cpu(0.4), 0.6, 0.6),
        (cpu(0.8), 0.8, 0.8),
        (cpu(0.4, hottest=(NAN, 950.0, NAN, NAN)), 0.95, 0.95),
        (cpu(0.4, busy=(100.0, 900.0, NAN, 200.0)), 0.9, NAN),
        (cpu(0.8, busy=(NAN,) * 4), 0.8, NAN),
        (cpu(NAN, busy=(NAN,) * 4), NAN, NAN),
    ],
)
def test_the_highest_load_has_a_lower_bound_from_what_is_known(snapshot, least, most):
    lower, upper = highest_cpu(snapshot)
    assert (lower[0], upper[0]) == pytest.approx((least, most), nan_ok=True)


def test_the_largest_vertex_that_can_be_scaled_counts_the_workers():
    # The source and the sink are fixed.
    assert workers(blank_snapshot(jobs(), parallelism=[[2, 3, 5, 1]])).tolist() == [5]


def test_a_part_of_a_worker_is_one_and_round_off_is_none():
    found = whole(np.array([0.0, 2.0, 2.0 + 1e-12, 2.1, np.inf]))
    assert found[:4].tolist() == [1.0, 2.0, 2.0, 3.0]
    assert found[4] == 2**31 - 1
    assert np.isnan(whole(np.array([NAN]))[0])


def test_every_vertex_takes_the_count_within_its_bounds():
    snapshot = blank_snapshot(jobs(), parallelism=[[2, 3, 5, 1]])
    yes, no = np.array([True]), np.array([False])
    assert with_workers(snapshot, yes, np.array([9.0])).tolist() == [[2, 9, 9, 1]]
    assert with_workers(snapshot, yes, np.array([1e9])).tolist() == [[2, 64, 64, 1]]
    assert with_workers(snapshot, no, np.array([NAN])).tolist() == [[2, 3, 5, 1]]
