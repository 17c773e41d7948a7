"""Cells on executors: results as in this process, whatever happens to an executor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dsp_gym.cli import app
from dsp_gym.config.files import parse
from dsp_gym.datasets.rollouts.plan import RolloutConfig
from dsp_gym.datasets.rollouts.run import rollout
from dsp_gym.engine import HERE
from dsp_gym.errors import EngineError, PolicyError
from dsp_gym.evaluation.config import BenchmarkConfig
from dsp_gym.evaluation.run import evaluate
from dsp_gym.experiments.experiment import ExperimentConfig
from tests import cells

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.validate]

ROOT = Path(__file__).resolve().parents[2]

ENGINES: dict[str, tuple[str, ...]] = {"local": (), "spark": ("--master", "local[2]")}

LEARNED = {
    "policy": "planner",
    "name": "trained",
    "params": {"path": str(ROOT / "agents" / "pretrained" / "q11")},
    "guardrails": "deployed",
}
ROLLOUTS = {
    "policies": ["ds2", LEARNED, {"policy": "justin-paper", "guardrails": "floor"}],
    "jobs": ["nexmark-q11", "nexmark-q3"],
    "loads": {"train": {"loads": ["diurnal-bursts"], "seeds": {"from": 0, "to": 3}}},
    "env": {"start": "random", "episode_s": 900},
    "epsilon": 0.2,
}
DAY = [{"name": "day", "load": {"form": "diurnal", "period_s": 1800, "noise_cv": 0.1}}]
EXPERIMENT = {
    "name": "small",
    "jobs": ["nexmark-q11"],
    "loads": {
        "train": {"loads": DAY, "seeds": {"from": 0, "to": 50}},
        "validation": {"loads": DAY, "seeds": {"from": 50, "to": 60}},
    },
    "env": {"episode_s": 1200},
    "agent": {
        "seeds": [0, 1, 2],
        "n_envs": 16,
        "n_steps": 16,
        "batch_size": 128,
        "n_epochs": 2,
        "total_steps": 768,
        "eval_every": 256,
        "checkpoint_every": 512,
        "eval_episodes": 4,
        "network": {"hidden": [16]},
    },
}
BENCHMARK = {
    "policies": ["ds2", LEARNED],
    "jobs": ["nexmark-q11", "nexmark-q3"],
    "loads": {
        "train": {"loads": ["flash-crowd"], "seeds": {"from": 0, "to": 3}},
        "test": {"loads": ["flash-crowd"], "seeds": {"from": 900, "to": 903}},
    },
    "episode_s": 900,
    "bootstrap": 200,
}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_rollouts_on_executors_are_those_of_the_local_engine(spark, tmp_path):
    file = tmp_path / "small.yaml"
    file.write_text(json.dumps(ROLLOUTS))  # JSON is YAML
    for engine in ("local", "spark"):
        arguments = [str(file), *ENGINES[engine], "--out", str(tmp_path / engine)]
        result = CliRunner().invoke(app, ["rollout", *arguments])
        assert result.exit_code == 0, result.output
    here = contents(tmp_path / "local")
    assert len(here) == 1 + 3 * 2 * 3
    assert contents(tmp_path / "spark") == here


def test_a_report_from_executors_is_that_of_the_local_engine(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(json.dumps(BENCHMARK))
    for engine in ("local", "spark"):
        arguments = ["small.yaml", *ENGINES[engine], "--seeds", "1", "--out", engine]
        result = CliRunner().invoke(app, ["evaluate", *arguments, "--track", "none"])
        assert result.exit_code == 0, result.output
    assert {"report.md", "results.json"} <= contents(Path("local")).keys()
    assert contents(Path("spark")) == contents(Path("local"))


def test_a_scorecard_from_executors_is_that_of_the_local_engine(spark, tmp_path):
    file = tmp_path / "small.yaml"
    file.write_text(json.dumps(BENCHMARK))
    cards = []
    for engine in ("local", "spark"):
        result = CliRunner().invoke(
            app, ["evaluate", str(file), *ENGINES[engine], "--json", "--track", "none"]
        )
        assert result.exit_code == 0, result.output
        cards.append(result.stdout)
    assert {cell["policy"] for cell in json.loads(cards[0])["cells"]} >= {"clairvoyant", "bound"}
    assert cards[0] == cards[1]


def test_what_the_user_can_put_right_comes_back_as_it_was_raised(spark):
    from spark_pipelines.sweep import SparkEngine

    with pytest.raises(PolicyError, match=r"'this one': cannot be used. Take another."):
        list(SparkEngine(spark).map(cells.refuse, [1, 2, 3]))


def test_a_fault_on_an_executor_is_told_in_one_line(spark):
    from spark_pipelines.sweep import SparkEngine

    with pytest.raises(EngineError, match="gave up on a cell: ZeroDivisionError: division by"):
        list(SparkEngine(spark).map(cells.divide, [0]))


def test_news_of_a_cell_come_before_its_result(spark):
    from spark_pipelines.sweep import SparkEngine

    told = []
    for place, (value, _) in SparkEngine(spark).map(
        cells.square, [2, 3], lambda *news: told.append(news)
    ):
        assert value == [4, 9][place]
        assert told[-2:] == [(place, 0.5), (place, 1.0)]


def killed(folder: Path, kind: str) -> None:
    """A sweep on two executors of one core; one of them is killed in the middle."""
    given = {"rollouts": ROLLOUTS, "benchmark": BENCHMARK, "experiment": EXPERIMENT}
    for name, document in given.items():
        (folder / f"{name}.json").write_text(json.dumps(document))
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "losing_executors.py"), str(folder), kind],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["killed"] >= 1
    assert told["lost"] >= 1


LOSES_EXECUTORS = pytest.mark.skipif(sys.platform != "linux", reason="finds the executors in /proc")


@pytest.mark.validate
@LOSES_EXECUTORS
def test_rollouts_of_killed_executors_are_done_again(tmp_path):
    killed(tmp_path, "rollouts")
    rollout(parse(RolloutConfig, ROLLOUTS, "test"), tmp_path / "here")
    assert contents(tmp_path / "spread") == contents(tmp_path / "here")


# Whatever is spread goes through one engine: rollouts show it in `make test`.
@LOSES_EXECUTORS
@pytest.mark.validate
def test_the_evaluation_of_killed_executors_is_done_again(tmp_path):
    killed(tmp_path, "evaluation")
    card = evaluate(parse(BenchmarkConfig, BENCHMARK, "test"))
    assert (tmp_path / "scorecard.json").read_text() == card.to_json()


@LOSES_EXECUTORS
@pytest.mark.validate
def test_the_training_of_killed_executors_is_done_again(tmp_path):
    pytest.importorskip("sb3_contrib")
    from agents.training import train

    killed(tmp_path, "training")
    train(parse(ExperimentConfig, EXPERIMENT, "test"), tmp_path / "trained-here")
    assert contents(tmp_path / "trained") == contents(tmp_path / "trained-here")


@LOSES_EXECUTORS
@pytest.mark.validate
def test_the_tuning_of_killed_executors_is_done_again(tmp_path):
    pytest.importorskip("optuna")
    from tests import losing_executors

    killed(tmp_path, "tuning")
    best = losing_executors.tuned(parse(BenchmarkConfig, BENCHMARK, "test"), tmp_path, HERE)
    assert (tmp_path / "best.json").read_text() == losing_executors.as_json(best)
