"""Draws of a few runs, and their bars."""

from __future__ import annotations

import dataclasses
import math

import pytest

from dsp_gym.calibration.errors import errors_of
from dsp_gym.calibration.model import JobModel
from dsp_gym.calibration.observations import SteadyPart
from dsp_gym.job.catalog import load_job
from dsp_gym.studies.validation.few_runs import BARS, Drawn, few_runs, table

SPEC = load_job("flink-runs-direct-read")


def part(tasks: int, level: int) -> SteadyPart:
    """A saturated run of the job as its file describes it."""
    p = {"source": 1, "split": 2, "state": tasks, "sink": 1}
    levels = {"source": -1, "split": -1, "state": level, "sink": -1}
    asked = SteadyPart(
        f"p{tasks}-l{level}", 0.0, 60.0, p, levels, math.inf, 1.0, 0.0, 0.0, True, latency="mean"
    )
    said = JobModel(SPEC).predict(asked)
    hit, busy = dict(said.hit), dict(said.busy)
    return dataclasses.replace(asked, rate_per_s=said.rate_per_s, hit=hit, busy=busy)


def drawn(noise: float | None, **errors: float) -> Drawn:
    none = errors_of(SPEC, [])
    return Drawn("x", 3, (("a",),), dataclasses.replace(none, **errors), None, noise)


def test_a_bar_is_that_of_a_steady_job_or_one_and_a_half_times_the_jobs_own_noise():
    assert drawn(0.02).bars == BARS
    assert drawn(0.1).bars == BARS | {"rate_median": pytest.approx(0.15)}
    assert drawn(None).bars == BARS


def test_only_what_was_measured_is_held_to_a_bar():
    found = drawn(0.1, rate_median=0.14, rate_p90=0.21, hit_mean=0.06)
    assert found.holds == {"rate_median": True, "rate_p90": False, "hit_mean": False}
    assert "rate p90, hit mean" in table([found])


@pytest.mark.slow
def test_three_runs_of_a_job_that_is_as_its_file_says_predict_the_rest():
    seen = [part(p, level) for p in (1, 2, 4) for level in (0, 2)]
    found = few_runs(SPEC, seen, seeds=2)
    assert len(set(found.draws)) == 2
    assert all(len(draw) == 3 for draw in found.draws)
    assert found.errors.parts == 2 * 3
    assert all(found.holds.values())
