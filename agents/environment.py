"""The batches of jobs that an experiment trains and validates on."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dsp_gym.envs.batch import AutoscaleBatch
from dsp_gym.envs.config import Randomisation
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.guardrails.chain import build
from dsp_gym.loop.protocols import Guardrail

VALIDATION_SEED = 0x76616C
"""First seed of the validation episodes; their loads are those of the split."""


def training_batch(
    config: ExperimentConfig, jobs: int, base_dir: str | Path | None = None
) -> AutoscaleBatch:
    """Build the training batch: the experiment's jobs in turn, on training loads.

    Where episodes change jobs, all jobs take part, however few rows there are.

    Args:
        config: The experiment.
        jobs: Rows of the batch.
        base_dir: Folder that relative trace paths start from.

    Returns:
        A batch of that many rows.
    """
    specs = config.training_specs()
    rows = np.arange(jobs) % len(specs)
    return AutoscaleBatch(
        specs,
        rows.tolist(),
        config.loads,
        "train",
        config.env,
        guardrails_of(config),
        base_dir=base_dir,
    )


def validation_batch(
    config: ExperimentConfig, base_dir: str | Path | None = None
) -> AutoscaleBatch:
    """Build the validation batch, started as `dsp-gym evaluate` starts it.

    Every reset after `seed` begins the same episodes.

    Returns:
        A batch with a row per episode, the jobs in turn.
    """
    specs = config.validation_specs()
    episodes = max(config.agent.eval_episodes, len(specs))
    batch = AutoscaleBatch(
        specs,
        (np.arange(episodes) % len(specs)).tolist(),
        config.loads,
        "validation",
        config.env.model_copy(
            update={
                # The range of prices of lateness stays: an agent is selected by all prices it
                # covers.
                "randomise": Randomisation(late_price=config.env.randomise.late_price),
                "start": "sized" if config.env.start == "random" else config.env.start,
            }
        ),
        guardrails_of(config),
        base_dir=base_dir,
    )
    batch.seed(VALIDATION_SEED + np.arange(episodes))
    return batch


def guardrails_of(config: ExperimentConfig) -> Guardrail | None:
    """Build the guardrail chain inside an experiment's environments.

    Returns:
        The chain, without explanations; None where the experiment names none.
    """
    if config.guardrails is None:
        return None
    # Explanations of a thousand jobs cost time and have no reader.
    return build(config.guardrails, explain=False)
