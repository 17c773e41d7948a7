"""How much slower environments are side by side in Gymnasium's `SyncVectorEnv` than one alone.

    python -m dsp_gym.studies.bench.sync --out docs/figures/sync.json

Both sides are made by `gymnasium.make` with the same arguments, and take turns. Eight decisions are
timed at once, less than a millisecond; the lowest time of each side counts, in which nothing else
had the processor.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium.vector import SyncVectorEnv, VectorEnv

from dsp_gym.arrays import Bools
from dsp_gym.config.files import write_atomic
from dsp_gym.studies.bench.environment import MOVE_SHARE
from dsp_gym.studies.bench.machine import machine

_Env = gymnasium.Env[object, object]
_Envs = VectorEnv[object, object, Bools]

ENVS = 8
TURN = 64
"""How often a side plays eight decisions in a turn."""

OURS = "dsp_gym/Nexmark-Q11-v1"
YARDSTICK = "CartPole-v1"
BAR = 1.5
"""Most that a step in `SyncVectorEnv` may cost, in steps of one environment."""

TIMED: tuple[tuple[str, dict[str, object]], ...] = (
    (YARDSTICK, {}),
    (OURS, {}),
    (OURS, {"info_keys": ()}),
    ("dsp_gym/Nexmark-Q3-v1", {}),
    ("dsp_gym/Nexmark-Q11-Capacity-v2", {}),
)
"""Ids and keywords of the timed environments."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """What a decision costs in one environment, and in one of several."""

    env: str
    keywords: Mapping[str, object]
    one_us: float
    sync_us: float  # of each environment
    vec_us: float  # of each environment of `make_vec`

    @property
    def ratio(self) -> float:
        """Cost in `SyncVectorEnv` over that of one environment."""
        return self.sync_us / self.one_us


def bench_sync(turns: int = 60) -> list[StepTimes]:
    """Time decisions of one environment, and of several in Gymnasium's vector environment.

    Args:
        turns: How often each side plays, after a turn that warms up.

    Returns:
        The lowest time per decision of every side.
    """
    sides = [_sides(env, keywords) for env, keywords in TIMED]
    lowest = np.full((len(TIMED), 3), np.inf)
    for turn in range(turns + 1):
        for i, (of_env, (env, _)) in enumerate(zip(sides, TIMED, strict=True)):
            took_us = [
                1e6 * _play(side, 1.0 if env == YARDSTICK else MOVE_SHARE) for side in of_env
            ]
            if turn:
                lowest[i] = np.minimum(lowest[i], took_us)
    return [StepTimes(*timed, *row) for timed, row in zip(TIMED, lowest.tolist(), strict=True)]


def _sides(env: str, keywords: dict[str, object]) -> tuple[_Env, _Envs, _Envs]:
    """Make one environment, and several in two ways."""
    make: Callable[..., _Env] = gymnasium.make  # it types some keywords, and takes all
    make_vec: Callable[..., _Envs] = gymnasium.make_vec
    many: _Envs = SyncVectorEnv([lambda: make(env, **keywords)] * ENVS)
    sides = make(env, **keywords), many, make_vec(env, num_envs=ENVS, **keywords)
    for side in sides:
        side.reset(seed=0)
        side.action_space.seed(0)
    return sides


def _play(env: _Env | _Envs, share: float) -> float:
    """Take a turn.

    Args:
        env: One environment, or several.
        share: Of choices that are drawn; the others are 0, so jobs hold.

    Returns:
        Lowest time per decision of any eight, s.
    """
    several, rng = isinstance(env, VectorEnv), np.random.default_rng(0)
    lowest, begins = np.inf, True
    for _ in range(TURN):
        # Drawn ahead of the clock: one action of all, or as many one after the other.
        drawn = [np.asarray(env.action_space.sample()) for _ in range(1 if several else ENVS)]
        moves = [np.multiply(one, rng.random(one.shape) < share) for one in drawn]
        ends: bool | Bools = False
        begun = time.perf_counter()
        for move in moves:
            _, _, terminated, truncated, _ = env.step(move)
            ended = terminated | truncated
            if not several and ended:
                env.reset()
            ends = ends | ended
        took_s = time.perf_counter() - begun
        if not (begins or np.any(ends)):  # decisions alone
            lowest = min(lowest, took_s / ENVS)
        begins = bool(several and np.any(ends))
    return lowest


def main(arguments: list[str] | None = None) -> int:
    """Print both times and their ratio of every environment (command line).

    Returns:
        The exit code: 1 where ours, as they are by default, miss the bar.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--turns", type=int, default=60, help="how often each side plays")
    parser.add_argument("--out", type=Path, help="file for the figures, as JSON")
    given = parser.parse_args(arguments)
    found = bench_sync(given.turns)
    for one in found:
        told = ", ".join(f"{name}={value!r}" for name, value in one.keywords.items())
        sys.stdout.write(
            f"{one.env:32s} {told:14s} {one.one_us:6.1f} us alone, {one.sync_us:6.1f} us in "
            f"SyncVectorEnv of {ENVS}: {one.ratio:.2f}; {one.vec_us:6.1f} us in make_vec\n"
        )
    if given.out is not None:
        document = {
            "machine": machine(),
            "gymnasium": gymnasium.__version__,
            "envs": ENVS,
            "times": [asdict(one) for one in found],
        }
        write_atomic(given.out, json.dumps(document, indent=1) + "\n")
    return int(any(one.ratio > BAR for one in found if one.env != YARDSTICK))


if __name__ == "__main__":
    sys.exit(main())
