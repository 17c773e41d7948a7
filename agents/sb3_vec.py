"""The batch of jobs as a Stable-Baselines3 environment, without a Python loop over jobs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv

from agents.checkpoint import Tree
from dsp_gym.arrays import Bools, Floats, Floats32
from dsp_gym.envs.batch import AutoscaleBatch
from dsp_gym.envs.observation import LIMIT
from dsp_gym.envs.single_move import choices_of, masks_of, pairs_of
from dsp_gym.envs.watch.watcher import BatchWatcher, Pixels
from dsp_gym.envs.whole import whole_actions
from dsp_gym.errors import ConfigError

Infos = list[dict[str, object]]
Indices = int | Iterable[int] | None
"""Rows of the batch: one, several, or all."""


class Sb3VecEnv(VecEnv):
    """A batch of jobs as a `VecEnv`; a job that ends restarts within the same step.

    Args:
        jobs: The batch, or the environment that `gymnasium.make_vec` returned; its autoreset mode
            does not matter here.
        discount: Discount whose units rewards are learned in: they are multiplied by 1 - discount,
            so that values are means of rewards, and a job that is given up is charged its last
            reward for ever (all rewards are below zero, giving up must not end them). None: rewards
            unchanged.
        flat: Whether the action is `Discrete`, as DQN needs it: one move of one vertex, as with
            `SingleMove`; a capacity action is always flat.
        render_mode: "rgb_array": `render()` tiles a picture of every job, as `VecVideoRecorder`
            asks for it; needs the extra `video`.
    """

    def __init__(
        self,
        jobs: AutoscaleBatch | VectorEnv[Any, Any, Any],
        discount: float | None = None,
        *,
        flat: bool = False,
        render_mode: str | None = None,
    ) -> None:
        self.batch = batch = _batch_of(jobs)
        self._shown = render_mode
        self._watchers = None if render_mode is None else BatchWatcher(len(batch), render_mode)
        self.discount = discount
        rows, choices = len(batch), batch.codec.choices
        self._infos: Infos = [{}] * rows
        self._returns = np.zeros(rows)
        self._lengths = np.zeros(rows, dtype=np.int64)
        self._actions = np.zeros((rows, len(choices)), dtype=np.int64)
        self._single = flat and len(choices) > 1
        action: spaces.Space[Any] = spaces.MultiDiscrete(list(choices))
        if flat:
            action = spaces.Discrete(choices_of(batch.vertices) if self._single else choices[0])
        super().__init__(
            rows,
            spaces.Box(-LIMIT, LIMIT, (batch.codec.observation_size,), np.float32),
            action,
        )

    def seed(self, seed: int | None = None) -> list[int | None]:
        """Seed the streams of episodes for the next reset; two seeds share none.

        Args:
            seed: The seed; None: a random one.

        Returns:
            The seed of each row.
        """
        if seed is None:
            seed = int(np.random.SeedSequence().generate_state(1)[0])
        self._seeds = [seed * self.num_envs + row for row in range(self.num_envs)]
        return self._seeds

    def reset(self) -> Floats32:
        if None not in self._seeds:
            self.batch.seed(np.array(self._seeds, dtype=np.int64))
        self._reset_seeds()
        self._reset_options()
        self._returns[:] = 0
        self._lengths[:] = 0
        observation = self.batch.reset()
        if self._watchers is not None:
            self._watchers.begin(self.batch)
        return observation

    def step_async(self, actions: NDArray[np.generic]) -> None:
        parts = 1 if self._single else len(self.batch.codec.choices)
        chosen = whole_actions(actions, self.num_envs, parts)
        if self._single:
            chosen = pairs_of(chosen.reshape(-1), self.batch.vertices)
        self._actions = chosen.reshape(self.num_envs, -1)

    def step_wait(self) -> tuple[Floats32, Floats32, Bools, Infos]:
        step = self.batch.step(self._actions)
        if self._watchers is not None:
            self._watchers.add(self.batch, step)
        observation, infos = step.observation, self._infos
        done = step.terminated | step.truncated
        self._returns += step.reward
        self._lengths += 1
        # Infos are shared empty dicts until an episode ends: no work per row and step.
        if done.any():
            infos = infos.copy()
            for row in np.flatnonzero(done):
                # The keys that Stable-Baselines3 and its monitors look for.
                infos[row] = {
                    "terminal_observation": observation[row].copy(),
                    "TimeLimit.truncated": bool(step.truncated[row]),
                    # Episode figures as gymnasium's RecordEpisodeStatistics writes them: return and
                    # length.
                    "episode": {
                        "r": float(self._returns[row]),
                        "l": int(self._lengths[row]),
                    },
                }
            self._returns[done] = 0
            self._lengths[done] = 0
            observation = self.batch.reset(done)
            if self._watchers is not None:
                self._watchers.begin(self.batch, done)
        reward = discounted_units(step.reward, step.terminated, self.discount)
        return observation, reward, done, infos

    def get_images(self) -> tuple[Pixels, ...]:
        """Draw every job's episode so far.

        Returns:
            A picture (720, 1280, 3) of uint8 for each.
        """
        return () if self._watchers is None else self._watchers.pictures()

    def close(self) -> None:
        pass

    def env_method(
        self, method_name: str, *args: object, indices: Indices = None, **kwargs: object
    ) -> Any:
        # sb3-contrib stacks the results of the rows; the masks of all jobs are that stack already.
        if method_name != "action_masks":
            raise AttributeError(f"the jobs of a batch have no method '{method_name}'")
        masks = self.batch.action_masks()
        if self._single:
            masks = masks_of(masks)
        return masks if indices is None else masks[self._rows(indices)]

    def has_attr(self, attr_name: str) -> bool:
        return attr_name == "action_masks"

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[object]:
        if attr_name != "render_mode":
            raise AttributeError(f"the jobs of a batch have no attribute '{attr_name}'")
        return [self._shown] * len(self._rows(indices))

    def set_attr(self, attr_name: str, value: object, indices: Indices = None) -> None:
        raise AttributeError(f"'{attr_name}' cannot be set on single jobs of a batch")

    def env_is_wrapped(self, wrapper_class: type[object], indices: Indices = None) -> list[bool]:
        return [False] * len(self._rows(indices))

    def save(self) -> Tree:
        """Return everything the next step depends on, exactly.

        Returns:
            Arrays and JSON values; `load` continues exactly.
        """
        return {
            "batch": self.batch.save(),
            "returns": self._returns.copy(),
            "lengths": self._lengths.copy(),
        }

    def load(self, saved: Tree) -> None:
        """Continue from `save()`."""
        self.batch.load(saved["batch"])
        self._returns[:] = saved["returns"]
        self._lengths[:] = saved["lengths"]

    def _rows(self, indices: Indices) -> list[int]:
        return list(self._get_indices(indices))


def _batch_of(jobs: AutoscaleBatch | VectorEnv[Any, Any, Any]) -> AutoscaleBatch:
    """Return the batch, unwrapped from an environment of `gymnasium.make_vec` if needed."""
    found = jobs if isinstance(jobs, AutoscaleBatch) else getattr(jobs.unwrapped, "batch", None)
    if not isinstance(found, AutoscaleBatch):
        raise ConfigError(
            "is not a batch of simulated jobs",
            key="jobs",
            value=str(jobs),
            remedy="Pass gymnasium.make_vec(ID, num_envs=64) of an id of dsp_gym, without "
            "vectorization_mode.",
        )
    return found


def discounted_units(reward: Floats, terminated: Bools, discount: float | None) -> Floats32:
    """Scale rewards to units of a discount, so that values are means of rewards.

    A job that is given up is charged its last reward for ever: all rewards are below zero, and
    giving up must not end them.

    Args:
        reward: (J,) rewards of the last step.
        terminated: (J,) jobs that were given up in it.
        discount: Discount of the learner; None: rewards unchanged.

    Returns:
        (J,) rewards to learn from.
    """
    if discount is None:
        return reward.astype(np.float32)
    scale = 1.0 - discount
    # An unscaled reward r is (1 - discount) r / (1 - discount): the scaled one, for ever.
    return (reward * np.where(terminated, 1.0, scale)).astype(np.float32)
