"""The jobs of a training on a GPU, as tensors that never leave it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from agents.checkpoint import Tree
from agents.device import as_tensor
from agents.environment import guardrails_of
from dsp_gym.envs.cuda.device_env import DeviceEnv, DeviceStep
from dsp_gym.envs.scenarios import Scenario
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.simulation.cuda.card import is_simulated


class TensorStep(NamedTuple):
    """The results of a step; the next step writes over observations and masks."""

    observation: Tensor  # (J, size), of the new episode where one has ended
    mask: Tensor  # (J, K)
    reward: Tensor  # (J,) in the units that are learned in
    ended: Tensor  # (J,)
    cut: Tensor  # (J,) ended by the clock: it would have continued
    final: Tensor  # (J, size) last observation of those that have ended


class DeviceJobs:
    """J jobs of an experiment on the card.

    Every row of the pool has a few episodes. After these, all jobs begin again with new ones.

    Args:
        config: The experiment.
        device: Torch's name of the card.
        base_dir: Folder that relative trace paths start from.

    Raises:
        ConfigError: Part of the experiment cannot go to the card.
    """

    def __init__(
        self, config: ExperimentConfig, device: torch.device, base_dir: str | Path | None = None
    ) -> None:
        folder = None if base_dir is None else Path(base_dir)
        rails, named = guardrails_of(config), str(config.guardrails)
        specs = tuple(config.training_specs())
        made = Scenario(specs, config.loads, config.env, rails, folder, named)
        self.device, self.gamma = device, config.ppo.gamma
        self.env = DeviceEnv(made, config.ppo.n_envs)
        self.steps_of_pool = self.env.pool.episodes * config.env.episode_s // config.env.interval_s
        self.taken = 0
        """Steps since the pool was drawn."""
        self._returns = torch.zeros(len(self), dtype=torch.float64, device=device)
        self._lengths = torch.zeros(len(self), dtype=torch.int64, device=device)

    def __len__(self) -> int:
        return self.env.num_envs

    def begin(self, seed: int) -> tuple[Tensor, Tensor]:
        """Draw episodes, and begin the first one everywhere.

        Args:
            seed: Two seeds share no stream.

        Returns:
            Observations and masks.
        """
        self._returns.zero_()
        self._lengths.zero_()
        self.taken = 0
        done = self.env.reset(seed * len(self) + np.arange(len(self)))
        return self._tensors(done)

    def step(self, actions: Tensor, ended: list[Tree]) -> TensorStep:
        """Take a decision for every job.

        Args:
            actions: (J, parts) int64, on the card.
            ended: Gets the return and the length of each episode that ends.

        Returns:
            The results.
        """
        done = self.env.step(actions.numpy() if is_simulated() else actions)
        self.taken += 1
        reward = as_tensor(done.reward, self.device)
        given_up = as_tensor(done.terminated, self.device)
        cut = as_tensor(done.truncated, self.device)
        over = given_up | cut
        self._returns += reward
        self._lengths += 1
        if bool(over.any()):
            told = zip(self._returns[over].tolist(), self._lengths[over].tolist(), strict=True)
            ended += [{"r": r, "l": length} for r, length in told]
            self._returns[over] = 0
            self._lengths[over] = 0
        # As `agents.sb3_vec.discounted_units`: who gives up is charged the last reward for ever.
        units = (reward * torch.where(given_up, 1.0, 1.0 - self.gamma)).float()
        final = as_tensor(done.final_observation, self.device)
        return TensorStep(*self._tensors(done), units, over, cut, final)

    def _tensors(self, done: DeviceStep) -> tuple[Tensor, Tensor]:
        return as_tensor(done.observation, self.device), as_tensor(done.mask, self.device)
