from __future__ import annotations

import dataclasses
import itertools

import pytest
from pydantic import ValidationError

from dsp_gym.calibration.config import CalibrationConfig, fitted_runs
from dsp_gym.calibration.observations import MeasuredRun, SteadyPart
from dsp_gym.errors import ConfigError
from dsp_gym.job.catalog import load_job
from dsp_gym.metrics.samples import Samples

SPEC = load_job("flink-runs-read")


def grid(tasks=(1, 2, 4), levels=(0, 1, 2, 3)):
    """Saturated runs and what they show."""
    runs, seen = [], []
    for p, level in itertools.product(tasks, levels):
        parallelism = {"source": 1, "split": 2, "state": p, "sink": 1}
        levels_of = {"source": -1, "split": -1, "state": level, "sink": -1}
        name = f"p{p}-l{level}"
        steps = ((0.0, 1e6),)
        runs.append(MeasuredRun(name, SPEC, parallelism, levels_of, steps, Samples.of(())))
        seen.append(SteadyPart(name, 0, 35, parallelism, levels_of, 1e6, 1.0, 0, 0, True))
    return runs, seen


def config(**rest) -> CalibrationConfig:
    return CalibrationConfig(job="x", recordings=("x",), **rest)


def test_a_third_begins_with_the_corners():
    assert fitted_runs(config(fit="third"), *grid()) == {"p1-l0", "p1-l3", "p4-l3", "p4-l0"}


def test_a_third_of_more_runs_spreads_into_the_middle():
    chosen = fitted_runs(config(fit="third"), *grid((1, 2, 4, 8)))
    assert len(chosen) == 5
    assert len(chosen - {"p1-l0", "p1-l3", "p8-l3", "p8-l0"}) == 1


def test_the_rule_does_not_look_at_rates():
    runs, seen = grid()
    other = [dataclasses.replace(o, rate_per_s=1e3 * i + 1) for i, o in enumerate(seen)]
    assert fitted_runs(config(fit="third"), runs, seen) == fitted_runs(
        config(fit="third"), runs, other
    )


def test_a_bound_on_parallelism_counts_only_vertices_that_are_scaled():
    chosen = fitted_runs(config(fit="parallelism", max_parallelism=1), *grid())
    assert chosen == {"p1-l0", "p1-l1", "p1-l2", "p1-l3"}  # split always has two


def test_all_is_all():
    assert len(fitted_runs(config(), *grid())) == 12


def test_a_bound_without_its_rule_is_refused():
    with pytest.raises(ValidationError, match="max_parallelism"):
        config(fit="third", max_parallelism=2)
    with pytest.raises(ValidationError, match="max_parallelism"):
        config(fit="parallelism")


def test_a_list_of_names_is_fitted_and_the_rest_is_predicted():
    assert fitted_runs(config(fit=["p1-l0", "p4-*"]), *grid()) == {
        "p1-l0", "p4-l0", "p4-l1", "p4-l2", "p4-l3",
    }  # fmt: skip


def test_a_misspelt_name_to_fit_is_an_error_that_offers_the_nearest():
    with pytest.raises(ConfigError, match=r"fit.*x1-l0.*Did you mean 'p1-l0'"):
        fitted_runs(config(fit=["p1-l3", "x1-l0"]), *grid())


def test_an_empty_list_to_fit_is_refused():
    with pytest.raises(ValidationError):
        config(fit=[])
