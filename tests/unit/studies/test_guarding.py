"""The study of guardrails: its runs and their comparison."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.errors import ConfigError
from dsp_gym.studies.guarding import GuardedRuns, benchmark_of


def runs(cost, late):
    return GuardedRuns(np.array(cost), np.array(late), np.zeros(2), {})


def test_a_large_job_counts_no_more_than_a_small_one():
    found, others = runs([2.0, 100.0], [0.03, 0.02]), runs([1.0, 100.0], [0.01, 0.02])
    assert found.dearer(others) == pytest.approx(np.sqrt(2.0) - 1.0)
    assert found.later(others) == pytest.approx(0.01)


def test_a_cell_of_a_frontier_is_played_as_a_benchmark():
    config = benchmark_of("core-v2", "unseen-jobs-unseen-loads")
    assert "nexmark-q8" in config.jobs
    assert [load.name for load in config.loads.test.loads] == ["two-peaks", "flash-crowds"]


def test_a_cell_that_a_frontier_does_not_have_is_refused():
    with pytest.raises(ConfigError, match="core-v2 has no cell 'unseen-jobs'"):
        benchmark_of("core-v2", "unseen-jobs")


def test_training_jobs_are_those_that_policies_may_be_tuned_on():
    config = benchmark_of("core-v1", train=True)
    assert (config.split, "nexmark-q1" in config.jobs) == ("train", True)
