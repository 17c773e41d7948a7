"""Each training has a separate folder, and older ones are found."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from dsp_gym.config.files import load_model
from dsp_gym.errors import ConfigError, StorageError
from dsp_gym.experiments.comparison import Chosen, with_choice
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.experiments.trainings import folder_of_its_own, newest_training, trained_policy

NOON, LATER = (datetime(2026, 11, 22, hour, tzinfo=UTC) for hour in (12, 13))


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def leave(folder: Path, *, policy: bool = True) -> Path:
    (folder / "seed-0" / "checkpoint").mkdir(parents=True)
    if policy:
        (folder / "policy").mkdir()
        (folder / "policy" / "policy.json").write_text("{}")
    return folder


def train(now: datetime, **left: bool) -> Path:
    with folder_of_its_own("q11", now) as folder:
        return leave(folder, **left)


def test_the_link_leads_to_the_newest_and_evaluation_to_the_newest_that_has_ended():
    first = train(NOON)
    assert first == Path("runs/q11/2026-11-22T12-00-00")
    assert Path("runs/q11/latest").resolve() == first.resolve()
    assert trained_policy("q11") == first / "policy"
    second = train(LATER, policy=False)
    assert Path("runs/q11/latest").readlink() == Path("2026-11-22T13-00-00")
    assert newest_training("q11") == second
    assert trained_policy("q11") == first / "policy"
    experiment = load_model(ExperimentConfig, "experiments", "q11")
    taken = with_choice(experiment, Chosen()).policies[-1]
    assert (taken.name, taken.policy) == ("q11", str(first / "policy"))


def test_two_that_begin_in_one_second_do_not_share_a_folder():
    folders = [train(NOON) for _ in range(11)]
    assert [folder.name[19:] for folder in folders] == ["", *(f"-{n}" for n in range(2, 12))]
    assert newest_training("q11") == folders[-1]


def fail(now: datetime) -> None:
    with folder_of_its_own("q11", now) as folder:
        (folder / ".lock").touch()
        raise ConfigError("no")


def test_one_that_wrote_nothing_leaves_nothing():
    with pytest.raises(ConfigError):
        fail(NOON)
    assert not list(Path().iterdir())
    first = train(NOON)
    with pytest.raises(ConfigError):
        fail(LATER)
    assert newest_training("q11") == first
    assert Path("runs/q11/latest").resolve() == first.resolve()


def test_what_an_earlier_version_trained_is_found_until_there_is_a_newer_one():
    assert newest_training("q11") is None
    assert trained_policy("q11") is None
    old = leave(Path("runs/q11"))
    assert newest_training("q11") == old
    assert trained_policy("q11") == old / "policy"
    new = train(NOON)
    assert newest_training("q11") == new
    assert (old / "policy" / "policy.json").is_file()


def test_something_of_ones_own_called_latest_is_left_alone():
    own = Path("runs/q11/latest")
    own.mkdir(parents=True)
    (own / "notes.txt").write_text("mine")
    folder = train(NOON)
    assert (own / "notes.txt").read_text() == "mine"
    assert newest_training("q11") == folder


def test_a_place_that_cannot_be_written_to_is_said():
    Path("runs").write_text("a file")
    with pytest.raises(StorageError, match="--out FOLDER"), folder_of_its_own("q11", NOON):
        pass
