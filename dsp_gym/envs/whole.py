"""Actions as learners send them: whole numbers, a row per job."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsp_gym.arrays import Ints
from dsp_gym.errors import ActionError


def whole_actions(actions: ArrayLike, jobs: int, parts: int) -> Ints:
    """Read actions of a learner, of any type of whole numbers.

    Args:
        actions: (jobs, parts) numbers; (jobs,) where an action has one part; of one job also
            (parts,), or a single number.
        jobs: Number of jobs.
        parts: Number of parts of an action.

    Returns:
        (jobs, parts), not shared with the caller.

    Raises:
        ActionError: A number is not whole, or the shape is wrong.
    """
    try:
        given: NDArray[np.generic] = np.asarray(actions)
    except ValueError:  # rows of different lengths
        raise ActionError(
            "actions have rows of different lengths",
            remedy=f"Send an array of shape {(parts,) if jobs == 1 else (jobs, parts)}.",
        ) from None
    if given.dtype.kind not in "iu":
        _refuse_fractions(given)
    shape = given.shape
    if shape != (jobs, parts) and not (
        (parts == 1 and shape == (jobs,)) or (jobs == 1 and shape in ((parts,), ()))
    ):
        expected = (parts,) if jobs == 1 else (jobs, parts)
        raise ActionError(
            f"actions have shape {shape}, expected {expected}",
            remedy="Send a row of `single_action_space` for each environment."
            if jobs > 1
            else "Send an element of `action_space`.",
        )
    if given.size != jobs * parts:  # one number for an action of several parts
        raise ActionError(
            f"the action is one number, expected {parts}",
            remedy="Send an element of `action_space`, or wrap the environment in SingleMove.",
        )
    return np.array(given, np.int64).reshape(jobs, parts)


def _refuse_fractions(given: NDArray[np.generic]) -> None:
    """Refuse what is no whole number; rounding a learner's action in silence hides its mistake."""
    if given.dtype.kind == "b":
        return
    if given.dtype.kind != "f":
        raise ActionError(
            f"actions are of type {given.dtype}, expected whole numbers",
            remedy="Send an array of int64.",
        )
    if not np.all(np.isfinite(given) & (given == np.floor(given))):
        raise ActionError(
            "actions are fractional, expected whole numbers: the places of choices",
            value=given.tolist(),
            remedy="Use an algorithm for discrete actions, or round to the choice that you mean.",
        )
