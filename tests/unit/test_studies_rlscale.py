"""The page after RLScale-Bench: which setting is chosen, and what the page says of it."""

from __future__ import annotations

import pytest

from dsp_gym.config.files import load_model
from dsp_gym.evaluation.config import BenchmarkConfig
from dsp_gym.evaluation.scorecard import ScorecardCell
from dsp_gym.studies.rlscale import choose, page_of


@pytest.fixture(scope="module")
def config() -> BenchmarkConfig:
    return load_model(BenchmarkConfig, "benchmarks", "rlscale")


def cell(policy: str, load: str, replicas: float, late: float) -> ScorecardCell:
    hours = 6.0
    metrics = {"cost": replicas, "slo_share": late, "core_h": (replicas + 1.0) * hours}
    return ScorecardCell(
        policy=policy, job="rlscale-service", load=load, seed=0, metrics=metrics, trips={}
    )


def test_the_cheapest_setting_that_is_rarely_late_is_chosen(config):
    two = tuple(one for one in config.policies if one.name in ("hpa@0.5", "hpa@0.6", "ds2@0.6"))
    played = [
        cell("hpa@0.5", "periodic", 8.0, 0.01),
        cell("hpa@0.6", "periodic", 6.0, 0.05),
        cell("ds2@0.6", "periodic", 6.0, 0.05),
    ]
    part = config.model_copy(update={"policies": two})
    assert choose(part, played) == ["hpa@0.5", "ds2@0.6"]


def test_the_page_counts_where_a_policy_is_cheaper_and_not_later(config):
    played = [
        cell("hpa-70", "constant", 8.0, 0.0),
        cell("hpa-70", "flash", 8.0, 0.05),
        cell("planner@25", "constant", 6.0, 0.01),
        cell("planner@25", "flash", 6.0, 0.08),
    ]
    page = page_of(played, config)
    assert "`planner@25` costs less than `hpa-70` on 2 of 2 workloads; on 1 it is also" in page
    assert "(constant)" in page
    assert "| planner@25 | 0.75 ± 0.00 | 0.75 ± 0.00 |" in page


def test_the_benchmark_has_six_workloads_five_seeds_and_one_to_choose_on(config):
    assert [load.name for load in config.loads.test.loads] == [
        "constant",
        "periodic",
        "variable",
        "bursty",
        "ramp",
        "flash",
    ]
    assert len(config.loads.test.seeds) == len(config.loads.train.seeds) == 5
