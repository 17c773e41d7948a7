"""`dsp-gym bench backtest`: the measured fleet is replayed completely."""

from __future__ import annotations

import json

import numpy as np
from typer.testing import CliRunner

from dsp_gym.cli import app
from dsp_gym.evaluation.backtest.model import fitted
from dsp_gym.studies.bench.backtest import fleet


def test_jobs_differ_and_are_fitted_to_what_they_show():
    first, second = fleet(2, 0.5, 300)
    assert first.spec.vertices != second.spec.vertices
    assert len(first) == 144
    assert len(first.parts) == 16
    assert np.ptp(first.load_per_s) > 0
    assert fitted(first).spec.job == "job-0"


def test_every_job_is_replayed_with_every_policy():
    words = ["bench", "backtest", "--jobs", "1", "--days", "0.2", "--policies", "ds2,static"]
    done = CliRunner().invoke(app, [*words, "--interval", "300", "--workers", "1", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["decisions"] == 3 * 58
    assert found["seconds"] > 0
