"""The benchmark of learning times both learners on the same work, in turn."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("sb3_contrib")

from agents.learner import Learner
from agents.studies import bench

pytestmark = pytest.mark.slow


def test_both_learners_are_timed_and_compared(tmp_path):
    learners = {}
    for name in bench.LEARNERS:
        config = bench._config("mlp", name)
        small = {"n_envs": 32, "n_steps": 4, "batch_size": 64}
        agent = config.agent.model_copy(update=small)
        learners[name] = Learner(config.model_copy(update={"agent": agent}), 0, tmp_path)
    native, sb3, times = bench._learning(learners, "mlp", 1, 30_000.0)
    assert all(
        each.model.num_timesteps == 2 * bench.ROLLOUTS * 32 * 4 for each in learners.values()
    )
    assert (native.bar, sb3.bar, times.bar) == (30_000, None, bench.TIMES)
    assert times.median == pytest.approx(native.median / sb3.median)
