"""The batch of jobs an experiment trains or validates on."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dsp_gym.envs.batch import AutoscaleBatch
from dsp_gym.envs.config import Randomisation
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.guardrails.chain import build
from dsp_gym.loop.protocols import Guardrail

__all__ = ["guardrails_of", "training_batch", "validation_batch"]

VALIDATION_SEED = 0x76616C
"""First seed of the episodes that agents are chosen by; their loads are the split's own."""


def training_batch(
    config: ExperimentConfig, jobs: int, base_dir: str | Path | None = None
) -> AutoscaleBatch:
    """Builds the jobs on training loads, the experiment's jobs in turn.

    Where episodes change jobs, all of them take part, however few rows there are.

    Returns:
        A batch of `agent.n_envs` jobs.
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
    """Builds the jobs on validation loads, started as `dsp-gym evaluate` starts them.

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
                # The prices of lateness stay: an agent is chosen by all that it covers.
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
    """Builds the chain inside an experiment's environments.

    Returns:
        The chain, without sentences; None where the experiment names none.
    """
    if config.guardrails is None:
        return None
    # The sentences of a thousand jobs cost time and have no reader.
    return build(config.guardrails, explain=False)
