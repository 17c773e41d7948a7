"""docs/results.md: the committed page matches the figures; a missing figure is no error."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

from dsp_gym.evaluation.referee.board import GROUPS

DOCS = Path(__file__).parents[2] / "docs"
LEARNED = ("q11-cloned", "q11-offline")


@pytest.fixture(scope="module")
def results():
    spec = importlib.util.spec_from_file_location("results", DOCS / "results.py")
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS)  # as when it is run: its folder comes first
        spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_figures_say(results):
    assert results.page() == (DOCS / "results.md").read_text(encoding="utf-8")
    assert results.readme_part() in results.README.read_text(encoding="utf-8")


def test_a_figure_that_is_not_there_yet_is_said_to_be_missing(results, tmp_path, monkeypatch):
    shutil.copytree(DOCS / "figures", tmp_path / "figures")
    for name in LEARNED:
        (tmp_path / "figures" / f"{name}.json").unlink(missing_ok=True)
    monkeypatch.setattr(results, "FIGURES", tmp_path / "figures")
    page = results.page()
    for name in LEARNED:
        assert f"`docs/figures/{name}.json` is not there yet" in page


@pytest.mark.parametrize("name", LEARNED)
def test_a_claim_that_does_not_hold_is_said_not_to(results, name):
    written = {"q11-cloned": results.cloning, "q11-offline": results.offline}[name]
    found = json.loads((DOCS / "figures" / f"{name}.json").read_text(encoding="utf-8"))
    assert ": they miss it" in written(found | {"holds": False, "ratio": None})
    assert ": they meet it" in written(found | {"holds": True})
    assert ": they miss it" not in written(found | {"holds": True})


def test_steps_that_were_never_reached_are_no_number(results):
    assert results.steps_text(None) == "not within the steps of the former"
    assert results.steps_text(38400.0) == "38,400"


def estimate(value):
    return {"value": value, "low": 0.9 * value, "high": 1.1 * value}


def a_policy(name, costs, rule=False):
    """Costs of two jobs at 1, 2 and 3 % late; None: later at each setting."""
    levels = ("0.01", "0.02", "0.03")
    means = [None if None in pair else sum(pair) / 2 for pair in costs]
    told = {level: mean and estimate(mean) for level, mean in zip(levels, means, strict=True)}
    by_job = {
        job: {level: pair[place] for level, pair in zip(levels, costs, strict=True)}
        for place, job in enumerate(("light", "heavy"))
    }
    ratio = {level: cost and estimate(cost["value"] / 10) for level, cost in told.items()}
    return {
        "policy": name,
        "rule": rule,
        "cost": told,
        "ratio": ratio,
        "closed": ratio,
        "by_job": by_job,
        "points": [{"late": 0.01 * (k + 1), "cost": 10.0 - k} for k in range(3)],
    }


@pytest.fixture
def frontier(tmp_path):
    """A small result in the form that `dsp-gym evaluate` writes."""
    policies = [
        a_policy("justin-artifact-tuned", [(10, 12), (8, 12), (8, 10)], rule=True),
        a_policy("planner", [(9, None), (6, 9), (5, 8)]) | {"trainings": {"0.02": [7.4, 7.6]}},
        a_policy("learned-q11", [(None, None)] * 3),
        a_policy("clairvoyant", [(5, 7), (4, 6), (4, 6)]),
        a_policy("streambed", [(20, 20)] * 3),
    ]
    cells = [
        {
            "cell": name,
            "jobs": ["light", "heavy"],
            "loads": ["flash-crowds"],
            "seeds": [1],
            "policies": policies,
        }
        for name in ("seen-jobs-seen-loads", "unseen-jobs-unseen-loads")
    ]
    document = {
        "name": "core-v2",
        "fingerprint": "0" * 16,
        "part_of": "1111",
        "command": "dsp-gym evaluate core-v2 --seeds 1",
        "versions": {"dsp-gym": "1"},
        "config": {"lateness": [0.03, 0.01, 0.02]},
        "cells": cells,
        "shifts": [
            {"shift": shift, "policy": "planner", "rise": rise, "ratio": estimate(0.7)}
            for shift, rise in (
                ("as they are", None),
                ("slow restarts", 0.08),
                ("old metrics", 0.01),
            )
        ],
    }
    file = tmp_path / "frontier.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    return file


@pytest.fixture
def elsewhere(results, tmp_path, monkeypatch):
    """A copy of what the script writes."""
    shutil.copytree(DOCS / "figures", tmp_path / "docs" / "figures")
    readme = shutil.copy(results.README, tmp_path / "README.md")
    cards = {
        name: Path(shutil.copy(file, tmp_path / f"{name}.md"))
        for name, file in results.CARDS.items()
    }
    for name, value in {
        "DOCS": tmp_path / "docs",
        "FIGURES": tmp_path / "docs" / "figures",
        "README": Path(readme),
        "PUBLISHED": Path(shutil.copy(results.PUBLISHED, tmp_path / "core-v2.json")),
        "CARDS": cards,
    }.items():
        monkeypatch.setattr(results, name, value)
    return results


def test_a_frontier_fills_the_cards(elsewhere, frontier, monkeypatch):
    monkeypatch.setattr("sys.argv", ["results.py", "--core-v2", str(frontier)])
    elsewhere.main()
    text = elsewhere.README.read_text("utf-8")
    card = elsewhere.CARDS["planner"].read_text("utf-8")
    assert card.count("## Where it wins and loses") == 1
    assert "against the best tuned rule, means over 2 trainings:" in card
    assert "Wins most on light (0.75), heavy (0.75)." in card
    assert card.count("Loses most of its advantage with slow restarts: ") == 1
    q11 = elsewhere.CARDS["learned-q11"].read_text("utf-8")
    assert "trainings" not in q11.partition("## Where it wins and loses")[2]
    assert "later than that at each of its settings. Later than the rule on light, heavy." in q11
    assert "Not among the policies" in elsewhere.CARDS["learned-ppo"].read_text("utf-8")
    monkeypatch.setattr("sys.argv", ["results.py"])
    elsewhere.main()  # from what was kept, once more
    assert elsewhere.README.read_text("utf-8") == text
    assert elsewhere.CARDS["planner"].read_text("utf-8") == card


def a_referee(tmp_path):
    """Results of a test set: two groups of families, the planner late on recorded loads."""
    policies = [
        a_policy("clairvoyant", [(7, 7), (6, 6), (5, 5)]),
        a_policy("planner", [(9, None), (6, 9), (5, 8)]),
        a_policy("ds2-tuned", [(10, 12), (8, 12), (8, 10)], rule=True),
        a_policy("streambed", [(20, 20)] * 3),
    ]
    of_the_walk = {"cost": {"value": 0.9876, "low": 0.97, "high": 0.998}, "rescales": 1.2}
    policies[1]["against"] = {
        "planner-walk-tuned": dict.fromkeys(policies[1]["ratio"], of_the_walk)
    }
    late = [one | {"ratio": dict.fromkeys(one["ratio"]), "against": {}} for one in policies]
    document = {
        "name": "core-v3",
        "fingerprint": "1" * 16,
        "commit": "c0ffee" * 7,
        "command": "dsp-gym evaluate core-v3 --policies planner,streambed --set test",
        "currency": "USD",
        "config": {"lateness": [0.01, 0.02, 0.03]},
        "triples": [{"job": name} for name in ("light", "heavy", "heavy")],
        "cells": [
            {"cell": "all triples", "policies": policies},
            {"cell": GROUPS["known"], "policies": policies},
            {"cell": GROUPS["recorded"], "policies": late},
        ],
    }
    file = tmp_path / "referee.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    return file


def test_a_referee_fills_the_readme(elsewhere, tmp_path, monkeypatch):
    referee = a_referee(tmp_path)
    monkeypatch.setattr("sys.argv", ["results.py", "--core-v3", str(referee)])
    elsewhere.main()
    text = elsewhere.README.read_text("utf-8")
    assert text.count(elsewhere.BEGIN) == text.count(elsewhere.END) == 1
    assert elsewhere.readme_part() in text
    assert "3 triples of a job, a load and a seed" in text
    assert "evaluated (c0ffeec0ffee)" in text
    assert "```sh\ndsp-gym evaluate core-v3 --set test\n```" in text
    block = text.partition(elsewhere.END)[0].partition(elsewhere.BEGIN)[2]
    rows = [line for line in block.splitlines() if line.startswith("| ")]
    assert rows[0].endswith("| of the best tuned rule, 2 % | trained-on loads | recorded loads |")
    names = [line.split(" |")[0].removeprefix("| ") for line in rows[2:]]
    assert names == ["clairvoyant", "**planner**", "ds2-tuned (tuned rule)"]
    assert "| – | 7.5 | 6.5 |" in rows[3]
    assert rows[3].endswith("| – |")
    assert "`planner` costs 0.988 [0.97, 0.998] of that one: the rest is what training" in text
    monkeypatch.setattr("sys.argv", ["results.py"])
    elsewhere.main()  # from what was kept, once more
    assert elsewhere.README.read_text("utf-8") == text


def test_the_cards_say_what_the_kept_frontier_says(results):
    frontier = results.core_v2()
    for name, file in results.CARDS.items():
        text = file.read_text("utf-8")
        if frontier is None:
            assert "## Where it wins and loses" not in text
        else:
            assert results.card_part(frontier, name) in text
