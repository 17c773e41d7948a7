"""The vector environment in each autoreset mode, beside Gymnasium's own, and under its wrappers."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import vector as wrappers

from dsp_gym.envs.action import PLUS_ONE
from dsp_gym.envs.core import STEP_KEYS
from dsp_gym.envs.single import AutoscaleEnv
from dsp_gym.envs.vector import AutoscaleVectorEnv, vector_env
from dsp_gym.envs.wrappers import SingleMove
from dsp_gym.errors import ActionError, ConfigError, KeywordError

ENVS, DECISIONS, PARTS = 2, 3, 6
CONFIG = {
    "name": "test",
    "jobs": ["nexmark-q1"],
    "loads": {"train": {"loads": ["flash-crowd"], "seeds": {"from": 0, "to": 9}}},
    # The first episodes end apart from each other.
    "env": {"episode_s": 60 * DECISIONS, "randomise": {"stagger": True}},
}
UNSTAGGERED = {**CONFIG, "env": {"episode_s": 60 * DECISIONS}}
MODES = list(AutoresetMode)


def many(mode: AutoresetMode | str | None = None, **keywords) -> AutoscaleVectorEnv:
    return AutoscaleVectorEnv(ENVS, config=CONFIG, autoreset_mode=mode, **keywords)


def drawn(env, rng) -> np.ndarray:
    """Any actions, valid or not: an invalid move holds."""
    return rng.integers(env.action_space.low, env.action_space.high + 1)


def after(env, ended) -> None:
    """Reset what has ended, where nobody else does."""
    if env.metadata["autoreset_mode"] == AutoresetMode.DISABLED and ended.any():
        env.reset(options={"reset_mask": ended})


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_does_what_gymnasiums_own_vector_of_single_environments_does(mode):
    ours = many(mode, guardrails="default", explain=True)
    theirs = SyncVectorEnv(
        [lambda: AutoscaleEnv(config=CONFIG, guardrails="default", info_keys="all")] * ENVS,
        autoreset_mode=mode,
    )
    assert ours.metadata["autoreset_mode"] == theirs.metadata["autoreset_mode"] == mode
    rng, ends = np.random.default_rng(0), 0
    np.testing.assert_array_equal(ours.reset(seed=4)[0], theirs.reset(seed=4)[0])
    for _ in range(3 * DECISIONS):
        actions = drawn(ours, rng)
        *seen, info = ours.step(actions)
        *other, told = theirs.step(actions)
        for mine, one in zip(seen, other, strict=True):
            np.testing.assert_array_equal(mine, one)
        ended = seen[2] | seen[3]
        ends += ended.sum()
        np.testing.assert_array_equal(info["action_mask"], told["action_mask"])
        assert info.keys() >= {key for key in told if "final" in key}
        for i in range(ENVS):
            of_row = same_row(info, i), same_row(told, i)
            if mode == AutoresetMode.SAME_STEP and ended[i]:
                np.testing.assert_array_equal(info["final_obs"][i], told["final_obs"][i])
                of_row = same_row(info["final_info"], i), same_row(told["final_info"], i)
            assert of_row[0] == of_row[1]
        after(ours, ended)
        after(theirs, ended)
    assert ends >= 2 * ENVS


def same_row(info, i: int) -> dict:
    """What a step's info says of a row, by key; keys that do not hold for it are left out."""
    found = {}
    for key, value in info.items():
        if key.startswith("_") or "final" in key or key == "load":
            continue
        if not info.get(f"_{key}", np.ones(ENVS, bool))[i]:
            continue
        found[key] = same_row(value, i) if isinstance(value, dict) else np.array(value[i]).tolist()
    return found


def test_the_mode_belongs_to_the_instance_and_is_known_by_name_or_value():
    next_step, same_step = many("NextStep"), many()
    assert next_step.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
    assert same_step.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    assert AutoscaleVectorEnv.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    assert many("DISABLED").metadata["autoreset_mode"] == AutoresetMode.DISABLED
    with pytest.raises(ConfigError, match="Did you mean 'NextStep'"):
        many("NextSteps")
    with pytest.raises(ConfigError, match="on a GPU"):
        vector_env(2, device="cuda", config=CONFIG, autoreset_mode="NextStep")


def test_a_row_that_begins_anew_does_not_advance_and_its_step_counts_for_nothing():
    env = many("NextStep")
    env.reset(seed=0)
    hold, ended = np.zeros(env.action_space.shape, np.int64), np.zeros(ENVS, bool)
    while not ended.any():
        _, _, terminated, truncated, _ = env.step(hold)
        ended = terminated | truncated
    _, reward, _, truncated, info = env.step(hold)
    assert not truncated[ended].any()
    assert not env.batch.steps[ended].any()
    assert not reward[ended].any()
    assert not info["cost"][ended].any()
    np.testing.assert_array_equal(info["_cost"], ~ended)
    np.testing.assert_array_equal(info["_reward_terms"], ~ended)


def test_without_autoreset_a_step_after_an_end_names_the_rows_to_reset():
    env = many(AutoresetMode.DISABLED)
    env.reset(seed=0)
    hold = np.zeros(env.action_space.shape, np.int64)
    for _ in range(DECISIONS):
        _, _, terminated, truncated, _ = env.step(hold)
        if truncated.any():
            break
    with pytest.raises(ResetNeeded, match="reset_mask"):
        env.step(hold)
    env.reset(options={"reset_mask": truncated | terminated})
    env.step(hold)
    with pytest.raises(ConfigError, match=rf"expected \({ENVS},\) and bool"):
        env.reset(options={"reset_mask": np.array([1, 0])})


def test_methods_and_attributes_of_the_rows_are_reached():
    env = many(render_mode=None)
    env.reset(seed=0)
    for row, mask in enumerate(env.call("action_masks")):
        np.testing.assert_array_equal(mask, env.action_masks()[row])
    assert env.get_attr("job") == ("nexmark-q1",) * ENVS
    assert env.get_attr("load")[0].startswith("flash-crowd")
    assert env.get_attr("action_space")[0] == env.single_action_space
    assert env.call("render") == (None,) * ENVS
    env.set_attr("tag", ["a", "b"])
    assert env.get_attr("tag") == ("a", "b")
    env.set_attr("tag", 1)
    assert env.get_attr("tag") == (1, 1)
    with pytest.raises(ConfigError, match="3 values for 2 environments"):
        env.set_attr("tag", [1, 2, 3])
    with pytest.raises(AttributeError, match="job"):
        env.set_attr("job", "other")
    with pytest.raises(AttributeError, match="jbo"):
        env.get_attr("jbo")


def shaped(env):
    size = env.single_observation_space.shape[0]
    return wrappers.ReshapeObservation(env, (2, size // 2) if size % 2 == 0 else (size, 1))


WRAPPERS = {
    "ClipReward": lambda env: wrappers.ClipReward(env, -1.0, 0.0),
    "DictInfoToList": wrappers.DictInfoToList,
    "DtypeObservation": lambda env: wrappers.DtypeObservation(env, np.float32),
    "FlattenObservation": wrappers.FlattenObservation,
    "NormalizeObservation": wrappers.NormalizeObservation,
    "NormalizeReward": wrappers.NormalizeReward,
    "RecordEpisodeStatistics": wrappers.RecordEpisodeStatistics,
    "RescaleObservation": lambda env: wrappers.RescaleObservation(
        env, np.float32(-1), np.float32(1)
    ),
    "ReshapeObservation": shaped,
    "TransformAction": lambda env: wrappers.TransformAction(env, lambda a: a, env.action_space),
    "TransformObservation": lambda env: wrappers.TransformObservation(
        env, lambda o: o / 2, env.observation_space, env.single_observation_space
    ),
    "TransformReward": lambda env: wrappers.TransformReward(env, lambda r: r * 0.1),
    "VectorizeTransformAction": lambda env: wrappers.VectorizeTransformAction(
        env, gymnasium.wrappers.TransformAction, func=lambda a: a, action_space=None
    ),
    "VectorizeTransformObservation": lambda env: wrappers.VectorizeTransformObservation(
        env, gymnasium.wrappers.TransformObservation, func=lambda o: -o, observation_space=None
    ),
    "VectorizeTransformReward": lambda env: wrappers.VectorizeTransformReward(
        env, gymnasium.wrappers.TransformReward, func=lambda r: r / 2
    ),
}
ELSEWHERE = {
    "ArrayConversion": "the base of the next three",
    "ClipAction": "of continuous actions",
    "FilterObservation": "of observations with names",
    "GrayscaleObservation": "of pictures",
    "HumanRendering": "opens a window",
    "JaxToNumpy": "of environments of JAX",
    "JaxToTorch": "of environments of JAX",
    "NumpyToTorch": "needs array-api-compat: tests/clients/gymnasium_client.py",
    "RecordVideo": "with pictures, in test_watching",
    "RescaleAction": "of continuous actions",
    "ResizeObservation": "of pictures",
}
OF_OBSERVATIONS = {name for name in WRAPPERS if name.endswith("Observation")}
REFUSED = {
    AutoresetMode.NEXT_STEP: set(),
    AutoresetMode.SAME_STEP: OF_OBSERVATIONS,
    AutoresetMode.DISABLED: {"NormalizeObservation"},
}
"""Wrappers that refuse a mode, whatever the environment."""


def test_no_wrapper_of_gymnasium_is_left_out():
    assert set(wrappers.__all__) == {*WRAPPERS, *ELSEWHERE}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", WRAPPERS)
def test_gymnasiums_vector_wrappers_take_every_mode_that_they_have(name, mode):
    env = many(mode)
    if name in REFUSED[mode]:
        with pytest.raises(ValueError, match="autoreset_mode"):
            WRAPPERS[name](env)
        return
    wrapped = WRAPPERS[name](env)
    observation, _ = wrapped.reset(seed=0)
    rng, ends = np.random.default_rng(0), 0
    for _ in range(2 * DECISIONS):
        observation, reward, terminated, truncated, _ = wrapped.step(drawn(env, rng))
        assert observation.shape == wrapped.observation_space.shape
        assert np.isfinite(observation).all()
        assert np.isfinite(reward).all()
        ended = terminated | truncated
        ends += ended.sum()
        after(wrapped, ended)
    assert ends >= ENVS


@pytest.mark.parametrize("mode", MODES)
def test_the_statistics_of_an_episode_are_those_of_its_steps(mode):
    env = wrappers.RecordEpisodeStatistics(many(mode))
    env.reset(seed=0)
    rng, total, lengths = np.random.default_rng(0), np.zeros(ENVS), []
    for _ in range(3 * DECISIONS):
        _, reward, terminated, truncated, info = env.step(drawn(env, rng))
        total += reward
        ended = terminated | truncated
        for i in np.flatnonzero(ended):
            assert info["episode"]["r"][i] == pytest.approx(total[i])
            lengths.append(int(info["episode"]["l"][i]))
        total[ended] = 0.0
        after(env, ended)
    assert lengths.count(DECISIONS) >= ENVS


@pytest.mark.slow  # importing torch takes seconds
def test_stable_baselines_sees_the_same_whatever_the_mode():
    from agents.sb3_vec import Sb3VecEnv

    found = []
    for mode in MODES:
        env = Sb3VecEnv(many(mode))
        env.seed(0)
        steps = [env.reset()]
        rng = np.random.default_rng(0)
        for _ in range(2 * DECISIONS):
            steps += env.step(rng.integers(0, env.action_space.nvec, (ENVS, PARTS)))[:3]
        found.append(steps)
    for other in found[1:]:
        for one, same in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, same)


def test_the_spec_says_how_long_an_episode_is():
    one = gymnasium.make("dsp_gym/Autoscale-v1", config=CONFIG)
    assert one.spec.max_episode_steps == DECISIONS
    assert gymnasium.make("dsp_gym/Nexmark-Q1-v1").spec.max_episode_steps == 120
    envs = gymnasium.make_vec("dsp_gym/Autoscale-v1", num_envs=ENVS, config=CONFIG)
    assert envs.spec.max_episode_steps == DECISIONS
    again = gymnasium.make_vec(envs.spec)
    assert again.num_envs == ENVS
    short = many("NextStep", max_episode_steps=1)
    short.reset(seed=0)
    assert short.step(np.zeros(short.action_space.shape, np.int64))[3].all()
    with pytest.raises(ConfigError, match="above 0"):
        many(max_episode_steps=0)


def test_a_step_after_the_end_is_refused_until_a_reset():
    env = AutoscaleEnv(config=CONFIG)
    env.reset(seed=0)
    hold, ended = np.zeros(env.action_space.shape, np.int64), False
    while not ended:
        _, _, terminated, truncated, _ = env.step(hold)
        ended = terminated or truncated
    state = env.get_state()
    for _ in range(2):
        with pytest.raises(ResetNeeded, match="call reset"):
            env.step(hold)
        env.reset()
        env.step(hold)
        env.set_state(state)


@pytest.mark.parametrize(
    ("action", "says"),
    [
        ([0.5] * PARTS, "fractional"),
        ([np.nan] * PARTS, "fractional"),
        ([0, 0, 0], r"shape \(3,\), expected \(6,\)"),
        (0, "one number, expected 6"),
        ([None, 0], "type object"),
        ("up", "type <U2"),
        ([[0], [0, 0]], r"rows of different lengths.*array of shape \(6,\)"),
    ],
    ids=str,
)
def test_an_action_of_another_type_or_shape_is_refused(action, says):
    env = AutoscaleEnv(config=CONFIG)
    env.reset(seed=0)
    with pytest.raises(ActionError, match=says):
        env.step(action)


@pytest.mark.parametrize(
    ("seed", "says"),
    [
        (-1, "value -1: expected whole numbers from 0 on"),
        (1.5, "value 1.5: expected whole numbers"),
        ("0", "value '0': expected whole numbers"),
        ([0, -4], "value -4: expected whole numbers"),
        ([0, 1, 2], f"3 seeds for {ENVS} environments. Pass one for each"),
    ],
    ids=str,
)
def test_seeds_that_are_none_or_too_many_are_refused(seed, says):
    with pytest.raises(ConfigError, match=says):
        many().reset(seed=seed)


def test_a_seed_of_each_environment_is_that_of_the_single_one():
    envs, one = many(), AutoscaleEnv(config=CONFIG)
    seen, _ = envs.reset(seed=[7, None])
    np.testing.assert_array_equal(seen[0], one.reset(seed=7)[0])
    whole, _ = envs.reset(seed=np.int64(6))
    np.testing.assert_array_equal(whole[1], seen[0])


@pytest.mark.parametrize("count", [0, -1, 2.5, "2"], ids=str)
def test_a_number_of_environments_that_is_none_is_refused(count):
    with pytest.raises(ConfigError, match=r"'num_envs': value .*: expected a whole number above 0"):
        AutoscaleVectorEnv(count, config=CONFIG)


def test_actions_of_any_whole_type_are_taken_and_stay_the_callers():
    one, envs = AutoscaleEnv(config=CONFIG), many()
    one.reset(seed=0)
    envs.reset(seed=0)
    for kind in (np.int32, np.uint8, np.float32, np.int64):
        given = np.ones((ENVS, PARTS), kind)
        envs.step(given)
        assert (given == 1).all()
    one.step(np.ones((1, PARTS)))
    with pytest.raises(ActionError, match=r"shape \(2, 1\), expected \(2, 6\)"):
        envs.step(np.zeros((2, 1), int))
    flat = SingleMove(AutoscaleEnv(config=CONFIG))
    flat.reset(seed=0)
    with pytest.raises(ActionError, match="fractional"):
        flat.step(0.5)


def test_gymnasiums_vector_copies_few_keys_at_a_step_and_all_on_request():
    def told(**keywords) -> dict:
        theirs = SyncVectorEnv([lambda: AutoscaleEnv(config=CONFIG, **keywords)] * ENVS)
        theirs.reset(seed=0)
        return theirs.step(np.zeros((ENVS, PARTS), int))[4]

    def keys(info: dict) -> set:
        return {key for key in info if key[0] != "_"}

    ours = many("NextStep")
    ours.reset(seed=0)
    info = ours.step(np.zeros((ENVS, PARTS), int))[4]
    few, every = told(), told(info_keys="all")
    assert keys(few) == {"slo_s", "cost", "action_mask"}
    assert keys(told(guardrails="default")) == {"slo_s", "cost", "action_mask", "interventions"}
    assert keys(every) == info.keys()
    for i in range(ENVS):
        assert same_row(every, i) == same_row(info, i)
        assert same_row(few, i).items() <= same_row(info, i).items()


@pytest.mark.parametrize("wrapped", [lambda env: env, SingleMove])
def test_keys_that_info_does_not_list_are_found_by_name(wrapped):
    every, env = (wrapped(AutoscaleEnv(config=UNSTAGGERED, info_keys=k)) for k in ("all", None))
    for one in (every, env):
        one.reset(seed=0)
    hold = np.zeros(env.action_space.shape, int)
    whole, info = every.step(hold)[4], env.step(hold)[4]
    assert info["reward_terms"] == whole["reward_terms"]  # before any other look
    unlisted = whole.keys() - info.keys()
    assert unlisted == set(STEP_KEYS) - {"slo_s", "cost"}
    for key in whole:
        assert key in info
        np.testing.assert_equal(info[key], whole[key])
        np.testing.assert_equal(info.get(key), whole[key])
    assert set(info) == whole.keys() - unlisted  # looking by name lists nothing
    assert (info.get("load"), info.get("costs", 1), "costs" in info) == (None, 1, False)
    for key in ("load", "costs"):
        with pytest.raises(KeyError, match=key):
            info[key]
    assert env.step(hold)[4]["pending_s"] == every.step(hold)[4]["pending_s"]


def test_an_info_that_is_kept_tells_of_its_own_step():
    env = AutoscaleEnv(config=UNSTAGGERED)
    env.reset(seed=0)
    grow, hold = [0, 0, PLUS_ONE, 0, 0, 0], [0] * PARTS
    infos = [env.step(np.array(move))[4] for move in (hold, hold, grow)]
    assert [info["reward_terms"]["rescale"] for info in infos] == [0, 0, 1]


def test_info_has_the_keys_that_are_asked_for():
    env = AutoscaleEnv(config=CONFIG, info_keys=["cost", "action_mask"])
    assert set(env.reset(seed=0)[1]) == {"action_mask"}
    assert set(env.step(np.zeros(PARTS, int))[4]) == {"cost", "action_mask"}
    none = AutoscaleEnv(config=CONFIG, info_keys=())
    assert none.reset(seed=0)[1] == none.step(np.zeros(PARTS, int))[4] == {}
    envs = many("NextStep", info_keys=["cost"])
    envs.reset(seed=0)
    assert set(envs.step(np.zeros((ENVS, PARTS), int))[4]) == {"cost"}
    with pytest.raises(ConfigError, match="Did you mean 'cost'"):
        many(info_keys=["costs"])
    with pytest.raises(KeywordError, match="Did you mean 'info_keys'"):
        AutoscaleEnv(config=CONFIG, info_key=())
