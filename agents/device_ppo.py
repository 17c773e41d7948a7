"""PPO on a GPU: environments, network and updates on one card, between which nothing is copied.

The update is that of `agents.ppo`, with which tests compare it, by torch's own gradients. Its
weights are copied to the CPU's network once per update: for validation, checkpoints and export.
"""

from __future__ import annotations

import copy
import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from agents.actor_critic import VertexActions
from agents.checkpoint import Tree
from agents.device_jobs import DeviceJobs
from agents.network import NetworkShape
from agents.ppo import ADAM_EPS, BETA_1, BETA_2, FIGURES, Ppo, gathered
from agents.sb3_vec import Sb3VecEnv
from dsp_gym.arrays import Floats32
from dsp_gym.envs.cuda.device_env import RESERVED
from dsp_gym.errors import DeviceError
from dsp_gym.experiments.agent import AgentConfig
from dsp_gym.simulation.cuda.card import find_card

SHOWN_ROWS = 256
"""Least number of a rollout's observations that are copied to the CPU."""


class DeviceRollout:
    """T decisions of J jobs on the card; observations and masks have one row more, the next."""

    def __init__(
        self, steps: int, jobs: int, shape: NetworkShape, size: int, device: torch.device
    ) -> None:
        def own(*rows: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(rows, dtype=dtype, device=device)

        self.observations = own(steps + 1, jobs, size)
        self.masks = own(steps + 1, jobs, shape.logits, dtype=torch.bool)
        self.actions = own(steps, jobs, len(shape.starts) - 1, dtype=torch.int64)
        self.values, self.rewards = own(steps + 1, jobs), own(steps, jobs)
        self.log_prob, self.advantage, self.target = own(3, steps, jobs)
        self.ends = own(steps, jobs, dtype=torch.bool)


def bytes_of_rollout(steps: int, shape: NetworkShape, size: int) -> int:
    """Return the bytes that a job takes in a `DeviceRollout`."""
    return (steps + 1) * (4 * size + shape.logits) + steps * (8 * (len(shape.starts) - 1) + 21)


class Loss(NamedTuple):
    """The loss of a minibatch, and the means of `FIGURES` (5,)."""

    whole: Tensor
    figures: Tensor


class DevicePpo(Ppo):
    """PPO on a GPU.

    Args:
        env: A few of the jobs, on the CPU.
        agent: Hyperparameters.
        shape: Shape of the network.
        seed: Seed of network, exploration and environments.
        jobs: The jobs on the card.

    Raises:
        DeviceError: Environments and a rollout do not fit; nothing is allocated then.
    """

    threads = 1

    def __init__(
        self,
        env: Sb3VecEnv,
        agent: AgentConfig,
        shape: NetworkShape,
        seed: int,
        jobs: DeviceJobs,
    ) -> None:
        size = jobs.env.observation_size
        _check_memory(jobs, bytes_of_rollout(agent.n_steps, shape, size))
        super().__init__(env, agent, shape, seed)
        self.jobs, self.device = jobs, jobs.device
        self.network = copy.deepcopy(self.policy.features_extractor).to(self.device)
        self.on_card = gathered(self.network)
        self.moments = torch.zeros(2, len(self.weights.vector), device=self.device)
        self.gradient = torch.zeros_like(self.on_card.vector)
        parts = torch.split(self.gradient, [p.numel() for p in self.network.parameters()])
        for parameter, part in zip(self.network.parameters(), parts, strict=True):
            parameter.grad = part.view_as(parameter)  # added to in place
        self.rollout = DeviceRollout(agent.n_steps, len(jobs), shape, size, self.device)
        self.draws = torch.Generator(self.device)
        self.seed: int | None = seed

    @property
    def observations(self) -> Floats32:
        """Observations of the last rollout, evenly spread over time and jobs."""
        rows = self.rollout.observations[:-1].flatten(0, 1)
        stride = max(1, len(rows) // SHOWN_ROWS) | 1
        return np.asarray(rows[::stride].cpu().numpy())

    def begin(self) -> None:
        """Copy the network to the card, and make the first observation where there is none."""
        self.network.load_state_dict(self.policy.features_extractor.state_dict())
        if self.seed is not None:
            self._continue_with(self.jobs.begin(self.seed))
            self.seed = None

    @torch.no_grad()
    def collect(self) -> None:
        """Make the decisions of a rollout, and compute their advantages."""
        rollout, agent = self.rollout, self.agent
        self.draws.manual_seed(int(self.generator.integers(0, 2**63)))
        if self.jobs.taken >= self.jobs.steps_of_pool:
            # The values of what would have come next are in the last rollout already.
            self._continue_with(self.jobs.begin(self.fresh_seed()))
        rollout.observations[0], rollout.masks[0] = rollout.observations[-1], rollout.masks[-1]
        ended: list[Tree] = []
        for t in range(agent.n_steps):
            choices, rollout.values[t] = self._judged(rollout.observations[t], rollout.masks[t])
            rollout.actions[t] = actions = choices.sample(self.draws)
            rollout.log_prob[t] = choices.log_prob(actions)
            done = self.jobs.step(actions, ended)
            rollout.rewards[t], rollout.ends[t] = done.reward, done.ended
            if ended:  # some may have been truncated by the clock, and would have continued
                cut = done.cut.nonzero()[:, 0]
                later = self.network(done.final[cut])[:, -1]
                rollout.rewards[t, cut] += agent.gamma * later
            self.episodes.extend(ended)
            ended.clear()
            rollout.observations[t + 1], rollout.masks[t + 1] = done.observation, done.mask
            self.num_timesteps += len(self.jobs)
        rollout.values[-1] = self.network(rollout.observations[-1])[:, -1]
        self._judge_advantages()

    def update(self, learning_rate: float) -> dict[str, float]:
        """Learn from the rollout.

        Args:
            learning_rate: Learning rate of this update.

        Returns:
            Figures by the names that Stable-Baselines3 uses.
        """
        agent, rollout = self.agent, self.rollout
        seen: list[Tensor] = []
        for _ in range(agent.n_epochs):
            order = torch.randperm(
                rollout.rewards.numel(), generator=self.draws, device=self.device
            )
            self.updates += 1
            for rows in torch.split(order, agent.batch_size):
                self.gradient.zero_()
                loss = self.loss(rows)
                seen.append(loss.figures)
                if self._is_far(loss.figures):
                    break
                loss.whole.backward()  # type: ignore[no-untyped-call]  # torch's has no types
                self._step(learning_rate)
            if self._is_far(seen[-1]):
                break
        self.weights.vector.copy_(self.on_card.vector)
        means = torch.stack(seen).double().mean(0).tolist()
        return self._told(means, self._explained(), learning_rate)

    def loss(self, rows: Tensor) -> Loss:
        """Compute PPO's clipped loss of some rows, as `agents.kernels.surrogate` does.

        Args:
            rows: (R,) indices of rows of the rollout.

        Returns:
            The loss, and figures of it.
        """
        agent, rollout = self.agent, self.rollout
        observation, mask, actions = (
            one.flatten(0, 1)[rows]
            for one in (rollout.observations, rollout.masks, rollout.actions)
        )
        before, gain, target = (
            one.flatten()[rows] for one in (rollout.log_prob, rollout.advantage, rollout.target)
        )
        choices, values = self._judged(observation, mask)
        if len(rows) > 1:
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        change = choices.log_prob(actions) - before
        ratio = change.exp()
        inside = ratio.clamp(1 - agent.clip_range, 1 + agent.clip_range)
        actor = -torch.minimum(gain * ratio, gain * inside).mean()
        critic = (values - target).square().mean()
        disorder = choices.entropy().mean()
        whole = actor - agent.ent_coef * disorder + agent.vf_coef * critic
        far = (ratio - 1 - change).mean()
        clipped = ((ratio - 1).abs() > agent.clip_range).float().mean()
        return Loss(whole, torch.stack([actor, critic, disorder, far, clipped]).detach())

    def restore(self, saved: Tree) -> None:
        """Continue from the `state()` of any device, with new episodes."""
        super().restore(saved)
        self.observation = np.zeros((0, 0), np.float32)
        self.seed = self.fresh_seed()

    def _continue_with(self, seen: tuple[Tensor, Tensor]) -> None:
        """Let the next rollout begin with observations and masks."""
        self.rollout.observations[-1], self.rollout.masks[-1] = seen

    def _judged(self, observation: Tensor, mask: Tensor) -> tuple[VertexActions, Tensor]:
        """Return the odds of choices before each of some observations, and their values."""
        found = self.network(observation)
        choices = VertexActions(self.shape.places, self.shape.blocks)
        choices.proba_distribution(found[:, :-1])
        if self.masked:
            choices.apply_masking(mask)
        return choices, found[:, -1]

    def _judge_advantages(self) -> None:
        """Compute generalised advantages, as `agents.kernels.advantages` does."""
        rollout, agent = self.rollout, self.agent
        rewards, values = rollout.rewards.double(), rollout.values.double()
        future = torch.zeros_like(rewards[0])
        for t in reversed(range(agent.n_steps)):
            after = agent.gamma * (~rollout.ends[t]).double()
            surprise = rewards[t] + after * values[t + 1] - values[t]
            future = surprise + agent.gae_lambda * after * future
            rollout.advantage[t] = future
        torch.add(rollout.advantage, rollout.values[:-1], out=rollout.target)

    def _is_far(self, figures: Tensor) -> bool:
        """Return whether the policy has moved too far; the card is waited for only if asked."""
        limit = self.agent.target_kl
        return limit is not None and float(figures[FIGURES.index("approx_kl")]) > 1.5 * limit

    def _step(self, learning_rate: float) -> None:
        """Take a step of Adam, as `agents.ppo` does, without waiting for the card."""
        gradient = self.gradient
        gradient.mul_((self.agent.max_grad_norm / (gradient.norm() + 1e-6)).clamp(max=1.0))
        self.adam_steps += 1
        mean, square = self.moments
        mean.lerp_(gradient, 1 - BETA_1)
        square.mul_(BETA_2).addcmul_(gradient, gradient, value=1 - BETA_2)
        unbiased = 1 - BETA_1**self.adam_steps, math.sqrt(1 - BETA_2**self.adam_steps)
        length = square.sqrt().div_(unbiased[1]).add_(ADAM_EPS)
        self.on_card.vector.addcdiv_(mean, length, value=-learning_rate / unbiased[0])

    def _explained(self) -> float:
        """Return the share of the targets' variance that the critic explains; NaN if it is zero."""
        target, values = self.rollout.target, self.rollout.values[:-1]
        variance = float(target.var(correction=0))
        missed = float((target - values).var(correction=0))
        return 1 - missed / variance if variance > 0 else math.nan


def _check_memory(jobs: DeviceJobs, rollout: int) -> None:
    """Compare environments and their rollout with the free memory of the card.

    Raises:
        DeviceError: It is too little; the error says how many environments fit.
    """
    card = find_card()
    each = jobs.env.bytes_per_env + rollout
    needed = each * len(jobs)
    free = max(0, int(card.free_bytes * (1 - RESERVED)) - jobs.env.pool.bytes)
    if needed > free:
        fit = free // each
        raise DeviceError(
            f"{len(jobs):,} environments and their rollout need {needed / 2**30:.1f} GiB, "
            f"{each / 1024:.1f} KiB each, and {card.name} has {free / 2**30:.1f} GiB for them",
            key="agent.n_envs",
            value=len(jobs),
            remedy=f"Take at most {fit:,}, or fewer agent.n_steps."
            if fit
            else "Take fewer agent.n_steps, or a card with more memory.",
        )
