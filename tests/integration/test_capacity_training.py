"""An agent of capacity actions: learned on a family, resumed bit for bit, deployed by its name."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("sb3_contrib")

from agents.capacity import CapacityActor, chosen
from agents.cloning import clone, demonstrate
from agents.curriculum import odds
from agents.environment import training_batch, validation_batch
from agents.folder import POLICY, read_folder
from agents.learner import Learner
from agents.network import logits
from agents.offline import LATE_PRICE
from agents.trained import TrainedConfig, TrainedPolicy
from agents.training import train
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.errors import ConfigError, PolicyError
from dsp_gym.experiments.agent import WarmStartConfig
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.guardrails.chain import build_for
from dsp_gym.guardrails.config import GuardrailsConfig
from dsp_gym.job.catalog import load_job
from dsp_gym.loop.decision import GuardedDecision
from dsp_gym.loop.topology import Topology
from dsp_gym.loop.turn import take_turn
from dsp_gym.policies.registry import make
from tests.learning import assert_resumes_bit_for_bit, small_experiment

pytestmark = pytest.mark.slow  # importing torch takes seconds


def an_experiment(**agent) -> ExperimentConfig:
    network = {"hidden": [16], "encoder": "mlp", "hold_bias": 2}
    randomise = {"job": True, "late_price": [0.5, 8.0], "load_start": "any", "stagger": True}
    return small_experiment(
        {"network": network, "act_above": [0.1, 0.5], **agent},
        name="small-family",
        jobs=["nexmark-q11"],
        family={"graphs": 4, "vertices": [3, 6], "validation_graphs": 2},
        env={
            "action": "capacity",
            "episode_s": 1200,
            "reward": {"slo": 2.0},
            "randomise": randomise,
        },
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A short training, whole: its result, and the learner's weights."""
    folder = tmp_path_factory.mktemp("trained")
    return train(an_experiment(), folder), folder


@pytest.mark.parametrize("learner", ["native", "sb3"])
def test_going_on_from_a_checkpoint_gives_the_same_agent_bit_for_bit(tmp_path, learner):
    config = an_experiment(learner=learner)
    assert_resumes_bit_for_bit(config, tmp_path)


def test_an_update_of_both_learners_is_the_same(tmp_path):
    """One minibatch of the whole rollout: what differs is the order of sums."""
    import torch

    config = an_experiment(batch_size=256, n_epochs=1)
    native = Learner(config, 0, tmp_path).model
    native.begin()
    native.collect()
    rows = np.arange(256)
    gradient, _ = native.gradient(rows)
    policy, rollout = native.policy, native.rollout
    advantage = torch.from_numpy(rollout.advantage.reshape(-1))
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    values, log_prob, entropy = policy.evaluate_actions(
        torch.from_numpy(native.observations),
        torch.from_numpy(rollout.actions.reshape(256, -1)),
        action_masks=rollout.masks.reshape(256, -1),
    )
    ratio = (log_prob - torch.from_numpy(rollout.log_prob.reshape(-1))).exp()
    clipped = ratio.clamp(0.8, 1.2)
    actor = -torch.min(ratio * advantage, clipped * advantage).mean()
    critic = ((values[:, 0] - torch.from_numpy(rollout.target.reshape(-1))) ** 2).mean()
    agent = config.agent
    loss = actor + agent.vf_coef * critic - agent.ent_coef * entropy.mean()
    parameters = dict(policy.features_extractor.named_parameters())
    expected = torch.autograd.grad(loss, list(parameters.values()))
    flat = torch.cat([one.flatten() for one in expected])
    torch.testing.assert_close(gradient, flat, rtol=1e-3, atol=1e-6)


def test_training_exports_a_folder_that_says_what_it_decides(trained):
    result, _ = trained
    document, weights = read_folder(result.policy)
    assert document.action.space == "capacity"
    assert document.action.act_above in (0.1, 0.5)
    assert document.action.late_price == 2.0
    assert document.action.late_prices == (0.5, 8.0)
    assert document.validation["act_above"] == document.action.act_above
    assert sum(array.nbytes for array in weights.values()) < 1_000_000
    assert set(document.observation.quantiles) == set(document.observation.job_features)
    card = (result.policy / "card.md").read_text()
    assert "4 random graphs of 3 to 6 vertices" in card


def test_the_deployed_policy_decides_as_the_network_and_its_threshold_say(trained):
    result, _ = trained
    policy = make(result.policy)
    # One price, as a policy has: that of its folder.
    config = an_experiment()
    one_price = config.env.randomise.model_copy(update={"late_price": (2.0, 2.0)})
    env = config.env.model_copy(update={"randomise": one_price})
    batch = validation_batch(config.model_copy(update={"env": env}))
    observation = batch.reset()
    document, weights = read_folder(result.policy)
    policy.reset(batch.topology, batch.base_seeds)
    acted = 0
    for _ in range(20):
        decision = policy.decide(batch.snapshot)
        values = logits(weights, document.network, observation)
        choices, _ = chosen(values, batch.action_masks(), document.action.act_above)
        expected = batch.decode_actions(choices[:, None])
        np.testing.assert_array_equal(decision.parallelism, expected.parallelism)
        np.testing.assert_array_equal(decision.memory_level, expected.memory_level)
        said = [reason.startswith("hold") for reason in decision.reasons]
        np.testing.assert_array_equal(said, choices == 0)
        acted += int((choices > 0).sum())
        observation = batch.step(choices[:, None]).observation
    assert policy.confidence.shape == decision.parallelism.shape


def test_acting_is_a_matter_of_its_probability_not_of_the_best_choice():
    values = np.log(np.array([[0.8, 0.15, 0.05], [0.9, 0.02, 0.08], [0.1, 0.9, 0.0001]]))
    masks = np.array([[True, True, True], [True, True, True], [True, False, False]])
    choices, acting = chosen(values.astype(np.float32), masks, 0.15)
    assert choices.tolist() == [1, 0, 0]
    np.testing.assert_allclose(acting, [0.2, 0.1, 0.0], atol=1e-5)
    assert chosen(values.astype(np.float32), masks, 0.05)[0].tolist() == [1, 2, 0]


def test_its_state_survives_json_and_a_look_at_its_features_changes_nothing(trained):
    result, _ = trained
    jobs = SimulatedJobs(Topology.of([load_job("random-dag:3")]))
    rate = float(jobs.topology.tables.rate_per_s[0])
    jobs.reset(np.array([1]), np.full((1, 3600), 0.6 * rate))
    one, other = make(result.policy), make(result.policy)
    for policy in (one, other):
        policy.reset(jobs.topology, np.array([1]))
    for minute in range(12):
        jobs.advance(60)
        snapshot = jobs.snapshot()
        seen = one.features(snapshot)
        assert set(seen) == set(one.training_box)
        first = one.decide(snapshot)
        if minute == 5:
            other.restore(json.loads(json.dumps(one.state())))
            continue
        second = other.decide(snapshot)
        np.testing.assert_array_equal(first.parallelism, second.parallelism)
        if minute > 5:
            assert first.reasons == second.reasons
        jobs.apply(GuardedDecision.unchanged(first))


def test_a_price_it_was_not_trained_with_is_refused_and_so_is_one_for_moves_of_vertices(trained):
    path = str(trained[0].policy)
    assert TrainedPolicy(TrainedConfig(path=path, late_price=4.0)).name == "trained"
    with pytest.raises(PolicyError, match=r"prices of a late minute from 0\.5 to 8"):
        TrainedPolicy(TrainedConfig(path=path, late_price=20.0))
    with pytest.raises(PolicyError, match=r"moves single vertices.*late_price"):
        TrainedPolicy(TrainedConfig(path="shipped:q11", late_price=2.0))
    for wrong in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="late_price"):
            TrainedConfig(path=path, late_price=wrong)


def test_a_folder_of_one_space_that_claims_the_other_is_refused(trained, tmp_path):
    folder = tmp_path / "policy"
    shutil.copytree(trained[0].policy, folder)
    content = json.loads((folder / POLICY).read_text())
    content["action"]["space"] = "vertex"
    (folder / POLICY).write_text(json.dumps(content))
    with pytest.raises(PolicyError, match=r"has other spaces than this release"):
        TrainedPolicy(TrainedConfig(path=str(folder)))


@pytest.mark.parametrize("teacher", ["ds2", "mdp"])
def test_a_teacher_can_be_imitated(teacher, tmp_path):
    config = an_experiment()
    batch = training_batch(config, 8)
    batch.seed(np.arange(8))
    shown = demonstrate(batch, teacher, 256, 0.9)
    assert shown.actions.shape == (256, 1)
    assert (shown.actions > 0).any()
    learner = Learner(config, 0, tmp_path)
    warm = WarmStartConfig(teacher=teacher, decisions=256, epochs=2, batch_size=64)
    assert 0 <= clone(learner.model.policy, shown, warm, config.agent, lambda *_: None) <= 1


def test_a_teacher_decides_by_the_price_that_each_episode_draws(tmp_path, monkeypatch):
    learner = Learner(an_experiment(), 0, tmp_path)
    batch, told, done = learner.batch, [], []

    class Priced(type(make("ds2"))):
        def capabilities(self):
            return replace(super().capabilities(), price_lateness=self.hear)

        def hear(self, prices):
            told.append(prices.copy())

    monkeypatch.setattr("agents.cloning.make", lambda name: Priced())
    learner.env.seed(0)
    learner.env.reset()
    shown = demonstrate(batch, "ds2", 40 * len(batch), 0.5, done.append)
    prices = np.exp(shown.observations[:, LATE_PRICE]).reshape(-1, len(batch))
    assert len(told) == 3  # at first, and as two episodes of twenty decisions end
    for episode, heard in enumerate(told[:2]):
        np.testing.assert_allclose(prices[20 * episode : 20 * (episode + 1)], [heard] * 20, 1e-5)
    assert len(np.unique(told[0])) == len(batch)
    assert done == [len(batch) * (step + 1) for step in range(40)]


def test_what_cannot_be_learned_from_or_with_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"network\.encoder: mlp"):
        Learner(an_experiment(network={"encoder": "graph"}), 0, tmp_path)
    with pytest.raises(ValueError, match="share the seed of a graph"):
        ExperimentConfig.model_validate(
            an_experiment().model_dump(by_alias=True)
            | {"family": {"first_seed": 100, "validation_first_seed": 150}}
        )


def test_a_training_with_a_curriculum_goes_on_bit_for_bit(tmp_path):
    config = an_experiment(curriculum={"by_gap": 0.8}, eval_every=256, checkpoint_every=512)
    assert_resumes_bit_for_bit(config, tmp_path)
    one_job_a_row = config.model_dump(by_alias=True)
    one_job_a_row["env"]["randomise"]["job"] = False
    with pytest.raises(ValueError, match=r"set env\.randomise\.job: true"):
        ExperimentConfig.model_validate(one_job_a_row)


def test_a_curriculum_draws_the_jobs_on_which_holding_is_far_from_the_best_plan(tmp_path):
    config = an_experiment(curriculum={"by_gap": 0.9})
    learner = Learner(config, 0, tmp_path)
    learner._begin()
    how = learner.curriculum
    gaps = how.gaps(CapacityActor(learner.weights(), learner.shape, 0.999))  # holds
    assert gaps.shape == (5,)
    assert gaps.min() >= 0
    assert gaps.max() > 0.05
    assert how.gaps(CapacityActor(learner.weights(), learner.shape, 0.999)).tolist() == (
        gaps.tolist()
    )
    wanted = odds(gaps, 0.9)
    assert wanted.sum() == pytest.approx(1)
    learner.batch.source.job_odds = wanted
    rows = np.arange(len(learner.batch))
    drawn = np.concatenate([learner.batch.source.draw(rows).job for _ in range(60)])
    shares = np.bincount(drawn, minlength=5) / len(drawn)
    np.testing.assert_allclose(shares, wanted, atol=0.06)  # 960 draws


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """Three short trainings as one policy."""
    folder = tmp_path_factory.mktemp("together")
    return train(an_experiment(seeds=[0, 1, 2], ensemble=True), folder), folder


def test_seeds_together_decide_by_the_mean_of_their_probabilities(together):
    result, folder = together
    document, weights = read_folder(result.policy)
    assert document.network.members == 3
    assert sorted(document.seeds) == [0, 1, 2]
    assert document.validation == result.validation
    alone = [read_folder(folder / f"seed-{seed}" / "policy")[1] for seed in document.seeds]
    batch = validation_batch(an_experiment())
    batch.reset()
    for _ in range(6):  # until the load has been counted
        observation = batch.step(np.zeros((len(batch), 1), np.int64)).observation
    masks = batch.action_masks()
    shape = document.network.model_copy(update={"members": None})
    odds_of = []
    for one in alone:
        values = np.where(masks, logits(one, shape, observation), -np.inf)
        found = np.exp(values - values.max(axis=1, keepdims=True))
        odds_of.append(found / found.sum(axis=1, keepdims=True))
    actor = CapacityActor(weights, document.network, 0.5)
    values, differ = actor.answer(observation, masks)
    found = np.exp(values) * masks
    np.testing.assert_allclose(found, np.mean(odds_of, axis=0), atol=1e-5)
    acting = np.array([1 - one[:, 0] for one in odds_of])
    able = masks[:, 1:].any(axis=1)
    assert able.any()
    expected = np.std(np.log(acting / (1 - acting))[:, able], axis=0)
    np.testing.assert_allclose(differ[able], expected, rtol=1e-3)
    assert (differ[~able] == 0).all()
    policy = make(result.policy)
    policy.reset(batch.topology, batch.base_seeds)
    assert set(policy.features(batch.snapshot)) == set(policy.training_box)
    assert "disagreement" in policy.training_box


def test_members_that_disagree_hand_over_to_the_fallback(together, tmp_path):
    result, _ = together
    document, _ = read_folder(result.policy)
    low, high = document.observation.quantiles["disagreement"]
    assert low < high
    # As if they had never disagreed on the validation loads.
    folder = tmp_path / "policy"
    shutil.copytree(result.policy, folder)
    content = json.loads((folder / POLICY).read_text())
    content["observation"]["quantiles"] = {"disagreement": [0.0, 0.0]}
    (folder / POLICY).write_text(json.dumps(content))
    policy = make(folder)
    parts = [
        {"kind": "out_of_distribution", "tolerated": 2},
        {"kind": "fallback", "policy": "ds2"},
    ]
    chain = build_for(policy, GuardrailsConfig.model_validate({"guardrails": parts}))
    jobs = SimulatedJobs(Topology.of([load_job("random-dag:3")]))
    rate = float(jobs.topology.tables.rate_per_s[0])
    jobs.reset(np.array([1]), np.full((1, 3600), 0.6 * rate))
    policy.reset(jobs.topology, np.array([1]))
    chain.reset(jobs.topology, np.array([1]))
    said = []
    for _ in range(10):
        jobs.advance(60)
        guarded = take_turn(jobs.snapshot(), policy.decide, chain)
        said += [one.reason for one in guarded.interventions]
    assert any("ds2 decides" in one and "disagreement" in one for one in said)


def test_an_ensemble_of_moves_of_vertices_is_refused():
    with pytest.raises(ValueError, match=r"agent\.ensemble joins agents"):
        small_experiment({"ensemble": True})
