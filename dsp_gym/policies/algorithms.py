"""Learning algorithms by name, through the entry points of installed distributions.

An experiment names one under `agent.algorithm`. The library imports none: `agents` offers its own
in the group `dsp_gym.algorithms`, and so can anyone else. An entry point names an `Algorithm`: it
says what it needs and imports nothing, so that a configuration is checked without torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any, cast

from dsp_gym.config.plugins import Plugins
from dsp_gym.errors import ConfigError, PolicyError

ALGORITHMS = Plugins("dsp_gym.algorithms", "algorithm", "docs/guides/add-an-algorithm.md")


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """How an algorithm learns, and what it needs. Its parts are named as `module:Class`."""

    learner: str = ""
    """Learns on the batch of jobs: a class that keeps `agents.stages.BatchLearner`."""

    trainer: str = "agents.learner:Learner"
    """Trains one seed: a class that keeps `agents.stages.SeedLearner`."""

    export: str = "agents.export:export"
    """Writes the policy's folder: a function of the trainer, the folder and the data's folder."""

    plain_layers: bool = True
    """Its network is Stable-Baselines3's: layers over the whole observation. Otherwise it is this
    project's, which an agent can also have imitate a teacher."""

    flat_actions: bool = False
    """It chooses one of a list: one move of one vertex per decision, or a capacity action."""

    masked: bool = False
    """It never tries a move that bounds forbid."""

    minibatches: bool = True
    """It cuts a rollout into minibatches of `batch_size`, which is then no larger than one."""

    lstm: bool = False
    """It has an LSTM before its layers, `policy_kwargs.lstm_hidden_size` wide."""


def find_algorithm(name: str) -> Algorithm:
    """Find an installed algorithm.

    Returns:
        The record that its entry point names.

    Raises:
        ConfigError: No distribution offers it, it cannot be loaded, or it is no `Algorithm`.
    """
    found = ALGORITHMS.load(name)
    if not isinstance(found, Algorithm):
        raise ConfigError(
            f"algorithm '{name}' is no `Algorithm`",
            value=type(found).__name__,
            remedy=f"See {ALGORITHMS.guide}.",
        )
    return found


def load_part(algorithm: str, part: str) -> Callable[..., Any]:
    """Import a part of an algorithm.

    Args:
        algorithm: its name.
        part: "learner", "trainer" or "export".

    Returns:
        The class or function.

    Raises:
        PolicyError: It cannot be imported.
    """
    named: str = getattr(find_algorithm(algorithm), part)
    try:
        return cast(Callable[..., Any], resolve_name(named))
    except (ImportError, AttributeError, ValueError) as error:
        raise PolicyError(
            f"the {part} of algorithm '{algorithm}' cannot be imported from '{named}': {error}",
            remedy="Training needs the extra `train`: pip install 'dsp-gym[train]'",
        ) from error
