"""Behaviour cloning: start an agent from a teacher's behaviour.

The teacher plays through the batch and each of its decisions becomes the nearest valid action. The
actor learns these actions by cross-entropy, the critic learns the teacher's discounted returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from dsp_gym.arrays import Bools, Floats32, Ints
from dsp_gym.envs.batch import AutoscaleBatch
from dsp_gym.experiments.agent import AgentConfig, WarmStartConfig
from dsp_gym.policies.capabilities import capabilities_of, without_reasons
from dsp_gym.policies.registry import make


class Demonstrations(NamedTuple):
    """N decisions of a teacher."""

    observations: Floats32  # (N, size)
    masks: Bools  # (N, V * 10)
    actions: Ints  # (N, V * 2)
    returns: Floats32  # (N,)


def demonstrate(
    batch: AutoscaleBatch,
    teacher: str,
    decisions: int,
    gamma: float,
    progress: Callable[[int], None] | None = None,
) -> Demonstrations:
    """Play a teacher through a seeded batch.

    Args:
        batch: The batch; it has been seeded.
        teacher: Name of the teacher's policy.
        decisions: Least number of decisions to record.
        gamma: Discount per decision.
        progress: Called after each step with the number of decisions recorded.

    Returns:
        Observations, masks and moves of every decision, and the returns after it.
    """
    policy = without_reasons(make(teacher))
    priced = capabilities_of(policy).price_lateness
    seeds = batch.base_seeds

    def begin(rows: Bools | None = None) -> None:
        policy.reset(batch.topology, seeds, rows)
        if priced is not None and batch.config.randomise.late_price is not None:
            priced(batch.late_price)

    observation = batch.reset()
    begin()
    rows: list[tuple[Any, ...]] = []
    for _ in range(-(-decisions // len(batch))):
        actions = batch.encode_decision(policy.decide(batch.snapshot))
        masks = batch.action_masks()
        # The nearest valid action, not the decision itself: the agent can do nothing else.
        step = batch.step(actions)
        done = step.terminated | step.truncated
        rows.append((observation, masks, actions, step.reward.astype(np.float32)))
        observation = step.observation
        if done.any():
            observation = batch.reset(done)
            begin(done)
        if progress is not None:
            progress(len(rows) * len(batch))
    observations, masks, actions, rewards = (np.stack(column) for column in zip(*rows, strict=True))
    flat = observations.shape[0] * observations.shape[1]
    return Demonstrations(
        observations.reshape(flat, -1),
        masks.reshape(flat, -1),
        actions.reshape(flat, -1),
        # The learner sees rewards scaled by 1 - gamma, so that values are weighted means of
        # rewards.
        np.float32(1 - gamma) * discounted(rewards, gamma).reshape(flat),
    )


def discounted(rewards: Floats32, gamma: float) -> Floats32:
    """Discount rewards.

    Episodes end by the clock alone, so the mean reward stands for all steps after the last.

    Args:
        rewards: (T, J) rewards.
        gamma: Discount per step.

    Returns:
        (T, J) returns of every step.
    """
    # A constant reward r for ever is worth r / (1 - gamma).
    future = np.full(rewards.shape[1], rewards.mean() / (1 - gamma), np.float32)
    returns = np.empty_like(rewards)
    for t in range(len(rewards) - 1, -1, -1):
        future = rewards[t] + np.float32(gamma) * future
        returns[t] = future
    return returns


def clone(
    policy: Any,
    shown: Demonstrations,
    config: WarmStartConfig,
    agent: AgentConfig,
    progress: Callable[[int, float], None] | None = None,
) -> float:
    """Fit a policy to demonstrations.

    Args:
        policy: One of the policies of `agents.actor_critic`.
        shown: The demonstrations.
        config: Number of epochs, batch size and learning rate.
        agent: Weight of the critic, and whether moves are masked.
        progress: Called after each epoch with the number of epochs done and the loss.

    Returns:
        Share of the teacher's moves that the policy makes afterwards, 0 to 1.
    """
    masked = agent.needs.masked
    optimizer = torch.optim.Adam(policy.parameters(), lr=config.learning_rate)
    policy.set_training_mode(True)
    size = len(shown.actions)
    for epoch in range(config.epochs):
        if config.schedule == "linear":
            optimizer.param_groups[0]["lr"] = config.learning_rate * (1 - epoch / config.epochs)
        order = torch.randperm(size)
        total = 0.0
        for start in range(0, size, config.batch_size):
            rows = order[start : start + config.batch_size].numpy()
            arguments = {"action_masks": torch.from_numpy(shown.masks[rows])} if masked else {}
            values, log_prob, _ = policy.evaluate_actions(
                torch.from_numpy(shown.observations[rows]),
                torch.from_numpy(shown.actions[rows]),
                **arguments,
            )
            # The objective of PPO without the ratio: cross-entropy plus the weighted error of the
            # critic.
            errors = values.flatten() - torch.from_numpy(shown.returns[rows])
            loss = -log_prob.mean() + agent.vf_coef * errors.square().mean()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(policy.parameters(), agent.max_grad_norm)
            optimizer.step()
            total += float(loss.detach()) * len(rows)
        if progress is not None:
            progress(epoch + 1, total / size)
    return _agreement(policy, shown, masked)


def _agreement(policy: Any, shown: Demonstrations, masked: bool) -> float:
    # The first 8192 demonstrations suffice for a share and bound the memory of the forward pass.
    rows = slice(0, 8192)
    arguments = {"action_masks": shown.masks[rows]} if masked else {}
    chosen, _ = policy.predict(shown.observations[rows], deterministic=True, **arguments)
    return float((chosen == shown.actions[rows]).mean())
