"""The native learner computes the results of Stable-Baselines3, on any number of cores."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("sb3_contrib")
import torch

from agents.actor_critic import VertexActions
from agents.kernels import draw
from agents.learner import Learner
from dsp_gym.envs.action import LOGITS, MOVES
from dsp_gym.experiments.experiment import ExperimentConfig
from tests.learning import small_experiment

pytestmark = pytest.mark.slow  # importing torch takes seconds


def an_experiment(**agent) -> ExperimentConfig:
    """Jobs of two and of more vertices, so that there is padding and a join."""
    usual = {
        "network": {},
        "n_envs": 12,
        "batch_size": 192,
        "n_epochs": 3,
        "total_steps": 384,
        "schedule": "constant",
        "eval_every": 10_000,
        "eval_episodes": 2,
    }
    return small_experiment(usual | agent, env={"episode_s": 600})


def a_learner(folder, **agent) -> Learner:
    return Learner(an_experiment(**agent), 0, folder)


def outspoken(learner: Learner) -> None:
    """A fresh actor is nearly uniform and knows no scale, which would hide differences."""
    network = learner.model.policy.features_extractor
    torch.manual_seed(1)
    with torch.no_grad():
        network.actor_out.weight.mul_(100)
        network.vertex_shift.uniform_(-0.2, 0.2)
        network.job_scale.uniform_(0.5, 1)


def with_the_rollout_of(sb3: Learner, native: Learner) -> None:
    """Gives Stable-Baselines3 the weights and the rollout of the other."""
    network = native.model.policy.features_extractor
    sb3.model.policy.features_extractor.load_state_dict(network.state_dict())
    ours, theirs = native.model.rollout, sb3.model.model.rollout_buffer
    sb3.model.model._setup_learn(0, reset_num_timesteps=False)
    theirs.reset()
    theirs.observations[:] = ours.observations
    theirs.actions[:] = ours.actions
    theirs.rewards[:], theirs.values[:] = ours.rewards, ours.values[:-1]
    theirs.log_probs[:] = ours.log_prob
    theirs.episode_starts[1:] = ours.ends[:-1]
    if native.model.masked:
        theirs.action_masks[:] = ours.masks
    theirs.compute_returns_and_advantage(torch.from_numpy(ours.values[-1]), ours.ends[-1])
    theirs.full = True


@pytest.mark.parametrize("algorithm", ["ppo", "maskable-ppo"])
@pytest.mark.parametrize("encoder", ["graph", "mlp"])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_an_update_is_that_of_stable_baselines3(tmp_path, algorithm, encoder, activation):
    network = {"hidden": [16, 12], "encoder": encoder, "activation": activation, "hold_bias": 1}
    agent = {"algorithm": algorithm, "network": network, "ent_coef": 0.01}
    native = a_learner(tmp_path / "native", **agent)
    sb3 = a_learner(tmp_path / "sb3", learner="sb3", **agent)
    outspoken(native)
    native.model.begin()
    native.model.collect()
    with_the_rollout_of(sb3, native)
    theirs = sb3.model.model.rollout_buffer
    np.testing.assert_allclose(native.model.rollout.advantage, theirs.advantages, atol=1e-6)
    np.testing.assert_allclose(native.model.rollout.target, theirs.returns, atol=1e-6)
    before = native.weights()

    figures = native.model.update(1e-3)
    sb3.model.model.train()

    log = sb3.model.model.logger.name_to_value
    for name in ("policy_gradient_loss", "value_loss", "entropy_loss", "clip_fraction"):
        assert figures[f"train/{name}"] == pytest.approx(log[f"train/{name}"], abs=1e-5), name
    moved = 0.0
    for name, expected in sb3.weights().items():
        found = native.weights()[name]
        moved = max(moved, float(np.abs(found - before[name]).max()))
        np.testing.assert_allclose(found, expected, atol=2e-5, err_msg=name)
    assert moved > 2e-3


@pytest.mark.parametrize("encoder", ["graph", "mlp"])
def test_the_agent_does_not_depend_on_the_cores(tmp_path, encoder):
    network = {"hidden": [16], "encoder": encoder}
    found = []
    for threads in (1, 3):
        learner = a_learner(tmp_path, network=network, batch_size=100, threads=threads)
        learner.run()
        found.append(learner.weights())
    for name, value in found[0].items():
        np.testing.assert_array_equal(found[1][name], value, err_msg=name)


def test_two_seeds_explore_differently(tmp_path):
    first, second = (Learner(an_experiment(), seed, tmp_path) for seed in (0, 1))
    for learner in (first, second):
        learner.model.begin()
        learner.model.collect()
    assert (first.model.rollout.actions != second.model.rollout.actions).any()


def test_moves_are_drawn_by_their_probabilities_and_never_masked():
    torch.manual_seed(0)
    rows, vertices = 20_000, 2
    logits = torch.randn(1, vertices * LOGITS).repeat(rows, 1)
    masks = np.ones((rows, vertices * LOGITS), dtype=bool)
    masks[:, [2, 5, MOVES + 1, LOGITS]] = False
    uniforms = np.random.default_rng(0).random((rows, 2 * vertices), np.float32)
    actions, log_prob = np.zeros((rows, 2 * vertices), np.int64), np.zeros(rows, np.float32)
    starts = np.cumsum([0, *[MOVES, LOGITS - MOVES] * vertices])
    draw(logits.numpy(), masks, uniforms, starts, actions, log_prob)

    expected = VertexActions(vertices).proba_distribution(logits)
    expected.apply_masking(masks)
    torch.testing.assert_close(
        torch.from_numpy(log_prob), expected.log_prob(torch.from_numpy(actions))
    )
    for i in range(2 * vertices):
        block = expected.blocks[i % 2][0, i // 2].exp().numpy()
        shares = np.bincount(actions[:, i], minlength=len(block)) / rows
        np.testing.assert_allclose(shares, block, atol=0.015)
        assert (shares[block == 0] == 0).all()


def test_padding_only_holds(tmp_path):
    learner = a_learner(tmp_path, algorithm="ppo", network={"hidden": [8], "hold_bias": 0})
    learner.model.begin()
    learner.model.collect()
    rollout, vertices = learner.model.rollout, learner.batch.vertices
    absent = rollout.inputs[:-1, :, -vertices:] == 0
    moves = rollout.actions.reshape(*absent.shape, 2)
    assert absent.any()
    assert (moves[absent] == 0).all()
    assert (moves[~absent] != 0).any()


def test_an_update_ends_when_the_policy_has_gone_too_far(tmp_path):
    taken = {}
    for limit in (None, 1e-5):
        learner = a_learner(tmp_path, target_kl=limit, batch_size=64)
        outspoken(learner)
        learner.model.begin()
        learner.model.collect()
        learner.model.update(1e-3)
        taken[limit] = learner.model.adam_steps
    # The first minibatch finds the policy that decided, the second one finds another.
    assert taken == {None: 9, 1e-5: 1}


def test_the_learning_rate_falls_to_the_end_and_not_below_it(tmp_path):
    told = []
    config = an_experiment(schedule="linear", total_steps=300)
    learner = Learner(config, 0, tmp_path, record=lambda figures, step: told.append(figures))
    learner.model.learn(300, learner.tick, learner.sample)
    assert learner.model.num_timesteps == 384
    assert told[-1]["train/learning_rate"] == pytest.approx(1e-3)
    last = learner.model.update
    learner.model.num_timesteps = 192
    rates = []
    learner.model.update = lambda rate: rates.append(rate) or last(rate)
    learner.model.learn(300)
    assert rates == [pytest.approx(1e-3 * (1 - 192 / 300))]
