"""A short training has as many updates as it takes to learn, without being told how."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from dsp_gym.experiments.agent import UPDATES, AgentConfig, NetworkConfig
from dsp_gym.experiments.experiment import ExperimentConfig


@pytest.mark.parametrize("steps", [30_000, 50_000, 200_000, 800_000])
def test_a_short_training_has_fifty_updates(steps: int) -> None:
    agent = AgentConfig(total_steps=steps)
    rollout = agent.n_envs * agent.n_steps
    assert steps // rollout >= UPDATES
    assert agent.batch_size * 4 <= rollout
    assert (steps - rollout) // rollout < 2 * UPDATES  # and no more than it needs


def test_a_long_training_fills_the_cores() -> None:
    assert (AgentConfig().n_envs, AgentConfig().batch_size) == (512, 8192)
    assert AgentConfig(total_steps=819_200).n_envs == 512


def test_numbers_that_are_given_stay() -> None:
    agent = AgentConfig(total_steps=50_000, n_envs=512)
    assert (agent.n_envs, agent.batch_size) == (512, 8192)
    agent = AgentConfig(total_steps=50_000, batch_size=64)
    assert (agent.n_envs, agent.batch_size) == (31, 64)
    assert AgentConfig(total_steps=50).n_envs == 16
    with pytest.raises(ValidationError, match="a rollout has only"):
        AgentConfig(total_steps=50_000, batch_size=4096)


@pytest.mark.parametrize("algorithm", ["a2c", "dqn", "qr-dqn"])
def test_an_algorithm_without_minibatches_may_have_a_rollout_smaller_than_one(
    algorithm: str,
) -> None:
    mlp = NetworkConfig(encoder="mlp")
    agent = AgentConfig(algorithm=algorithm, network=mlp, n_envs=16, n_steps=5)
    assert agent.n_envs * agent.n_steps < agent.batch_size
    with pytest.raises(ValidationError, match="a rollout has only"):
        AgentConfig(algorithm="trpo", network=mlp, n_envs=16, n_steps=5)


def test_a_short_training_of_many_jobs_has_a_row_for_each() -> None:
    load = {"loads": ["diurnal-bursts"], "seeds": {"from": 0, "to": 9}}
    document = {
        "name": "many",
        "jobs": ["nexmark-q11"],
        "loads": {"train": load},
        "family": {"graphs": 96},
        "agent": {"total_steps": 100_000},
    }
    agent = ExperimentConfig.model_validate(document).ppo
    assert (agent.n_envs, agent.batch_size) == (97, 97 * 32 // 4)
    with pytest.raises(ValidationError, match=r"n_envs is 62, expected at least one per job"):
        ExperimentConfig.model_validate(document | {"agent": {"n_envs": 62, "batch_size": 64}})


def test_what_was_written_is_read_as_it_was() -> None:
    short = AgentConfig(total_steps=50_000)
    assert AgentConfig.model_validate(short.model_dump(by_alias=True)) == short
