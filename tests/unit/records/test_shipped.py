"""Recordings and a journal of a real Flink are part of the package."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dsp_gym.backends.flink.recording.plan import RecordConfig, planned
from dsp_gym.config import files
from dsp_gym.errors import StorageError
from dsp_gym.job.catalog import load_job
from dsp_gym.records.journal import read
from dsp_gym.records.recording import Recording
from dsp_gym.records.repair import check
from dsp_gym.records.shipped import SAMPLES, folder_of, names


def test_they_are_two_recordings_and_a_journal():
    assert names("recordings") == ["flink-q11-capacity", "flink-q11-day"]
    assert names("journals") == ["flink-q11-day"]


def test_they_take_less_than_two_megabytes():
    assert sum(path.stat().st_size for path in SAMPLES.rglob("*")) < 2e6


@pytest.mark.parametrize("name", names("recordings"))
def test_a_recording_is_whole_and_of_the_plan_of_its_name(name):
    recording = Recording.open(name)
    plan = files.load_model(RecordConfig, "recordings", name)
    runs = planned(plan, load_job(plan.job))
    assert [run.name for run in recording.complete_runs()] == [run.name for run in runs]
    assert [run.configuration for run in recording.runs] == [run.configuration for run in runs]
    assert [run.load.name for run in recording.runs] == [run.load.name for run in runs]
    for recorded, again in zip(recording.runs, runs, strict=True):
        # Cosines and logarithms differ in their last digit between kinds of processors.
        assert np.array(recorded.load.steps) == pytest.approx(np.array(again.load.steps), rel=1e-12)
    assert all(len(run.samples()) > 100 for run in recording.runs)
    assert recording.environment["flink"].startswith("2.1.")


def test_the_journal_is_sound_and_of_the_day_of_the_recording():
    assert check(folder_of("journals", "flink-q11-day")).is_sound
    (run,) = Recording.open("flink-q11-day").complete_runs()
    started_s = Recording.open("flink-q11-day").manifest.started_unix_s
    seen = [entry for entry in read("flink-q11-day") if entry.kind == "snapshot"]
    assert len(seen) > 30
    for entry in seen:
        assert run.t_running_s < entry.body["t_s"] - started_s < run.t_end_s
        found = {v["name"]: v["parallelism"] for v in entry.body["vertices"]}
        assert found == dict(run.configuration.parallelism)


def test_nothing_in_them_names_a_folder_of_the_machine_that_made_them():
    texts = [path.read_bytes() for path in SAMPLES.rglob("*") if path.is_file()]
    assert not [text for text in texts if b"/tmp" in text or b"/home" in text or b"/work" in text]


def test_a_folder_of_that_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert folder_of("recordings", "flink-q11-day") == SAMPLES / "recordings" / "flink-q11-day"
    (tmp_path / "flink-q11-day").mkdir()
    assert folder_of("recordings", "flink-q11-day") == Path("flink-q11-day")
    with pytest.raises(StorageError, match="is no recording"):
        Recording.open("flink-q11-day")


@pytest.mark.parametrize("name", ["flink-q11", "no/flink-q11-day", "../flink-q11-day"])
def test_other_names_and_paths_stay_as_they_are(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert folder_of("recordings", name) == Path(name)
