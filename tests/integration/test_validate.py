"""`dsp-gym validate` on a real Flink: two policies, a tiny load, every record processed once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from dsp_gym.cli import app
from tests.real_flink import REAL_FLINK, WORDS, short_lived_jvms, write_job

pytestmark = REAL_FLINK

SECONDS = 15
SMALL = {
    "slots": 10, "managed_mib": 128, "task_heap_mib": 256, "network_mib": 64, "rest_port": 0,
    "prometheus_port": 0, "scrape_interval_s": 1,
}  # fmt: skip


@pytest.fixture
def file(tmp_path) -> Path:
    document = {
        "jobs": [{"job": str(write_job(tmp_path))}],
        # 150 sentences/s, which half a task carries; after five seconds 450, two tasks.
        "loads": [{"name": "step", "load": {"form": "step", "steps": [[0, 0.5], [60, 1.5]]}}],
        "policies": [
            {"policy": "ds2", "params": {"warm_up_s": 0, "source_rate": "observed"}, "rule": True},
            {"policy": "static"},
        ],
        "repetitions": 1,
        "simulations": 2,
        "seconds": SECONDS,
        "cluster": SMALL,
    }
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.mark.validate
def test_policies_run_once_on_a_real_flink_and_are_compared_with_the_simulation(file, tmp_path):
    line = ["validate", str(file), "--runs", str(tmp_path / "runs"), "--json"]
    with short_lived_jvms():
        done = CliRunner().invoke(app, line, catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["runs"] == {"done": 2, "planned": 2}
    assert figures["failed"] == {}
    assert figures["records_conserved"] == [2, 2]
    ds2, static = figures["cases"][0]["policies"]
    for policy in (ds2, static):
        assert policy["real"]["cost"][0] > 0
        assert len(policy["simulated"]["cost"]) == 2
    # It keeps to the job file: one task of each vertex, where the start has room for the load.
    assert static["real"]["rescales"] == static["simulated"]["rescales"][:1] == [1]
    kept = json.loads((tmp_path / "runs" / "words" / "step" / "static-1.json").read_text())
    assert kept["due"] == 150 * 5 + 450 * (SECONDS - 5)
    assert kept["received"] == kept["expected"] == WORDS * kept["emitted"]
    # What is kept is not done again, and needs no Flink.
    again = CliRunner().invoke(app, line, catch_exceptions=False)
    assert json.loads(again.stdout) == figures
