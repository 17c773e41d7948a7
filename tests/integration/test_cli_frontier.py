from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dsp_gym.cli import app

BENCHMARK = """
policies: [ds2, ds2-justin]
jobs: [nexmark-q11]
loads:
  test: {loads: [diurnal-bursts], seeds: {from: 100, to: 110}}
episode_s: 1800
bootstrap: 100
"""


@pytest.mark.slow
def test_ten_lines_and_an_entry_point_take_part(tmp_path):
    """As the guide says: its function, its entry point, found by the installed command line."""
    guide = (Path(__file__).parents[2] / "docs/guides/add-a-policy.md").read_text("utf-8")
    section = guide.split("## Ten lines are enough")[1].split("\n## ")[0]
    code, entry = (
        re.search(f"```{kind}\n(.*?)```", section, re.S)[1] for kind in ("python", "toml")
    )
    package, info = tmp_path / "my_package", tmp_path / "my_policies-1.0.dist-info"
    package.mkdir()
    info.mkdir()
    (package / "__init__.py").write_text("")
    (package / "half_busy.py").write_text(code)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-policies\nVersion: 1.0\n")
    named = entry.replace('[project.entry-points."dsp_gym.policies"]', "[dsp_gym.policies]")
    (info / "entry_points.txt").write_text(named.replace('"', ""))
    (tmp_path / "small.yaml").write_text(BENCHMARK)
    run = subprocess.run(
        [sys.executable, "-c", "from dsp_gym.cli import main; main()",
         "evaluate", "small.yaml", "--policies", "all,half-busy", "--seeds", "1", "--json"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    rows = json.loads(run.stdout)["rows"]
    (mine,) = [one for one in rows if one["policy"] == "half-busy"]
    assert mine["metrics"]["rescales"]["value"] >= 1


FRONTIER = """
policies:
  - {policy: ds2, rule: true, knob: target_utilization, values: [0.5, 0.8]}
  - {policy: clairvoyant, knob: slo_weight, values: [1, 8]}
  - hpa-cpu
jobs:
  seen: {named: [nexmark-q1]}
  unseen: {named: [nexmark-q2], random_dags: {from: 100, to: 101}}
loads:
  seen: {loads: [diurnal], seeds: {from: 0, to: 1}}
  unseen: {loads: [markov], seeds: {from: 10, to: 12}}
  recorded: {loads: [{name: nobody, load: {form: trace, path: nobody-has-this.csv}}]}
shifts:
  policies: {ds2: 0.5, hpa-cpu: null}
  shifts: [{name: slow rescales, outage: 10}]
lateness: [0.2, 0.5]
episode_s: 1800
bootstrap: 100
"""


@pytest.mark.slow
def test_a_frontier_is_the_same_after_an_interruption(tmp_path, monkeypatch):
    from dsp_gym.evaluation.frontier import play

    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(FRONTIER)
    whole = CliRunner().invoke(
        app,
        ["evaluate", "small.yaml", "--json", "--out", "runs/frontiers/small", "--track", "none"],
    )
    assert whole.exit_code == 0, whole.output
    found = json.loads(whole.stdout)
    assert [cell["cell"] for cell in found["cells"]] == [
        "unseen-jobs-unseen-loads",
        "unseen-jobs-seen-loads",
        "seen-jobs-unseen-loads",
        "seen-jobs-seen-loads",
    ]
    assert "nobody-has-this" in found["left_out"]["unseen-jobs-recorded-loads"]
    first = found["cells"][0]
    assert first["jobs"] == ["nexmark-q2", "random-dag-100"]
    assert [one["policy"] for one in first["policies"]] == ["ds2", "clairvoyant", "hpa-cpu"]
    assert [len(one["points"]) for one in first["policies"]] == [2, 2, 1]
    assert [(one["shift"], one["policy"]) for one in found["shifts"]] == [
        ("as they are", "ds2"),
        ("as they are", "hpa-cpu"),
        ("slow rescales", "ds2"),
        ("slow rescales", "hpa-cpu"),
    ]
    assert found["shifts"][2]["late"] > found["shifts"][0]["late"]
    folder = tmp_path / "runs/frontiers/small"
    before = (folder / "results.json").read_bytes()
    assert 'class="chart"' in (folder / "report.html").read_text()

    played = play.cells_of

    def interrupted(benchmark, *arguments, kept, **others):
        if kept.folder.name == "unseen-jobs-seen-loads":  # the second cell
            raise KeyboardInterrupt
        return played(benchmark, *arguments, kept=kept, **others)

    monkeypatch.setattr(play, "cells_of", interrupted)
    stopped = CliRunner().invoke(app, ["evaluate", "small.yaml"])
    assert stopped.exit_code != 0
    assert "the results of 20 runs are kept" in " ".join(stopped.stderr.split())
    refused = CliRunner().invoke(app, ["evaluate", "small.yaml"])
    assert refused.exit_code == 2
    assert "an interrupted run kept 20 results" in refused.stderr
    found_there = []

    def counted(benchmark, *arguments, kept, **others):
        found_there.append(len(kept))
        return played(benchmark, *arguments, kept=kept, **others)

    monkeypatch.setattr(play, "cells_of", counted)
    resumed = CliRunner().invoke(app, ["evaluate", "small.yaml", "--resume"])
    assert resumed.exit_code == 0, resumed.output
    # Cells of recorded loads are tried, too; the last two are the jobs without and with a shift.
    assert found_there == [20, 0, 0, 0, 0, 0, 0, 0]
    assert (folder / "results.json").read_bytes() == before
    assert not (folder / "unfinished").exists()
    if find_spec("mlflow") is not None:
        _assert_recorded(re.search(r"MLflow  run (\w+)", resumed.stdout)[1], found, tmp_path)


def _assert_recorded(run_id: str, found: dict, tmp_path: Path) -> None:
    """MLflow holds the frontier: figures, pages, and what it depends on."""
    from dsp_gym.trackers.mlflow import fetch_run

    record = fetch_run(run_id, tmp_path / "record")
    assert record.name == "small"
    assert (record.tags["kind"], record.tags["fingerprint"]) == ("frontier", found["fingerprint"])
    assert "nobody-has-this" in record.tags["left_out.unseen-jobs-recorded-loads"]
    shift = found["shifts"][2]
    assert record.metrics["shifts/slow rescales/ds2/late"] == pytest.approx(shift["late"])
    assert any(name.startswith("seen-jobs-seen-loads/ds2/cost_at_") for name in record.metrics)
    assert {"results.json", "report.md", "report.html"} <= {
        file.name for file in record.folder.iterdir()
    }


def test_options_of_a_frontier_are_refused_elsewhere_and_wrong_ones_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(FRONTIER)
    for arguments, said in (
        (["core-v1", "--cell", "seen-jobs-seen-loads"], "needs a frontier"),
        (["small.yaml", "--cell", "unseen"], "there is no cell 'unseen'"),
        (["small.yaml", "--policies", "ds2,ds3"], "there is no policy 'ds3'"),
        (["core-v1", "--trainings", "ds2=."], "needs a frontier"),
        (["small.yaml", "--trainings", "dz2=."], "there is no policy 'dz2'"),
        (["small.yaml", "--trainings", "ds2=."], "the folder '.' holds no training"),
    ):
        run = CliRunner().invoke(app, ["evaluate", *arguments])
        assert run.exit_code == 2, run.output
        assert said in " ".join(run.stderr.split())
