"""Scenarios: from a job or a config to all parts of an environment."""

from __future__ import annotations

import pytest

from dsp_gym.envs.registration import FROM_CONFIG, IDS, changes
from dsp_gym.envs.scenarios import scenario
from dsp_gym.errors import ConfigError
from dsp_gym.job.catalog import load_job

CONFIG = {
    "name": "test",
    "jobs": ["nexmark-q1", "nexmark-q3"],
    "loads": {"train": {"loads": ["constant"]}},
    "env": {"interval_s": 30},
    "guardrails": "default",
}


def test_a_job_alone_has_default_loads_and_no_guardrails():
    made = scenario("nexmark-q1")
    assert [spec.job for spec in made.specs] == ["nexmark-q1"]
    assert made.guardrails is None
    assert [name for name, _ in made.loads.splits()] == ["train", "validation", "test"]


def test_a_job_given_beside_a_config_replaces_the_jobs_of_the_config():
    both, one = scenario(config=CONFIG), scenario("nexmark-q11", CONFIG)
    assert [spec.job for spec in both.specs] == ["nexmark-q1", "nexmark-q3"]
    assert [spec.job for spec in one.specs] == ["nexmark-q11"]
    assert one.env.interval_s == both.env.interval_s == 30


def test_guardrails_come_from_the_config_unless_named():
    assert scenario(config=CONFIG).guardrails is not None
    assert scenario(config=CONFIG, guardrails="none").guardrails is None


def test_a_shipped_experiment_is_meant_by_its_name():
    made = scenario(config="q11-quickstart")
    assert [spec.job for spec in made.specs] == ["nexmark-q11"]
    assert made.base_dir is not None


def test_sections_for_training_are_left_alone_and_an_unknown_one_is_refused():
    trained = {**CONFIG, "agent": {"kind": "of another program"}, "family": {"graphs": 3}}
    assert scenario(config=trained).env == scenario(config=CONFIG).env
    with pytest.raises(ConfigError, match="Did you mean 'guardrails'"):
        scenario(config={**CONFIG, "guardrail": "floor"})


def test_nothing_to_build_from_is_refused():
    with pytest.raises(ConfigError, match="neither a job nor a config"):
        scenario()


def test_an_unknown_backend_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"no backend 'simulatd'.*simulated"):
        scenario("nexmark-q1", backend="simulatd")


def test_a_misspelt_job_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="nexmark-q11"):
        scenario("nexmark-q111")


@pytest.mark.parametrize(("name", "job"), [*IDS.items(), (FROM_CONFIG, None)])
def test_every_version_of_an_id_says_what_it_changed(name, job):
    told = changes(job)
    versions = [f"v{i}" for i in range(int(name.rsplit("-v", 1)[1]), -1, -1)]
    assert list(told) == versions
    assert all(told.values())


@pytest.mark.parametrize("job", IDS.values())
def test_the_change_of_windows_is_told_of_the_jobs_that_have_windows_which_fire(job):
    states = [vertex.state for vertex in load_job(job).vertices if vertex.state is not None]
    windows = {state.window.kind for state in states if state.window is not None}
    fires = bool(windows & {"tumbling", "sliding"})
    assert changes(job)["v1"].startswith("A window is blocked") == fires
