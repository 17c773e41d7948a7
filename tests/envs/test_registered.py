"""Every registered id is a good citizen of Gymnasium and Stable-Baselines3."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import dsp_gym.envs.registration as registration
from dsp_gym.envs.observation import LIMIT
from dsp_gym.errors import ConfigError

registration.register_all()

CONFIG = {
    "name": "test",
    "jobs": ["nexmark-q11", "nexmark-q3", "nexmark-q1"],
    "loads": {"train": {"loads": ["diurnal-bursts", "flash-crowd"], "seeds": {"from": 0, "to": 9}}},
    "env": {
        "episode_s": 900,
        "start": "random",
        "randomise": {"service_factor": [0.7, 1.4], "load_scale": [0.5, 1.5]},
    },
}
IDS = sorted(name for name in gymnasium.registry if name.startswith(registration.NAMESPACE))


def kwargs(name: str) -> dict:
    return {"config": CONFIG} if name.startswith("dsp_gym/Autoscale-") else {}


@pytest.mark.parametrize("name", IDS)
def test_gymnasium_finds_nothing_wrong(name):
    env = gymnasium.make(name, **kwargs(name))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)


@pytest.mark.slow  # importing torch takes seconds
@pytest.mark.parametrize("name", IDS)
def test_stable_baselines_finds_nothing_wrong(name):
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    env = gymnasium.make(name, **kwargs(name))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checker.check_env(env.unwrapped, warn=True)


@pytest.mark.parametrize("name", IDS)
def test_the_vector_environment_is_the_native_one(name):
    env = gymnasium.make_vec(name, num_envs=4, **kwargs(name))
    assert env.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    observation, info = env.reset(seed=1)
    assert observation.shape == env.observation_space.shape
    one_capacity = name in registration.CAPACITY_IDS
    flags = 11 if one_capacity else 10 * env.unwrapped.batch.vertices
    assert info["action_mask"].shape == (4, flags)
    observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
    assert env.observation_space.contains(observation)
    assert reward.shape == terminated.shape == truncated.shape == (4,)
    env.close()


def test_there_are_ids_for_every_query_and_one_from_a_config_in_both_action_spaces():
    assert registration.FROM_CONFIG in IDS
    assert "dsp_gym/Nexmark-Q11-Capacity-v2" in IDS
    assert len(IDS) == 14
    assert all(name.endswith("-Capacity-v2" if "-Capacity-" in name else "-v1") for name in IDS)


@pytest.mark.parametrize("name", ["Nexmark-Q11", "Autoscale"])
def test_the_former_version_is_refused_with_the_new_name(name):
    with (
        pytest.warns(DeprecationWarning, match="upgrading to version `v1`"),
        pytest.raises(gymnasium.error.DeprecatedEnv, match=f"{name}-v1"),
    ):
        gymnasium.make(f"dsp_gym/{name}-v0")


def test_the_module_can_be_named_in_the_id():
    env = gymnasium.make("dsp_gym:dsp_gym/Nexmark-Q1-v1")
    assert env.reset(seed=0)[0].dtype == np.float32


def test_a_backend_that_is_not_there_is_refused_through_make():
    with pytest.raises(ConfigError, match="kubernetes"):
        gymnasium.make("dsp_gym/Nexmark-Q1-v1", backend="kubernetes")


def test_text_is_rendered():
    env = gymnasium.make("dsp_gym/Nexmark-Q11-v1", render_mode="ansi")
    env.reset(seed=0)
    env.step(env.action_space.sample())
    text = env.render()
    assert "session: parallelism" in text
    assert "t = 60 s" in text


def test_a_registered_environment_steps_within_its_space():
    env = gymnasium.make("dsp_gym/Nexmark-Q11-v1")
    env.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(20):
        observation, reward, *_ = env.step(env.action_space.sample())
        assert env.observation_space.contains(observation)
        assert np.abs(observation).max() <= LIMIT
        assert np.isfinite(reward)
        assert reward <= 0


OLD = """
import gymnasium
gymnasium.__version__ = "{version}"
import dsp_gym
makers = [
    lambda: gymnasium.make("dsp_gym:dsp_gym/Nexmark-Q1-v1"),
    lambda: dsp_gym.evaluate_policy("ds2", "dsp_gym/Nexmark-Q1-v1", episodes=1),
]
del gymnasium.vector.AutoresetMode
makers.append(lambda: gymnasium.make_vec("dsp_gym/Nexmark-Q11-Capacity-v2", num_envs=2))
for make in makers:
    try:
        print("made", type(make()).__name__)
    except dsp_gym.errors.ConfigError as error:
        print(error)
"""


def said_with(version: str) -> list[str]:
    code = OLD.format(version=version)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_an_old_gymnasium_is_refused_with_the_remedy_where_an_environment_is_made():
    # Not where it is imported: another program may need that version.
    said = said_with("0.26.3")
    assert said == [str(registration.old_gymnasium("0.26.3"))] * 3
    assert "Gymnasium 0.26.3 is installed, and environments need 0.29 or newer" in said[0]
    assert registration.UPGRADE in said[0]


def test_before_autoreset_modes_there_are_single_environments_and_no_batches():
    *single, batch = said_with("1.0.0")
    assert single == ["made OrderEnforcing", "made PolicyReturns"]
    assert "Gymnasium 1.0.0 is installed, and batches of environments need 1.1 or newer" in batch
    assert registration.UPGRADE in batch


def test_the_gymnasium_that_is_asked_for_is_the_one_that_pip_installs():
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
    (wanted,) = re.findall(r'^    "(gymnasium[<>=].*)",$', project, re.MULTILINE)
    assert f"'{wanted}'" in registration.UPGRADE
    assert not registration.too_old(gymnasium.__version__, registration.OLDEST_FOR_BATCHES)
