"""Results of moves, valid moves, and a teacher's decision as an action."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from dsp_gym.envs import action
from dsp_gym.envs.action import (
    DOUBLE,
    DS2,
    HOLD,
    LEVEL_DOWN,
    LEVEL_UP,
    LOGITS,
    MINUS_ONE,
    MINUS_QUARTER,
    MOVES,
    PLUS_ONE,
    PLUS_QUARTER,
)
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.snapshot import Status
from dsp_gym.loop.topology import Topology
from tests.strategies import (
    blank_snapshot,
    chain_spec,
    random_configuration,
    random_snapshot,
    random_topology,
    seeds,
    spec_of,
)

SOURCE, MAP, WINDOW, SINK = range(4)


def seen(p: int = 8, level: int = 1, **values):
    topology = Topology.of([chain_spec()])
    given = {
        "parallelism": [[2, p, p, 1]],
        "memory_level": [[0, level, level, level]],
        "cache_hits_total": [[np.nan, np.nan, 5.0, np.nan]],
    }
    return blank_snapshot(topology, **given | values)


@pytest.mark.parametrize(
    ("move", "to"),
    [
        (HOLD, 8),
        (MINUS_QUARTER, 6),
        (MINUS_ONE, 7),
        (PLUS_ONE, 9),
        (PLUS_QUARTER, 10),
        (DOUBLE, 16),
    ],
)
def test_a_move_leads_where_its_name_says(move, to):
    parallelism, _ = action.targets(seen(), 0.8)
    assert parallelism[0, MAP, move] == to


@pytest.mark.parametrize(("p", "moves"), [(1, [1, 1, 1, 2, 2, 2]), (24, [24, 18, 23, 24, 24, 24])])
def test_moves_stay_inside_the_bounds(p, moves):
    parallelism, _ = action.targets(seen(p), 0.8)
    assert parallelism[0, MAP, :6].tolist() == moves


def test_a_quarter_is_at_least_one_task():
    parallelism, _ = action.targets(seen(2), 0.8)
    assert parallelism[0, MAP, [MINUS_QUARTER, PLUS_QUARTER]].tolist() == [1, 3]


def test_the_move_of_ds2_is_its_optimum_at_the_target_utilization():
    # 100/s per source task; the map does 100/s per busy second and task
    snapshot = seen(
        8,
        records_in_per_s=[[1600.0, 1600, 1600, 1600]],
        records_out_per_s=[[1600.0, 1600, 1600, 1600]],
        busy_ms_per_s=[[100.0, 1000, 500, 100]],
        busy_max_ms_per_s=[[100.0, 1000, 500, 100]],
        pending_growth_per_s=[[0.0, np.nan, np.nan, np.nan]],
    )
    parallelism, _ = action.targets(snapshot, 0.8)
    assert parallelism[0, MAP, DS2] == 10  # 8 tasks at 100 % are 10 at 80 %
    assert parallelism[0, WINDOW, DS2] == 5


def test_memory_moves_are_levels_and_a_stateless_vertex_only_gives_up_or_takes_back():
    _, level = action.targets(seen(level=1), 0.8)
    assert level[0, WINDOW].tolist() == [1, 0, 2]
    assert level[0, MAP].tolist() == [1, -1, 1]
    _, level = action.targets(seen(level=0), 0.8)
    assert level[0, WINDOW, LEVEL_DOWN] == 0  # RocksDB needs some
    _, level = action.targets(seen(level=-1), 0.8)
    assert level[0, MAP, LEVEL_UP] == 0


def test_a_vertex_with_state_keeps_its_memory_while_no_counter_is_known():
    _, level = action.targets(seen(level=1, cache_hits_total=np.nan), 0.8)
    assert level[0, WINDOW].tolist() == [1, 0, 2]


def test_sources_and_fixed_vertices_keep_their_parallelism():
    parallelism, level = action.targets(seen(), 0.8)
    assert set(parallelism[0, SOURCE]) == {2}
    assert set(level[0, SOURCE]) == {0}
    assert set(parallelism[0, SINK]) == {1}


@pytest.mark.parametrize(
    "state",
    [{"status": [Status.SAVEPOINTING]}, {"status": [Status.RESTARTING]}, {"window_fill": [0]}],
)
def test_while_nothing_is_measured_or_the_job_rescales_only_holding_is_valid(state):
    valid = action.masks(*action.targets(seen(**state), 0.8)).reshape(4, LOGITS)
    assert valid.sum() == 8
    assert valid[:, [HOLD, MOVES]].all()


@settings(max_examples=40)
@given(seed=seeds())
def test_a_valid_move_changes_something_and_an_invalid_one_holds(seed):
    rng = np.random.default_rng(seed)
    topology = random_topology(rng, 3)
    snapshot = random_snapshot(rng, topology)
    parallelism, level = action.targets(snapshot, 0.8)
    valid = action.masks(parallelism, level).reshape(3, -1, LOGITS)
    tables, row = topology.tables, topology.row
    assert np.all(parallelism >= tables.min_parallelism[row][..., None])
    assert np.all(parallelism <= tables.max_parallelism[row][..., None])
    assert np.all(level < tables.levels[row][:, None, None])
    moved = parallelism != snapshot.parallelism[..., None]
    np.testing.assert_array_equal(valid[..., 1:MOVES], moved[..., 1:])
    shifted = level != snapshot.memory_level[..., None]
    np.testing.assert_array_equal(valid[..., MOVES + 1 :], shifted[..., 1:])
    still = tables.kind[row] < 1  # padding and sources
    assert valid[still].sum() == 2 * still.sum()


@settings(max_examples=40)
@given(seed=seeds())
def test_what_is_decoded_is_encoded_as_something_that_means_the_same(seed):
    rng = np.random.default_rng(seed)
    snapshot = random_snapshot(rng, random_topology(rng, 3))
    targets = action.targets(snapshot, 0.8)
    drawn = rng.integers(0, [7, 3], (3, snapshot.topology.max_vertices, 2)).reshape(3, -1)
    decision = action.decode(drawn, *targets)
    again = action.decode(action.encode(decision, *targets), *targets)
    np.testing.assert_array_equal(again.parallelism, decision.parallelism)
    np.testing.assert_array_equal(again.memory_level, decision.memory_level)


@settings(max_examples=40)
@given(seed=seeds())
def test_the_nearest_action_to_any_decision_is_valid(seed):
    rng = np.random.default_rng(seed)
    topology = random_topology(rng, 3)
    targets = action.targets(random_snapshot(rng, topology), 0.8)
    decision = ScalingDecision(*random_configuration(rng, topology), ("",) * 3)
    pairs = action.encode(decision, *targets).reshape(3, -1, 2)
    valid = action.masks(*targets).reshape(3, -1, LOGITS)
    assert np.take_along_axis(valid[..., :MOVES], pairs[..., :1], 2).all()
    assert np.take_along_axis(valid[..., MOVES:], pairs[..., 1:], 2).all()


def test_padding_has_a_valid_nearest_action():
    narrow = spec_of(
        "narrow",
        {"name": "source", "kind": "source"},
        {"name": "sink", "kind": "sink", "inputs": [{"from": "source"}]},
    )
    topology = Topology.of([narrow, chain_spec()])
    snapshot = blank_snapshot(topology)
    decision = ScalingDecision(snapshot.parallelism, snapshot.memory_level, ("", ""))
    assert not action.encode(decision, *action.targets(snapshot, 0.8)).any()


@pytest.mark.parametrize("actions", [[[7, 0]], [[0, 3]], [[-1, 0]], [[0, 0, 0]]])
def test_an_action_outside_its_space_is_refused(actions):
    parallelism = np.ones((1, 1, action.MOVES), np.int64)
    level = np.zeros((1, 1, action.MEMORY_MOVES), np.int64)
    with pytest.raises(ValueError, match=r"outside its space|expected \(1, 2\)"):
        action.decode(np.array(actions), parallelism, level)
