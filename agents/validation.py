"""The quality of an agent on the validation loads, acting greedily."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dsp_gym.arrays import Floats, Floats32
from dsp_gym.envs.batch import AutoscaleBatch
from dsp_gym.envs.config import EnvConfig
from dsp_gym.envs.core import BatchStep
from dsp_gym.evaluation.statistics import interquartile_mean

Average = Callable[[Floats], Floats | np.floating[Any]]


def validate(
    policy: Any,
    batch: AutoscaleBatch,
    *,
    masked: bool = True,
    average: Average = interquartile_mean,
) -> dict[str, float]:
    """Run each episode of a validation batch once, with the actions of a network.

    Args:
        policy: Policy with the interface of Stable-Baselines3's.
        batch: The episodes.
        masked: Whether it receives the mask of valid choices.
        average: Average of the returns; the interquartile mean ignores rare disasters.

    Returns:
        Figures as `played` returns them.
    """

    def act(observation: Floats32) -> BatchStep:
        arguments = {"action_masks": batch.action_masks()} if masked else {}
        actions, _ = policy.predict(observation, deterministic=True, **arguments)
        return batch.step(actions)

    batch.episodes[:] = 0
    return played(batch, batch.reset(), act, average)


class Totals(NamedTuple):
    """Sums over an episode of each job, (J,)."""

    reward: Floats
    cost: Floats  # money
    late: Floats  # s
    rescales: Floats


def totals(
    batch: AutoscaleBatch, observation: Floats32, act: Callable[[Floats32], BatchStep]
) -> Totals:
    """Run the episodes of a batch to their end, and sum.

    Args:
        batch: The batch, just reset.
        observation: Its first observation, (J, size).
        act: Function that takes a step, given the observation before it.

    Returns:
        Sums by job.
    """
    steps = batch.config.episode_s // batch.config.interval_s
    alive = np.ones(len(batch), dtype=bool)
    total = np.zeros((len(Totals._fields), len(batch)))
    taken = np.zeros(len(batch))
    for _ in range(steps):
        step = act(observation)
        outcome = step.outcome
        figures = [step.reward, outcome.cost, outcome.slo_s, outcome.rescales]
        total += np.where(alive, figures, 0.0)
        taken += alive
        # A job that was given up is charged its last decision's figures in every remaining one.
        left = np.where(alive & step.terminated, steps - taken, 0)
        total += left * np.array(figures)
        alive &= ~step.terminated
        observation = step.observation
        if not alive.any():
            break
    return Totals(*total)


def played(
    batch: AutoscaleBatch,
    observation: Floats32,
    act: Callable[[Floats32], BatchStep],
    average: Average = interquartile_mean,
) -> dict[str, float]:
    """Run the episodes of a batch to their end, and average.

    Args:
        batch: The batch, just reset.
        observation: Its first observation, (J, size).
        act: Function that takes a step, given the observation before it.
        average: Average of the returns.

    Returns:
        Average of the return per decision, and means of cost per hour, share of SLO seconds and
        rescales per hour.
    """
    return figures_of(totals(batch, observation, act), batch.config, average)


def figures_of(total: Totals, config: EnvConfig, average: Average) -> dict[str, float]:
    """Compute the figures of a batch's episodes.

    Args:
        total: Sums by job.
        config: Configuration of the batch.
        average: Average of the returns.

    Returns:
        Figures as `played` returns them.
    """
    steps, hours = config.episode_s // config.interval_s, config.episode_s / 3600
    return {
        "return": float(average(total.reward / steps)),
        "cost_per_h": float(total.cost.mean() / hours),
        "slo_share": float(total.late.mean() / config.episode_s),
        "rescales_per_h": float(total.rescales.mean() / hours),
    }
