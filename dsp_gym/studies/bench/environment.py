"""How many decisions per second the environment makes.

One decision is 60 s of 1 s ticks of a job of eight vertices with every mechanism on, observation,
reward, masks, guardrails and autoreset included.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dsp_gym.envs.config import EnvConfig
from dsp_gym.envs.scenarios import DEFAULT_LOADS
from dsp_gym.envs.single import AutoscaleEnv
from dsp_gym.envs.vector import AutoscaleVectorEnv
from dsp_gym.simulation.options import SimulationOptions

__all__ = ["MeasuredRate", "bench_environment", "experiment", "machine", "measure"]

JOB = "bench-8"
GUARDRAILS = "floor"
"""The chain of the shipped experiments."""
MOVE_SHARE = 0.0015
"""Share of single moves that are not holding: 16 per decision of this job, so between one and two
rescales an hour, as often as the shipped agent asks for one."""

ONE_JOB_BAR = 12_000.0
"""Decisions per second wanted of one job: 83 us each, of which the simulation takes a third."""

MINIMUM_S = 2.0
"""A run lasts at least this long: an episode of the batch and its reset."""

BENCH_WARM_UP_S = 4.0
"""Before the first run: compiled code is loaded, and the loads of training are drawn and kept."""


@dataclass(frozen=True, slots=True)
class MeasuredRate:
    """A rate per second: median, slowest and fastest run."""

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
    """Times a piece of work that says how many units it did, for a second or more.

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
    """Times the native batch and one environment, each with and without guardrails.

    Returns:
        Decisions per second of each.
    """
    rates = []
    for guardrails, bar in ((GUARDRAILS, 100_000.0), (None, None)):
        envs = AutoscaleVectorEnv(jobs, config=experiment(), guardrails=guardrails)
        threads = envs.batch.config.simulation.thread_count(jobs)
        name = f"{jobs} jobs, guardrails {'on' if guardrails else 'off'}"
        step = _stepper(envs, jobs)
        rates.append(measure(name, "decisions/s", step, runs=runs, threads=threads, bar=bar))
    for guardrails, bar in ((GUARDRAILS, ONE_JOB_BAR), (None, None)):
        env = AutoscaleEnv(config=experiment(), guardrails=guardrails)
        name = f"one job, guardrails {'on' if guardrails else 'off'}"
        rates.append(measure(name, "decisions/s", _single(env), runs=runs, threads=1, bar=bar))
    return rates


def machine() -> dict[str, str | int]:
    """Describes the machine of the figures.

    Returns:
        Processor, cores, and versions of Python and NumPy, by name.
    """
    return {
        "processor": platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def experiment() -> dict[str, object]:
    """The timed experiment as a document, guardrails left out.

    Returns:
        Keys of an experiment's file, two hours of simulation per episode.
    """
    env = EnvConfig(simulation=SimulationOptions(), episode_s=7200)
    return {
        "name": "bench",
        "jobs": [JOB],
        "loads": DEFAULT_LOADS,
        "env": env.model_dump(mode="json"),
    }


def _stepper(envs: AutoscaleVectorEnv, jobs: int) -> Callable[[], int]:
    """Random actions, drawn before; most of them hold."""
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
