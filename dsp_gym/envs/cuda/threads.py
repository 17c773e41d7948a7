"""A step of an environment in one thread: the functions of `dsp_gym.envs`, for a batch of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import cuda, types

from dsp_gym.arrays import columns_of
from dsp_gym.envs import reward
from dsp_gym.envs.config import EnvConfig
from dsp_gym.envs.cuda.codec import CodecThreads
from dsp_gym.envs.cuda.tables import SLO, hashed_seed
from dsp_gym.envs.reward import ScoringRules
from dsp_gym.loop.snapshot import SnapshotArrays
from dsp_gym.simulation import outcome as outcomes
from dsp_gym.simulation.cuda.card import is_simulated
from dsp_gym.simulation.cuda.device_arrays import OnCard
from dsp_gym.simulation.cuda.kernels import function_of
from dsp_gym.simulation.cuda.threads import Threads
from dsp_gym.simulation.measure import View
from dsp_gym.simulation.state import OUTCOME, SimulationState

_KEPT = ("seed", "service_factor", "delay_s", "next_parallelism", "next_level")
"""Arrays of the state that a start writes itself."""


class EnvKernels(NamedTuple):
    """The kernels of a step, in their order; each for the environments chosen."""

    pick: Callable[..., None]
    act: Callable[..., None]
    begin: Callable[..., None]
    look: Callable[..., None]


class Sizes(NamedTuple):
    """Constants in the machine code of an environment."""

    vertices: int
    observation: int
    parts: int  # of an action
    choices: tuple[int, int]  # of its parts, in turn
    episodes: int  # of a row of the pool


def env_kernels(
    config: EnvConfig, view: View, sizes: Sizes, of_thread: Threads, of_codec: CodecThreads
) -> EnvKernels:
    """Build the kernels of an environment.

    Returns:
        Functions of handles.
    """
    return EnvKernels(
        _picking(sizes, of_codec),
        _acting(config, of_thread),
        _beginning(sizes, of_thread, of_codec),
        _looking(view, of_thread, of_codec),
    )


def _picking(sizes: Sizes, of_codec: CodecThreads) -> Callable[..., None]:
    """Build the kernel that reads the actions."""
    pick, parts, shape = of_codec.pick, sizes.parts, (1, sizes.parts)
    first, second = sizes.choices

    def choose(wanted: OnCard, course: OnCard, seen: OnCard, codec: OnCard, moves: OnCard) -> None:
        j = cuda.grid(1)
        c = course.arrays
        if j >= c.episode.shape[0]:
            return
        # A thread cannot raise: what lies outside the space holds, and is counted.
        held = cuda.local.array(shape, types.int64)
        for part in range(parts):
            move = moves.arrays.actions[j, part]
            choices = first if part % 2 == 0 else second
            held[0, part] = 0
            if move >= 0 and move < choices:
                held[0, part] = move
            else:
                c.refused[j] += 1
        pick(wanted, seen, codec, held, j)

    return choose


def _acting(config: EnvConfig, of_thread: Threads) -> Callable[..., None]:
    """Build the kernel that asks for the wanted configurations, lets the jobs run, and scores."""
    score, average = function_of(reward.score), function_of(outcomes._average)
    ask, advance = of_thread.ask, of_thread.advance
    give_up_s, quantities = float(config.give_up_backlog_s), len(OUTCOME)
    interval_s, episode_s = config.interval_s, config.episode_s

    def act(model: OnCard, state: OnCard, loads: OnCard, wanted: OnCard, course: OnCard) -> None:
        j = cuda.grid(1)
        c, w, given = course.arrays, wanted.arrays, loads.arrays
        if j >= c.episode.shape[0]:
            return
        ask(model, state, wanted, loads, j)
        advance(model, state, loads, interval_s, j)
        mine = given.outcome[j]
        average(mine, 0, 1)
        rules = ScoringRules(c.weights[j], give_up_s, interval_s, episode_s)
        score(mine, c.unit[j], rules, 0, 1, c.steps[j], c.scores[j], c.ends[j])
        for i in range(quantities):
            c.last[j, 0, i] = mine[0, i]
            mine[0, i] = 0.0
        w.answer[j, 0] = 0

    return act


def _beginning(sizes: Sizes, of_thread: Threads, of_codec: CodecThreads) -> Callable[..., None]:
    """Build the kernel that begins the next episode of those that have ended, or of those asked."""
    clear, restart, forget = _clearing(), of_thread.restart, of_codec.forget
    vertices, episodes, size = sizes.vertices, sizes.episodes, sizes.observation
    quantities = len(OUTCOME)

    def begin(
        model: OnCard,
        state: OnCard,
        loads: OnCard,
        course: OnCard,
        seen: OnCard,
        codec: OnCard,
        pool: OnCard,
        asked: OnCard,
        begun: OnCard,
    ) -> None:
        j = cuda.grid(1)
        c, s, e, p = course.arrays, state.arrays, seen.arrays, pool.arrays
        if j >= c.episode.shape[0]:
            return
        ends = asked.arrays.rows[j, 0] or c.ends[j, 0, 0] or c.ends[j, 1, 0]
        begun.arrays.rows[j, 0] = ends
        if not ends:
            return
        for i in range(size):
            c.final[j, 0, i] = e.observation[j, 0, i]
        c.episode[j] += 1
        at = c.pool_row[j] + c.episode[j] % episodes
        loads.arrays.load[j] = at
        c.steps[j, 0] = p.skipped[at] if c.episode[j] == 0 else 0
        c.weights[j, SLO, 0] = p.late_price[at]
        model.arrays.row[j, 0], c.unit[j, 0] = p.job[at], p.unit[at]
        clear(s, j)
        s.seed[j, 0] = hashed_seed(c.base_seed[j], c.episode[j])
        s.service_factor[j, 0], s.delay_s[j, 0] = p.factor[at], p.delay_s[at]
        for v in range(vertices):
            s.next_parallelism[j, 0, v] = p.parallelism[at, v]
            s.next_level[j, 0, v] = p.level[at, v]
        for i in range(quantities):
            loads.arrays.outcome[j, 0, i] = 0.0
        restart(model, state, begun.arrays.first, j)
        forget(model, codec, begun, j)
        s.outage_s[j, 0] = np.nan

    return begin


def _looking(view: View, of_thread: Threads, of_codec: CodecThreads) -> Callable[..., None]:
    """Build the kernel that observes, encodes and masks."""
    observe, look_at = of_thread.observe, of_codec.look
    window_s, stabilization_s, gauge_samples = view

    def look(
        model: OnCard,
        state: OnCard,
        seen: OnCard,
        codec: OnCard,
        course: OnCard,
        chosen: OnCard,
    ) -> None:
        j = cuda.grid(1)
        if j >= chosen.arrays.rows.shape[0] or not chosen.arrays.rows[j, 0]:
            return
        e = seen.arrays
        now = SnapshotArrays(
            e.status[j], e.parallelism[j], e.memory_level[j], e.job[j], e.vertex[j]
        )
        observe(model, state, View(window_s, stabilization_s, gauge_samples), now, j)
        look_at(model, seen, now, codec, course, chosen, j)

    return look


def _clearing() -> OnCard:
    """Compile a function that writes zeros into a job's rows of the state."""
    lines = ["def _clear(s, j):"]
    for field in columns_of(SimulationState):
        if field.name in _KEPT:
            continue
        # (J, 1, ...): one loop per axis beyond the first two.
        depth = len(field.column.axes.split()) - 1
        index = "".join(f", i{n}" for n in range(depth))
        for n in range(depth):
            lines.append(f"{' ' * 4 * (n + 1)}for i{n} in range(s.{field.name}.shape[{n + 2}]):")
        lines.append(f"{' ' * 4 * (depth + 1)}s.{field.name}[j, 0{index}] = 0")
    scope: dict[str, OnCard] = {}
    exec("\n".join(lines), scope)  # of field names alone
    return scope["_clear"] if is_simulated() else cuda.jit(device=True)(scope["_clear"])
