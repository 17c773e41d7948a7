"""DS2's equations against cases worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from dsp_gym.loop.rates import RATES, ds2_rates
from dsp_gym.loop.topology import Topology
from tests.strategies import (
    blank_snapshot,
    chain_spec,
    random_snapshot,
    random_topology,
    seeds,
    spec_of,
)

NAN = np.nan


def chain(**values):
    """source(2) -> map(1) -> window(1) -> sink(1, fixed), sources emit 100/s."""
    defaults = {
        "parallelism": [[2, 1, 1, 1]],
        "records_in_per_s": [[100.0, 50.0, 400.0, 400.0]],
        "records_out_per_s": [[100.0, 400.0, 400.0, 0.0]],
        "busy_ms_per_s": [[100.0, 1000.0, 500.0, 100.0]],
    }
    pending = values.pop("log", True)
    topology = Topology.of([chain_spec(source={"rate_per_s": 1.0, "log": pending})])
    return blank_snapshot(topology, **(defaults | values))


def test_ds2s_published_vector_gives_two_and_eight():
    # DS2's unit test: source 100/s, op1 takes 50/s and gives 400/s per instance, op2 takes 100/s.
    snapshot = chain(
        records_in_per_s=[[100.0, 50.0, 100.0, 0.0]],
        records_out_per_s=[[100.0, 400.0, 100.0, 0.0]],
        busy_ms_per_s=[[100.0, 1000.0, 1000.0, 0.0]],
    )
    assert ds2_rates(snapshot, "observed").demand[0, :3].tolist() == [100.0, 100.0, 800.0]
    assert ds2_rates(snapshot, "observed").optimal[0].tolist() == [2.0, 2.0, 8.0, 1.0]


def test_true_rate_is_records_over_useful_time_of_one_subtask():
    snapshot = chain(
        parallelism=[[2, 4, 1, 1]],
        records_in_per_s=[[100.0, 300.0, 1.0, 1.0]],
        busy_ms_per_s=[[100.0, 250.0, 1.0, 1.0]],
    )
    assert ds2_rates(snapshot).true_rate_per_task[0, 1] == pytest.approx(300.0)  # 300 / (0.25 * 4)


def test_offered_rate_adds_what_the_backlog_grows_by():
    snapshot = chain(pending_growth_per_s=[[60.0, NAN, NAN, NAN]])
    assert ds2_rates(snapshot, "offered").demand[0, 1] == pytest.approx(160.0)
    assert ds2_rates(snapshot, "observed").demand[0, 1] == pytest.approx(100.0)


def test_a_shrinking_backlog_is_not_demand():
    snapshot = chain(pending_growth_per_s=[[-30.0, NAN, NAN, NAN]])
    assert ds2_rates(snapshot, "offered").demand[0, 1] == pytest.approx(70.0)


def test_a_generator_without_a_log_has_only_its_observed_rate():
    snapshot = chain(log=False, pending_growth_per_s=[[60.0, NAN, NAN, NAN]])
    assert ds2_rates(snapshot, "offered").demand[0, 1] == pytest.approx(100.0)


def test_a_vertex_that_was_never_busy_has_no_optimum():
    snapshot = chain(busy_ms_per_s=[[100.0, 1000.0, 0.0, 0.0]])
    optimal = ds2_rates(snapshot).optimal[0]
    assert np.isnan(optimal[2])
    assert optimal[1] == pytest.approx(2.0)


def test_sources_and_fixed_sinks_keep_their_parallelism():
    optimal = ds2_rates(chain()).optimal[0]
    assert optimal[0] == 2.0
    assert optimal[3] == 1.0


def test_a_join_needs_the_sum_of_its_inputs_and_each_branch_gets_the_full_output():
    spec = spec_of(
        "diamond",
        {"name": "a", "kind": "source"},
        {"name": "left", "inputs": [{"from": "a"}]},
        {"name": "right", "inputs": [{"from": "a"}]},
        {"name": "join", "inputs": [{"from": "left"}, {"from": "right"}]},
    )
    snapshot = blank_snapshot(
        Topology.of([spec]),
        records_in_per_s=[[100.0, 50.0, 50.0, 75.0]],
        records_out_per_s=[[100.0, 25.0, 50.0, 0.0]],
        busy_ms_per_s=[[100.0, 500.0, 500.0, 500.0]],
    )
    # Selectivities 0.5 and 1, so the join would receive 50 + 100.
    assert ds2_rates(snapshot).demand[0].tolist() == [100.0, 100.0, 100.0, 150.0]


@pytest.mark.parametrize("source_rate", ["observed", "offered"])
def test_nothing_arriving_needs_nothing(source_rate):
    snapshot = chain(
        records_in_per_s=[[0.0, 10.0, 10.0, 10.0]],
        records_out_per_s=[[0.0, 10.0, 10.0, 0.0]],
        pending_growth_per_s=[[0.0, NAN, NAN, NAN]],
    )
    assert ds2_rates(snapshot, source_rate).optimal[0, 1:3].tolist() == [0.0, 0.0]


@pytest.mark.slow
@given(seed=seeds())
def test_a_batch_gives_what_its_jobs_give_alone(seed):
    rng = np.random.default_rng(seed)
    snapshot = random_snapshot(rng, random_topology(rng, 5))
    together = ds2_rates(snapshot)
    for job in range(5):
        alone = ds2_rates(snapshot.take(np.array([job])))
        assert alone.block.shape == (len(RATES), 1, snapshot.topology.max_vertices)
        np.testing.assert_array_equal(together.block[:, job : job + 1], alone.block)
        np.testing.assert_array_equal(together.take(np.array([job])).block, alone.block)
