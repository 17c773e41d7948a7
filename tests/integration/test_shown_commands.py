"""Commands that pages and `--help` show work as printed, in a fresh folder.

Files that only a reader has are made first. What cannot run here, or takes longer than a minute, is
listed with its reason. `make test` runs what is quick, `make validate` the rest.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dsp_gym.cli import app
from dsp_gym.config.files import configs_root
from dsp_gym.records.journal import read
from dsp_gym.records.shipped import folder_of
from tests.shown import DOCS, ROOT, Shown, commands

LONGEST_S = 60.0

LEFT_OUT = {
    "a Flink cluster": (
        r"^dsp-gym flink |^dsp-gym doctor --flink",
        r"^dsp-gym (discover|calibrate http\S+) ",
        r"^dsp-gym record (?!.*--plan)",
        r"^dsp-gym shadow \S+( --|$)",
        r"^dsp-gym backtest runs/promotion",
        r"--testbed flink",
        r"^dsp-gym (calibrate flink-q11 |plan q11\.yaml)",  # of its recording
        r"^dsp-gym simulate orders\.yaml",  # which a calibration wrote
    ),
    "a cluster of Kubernetes or Spark": (
        r"^kubectl ",
        r"spark://|k8s://|--master yarn",
        r"^\$SPARK_HOME",
    ),
    "it installs, builds or ships": (
        r"^(sudo|\S*pip|python3 -m venv|make) ",
        r"^(docker|helm) ",
        r"^python deploy/pin\.py ",
    ),
    "a registry of models": (r"models:/|run:RUN_ID",),
    "a name of the reader's": (r"EXPERIMENT|runs/NAME|/path/to",),
    "measured data that does not ship": (
        r"\.csv|\bq5\.yaml|backtest exported",
        r"backtest --prometheus",
        r"\.\./shared/data",
        r"traces.jsonl",
        r"^dsp-gym validate",
    ),
    "a source that the guide's own test installs": (r"\bmine\.yaml|runs/datasets/mine",),
    "it goes on until it is stopped": (r"--every \d+|--speed 60|--follow$|--follow ",),
    "longer than a minute": (
        r"core-v[123]",
        r"^dsp-gym tune agent|^dsp-gym tune justin-paper",
        r"^dsp-gym train (q11|my-q11|family)",
        r"^dsp-gym evaluate my-q11",
        r"^dsp-gym reproduce$",
        r"^dsp-gym bench (backtest|env|policies|shadow|serve|growth|spark)",
        r"^dsp-gym rollout nexmark",
    ),
}

QUICK = (
    "docs/guides/add-a-load.md",
    "docs/guides/add-a-workload.md",
    "docs/concepts/job.md",
    "dsp-gym --help",
    "dsp-gym list --help",
    "dsp-gym doctor --help",
    "dsp-gym simulate --help",
    "dsp-gym record --help",
    "dsp-gym backtest --help",
    "dsp-gym decide --help",
    "dsp-gym policy show --help",
    "dsp-gym config check --help",
    "dsp-gym config schema --help",
)
"""Sources whose commands take little; the others wait for `make validate`."""


def reason(command: Shown) -> str | None:
    """Why a command is not run; None: it is."""
    for why, patterns in LEFT_OUT.items():
        if any(re.search(pattern, command.text) for pattern in patterns):
            return why
    return None


def runnable() -> dict[str, list[str]]:
    """By source, the commands that are run."""
    kept = [command for command in commands() if reason(command) is None]
    return {
        source: [command.text for command in group]
        for source, group in groupby(kept, lambda command: command.source)
    }


def yaml_block(page: str, number: int = 0) -> Callable[[Path], None]:
    def make(target: Path) -> None:
        text = (DOCS / page).read_text("utf-8")
        blocks = re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        target.write_text(blocks[number], "utf-8")

    return make


def trained(target: Path) -> None:
    shutil.copytree(ROOT / "agents" / "pretrained" / "q11", target)


def journal(target: Path) -> None:
    shutil.copytree(folder_of("journals", "flink-q11-day"), target)


def snapshots(target: Path) -> None:
    bodies = [entry.body for entry in read("flink-q11-day") if entry.kind == "snapshot"]
    target.write_text("".join(f"{json.dumps(body)}\n" for body in bodies), "utf-8")


def history(target: Path) -> None:
    journal(target.parent / "my-journal")
    source = "{kind: journals, folder: my-journal, job: flink-q11, key: flink-q11-day}"
    target.write_text(f"name: history\nsources:\n  - {source}\n", "utf-8")


def job(target: Path) -> None:
    shutil.copy(configs_root() / "jobs" / "nexmark-q11.yaml", target)


def installed(target: Path) -> None:
    target.symlink_to(Path(sys.executable).parent / "dsp-gym")


def recipe(target: Path) -> None:
    shutil.copy(ROOT / "docs" / "recipes" / target.name, target)


def model(target: Path) -> None:
    """What Stable-Baselines3, or torch, saved."""
    import gymnasium
    import stable_baselines3
    import torch

    import dsp_gym  # noqa: F401  # registers the environments

    env = gymnasium.make("dsp_gym/Nexmark-Q11-v1")
    made = stable_baselines3.PPO("MlpPolicy", env, device="cpu")
    if target.suffix == ".zip":
        made.save(target)
    else:
        torch.save(made.policy.state_dict(), target)


OWN: dict[str, Callable[[Path], None]] = {
    "my-load.yaml": yaml_block("guides/add-a-load.md"),
    "clicks.yaml": yaml_block("guides/add-a-workload.md"),
    "my-benchmark.yaml": yaml_block("concepts/evaluation.md"),
    "my-job.yaml": job,
    "history.yaml": history,
    "snapshots.jsonl": snapshots,
    "runs/my-q11/latest/policy": trained,
    "runs/q11/latest/policy": trained,
    "runs/live/orders": journal,
    ".venv/bin/dsp-gym": installed,
    "docs/recipes/a2c.py": recipe,
    "model.zip": model,
    "agent.pt": model,
}
"""What only the reader has, by the name in commands, and how it is made."""


def fresh(folder: Path, texts: list[str]) -> None:
    """Makes what the commands take and nothing before them makes."""
    for name, make in OWN.items():
        if any(name in text for text in texts):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            make(folder / name)


@pytest.mark.slow
@pytest.mark.parametrize("source", QUICK)
def test_quick_commands_run_as_they_are_shown(source, tmp_path, monkeypatch):
    texts = runnable()[source]
    fresh(tmp_path, texts)
    monkeypatch.chdir(tmp_path)
    for text in texts:
        words = shlex.split(text)
        if words[0] != "dsp-gym" or ">" in words:
            in_shell(text, tmp_path)
            continue
        done = CliRunner().invoke(app, words[1:])
        assert done.exit_code == 0, f"{text}\n{done.output}{done.exception!r}"


@pytest.mark.validate
@pytest.mark.parametrize("source", sorted(set(runnable()) - set(QUICK)))
def test_all_commands_run_as_they_are_shown(source, tmp_path):
    texts = runnable()[source]
    fresh(tmp_path, texts)
    for text in texts:
        in_shell(text, tmp_path)


def in_shell(text: str, folder: Path) -> None:
    scripts = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", text],
        cwd=folder,
        env=os.environ | {"PATH": scripts, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=10 * LONGEST_S,  # the machine may be busy with other tests
        check=False,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"


def test_quick_sources_are_shown():
    assert set(QUICK) <= set(runnable())


@pytest.mark.parametrize("pattern", [p for patterns in LEFT_OUT.values() for p in patterns])
def test_nothing_is_left_out_that_is_not_shown(pattern):
    others = [p for patterns in LEFT_OUT.values() for p in patterns if p != pattern]
    alone = [
        command.text
        for command in commands()
        if re.search(pattern, command.text) and not any(re.search(p, command.text) for p in others)
    ]
    assert alone, "no command needs this pattern"


@pytest.mark.parametrize("name", OWN)
def test_every_file_of_the_reader_is_asked_for(name):
    assert any(name in text for texts in runnable().values() for text in texts)
