"""Whole trainings: learning, exact resumption, and deployed agents that equal the trained ones."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sb3_contrib")
import torch

from agents.cloning import clone, demonstrate, discounted
from agents.environment import training_batch, validation_batch
from agents.export import export
from agents.learner import Learner, TrainingInterrupted
from agents.sb3_vec import Sb3VecEnv, discounted_units
from agents.trained import TrainedConfig, TrainedPolicy
from agents.training import train
from dsp_gym.config.files import parse, read_yaml
from dsp_gym.errors import ConfigError
from dsp_gym.experiments.experiment import ExperimentConfig
from tests.learning import assert_resumes_bit_for_bit, small_experiment


def an_experiment(**agent) -> ExperimentConfig:
    return small_experiment(agent)


@pytest.mark.parametrize("learner", ["native", "sb3"])
@pytest.mark.parametrize("algorithm", ["ppo", "maskable-ppo"])
@pytest.mark.parametrize("encoder", ["graph", "mlp"])
def test_going_on_from_a_checkpoint_gives_the_same_agent_bit_for_bit(
    tmp_path, algorithm, encoder, learner
):
    network = {"hidden": [16], "encoder": encoder}
    config = an_experiment(algorithm=algorithm, network=network, learner=learner)
    assert_resumes_bit_for_bit(config, tmp_path)


def test_a_checkpoint_of_another_experiment_is_refused(tmp_path):
    Learner(an_experiment(), 0, tmp_path).run()
    with pytest.raises(ConfigError, match=r"agent\.gamma.*made with 0\.97"):
        Learner(an_experiment(gamma=0.9), 0, tmp_path).run(resume=True)


def test_training_goes_on_when_more_steps_are_asked_for(tmp_path):
    Learner(an_experiment(), 0, tmp_path).run()
    longer = Learner(an_experiment(total_steps=1536), 0, tmp_path)
    longer.run(resume=True)
    assert longer.model.num_timesteps == 1536


@pytest.mark.parametrize("algorithm", ["ppo", "maskable-ppo"])
@pytest.mark.parametrize("encoder", ["graph", "mlp"])
def test_the_deployed_policy_decides_as_the_trained_one(tmp_path, encoder, algorithm):
    network = {"hidden": [16], "encoder": encoder, "hold_bias": 0}
    config = an_experiment(algorithm=algorithm, network=network)
    learner = Learner(config, 0, tmp_path)
    learner.run()
    learner.best.weights = learner.weights()
    policy = TrainedPolicy(TrainedConfig(path=str(export(learner, tmp_path / "policy"))))
    batch = validation_batch(config)
    observation = batch.reset()
    policy.reset(batch.topology, batch.base_seeds)
    moved = False
    for _ in range(12):
        network = learner.model.policy.features_extractor
        with torch.no_grad():
            expected = network(torch.from_numpy(observation))[:, :-1].numpy()
        found = policy.scores(observation, batch.vertices).reshape(expected.shape)
        np.testing.assert_allclose(found, expected, atol=1e-5)
        masks = {"action_masks": batch.action_masks()} if learner.masked else {}
        actions, _ = learner.model.policy.predict(observation, deterministic=True, **masks)
        decision = policy.decide(batch.snapshot)
        moved |= any(reason != "hold" for reason in decision.reasons)
        step = batch.step(actions)
        np.testing.assert_array_equal(decision.parallelism, step.guarded.proposed.parallelism)
        np.testing.assert_array_equal(decision.memory_level, step.guarded.proposed.memory_level)
        observation = step.observation
    assert moved


def test_looking_at_features_leaves_the_policy_as_it_was(tmp_path):
    config = an_experiment()
    learner = Learner(config, 0, tmp_path)
    learner.run()
    policy = TrainedPolicy(TrainedConfig(path=str(export(learner, tmp_path / "policy"))))
    batch = validation_batch(config)
    batch.reset()
    policy.reset(batch.topology, batch.base_seeds)
    before = policy.state()
    features = policy.features(batch.snapshot)
    assert policy.state() == before
    assert features["busy"].shape == (len(batch), batch.vertices)
    assert features["backlog"].shape == (len(batch),)
    assert set(policy.document.observation.quantiles) == set(features)


@pytest.mark.slow
def test_a_clone_of_a_teacher_agrees_with_it(tmp_path):
    config = an_experiment(
        warm_start={
            "teacher": "ds2",
            "decisions": 2048,
            "epochs": 30,
            "batch_size": 256,
            "learning_rate": 3e-3,
        }
    )
    learner = Learner(config, 0, tmp_path)
    learner.env.seed(0)
    learner.env.reset()
    warm = config.agent.warm_start
    shown = demonstrate(learner.batch, "ds2", warm.decisions, config.agent.gamma)
    assert (shown.actions != 0).any()
    vertices = learner.batch.vertices
    masks = shown.masks.reshape(-1, vertices, 10)
    moves = shown.actions.reshape(-1, vertices, 2)
    assert np.take_along_axis(masks[..., :7], moves[..., :1], 2).all()
    assert np.take_along_axis(masks[..., 7:], moves[..., 1:], 2).all()
    assert clone(learner.model.policy, shown, warm, config.agent) > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["watch", "imitate"])
def test_a_stop_before_learning_is_at_once_and_leaves_nothing(tmp_path, stage):
    warm = {"teacher": "ds2", "decisions": 256, "epochs": 3, "batch_size": 256}
    seen = []

    def progress(name, done, of, figures):
        seen.append(name)
        learner.stop = name == stage

    learner = Learner(an_experiment(warm_start=warm), 0, tmp_path, progress=progress)
    with pytest.raises(TrainingInterrupted):
        learner.run()
    assert seen.count(stage) == 1
    assert seen[-1] == stage
    assert not learner.checkpoint.exists()


def test_returns_are_discounted_sums():
    rewards = np.array([[-1.0], [-2.0], [-3.0]], np.float32)
    expected_end = -3 + 0.5 * -4  # the future is like the mean, -2 / (1 - 0.5)
    found = discounted(rewards, 0.5)[:, 0]
    np.testing.assert_allclose(
        found, [-1 + 0.5 * (-2 + 0.5 * expected_end), -2 + 0.5 * expected_end, expected_end]
    )


def test_an_episode_that_ends_says_how_and_starts_anew():
    env = Sb3VecEnv(training_batch(an_experiment(), 6))
    env.seed(1)
    env.reset()
    hold = np.zeros((6, 2 * env.batch.vertices), np.int64)
    rewards = np.zeros(6)
    for k in range(20):
        observation, reward, done, infos = env.step(hold)
        rewards += reward
        assert done.all() == (k == 19)
        assert all(info == {} for info in infos) == (k < 19)
    assert all(info["TimeLimit.truncated"] for info in infos)
    assert [info["episode"]["l"] for info in infos] == [20] * 6
    np.testing.assert_allclose([info["episode"]["r"] for info in infos], rewards, rtol=1e-5)
    terminal = np.stack([info["terminal_observation"] for info in infos])
    assert not np.array_equal(terminal, observation)
    assert (env.batch.steps == 0).all()


def test_the_streams_of_two_seeds_share_no_episode():
    env = Sb3VecEnv(training_batch(an_experiment(), 6))
    assert not set(env.seed(0)) & set(env.seed(1))


def test_a_job_given_up_is_charged_for_ever():
    found = discounted_units(np.array([-2.0, -2.0]), np.array([False, True]), 0.9)
    # -2 (1 - g) a decision, and the same for ever: -2 (1 - g) / (1 - g)
    np.testing.assert_allclose(found, [-0.2, -2.0], rtol=1e-6)


def test_the_best_seed_is_published_and_finished_seeds_are_not_trained_again(tmp_path):
    config = an_experiment(seeds=[0, 1], total_steps=512)
    result = train(config, tmp_path)
    assert result.by_seed[result.seed]["return"] == max(
        figures["return"] for figures in result.by_seed.values()
    )
    policy = TrainedPolicy(TrainedConfig(path=str(tmp_path / "policy")))
    assert policy.document.seed == result.seed
    resolved = parse(ExperimentConfig, read_yaml(tmp_path / "config.yaml"), "config.yaml")
    assert resolved == config
    before = (tmp_path / "seed-0" / "checkpoint" / "state.json").stat().st_mtime_ns
    assert train(config, tmp_path, resume=True).by_seed == result.by_seed
    assert (tmp_path / "seed-0" / "checkpoint" / "state.json").stat().st_mtime_ns == before


def test_a_longer_training_that_is_killed_before_its_export_does_not_publish_the_older_policy(
    tmp_path, monkeypatch
):
    def killed(*arguments):
        raise RuntimeError("killed")

    train(an_experiment(seeds=[0], total_steps=256, eval_every=256), tmp_path)
    longer = an_experiment(seeds=[0], total_steps=512, eval_every=256)
    with monkeypatch.context() as patched:
        patched.setattr("agents.export.export", killed)
        with pytest.raises(RuntimeError, match="killed"):
            train(longer, tmp_path, resume=True)
    assert (tmp_path / "policy").is_dir()  # the published one stays meanwhile
    train(longer, tmp_path, resume=True)
    published = parse(ExperimentConfig, read_yaml(tmp_path / "policy" / "config.yaml"), "policy")
    assert published == longer


def test_resuming_where_nothing_was_begun_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no checkpoint"):
        train(an_experiment(), tmp_path / "none", resume=True)
    assert not (tmp_path / "none").exists()
