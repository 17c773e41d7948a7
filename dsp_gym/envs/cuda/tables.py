"""The tables that the threads of environments work on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Bools, Floats, Floats32, Ints
from dsp_gym.compiling import njit
from dsp_gym.envs.reward import TERMS

SLO = TERMS.index("slo")

_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_OF_SEED, _OF_EPISODE = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1B54A32D192ED03)
_ONE = np.uint64(1)
_S27, _S30, _S31 = np.uint64(27), np.uint64(30), np.uint64(31)


class Pool(NamedTuple):
    """Episodes drawn on the host; every environment takes those of its row, one after the other.

    The rates stand among the simulation's `Loads`.
    """

    parallelism: Ints  # (episodes, V) to begin with
    level: Ints  # (episodes, V)
    factor: Floats  # (episodes,) scale of CPU times
    delay_s: Ints  # (episodes,) age of the newest sample seen
    late_price: Floats  # (episodes,) weight of the reward's term slo
    skipped: Ints  # (episodes,) steps by which an environment's first episode is shorter
    job: Ints  # (episodes,) place of the job among the distinct ones
    unit: Floats  # (episodes,) its reference cost per second


class EnvCourse(NamedTuple):
    """Where each environment stands, and what a step gives back."""

    base_seed: Ints  # (J,) seed of its stream of episodes
    episode: Ints  # (J,) number of the episode
    pool_row: Ints  # (J,) first of its episodes in the pool
    refused: Ints  # (J,) parts of actions outside the space, taken as holding
    steps: Ints  # (J, 1)
    unit: Floats  # (J, 1) reference cost per second
    weights: Floats  # (J, terms, 1) of the reward
    scores: Floats  # (J, terms + 1, 1)
    ends: Bools  # (J, 2, 1)
    last: Floats  # (J, 1, quantities) outcome of the step
    final: Floats32  # (J, 1, size) last observation of an episode that has ended


class EnvSight(NamedTuple):
    """What is seen of each job, and what an agent is shown."""

    status: Ints  # (J, 1)
    parallelism: Ints  # (J, 1, V)
    memory_level: Ints  # (J, 1, V)
    job: Floats  # (J, metrics, 1)
    vertex: Floats  # (J, metrics, 1, V)
    rates: Floats  # (J, len(RATES), 1, V); of capacity actions only where guardrails read them
    valid: Bools  # (J, 1, choices)
    observation: Floats32  # (J, 1, size)


class ChosenEnvs(NamedTuple):
    """The environments that a kernel works on."""

    rows: Bools  # (J, 1)
    first: Ints  # (1,) 0, the row of a batch of one


class Moves(NamedTuple):
    """Actions of an agent."""

    actions: Ints  # (J, parts)


@njit(cache=True, nogil=True)
def hashed_seed(seed: int, episode: int) -> int:
    """Compute `dsp_gym.envs.episodes.episode_seed`.

    Returns:
        A seed from 0 to 2^63 - 1.
    """
    z = np.uint64(seed) * _OF_SEED + (np.uint64(episode) + _ONE) * _OF_EPISODE
    z = (z ^ (z >> _S30)) * _FIRST
    z = (z ^ (z >> _S27)) * _SECOND
    hashed: int = np.int64((z ^ (z >> _S31)) >> _ONE)  # type: ignore[assignment]  # an int to its readers
    return hashed
