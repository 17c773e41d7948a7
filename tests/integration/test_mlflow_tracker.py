"""The MLflow tracker against a real SQLite store."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

pytest.importorskip("mlflow")
from mlflow import MlflowClient

from dsp_gym.errors import PolicyError, RegistryError, StorageError
from dsp_gym.policies.pins import digest_of
from dsp_gym.trackers import BackgroundTracker, Tracker, open_tracker
from dsp_gym.trackers.mlflow import MlflowTracker, fetch_run, promote, pull, quiet


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> tuple[str, str, Path]:
    """A store with one finished run that registered a policy twice."""
    root = tmp_path_factory.mktemp("mlflow")
    uri = f"sqlite:///{root}/mlflow.db"
    policy = root / "policy"
    policy.mkdir()
    (policy / "policy.json").write_text('{"schema": "dsp-gym/policy/1"}')
    tracker = MlflowTracker(uri, "q11")
    tracker.start("first", {"kind": "train"})
    tracker.params({"agent": {"gamma": 0.97, "seeds": [0, 1]}, "jobs": ["nexmark-q11"]})
    for step in range(1200):
        tracker.metrics({"reward": float(step), "broken": float("nan")}, step)
    tracker.register(policy, "q11", "champion")
    assert tracker.register(policy, "q11", None) == "models:/q11/2"
    tracker.end()
    assert tracker.run_id is not None
    return uri, tracker.run_id, root


def test_it_is_a_tracker(store):
    assert isinstance(MlflowTracker(store[0], "q11"), Tracker)


def test_a_run_is_read_back_as_it_was_recorded(store, tmp_path):
    uri, run_id, _ = store
    record = fetch_run(run_id, tmp_path / "run", uri)
    assert record.params["agent.gamma"] == "0.97"
    assert record.params["agent.seeds"] == "[0, 1]"
    assert record.metrics == {"reward": 1199.0}
    assert record.tags["kind"] == "train"
    assert (record.folder / "policy" / "policy.json").is_file()


@pytest.mark.validate
def test_a_store_named_by_a_relative_path_is_that_of_the_folder_one_is_in(tmp_path, monkeypatch):
    runs = {}
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        tracker = MlflowTracker(experiment="q11")
        tracker.start(name, {})
        tracker.end()
        runs[name] = tracker.run_id
    for name, run_id in runs.items():
        client = MlflowClient(f"sqlite:///{tmp_path}/{name}/mlflow.db")
        assert client.get_run(run_id).info.run_name == name


def test_a_newer_version_challenges_the_champion_until_it_is_promoted(tmp_path):
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    policy = tmp_path / "policy"
    policy.mkdir()
    (policy / "policy.json").write_text('{"schema": "dsp-gym/policy/1"}')
    tracker = MlflowTracker(uri, "q11")
    tracker.start("three trainings", {})
    asked = [tracker.register(policy, "q11", "champion") for _ in range(3)]
    tracker.end()
    assert asked == ["models:/q11@champion", *["models:/q11@challenger"] * 2]

    def holders() -> dict[str, int]:
        aliases = MlflowClient(uri).get_registered_model("q11").aliases
        return {name: int(version) for name, version in aliases.items()}

    assert holders() == {"champion": 1, "challenger": 3}
    promote("models:/q11/3", "champion", uri)
    assert holders()["champion"] == 3


def test_a_server_that_takes_connections_and_never_answers_is_given_up(monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        tracker = BackgroundTracker(lambda: MlflowTracker(uri, "q11"), around=quiet, wait_s=0.5)
        begun = time.monotonic()
        tracker.start("first", {})
        tracker.end()
        assert time.monotonic() - begun < 10
        assert tracker.problem == "the store did not answer within 0.5 s"


def test_what_the_background_records_is_read_back(tmp_path):
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    tracker = open_tracker(uri, "q11")
    tracker.start("first", {"kind": "train"})
    tracker.metrics({"reward": 3.0}, 1)
    (tmp_path / "card.md").write_text("# Card")
    tracker.artifact(tmp_path / "card.md")
    tracker.end()
    assert tracker.problem is None
    assert fetch_run(tracker.run_id, tmp_path / "run", uri).metrics == {"reward": 3.0}


@pytest.mark.parametrize("address", ["models:/q11@champion", "models:/q11/1"])
def test_a_registered_policy_is_pulled_by_alias_and_by_version(store, tmp_path, address):
    folder = pull(address, tmp_path / "pulled", store[0])
    assert [file.name for file in folder.iterdir()] == ["policy.json"]


def test_another_content_than_was_pinned_or_registered_is_not_put_in_place(store, tmp_path):
    uri, run_id, root = store
    digest = digest_of(root / "policy")
    pulled = pull(f"models:/q11/1@{digest}", tmp_path / "pulled", uri)
    assert digest_of(pulled) == digest
    with pytest.raises(PolicyError, match="differs from the pinned one"):
        pull(f"models:/q11@champion@sha256:{'0' * 64}", tmp_path / "other", uri)
    (kept,) = (root / "mlartifacts").rglob(f"{run_id}/**/policy.json")
    content = kept.read_text()
    kept.write_text(content + " ")  # somebody writes into the store
    try:
        with pytest.raises(PolicyError, match="differs from the pinned one"):
            pull("models:/q11/1", tmp_path / "other", uri)
    finally:
        kept.write_text(content)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pulled"]


def test_a_policy_is_replaced_only_where_that_is_said_and_nothing_else_ever(store, tmp_path):
    pulled, other = tmp_path / "pulled", tmp_path / "other"
    pulled.mkdir()
    (pulled / "policy.json").write_text("older")
    with pytest.raises(StorageError, match=r"is there already.*--overwrite"):
        pull("models:/q11/1", pulled, store[0])
    with pytest.raises(RegistryError, match="no version 7"):
        pull("models:/q11/7", pulled, store[0], replace=True)
    assert (pulled / "policy.json").read_text() == "older"
    pull("models:/q11/1", pulled, store[0], replace=True)
    assert (pulled / "policy.json").read_text() != "older"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    with pytest.raises(StorageError, match="no policy folder"):
        pull("models:/q11/1", other, store[0], replace=True)
    assert sorted(tmp_path.iterdir()) == [other, pulled]


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("models:/q12@champion", "no registered model 'q12'.*Did you mean 'q11'"),
        ("models:/q11@champoin", "no alias 'champoin'.*Did you mean 'champion'"),
        ("models:/q11/7", "no version 7"),
        ("models:/q11", "models:/NAME@ALIAS"),
    ],
)
def test_a_name_that_does_not_exist_is_refused_and_leaves_nothing(store, tmp_path, address, says):
    with pytest.raises(RegistryError, match=says):
        pull(address, tmp_path / "pulled", store[0])
    assert list(tmp_path.iterdir()) == []


def test_reading_a_store_that_is_not_there_does_not_make_one(tmp_path):
    with pytest.raises(RegistryError, match="no such store"):
        pull("models:/q11@champion", tmp_path / "pulled", f"sqlite:///{tmp_path}/none.db")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_content_is_never_overwritten(store, tmp_path):
    (tmp_path / "mine").write_text("keep")
    with pytest.raises(StorageError, match="is there already"):
        pull("models:/q11@champion", tmp_path, store[0])


def test_an_unknown_run_is_named(store, tmp_path):
    with pytest.raises(RegistryError, match="no such run"):
        fetch_run("0" * 32, tmp_path / "run", store[0])
