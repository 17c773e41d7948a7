"""A job with prices in euros: every command says so, and none compares them with dollars."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from dsp_gym.cli import app
from tests.bad_input import BENCHMARK, JOB

EUROS = f"{JOB}prices: {{currency: EUR, core_hour: 0.5, gib_hour: 0}}\n"
SHADOW = """\
job: job.yaml
policies: [{name: ds2, policy: ds2-local}, incumbent]
interval_s: 30
window: {window_s: 30, stabilization_s: 20}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(EUROS)
    (tmp_path / "bench.yaml").write_text(BENCHMARK)
    (tmp_path / "shadow.yaml").write_text(SHADOW)
    return tmp_path


def run(*line: str) -> Result:
    return CliRunner().invoke(app, list(line))


def done(*line: str) -> str:
    result = run(*line)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_simulation_and_a_benchmark_say_the_currency_of_their_costs(here):
    assert "cost, requested, EUR" in done("simulate", "job.yaml", "--duration", "5m")
    found = json.loads(done("simulate", "job.yaml", "--duration", "5m", "--json"))
    # Two cores of the map and one of the sink for five minutes; sources are left out.
    assert found["currency"] == "EUR"
    assert found["summary"]["cost"] == pytest.approx(3 * 0.5 * 5 / 60)
    assert "cost, EUR" in done("evaluate", "bench.yaml", "--track", "none", "--out", "out")
    assert json.loads((here / "out/results.json").read_text())["currency"] == "EUR"
    assert "EUR per run" in (here / "out/report.html").read_text()


def test_a_plan_says_what_it_costs_an_hour_and_a_month():
    line = ("plan", "job.yaml", "--rate", "1000", "--load", "none")
    found = json.loads(done(*line, "--json"))
    assert (found["currency"], found["cost_per_hour"]) == ("EUR", 1.0)  # a task of either vertex
    assert found["cost_per_month"] == 730.0
    assert "1 EUR per hour or 730 EUR per month" in done(*line)


def test_a_shadow_and_its_backtest_are_in_euros_and_refuse_a_job_in_dollars(here):
    line = ("shadow", "shadow.yaml", "constant", "--steps", "40")
    said = done(*line, "--journal", "journal")
    assert "1.5 EUR/h" in said
    assert "EUR a month" in done("backtest", "journal", "--out", "report")
    (page,) = (here / "report").glob("job-*.html")
    assert "Amounts in EUR per month" in page.read_text()
    assert json.loads(done("backtest", "journal", "--json"))["currency"] == "EUR"
    (here / "job.yaml").write_text(JOB)
    wrong = run("backtest", "journal")
    assert wrong.exit_code == 2
    assert "the journal's costs are in EUR, the prices of job 'tiny' in USD" in wrong.output


def test_jobs_of_two_currencies_are_compared_at_prices_of_the_benchmark_alone(here):
    bench = yaml.safe_load(BENCHMARK) | {"jobs": ["job.yaml", "nexmark-q1"]}
    (here / "bench.yaml").write_text(yaml.safe_dump(bench))
    wrong = run("evaluate", "bench.yaml", "--track", "none", "--out", "out")
    assert wrong.exit_code == 2
    assert "those of job 'tiny' in EUR, those of job 'nexmark-q1' in USD" in wrong.output
    assert not (here / "out").exists()
    (here / "bench.yaml").write_text(yaml.safe_dump(bench | {"prices": {"currency": "CHF"}}))
    assert "cost, CHF" in done("evaluate", "bench.yaml", "--track", "none", "--out", "out")
