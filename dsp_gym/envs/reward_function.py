"""A reward of the user's own: a function of the named terms, in place of their weighted sum."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from dsp_gym.arrays import Floats
from dsp_gym.config.plugins import Plugins
from dsp_gym.envs.reward import TERMS, RewardTerms
from dsp_gym.errors import ConfigError, did_you_mean

RewardFunction = Callable[[RewardTerms], ArrayLike]
"""Takes the unweighted terms by name, each (J,), and returns the reward of every job, (J,)."""

GROUP = "dsp_gym.rewards"
"""Entry-point group under which a distribution offers functions of the terms."""

_INSTALLED = Plugins(GROUP, "reward", "docs/environments/reward.md")


def reward_function_of(reward: object) -> RewardFunction | None:
    """Find the function that an argument `reward` means.

    Args:
        reward: A function; the name of an entry point in the group `dsp_gym.rewards`; or where to
            import it from, "module:function". Anything else means weights.

    Returns:
        The function; None where weights are meant.

    Raises:
        ConfigError: There is no such function.
    """
    if isinstance(reward, str):
        return _imported(reward)
    return cast(RewardFunction, reward) if callable(reward) else None


def rewards_by(function: RewardFunction, terms: RewardTerms) -> Floats:
    """Compute the reward of every job by a function.

    Args:
        function: Of the user.
        terms: Unweighted terms by name, each (J,).

    Returns:
        The rewards, (J,).

    Raises:
        ConfigError: It returned no finite number for each job.
    """
    jobs = len(next(iter(terms.values())))
    # Copies: a function may compute in place, and `info` tells the terms as they were.
    given = {name: term.copy() for name, term in terms.items()}
    try:
        found = np.asarray(function(given), dtype=np.float64)
    except (TypeError, ValueError, KeyError) as error:
        raise _refused(f"cannot be computed: {type(error).__name__}: {error}", jobs) from error
    if found.shape != (jobs,):
        raise _refused(f"has shape {found.shape}, expected ({jobs},)", jobs)
    if not np.isfinite(found).all():
        raise _refused(f"is not finite: {found[~np.isfinite(found)][0]}", jobs)
    return found


def _refused(problem: str, jobs: int) -> ConfigError:
    return ConfigError(
        f"the reward of the function {problem}",
        key="reward",
        remedy=f"It takes a mapping of {', '.join(TERMS)} to arrays ({jobs},) and returns one "
        "such array: write it with operators and functions of NumPy.",
    )


def _imported(name: str) -> RewardFunction:
    """Import a function by the name of its entry point, or by its place."""
    found: object
    if ":" in name and name not in _INSTALLED:
        try:
            found = EntryPoint(name, name, GROUP).load()
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"cannot be imported: {error}",
                key="reward",
                value=name,
                remedy="Write 'module:function', and have the module on the path.",
            ) from error
    elif name in _INSTALLED:
        found = _INSTALLED.load(name)
    else:
        known = f" {did_you_mean(name, _INSTALLED.entries)}" if _INSTALLED.entries else ""
        raise ConfigError(
            f"there is no reward '{name}'",
            key="reward",
            remedy=f"Pass a mapping of {', '.join(TERMS)} to weights, a function of these terms, "
            f"its place as 'module:function', or its entry point in {GROUP}.{known}",
        )
    if not callable(found):
        raise ConfigError(
            "is no function of the reward's terms",
            key="reward",
            value=name,
            remedy=f"It takes a mapping of {', '.join(TERMS)} to arrays.",
        )
    return cast(RewardFunction, found)
