"""What a reset of several environments takes: seeds, and the environments that begin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard, cast

import numpy as np

from dsp_gym.arrays import Bools
from dsp_gym.errors import ConfigError


def checked_mask(mask: object, num_envs: int) -> Bools:
    """Check a `reset_mask`.

    Args:
        mask: What was given.
        num_envs: Number of environments.

    Returns:
        (num_envs,) True: the environment begins an episode.

    Raises:
        ConfigError: It is no array of a flag for each environment.
    """
    found = np.asarray(mask)
    if found.shape != (num_envs,) or found.dtype != np.bool_:
        raise ConfigError(
            f"has shape {found.shape} and type {found.dtype}, expected ({num_envs},) and bool",
            key="reset_mask",
            remedy="Pass terminated | truncated of the last step.",
        )
    return cast(Bools, found)


def checked_seeds(seed: object, num_envs: int) -> list[int | None]:
    """Check the seeds of a reset.

    Args:
        seed: What was given.
        num_envs: Number of environments.

    Returns:
        A seed for each environment; None: it keeps its stream.

    Raises:
        ConfigError: They are no numbers from 0 on, or not one for each environment.
    """
    if _is_seed(seed):
        return [seed + i for i in range(num_envs)]
    each: list[object] = list(seed) if isinstance(seed, Sequence | np.ndarray) else [seed]
    seeds = [one for one in each if one is None or _is_seed(one)]
    if len(seeds) < len(each):
        wrong = next(one for one in each if not (one is None or _is_seed(one)))
        raise ConfigError("expected whole numbers from 0 on", key="seed", value=wrong)
    if len(each) != num_envs:
        raise ConfigError(
            f"there are {len(each)} seeds for {num_envs} environments",
            key="seed",
            remedy="Pass one for each, or one number: environment i then takes seed + i.",
        )
    return seeds


def _is_seed(value: object) -> TypeGuard[int]:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 0
