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
from dsp_gym.policies.registry import installed

BENCHMARK = """
policies: [ds2, ds2-justin]
jobs: [nexmark-q11]
loads:
  test: {loads: [diurnal-bursts], seeds: {from: 100, to: 110}}
episode_s: 1800
bootstrap: 100
"""


@pytest.mark.slow
def test_all_policies_are_ranked_and_the_pages_can_be_made_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(BENCHMARK)
    run = CliRunner().invoke(
        app,
        [
            "leaderboard",
            "small.yaml",
            "--seeds",
            "1",
            "--page",
            "docs/leaderboard.md",
            "--json",
            "--no-track",
        ],
    )
    assert run.exit_code == 0, run.output
    found = json.loads(run.stdout)
    names = [one["policy"] for one in found["standings"]]
    assert set(names) == {*installed(), "ds2-justin", "bound"}
    assert [one["rank"] for one in found["standings"] if one["rank"]] == list(
        range(1, len(names) - 1)
    )
    page = (tmp_path / "docs/leaderboard.md").read_text()
    assert all(f" {name} |" in page for name in names)
    folder = tmp_path / "runs/leaderboards/small"
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert {"scorecard.json", "cells.csv", "leaderboard.md", "leaderboard.html"} <= before.keys()
    again = CliRunner().invoke(app, ["leaderboard", str(folder / "scorecard.json")])
    assert again.exit_code == 0, again.output
    for name in ("scorecard.json", "leaderboard.md", "leaderboard.html"):
        assert (folder / name).read_bytes() == before[name]


def test_what_cannot_be_ranked_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments, said in (
        (["core-v3"], "Did you mean 'core-v1'"),
        (["core-v1", "--tuned", "nowhere"], "is no folder"),
        (["core-v1", "--policy", "ds3"], "there is no policy 'ds3'"),
    ):
        run = CliRunner().invoke(app, ["leaderboard", *arguments])
        assert run.exit_code == 2
        assert said in " ".join(run.output.split())


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
         "leaderboard", "small.yaml", "--seeds", "1", "--json", "--no-track"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    standings = json.loads(run.stdout)["standings"]
    (mine,) = [one for one in standings if one["policy"] == "half-busy"]
    assert mine["rank"] in range(1, 1 + sum(one["rank"] is not None for one in standings))
    # At least one rescale in the half hour, of which a day has 48.
    assert mine["rescales"]["value"] >= 48
    assert mine["rescales"]["value"] % 48 == 0


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
    whole = CliRunner().invoke(app, ["leaderboard", "small.yaml", "--json", "--no-track"])
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
    before = (folder / "frontier.json").read_bytes()
    assert 'class="chart"' in (folder / "frontier.html").read_text()

    played = play.cells_of

    def interrupted(benchmark, *arguments, kept, **others):
        if kept.folder.name == "unseen-jobs-seen-loads":  # the second cell
            raise KeyboardInterrupt
        return played(benchmark, *arguments, kept=kept, **others)

    monkeypatch.setattr(play, "cells_of", interrupted)
    stopped = CliRunner().invoke(app, ["leaderboard", "small.yaml"])
    assert stopped.exit_code != 0
    assert "1 cells and 0 runs of unseen-jobs-seen-loads are kept" in stopped.stderr
    refused = CliRunner().invoke(app, ["leaderboard", "small.yaml"])
    assert refused.exit_code == 2
    assert "an interrupted run kept 20 results" in refused.stderr
    found_there = []

    def counted(benchmark, *arguments, kept, **others):
        found_there.append(len(kept))
        return played(benchmark, *arguments, kept=kept, **others)

    monkeypatch.setattr(play, "cells_of", counted)
    resumed = CliRunner().invoke(app, ["leaderboard", "small.yaml", "--resume"])
    assert resumed.exit_code == 0, resumed.output
    # Cells of recorded loads are tried, too; the last two are the jobs without and with a shift.
    assert found_there == [20, 0, 0, 0, 0, 0, 0, 0]
    assert (folder / "frontier.json").read_bytes() == before
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
    assert {"frontier.json", "frontier.md", "frontier.html"} <= {
        file.name for file in record.folder.iterdir()
    }


def test_options_of_a_frontier_are_refused_elsewhere_and_wrong_ones_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(FRONTIER)
    for arguments, said in (
        (["core-v1", "--cell", "seen-jobs-seen-loads"], "needs a frontier"),
        (["small.yaml", "--cell", "unseen"], "there is no cell 'unseen'"),
        (["small.yaml", "--only", "ds2,ds3"], "takes no part"),
        (["small.yaml", "--tuned", "."], "a frontier lists its tuned rules"),
        (["core-v1", "--trainings", "ds2=."], "needs a frontier"),
        (["small.yaml", "--trainings", "dz2=."], "there is no policy 'dz2'"),
        (["small.yaml", "--trainings", "ds2=."], "the folder '.' holds no training"),
    ):
        run = CliRunner().invoke(app, ["leaderboard", *arguments])
        assert run.exit_code == 2, run.output
        assert said in " ".join(run.stderr.split())


@pytest.mark.slow
def test_some_policies_can_be_ranked_alone_but_not_out_of_a_scorecard(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(BENCHMARK)
    some = ["leaderboard", "small.yaml", "--only", "ds2-justin,static", "--seeds", "1"]
    run = CliRunner().invoke(app, [*some, "--json", "--no-track"])
    assert run.exit_code == 0, run.output
    ranked = {one["policy"] for one in json.loads(run.stdout)["standings"]}
    assert ranked == {"ds2", "ds2-justin", "static", "clairvoyant", "bound"}
    card = "runs/leaderboards/small/scorecard.json"
    refused = CliRunner().invoke(app, ["leaderboard", card, "--only", "ds2"])
    assert refused.exit_code == 2
    assert "Name the benchmark instead of the scorecard" in " ".join(refused.stderr.split())
