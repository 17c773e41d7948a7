"""Small experiments for tests of learners, and properties of every learner."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from agents.learner import Learner, TrainingInterrupted
from dsp_gym.experiments.experiment import ExperimentConfig

DAY = {"name": "day", "load": {"form": "diurnal", "period_s": 1800, "noise_cv": 0.1}}


def small_experiment(agent: Mapping[str, object], **sections: object) -> ExperimentConfig:
    """1,024 decisions of 16 environments, with a checkpoint half-way.

    Args:
        agent: Keys of the section `agent` beside or in place of the usual ones.
        sections: Other sections, whole.
    """
    document = {
        "name": "small",
        "jobs": ["nexmark-q11", "nexmark-q3"],
        "loads": {
            "train": {"loads": [DAY], "seeds": {"from": 0, "to": 50}},
            "validation": {"loads": [DAY], "seeds": {"from": 50, "to": 60}},
        },
        "env": {"episode_s": 1200},
        "agent": {
            "n_envs": 16,
            "n_steps": 16,
            "batch_size": 128,
            "n_epochs": 2,
            "total_steps": 1024,
            "eval_every": 512,
            "eval_episodes": 4,
            "checkpoint_every": 512,
            "network": {"hidden": [16]},
            **agent,
        },
    }
    return ExperimentConfig.model_validate(document | sections)


def assert_resumes_bit_for_bit(config: ExperimentConfig, folder: Path) -> None:
    """A training stopped half-way and resumed ends with the weights of one that was not."""
    whole = Learner(config, 3, folder / "whole")
    whole.run()

    def stop_half_way(stage, done, of, figures):
        first.stop = done >= 512

    first = Learner(config, 3, folder / "halves", progress=stop_half_way)
    with pytest.raises(TrainingInterrupted):
        first.run()
    second = Learner(config, 3, folder / "halves")
    second.run(resume=True)
    assert second.model.num_timesteps == whole.model.num_timesteps == 1024
    for name, value in whole.weights().items():
        np.testing.assert_array_equal(second.weights()[name], value, err_msg=name)
    assert second.best.figures == whole.best.figures
