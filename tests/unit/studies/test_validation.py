"""The parts of the long validation that need no Flink."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.job.catalog import load_job
from dsp_gym.loop.configuration import Configuration
from dsp_gym.policies.registry import make
from dsp_gym.studies.running import one_task_each
from dsp_gym.studies.validation.closed_loop import LoopResult, simulated, summary
from dsp_gym.studies.validation.drive import compressed
from dsp_gym.studies.validation.overhead import interval


def test_a_loop_starts_with_one_task_and_memory_where_there_is_state():
    first = one_task_each(load_job("flink-q11"))
    assert set(first.parallelism.values()) == {1}
    assert first.memory_level == {"bids": -1, "session": 0, "sink": -1}


def test_ds2_needs_one_rescale_of_a_simulated_map_to_the_tasks_its_demand_asks_for():
    spec = load_job("flink-q1")  # 1 ms per record
    found = simulated(spec, 4000.0, make("ds2-local"))
    assert found.settled
    assert found.rescales == 1
    # 4,000 records/s of 1 ms at 60 % busy: 6.7 tasks.
    assert found.steps[-1].parallelism["map"] == 7
    assert found.achieved_per_s == pytest.approx(4000, rel=0.02)


def result(tasks: int, level: int) -> LoopResult:
    steps = (
        Configuration({"source": 1, "map": 1}, {"source": -1, "map": 0}),
        Configuration({"source": 1, "map": tasks}, {"source": -1, "map": level}),
    )
    return LoopResult(steps, True, 1000.0, 0.0)


@pytest.mark.parametrize(
    ("tasks", "level", "missed"),
    [(4, 1, set()), (5, 1, set()), (6, 1, {"parallelism"}), (4, 0, {"level"})],
)
def test_a_prediction_holds_within_one_task_and_with_the_level_exact(tasks, level, missed):
    row = summary("job", 1000.0, "ds2", result(4, 1), result(tasks, level))
    assert {name for name, holds in row["holds"].items() if not holds} == missed


def test_a_lost_rate_and_too_many_slots_are_misses():
    row = summary("job", 1100.0, "ds2", result(16, 0), result(16, 0))
    assert {name for name, holds in row["holds"].items() if not holds} == {"rate", "slots"}


def test_a_compressed_load_keeps_its_shape_and_ends_with_nothing():
    load = compressed(100, 500.0)
    assert load.shape == (101,)
    assert load.max() == pytest.approx(500.0)
    assert load[-1] == 0.0
    assert np.all(load[:-1] > 0)


def test_the_interval_of_a_constant_loss_is_that_loss():
    assert interval([0.02] * 8) == pytest.approx((0.02, 0.02, 0.02))


def test_the_interval_is_students():
    # Mean 0.02, standard deviation 0.01, t(3) = 3.182: 0.02 +- 3.182 * 0.00816 / 2.
    mean, low, high = interval([0.01, 0.02, 0.03, 0.02])
    assert (mean, low, high) == pytest.approx((0.02, 0.00701, 0.03299), abs=1e-5)
