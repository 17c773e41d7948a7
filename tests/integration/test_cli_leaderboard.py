from __future__ import annotations

import json
import os
import re
import subprocess
import sys
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
        ["leaderboard", "small.yaml", "--seeds", "1", "--page", "docs/leaderboard.md", "--json"],
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
        (["core-v2"], "Did you mean 'core-v1'"),
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
         "leaderboard", "small.yaml", "--seeds", "1", "--json"],
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
