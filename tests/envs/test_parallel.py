"""Operators as agents of a PettingZoo parallel environment."""

from __future__ import annotations

import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest

import dsp_gym
from dsp_gym.errors import ActionError, ConfigError

pettingzoo = pytest.importorskip("pettingzoo")

from pettingzoo.utils import parallel_to_aec  # noqa: E402 - after the skip

from dsp_gym.envs.core import STEP_KEYS  # noqa: E402
from dsp_gym.envs.parallel import OBSERVATION_SIZE  # noqa: E402

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of its own games, which its tests import
    from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test

IDS = {"dsp_gym/Nexmark-Q3-v1": {}, "dsp_gym/Autoscale-v1": {"job": "random-dag-2"}}


@pytest.fixture(params=IDS)
def env(request):
    made = dsp_gym.parallel_env(request.param, **IDS[request.param])
    yield made
    made.close()


# An action has two parts, and agents are named as operators.
@pytest.mark.filterwarnings("ignore:(Action space for each agent|We recommend agents):UserWarning")
def test_pettingzoos_own_test_passes_over_whole_episodes(env):
    parallel_api_test(env, num_cycles=250)  # two hours have 120 decisions
    api_test(parallel_to_aec(env), num_cycles=250)  # it samples with the mask of the info


def test_the_same_seeds_give_the_same_episodes_in_pettingzoos_own_test():
    parallel_seed_test(lambda: dsp_gym.parallel_env("dsp_gym/Nexmark-Q3-v1"), num_cycles=150)


def test_an_action_that_is_sampled_with_the_mask_is_valid(env):
    _, infos = env.reset(seed=0)
    for _ in range(20):
        flags = env.action_masks()
        actions = {
            agent: env.action_space(agent).sample(infos[agent]["action_mask"])
            for agent in env.agents
        }
        assert all(
            flags[agent][move] and flags[agent][7 + memory]
            for agent, (move, memory) in actions.items()
        )
        _, _, _, _, infos = env.step(actions)


def test_an_agent_is_an_operator_that_can_be_scaled():
    env = dsp_gym.parallel_env("dsp_gym/Nexmark-Q3-v1")
    assert env.possible_agents == ["auction_filter", "person_filter", "join"]
    assert isinstance(env, pettingzoo.ParallelEnv)
    env.reset(seed=0)
    assert env.agents == env.possible_agents


def test_the_same_seed_and_moves_give_the_single_environments_episode():
    many = dsp_gym.parallel_env("dsp_gym/Nexmark-Q3-v1", split="test")
    one = gymnasium.make("dsp_gym/Nexmark-Q3-v1", split="test")
    observation, info = one.reset(seed=3)
    _, infos = many.reset(seed=3)
    spec = one.unwrapped.batch.topology.spec(0)
    place = {vertex.name: v for v, vertex in enumerate(spec.vertices)}
    stream, ended = np.random.default_rng(0), False
    while not ended:
        np.testing.assert_array_equal(many.state(), observation)
        masks = info["action_mask"].reshape(-1, 10)
        for agent in many.agents:
            found = np.concatenate(infos[agent]["action_mask"])
            np.testing.assert_array_equal(found, masks[place[agent]])
        moves = {agent: np.array([stream.integers(7), stream.integers(3)]) for agent in many.agents}
        whole = np.zeros((len(place), 2), np.int64)
        for agent, move in moves.items():
            whole[place[agent]] = move
        observation, reward, terminated, truncated, info = one.step(whole.ravel())
        seen, rewards, terminations, truncations, infos = many.step(moves)
        ended = terminated or truncated
        assert set(rewards.values()) == {reward}
        assert set(terminations.values()) == {terminated}
        assert set(truncations.values()) == {truncated}
        assert all(infos[agent]["cost"] == info["cost"] for agent in infos)
        assert all(info.keys() == {*STEP_KEYS, "action_mask"} for info in infos.values())
        assert all(one.shape == (OBSERVATION_SIZE,) for one in seen.values())
    assert many.agents == []


def test_an_agent_sees_its_operator_its_neighbours_and_the_job():
    env = dsp_gym.parallel_env("dsp_gym/Nexmark-Q3-v1")
    seen, _ = env.reset(seed=1)
    state = env.state()
    own = state[: 6 * 24].reshape(6, 24)  # auctions, persons, two filters, join, sink
    job = state[6 * 24 : 6 * 24 + 14]
    names = [vertex.name for vertex in env.env.batch.topology.spec(0).vertices]
    join = seen["join"]
    np.testing.assert_array_equal(join[:24], own[names.index("join")])
    filters = own[[names.index("auction_filter"), names.index("person_filter")]]
    np.testing.assert_allclose(join[24:48], filters.mean(axis=0), rtol=1e-6)
    np.testing.assert_array_equal(join[48:72], own[names.index("sink")])
    np.testing.assert_array_equal(join[72:], job)


def test_an_agent_without_an_action_holds():
    held, silent = (dsp_gym.parallel_env("dsp_gym/Nexmark-Q3-v1") for _ in range(2))
    held.reset(seed=2)
    silent.reset(seed=2)
    for _ in range(5):
        _, a, *_ = held.step({agent: np.array([0, 0]) for agent in held.agents})
        _, b, *_ = silent.step({})
        assert a == b


def test_what_does_not_fit_is_refused_with_a_remedy(env):
    env.reset(seed=0)
    with pytest.raises(ActionError, match=r"no agent 'joinn'"):
        env.step({"joinn": np.array([0, 0])})
    agent = env.agents[0]
    with pytest.raises(ActionError, match=r"shape \(3,\), expected \(2,\)"):
        env.step({agent: np.array([0, 0, 0])})
    with pytest.raises(ActionError, match="fractional"):
        env.step({agent: np.array([0.5, 0])})
    with pytest.raises(ConfigError, match="not one choice for the whole job"):
        dsp_gym.parallel_env("dsp_gym/Nexmark-Q3-Capacity-v2")
    with pytest.raises(ConfigError, match="expected an environment of dsp-gym"):
        dsp_gym.parallel_env("CartPole-v1")


def test_without_pettingzoo_the_extra_is_named():
    code = (
        "import sys; sys.modules['pettingzoo'] = None\n"
        "import dsp_gym\n"
        "try: dsp_gym.parallel_env\n"
        "except dsp_gym.errors.MissingExtraError as error: print(error)"
    )
    code = code.replace("import dsp_gym\n", "import dsp_gym, dsp_gym.errors\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'dsp-gym[multi-agent]'" in done.stdout
