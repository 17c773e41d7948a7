"""A recording as an environment: decisions do not change the observations."""

from __future__ import annotations

import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from dsp_gym.backends.replay.jobs import ReplayJobs
from dsp_gym.backends.simulated.recording import SimulatedRecording
from dsp_gym.envs.action import PLUS_ONE
from dsp_gym.envs.reward import reward_terms
from dsp_gym.errors import ConfigError, StorageError
from dsp_gym.loop.configuration import Configuration
from dsp_gym.metrics.window import WindowConfig
from dsp_gym.records.journal import read
from dsp_gym.records.manifest import RecordedLoad
from dsp_gym.records.recording import Recording
from tests.simulating import exact, keyed

SPEC = keyed()
CONFIG = {
    "name": "replayed",
    "jobs": ["nexmark-q11"],  # of no account: the recording says which job it is
    "loads": {"train": {"loads": ["constant"]}},
    "env": {
        "interval_s": 30,
        "episode_s": 3600,
        "simulation": {"measurement": {"window_s": 30, "stabilization_s": 10}},
    },
    "guardrails": "default",
}


@pytest.fixture(scope="module")
def recording(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("recorded") / "r"
    made = SimulatedRecording(folder, SPEC, exact())
    for name, rate, seconds in (("slow", 500.0, 120), ("fast", 5000.0, 200)):
        load = RecordedLoad(name=name, steps=((0, rate), (60, 1.5 * rate)))
        made.add(name, Configuration.of_spec(SPEC), load, seconds)
    return folder


def env_of(recording: Path, **where) -> gymnasium.Env:
    return gymnasium.make(
        "dsp_gym/Autoscale-v1",
        config=CONFIG,
        backend="replay",
        where={"recording": str(recording), **where},
    )


def episode(env: gymnasium.Env, seed: int, actions: int) -> list[tuple]:
    """Observations and rewards of one episode under random valid or invalid actions."""
    rng = np.random.default_rng(actions)
    seen, info = env.reset(seed=seed)
    steps: list[tuple] = [(seen, None, info["load"])]
    done = False
    while not done:
        action = rng.integers(0, env.action_space.nvec)
        seen, reward, terminated, truncated, info = env.step(action)
        steps.append((seen, reward, info["enacted"]))
        done = terminated or truncated
    return steps


@pytest.mark.parametrize("action", ["vertex", "capacity"])
def test_gymnasium_finds_nothing_wrong(recording, action):
    env = gymnasium.make(
        "dsp_gym/Autoscale-v1", config=CONFIG, backend="replay", where=str(recording), action=action
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)


def test_the_same_seed_is_the_same_trajectory_whatever_is_decided(recording):
    env = env_of(recording)
    one, other = episode(env, 3, actions=0), episode(env, 3, actions=1)
    assert len(one) == len(other) > 4
    for (seen, reward, _), (again, same, _) in zip(one, other, strict=True):
        np.testing.assert_array_equal(seen, again)
        assert reward == same
    assert not any(enacted for _, _, enacted in one[1:])


def test_the_seed_draws_the_run(recording):
    env = env_of(recording)
    labels = {env.reset(seed=seed)[1]["load"] for seed in range(8)}
    assert labels == {"slow", "fast"}


def test_an_episode_ends_with_its_run(recording):
    env = env_of(recording)
    lengths = {"slow": 4, "fast": 7}  # 120 and 200 s in steps of 30 s, the last one shorter
    for seed in range(4):
        steps = episode(env, seed, actions=0)
        assert len(steps) - 1 == lengths[steps[0][2]]


def test_rewards_are_those_of_the_recording(recording):
    env = env_of(recording)
    _, info = env.reset(seed=1)
    window = WindowConfig(window_s=30, stabilization_s=10)
    jobs = ReplayJobs(Recording.open(recording).run(info["load"]), window)
    hold = np.zeros(env.action_space.shape, np.int64)
    for _ in range(4):
        _, _, _, _, info = env.step(hold)
        outcome = jobs.advance(30)
        terms = reward_terms(outcome, env.unwrapped.batch.reference_cost_per_s)
        assert info["reward_terms"] == {n: float(v[0]) for n, v in terms.items()}
        assert info["reward_source"] == "metrics"


def test_decisions_are_journaled_and_never_enacted(recording, tmp_path):
    env = env_of(recording, journal=str(tmp_path))
    env.reset(seed=0)
    grow = np.zeros(env.action_space.shape, np.int64)
    grow[2 * env.unwrapped.batch.topology.names(0).index("map")] = PLUS_ONE
    done = False
    steps = 0
    while not done:
        _, _, terminated, truncated, _ = env.step(grow)
        done, steps = terminated or truncated, steps + 1
    env.close()
    entries = list(read(tmp_path))
    kinds = ["snapshot", "decision", "guard", "actuation", "outcome"]
    assert [entry.kind for entry in entries] == kinds * steps
    asked = [e.body["asked"] for e in entries if e.kind == "actuation"]
    assert asked == [False] * steps
    assert any(e.body["changed"] for e in entries if e.kind == "decision")
    running = {
        (v["name"], v["parallelism"])
        for e in entries
        if e.kind == "snapshot"
        for v in e.body["vertices"]
    }
    assert len(running) == len(SPEC.vertices)


def test_the_folder_alone_is_enough(recording):
    env = gymnasium.make("dsp_gym/Autoscale-v1", backend="replay", where=str(recording))
    assert env.reset(seed=0)[0] in env.observation_space


def test_a_recording_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="needs a recording"):
        gymnasium.make("dsp_gym/Autoscale-v1", backend="replay")
    with pytest.raises(StorageError, match="no recording"):
        gymnasium.make("dsp_gym/Autoscale-v1", backend="replay", where=str(tmp_path))


def test_a_recording_is_watched_to_its_end(recording):
    pytest.importorskip("PIL")
    env = gymnasium.make(
        "dsp_gym/Autoscale-v1",
        config=CONFIG,
        backend="replay",
        where=str(recording),
        render_mode="rgb_array",
    )
    env.reset(seed=0)
    ended = False
    while not ended:
        _, _, terminated, truncated, _ = env.step(np.zeros(env.action_space.shape, np.int64))
        ended = terminated or truncated
    assert env.render().shape == (720, 1280, 3)


def test_there_is_no_batch_of_one_recording(recording):
    with pytest.raises(ConfigError, match="one job"):
        gymnasium.make_vec("dsp_gym/Autoscale-v1", num_envs=2, backend="replay")


def test_a_place_means_nothing_to_a_simulated_job(recording):
    with pytest.raises(ConfigError, match="where"):
        gymnasium.make("dsp_gym/Nexmark-Q1-v1", where=str(recording))


def test_what_if_questions_are_for_simulated_jobs(recording):
    with pytest.raises(ConfigError, match="simulated"):
        env_of(recording).unwrapped.get_state()
