"""`dsp-gym bench policies`: the timed policies and their inputs."""

from __future__ import annotations

import json

import numpy as np
from typer.testing import CliRunner

from dsp_gym.cli import app
from dsp_gym.studies.bench import environment, machine
from dsp_gym.studies.bench.policies import LARGE, RULES, chain, recorded, rule_policies


def test_every_installed_rule_is_timed_unless_some_are_named():
    assert set(rule_policies()) <= set(RULES)
    assert {"hpa-cpu", "hpa-varga", "keda", "dhalion", "ds2"} <= set(rule_policies())
    assert rule_policies(["dhalion"]) == ["dhalion"]


def test_the_load_it_is_timed_on_brings_backpressure_and_idleness():
    seen = recorded([chain(LARGE)], 4)
    back = np.array([snapshot.backpressured_ms_per_s for snapshot in seen[2:]])
    idle = np.array([snapshot.idle_ms_per_s for snapshot in seen[2:]])
    assert back.shape[-1] == LARGE
    assert np.nanmax(back) > 100
    assert np.nanmax(idle) > 100


def test_it_prints_a_rate_for_the_batch_and_one_for_a_single_job(monkeypatch):
    monkeypatch.setattr(machine, "BENCH_WARM_UP_S", 0.0)
    monkeypatch.setattr(machine, "MINIMUM_S", 0.01)
    result = CliRunner().invoke(
        app,
        ["bench", "policies", "--policies", "static", "--runs", "1", "--jobs", "8", "--json"],
    )
    rates = json.loads(result.stdout)["rates"]
    assert [rate["bar"] for rate in rates] == [20_000.0, 1_000.0]
    assert [(rate["runs"], rate["unit"]) for rate in rates] == 2 * [(1, "decisions/s")]
    assert all(0 < rate["low"] == rate["median"] == rate["high"] for rate in rates)


def test_an_unknown_policy_ends_with_a_suggestion():
    result = CliRunner().invoke(app, ["bench", "policies", "--policies", "dhalio"])
    assert result.exit_code == 2
    assert "Did you mean 'dhalion'" in result.stderr


def test_a_simulated_day_is_timed_in_seconds():
    day = environment.bench_day("nexmark-q11", runs=1)
    assert (day.unit, day.runs, day.bar) == ("s", 1, 0.05)
    assert 0.01 < day.low <= day.median <= day.high
