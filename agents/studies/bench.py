"""Rates at which an agent takes decisions, and learns from them.

The environment is that of `dsp_gym.studies.bench`: eight vertices, every mechanism, the guardrails
of the shipped experiments.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import torch

from agents.learner import Learner
from dsp_gym.config.files import parse
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.studies.bench.environment import GUARDRAILS, experiment
from dsp_gym.studies.bench.machine import MeasuredRate, measure, timed

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

    name, threads = f"environment + {encoder} policy", torch.get_num_threads()
    return measure(name, "decisions/s", step, runs=runs, threads=threads)


def _learning(
    learners: dict[str, Learner], encoder: str, runs: int, bar: float
) -> list[MeasuredRate]:
    found: dict[str, list[float]] = {name: [] for name in learners}
    # Learners alternate, so that drifts of the machine's clock hit both.
    for _ in range(runs + 1):
        for name, learner in learners.items():
            agent, before = learner.config.ppo, learner.model.num_timesteps
            # Learning continues where the last run stopped: no run pays for the first reset.
            until = before + ROLLOUTS * agent.n_envs * agent.n_steps
            (seconds,) = timed(partial(learner.model.learn, until), 1)
            found[name].append((learner.model.num_timesteps - before) / seconds)
    native, sb3 = (each[1:] for each in found.values())  # the first one warms up
    times = [ours / theirs for ours, theirs in zip(native, sb3, strict=True)]
    ours, theirs = (learner.model.threads for learner in learners.values())
    name = f"PPO learn(), {encoder}"
    return [
        MeasuredRate.of(f"{name}, native", "decisions/s", native, ours, bar),
        MeasuredRate.of(f"{name}, sb3", "decisions/s", sb3, theirs),
        MeasuredRate.of(f"{name}, native over sb3", "times", times, ours, TIMES),
    ]
