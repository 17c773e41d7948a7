"""How many decisions per second an agent takes, and learns from.

The environment is that of `dsp_gym.studies.bench`: eight vertices, every mechanism, the
guardrails of the shipped experiments.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from agents.learner import Learner
from dsp_gym.config.files import parse
from dsp_gym.evaluation.experiment import ExperimentConfig
from dsp_gym.studies.bench.environment import GUARDRAILS, MeasuredRate, experiment, measure

__all__ = ["bench_learning"]

BARS = {"mlp": 12_000.0, "graph": 4_000.0}
ROLLOUTS = 2
"""Rollouts of one run of `learn()`."""


def bench_learning(runs: int = 5) -> list[MeasuredRate]:
    """Inference and PPO's `learn()` with both networks.

    Returns:
        Two rates per network, in the order of `BARS`: inference, then learning, both in
        decisions/s.
    """
    rates = []
    for encoder, bar in BARS.items():
        with tempfile.TemporaryDirectory() as folder:
            learner = Learner(_config(encoder), 0, Path(folder))
            rates += [_acting(learner, encoder, runs), _learning(learner, encoder, runs, bar)]
    return rates


def _config(encoder: str) -> ExperimentConfig:
    agent = {
        "algorithm": "ppo",
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


def _learning(learner: Learner, encoder: str, runs: int, bar: float) -> MeasuredRate:
    agent = learner.config.agent
    steps = ROLLOUTS * agent.n_envs * agent.n_steps

    def learn() -> int:
        learner.model.learn(steps)
        return steps

    threads = torch.get_num_threads()
    return measure(
        f"PPO learn(), {encoder}", "decisions/s", learn, runs=runs, threads=threads, bar=bar
    )
