"""The observation: bounds, padding, memory of the configuration before, and scale."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings

from dsp_gym.envs.observation import (
    FJ,
    FV,
    JOB_FEATURES,
    LIMIT,
    VERTEX_FEATURES,
    ObservationEncoder,
    ObservationLayout,
)
from dsp_gym.loop.topology import Topology
from tests.strategies import blank_snapshot, chain_spec, random_snapshot, random_topology, seeds

MAP, WINDOW = 1, 2


def feature(observation, layout, name, vertex=None):
    if vertex is None:
        return float(observation[layout.job][list(JOB_FEATURES).index(name)])
    table = observation[layout.vertex].reshape(layout.vertices, FV)
    return float(table[vertex, list(VERTEX_FEATURES).index(name)])


def snapshots(rng, topology, steps):
    previous = None
    for step in range(steps):
        previous = random_snapshot(rng, topology, 600.0 + 60 * step, unknown=0.2, previous=previous)
        yield previous


def test_the_layout_leaves_no_gap():
    layout = ObservationLayout(5)
    parts = [layout.vertex, layout.job, layout.mask, layout.adjacency]
    assert [p.stop - p.start for p in parts] == [5 * FV, FJ, 5, 25]
    assert [p.start for p in parts[1:]] == [p.stop for p in parts[:-1]]
    assert layout.size == layout.adjacency.stop


@settings(max_examples=40)
@given(seed=seeds())
def test_any_snapshot_gives_finite_numbers_inside_the_bounds(seed):
    rng = np.random.default_rng(seed)
    topology = random_topology(rng, 3)
    encoder = ObservationEncoder(topology)
    for snapshot in snapshots(rng, topology, 4):
        seen = encoder.encode(snapshot)
        assert seen.shape == (3, encoder.layout.size)
        assert seen.dtype == np.float32
        assert np.isfinite(seen).all()
        assert np.abs(seen).max() <= LIMIT


@settings(max_examples=25)
@given(seed=seeds())
def test_room_for_more_vertices_is_filled_with_zeros_and_changes_nothing_else(seed):
    rng = np.random.default_rng(seed)
    topology = random_topology(rng, 2)
    exact = ObservationEncoder(topology)
    roomy = ObservationEncoder(topology, topology.max_vertices + 3)
    snapshot = random_snapshot(rng, topology)
    small, large = exact.encode(snapshot), roomy.encode(snapshot)
    v, w = exact.layout.vertices, roomy.layout.vertices
    wide = large[:, roomy.layout.vertex].reshape(2, w, FV)
    np.testing.assert_array_equal(wide[:, :v], small[:, exact.layout.vertex].reshape(2, v, FV))
    assert not wide[:, v:].any()
    np.testing.assert_array_equal(large[:, roomy.layout.job], small[:, exact.layout.job])
    assert not large[:, roomy.layout.mask][:, v:].any()
    edges = large[:, roomy.layout.adjacency].reshape(2, w, w)
    np.testing.assert_array_equal(
        edges[:, :v, :v], small[:, exact.layout.adjacency].reshape(2, v, v)
    )
    assert not edges[:, v:].any()
    assert not edges[:, :, v:].any()


@settings(max_examples=25)
@given(seed=seeds())
def test_vertices_that_are_padding_say_nothing(seed):
    rng = np.random.default_rng(seed)
    topology = random_topology(rng, 3)
    encoder = ObservationEncoder(topology)
    seen = encoder.encode(random_snapshot(rng, topology))
    features = seen[:, encoder.layout.vertex].reshape(3, -1, FV)
    assert not features[~topology.mask].any()
    np.testing.assert_array_equal(seen[:, encoder.layout.mask] == 1, topology.mask)


@settings(max_examples=25)
@given(seed=seeds())
def test_a_batch_is_its_jobs_and_memory_survives_json_and_arrays(seed):
    rng = np.random.default_rng(seed)
    topology = random_topology(rng, 3)
    taken = list(snapshots(rng, topology, 4))
    together = ObservationEncoder(topology)
    alone = [ObservationEncoder(topology.take([j])) for j in range(3)]
    listed, copied = ObservationEncoder(topology), ObservationEncoder(topology)
    for step, snapshot in enumerate(taken):
        seen = together.encode(snapshot)
        for j, encoder in enumerate(alone):
            one = encoder.encode(snapshot.take(np.array([j])))
            np.testing.assert_array_equal(one[0], seen[j])
        if step > 1:
            np.testing.assert_array_equal(listed.encode(snapshot), seen)
            np.testing.assert_array_equal(copied.encode(snapshot), seen)
        listed.restore(json.loads(json.dumps(together.state())))
        copied.load(together.save())


def test_the_graph_stands_in_the_adjacency():
    topology = Topology.of([chain_spec()])
    encoder = ObservationEncoder(topology)
    seen = encoder.encode(blank_snapshot(topology))[0]
    expected = np.eye(4, k=-1)  # each vertex reads from the one before it
    np.testing.assert_array_equal(seen[encoder.layout.adjacency].reshape(4, 4), expected)


def test_busy_time_and_backlog_are_shares_and_seconds():
    topology = Topology.of([chain_spec()])
    encoder = ObservationEncoder(topology)
    snapshot = blank_snapshot(
        topology,
        busy_ms_per_s=250.0,
        records_in_per_s=1000.0,
        pending_records=[[99_000.0, np.nan, np.nan, np.nan]],
        latency_p95_s=20.0,
    )
    seen = encoder.encode(snapshot)[0]
    assert feature(seen, encoder.layout, "busy", MAP) == pytest.approx(0.25)
    assert feature(seen, encoder.layout, "backlog") == pytest.approx(2.0)  # 99 s
    assert feature(seen, encoder.layout, "latency") == pytest.approx(1.0)  # ten times the bound


@pytest.mark.slow
def test_the_configuration_before_is_remembered_and_forgotten_by_reset():
    topology = Topology.of([chain_spec()])
    encoder = ObservationEncoder(topology)
    before = {"parallelism": [[2, 2, 4, 1]], "memory_level": [[0, 0, 0, 0]]}
    after = {"parallelism": [[2, 8, 4, 1]], "memory_level": [[0, 0, 1, 0]]}
    encoder.encode(blank_snapshot(topology, cache_hit_rate=0.3, **before))
    seen = encoder.encode(blank_snapshot(topology, 660, cache_hit_rate=0.9, **after))[0]
    assert feature(seen, encoder.layout, "last_move", MAP) == 2.0
    assert feature(seen, encoder.layout, "last_level_change", WINDOW) == 1.0
    assert feature(seen, encoder.layout, "hit_rate_before", WINDOW) == pytest.approx(0.3)
    assert feature(seen, encoder.layout, "hit_rate", WINDOW) == pytest.approx(0.9)
    encoder.reset()
    seen = encoder.encode(blank_snapshot(topology, 720, **after))[0]
    assert feature(seen, encoder.layout, "last_move", MAP) == 0.0


def test_the_trend_of_the_load_is_a_logarithm_of_a_ratio():
    topology = Topology.of([chain_spec()])
    encoder = ObservationEncoder(topology)
    encoder.encode(blank_snapshot(topology, 600, records_in_per_s=100.0))
    seen = encoder.encode(blank_snapshot(topology, 660, records_in_per_s=400.0))[0]
    assert feature(seen, encoder.layout, "rate_trend") == pytest.approx(2.0)
    slow = feature(seen, encoder.layout, "rate_trend_60min")
    mean = 100 + 300 * (1 - np.exp(-60 / 3600))
    assert slow == pytest.approx(np.log2(400 / mean), rel=1e-5)


@settings(max_examples=25)
@given(seed=seeds())
def test_encoding_some_jobs_leaves_the_memory_of_the_others(seed):
    rng = np.random.default_rng(seed)
    topology = random_topology(rng, 3)
    first, second = snapshots(rng, topology, 2)
    encoder, whole = ObservationEncoder(topology), ObservationEncoder(topology)
    encoder.encode(first)
    whole.encode(first)
    before, rows = encoder.save(), np.array([0, 2])
    np.testing.assert_array_equal(encoder.encode(second, rows=rows), whole.encode(second)[rows])
    for name, after in encoder.save().items():
        np.testing.assert_array_equal(after[1], before[name][1])
        np.testing.assert_array_equal(after[rows], whole.save()[name][rows])
