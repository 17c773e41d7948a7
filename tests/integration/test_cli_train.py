"""`dsp-gym train` and `dsp-gym policy`, as a user runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from dsp_gym.cli import app

pytest.importorskip("sb3_contrib")
pytest.importorskip("mlflow")

pytestmark = pytest.mark.slow

COMMAND = (sys.executable, "-c", "from dsp_gym.cli import main; main()")
DAY = [{"name": "day", "load": {"form": "diurnal", "period_s": 1800, "noise_cv": 0.1}}]
SMALL = {
    "name": "small",
    "jobs": ["nexmark-q11"],
    "loads": {
        "train": {"loads": DAY, "seeds": {"from": 0, "to": 50}},
        "validation": {"loads": DAY, "seeds": {"from": 50, "to": 60}},
        "test": {"loads": DAY, "seeds": {"from": 60, "to": 70}},
    },
    "env": {"episode_s": 1200},
    "agent": {
        "n_envs": 16,
        "n_steps": 16,
        "batch_size": 128,
        "total_steps": 1024,
        "eval_every": 512,
        "eval_episodes": 4,
        "network": {"hidden": [16]},
    },
}


def dsp_gym(*arguments: str, folder: Path, **options) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, check=False, **options
    )


@pytest.fixture
def here(trained, monkeypatch) -> Callable[..., Result]:
    """Runs a command in the folder of the training, in this process."""
    monkeypatch.chdir(trained[0])
    return lambda *arguments: CliRunner().invoke(app, arguments)


def write(folder: Path, **changes) -> Path:
    file = folder / "small.yaml"
    file.write_text(yaml.safe_dump({**SMALL, **changes}))
    return file


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Path, dict]:
    """A folder in which a small experiment was trained and recorded."""
    folder = tmp_path_factory.mktemp("train")
    write(folder)
    ran = dsp_gym("train", "small.yaml", "--json", folder=folder)
    assert ran.returncode == 0, ran.stderr
    return folder, json.loads(ran.stdout)


def test_training_leaves_a_policy_and_a_record_of_the_run(trained):
    from dsp_gym.trackers.mlflow import fetch_run

    folder, result = trained
    assert sorted(file.name for file in (folder / "runs/small/latest/policy").iterdir()) == [
        "card.md",
        "config.yaml",
        "policy.json",
        "weights.safetensors",
    ]
    record = fetch_run(result["run_id"], folder / "record", f"sqlite:///{folder}/mlflow.db")
    assert record.params["agent.total_steps"] == "1024"
    assert record.metrics["best/return"] == result["validation"]["return"]
    assert record.tags["job.nexmark-q11"]
    assert record.tags["version.torch"]
    assert (record.folder / "config.yaml").read_text() == (
        folder / "runs/small/latest/config.yaml"
    ).read_text()
    assert (record.folder / "policy" / "policy.json").is_file()


def test_the_policy_is_shown_and_pulled_from_the_registry(trained, here):
    folder, result = trained
    # What no update has improved is no champion before somebody says so.
    assert result["has_learned"] is result["model"].endswith("@champion")
    if not result["has_learned"]:
        assert here("policy", "promote", result["model"], "--alias", "champion").exit_code == 0
    shown = here("policy", "show", "models:/small@champion", "--json")
    assert shown.exit_code == 0, shown.stderr
    assert json.loads(shown.stdout)["validation"] == result["validation"]
    pulled = here("policy", "pull", "models:/small/1", "--out", "mine")
    assert pulled.exit_code == 0, pulled.stderr
    weights = "weights.safetensors"
    assert (folder / "mine" / weights).read_bytes() == (
        folder / "runs/small/latest/policy" / weights
    ).read_bytes()
    card = here("policy", "show", "mine")
    assert "## Limits" in card.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("policy", "pull", "models:/smal@champion"), "no registered model 'smal'"),
        (("policy", "show", "nowhere"), "policy.json"),
        (("train", "nowhere"), "no shipped configuration 'nowhere'"),
        (("train", "small.yaml", "--resume", "--out", "new"), "no checkpoint"),
        (("train", "quickstart", "--resume"), "no training to resume"),
        (("train", "small.yaml", "--overwrite"), "its own folder"),
    ],
)
def test_what_is_not_there_is_named_on_one_screen(here, arguments, says):
    ran = here(*arguments)
    assert ran.exit_code == 2
    assert says in ran.stderr
    assert "Traceback" not in ran.stderr
    assert len(ran.stderr.splitlines()) < 10


def test_an_unknown_key_is_named_and_nothing_is_written(tmp_path):
    write(tmp_path, agent={**SMALL["agent"], "n_env": 3})
    ran = dsp_gym("train", "small.yaml", folder=tmp_path)
    assert ran.returncode == 2
    assert "unknown key 'agent.n_env'" in ran.stderr
    assert "n_envs" in ran.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["small.yaml"]


@pytest.mark.validate
def test_ctrl_c_before_learning_says_how_to_begin_again(tmp_path):
    warm = {"teacher": "ds2", "decisions": 1_000_000}
    write(tmp_path, agent={**SMALL["agent"], "warm_start": warm})
    arguments = [*COMMAND, "train", "small.yaml", "--track", "none", "--out", "out"]
    running = subprocess.Popen(arguments, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    for line in running.stderr:
        if line.startswith("watch"):
            break
    os.kill(running.pid, signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    assert said.endswith(
        "Stopped before anything was learned. Begin again with: "
        "dsp-gym train small.yaml --out out --track none\n"
    )
    assert not list(tmp_path.glob("out/*/checkpoint"))


@pytest.mark.validate
def test_ctrl_c_writes_a_checkpoint_and_resume_goes_on(tmp_path):
    write(tmp_path, agent={**SMALL["agent"], "total_steps": 1_000_000, "checkpoint_every": 900_000})
    arguments = [*COMMAND, "train", "small.yaml", "--track", "none"]
    running = subprocess.Popen(arguments, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    for line in running.stderr:  # the first word of progress: learning has begun
        if line.startswith("learn"):
            break
    time.sleep(1)
    os.kill(running.pid, signal.SIGINT)
    _, said = running.communicate(timeout=180)
    assert running.returncode == 130
    assert "--resume" in said
    assert "Traceback" not in said
    state = json.loads((tmp_path / "runs/small/latest/seed-0/checkpoint/state.json").read_text())
    reached = state["tree"]["steps"]
    assert 0 < reached < 1_000_000
    runs = sorted(folder.name for folder in (tmp_path / "runs/small").iterdir())
    write(tmp_path, agent={**SMALL["agent"], "total_steps": reached + 512,
                           "checkpoint_every": 900_000})  # fmt: skip
    ran = dsp_gym("train", "small.yaml", "--track", "none", "--resume", folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    state = json.loads((tmp_path / "runs/small/latest/seed-0/checkpoint/state.json").read_text())
    assert state["tree"]["steps"] == reached + 512
    assert sorted(folder.name for folder in (tmp_path / "runs/small").iterdir()) == runs
