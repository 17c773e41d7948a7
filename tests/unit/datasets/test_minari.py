"""Minari datasets are complete or absent, for any name of the folder."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from dsp_gym.cli import app
from dsp_gym.datasets import minari as exporting
from dsp_gym.datasets.minari import export_minari
from dsp_gym.datasets.transitions import Transitions
from dsp_gym.envs.reward import TERMS, RewardWeights
from dsp_gym.errors import DatasetError

minari = pytest.importorskip("minari")

POLICIES = ("first", "second")
IDS = [f"dsp_gym/mine/{policy}-v0" for policy in POLICIES]
STEPS = 4


def steps_of(policies, terminated) -> Transitions:
    """Steps whose observation is their number, each followed by the next."""
    n = len(policies)
    number = np.repeat(np.arange(n + 1, dtype=np.float32)[:, None], 3, axis=1)
    return Transitions(
        observation=number[:-1],
        action=np.ones((n, 1), np.int64),
        action_mask=np.ones((n, 3), np.bool_),
        next_observation=number[1:],
        terms={name: np.zeros(n) for name in TERMS},
        terminated=np.asarray(terminated, np.bool_),
        truncated=np.zeros(n, np.bool_),
        propensity=np.ones(n),
        job=np.full(n, "mine"),
        policy=np.asarray(policies),
    )


@pytest.fixture(autouse=True)
def dataset(tmp_path, monkeypatch):
    """A dataset of an episode of each policy, in the current folder."""
    n = STEPS * len(POLICIES)
    seen = steps_of(np.repeat(POLICIES, STEPS), np.arange(1, n + 1) % STEPS == 0)
    opened = SimpleNamespace(
        transitions=lambda split: seen,
        encoding=SimpleNamespace(
            action="capacity", kappas=(1.0, 1.5), reward=RewardWeights(), jobs={}
        ),
        specs={"mine": SimpleNamespace(vertices=("v",))},
        manifest=SimpleNamespace(name="ds", content_sha256="0" * 64),
    )
    monkeypatch.setattr(exporting.Dataset, "open", lambda folder: opened)
    monkeypatch.chdir(tmp_path)
    return opened


def listed(root: Path, monkeypatch) -> dict[str, int]:
    """Steps of every dataset that Minari finds."""
    with monkeypatch.context() as patch:
        patch.setenv("MINARI_DATASETS_PATH", str(root))
        found = minari.list_local_datasets()
        return {name: len(episode) for name in found for episode in minari.load_dataset(name)}


def test_the_documented_line_works_with_its_relative_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("MINARI_DATASETS_PATH", raising=False)
    line = ["dataset", "export", "runs/datasets/mine"]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.output
    assert f"MINARI_DATASETS_PATH={tmp_path / 'runs/minari'}" in result.stdout
    for folder in (Path("runs/minari"), tmp_path / "runs/minari"):
        assert listed(folder, monkeypatch) == dict.fromkeys(IDS, STEPS)
    refused = CliRunner().invoke(app, line)
    assert refused.exit_code == 2
    assert "--overwrite" in refused.stderr
    assert CliRunner().invoke(app, [*line, "--overwrite"]).exit_code == 0
    assert listed(Path("runs/minari"), monkeypatch) == dict.fromkeys(IDS, STEPS)


def test_a_dataset_in_object_storage_is_opened_by_its_address(tmp_path, monkeypatch, dataset):
    asked = []
    monkeypatch.setattr(exporting.Dataset, "open", lambda place: asked.append(place) or dataset)
    line = ["dataset", "export", "s3://bucket/mine"]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.output
    assert [str(place) for place in asked] == ["s3://bucket/mine"]


def test_an_episode_of_a_policy_ends_where_another_one_decided(tmp_path, monkeypatch, dataset):
    ends = np.isin(np.arange(8), (4, 7))  # of two runs
    seen = steps_of([*"AABBA", *"AAB"], ends)
    dataset.transitions = lambda split: seen
    export_minari("mine", tmp_path / "minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    for policy, expected in {
        "A": [([0, 1, 2], False), ([4, 5], True), ([5, 6, 7], False)],
        "B": [([2, 3, 4], False), ([7, 8], True)],
    }.items():
        episodes = minari.load_dataset(f"dsp_gym/mine/{policy}-v0")
        found = [(e.observations[:, 0].tolist(), bool(e.terminations[-1])) for e in episodes]
        assert found == expected
        assert all(e.truncations[-1] != e.terminations[-1] for e in episodes)
    assert len(seen.take(np.zeros(8, bool))) == 0
    assert not seen.truncated.any()  # as it was


def test_an_interrupted_export_leaves_what_was_there_and_nothing_half(tmp_path, monkeypatch):
    export_minari("mine", tmp_path / "minari")
    before = sorted((tmp_path / "minari").rglob("*"))
    write = exporting._write

    def interrupted(module, name, *rest):
        if "second" in name:
            raise KeyboardInterrupt
        return write(module, name, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(exporting, "_write", interrupted)
        for root, replace in (("minari", True), ("new", False)):
            with pytest.raises(KeyboardInterrupt):
                export_minari("mine", tmp_path / root, replace=replace)
    assert sorted((tmp_path / "minari").rglob("*")) == before
    assert listed(tmp_path / "new", monkeypatch) == {}
    made = export_minari("mine", tmp_path / "new")
    assert [one.path for one in made] == [tmp_path / "new" / name for name in IDS]


def test_the_rest_of_a_killed_export_is_removed_by_the_next(tmp_path, monkeypatch):
    rest = tmp_path / ".export" / "dsp_gym" / "mine" / "first-v0" / "data"
    rest.mkdir(parents=True)
    (rest / "metadata.json").write_text("{")
    export_minari("mine", tmp_path)
    assert listed(tmp_path, monkeypatch) == dict.fromkeys(IDS, STEPS)
    assert not (tmp_path / ".export").exists()


def test_two_exports_into_one_folder(tmp_path, monkeypatch):
    write = exporting._write

    def meanwhile(*arguments):
        with pytest.raises(DatasetError, match="another export"):
            export_minari("mine", tmp_path)
        return write(*arguments)

    monkeypatch.setattr(exporting, "_write", meanwhile)
    assert len(export_minari("mine", tmp_path)) == 2
