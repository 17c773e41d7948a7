"""docs/results.md: what is committed is what the figures say, and a missing figure is no fault."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
LEARNED = ("q11-cloned", "q11-offline")


@pytest.fixture(scope="module")
def results():
    spec = importlib.util.spec_from_file_location("results", DOCS / "results.py")
    module = importlib.util.module_from_spec(spec)
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
