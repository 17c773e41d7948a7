"""Gymnasium wrappers of the action space."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from dsp_gym.arrays import Bools, Ints
from dsp_gym.envs.single_move import choices_of, masks_of, pairs_of
from dsp_gym.envs.whole import whole_actions
from dsp_gym.errors import ConfigError


class SingleMove(gymnasium.ActionWrapper[Any, np.int64, Ints]):
    """A wrapper that makes the action of one job flat: `Discrete(1 + 8 V)`.

    `action_masks()` and `info["action_mask"]` mark the valid choices.

    Args:
        env: An environment whose action is a move of every vertex.
    """

    def __init__(self, env: gymnasium.Env[Any, Ints]) -> None:
        super().__init__(env)
        if not isinstance(env.action_space, spaces.MultiDiscrete):
            raise ConfigError(
                "the action is flat already",
                key="action_space",
                value=str(env.action_space),
                remedy="Leave the wrapper out.",
            )
        self.vertices = len(env.action_space.nvec) // 2
        self.action_space: spaces.Space[np.int64] = spaces.Discrete(choices_of(self.vertices))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode.

        Returns:
            The observation, and info with the mask of this action.
        """
        observation, info = super().reset(seed=seed, options=options)
        return observation, self._with_mask(info)

    def step(self, action: np.int64) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take one decision.

        Returns:
            As the environment, with the mask of this action.
        """
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated, self._with_mask(info)

    def action(self, action: np.int64) -> Ints:
        """Translate a choice to the moves of all vertices.

        Returns:
            (V * 2,) moves.
        """
        choice = whole_actions(action, 1, 1)[0]
        if not 0 <= choice[0] < choices_of(self.vertices):
            raise ValueError(f"the action {action} is outside 0..{choices_of(self.vertices) - 1}")
        return np.asarray(pairs_of(choice, self.vertices)[0])

    def action_masks(self) -> Bools:
        """Mark the valid choices, as sb3-contrib's MaskablePPO expects.

        Returns:
            (1 + V * 8,) flags.
        """
        masks: Bools = self.env.get_wrapper_attr("action_masks")()
        return np.asarray(masks_of(masks[None])[0])

    def _with_mask(self, info: dict[str, object]) -> dict[str, object]:
        """Replace the mask of all moves in place: a copy would have the listed keys alone."""
        if "action_mask" in info:
            info["action_mask"] = masks_of(np.asarray(info["action_mask"])[None])[0]
        return info
