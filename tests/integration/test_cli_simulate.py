from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from dsp_gym.cli import app
from dsp_gym.job.catalog import load_job


def run(*arguments: str):
    return CliRunner().invoke(app, ["simulate", *arguments])


def decisions(*arguments: str) -> dict:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_each_decision_is_a_row_and_the_end_is_summed_up():
    found = decisions("nexmark-q11", "--duration", "5m", "--interval", "30s")
    assert [row["t_s"] for row in found["decisions"]] == [30.0 * k for k in range(10)]
    assert found["summary"]["cost"] == pytest.approx(sum(row["cost"] for row in found["decisions"]))
    assert found["summary"]["rescales"] == 0  # static


def test_a_policy_acts_and_says_why():
    found = decisions("nexmark-q11", "--policies", "ds2", "--duration", "10m")
    grown = [row for row in found["decisions"] if row["rescaled"]]
    assert grown
    assert "session" in grown[0]["reason"]
    assert grown[0]["configuration"]["session"]["parallelism"] > 1


def test_the_same_seed_gives_the_same_run_and_another_seed_another():
    line = ("nexmark-q11", "--load", "diurnal-bursts", "--duration", "5m")
    assert decisions(*line, "--seed", "3") == decisions(*line, "--seed", "3")
    assert decisions(*line, "--seed", "3") != decisions(*line, "--seed", "4")


def test_a_rate_is_a_constant_load_in_records_per_second():
    line = ("nexmark-q11", "--policies", "ds2", "--duration", "10m")
    found = decisions(*line, "--rate", "2000")
    assert [row["target_per_s"] for row in found["decisions"]] == pytest.approx([2000.0] * 10)
    reference = load_job("nexmark-q11").source.rate_per_s
    assert decisions(*line, "--rate", str(reference)) == decisions(*line)


def test_a_page_of_a_constant_rate_names_it(tmp_path):
    page = tmp_path / "run.html"
    line = ("nexmark-q11", "--duration", "3m", "--rate", "2000", "--plot", str(page))
    assert run(*line).exit_code == 0
    assert "static on nexmark-q11 under 2,000 records/s" in page.read_text()


def test_the_table_is_readable():
    table = run("nexmark-q11", "--duration", "3m")
    assert table.exit_code == 0
    assert "bids=1@0 session=1@0 sink=1@0" in table.stdout
    assert "vertex=tasks@memory level, no level without managed memory" in table.stdout
    assert "SLO seconds" in table.stdout


def test_the_plot_is_a_page_of_large_curves_over_time(tmp_path):
    page = tmp_path / "run.html"
    result = run("nexmark-q11", "--duration", "3m", "--plot", str(page))
    assert result.exit_code == 0
    text = page.read_text()
    assert text.count('class="chart"') == 1  # one policy has no other to be compared with
    assert text.count('"height":300') == 4  # load, latency, cores, memory
    assert "Cost and lateness" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nexmrk-q5",), "Did you mean 'nexmark-q5'?"),
        (("nexmark-q11", "--policies", "ds3"), "Did you mean 'ds2'?"),
        (("nexmark-q11", "--load", "diurnl"), "Did you mean 'diurnal'?"),
        (
            ("nexmark-q11", "--rate", "2000", "--load", "diurnal"),
            "key '--load': value 'diurnal': does not go with --rate. Leave one of them out.",
        ),
        (("nexmark-q11", "--rate", "0"), "value '0': is no rate. For instance --rate 2000"),
        (("nexmark-q11", "--rate", "nan"), "key '--rate': value 'nan': is no rate."),
        (("nexmark-q11", "--duration", "soon"), "Write a number with s, m, h or d"),
        (
            ("nexmark-q11", "--duration", "90s"),
            "is not a multiple of --interval 60s",
        ),
        (("nexmark-q11", "--start", "big"), "expected 'job' or 'sized'"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_2(arguments, message):
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output
