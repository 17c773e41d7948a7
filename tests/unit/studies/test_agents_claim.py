"""agents/studies/claim.py: the policies that agents are compared with."""

from __future__ import annotations

import pytest

from agents.studies.claim import trained_agents, tuned_ds2
from dsp_gym.config.files import find, load_model
from dsp_gym.errors import ConfigError
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.experiments.tuning.result import write_tuned
from dsp_gym.policies.config import PolicyConfig


def experiment(name: str = "q11") -> ExperimentConfig:
    return load_model(ExperimentConfig, "experiments", find("experiments", name))


def test_the_tuned_ds2_that_ships_was_tuned_on_the_experiment_for_its_reward_on_training_loads():
    found = tuned_ds2(experiment())
    assert found.policy == "ds2"
    assert found.provenance["tuned_on"] == "q11"
    assert found.provenance["goal"] == "reward"
    assert found.provenance["split"] == "train"
    assert found.provenance["found"]["reward"] > found.provenance["default"]["reward"]


def test_a_ds2_tuned_on_something_else_is_refused(tmp_path):
    record = {"fingerprint": "0" * 16, "tuned_on": "q5", "trials": 1, "best_trial": 0,
              "within_bound": True}  # fmt: skip
    file = write_tuned(tmp_path / "ds2-tuned.yaml", PolicyConfig(policy="ds2"), record)
    with pytest.raises(ConfigError, match=r"was not tuned on q11.*Tune it again"):
        tuned_ds2(experiment(), file)


def test_a_file_without_a_policy_is_refused(tmp_path):
    file = tmp_path / "tuned.yaml"
    file.write_text("name: q11\n")
    with pytest.raises(ConfigError, match=r"the key 'policy' is missing"):
        tuned_ds2(experiment(), file)


def test_every_seed_of_a_training_takes_part_with_its_guardrails(tmp_path):
    agents = trained_agents(experiment(), tmp_path, "floor")
    assert [agent.name for agent in agents] == [f"seed-{seed}" for seed in range(5)]
    assert {agent.guardrails for agent in agents} == {"floor"}
