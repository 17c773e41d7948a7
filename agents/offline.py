"""Learning from a dataset before the first step in an environment.

Imitation comes first, then improvement by advantage-weighted regression (Peng et al., 2019): the
actor imitates the decisions of the dataset, weighted by how much better each turned out than the
critic expected. The critic leans towards the better decisions by an expectile (IQL, Kostrikov et
al., 2022), so that the standard is the performance of the good policies in the data, not the mean.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from agents.cloning import Demonstrations
from dsp_gym.arrays import Bools, Floats32
from dsp_gym.compiling import njit
from dsp_gym.datasets.reader import Dataset
from dsp_gym.datasets.transitions import Transitions
from dsp_gym.envs.capacity import CAPACITY_FEATURES
from dsp_gym.envs.config import EnvConfig
from dsp_gym.envs.observation import LIMIT
from dsp_gym.envs.reward import reward
from dsp_gym.errors import DatasetError
from dsp_gym.experiments.agent import FromDataset, OfflineConfig
from dsp_gym.experiments.experiment import ExperimentConfig

LARGEST_WEIGHT = 20.0
"""Largest weight of a decision in the regression, as in the paper: bounds a single lucky one."""

LATE_PRICE = list(CAPACITY_FEATURES).index("late_price")
"""Index of the price of a late minute in an observation of capacities."""

PRICES = zlib.crc32(b"late-price")
"""Key of the random stream that a dataset's runs draw their prices from."""


def read_transitions(config: ExperimentConfig, chosen: FromDataset) -> Transitions:
    """Read the transitions an experiment learns from.

    Returns:
        The transitions, with observations (N, size) and actions (N, parts). Observations of
        capacities get the prices of a late minute of the experiment's environments, whatever the
        dataset was encoded with: nothing else in them depends on the price.

    Raises:
        DatasetError: The dataset does not fit the experiment, or no transition of it is left.
    """
    assert chosen.dataset is not None  # callers check it
    folder = chosen.dataset
    dataset = Dataset.open(folder)
    specs = config.training_specs()
    dataset.encoding.refuse_other(config.env, specs, folder)
    found = dataset.transitions(chosen.split)
    own = np.isin(found.job, [spec.job for spec in specs]) & found.of_policies(chosen.policies)
    if not own.any():
        raise DatasetError(
            f"its split '{chosen.split}' has no transition of these jobs and policies",
            file=folder,
            key="policies",
            value=list(chosen.policies),
            remedy=f"It has decisions of {', '.join(map(str, np.unique(found.policy))) or 'none'}.",
        )
    chosen_rows = found.take(own)
    return priced(chosen_rows, config.env) if config.env.action == "capacity" else chosen_rows


def priced(seen: Transitions, env: EnvConfig) -> Transitions:
    """Put prices of a late minute into observations of capacities.

    Args:
        seen: The transitions.
        env: Configuration with the price, or the range each run draws its price from.

    Returns:
        The same transitions at these prices.
    """
    price, drawn = np.full(len(seen), env.reward.slo), env.randomise.late_price
    if drawn is not None:
        run = np.append(0, np.cumsum(seen.ends)[:-1])
        rng = np.random.Generator(np.random.Philox(key=PRICES))
        # Log-uniform between the bounds, one price per run.
        price = drawn[0] * (drawn[1] / drawn[0]) ** rng.random(int(run[-1]) + 1)[run]
    shown = np.log(price)
    now, after = seen.observation.copy(), seen.next_observation.copy()
    for observation in (now, after):
        observation[:, LATE_PRICE] = np.clip(shown, -LIMIT, LIMIT)
    # Not `_replace`: it compares `len()` with the number of fields, but the length of transitions
    # is their number of rows.
    return Transitions(**{**seen._asdict(), "observation": now, "next_observation": after})


def demonstrated(
    seen: Transitions, config: ExperimentConfig, min_propensity: float
) -> Demonstrations:
    """Select the decisions to imitate: those their policy intended, without explorations.

    A decision of unknown propensity is imitated.

    Returns:
        The demonstrations, with their returns.
    """
    gamma, rewards = config.ppo.gamma, _rewards(seen, config)
    # Episodes end by the clock, so the mean reward stands for the time beyond. An episode that was
    # given up is charged its last reward for ever, as the learner charges it.
    beyond = np.where(seen.terminated, rewards, rewards.mean()).astype(np.float32)
    returns = _backwards((1 - gamma) * rewards, gamma * beyond, seen.ends, gamma)
    # NaN marks an unknown propensity, and NaN < x is false: `~` keeps these rows.
    meant = ~(seen.propensity < min_propensity)
    return Demonstrations(
        seen.observation[meant],
        seen.action_mask[meant],
        seen.valid_action()[meant],
        returns[meant],
    )


def improve(
    policy: Any,
    seen: Transitions,
    offline: OfflineConfig,
    config: ExperimentConfig,
    progress: Callable[[int, float], None] | None = None,
) -> dict[str, float]:
    """Improve actor and critic by advantage-weighted regression on a dataset.

    Args:
        policy: One of the policies of `agents.actor_critic`.
        seen: Transitions of the dataset.
        offline: Epochs, learning rate, temperature and expectile.
        config: The experiment: its reward, discount and algorithm.
        progress: Called after each epoch with the number of epochs done and the loss.

    Returns:
        Figures of the last epoch.
    """
    agent = config.ppo
    masked = agent.needs.masked
    optimizer = torch.optim.Adam(policy.parameters(), lr=offline.learning_rate)
    policy.set_training_mode(True)
    rewards, actions = _rewards(seen, config), torch.from_numpy(seen.valid_action())
    observations, masks = torch.from_numpy(seen.observation), torch.from_numpy(seen.action_mask)
    size, figures = len(seen), {}
    for epoch in range(offline.epochs):
        targets, weights = _judged(policy, seen, rewards, offline, agent.gamma, agent.gae_lambda)
        order, total = torch.randperm(size), 0.0
        for start in range(0, size, offline.batch_size):
            rows = order[start : start + offline.batch_size]
            arguments = {"action_masks": masks[rows].numpy()} if masked else {}
            values, log_prob, _ = policy.evaluate_actions(
                observations[rows], actions[rows], **arguments
            )
            error = targets[rows] - values.flatten()
            # The expectile: errors of decisions better than expected weigh more than others.
            side = torch.where(error > 0, offline.expectile, 1 - offline.expectile)
            critic = (2 * side * error.square()).mean()
            loss = -(weights[rows] * log_prob).mean() + agent.vf_coef * critic
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(policy.parameters(), agent.max_grad_norm)
            optimizer.step()
            total += float(loss.detach()) * len(rows)
        figures = {
            "offline/loss": total / size,
            "offline/value": float(targets.mean()),
            "offline/effective_share": float(weights.sum() ** 2 / weights.square().sum() / size),
        }
        if progress is not None:
            progress(epoch + 1, total / size)
    return figures


def _judged(
    policy: Any,
    seen: Transitions,
    rewards: Floats32,
    offline: OfflineConfig,
    gamma: float,
    gae_lambda: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Estimate the value of each decision, (N,), and its weight in the regression, (N,)."""
    now, after = _values(policy, seen.observation), _values(policy, seen.next_observation)
    # A terminated episode continues at its last reward: in units of 1 - gamma its value is that.
    after = np.where(seen.terminated, rewards, after)
    surprise = (1 - gamma) * rewards + gamma * after - now
    advantage = _backwards(surprise, np.zeros_like(surprise), seen.ends, gamma * gae_lambda)
    standard = (advantage - advantage.mean()) / max(float(advantage.std()), 1e-8)
    weight = np.minimum(np.exp(standard / offline.temperature), LARGEST_WEIGHT)
    weight /= weight.mean()
    return torch.from_numpy(now + advantage), torch.from_numpy(weight.astype(np.float32))


def _values(policy: Any, observations: Floats32) -> Floats32:
    with torch.no_grad():
        whole = torch.from_numpy(observations)
        parts = [policy.predict_values(part) for part in torch.split(whole, 8192)]
    found: Floats32 = torch.cat(parts).flatten().numpy()
    return found


def _rewards(seen: Transitions, config: ExperimentConfig) -> Floats32:
    """Compute rewards with the weights of the experiment, whatever those of the dataset are."""
    earned = reward(seen.terms, config.env.reward)
    if config.env.action == "capacity" and config.env.randomise.late_price is not None:
        price = np.exp(seen.observation[:, LATE_PRICE].astype(np.float64))
        earned -= (price - config.env.reward.slo) * seen.terms["slo"]
    return earned.astype(np.float32)


@njit(cache=True, nogil=True)
def _backwards(each: Floats32, beyond: Floats32, ends: Bools, decay: float) -> Floats32:
    """Sum discounted future terms backwards, (N,); `beyond` follows the end of an episode."""
    found = np.empty(len(each), np.float32)
    future = 0.0
    for i in range(len(each) - 1, -1, -1):
        future = beyond[i] if ends[i] else decay * future
        future += each[i]
        found[i] = future
    return found
