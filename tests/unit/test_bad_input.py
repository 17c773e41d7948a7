"""Wrong input on the command line: exit code 2, one message with file and key, no traceback."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from dsp_gym.cli import app
from tests import bad_input
from tests.bad_input import JOB

PRETRAINED = Path(__file__).parents[2] / "agents" / "pretrained" / "q11"

BENCHMARK = bad_input.BENCHMARK.replace("job.yaml", "nexmark-q1")
EXPERIMENT = """\
name: tiny
jobs: [nexmark-q1]
loads:
  train: {loads: [diurnal-bursts], seeds: {from: 0, to: 10}}
  validation: {loads: [diurnal-bursts], seeds: {from: 20, to: 30}}
  test: {loads: [diurnal-bursts], seeds: {from: 10, to: 20}}
"""


def run(*line: str) -> Result:
    return CliRunner().invoke(app, list(line))


def assert_refused(result: Result, *expected: str) -> None:
    assert result.exit_code == 2, result.output
    for text in expected:
        assert text in result.output
    assert "Traceback" not in result.output
    assert "bug in dsp-gym" not in result.output


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("rate_per_s: 1000", "rate_pr_s: 1000", ["source.rate_pr_s", "Did you mean 'rate_per_s'"]),
        ("rate_per_s: 1000", "rate_per_s: many", ["source.rate_per_s", "many"]),
        ("rate_per_s: 1000", "rate_per_s: -5", ["source.rate_per_s", "-5"]),
        ("rate_per_s: 1000", "rate_per_s: .nan", ["source.rate_per_s", "nan"]),
        ("rate_per_s: 1000", "rate_per_s: .inf", ["source.rate_per_s", "inf"]),
        ("from: map}", "from: mop}", ["'sink' reads from unknown vertex 'mop'"]),
        ("{from: source}", "{from: map}", ["has a cycle"]),
        ("name: map", "name: sink", ["two vertices are named 'sink'"]),
        ("parallelism: 2", "parallelism: 5", ["'map'", "parallelism 5", "4 key groups"]),
        ("kind: sink", "kind: sinc", ["kind", "'sink'"]),
        ("job: tiny", "job: tiny\njob: twice", ["job"]),
        ("job: tiny\n", "", ["the key 'job' is missing"]),
        ("vertices:", "vertices: [\n", []),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["plan", "simulate"])
def test_a_wrong_job_file_is_refused(command, old, new, expected, tmp_path):
    file = tmp_path / "tiny.yaml"
    assert old in JOB
    file.write_text(JOB.replace(old, new, 1))
    assert_refused(run(command, str(file)), "tiny.yaml", *expected)


def test_a_right_job_file_is_accepted(tmp_path):
    file = tmp_path / "tiny.yaml"
    file.write_text(JOB)
    assert run("plan", str(file)).exit_code == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["is empty"]),
        ("t_seconds,rate\n", ["0 rows"]),
        ("t_seconds,rate\n0,1\n20,1\n10,1\n", ["line 4", "t_seconds"]),
        ("t_seconds,rate\n0,1\n10,nan\n", ["line 3", "rate", "nan"]),
        ("t_seconds,rate\n0,1\n10,-1\n", ["line 3", "negative"]),
        ("t_seconds,rate\n0,1\n10,fast\n", ["line 3", "fast"]),
        ("time,load\n0,1\n", ["no column 't_seconds' and 'rate'"]),
        (None, ["there is no trace", "DSP_GYM_DATA"]),
    ],
)
def test_a_wrong_trace_is_refused(text, expected, tmp_path):
    trace = tmp_path / "bad.csv"
    if text is not None:
        trace.write_text(text)
    file = tmp_path / "bench.yaml"
    load = f"{{form: trace, path: {trace}}}"
    file.write_text(BENCHMARK.replace("[constant]", f"[{{name: bad, load: {load}}}]"))
    assert_refused(run("evaluate", str(file), "--track", "none", "--json"), "bad", *expected)


@pytest.mark.slow  # importing torch takes seconds
@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("from: 10, to: 20", "from: 5, to: 20", ["'train' and 'test' overlap", "seeds 0..10"]),
        ("from: 10, to: 20", "from: 20, to: 10", ["loads.test.seeds", "more than from 20"]),
        ("[nexmark-q1]", "[nexmark-q0]", ["nexmark-q0", "Did you mean"]),
        ("name: tiny", "name: tiny\nagnet: {}", ["agnet", "Did you mean 'agent'"]),
        ("name: tiny", "name: tiny\nenv: {interval_s: 1}", ["env.interval_s"]),
        ("name: tiny", "name: tiny\nenv: {episode_s: 100}", ["episode_s 100", "interval_s 60"]),
        ("name: tiny", "name: tiny\nguardrails: defualt", ["defualt", "default"]),
    ],
)
def test_a_wrong_experiment_is_refused_before_anything_is_trained(
    old, new, expected, tmp_path, monkeypatch
):
    pytest.importorskip("sb3_contrib", reason="training needs the extra 'train'")
    monkeypatch.chdir(tmp_path)  # the record of runs is kept in the current folder
    file = tmp_path / "tiny.yaml"
    assert old in EXPERIMENT
    file.write_text(EXPERIMENT.replace(old, new, 1))
    assert_refused(run("train", str(file), "--track", "none", "--out", "out"), *expected)
    assert not (tmp_path / "out" / "policy").exists()


@pytest.mark.parametrize("command", [("train",), ("evaluate",), ("plan",), ("simulate",)])
def test_a_config_that_is_not_there_is_named(command, tmp_path):
    missing = tmp_path / "nowhere.yaml"
    assert_refused(run(*command, str(missing)), "nowhere.yaml")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (("plan", "nexmark-q11", "--configuration", "session=25"), ["session", "25"]),
        (("plan", "nexmark-q11", "--configuration", "sesion=2"), ["Did you mean 'session'"]),
        (("plan", "nexmark-q11", "--configuration", "session=two"), ["two"]),
        (("plan", "nexmark-q11", "--configuration", "session=1@3"), ["level", "-1 (none) and 2"]),
        (("evaluate", "quik"), ["quik", "Did you mean 'quick'"]),
        (("simulate", "nexmark-q11", "--policies", "runs/none"), ["runs/none"]),
        (("reproduce", "justin"), ["no study 'justin'"]),
    ],
)
def test_wrong_arguments_are_named(line, expected):
    assert_refused(run(*line), *expected)


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("observation", "vertex_features", ["busy", "hunger"]),
        ("observation", "job_features", ["weather"]),
        ("action", "moves", ["hold", "jump"]),
    ],
)
def test_a_policy_folder_of_other_spaces_is_refused(part, key, value, tmp_path):
    folder = tmp_path / "policy"
    shutil.copytree(PRETRAINED, folder)
    document = json.loads((folder / "policy.json").read_text())
    document[part][key] = value
    (folder / "policy.json").write_text(json.dumps(document))
    assert_refused(run("simulate", "nexmark-q11", "--policies", str(folder)), "policy", key)


def test_a_folder_that_is_no_policy_is_refused(tmp_path):
    assert_refused(run("simulate", "nexmark-q11", "--policies", str(tmp_path)), str(tmp_path))
