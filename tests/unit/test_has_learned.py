"""A training in which no update beat the untrained network has learned nothing, and says so."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from agents.folder import POLICY
from agents.training import TrainingResult, _has_learned
from dsp_gym.cli.train import _show
from dsp_gym.experiments.agent import AgentConfig
from tests.learning import small_experiment

SHIPPED = Path("agents/pretrained/ppo")


def best_at(steps: int, folder: Path) -> Path:
    """A policy that had learned from so many decisions when it was the best."""
    shutil.copytree(SHIPPED, folder / "policy")
    file = folder / "policy" / POLICY
    document = json.loads(file.read_text("utf-8"))
    file.write_text(json.dumps(document | {"steps": steps}), "utf-8")
    return folder / "policy"


@pytest.mark.parametrize(("steps", "learned"), [(0, False), (512, True)])
def test_the_best_network_is_the_untrained_one_where_it_learned_from_no_decision(
    tmp_path, steps, learned
):
    policy = best_at(steps, tmp_path)
    assert _has_learned(small_experiment({}), policy) is learned
    assert _has_learned(small_experiment({"total_steps": 0}), policy)
    taught = small_experiment({"warm_start": {"teacher": "ds2"}})
    assert _has_learned(taught, policy)  # the imitated network is not an untrained one


def test_the_command_says_that_nothing_was_learned_and_how_to_deploy_it_all_the_same(capsys):
    figures = {"return": -1.0}
    result = TrainingResult(
        "small", Path("policy"), 0, figures, {0: figures}, "run", "models:/small/1", False
    )
    _show("small.yaml", small_experiment({}), result)
    said = capsys.readouterr().err
    assert "No update beat the untrained network" in said
    assert "dsp-gym policy promote models:/small/1 --alias champion" in said


@pytest.mark.parametrize(
    ("given", "every"),
    [
        ({"total_steps": 50_000}, 5_000),
        ({"total_steps": 10_000_000}, 250_000),
        ({"total_steps": 50_000, "eval_every": 7}, 7),
        ({"total_steps": 0}, 1),
    ],
)
def test_a_training_is_evaluated_ten_times_unless_told_otherwise(given, every):
    assert AgentConfig.model_validate(given).evaluated_every == every
