"""Rules and agents earn their returns on the same episodes; a reward may be a function."""

from __future__ import annotations

import re
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import TransformReward

import dsp_gym
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.control.loop import ControlLoop
from dsp_gym.envs.wrappers import SingleMove
from dsp_gym.errors import ActionError, ConfigError
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.policies.registry import make

ID = "dsp_gym/Nexmark-Q11-v1"


def hold(observation, info):
    """An agent that never changes anything."""
    return np.zeros(6, np.int64)


class Held:
    """A policy that keeps what runs."""

    name = "held"

    def reset(self, jobs, seeds, mask=None):
        """Nothing is remembered."""

    def decide(self, snapshot):
        return ScalingDecision(snapshot.parallelism, snapshot.memory_level, ("",) * len(snapshot))

    def state(self):
        return {}

    def restore(self, state):
        """Nothing to restore."""


@pytest.fixture
def env():
    made = gymnasium.make(ID, split="test")
    yield made
    made.close()


def test_a_rule_earns_what_the_control_loop_costs_on_the_same_seed(env):
    found = dsp_gym.evaluate_policy("ds2", env, episodes=2, seed=7)
    core = env.unwrapped.batch
    for k in range(2):
        env.reset(seed=7 + k)
        jobs = SimulatedJobs(core.topology, core.config.simulation)
        jobs.load(core.jobs.save())
        loop = ControlLoop(jobs, make("ds2"), None, core.config.interval_s)
        loop.reset(np.array([7 + k]))
        outcomes = [loop.step().outcome for _ in range(found.lengths[k])]
        assert found.costs[k] == pytest.approx(sum(float(one.cost[0]) for one in outcomes))
        late_s = sum(float(one.slo_s[0]) for one in outcomes)
        assert found.late_shares[k] == pytest.approx(late_s / 7200)
    assert found.seeds == (7, 8)
    assert found.policy == "ds2"


def test_policies_play_the_same_episodes_and_a_rule_beats_holding(env):
    justin, held, function = (
        dsp_gym.evaluate_policy(one, env, episodes=3) for one in ("justin-artifact", Held(), hold)
    )
    # Holding is holding, as a decision or as an action.
    assert function.returns.tolist() == held.returns.tolist()
    assert function.policy == "hold"
    assert justin.mean > function.mean
    again = dsp_gym.evaluate_policy("justin-artifact", env, episodes=3)
    assert again.returns.tolist() == justin.returns.tolist()
    assert re.fullmatch(
        r"justin-artifact: return -\d+\.\d\d ± \d+\.\d\d in 3 episodes", str(justin)
    )


def test_the_clairvoyant_rule_is_told_each_episodes_load(env):
    best, ds2 = (dsp_gym.evaluate_policy(one, env, episodes=2) for one in ("clairvoyant", "ds2"))
    assert (best.late_shares <= ds2.late_shares + 1e-9).all()
    assert best.mean > ds2.mean


def test_wrappers_of_the_reward_count_and_an_id_is_enough(env):
    plain = dsp_gym.evaluate_policy("ds2", ID, episodes=1)
    doubled = dsp_gym.evaluate_policy(
        "ds2", TransformReward(gymnasium.make(ID), lambda reward: 2 * reward), episodes=1
    )
    assert doubled.returns == pytest.approx(2 * plain.returns)
    # One episode has no standard error.
    assert re.fullmatch(r"ds2: return -\d+\.\d\d in 1 episode", str(plain))


def test_models_are_asked_with_masks_and_with_their_state(env):
    seen = []

    class Masked:
        """The interface of sb3-contrib's models."""

        def predict(
            self,
            observation,
            state=None,
            episode_start=None,
            deterministic=False,
            action_masks=None,
        ):
            seen.append((state, episode_start.tolist(), deterministic, action_masks.shape))
            return np.zeros(6, np.int64), (state or 0) + 1

    found = dsp_gym.evaluate_policy(Masked(), env, episodes=2)
    assert found.policy == "Masked"
    first = int(found.lengths[0])
    assert seen[0] == (None, [True], True, (30,))
    assert seen[1] == (1, [False], True, (30,))
    assert seen[first] == (None, [True], True, (30,))


def test_what_does_not_fit_is_refused_with_a_remedy(env):
    with pytest.raises(ConfigError, match=r"no policy 'dss2'.*Did you mean 'ds2'"):
        dsp_gym.evaluate_policy("dss2", env)
    with pytest.raises(ConfigError, match=r"SingleMove translates actions.*without it"):
        dsp_gym.evaluate_policy("ds2", SingleMove(env))
    with pytest.raises(ConfigError, match=r"not a vector.*gymnasium\.make"):
        dsp_gym.evaluate_policy("ds2", gymnasium.make_vec(ID, num_envs=2))
    with pytest.raises(ConfigError, match="needs an environment of dsp-gym"):
        dsp_gym.evaluate_policy("ds2", "CartPole-v1")
    with pytest.raises(ConfigError, match="expected a policy, found int"):
        dsp_gym.evaluate_policy(3, env)
    with pytest.raises(ConfigError, match="'episodes': value 0"):
        dsp_gym.evaluate_policy("ds2", env, episodes=0)
    env.reset(seed=0)
    wrong = ScalingDecision(np.ones((2, 3), np.int64), np.ones((2, 3), np.int64), ("", ""))
    with pytest.raises(ActionError, match=r"shape \(2, 3\), expected \(1, 3\)"):
        env.step(wrong)


def test_the_public_names_are_imported_when_they_are_asked_for():
    code = (
        "import sys, dsp_gym; early = 'numpy' in sys.modules; dsp_gym.evaluate_policy; "
        "print(early, 'numpy' in sys.modules, set(dsp_gym.__all__) <= set(dir(dsp_gym)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "True"]
    with pytest.raises(AttributeError, match="no attribute 'evaluate_polcy'"):
        dsp_gym.evaluate_polcy  # noqa: B018


def squared(terms):
    """A reward of the tests: lateness squared."""
    terms["cost"] *= 1.0  # in place, which must not reach `info`
    return 5.0 - terms["cost"] - 8 * np.square(terms["slo"])


def test_a_function_of_the_terms_rewards_one_and_many_alike():
    one = gymnasium.make(ID, reward=squared)
    many = gymnasium.make_vec(ID, num_envs=3, reward=squared)
    one.reset(seed=5)
    many.reset(seed=4)
    for _ in range(4):
        _, earned, _, _, info = one.step(np.array([0, 0, 2, 0, 0, 0]))
        _, rewards, _, _, infos = many.step(np.tile([0, 0, 2, 0, 0, 0], (3, 1)))
        terms = info["reward_terms"]
        assert earned == 5.0 - terms["cost"] - 8 * terms["slo"] ** 2
        assert rewards[1] == earned
        assert infos["reward_terms"]["slo"][1] == terms["slo"]


def test_a_function_is_found_by_its_place_or_by_an_entry_point(tmp_path, monkeypatch):
    (tmp_path / "own_rewards.py").write_text("def late(terms):\n    return -terms['slo']\n")
    monkeypatch.syspath_prepend(tmp_path)
    env = gymnasium.make(ID, reward="own_rewards:late")
    env.reset(seed=0)
    _, earned, _, _, info = env.step(np.zeros(6, np.int64))
    assert earned == -info["reward_terms"]["slo"]
    folder = tmp_path / "own_rewards-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: own-rewards\nVersion: 1\n")
    (folder / "entry_points.txt").write_text("[dsp_gym.rewards]\nlateness = own_rewards:late\n")
    code = (
        f"import gymnasium, dsp_gym; env = gymnasium.make('{ID}', reward='lateness'); "
        "print(env.unwrapped.batch.reward_function.__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {[str(tmp_path)]}; {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "late"


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (lambda terms: 1.0, r"shape \(\), expected \(2,\)"),
        (lambda terms: terms["slow"], "KeyError: 'slow'.*a mapping of cost, slo"),
        (lambda terms: terms["cost"] * np.nan, "is not finite: nan"),
        (lambda terms: max(terms["cost"], 1), "ValueError.*functions of NumPy"),
        (lambda terms: ["much", "more"], "ValueError"),
    ],
)
def test_a_function_that_gives_no_reward_for_each_job_is_refused(reward, message):
    envs = gymnasium.make_vec(ID, num_envs=2, reward=reward)
    envs.reset(seed=0)
    with pytest.raises(ConfigError, match=message):
        envs.step(np.zeros((2, 6), np.int64))


def test_a_name_that_stands_for_no_function_is_refused():
    for reward, message in {
        "lateness": "there is no reward 'lateness'",
        "nowhere:late": "cannot be imported: No module named 'nowhere'",
        "math:late": "cannot be imported",
        "math:pi": "is no function of the reward's terms",
    }.items():
        with pytest.raises(ConfigError, match=message):
            gymnasium.make(ID, reward=reward)
    with pytest.raises(ConfigError, match="or a function of these terms"):
        gymnasium.make(ID, reward=8.0)
    with pytest.raises(ConfigError, match="on a GPU the reward is the weighted sum"):
        gymnasium.make_vec(ID, num_envs=2, device="cuda", reward=squared)
