"""Experiments train with other algorithms of Stable-Baselines3 and sb3-contrib."""

from __future__ import annotations

import json

import gymnasium
import numpy as np
import pytest
import torch
from pydantic import ValidationError
from typer.testing import CliRunner

import dsp_gym.envs.registration as registration
from agents.export import export
from agents.learner import Learner
from agents.sb3_vec import Sb3VecEnv
from agents.stock import StockActor
from agents.trained import TrainedConfig, TrainedPolicy
from dsp_gym.cli import app
from dsp_gym.errors import ConfigError
from dsp_gym.experiments.agent import AgentConfig
from tests.learning import assert_resumes_bit_for_bit, small_experiment

registration.register_all()

pytestmark = pytest.mark.slow  # importing torch takes seconds

PLAIN = {"network": {"encoder": "mlp", "hidden": [16]}}
CASES = {
    "a2c": {"algorithm": "a2c"},
    "trpo": {"algorithm": "trpo", "params": {"cg_max_steps": 5}},
    "dqn": {"algorithm": "dqn", "params": {"learning_starts": 64}},
    "qr-dqn": {"algorithm": "qr-dqn", "params": {"policy_kwargs": {"n_quantiles": 9}}},
    "recurrent-ppo": {
        "algorithm": "recurrent-ppo",
        "params": {"policy_kwargs": {"lstm_hidden_size": 12}},
    },
}


def experiment(name: str, action: str = "vertex"):
    agent = {**PLAIN, **CASES[name], "total_steps": 512, "eval_every": 512}
    return small_experiment(agent, jobs=["nexmark-q11"], env={"episode_s": 1200, "action": action})


@pytest.mark.parametrize("action", ["vertex", "capacity"])
@pytest.mark.parametrize("name", CASES)
def test_an_exported_agent_decides_as_it_did_in_training(name, action, tmp_path):
    learner = Learner(experiment(name, action), 3, tmp_path / "seed")
    best = learner.run()
    assert learner.model.num_timesteps == 512
    kept = {name: torch.from_numpy(value) for name, value in best.weights.items()}
    learner.model.policy.load_state_dict(kept)
    policy = TrainedPolicy(TrainedConfig(path=str(export(learner, tmp_path / "policy"))))
    assert policy.document.algorithm == name
    batch = learner.validation
    batch.episodes[:] = 0
    observation = batch.reset()
    policy.reset(batch.topology, batch.base_seeds)
    actor = StockActor(learner.model.policy, learner.shape)
    for _ in range(15):
        actions, _ = actor.predict(observation, deterministic=True)
        expected, decided = batch.decode_actions(actions), policy.decide(batch.snapshot)
        assert (decided.parallelism == expected.parallelism).all()
        assert (decided.memory_level == expected.memory_level).all()
        observation = batch.step(actions).observation


@pytest.mark.parametrize("name", ["a2c", "dqn", "recurrent-ppo"])
def test_a_training_that_was_stopped_goes_on_as_if_it_had_not_been(name, tmp_path):
    agent = {**PLAIN, **CASES[name]}
    assert_resumes_bit_for_bit(small_experiment(agent, jobs=["nexmark-q11"]), tmp_path)


@pytest.mark.parametrize("action", ["vertex", "capacity"])
def test_an_lstm_remembers_until_its_episode_ends_as_stable_baselines3_has_it(action, tmp_path):
    learner = Learner(experiment("recurrent-ppo", action), 5, tmp_path / "seed")
    with torch.no_grad():  # an untrained one whose memory decides
        for name, value in learner.model.policy.named_parameters():
            value.mul_(4.0 if "lstm_actor" in name or "action_net.weight" in name else 1.0)
        learner.model.policy.action_net.bias.zero_()
    learner.evaluate()
    folder = export(learner, tmp_path / "policy")
    assert not {file.name for file in folder.iterdir()} - {
        "policy.json", "weights.safetensors", "config.yaml", "card.md"
    }  # fmt: skip
    policy, batch = TrainedPolicy(TrainedConfig(path=str(folder))), learner.validation
    batch.episodes[:] = 0
    observation = batch.reset()
    policy.reset(batch.topology, batch.base_seeds)
    starts, memory, moved, forgetful = np.ones(len(batch), bool), None, set(), []
    for step in range(20):
        actions, memory = learner.model.policy.predict(
            observation, memory, episode_start=starts, deterministic=True
        )
        actions = actions.reshape(len(batch), -1)
        without, _ = learner.model.policy.predict(observation, deterministic=True)
        forgetful.append((without.reshape(len(batch), -1) != actions).any())
        expected, decided = batch.decode_actions(actions), policy.decide(batch.snapshot)
        assert (decided.parallelism == expected.parallelism).all(), step
        assert (decided.memory_level == expected.memory_level).all(), step
        moved |= set(actions.reshape(-1).tolist())
        observation = batch.step(actions).observation
        starts = np.zeros(len(batch), bool)
        if step == 7:  # as after a restart: another process goes on from the state
            state = json.loads(json.dumps(policy.state()))
            policy = TrainedPolicy(TrainedConfig(path=str(folder)))
            policy.reset(batch.topology, batch.base_seeds)
            policy.restore(state)
        if step == 12:  # one episode begins anew, the others go on
            starts[1] = True
            observation = batch.reset(starts)
            policy.reset(batch.topology, batch.base_seeds, starts)
    assert len(moved) > 1
    assert any(forgetful)  # the memory decides, too


@pytest.mark.parametrize(
    ("network", "says"),
    [({"n_lstm_layers": 2}, "one layer"), ({"lstm_hidden_size": 0}, "from 1 to 1,024")],
)
def test_a_memory_that_a_policy_folder_cannot_hold_is_refused(network, says, tmp_path):
    agent = {**PLAIN, "algorithm": "recurrent-ppo", "params": {"policy_kwargs": network}}
    with pytest.raises(ConfigError, match=says):
        Learner(small_experiment(agent), 0, tmp_path)


@pytest.mark.parametrize(
    ("agent", "says"),
    [
        (
            {"algorithm": "sac"},
            "'sac' acts on continuous actions.*These fit: a2c, dqn",
        ),
        ({"algorithm": "TD3"}, "acts on continuous actions"),
        ({"algorithm": "ppo2"}, "is no algorithm there is. These fit"),
        ({"algorithm": "a2c"}, "set network.encoder: mlp"),
        ({"algorithm": "a2c", **PLAIN, "warm_start": {"teacher": "ds2"}}, "leave warm_start"),
        ({"algorithm": "ppo", "params": {"n_steps": 5}}, "params are not of ppo"),
    ],
    ids=str,
)
def test_an_algorithm_that_does_not_fit_is_refused_with_those_that_do(agent, says):
    with pytest.raises(ValidationError, match=says):
        AgentConfig.model_validate(agent)


def test_an_argument_that_an_algorithm_does_not_take_is_named(tmp_path):
    agent = {**PLAIN, "algorithm": "a2c", "params": {"use_rms": True}}
    with pytest.raises(ConfigError, match="Did you mean 'use_rms_prop'"):
        Learner(small_experiment(agent), 0, tmp_path)


def test_the_shape_of_the_network_stands_in_one_place(tmp_path):
    agent = {**PLAIN, "algorithm": "dqn", "params": {"policy_kwargs": {"net_arch": [8]}}}
    with pytest.raises(ConfigError, match=r"Set agent\.network\.hidden"):
        Learner(small_experiment(agent), 0, tmp_path)


def test_the_command_says_which_algorithms_fit(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "name: mine\njobs: [nexmark-q11]\nagent: {algorithm: sac}\n"
        "loads:\n  train: {loads: [diurnal-bursts], seeds: {from: 0, to: 9}}\n"
        "  validation: {loads: [diurnal-bursts], seeds: {from: 9, to: 12}}\n"
    )
    run = CliRunner().invoke(app, ["train", str(file)])
    assert run.exit_code == 2
    assert "These fit: a2c, dqn, maskable-ppo, ppo, qr-dqn, recurrent-ppo, trpo." in " ".join(
        run.stderr.split()
    )


def test_a_flat_batch_masks_and_moves_one_vertex():
    env = Sb3VecEnv(gymnasium.make_vec("dsp_gym/Nexmark-Q11-v1", num_envs=4), flat=True)
    env.reset()
    assert env.action_space.n == 25
    assert env.env_method("action_masks").shape == (4, 25)
    before = env.batch.jobs.collector.snapshot().arrays.parallelism.copy()
    for _ in range(6):
        env.step(np.full(4, 3 + 8))  # one task more for the second vertex
    after = env.batch.snapshot.arrays.parallelism
    assert (after[:, 1] > before[:, 1]).all()
    assert (after[:, [0, 2]] == before[:, [0, 2]]).all()
    with pytest.raises(ConfigError, match=r"gymnasium\.make_vec"):
        Sb3VecEnv(gymnasium.make_vec("CartPole-v1", num_envs=2))
