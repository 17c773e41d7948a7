"""A step of an environment in one thread: the functions of `dsp_gym.envs`, for a batch of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import cuda, types

from dsp_gym.arrays import columns_of
from dsp_gym.envs import action, encode_snapshot, reward
from dsp_gym.envs.action import MEMORY_MOVES, MOVES, MoveTargets
from dsp_gym.envs.config import EnvConfig
from dsp_gym.envs.cuda.tables import hashed_seed
from dsp_gym.envs.encode_snapshot import LookArrays
from dsp_gym.envs.features import EncoderMemory, EncoderRoom
from dsp_gym.envs.reward import TERMS, ScoringRules
from dsp_gym.loop.snapshot import SnapshotArrays
from dsp_gym.loop.topology import JobFacts
from dsp_gym.simulation import outcome as outcomes
from dsp_gym.simulation.cuda.card import is_simulated
from dsp_gym.simulation.cuda.device_arrays import OnCard
from dsp_gym.simulation.cuda.kernels import function_of
from dsp_gym.simulation.cuda.one_job import hold, view_of_one
from dsp_gym.simulation.cuda.threads import Threads
from dsp_gym.simulation.measure import View
from dsp_gym.simulation.state import OUTCOME, SimulationState

_KEPT = ("seed", "service_factor", "delay_s", "next_parallelism", "next_level")
"""Arrays of the state that a start writes itself."""

SLO = TERMS.index("slo")


class EnvKernels(NamedTuple):
    """The kernels of a step, in their order; each for the environments chosen."""

    pick: Callable[..., None]
    act: Callable[..., None]
    begin: Callable[..., None]
    look: Callable[..., None]


class Sizes(NamedTuple):
    """Constants in the machine code of an environment."""

    vertices: int
    job_at: int  # first feature of the job in an observation
    observation: int
    episodes: int  # of a row of the pool


def env_kernels(config: EnvConfig, view: View, sizes: Sizes, of_thread: Threads) -> EnvKernels:
    """Build the kernels of an environment.

    Returns:
        Functions of handles.
    """
    return EnvKernels(
        _picking(sizes.vertices),
        _acting(config, of_thread),
        _beginning(sizes, of_thread),
        _looking(config, view, sizes, of_thread),
    )


def _picking(vertices: int) -> Callable[..., None]:
    """Build the kernel that reads the actions."""
    pick = function_of(action._pick)
    parts, shape = 2 * vertices, (1, 2 * vertices)

    def choose(wanted: OnCard, course: OnCard, seen: OnCard, moves: OnCard) -> None:
        j = cuda.grid(1)
        c, s, w = course.arrays, seen.arrays, wanted.arrays
        if j >= c.episode.shape[0]:
            return
        # A thread cannot raise: what lies outside the space holds, and is counted.
        held = cuda.local.array(shape, types.int64)
        for part in range(parts):
            move = moves.arrays.actions[j, part]
            choices = MOVES if part % 2 == 0 else MEMORY_MOVES
            held[0, part] = 0
            if move >= 0 and move < choices:
                held[0, part] = move
            else:
                c.refused[j] += 1
        pick(held, s.to[j], s.up[j], 0, 1, w.parallelism[j], w.level[j])

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


def _beginning(sizes: Sizes, of_thread: Threads) -> Callable[..., None]:
    """Build the kernel that begins the next episode of those that have ended, or of those asked."""
    clear, restart = _clearing(), of_thread.restart
    vertices, episodes, size = sizes.vertices, sizes.episodes, sizes.observation
    quantities = len(OUTCOME)

    def begin(
        model: OnCard,
        state: OnCard,
        loads: OnCard,
        course: OnCard,
        seen: OnCard,
        pool: OnCard,
        asked: OnCard,
        begun: OnCard,
        row: OnCard,
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
        clear(s, j)
        s.seed[j, 0] = hashed_seed(c.base_seed[j], c.episode[j])
        s.service_factor[j, 0], s.delay_s[j, 0] = p.factor[at], p.delay_s[at]
        for v in range(vertices):
            s.next_parallelism[j, 0, v] = p.parallelism[at, v]
            s.next_level[j, 0, v] = p.level[at, v]
            for i in range(e.memory_vertex.shape[3]):
                e.memory_vertex[j, 0, v, i] = np.nan
        for i in range(e.memory_job.shape[2]):
            e.memory_job[j, 0, i] = np.nan
        for i in range(quantities):
            loads.arrays.outcome[j, 0, i] = 0.0
        restart(model, state, row.arrays.rows, j)
        s.outage_s[j, 0] = np.nan

    return begin


def _looking(
    config: EnvConfig, view: View, sizes: Sizes, of_thread: Threads
) -> Callable[..., None]:
    """Build the kernel that observes, encodes and masks."""
    look_at, mark, observe = (
        function_of(encode_snapshot._look),
        function_of(action._mark),
        of_thread.observe,
    )
    facts_of = view_of_one(JobFacts, shared=JobFacts._fields[1:])
    room_with = view_of_one(EncoderRoom, given=("emitted",))
    window_s, stabilization_s, gauge_samples = view
    utilization, job_at, vertices = float(config.ds2_utilization), sizes.job_at, sizes.vertices

    def look(
        model: OnCard, state: OnCard, seen: OnCard, facts: OnCard, scratch: OnCard, chosen: OnCard
    ) -> None:
        j = cuda.grid(1)
        if j >= chosen.arrays.rows.shape[0] or not chosen.arrays.rows[j, 0]:
            return
        e = seen.arrays
        now = SnapshotArrays(
            e.status[j], e.parallelism[j], e.memory_level[j], e.job[j], e.vertex[j]
        )
        observe(model, state, View(window_s, stabilization_s, gauge_samples), now, j)
        emitted = cuda.local.array(vertices, types.float64)
        look_at(
            chosen.arrays.rows[j],
            hold(facts_of(facts.arrays, j)),
            now,
            utilization,
            0,
            1,
            hold(EncoderMemory(e.memory_vertex[j], e.memory_job[j], job_at)),
            hold(room_with(scratch.arrays, j, emitted)),
            LookArrays(e.rates[j], MoveTargets(e.to[j], e.up[j]), e.observation[j]),
        )
        mark(e.to[j], e.up[j], 0, 1, e.valid[j])

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
