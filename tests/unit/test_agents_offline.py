"""Learning from a dataset: selection, values of decisions, and improvement on them."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("sb3_contrib")
import torch

from agents.actor_critic import MaskableVertexPolicy, policy_arguments
from agents.network import NetworkShape
from agents.offline import LATE_PRICE, demonstrated, improve, priced
from agents.studies.dataset_claim import steps_to
from dsp_gym.config.files import parse
from dsp_gym.datasets.transitions import Transitions
from dsp_gym.envs.action import LOGITS
from dsp_gym.envs.capacity import CAPACITY_FEATURES
from dsp_gym.envs.capacity.action import CHOICES
from dsp_gym.envs.config import EnvConfig
from dsp_gym.envs.observation import FJ, FV, ObservationLayout
from dsp_gym.envs.reward import TERMS
from dsp_gym.envs.single import action_space, observation_space
from dsp_gym.experiments.agent import OfflineConfig, WarmStartConfig
from dsp_gym.experiments.experiment import ExperimentConfig

pytestmark = pytest.mark.slow  # importing torch takes seconds

torch.set_num_threads(1)  # two threads collapse when anything else runs

SIZE = ObservationLayout(1).size


def an_experiment(**agent) -> ExperimentConfig:
    document = {
        "name": "test",
        "jobs": ["nexmark-q11"],
        "loads": {"train": {"loads": ["constant"], "seeds": {"from": 0, "to": 2}}},
        "env": {"reward": {"cost": 1, "slo": 0, "backlog": 0, "rescale": 0}},
        "agent": {"gamma": 0.5, "n_envs": 4, "n_steps": 8, "batch_size": 32, **agent},
    }
    return parse(ExperimentConfig, document, "test")


def some_transitions(moves, costs, ends, propensity=None, terminated=False) -> Transitions:
    """Of one job with one vertex, which may only hold (0) or double (5)."""
    n = len(moves)
    observation = np.zeros((n, SIZE), np.float32)
    observation[:, ObservationLayout(1).mask] = 1
    allowed = np.zeros((n, LOGITS), dtype=bool)
    allowed[:, [0, 5, 7]] = True
    cost, nothing = np.asarray(costs, np.float64), np.zeros(n)
    ends = np.asarray(ends, dtype=bool)
    return Transitions(
        observation=observation,
        action=np.stack([np.asarray(moves), np.zeros(n, int)], axis=1),
        action_mask=allowed,
        next_observation=observation,
        terms=dict.fromkeys(TERMS, nothing) | {"cost": cost},
        terminated=ends & terminated,
        truncated=ends & ~np.asarray(terminated),
        propensity=np.ones(n) if propensity is None else np.asarray(propensity, np.float64),
        job=np.full(n, "nexmark-q11"),
        policy=np.array(["a", "b"])[np.arange(n) % 2],
    )


def a_policy() -> MaskableVertexPolicy:
    torch.manual_seed(0)
    shape = NetworkShape(
        encoder="mlp", hidden=(16,), hold_bias=0, vertices=1, vertex_features=FV, job_features=FJ
    )
    return MaskableVertexPolicy(
        observation_space(SIZE), action_space(1), lambda _: 1e-3, **policy_arguments(shape)
    )


def probability_of(policy, move: int) -> float:
    seen = some_transitions([move], [1.0], [True])
    _, log_prob, _ = policy.evaluate_actions(
        torch.from_numpy(seen.observation), torch.from_numpy(seen.action),
        action_masks=seen.action_mask,
    )  # fmt: skip
    return float(log_prob.detach().exp())


def test_returns_of_a_dataset_are_discounted_to_the_end_of_each_run():
    seen = some_transitions([0, 0, 0], [1.0, 2.0, 3.0], [False, True, True])
    found = demonstrated(seen, an_experiment(), 0.5).returns
    # In units of 1 - gamma; beyond a truncated run the future is like the mean reward, -2.
    last = 0.5 * -2.0 + 0.5 * -2.0
    np.testing.assert_allclose(found, [0.5 * -1 + 0.5 * last, last, 0.5 * -3 + 0.5 * -2])


def test_a_job_that_was_given_up_is_charged_its_last_reward_for_ever():
    seen = some_transitions([0, 0], [1.0, 4.0], [False, True], terminated=True)
    found = demonstrated(seen, an_experiment(), 0.5).returns
    np.testing.assert_allclose(found, [0.5 * -1 + 0.5 * -4, -4])


def test_improbable_decisions_are_not_imitated_and_unknown_ones_are():
    seen = some_transitions([0, 5, 0, 5], [1] * 4, [True] * 4, propensity=[0.9, 0.1, np.nan, 0.5])
    shown = demonstrated(seen, an_experiment(), 0.5)
    assert shown.actions[:, 0].tolist() == [0, 0, 5]


def test_an_action_that_was_not_valid_counts_as_holding():
    seen = some_transitions([3, 5], [1, 1], [True, True])
    assert seen.valid_action()[:, 0].tolist() == [0, 5]


def of_capacities(choices, ends) -> Transitions:
    """Of one job, which may hold or take the multiples 1 to 5."""
    n, size = len(choices), len(CAPACITY_FEATURES)
    seen = some_transitions([0] * n, [1.0] * n, ends)
    masks = np.zeros((n, CHOICES), dtype=bool)
    masks[:, :6] = True
    observed = np.zeros((n, size), np.float32)
    changes = {
        "observation": observed,
        "next_observation": observed,
        "action": np.asarray(choices)[:, None],
        "action_mask": masks,
        "terms": seen.terms | {"slo": np.full(n, 0.5)},
    }
    return Transitions(**{**seen._asdict(), **changes})


def test_a_capacity_that_was_not_valid_counts_as_holding():
    assert of_capacities([3, 8, 0], [False] * 3).valid_action()[:, 0].tolist() == [3, 0, 0]


def test_a_dataset_of_capacities_is_learned_from_at_the_prices_of_the_experiment():
    seen = of_capacities([0] * 4, [False, True, False, True])
    reward = {"cost": 1, "slo": 3, "backlog": 0, "rescale": 0}
    env = EnvConfig(action="capacity", reward=reward)
    one = priced(seen, env)
    assert one.observation[:, LATE_PRICE] == pytest.approx(np.log(3))
    config = an_experiment().model_copy(update={"env": env})
    earned = -(1 + 3 * 0.5)  # the same in every step, so for ever
    assert demonstrated(one, config, 0.5).returns == pytest.approx(earned, rel=1e-6)
    many = EnvConfig(action="capacity", reward=reward, randomise={"late_price": (1.0, 8.0)})
    config = an_experiment().model_copy(update={"env": many})
    drawn = priced(seen, many)
    prices = np.exp(drawn.observation[:, LATE_PRICE])
    np.testing.assert_array_equal(drawn.next_observation, drawn.observation)
    assert prices[0] == prices[1] != prices[2] == prices[3]
    assert ((prices >= 1) & (prices <= 8)).all()
    given_up = Transitions(**{**drawn._asdict(), "terminated": drawn.ends})
    returns = demonstrated(given_up, config, 0.5).returns
    assert returns == pytest.approx(-(1 + 0.5 * prices), rel=1e-5)


def test_policies_are_chosen_by_globs():
    seen = some_transitions([0] * 4, [1] * 4, [True] * 4)
    assert seen.of_policies(["a*"]).tolist() == [True, False, True, False]
    assert not seen.of_policies(["c"]).any()


@pytest.mark.slow
def test_the_better_of_two_decisions_is_learned_though_it_is_the_rarer_one():
    moves = np.where(np.arange(600) % 5 == 0, 5, 0)  # doubling once in five
    costs = np.where(moves == 5, 1.0, 3.0)
    seen = some_transitions(moves, costs, np.ones(600, bool))
    policy, config = a_policy(), an_experiment()
    offline = OfflineConfig(
        dataset="d", epochs=20, batch_size=60, learning_rate=1e-2, temperature=0.3
    )
    figures = improve(policy, seen, offline, config)
    assert probability_of(policy, 5) > 0.9
    assert 0 < figures["offline/effective_share"] < 1
    # At a high temperature all decisions weigh alike: the share of the data.
    alike = offline.model_copy(update={"temperature": 1e6})
    policy = a_policy()
    improve(policy, seen, alike, config)
    assert probability_of(policy, 5) == pytest.approx(0.2, abs=0.03)


@pytest.mark.slow
def test_the_critic_leans_towards_what_the_better_decisions_earn():
    moves = np.where(np.arange(1000) % 2 == 0, 5, 0)
    seen = some_transitions(
        moves, np.where(moves == 5, 1.0, 3.0), np.ones(1000, bool), terminated=True
    )
    values = []
    for expectile in (0.5, 0.9):
        policy = a_policy()
        offline = OfflineConfig(
            dataset="d", epochs=30, batch_size=100, learning_rate=1e-2, expectile=expectile
        )
        improve(policy, seen, offline, an_experiment(vf_coef=1.0))
        value = policy.predict_values(torch.from_numpy(seen.observation[:1]))
        values.append(float(value.detach()))
    # The expectile t of -1 and -3, each half of the time, is -3 + 2 t.
    assert values == pytest.approx([-2.0, -1.2], abs=0.1)


def test_a_warm_start_has_a_teacher_or_a_dataset():
    assert WarmStartConfig(dataset="d").teacher is None
    for wrong in ({}, {"teacher": "ds2", "dataset": "d"}):
        with pytest.raises(ValueError, match="either a teacher or a dataset"):
            WarmStartConfig(**wrong)


def test_steps_are_counted_to_the_first_score_at_the_threshold():
    curve = np.array([-3.0, -2.0, -2.5, -1.0])
    assert steps_to([0, 10, 20, 30], curve, -2.0) == 10
    assert steps_to([0, 10, 20, 30], curve, -0.5) is None
