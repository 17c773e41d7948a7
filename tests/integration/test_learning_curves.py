"""Whole learning curves: interrupted and resumed, kept apart, and compared by the claim."""

from __future__ import annotations

import json
import signal

import pytest
import yaml

pytest.importorskip("sb3_contrib")

from agents.studies.dataset_claim import main
from agents.studies.learning_curve import forget, learning_curve
from agents.training import TrainingInterrupted
from dsp_gym.config.files import parse
from dsp_gym.errors import ConfigError, SchemaError
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.studies.runner import run

STEPS = 256


def a_document(**agent) -> dict:
    loads = [{"name": "day", "load": {"form": "diurnal", "period_s": 1200}}]
    return {
        "name": "small",
        "jobs": ["nexmark-q11"],
        "loads": {
            "train": {"loads": loads, "seeds": {"from": 0, "to": 20}},
            "validation": {"loads": loads, "seeds": {"from": 50, "to": 54}},
        },
        # Where money alone counts, there is soon something to see: take all away.
        "env": {
            "episode_s": 600, "start": "random", "reward": {"cost": 20, "slo": 0, "backlog": 0},
        },
        "agent": {
            "n_envs": 8, "n_steps": 8, "batch_size": 64, "n_epochs": 3, "total_steps": STEPS,
            "learning_rate": 0.01, "eval_every": 64, "eval_episodes": 2, "checkpoint_every": 128,
            "network": {"encoder": "mlp", "hidden": [8], "hold_bias": 0}, **agent,
        },
    }  # fmt: skip


def an_experiment(**agent) -> ExperimentConfig:
    return parse(ExperimentConfig, a_document(**agent), "test")


def interrupt_at(step):
    """Ctrl-C after so many steps."""

    def told(stage, done, of, best):
        if stage == "learn" and done == step:
            signal.raise_signal(signal.SIGINT)

    return told


@pytest.mark.parametrize("step", [0, 192])
def test_a_curve_that_was_interrupted_goes_on_as_if_it_never_was(tmp_path, step):
    config = an_experiment()
    whole = learning_curve(config, 3, tmp_path / "whole", STEPS)
    assert sorted(whole) == list(range(0, STEPS + 1, 64))
    with pytest.raises(TrainingInterrupted):
        learning_curve(config, 3, tmp_path / "halves", STEPS, told=interrupt_at(step))
    assert learning_curve(config, 3, tmp_path / "halves", STEPS) == whole


def test_a_curve_that_is_long_enough_is_not_learned_again(tmp_path):
    config, told = an_experiment(), []
    short = learning_curve(config, 0, tmp_path, 60)
    assert max(short) == 64  # the first evaluation after
    again = learning_curve(config, 0, tmp_path, 60, told=lambda *stage: told.append(stage))
    assert again == short
    assert not told
    longer = learning_curve(config, 0, tmp_path, 100)
    assert max(longer) == 128
    assert longer.items() >= short.items()
    forget(tmp_path)
    assert learning_curve(config, 0, tmp_path, 0).keys() == {0}


def test_a_curve_of_another_experiment_is_not_gone_on_with(tmp_path):
    learning_curve(an_experiment(), 0, tmp_path, 0)
    with pytest.raises(ConfigError, match=r"agent\.gamma.*made with 0\.97"):
        learning_curve(an_experiment(gamma=0.9), 0, tmp_path, STEPS)
    with pytest.raises(ConfigError, match=r"agent\.total_steps.*learned with 256"):
        learning_curve(an_experiment(total_steps=1024), 0, tmp_path, STEPS)
    with pytest.raises(ConfigError, match=r"seed.*learned with 0"):
        learning_curve(an_experiment(), 1, tmp_path, STEPS)


def test_a_damaged_curve_is_named(tmp_path):
    learning_curve(an_experiment(), 0, tmp_path, 0)
    (tmp_path / "curve.json").write_text('{"schema": "dsp-gym/learning-curve/1"}')
    with pytest.raises(SchemaError, match=r"curve\.json: the curve cannot be read.*returns"):
        learning_curve(an_experiment(), 0, tmp_path, STEPS)


def exit_code(line):
    """Run the study as a command."""
    with pytest.raises(SystemExit) as ended:
        run(main, line)
    return ended.value.code


def test_without_a_dataset_the_claim_finds_nothing_saved(tmp_path, capsys):
    file, out, runs = tmp_path / "small.yaml", tmp_path / "found.json", tmp_path / "runs"
    file.write_text(yaml.safe_dump(a_document(seeds=[0, 1])))
    line = ["offline", str(file), "--runs", str(runs), "--out", str(out)]
    assert exit_code(line) == 1
    found = json.loads(out.read_text())
    assert 0 < found["steps"]["scratch"] <= STEPS
    assert found["ratio"] == 1
    assert found["by_seed"]["scratch"] == found["by_seed"]["pretrained"]
    capsys.readouterr()
    assert exit_code([*line, "--resume"]) == 1
    assert "learn" not in capsys.readouterr().err  # all was there
    again = json.loads(out.read_text())
    assert again | {"machine": None} == found | {"machine": None}  # its speed varies
    file.write_text(yaml.safe_dump(a_document(seeds=[0, 1], gamma=0.5)))
    assert exit_code([*line, "--resume"]) == 2
    assert "agent.gamma" in capsys.readouterr().err
