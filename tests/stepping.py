"""A vector environment stepped beside single ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dsp_gym.envs.single import AutoscaleEnv
from dsp_gym.envs.vector import AutoscaleVectorEnv

JOBS = 3


def assert_vector_equals_single(
    experiment: object, guardrails: str | None, choose: Callable[[np.ndarray], np.ndarray]
) -> None:
    """Environment i of a vector and the single one with seed + i see and give the same.

    Args:
        experiment: Of both.
        guardrails: Of both.
        choose: Gives actions for masks, a row per job.
    """
    many = AutoscaleVectorEnv(JOBS, config=experiment, guardrails=guardrails)
    alone = [AutoscaleEnv(config=experiment, guardrails=guardrails) for _ in range(JOBS)]
    seen, info = many.reset(seed=7)
    for i, env in enumerate(alone):
        np.testing.assert_array_equal(env.reset(seed=7 + i)[0], seen[i])
    ended = 0
    for _ in range(45):  # two ends of episodes, and rescales on the way
        actions = choose(info["action_mask"])
        seen, reward, terminated, truncated, info = many.step(actions)
        for i, env in enumerate(alone):
            one, r, end, cut, single = env.step(actions[i])
            assert (r, end, cut) == (reward[i], terminated[i], truncated[i])
            if end or cut:
                ended += 1
                np.testing.assert_array_equal(info["final_obs"][i], one)
                one, single = env.reset()
            np.testing.assert_array_equal(one, seen[i])
            np.testing.assert_array_equal(single["action_mask"], info["action_mask"][i])
    assert ended >= 2 * JOBS
