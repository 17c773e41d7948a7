"""docs/reproduction_plots.py: the papers' figures, the same bytes each time."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.fixture(scope="module")
def plots():
    spec = importlib.util.spec_from_file_location("plots", DOCS / "reproduction_plots.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["plots"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["plots"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ds2-figure-7", "justin-figure-4"])
def test_a_figure_has_the_same_bytes_each_time_and_those_that_are_committed(plots, name):
    first, again = (plots.drawn(plots.PLOTS[name], DOCS) for _ in range(2))
    assert first == again
    assert first == (DOCS / f"figures/reproduction/{name}.svg").read_text(encoding="utf-8")


def test_every_figure_is_committed_and_shown(plots):
    page = (DOCS / "reproduction.md").read_text(encoding="utf-8")
    shown = re.findall(r"\(figures/reproduction/(.+?)\.svg\)", page)
    assert shown == list(plots.PLOTS)
    assert all((DOCS / f"figures/reproduction/{name}.svg").is_file() for name in shown)
