"""The quickstart: a small agent, on a job and on loads that it was not trained on."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dsp_gym.config.files import configs_root, load_model, parse
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.experiments.tuning.objective import training_benchmark
from dsp_gym.job.catalog import load_job

ROOT = Path(__file__).resolve().parents[2]
LEAN = """
import sys
for name in ("torch", "stable_baselines3", "sb3_contrib", "mlflow", "pandas", "pyarrow", "pyspark"):
    sys.modules[name] = None
from dsp_gym.cli import main
main()
"""
"""The command line where `make quickstart` alone has installed the package."""
NAME = "quickstart"


def test_it_is_compared_on_a_job_and_on_shapes_of_load_that_it_was_not_trained_on():
    config = load_model(ExperimentConfig, "experiments", NAME)
    benchmark = config.benchmark("somewhere")
    assert benchmark.jobs == ("nexmark-q11",)
    learned = [*config.training_specs(), *config.validation_specs()]
    assert not {load_job(name).job for name in benchmark.jobs} & {spec.job for spec in learned}
    trained = {entry.name for entry in config.loads.train.loads}
    assert not trained & {entry.name for entry in config.loads.test.loads}
    rules = ["ds2", "justin-artifact", "flink-autoscaler"]
    assert [one.name for one in benchmark.policies] == [*rules, NAME]


def test_policies_are_tuned_on_the_jobs_that_it_is_trained_on():
    config = load_model(ExperimentConfig, "experiments", NAME)
    assert training_benchmark(config, 1).jobs == config.jobs


def test_make_runs_it():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert f"EXPERIMENT ?= configs/experiments/{NAME}.yaml" in makefile
    lines = re.search(r"^quickstart:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)[1].splitlines()
    commands = [line.split() for line in lines if "/dsp-gym" in line]
    # The first one compiles beside the training what the last one needs, and shows nothing.
    assert [words[1] for words in commands] == ["evaluate", "train", "evaluate"]


def made(target: str, venv: Path) -> str:
    """The commands that make would run for a target in such an environment."""
    if shutil.which("make") is None:
        pytest.skip("no make")
    line = ["make", "--dry-run", target, f"VENV={venv}"]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_it_installs_what_a_planning_agent_needs_and_the_tests_bring_the_rest(tmp_path):
    first = made("quickstart", tmp_path / "venv")
    assert "--editable '.[plan]'" in first
    assert "[all,dev]" not in first
    assert " torch" not in first
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / ".installed-for-quickstart").touch()
    assert "pip install" not in made("quickstart", tmp_path / "venv")
    rest = made("install", tmp_path / "venv")
    assert rest.index(" torch\n") < rest.index("--editable '.[all,dev]'")
    (tmp_path / "venv" / ".installed").touch()
    assert "pip install" not in made("quickstart", tmp_path / "venv")
    assert "pip install" not in made("install", tmp_path / "venv")


@pytest.mark.slow
def test_a_shorter_one_is_trained_and_compared_without_torch(tmp_path, monkeypatch):
    document = yaml.safe_load((configs_root() / "experiments" / f"{NAME}.yaml").read_text("utf-8"))
    document["env"] = {"episode_s": 7200}
    document["agent"] |= {"draws": 2, "eval_episodes": 1, "late_prices": [4]}
    document["evaluation"]["seeds"] = 1
    parse(ExperimentConfig, document, "short")
    monkeypatch.chdir(tmp_path)
    file = f"{NAME}.yaml"
    Path(file).write_text(yaml.safe_dump(document), encoding="utf-8")
    folder = f"runs/{NAME}/latest/policy"
    for line in (
        ["train", f"./{file}", "--track", "none"],
        [
            "evaluate",
            f"./{file}",
            "--policies",
            f"all,{folder}",
            "--track",
            "none",
            "--out",
            "card",
        ],
    ):
        done = subprocess.run(
            [sys.executable, "-c", LEAN, *line],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert done.returncode == 0, done.stderr
    card = json.loads(Path("card/results.json").read_text("utf-8"))
    assert {cell["job"] for cell in card["cells"]} == {"nexmark-q11"}
    assert {"ds2", "justin-artifact", "flink-autoscaler", NAME} <= {
        cell["policy"] for cell in card["cells"]
    }
