"""Environments on a graphics card as a Gymnasium vector environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Unpack

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from dsp_gym.envs.core import codec_of
from dsp_gym.envs.cuda.device_env import DeviceEnv, DeviceStep
from dsp_gym.envs.keywords import ScenarioChanges
from dsp_gym.envs.resets import checked_mask, checked_seeds
from dsp_gym.envs.scenarios import ActionName, Job, changed, scenario
from dsp_gym.envs.single import observation_space, space_of
from dsp_gym.errors import ConfigError
from dsp_gym.loads.splits import SplitName


class DeviceVectorEnv(VectorEnv[Any, Any, Any]):
    """`num_envs` jobs on the card: `gymnasium.make_vec(id, num_envs=131072, device="cuda")`.

    Observations, rewards, ends and masks stay on the card: arrays with
    `__cuda_array_interface__`, which `torch.as_tensor(array, device="cuda")` takes without a copy.
    The next step writes over them. `array.to_host()` copies one to NumPy.

    With one job, environment i seeded with `seed` is the single environment seeded with `seed + i`,
    as long as it has a row of its own in the pool of episodes: `rows` of them are drawn on the
    host, `episodes` for each. Others have random streams of their own, and share loads and starts.
    With several jobs, environments of one job stand together.

    Args:
        num_envs: how many environments.
        job: a job, as in `AutoscaleVectorEnv`.
        config: an experiment's name, path or content; its env and loads are used.
        split: part of the loads episodes are drawn from.
        guardrails: name or path of a guardrails config; what cannot go to a card is refused.
        action: "vertex", "capacity", or None: as in `AutoscaleVectorEnv`.
        rows: most rows of the pool of episodes.
        episodes: episodes of each row.
        load: the load of the episodes, in place of the config's, as in `AutoscaleVectorEnv`.
        reward: weights of the reward's terms that differ, as in `AutoscaleVectorEnv`.
        slo_s: bound on the p95 latency in seconds, in place of the job file's.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012 - Gymnasium's own attribute

    def __init__(
        self,
        num_envs: int,
        job: Job | None = None,
        config: str | Path | dict[str, object] | None = None,
        split: SplitName = "train",
        guardrails: str | None = None,
        action: ActionName | None = None,
        rows: int = 1024,
        episodes: int = 2,
        **changes: Unpack[ScenarioChanges],
    ) -> None:
        made = scenario(job, config, guardrails=guardrails, explain=False, action=action)
        self.device_env = DeviceEnv(changed(made, changes, split), num_envs, split, rows, episodes)
        self.num_envs = num_envs
        topology = self.device_env.topology.take(np.zeros(1, np.int64))
        codec = codec_of(topology, self.device_env.config)
        self.single_observation_space = observation_space(codec.observation_size)
        self.single_action_space = space_of(codec)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._first = int(self.np_random.integers(0, 2**31))
        self._begun = False

    def reset(
        self, *, seed: Any = None, options: dict[str, object] | None = None
    ) -> tuple[Any, dict[str, object]]:
        """Begin an episode everywhere, or the next one where `options["reset_mask"]` is True.

        Without a seed the streams go on: the next episode begins, and after the pool's last one
        its first one, under other noise and faults. With a seed new episodes are drawn.

        Returns:
            Observations (num_envs, size), and info: `action_mask`.

        Raises:
            ConfigError: Some environments were to begin with other seeds, or before all of them;
                `reset_mask` is no array of a flag for each environment; or `seed` is no number from
                0 on, or one for each environment.
        """
        given = options.get("reset_mask") if options else None
        if given is not None:
            mask = checked_mask(given, self.num_envs)
            if seed is not None or not self._begun:
                raise ConfigError(
                    "on a GPU episodes are drawn for all environments together",
                    key="reset_mask",
                    remedy="Reset all with seeds first, then some without.",
                )
            done = self.device_env.begin(mask)
            return done.observation, {"action_mask": done.mask}
        if seed is None and self._begun:
            done = self.device_env.begin(np.ones(self.num_envs, np.bool_))
            return done.observation, {"action_mask": done.mask}
        # Before the first reset with a seed, one that was drawn stands for it.
        seeds = checked_seeds(self._first if seed is None else seed, self.num_envs)
        if None in seeds:
            raise ConfigError(
                "on a GPU episodes are drawn for all environments together, so none can keep its "
                "stream",
                key="seed",
                remedy="Pass a number for each environment, or one number for all.",
            )
        done = self.device_env.reset(np.array(seeds, np.int64))
        self._begun = True
        return done.observation, {"action_mask": done.mask}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, object]]:
        """Take one decision for every job.

        Returns:
            Observations, rewards, terminated, truncated, and info: `action_mask`, and `final_obs`,
            which counts where an episode has ended. All on the card.

        Raises:
            ActionError: The actions have a wrong shape, or NumPy's are no whole numbers.
            RuntimeError: `reset` has not been called yet.
        """
        done: DeviceStep = self.device_env.step(actions)
        info: dict[str, object] = {"action_mask": done.mask, "final_obs": done.final_observation}
        return done.observation, done.reward, done.terminated, done.truncated, info
