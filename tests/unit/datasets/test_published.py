"""The offline datasets that anyone makes with one command."""

from __future__ import annotations

import json

import gymnasium
import numpy as np
import pytest

from dsp_gym.datasets import published
from dsp_gym.envs.single import AutoscaleEnv
from dsp_gym.studies.offline_datasets import main
from dsp_gym.studies.runner import run

minari = pytest.importorskip("minari")

SHIPPED = published.SIZES, published.ROWS


@pytest.fixture(autouse=True)
def few(monkeypatch, tmp_path):
    """Six episodes for a dataset, three for a score: the same code, sooner."""
    monkeypatch.setattr(published, "ROWS", 6)
    monkeypatch.setattr(published, "SIZES", {"small": 6, "medium": 12})
    monkeypatch.setattr(published, "SCORED", 3)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "runs/minari"))


def code_of(*arguments: str) -> object:
    """Run the command; return its exit code."""
    with pytest.raises(SystemExit) as ended:
        run(main, arguments)
    return ended.value.code


def test_one_command_writes_every_size_with_scores_and_licence(capsys):
    assert code_of("--sizes", "small,medium", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["episodes"] for one in told] == [6, 12]

    small, medium = (minari.load_dataset(one["id"]) for one in told)
    metadata = small.storage.metadata
    assert metadata["license"] == "Apache-2.0"
    assert metadata["reference_scores"].keys() == {"random", "ds2", "learned-q11"}
    assert metadata["ref_min_score"] == metadata["reference_scores"]["random"]
    assert metadata["ref_max_score"] == metadata["reference_scores"]["learned-q11"]
    assert metadata["ref_min_score"] < metadata["ref_max_score"]

    # The larger one begins with the episodes of the smaller one.
    for one, other in zip(small, medium, strict=False):
        assert np.array_equal(one.observations, other.observations)
        assert np.array_equal(one.actions, other.actions)
    behaviours = [int(one.infos["behaviour"][0, 0]) for one in medium]
    assert behaviours == [0, 0, 1, 1, 2, 2] * 2

    # What is recorded happens again: seed and actions give the same episode in the environment.
    env = small.recover_environment()
    assert isinstance(env.unwrapped, AutoscaleEnv)
    for seed, episode in enumerate(list(small)[2:4]):
        observation, _ = env.reset(seed=seed)
        assert np.array_equal(observation, episode.observations[0])
        for at, action in enumerate(episode.actions):
            observation, reward, terminated, truncated, _ = env.step(action)
            assert np.array_equal(observation, episode.observations[at + 1])
            assert reward == pytest.approx(episode.rewards[at])
        assert (terminated, truncated) == (episode.terminations[-1], episode.truncations[-1])
    assert small.recover_environment(eval_env=True).spec.kwargs["split"] == "test"
    assert gymnasium.spec(published.ENVIRONMENT).kwargs.get("split") is None

    assert code_of("--sizes", "small") == 2
    assert "--overwrite" in capsys.readouterr().err


def test_an_unknown_size_is_refused_before_anything_is_simulated(capsys):
    assert code_of("--sizes", "smal") == 2
    said = capsys.readouterr().err
    assert "there is no size 'smal'" in said
    assert "small" in said


def test_shipped_sizes_are_whole_blocks_of_every_behaviour():
    sizes, rows = SHIPPED
    assert [count % rows for count in sizes.values()] == [0, 0, 0]
    assert rows % len(published.BEHAVIOURS) == 0
