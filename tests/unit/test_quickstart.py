"""The first thing to run: a small agent, on a job and on loads that it was not trained on."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from dsp_gym.cli import app
from dsp_gym.config.files import configs_root, load_model, parse
from dsp_gym.evaluation.experiment import ExperimentConfig
from dsp_gym.evaluation.tuning.objective import training_benchmark

ROOT = Path(__file__).resolve().parents[2]
NAME = "quickstart"


def test_it_is_compared_on_a_job_and_on_shapes_of_load_that_it_was_not_trained_on():
    config = load_model(ExperimentConfig, "experiments", NAME)
    benchmark = config.benchmark("somewhere")
    assert benchmark.jobs == ("nexmark-q11",)
    assert not set(benchmark.jobs) & {*config.training_jobs(), *config.validation_jobs()}
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
    assert [line.split()[1] for line in lines] == ["train", "evaluate"]


@pytest.mark.slow
def test_a_shorter_one_is_trained_and_compared(tmp_path, monkeypatch):
    document = yaml.safe_load((configs_root() / "experiments" / f"{NAME}.yaml").read_text("utf-8"))
    document["env"] = {"episode_s": 7200}
    document["agent"] |= {"draws": 2, "eval_episodes": 1, "late_prices": [4]}
    document["evaluation"]["seeds"] = 1
    parse(ExperimentConfig, document, "short")
    monkeypatch.chdir(tmp_path)
    file = f"{NAME}.yaml"
    Path(file).write_text(yaml.safe_dump(document), encoding="utf-8")
    made = CliRunner().invoke(app, ["train", f"./{file}", "--no-track"])
    assert made.exit_code == 0, made.output
    folder = f"runs/{NAME}/policy"
    shown = CliRunner().invoke(
        app, ["evaluate", f"./{file}", "--policy", folder, "--no-track", "--out", "card"]
    )
    assert shown.exit_code == 0, shown.output
    card = json.loads(Path("card/scorecard.json").read_text("utf-8"))
    assert {cell["job"] for cell in card["cells"]} == {"nexmark-q11"}
    assert {"ds2", "justin-artifact", "flink-autoscaler", NAME} <= {
        cell["policy"] for cell in card["cells"]
    }
