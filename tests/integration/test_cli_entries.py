"""Entering the leaderboard: from one file, or a trained folder, to a row beside the others."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from dsp_gym.cli import app
from dsp_gym.errors import PolicyError
from dsp_gym.evaluation.frontier import play
from dsp_gym.policies.local_module import offer_local, parse_local_policy
from dsp_gym.policies.registry import is_installed, make
from tests.frontiers import FRONTIER

ROOT = Path(__file__).parents[2]
PRETRAINED = ROOT / "agents/pretrained/q11"

GUIDE = (ROOT / "docs/guides/enter-the-leaderboard.md").read_text("utf-8")
RULE = re.search(r"```python\n(.*?)```", GUIDE, re.DOTALL)[1]
CHANCE = """
import itertools

from dsp_gym.loop.per_job import per_job

calls = itertools.count()


@per_job
def moody(job):
    return dict.fromkeys(job.vertices, 1 + next(calls) % 7)
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(FRONTIER)
    (tmp_path / "my_rule.py").write_text(RULE)
    (tmp_path / "submitted_chance.py").write_text(CHANCE)
    yield tmp_path
    for name in ("my_rule", "submitted_chance"):
        sys.modules.pop(name, None)


def run(*line: str) -> Result:
    return CliRunner().invoke(app, ["evaluate", *line, "--track", "none"])


def submit(policy: str, *line: str) -> Result:
    return run("tiny.yaml", "--entry", policy, *line)


@pytest.mark.slow
def test_code_and_a_trained_folder_become_entries_and_rows_of_the_board(here, monkeypatch):
    played = play.cells_of

    def interrupted(benchmark, *arguments, kept, **others):
        if kept.folder.name == "seen-jobs-unseen-loads":  # the third cell
            raise KeyboardInterrupt
        return played(benchmark, *arguments, kept=kept, **others)

    monkeypatch.setattr(play, "cells_of", interrupted)
    stopped = submit("my_rule:half_busy")
    assert stopped.exit_code == 130
    assert "runs are kept in runs/entries/tiny/half-busy" in " ".join(stopped.stderr.split())
    monkeypatch.setattr(play, "cells_of", played)
    done = submit("my_rule:half_busy", "--resume")
    assert done.exit_code == 0, done.output
    assert not is_installed("half-busy")  # its code ran for as long as it was asked for
    entry = here / "runs/entries/tiny/half-busy"
    document = json.loads((entry / "entry.json").read_text())
    assert (document["code"], document["frontier"]) == ("my_rule:half_busy", "tiny")
    assert (entry / "policy/my_rule.py").read_text() == RULE
    card = (entry / "card.md").read_text()
    assert "As many tasks as make every vertex busy" in card
    # A policy without a knob is one setting: its cost, lateness and plot in the terminal, the card
    # and a page, whether or not it reaches a level; nothing was published of `tiny`, so no rank.
    assert done.output.count("late, share of the time") == 4
    assert done.output.count("half-busy costs") == 4
    assert card.count("```text") == 4
    assert not re.search(r"rank \d", card)
    assert "half-busy" in (entry / "report.html").read_text()
    cells = {"unseen-jobs-unseen-loads", "unseen-jobs-seen-loads"}
    cells |= {"seen-jobs-unseen-loads", "seen-jobs-seen-loads"}
    assert set(document["costs"]) == {path.stem for path in (entry / "runs").iterdir()} == cells
    assert {"dsp-gym", "numba", "numpy", "python"} <= document["versions"].keys()

    (here / "mine.yaml").write_text(f"policy: {PRETRAINED}\nname: mine\nguardrails: floor\n")
    folder = submit("mine.yaml", "--cell", "seen-jobs-seen-loads")
    assert folder.exit_code == 0, folder.output
    trained = here / "runs/entries/tiny/mine"
    assert (trained / "policy/policy.json").read_bytes() == (
        PRETRAINED / "policy.json"
    ).read_bytes()
    (here / "my_rule.py").unlink()

    careful = run(
        "tiny.yaml", "--json", "--entries", "runs/entries/tiny", "--cell", "seen-jobs-seen-loads"
    )
    line = ["tiny.yaml", "--json", "--entries", f"{entry.relative_to(here)},{trained}"]
    assert careful.exit_code == 0, careful.output
    assert "half-busy is left out: it is code" in careful.stderr
    assert names(careful) == ["ds2", "mine"]
    whole = run(*line)
    assert whole.exit_code == 0, whole.output
    assert names(whole) == ["ds2", "half-busy", "mine"]
    assert "gave other runs" not in whole.stderr
    board = json.loads(whole.stdout)
    assert board["fingerprint"] == document["fingerprint"]
    mine = next(one for one in board["cells"][0]["policies"] if one["policy"] == "half-busy")
    costs = {level: cost and cost["value"] for level, cost in mine["cost"].items()}
    assert costs == document["costs"]["unseen-jobs-unseen-loads"]

    file = entry / "runs/seen-jobs-seen-loads.json"
    runs = json.loads(file.read_text())
    runs["policies"][0]["cost"][0][0][0][0] *= 0.9
    file.write_text(json.dumps(runs))
    caught = run(*line, "--cell", "seen-jobs-seen-loads")
    assert "half-busy gave other runs than its entry in seen-jobs-seen-loads" in caught.stderr
    submitted = (entry / "entry.json").read_text()
    (entry / "entry.json").write_text(json.dumps(document | {"currency": "EUR"}))
    foreign = run(*line)
    assert foreign.exit_code == 2
    assert "entry 'half-busy' has its costs in EUR, tiny in USD" in foreign.stderr
    (entry / "entry.json").write_text(submitted)
    (entry / "policy/my_rule.py").write_text(RULE.replace("300", "200"))
    refused = run(*line)
    assert refused.exit_code == 2
    assert "the policy is not the one that was submitted" in refused.stderr


def names(result: Result) -> list[str]:
    return [one["policy"] for one in json.loads(result.stdout)["cells"][0]["policies"]]


@pytest.mark.slow
def test_a_policy_that_gives_something_else_the_second_time_is_refused(here):
    refused = submit("submitted_chance:moody")
    assert refused.exit_code == 2, refused.output
    assert "is not deterministic: with the same seed its" in refused.stderr
    assert not (here / "runs").exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["nobody:Knows"], "cannot be imported: ModuleNotFoundError: No module named 'nobody'"),
        (["my_rule:per_job"], "is not a policy class with a `Config`"),
        (["."], "is neither the folder of a trained policy nor module:Policy"),
        (["my_rule:half_busy", "--cell", "all"], "there is no cell 'all'"),
        (["mine.yaml"], "give both or none"),
        (["nameless.yaml"], "names no policy"),
        (["badly-named.yaml"], "is no name of an entry"),
    ],
)
def test_what_cannot_be_submitted_is_refused(here, line, said, monkeypatch):
    from dsp_gym.evaluation import submission

    (here / "mine.yaml").write_text("policy: my_rule:half_busy\nvalues: [1, 2]\n")
    (here / "nameless.yaml").write_text("name: mine\n")
    (here / "badly-named.yaml").write_text("policy: my_rule:half_busy\nname: My Rule\n")
    monkeypatch.setattr(submission, "refuse_chance", lambda *_: None)
    refused = submit(*line)
    assert refused.exit_code == 2, refused.output
    assert said in " ".join(refused.stderr.split())


def test_nothing_of_a_folder_is_executed(here, tmp_path):
    folder = here / "mine"
    shutil.copytree(PRETRAINED, folder)
    for name in ("__init__.py", "policy.py", "sitecustomize.py"):
        (folder / name).write_text("raise SystemExit('executed')\n")
    refused = submit(str(folder), "--cell", "none")
    assert "executed" not in refused.output
    assert "there is no cell 'none'" in refused.output


def test_no_configuration_can_name_code(here):
    with pytest.raises(Exception, match="there is no policy 'my_rule:half_busy'"):
        make("my_rule:half_busy")


def test_code_is_known_by_its_name_within_the_block_alone(here):
    code = parse_local_policy("my_rule:half_busy")
    with offer_local({"a-rule": code}, [here]):
        assert make("a-rule").name == "a-rule"
    assert not is_installed("a-rule")
    with (
        pytest.raises(PolicyError, match="cannot be imported"),
        offer_local({"b": parse_local_policy("n:o")}, []),
    ):
        pass


@pytest.mark.parametrize("text", ["runs/q11/policy", "models:/q11@a", "a:b:c", "C:\\x", ":a"])
def test_a_path_is_no_code(text):
    assert parse_local_policy(text) is None


def test_entries_are_of_a_frontier_and_there_are_some(here):
    (here / "none").mkdir()
    for line, said in (
        (["tiny.yaml", "--entries", "none"], "holds no entry"),
        (["core-v1", "--entries", "none"], "needs a frontier"),
        (["core-v1", "--entry", "my_rule:half_busy"], "needs a frontier"),
    ):
        refused = run(*line)
        assert refused.exit_code == 2
        assert said in refused.stderr
