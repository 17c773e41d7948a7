"""Rates at which an agent takes decisions, and learns from them.

The environment is that of `dsp_gym.studies.bench`: eight vertices, every mechanism, the guardrails
of the shipped experiments.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import torch

from agents.learner import Learner
from dsp_gym.config.files import parse
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.studies.bench.environment import GUARDRAILS, MeasuredRate, experiment, measure

BARS = {"mlp": 30_000.0, "graph": 15_000.0}
TIMES = 1.5
"""Least speed of the native learner, as a multiple of Stable-Baselines3's."""

LEARNERS = ("native", "sb3")
ROLLOUTS = 2
"""Rollouts of one run of `learn()`."""


def bench_learning(runs: int = 5) -> list[MeasuredRate]:
    """Measure inference and PPO's `learn()` with both networks, by both learners in turn.

    Args:
        runs: Measured runs of each, after one that warms up.

    Returns:
        Four rates per network, in the order of `BARS`: inference and both `LEARNERS`, in
        decisions/s, and the ratio of the first learner's speed to the second's.
    """
    rates = []
    for encoder, bar in BARS.items():
        with tempfile.TemporaryDirectory() as folder:
            learners = {name: Learner(_config(encoder, name), 0, Path(folder)) for name in LEARNERS}
            rates += [_acting(learners["native"], encoder, runs)]
            rates += _learning(learners, encoder, runs, bar)
    return rates


def _config(encoder: str, learner: str) -> ExperimentConfig:
    agent = {
        "algorithm": "ppo",
        "learner": learner,
        "network": {"encoder": encoder},
        "n_envs": 512,
        "n_steps": 32,
        "batch_size": 8192,
        "n_epochs": 4,
    }
    return parse(
        ExperimentConfig, {**experiment(), "guardrails": GUARDRAILS, "agent": agent}, "bench"
    )


def _acting(learner: Learner, encoder: str, runs: int) -> MeasuredRate:
    env, policy = learner.env, learner.model.policy
    observation = [env.reset()]

    def step() -> int:
        with torch.no_grad():
            actions, _, _ = policy(torch.from_numpy(observation[0]))
        env.step_async(actions.numpy())
        observation[0] = env.step_wait()[0]
        return env.num_envs

    threads = torch.get_num_threads()
    return measure(
        f"environment + {encoder} policy", "decisions/s", step, runs=runs, threads=threads, bar=None
    )


def _learning(
    learners: dict[str, Learner], encoder: str, runs: int, bar: float
) -> list[MeasuredRate]:
    found: dict[str, list[float]] = {name: [] for name in learners}
    # Learners alternate, so that drifts of the machine's clock hit both.
    for run in range(runs + 1):
        for name, learner in learners.items():
            agent, before = learner.config.ppo, learner.model.num_timesteps
            begun = time.perf_counter()
            # Learning continues where the last run stopped: no run pays for the first reset.
            learner.model.learn(before + ROLLOUTS * agent.n_envs * agent.n_steps)
            if run > 0:  # the first one warms up
                done = learner.model.num_timesteps - before
                found[name].append(done / (time.perf_counter() - begun))
    threads = {name: learner.model.threads for name, learner in learners.items()}
    rates = [
        _summary(
            f"PPO learn(), {encoder}, {name}",
            "decisions/s",
            each,
            threads[name],
            bar if name == "native" else None,
        )
        for name, each in found.items()
    ]
    native, sb3 = found.values()
    times = [ours / theirs for ours, theirs in zip(native, sb3, strict=True)]
    name = f"PPO learn(), {encoder}, native over sb3"
    return [*rates, _summary(name, "times", times, threads["native"], TIMES)]


def _summary(
    name: str, unit: str, each: list[float], threads: int, bar: float | None
) -> MeasuredRate:
    return MeasuredRate(
        name, unit, statistics.median(each), min(each), max(each), len(each), threads, bar
    )
