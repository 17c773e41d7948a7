"""How many decisions per second the environment makes, and how long starting takes.

One decision is 60 s of 1 s ticks of a job of eight vertices with every mechanism on, observation,
reward, masks, guardrails and autoreset included. Starting is told in processor seconds, which a
busy machine stretches least.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec

import numpy as np

from dsp_gym.arrays import Ints
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
from dsp_gym.studies.bench.machine import (
    MeasuredRate,
    measure,
    measure_with_processor,
    timed,
)

JOB = "bench-8"
GUARDRAILS = "floor"
"""The chain of the shipped experiments."""
MOVE_SHARE = 0.0015
"""Share of single moves that are not holding: 16 per decision of this job, so between one and two
rescales an hour, as often as the shipped agent asks for one."""

QUIET = "nexmark-q11"
"""Carries its load without a queue most of the time."""

QUIET_LOADS = {**DEFAULT_LOADS, "train": {"loads": ["diurnal"], "seeds": {"from": 0, "to": 512}}}
RULE = "ds2"
"""Scales the job of a simulated day."""

DAYS = (QUIET, JOB)
"""Jobs of the simulated days: a small one, and the one of the other figures."""

FRAME_JOB = "nexmark-q3"
DAY_S = 86_400

BARS = {
    "batch": 120_000.0,  # decisions per second
    "quiet batch": 350_000.0,
    "one job": 12_000.0,  # 83 us each, of which the simulation takes a third
    "frames": 1 / 0.030,  # per second of one core: 30 ms a frame of 1280 x 720
    "day": 0.05,  # seconds for a day of one job with a rule
}
"""What is wanted."""

_STARTS = {
    "import gymnasium": "import gymnasium",
    "import dsp_gym": "import dsp_gym",
    "dsp-gym --help": "import sys, dsp_gym.cli\nsys.argv = ['dsp-gym', '--help']\n"
    "try:\n    dsp_gym.cli.main()\nexcept SystemExit:\n    pass",
}


def bench_environment(jobs: int = 1024, runs: int = 5) -> list[MeasuredRate]:
    """Time the native batch and one environment, with and without guardrails, and days of one job.

    Returns:
        Decisions per second of each, of batches per CPU-second as well; frames per second where
        Pillow is installed, and seconds for a day.
    """
    rates: list[MeasuredRate] = []
    for document, guardrails, said, bar in (
        (experiment(), GUARDRAILS, "guardrails on", BARS["batch"]),
        (experiment(), None, "guardrails off", None),
        (experiment(QUIET, QUIET_LOADS), GUARDRAILS, f"{QUIET}, diurnal", BARS["quiet batch"]),
    ):
        envs = AutoscaleVectorEnv(jobs, config=document, guardrails=guardrails)
        threads = envs.batch.config.simulation.thread_count(jobs)
        name, step = f"{jobs} jobs, {said}", _batch(envs, jobs)
        rates += measure_with_processor(
            name, "decisions/s", step, runs=runs, threads=threads, bar=bar
        )
    for guardrails, said, bar in (
        (GUARDRAILS, "guardrails on", BARS["one job"]),
        ("default", "default guardrails", BARS["one job"]),
        (None, "guardrails off", None),
    ):
        env = AutoscaleEnv(config=experiment(), guardrails=guardrails)
        step = _single(env, _moves(512, 2 * env.batch.vertices), 100)
        rates.append(measure(f"one job, {said}", "decisions/s", step, runs=runs, bar=bar))
    if find_spec("PIL") is not None:
        rates.append(bench_frames(runs))
    return [*rates, *(bench_day(job, runs) for job in DAYS)]


def bench_frames(runs: int = 5) -> MeasuredRate:
    """Time drawing: a decision a frame, the decision included.

    Returns:
        Frames per second.
    """
    env = AutoscaleEnv(config=experiment(FRAME_JOB), render_mode="rgb_array")
    env.action_space.seed(0)
    draw = _single(env, (env.action_space.sample() for _ in itertools.count()), 1)
    name = f"frames of 1280 x 720, {FRAME_JOB}"
    return measure(name, "frames/s", draw, runs=runs, bar=BARS["frames"])


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

    def begin() -> None:
        jobs.reset(seeds, topology.tables.rate_per_s[:, None] * swing)
        loop.reset(seeds)

    def day() -> None:
        for _ in range(DAY_S // loop.interval_s):
            loop.step()

    name = f"simulated day of one job with {RULE}, {job}"
    return MeasuredRate.of(name, "s", timed(day, runs, 1, before=begin), bar=BARS["day"])


def bench_start(runs: int = 5) -> list[MeasuredRate]:
    """Time a fresh interpreter, its own start included.

    Returns:
        Processor milliseconds of each import and command.
    """
    return [
        MeasuredRate.of(name, "CPU ms", [_milliseconds(code) for _ in range(runs)])
        for name, code in _STARTS.items()
    ]


def _milliseconds(code: str) -> float:
    told = f"{code}\nimport sys, time\nprint(time.process_time(), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    return 1000.0 * float(done.stderr.split()[-1])


def experiment(job: str = JOB, loads: Mapping[str, object] = DEFAULT_LOADS) -> dict[str, object]:
    """Build the timed experiment as a document, guardrails left out.

    Args:
        job: name of a job file.
        loads: splits, as in an experiment's file.

    Returns:
        Keys of an experiment's file, two hours of simulation per episode.
    """
    return {
        "name": "bench",
        "jobs": [job],
        "loads": dict(loads),
        "env": EnvConfig(simulation=SimulationOptions(), episode_s=7200).model_dump(mode="json"),
    }


def _moves(turns: int, *shape: int) -> Iterator[Ints]:
    """Draw random actions in advance, most of which hold, and repeat them for ever."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, 3, (turns, *shape)) * (rng.random((turns, *shape)) < MOVE_SHARE)
    return itertools.cycle(drawn)


def _batch(envs: AutoscaleVectorEnv, jobs: int) -> Callable[[], int]:
    moves = _moves(64, jobs, 2 * envs.batch.vertices)
    envs.reset(seed=0)

    def step() -> int:
        envs.step(next(moves))
        return jobs

    return step


def _single(env: AutoscaleEnv, moves: Iterator[Ints], steps: int) -> Callable[[], int]:
    """Take steps, each drawn where the environment renders."""
    env.reset(seed=0)

    def step() -> int:
        for _ in range(steps):
            _, _, terminated, truncated, _ = env.step(next(moves))
            if env.render_mode is not None:
                env.render()
            if terminated or truncated:
                env.reset()
        return steps

    return step
