"""Keywords of `gymnasium.make` that change a scenario."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import pytest

import dsp_gym.envs.registration as registration
from dsp_gym.config.files import configs_root
from dsp_gym.envs.reward import RewardWeights
from dsp_gym.envs.scenarios import changed, scenario
from dsp_gym.errors import ConfigError, KeywordError
from dsp_gym.job.catalog import load_job
from dsp_gym.loads.spec import Constant
from dsp_gym.loads.splits import SeedRange

registration.register_all()

Q11 = "dsp_gym/Nexmark-Q11-v1"


def episode(env, steps: int = 5) -> list[float]:
    env.reset(seed=3)
    return [float(env.step(np.zeros(6, np.int64))[1]) for _ in range(steps)]


@pytest.mark.parametrize(
    "load",
    [
        "constant",
        configs_root() / "loads" / "constant.yaml",
        {"form": "constant"},
        {"description": "as in a file", "load": {"form": "constant"}},
        Constant(form="constant"),
        ["constant"],
        [{"form": "constant", "scale": 1.0}, {"name": "other", "load": "constant"}],
    ],
    ids=lambda load: type(load).__name__,
)
def test_a_load_is_a_name_a_file_a_mapping_an_object_or_several(load):
    env = gymnasium.make(Q11, load=load)
    _, info = env.reset(seed=0)
    batch = env.unwrapped.batch
    assert info["load"].partition("#")[0] in {"constant", "other"}
    drawn = batch.source.draw(np.arange(1))
    assert np.ptp(drawn.rates) == 0


def test_a_load_keeps_the_seeds_of_its_split():
    made = changed(scenario("nexmark-q11"), {"load": ["flash-crowd", "constant"]}, "validation")
    assert [name for name, _ in made.loads.splits()] == ["validation"]
    assert made.loads.validation is not None
    assert made.loads.validation.seeds == SeedRange.model_validate({"from": 4096, "to": 4352})
    own = scenario(config="q11-quickstart")
    given = changed(own, {"load": "flash-crowd"}, "train")
    assert own.loads.train.seeds == given.loads.train.seeds


def test_weights_of_the_reward_are_replaced_by_term():
    env = gymnasium.make(Q11, reward={"slo": 0.0, "cost": 2.0})
    env.reset(seed=0)
    _, reward, _, _, info = env.step(np.zeros(6, np.int64))
    terms = info["reward_terms"]
    weights = {"cost": 2.0, "slo": 0.0, "backlog": 0.2, "rescale": 0.1}
    assert reward == pytest.approx(-sum(weights[name] * terms[name] for name in terms))
    same = gymnasium.make(Q11, reward=RewardWeights(cost=2.0, slo=0.0))
    assert episode(same) == episode(env)


def test_the_bound_on_latency_reaches_the_job_and_its_reward():
    tight, loose = (gymnasium.make(Q11, slo_s=slo_s) for slo_s in (0.001, 100))
    assert tight.unwrapped.batch.topology.spec(0).slo.latency_s == 0.001
    assert sum(episode(tight)) < sum(episode(loose))


def test_a_job_is_a_name_a_file_a_mapping_or_the_job_itself():
    spec = load_job("nexmark-q1")
    file = configs_root() / "jobs" / "nexmark-q1.yaml"
    content = spec.model_dump(mode="json", by_alias=True)
    made = [
        gymnasium.make("dsp_gym/Autoscale-v1", job=job)
        for job in ("nexmark-q1", file, spec, content)
    ]
    assert {env.unwrapped.batch.topology.spec(0).job for env in made} == {"nexmark-q1"}


def test_a_batch_takes_the_same_keywords():
    changes = {"load": "constant", "reward": {"slo": 9.0}, "slo_s": 0.5}
    batch = gymnasium.make_vec(Q11, num_envs=3, **changes)
    batch.reset(seed=3)
    rewards = [batch.step(np.zeros((3, 6), np.int64))[1][0] for _ in range(5)]
    assert rewards == episode(gymnasium.make(Q11, **changes))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"load": "diurnal-burst"}, "Did you mean 'diurnal-bursts'?"),
        ({"load": "there/is/none.yaml"}, "there is no such file"),
        ({"load": {"form": "saw"}}, "form"),
        ({"load": 0.5}, "Pass one of constant, day-with-bursts"),
        ({"load": []}, "1 or more"),
        ({"reward": {"slow": 1.0}}, "unknown key 'slow'. Did you mean 'slo'?"),
        ({"reward": {"slo": -1.0}}, "greater than or equal to 0"),
        ({"reward": "cheap"}, "a mapping of cost, slo, backlog, rescale"),
        ({"slo_s": 0}, "expected seconds above 0"),
        ({"slo_s": float("nan")}, "expected seconds above 0"),
        ({"slo_s": "2"}, "expected seconds above 0"),
        ({"job": "nexmark-q111"}, "Did you mean 'nexmark-q11'?"),
        ({"job": {"job": "mine"}}, "is missing"),
        ({"laod": "constant"}, "Did you mean 'load'?"),
        ({"split": "tset"}, "there is no split 'tset'. Did you mean 'test'?"),
        ({"split": "tset", "load": "constant"}, "there is no split 'tset'"),
        ({"backend": "replay", "load": "constant", "where": Path()}, "has its own"),
        ({"backend": "kubernetes", "load": "constant"}, "has its own"),
    ],
    ids=str,
)
def test_a_wrong_keyword_is_refused_with_what_there_is(changes, says):
    with pytest.raises(ConfigError) as single:
        gymnasium.make(Q11, **changes)
    assert says in str(single.value)
    if "backend" not in changes:
        with pytest.raises(ConfigError) as batch:
            gymnasium.make_vec(Q11, num_envs=2, **changes)
        # Around a TypeError `gymnasium.make` says which environment was to be made.
        assert str(single.value).startswith(str(batch.value))


def test_an_unknown_keyword_is_a_type_error_in_the_words_that_libraries_look_for():
    # TorchRL passes `frameskip`, and tries without it where it reads these words.
    for make in (gymnasium.make, gymnasium.make_vec):
        with pytest.raises(TypeError, match="got an unexpected keyword argument 'frameskip'"):
            make(Q11, frameskip=1)
    with pytest.raises(KeywordError, match="Did you mean 'autoreset_mode'"):
        gymnasium.make_vec(Q11, num_envs=2, autoreset="SameStep")
