from __future__ import annotations

import pytest
import yaml

from dsp_gym.config.files import configs_root, load_model, parse
from dsp_gym.evaluation.config import BenchmarkConfig, Entrant
from dsp_gym.evaluation.fingerprint import fingerprint
from dsp_gym.job.spec import Prices
from dsp_gym.policies.config import PolicyConfig

CORE_V1 = "bb95b695a525fb2d"


@pytest.fixture(scope="module")
def core() -> BenchmarkConfig:
    return load_model(BenchmarkConfig, "benchmarks", "core-v1")


def test_core_v1_measures_what_it_always_measured(core):
    assert fingerprint(core) == CORE_V1, (
        "a job, load, split, SLO, price or seed of core-v1 has changed: results of before and "
        "after do not compare. Put it back, or make the change in configs/benchmarks/core-v2.yaml"
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("jobs", ("nexmark-q2",)),
        ("train_jobs", ("nexmark-q1",)),
        ("slo_latency_s", 1.0),
        ("prices", Prices(core_hour=1.0)),
        ("prices", Prices(currency="EUR")),
        ("episode_s", 7200),
        ("max_slo_share", 0.1),
        ("start_headroom", 0.8),
    ],
)
def test_another_job_or_bound_or_price_is_another_version(core, key, value):
    assert fingerprint(core.model_copy(update={key: value})) != fingerprint(core)


@pytest.mark.parametrize(
    "path",
    [
        ("loads", "test", "seeds", "to"),
        ("loads", "train", "seeds", "to"),
        ("loads", "test", "loads", 0, "load", "mean"),
    ],
)
def test_another_load_or_seed_is_another_version(core, path):
    document = yaml.safe_load((configs_root() / "benchmarks" / "core-v1.yaml").read_text("utf-8"))
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] *= 1.01 if path[-1] == "mean" else 2
    assert fingerprint(parse(BenchmarkConfig, document, "changed")) != fingerprint(core)


def test_another_policy_is_not(core):
    more = (*core.policies, Entrant(policy="static", name="static"))
    changed = core.model_copy(update={"policies": more, "reference": "static", "seeds": 1})
    assert fingerprint(changed) == fingerprint(core)


def test_another_way_to_the_same_results_is_not(core):
    simulation = core.simulation.model_copy(update={"quiet_strides": False, "threads": 3})
    assert fingerprint(core.model_copy(update={"simulation": simulation})) == fingerprint(core)


def test_it_is_tuned_on_other_jobs_than_it_reports(core):
    assert not set(core.jobs) & set(core.train_jobs)
    assert core.loads.train is not None
    assert core.loads.test is not None


def test_the_shipped_tuned_policies_were_tuned_on_what_core_v1_is(core):
    files = sorted((configs_root() / "policies/tuned/core-v1").glob("*-tuned.yaml"))
    assert {f"tuned/core-v1/{file.stem}" for file in files} <= {one.policy for one in core.policies}
    for file in files:
        record = load_model(PolicyConfig, "policies", file).provenance or {}
        assert record["fingerprint"] == fingerprint(core)
