"""How many decisions per second the environment makes.

One decision is 60 s of 1 s ticks of a job of eight vertices with every mechanism on, observation,
reward, masks, guardrails and autoreset included.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np

from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.control.loop import ControlLoop
from dsp_gym.envs.config import EnvConfig
from dsp_gym.envs.scenarios import DEFAULT_LOADS
from dsp_gym.envs.single import AutoscaleEnv
from dsp_gym.envs.vector import AutoscaleVectorEnv
from dsp_gym.job.catalog import load_job
from dsp_gym.loop.topology import Topology
from dsp_gym.policies.capabilities import without_reasons
from dsp_gym.policies.registry import make
from dsp_gym.simulation.options import SimulationOptions

JOB = "bench-8"
GUARDRAILS = "floor"
"""The chain of the shipped experiments."""
MOVE_SHARE = 0.0015
"""Share of single moves that are not holding: 16 per decision of this job, so between one and two
rescales an hour, as often as the shipped agent asks for one."""

BATCH_BAR = 120_000.0
"""Decisions per second wanted of the batch."""

QUIET = "nexmark-q11"
"""Carries its load without a queue most of the time."""

QUIET_LOADS = {**DEFAULT_LOADS, "train": {"loads": ["diurnal"], "seeds": {"from": 0, "to": 512}}}
QUIET_BAR = 350_000.0

ONE_JOB_BAR = 12_000.0
"""Decisions per second wanted of one job: 83 us each, of which the simulation takes a third."""

RULE = "ds2"
"""Scales the job of a simulated day."""

DAYS = (QUIET, JOB)
"""Jobs of the simulated days: a small one, and the one of the other figures."""

FRAME_JOB = "nexmark-q3"
FRAME_BAR = 1 / 0.030
"""Frames per second wanted of one core: 30 ms a frame of 1280 x 720."""

DAY_S = 86_400
DAY_BAR = 0.05
"""Seconds wanted for a simulated day of one job with a rule."""

MINIMUM_S = 2.0
"""A run lasts at least this long: an episode of the batch and its reset."""

BENCH_WARM_UP_S = 4.0
"""Before the first run: compiled code is loaded, and the loads of training are drawn and kept."""


@dataclass(frozen=True, slots=True)
class MeasuredRate:
    """A rate per second, or a time: median, lowest and highest of the runs."""

    name: str
    unit: str
    median: float
    low: float
    high: float
    runs: int
    threads: int
    bar: float | None


def measure(
    name: str, unit: str, once: Callable[[], int], *, runs: int, threads: int, bar: float | None
) -> MeasuredRate:
    """Time a piece of work that returns how many units it did, for a second or more.

    Returns:
        Units per second over the runs.
    """
    begun = time.perf_counter()
    while time.perf_counter() - begun < BENCH_WARM_UP_S:
        once()
    rates = []
    for _ in range(runs):
        done, begun = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - begun) < MINIMUM_S:
            done += once()
        rates.append(done / elapsed)
    return MeasuredRate(
        name, unit, statistics.median(rates), min(rates), max(rates), runs, threads, bar
    )


def bench_environment(jobs: int = 1024, runs: int = 5) -> list[MeasuredRate]:
    """Time the native batch and one environment, with and without guardrails, and days of one job.

    Returns:
        Decisions per second of each, frames per second where Pillow is installed, and seconds for
        a day.
    """
    rates = []
    for document, guardrails, said, bar in (
        (experiment(), GUARDRAILS, "guardrails on", BATCH_BAR),
        (experiment(), None, "guardrails off", None),
        (experiment(QUIET, QUIET_LOADS), GUARDRAILS, f"{QUIET}, diurnal", QUIET_BAR),
    ):
        envs = AutoscaleVectorEnv(jobs, config=document, guardrails=guardrails)
        threads = envs.batch.config.simulation.thread_count(jobs)
        name = f"{jobs} jobs, {said}"
        step = _stepper(envs, jobs)
        rates.append(measure(name, "decisions/s", step, runs=runs, threads=threads, bar=bar))
    for guardrails, said, bar in (
        (GUARDRAILS, "guardrails on", ONE_JOB_BAR),
        ("default", "default guardrails", ONE_JOB_BAR),
        (None, "guardrails off", None),
    ):
        env = AutoscaleEnv(config=experiment(), guardrails=guardrails)
        rate = _single(env)
        name = f"one job, {said}"
        rates.append(measure(name, "decisions/s", rate, runs=runs, threads=1, bar=bar))
    if find_spec("PIL") is not None:
        rates.append(bench_frames(runs))
    return [*rates, *(bench_day(job, runs) for job in DAYS)]


def bench_frames(runs: int = 5) -> MeasuredRate:
    """Time drawing: a decision a frame, the decision included.

    Returns:
        Frames per second.
    """
    env = AutoscaleEnv(config=experiment(FRAME_JOB), render_mode="rgb_array")
    env.reset(seed=0)
    env.action_space.seed(0)

    def draw() -> int:
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        env.render()
        if terminated or truncated:
            env.reset()
        return 1

    name = f"frames of 1280 x 720, {FRAME_JOB}"
    return measure(name, "frames/s", draw, runs=runs, threads=1, bar=FRAME_BAR)


def bench_day(job: str, runs: int = 5) -> MeasuredRate:
    """Time a simulated day of one job that the rule `RULE` scales once a minute.

    The load swings once around the job's reference rate. Loop, snapshots and decisions are
    included; reasons in words are not, as in evaluation.

    Args:
        job: name or path of a job file.
        runs: days that are timed, after one that is not.

    Returns:
        Seconds for a day.
    """
    topology = Topology.of([load_job(job)])
    swing = 1 + 0.5 * np.sin(2 * np.pi * np.arange(DAY_S) / DAY_S)
    jobs, seeds = SimulatedJobs(topology, SimulationOptions()), np.zeros(1, np.int64)
    loop = ControlLoop(jobs, without_reasons(make(RULE)))
    spent = []
    for _ in range(1 + runs):
        jobs.reset(seeds, topology.tables.rate_per_s[:, None] * swing)
        loop.reset(seeds)
        begun = time.perf_counter()
        for _ in range(DAY_S // loop.interval_s):
            loop.step()
        spent.append(time.perf_counter() - begun)
    timed = spent[1:]
    name = f"simulated day of one job with {RULE}, {job}"
    median = statistics.median(timed)
    return MeasuredRate(name, "s", median, min(timed), max(timed), runs, 1, DAY_BAR)


def experiment(job: str = JOB, loads: Mapping[str, object] = DEFAULT_LOADS) -> dict[str, object]:
    """Build the timed experiment as a document, guardrails left out.

    Args:
        job: name of a job file.
        loads: splits, as in an experiment's file.

    Returns:
        Keys of an experiment's file, two hours of simulation per episode.
    """
    env = EnvConfig(simulation=SimulationOptions(), episode_s=7200)
    return {
        "name": "bench",
        "jobs": [job],
        "loads": dict(loads),
        "env": env.model_dump(mode="json"),
    }


def _stepper(envs: AutoscaleVectorEnv, jobs: int) -> Callable[[], int]:
    """Draw random actions in advance; most of them hold."""
    rng = np.random.default_rng(0)
    size = 2 * envs.batch.vertices
    moves = rng.integers(0, 3, (64, jobs, size)) * (rng.random((64, jobs, size)) < MOVE_SHARE)
    envs.reset(seed=0)
    turn = iter(range(10**9))

    def step() -> int:
        envs.step(moves[next(turn) % 64])
        return jobs

    return step


def _single(env: AutoscaleEnv) -> Callable[[], int]:
    rng = np.random.default_rng(0)
    size = 2 * env.batch.vertices
    moves = rng.integers(0, 3, (512, size)) * (rng.random((512, size)) < MOVE_SHARE)
    env.reset(seed=0)
    turn = iter(range(10**9))

    def step() -> int:
        for _ in range(100):
            _, _, terminated, truncated, _ = env.step(moves[next(turn) % 512])
            if terminated or truncated:
                env.reset()
        return 100

    return step
