"""Common parts of the learners of all kinds of agents: stages, and a stop before the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from dsp_gym.arrays import Floats32

OnStage = Callable[[str, int, int, dict[str, float]], None]
"""Callback with a stage ("watch" a teacher, "imitate", "offline", "count", "learn"), the work done

and in all, and figures.
"""


class TrainingInterrupted(Exception):
    """Training was asked to stop, and did so after writing a checkpoint of what was learned."""


class SeedLearner(Protocol):
    """Trains one agent of one seed."""

    checkpoint: Path
    stop: bool
    """Set to stop: after the update under way, and with a checkpoint of what was learned."""

    @property
    def figures(self) -> dict[str, float]:
        """Validation figures of the best agent so far."""

    def run(self, *, resume: bool = False) -> object:
        """Learn to the end, from the last checkpoint if asked.

        Raises:
            TrainingInterrupted: `stop` was set; a checkpoint of what was learned has been written.
        """


class BatchLearner(Protocol):
    """Learns on the batch of an environment.

    It is made from the batch, the section `agent`, the shape of the network and a seed.
    """

    threads: int
    """Cores that updates run on."""

    @property
    def policy(self) -> Any:
        """Actor and critic, a torch module."""

    @property
    def num_timesteps(self) -> int:
        """Decisions learned from, over all jobs."""

    @property
    def observations(self) -> Floats32:
        """Observations of the last rollout, (N, size)."""

    def learn(
        self,
        until: int,
        between: Callable[[dict[str, float]], None] = lambda figures: None,
        sampled: Callable[[], None] = lambda: None,
    ) -> None:
        """Learn until a number of decisions, the first rollout that reaches it included.

        Args:
            until: decisions over all jobs, those before included.
            between: called before each rollout with the figures of the last update.
            sampled: called after each rollout.
        """

    def state(self) -> dict[str, Any]:
        """Everything the next update depends on, weights and environments left out.

        Returns:
            Arrays and JSON values; `restore` continues exactly.
        """

    def restore(self, saved: dict[str, Any]) -> None:
        """Continue from `state()` and the number of steps."""
