"""The offline datasets that anyone makes with one command."""

from __future__ import annotations

import json

import gymnasium
import numpy as np
import pytest
from typer.testing import CliRunner

from dsp_gym.cli import app
from dsp_gym.datasets import published
from dsp_gym.envs.single import AutoscaleEnv

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


def test_one_command_writes_every_size_with_scores_and_licence():
    line = ["dataset", "publish", "--sizes", "small,medium", "--json"]
    done = CliRunner().invoke(app, line)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
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

    again = CliRunner().invoke(app, ["dataset", "publish", "--sizes", "small"])
    assert again.exit_code == 2
    assert "--overwrite" in again.stderr


def test_an_unknown_size_is_refused_before_anything_is_simulated():
    refused = CliRunner().invoke(app, ["dataset", "publish", "--sizes", "smal"])
    assert refused.exit_code == 2
    assert "there is no size 'smal'" in refused.stderr
    assert "small" in refused.stderr


def test_shipped_sizes_are_whole_blocks_of_every_behaviour():
    sizes, rows = SHIPPED
    assert [count % rows for count in sizes.values()] == [0, 0, 0]
    assert rows % len(published.BEHAVIOURS) == 0
