from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from dsp_gym.backends.flink.local.processes import wait_until
from dsp_gym.cli import app
from dsp_gym.config.files import find, load_model, read_yaml
from dsp_gym.policies.config import PolicyConfig

pytest.importorskip("optuna")

BENCHMARK = """
policies: [ds2]
jobs: [nexmark-q11]
train_jobs: [nexmark-q3]
loads:
  train: {loads: [diurnal-bursts], seeds: {from: 0, to: 10}}
  test: {loads: [diurnal-bursts], seeds: {from: 100, to: 110}}
episode_s: 3600
bootstrap: 200
"""


@pytest.fixture
def benchmark(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # results and records are written to the current folder
    file = tmp_path / "small.yaml"
    file.write_text(BENCHMARK)
    return file


def command(*arguments: object):
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_a_policy_is_tuned_and_evaluated_beside_its_default(benchmark):
    result = command(
        "tune", "ds2", benchmark, "--trials", 6, "--seeds", 1, "--track", "none", "--json"
    )
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["trials"] == 6
    config = load_model(PolicyConfig, "policies", found["file"])
    assert config.params == found["params"]
    assert config.provenance["tuned_on"] == "small"
    assert config.provenance["jobs"] == ["nexmark-q3"]
    assert [point["late"] for point in found["points"]] == [config.provenance["max_slo_share"]]
    both = f"all,{found['file']}"
    result = command("evaluate", benchmark, "--policies", both, "--seeds", 1, "--json")
    assert result.exit_code == 0, result.output
    rows = [row for row in json.loads(result.stdout)["rows"] if row["policy"].startswith("ds2")]
    assert [row["policy"] for row in rows] == ["ds2", "ds2-tuned"]


FRONTIER = """
policies: [{policy: ds2, rule: true, knob: target_utilization, values: [0.5, 0.8]}]
jobs:
  seen: {named: [nexmark-q3]}
  unseen: {named: [nexmark-q11]}
loads:
  tuning_seeds: {from: 0, to: 2}
  seen: {loads: [diurnal-bursts], seeds: {from: 10, to: 12}}
  unseen: {loads: [markov], seeds: {from: 20, to: 22}}
episode_s: 1800
"""


def test_a_frontiers_rules_are_tuned_on_its_seen_jobs_and_loads_with_other_seeds(benchmark):
    from dsp_gym.evaluation.frontier.board import frontier_fingerprint
    from dsp_gym.evaluation.frontier.config import FrontierConfig

    benchmark.write_text(FRONTIER)
    result = command("tune", "ds2", benchmark, "--trials", 2, "--track", "none")
    assert result.exit_code == 0, result.output
    assert f"evaluate {benchmark} --policies all," in result.stdout
    folder = benchmark.parent / "runs/tuned/small"
    file = folder / "ds2-tuned.yaml"
    for name, late in (("ds2-tuned-1pct", 0.01), ("ds2-tuned", 0.02), ("ds2-tuned-3pct", 0.03)):
        point = load_model(PolicyConfig, "policies", str(folder / f"{name}.yaml"))
        assert point.provenance["max_slo_share"] == late
    assert len(json.loads((folder / "ds2-course.json").read_text())["trials"]) == 2
    assert (folder / "ds2-course.svg").is_file()
    found = load_model(PolicyConfig, "policies", str(file)).provenance
    assert (found["jobs"], found["loads"]) == (["nexmark-q3"], ["diurnal-bursts"])
    assert (found["seeds_per_load"], found["max_slo_share"]) == (2, 0.02)
    frontier = load_model(FrontierConfig, "frontiers", str(benchmark))
    assert found["fingerprint"] == frontier_fingerprint(frontier)


def test_it_is_recorded(benchmark, tmp_path):
    pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    result = command("tune", "hpa-cpu", benchmark, "--trials", 2, "--seeds", 1, "--track", uri)
    assert result.exit_code == 0, result.output
    from mlflow.tracking import MlflowClient

    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("tuning")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["goal"] == "cost"
    assert len(client.get_metric_history(run.info.run_id, "cost")) == 3  # the default and two
    kept = {file.path for file in client.list_artifacts(run.info.run_id)}
    assert kept == {"hpa-cpu-tuned.yaml", "hpa-cpu-course.json", "hpa-cpu-course.svg"}


@pytest.mark.slow
@pytest.mark.validate
def test_ctrl_c_keeps_what_was_found_and_resume_goes_on(benchmark, tmp_path):
    main = [sys.executable, "-c", "from dsp_gym.cli import main; main()"]
    run = [*main, "tune", "ds2", str(benchmark), "--track", "none"]
    started = subprocess.Popen(
        [*run, "--trials", "100000", "--seeds", "1"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    file = tmp_path / "runs/tuned/small/ds2-tuned.yaml"
    assert wait_until(file.is_file, 300, 0.1)
    time.sleep(1.0)
    started.send_signal(signal.SIGINT)
    _, told = started.communicate(timeout=180)
    assert started.returncode == 130, told
    assert "--resume" in told
    before = load_model(PolicyConfig, "policies", file).provenance["trials"]
    done = subprocess.run(
        [*run, "--trials", str(before + 2), "--seeds", "1", "--resume"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert load_model(PolicyConfig, "policies", file).provenance["trials"] == before + 2


@pytest.mark.validate
def test_an_agent_is_tuned_on_its_experiment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    document = read_yaml(find("experiments", "q11-quickstart"))
    document["agent"]["total_steps"] = 8192
    Path("short.yaml").write_text(yaml.safe_dump(document))
    result = command("tune", "agent", "short.yaml", "--trials", 1, "--track", "none", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert "return" in found["found"]
    checked = command("config", "check", found["file"], "--kind", "experiments")
    assert checked.exit_code == 0, checked.output
    assert not (tmp_path / "runs/tuned/short/training").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ds3", "core-v1"), "there is no policy 'ds3'"),
        (("ds2", "core-v11"), "Did you mean 'core-v1'"),
        (("static", "core-v1"), "no search space is known for 'static'"),
        (("agent", "core-v1"), "an agent is tuned on an experiment"),
        (("ds2", "quick"), "no loads to tune on"),
        (("ds2", "core-v1", "--resume"), "no study to resume"),
    ],
)
def test_what_cannot_be_tuned_is_refused(tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    result = command("tune", *arguments, "--track", "none")
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
    assert not (tmp_path / "runs").exists()
