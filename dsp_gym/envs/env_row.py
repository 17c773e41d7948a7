"""One environment of a vector environment, as `call` and `get_attr` see it."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from dsp_gym.arrays import Bools
from dsp_gym.envs.batch import AutoscaleBatch


class EnvRow:
    """Row i of a vector environment, with the attributes of a single environment.

    Args:
        envs: The vector environment.
        batch: Its jobs.
        row: Place of this one.
    """

    def __init__(self, envs: VectorEnv[Any, Any, Any], batch: AutoscaleBatch, row: int) -> None:
        self._envs, self._batch, self._row = envs, batch, row
        self.backend = "simulated"
        self.observation_space = envs.single_observation_space
        self.action_space = envs.single_action_space
        self.render_mode = envs.render_mode
        self.metadata = envs.metadata

    @property
    def spec(self) -> Any:
        """The spec that the vector environment was made from."""
        return self._envs.spec

    @property
    def load(self) -> str:
        """Name of the load of this episode."""
        return self._batch.load_labels[self._row]

    @property
    def job(self) -> str:
        """Name of the job of this episode."""
        return self._batch.topology.spec(self._row).job

    def action_masks(self) -> Bools:
        """Mark the valid actions.

        Returns:
            Flags, as those of a single environment.
        """
        return np.asarray(self._batch.action_masks()[self._row])

    def render(self) -> Any:
        """Render the episode so far.

        Returns:
            A picture; None without a render mode.
        """
        pictures = self._envs.render()
        return None if pictures is None else pictures[self._row]
