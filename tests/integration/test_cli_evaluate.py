from __future__ import annotations

import csv
import json
import re
import sys

import pytest
from typer.testing import CliRunner

from dsp_gym.cli import app
from dsp_gym.config import load, names
from dsp_gym.control.loop import ControlLoop
from dsp_gym.evaluation.scorecard import EPISODE_METRICS, Scorecard

BENCHMARK = """
description: Two policies, two loads
policies:
  - {policy: static, params: {parallelism: {session: 6}}}
  - ds2
jobs: [nexmark-q11]
loads:
  test:
    loads: [constant, flash-crowd]
    seeds: {from: 900, to: 910}
seeds: 2
episode_s: 900
bootstrap: 200
"""


@pytest.fixture
def benchmark(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # results and records are written to the current folder
    file = tmp_path / "small.yaml"
    file.write_text(BENCHMARK)
    return file


def evaluate(*arguments: str):
    return CliRunner().invoke(app, ["evaluate", "--track", "none", *map(str, arguments)])


def scorecard(*arguments: str) -> Scorecard:
    result = evaluate(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return Scorecard.from_json(result.stdout)


def test_every_policy_meets_every_load_and_seed(benchmark):
    cells = scorecard(benchmark).cells
    runs = {
        policy: [(cell.job, cell.load, cell.seed) for cell in cells if cell.policy == policy]
        for policy in ("static", "ds2")
    }
    assert runs["static"] == runs["ds2"]
    assert [(load, seed) for _, load, seed in runs["ds2"]] == [
        ("constant", 900),
        ("constant", 901),
        ("flash-crowd", 900),
        ("flash-crowd", 901),
    ]


def test_the_same_config_gives_the_same_bytes(benchmark, tmp_path):
    for out in ("one", "two"):
        assert evaluate(benchmark, "--out", tmp_path / out).exit_code == 0
    one, two = (tmp_path / out for out in ("one", "two"))
    for file in ("results.json", "cells.csv", "report.html"):
        assert (one / file).read_bytes() == (two / file).read_bytes()


def test_a_run_does_not_depend_on_what_runs_beside_it(benchmark):
    together = scorecard(benchmark).cells
    benchmark.write_text(BENCHMARK.replace("[constant, flash-crowd]", "[flash-crowd]"))
    alone = scorecard(benchmark).cells
    assert alone == tuple(cell for cell in together if cell.load == "flash-crowd")


def test_a_scorecard_can_be_run_again_exactly(benchmark, tmp_path):
    evaluate(benchmark, "--out", tmp_path / "first")
    first = (tmp_path / "first" / "results.json").read_text()
    assert scorecard(tmp_path / "first" / "results.json").to_json() == first


def test_a_fixed_configuration_costs_what_it_costs(benchmark):
    (cell, *_) = [c for c in scorecard(benchmark).cells if c.policy == "static"]
    # 6 tasks and a sink of one, at the prices of the job file; the start adds its first minute.
    memory_gib = (134 + 39 + 158) / 1024
    hour = 7 * (0.04048 + memory_gib * 0.004445)
    assert cell.metrics["cost"] == pytest.approx(hour * 900 / 3600, rel=0.05)
    assert cell.metrics["rescales"] <= 1
    assert set(cell.metrics) == set(EPISODE_METRICS)


def test_results_are_printed_and_written(benchmark, tmp_path):
    result = evaluate(benchmark)
    assert result.exit_code == 0
    out = tmp_path / "runs" / "evaluations" / "small"
    assert re.search(
        r"^policy +cost, USD +vs ds2 +late +latency p95 +rescales *$", result.stdout, re.M
    )
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "results.json" in result.stdout
    lines = list(csv.DictReader((out / "cells.csv").read_text().splitlines()))
    # Two policies, the best plan and the bound on two loads with two seeds.
    assert len(lines) == 4 * 4
    assert json.loads((out / "results.json").read_text())["config"]["episode_s"] == 900


def test_a_policy_can_be_added_and_seeds_reduced(benchmark):
    card = scorecard(benchmark, "--policies", "all,hpa-cpu,ds2", "--seeds", "1")
    assert card.policies == ("static", "ds2", "hpa-cpu", "clairvoyant", "bound")
    assert {cell.seed for cell in card.cells} == {900}


def test_some_policies_are_chosen_by_label_beside_the_reference_and_those_added(benchmark):
    benchmark.write_text(BENCHMARK.replace("  - ds2\n", "  - ds2\n  - hpa-cpu\n  - dhalion\n"))
    for wanted in ("static,hpa-cpu,justin-paper", "justin-paper, hpa-cpu,static"):
        card = scorecard(benchmark, "--policies", wanted, "--seeds", "1")
        named = ("static", "ds2", "hpa-cpu", "justin-paper", "clairvoyant", "bound")
        assert card.policies == named
    refused = evaluate(benchmark, "--policies", "static,dhalio")
    assert refused.exit_code == 2
    assert "Did you mean 'dhalion'?" in " ".join(refused.output.split())


def test_guardrails_hold_in_evaluation_and_are_counted(benchmark, tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text("guardrails: [{kind: step_limit, up_factor: 1, tasks: 1}]")
    held = f"  - {{policy: ds2, name: held, guardrails: {rules}}}\n"
    text = BENCHMARK.replace("  - ds2\n", f"  - ds2\n{held}").replace("jobs:", "start: job\njobs:")
    benchmark.write_text(text)
    card = scorecard(benchmark)
    assert card.row("ds2", "nexmark-q11").metrics["interventions"].high == 0
    cells = [cell for cell in card.cells if cell.policy == "held"]
    assert len(cells) == 4  # two loads with two seeds
    for cell in cells:
        assert set(cell.trips) == {"step_limit"}
        assert cell.metrics["interventions"] == cell.trips["step_limit"]  # the only guardrail
    assert max(cell.trips["step_limit"] for cell in cells) >= 1


def test_the_report_needs_no_matplotlib(benchmark, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = evaluate(benchmark)
    assert result.exit_code == 0
    assert "report.html" in result.stdout


@pytest.mark.parametrize("name", names("benchmarks"))
def test_shipped_benchmarks_can_be_read(name):
    assert load("benchmarks", name)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("- ds2", "- ds2\n  - ds3", "there is no policy 'ds3'. Did you mean 'ds2'?"),
        ("- ds2", "- hpa-cpu", "the reference 'ds2' is none of the policies"),
        ("- ds2", "- ds2\n  - ds2", "two policies are named 'ds2'"),
        (
            "jobs: [nexmark-q11]",
            "jobs: [nexmark-q11, nexmark-q11]",
            "the job 'nexmark-q11' is listed twice",
        ),
        ("seeds: 2", "seeds: 11", "the test split has 10 seeds"),
        ("episode_s: 900", "episode_s: 930", "no multiple of interval_s 60"),
        ("  test:", "  train:", "there is no test split"),
        ("bootstrap: 200", "bootstraps: 200", "Did you mean 'bootstrap'?"),
    ],
)
def test_bad_input_is_one_message_and_nothing_is_written(old, new, message, benchmark, tmp_path):
    benchmark.write_text(BENCHMARK.replace(old, new))
    result = evaluate(benchmark)
    assert result.exit_code == 2
    assert message in result.stderr
    assert list(tmp_path.iterdir()) == [benchmark]


def test_a_name_that_is_nothing_gets_a_suggestion():
    result = evaluate("quik")
    assert result.exit_code == 2
    assert "there is no benchmark or experiment 'quik'. Did you mean 'quick'?" in result.stderr


def test_an_experiment_without_a_trained_policy_says_how_to_get_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.yaml").write_text(
        "name: x\njobs: [nexmark-q11]\n"
        "loads:\n  train: {loads: [diurnal], seeds: {from: 0, to: 9}}\n"
        "  test: {loads: [diurnal], seeds: {from: 10, to: 30}}\n"
    )
    result = evaluate("x.yaml")
    assert result.exit_code == 2
    assert "Run dsp-gym train first" in result.stderr


@pytest.mark.slow
def test_a_recorded_run_is_run_again_with_the_same_numbers(benchmark, tmp_path):
    pytest.importorskip("mlflow", reason="recording needs the extra 'registry'")
    store = f"sqlite:///{tmp_path / 'record.db'}"
    first = CliRunner().invoke(app, ["evaluate", str(benchmark), "--track", store])
    assert first.exit_code == 0, first.output
    run_id = re.search(r"MLflow  run (\w+)", first.stdout)[1]
    again = scorecard(f"run:{run_id}", "--track", store)
    written = tmp_path / "runs" / "evaluations" / "small" / "results.json"
    assert again.to_json() == written.read_text()


def test_a_record_that_is_not_there_is_named(benchmark, tmp_path):
    pytest.importorskip("mlflow", reason="recording needs the extra 'registry'")
    result = evaluate("run:nothing", "--track", f"sqlite:///{tmp_path / 'no.db'}")
    assert result.exit_code == 2
    assert "there is no such store" in result.stderr


def test_an_interrupted_evaluation_leaves_whole_results_to_continue_with_and_nothing_else(
    benchmark, tmp_path, monkeypatch
):
    step, taken = ControlLoop.step, []

    def interrupted(loop):
        taken.append(loop)
        if len(taken) == 20:  # in the middle of the second policy
            raise KeyboardInterrupt
        return step(loop)

    with monkeypatch.context() as patch:
        patch.setattr(ControlLoop, "step", interrupted)
        result = evaluate(benchmark)
    assert result.exit_code == 130
    left = [file for file in tmp_path.rglob("*") if file.is_file() and file != benchmark]
    assert [file.parent.name for file in left] == ["unfinished"]
    assert json.loads(left[0].read_text())["schema"] == "dsp-gym/policy-result/1"
    assert evaluate(benchmark, "--resume").exit_code == 0
    assert not left[0].parent.exists()


def test_what_could_be_won_stands_in_every_scorecard(benchmark):
    card = scorecard(benchmark)
    assert card.policies == ("static", "ds2", "clairvoyant", "bound")
    rows = {policy: card.row(policy, "nexmark-q11") for policy in card.policies}
    assert rows["bound"].saving.share == 1.0
    assert rows["clairvoyant"].metrics["cost"].value > rows["bound"].metrics["cost"].value
    for cell in card.cells:
        assert 0 < cell.bound <= cell.peak
        if cell.metrics["slo_s"] == 0:
            assert cell.metrics["cost"] >= cell.bound
    assert evaluate(benchmark).exit_code == 0
    page = benchmark.parent / "runs/evaluations/small/report.md"
    assert "share of the possible saving" in page.read_text()


def test_what_could_be_won_can_be_left_out(benchmark):
    benchmark.write_text(BENCHMARK + "clairvoyant: false\n")
    card = scorecard(benchmark)
    assert card.policies == ("static", "ds2")
    assert all(row.saving is None for row in card.rows)
    assert all(cell.bound is None for cell in card.cells)


def test_no_policy_can_be_called_what_the_bound_is_called(benchmark):
    benchmark.write_text(
        BENCHMARK.replace("  - ds2\n", "  - ds2\n  - {policy: ds2, name: bound}\n")
    )
    result = evaluate(benchmark)
    assert result.exit_code == 2
    assert "the name of the lower bound" in result.stderr


FREE = """
job: free
source: {rate_per_s: 1000}
prices: {core_hour: 0, gib_hour: 0}
memory: {base_mib: 120, levels: 3}
vertices:
  - {name: in, kind: source, cpu_us_per_record: 1}
  - {name: out, kind: sink, cpu_us_per_record: 100, inputs: [{from: in, ship: REBALANCE}]}
"""
FREE_EXPERIMENT = """
name: free
jobs: [free.yaml]
loads:
  train: {loads: [diurnal-bursts], seeds: {from: 0, to: 9}}
  validation: {loads: [diurnal-bursts], seeds: {from: 10, to: 19}}
  test: {loads: [diurnal-bursts], seeds: {from: 20, to: 29}}
agent: {kind: planning, draws: 1}
"""


@pytest.mark.parametrize("command", ["evaluate", "train"])
def test_a_job_without_prices_is_refused_in_a_sentence(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "free.yaml").write_text(FREE)
    (tmp_path / "experiment.yaml").write_text(FREE_EXPERIMENT)
    given = ["--policies", "static"] if command == "evaluate" else []
    result = CliRunner().invoke(app, [command, "experiment.yaml", *given, "--track", "none"])
    assert result.exit_code == 2
    said = " ".join(result.stderr.split())
    assert "'prices'" in said
    assert "job 'free' costs nothing" in said
    assert "Give the job file the price of a core" in said
