"""`dsp-gym bench backtest`: the measured fleet is replayed completely."""

from __future__ import annotations

import json

import numpy as np
from typer.testing import CliRunner

from dsp_gym.cli import app
from dsp_gym.studies.bench.backtest import fleet
from dsp_gym.whatif.model import fitted


def test_jobs_differ_and_are_fitted_to_what_they_show():
    first, second = fleet(2, 0.5, 300)
    assert first.spec.vertices != second.spec.vertices
    assert len(first) == 144
    assert len(first.parts) == 16
    assert np.ptp(first.load_per_s) > 0
    assert fitted(first).spec.job == "job-0"


def test_every_job_is_replayed_with_every_policy():
    words = ["bench", "backtest", "--quick", "--jobs", "1", "--policies", "ds2,static", "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    figures = {figure["name"]: figure["value"] for figure in json.loads(done.stdout)["figures"]}
    assert figures["decisions"] == 3 * 288
    assert figures["backtest"] > 0
