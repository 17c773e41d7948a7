"""The memory of an LSTM for each job between decisions, NumPy only."""

from __future__ import annotations

import numpy as np

from agents.network import NetworkShape, Weights, lstm_step
from dsp_gym.arrays import Floats32
from dsp_gym.loop.protocols import Mask, State

KEY = "lstm"


class LstmMemory:
    """The hidden and cell state of a network with an LSTM; empty for any other network.

    Args:
        weights: Weights of the actor.
        shape: Shape of the network.
    """

    def __init__(self, weights: Weights, shape: NetworkShape) -> None:
        self._weights, self._shape = weights, shape
        self._memory: Floats32 = np.zeros((0, 2, 0), np.float32)

    def reset(self, jobs: int, mask: Mask | None = None) -> None:
        """Forget all jobs, or only the rows where the mask is True, as an episode begins."""
        if mask is None or len(self._memory) != jobs:
            # Zeros are the state of a fresh episode, in training as here.
            self._memory = np.zeros((jobs, 2, self._shape.lstm or 0), np.float32)
        else:
            self._memory[mask] = 0.0

    def see(self, observation: Floats32) -> Floats32 | None:
        """Record the observation of a decision, once.

        Args:
            observation: (J, size) observations.

        Returns:
            Input of the layers behind the LSTM, (J, width); None without one.
        """
        if self._shape.lstm is None:
            return None
        self._memory = lstm_step(self._weights, observation, self._memory)
        return self._memory[:, 0]

    def forget_where(self, lost: Mask) -> None:
        """Forget the rows where an output was lost: a NaN that is remembered never goes away."""
        if self._shape.lstm is not None:
            self._memory[lost] = 0.0

    def state(self) -> State:
        """Return the memory as JSON values.

        Returns:
            Nested lists under one key; empty without an LSTM.
        """
        return {} if self._shape.lstm is None else {KEY: self._memory.tolist()}

    def restore(self, state: State) -> None:
        """Continue from the values of `state()`."""
        if self._shape.lstm is not None:
            self._memory = np.array(state[KEY], dtype=np.float32)
