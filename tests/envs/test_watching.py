"""Every registered environment can be watched: text, pictures, films and a window."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import HumanRendering, RecordVideo, RenderCollection

import dsp_gym.envs.registration as registration
from dsp_gym.envs.single import AutoscaleEnv
from dsp_gym.errors import ConfigError, MissingExtraError

pytest.importorskip("PIL")
registration.register_all()

CONFIG = {
    "name": "test",
    "jobs": ["nexmark-q3"],
    "loads": {"train": {"loads": ["diurnal-bursts"], "seeds": {"from": 0, "to": 9}}},
    "env": {"episode_s": 1800},
}
IDS = sorted(name for name in gymnasium.registry if name.startswith(registration.NAMESPACE))
FILMED = ("dsp_gym/Autoscale-Capacity-v1", "dsp_gym/Autoscale-v1", "dsp_gym/Nexmark-Q8-v1")
"""Whose films `make test` records; it draws frames of all, and `make validate` films them."""


def made(name, render_mode="rgb_array"):
    given = {"config": CONFIG} if name.startswith("dsp_gym/Autoscale-") else {}
    return gymnasium.make(name, render_mode=render_mode, **given)


def played(env, steps, seed=0):
    env.reset(seed=seed)
    env.action_space.seed(seed)
    for _ in range(steps):
        env.step(env.action_space.sample())
    return env


@pytest.mark.parametrize("name", IDS)
def test_frames_are_collected(name):
    frames = played(RenderCollection(made(name)), 2).render()
    assert [(one.shape, one.dtype) for one in frames] == [((720, 1280, 3), np.uint8)] * 3
    assert len({one.tobytes() for one in frames}) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [one if one in FILMED else pytest.param(one, marks=pytest.mark.validate) for one in IDS]
)
def test_a_film_is_recorded(name, tmp_path):
    pytest.importorskip("moviepy")
    env = RecordVideo(made(name), str(tmp_path / "films"), episode_trigger=lambda _: True)
    played(env, 3).close()
    (film,) = (tmp_path / "films").glob("*.mp4")
    assert b"ftyp" in film.read_bytes()[:16]


def test_a_window_shows_the_frames(monkeypatch):
    pygame = pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    with pytest.warns(UserWarning, match="HumanRendering"):
        env = made("dsp_gym/Nexmark-Q1-v1", "human")
    played(env, 1)
    assert isinstance(env, HumanRendering)
    assert pygame.display.get_surface().get_size() == (1280, 720)
    shown = pygame.surfarray.array3d(pygame.display.get_surface()).transpose(1, 0, 2)
    assert (shown == env.unwrapped.render()).all()
    env.close()


def test_a_frame_does_not_depend_on_those_drawn_before():
    often, once = (made("dsp_gym/Nexmark-Q11-v1") for _ in range(2))
    for env in (often, once):
        env.reset(seed=3)
        env.action_space.seed(3)
    for _ in range(25):
        often.render()
        for env in (often, once):
            env.step(env.action_space.sample())
    assert np.abs(often.render().astype(int) - once.render()).max() <= 12  # smooth edges, rounded


def test_another_episode_begins_with_an_empty_picture():
    env = played(made("dsp_gym/Nexmark-Q11-v1"), 4)
    env.reset(seed=1)
    first = env.render()
    env = made("dsp_gym/Nexmark-Q11-v1")
    env.reset(seed=1)
    assert (env.render() == first).all()


def test_a_restored_state_is_shown_from_there_on():
    env = played(made("dsp_gym/Nexmark-Q11-v1", "ansi"), 4).unwrapped
    state, shown = env.get_state(), env.render()
    env.step(env.action_space.sample())
    env.set_state(state)
    assert env.render().splitlines()[0] == shown.splitlines()[0]


def test_watching_changes_nothing():
    plain, watched = gymnasium.make(IDS[3]), made(IDS[3])
    for env in (plain, watched):
        env.reset(seed=5)
        env.action_space.seed(5)
    for _ in range(5):
        left, right = (env.step(env.action_space.sample()) for env in (plain, watched))
        watched.render()
        assert (left[0] == right[0]).all()
        assert left[1] == right[1]


def test_a_vector_environment_gives_a_frame_for_each_job():
    env = gymnasium.make_vec("dsp_gym/Nexmark-Q11-v1", num_envs=2, render_mode="rgb_array")
    env.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(2):
        env.step(env.action_space.sample())
    left, right = env.render()
    single = made("dsp_gym/Nexmark-Q11-v1")
    single.reset(seed=1)
    single.action_space.seed(0)
    assert left.shape == right.shape == (720, 1280, 3)
    assert (left != right).any()


def test_an_ended_episode_of_a_vector_environment_is_not_drawn_into_the_next():
    short = CONFIG | {"env": {"episode_s": 120}}
    env = gymnasium.make_vec(
        "dsp_gym/Autoscale-v1", num_envs=1, render_mode="rgb_array", config=short
    )
    env.reset(seed=0)
    begun = env.render()[0]
    for _ in range(2):
        *_, ended, _ = env.step(np.zeros_like(env.action_space.sample()))
    assert ended.all()
    env.render()
    watcher = env.unwrapped._watchers._each[0]
    assert len(watcher.story) == 1
    assert env.render()[0].shape == begun.shape


def test_text_shows_curves_of_the_episode():
    text = played(made("dsp_gym/Nexmark-Q11-v1", "ansi"), 10).render()
    assert "session: parallelism" in text
    load = next(line for line in text.splitlines() if line.startswith("load"))
    assert len(set(load) & set("▁▂▃▄▅▆▇█")) > 1
    assert max(map(len, text.splitlines())) <= 80


def test_no_render_mode_keeps_nothing():
    env = gymnasium.make("dsp_gym/Nexmark-Q11-v1")
    assert played(env, 1).unwrapped.render() is None
    assert env.unwrapped._watcher is None


@pytest.mark.parametrize(("mode", "remedy"), [("rgb", "rgb_array"), ("human", "gymnasium.make")])
def test_another_render_mode_is_refused(mode, remedy):
    with pytest.raises(ConfigError, match=remedy):
        AutoscaleEnv(job="nexmark-q1", render_mode=mode)


def test_pictures_without_pillow_are_refused_with_the_remedy(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "PIL.Image", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'dsp-gym\[video\]'"):
        AutoscaleEnv(job="nexmark-q1", render_mode="rgb_array")


@pytest.mark.slow  # importing torch takes seconds
def test_stable_baselines_records_a_film(tmp_path):
    pytest.importorskip("moviepy")
    recording = pytest.importorskip("stable_baselines3.common.vec_env.vec_video_recorder")
    from agents.sb3_vec import Sb3VecEnv

    batch = gymnasium.make_vec("dsp_gym/Nexmark-Q11-v1", num_envs=2).unwrapped.batch
    jobs = Sb3VecEnv(batch, render_mode="rgb_array")
    env = recording.VecVideoRecorder(jobs, str(tmp_path), lambda step: step == 0, video_length=2)
    env.reset()
    for _ in range(3):
        env.step(np.array([env.action_space.sample() for _ in range(2)]))
    env.close()
    assert len(list(tmp_path.glob("*.mp4"))) == 1
