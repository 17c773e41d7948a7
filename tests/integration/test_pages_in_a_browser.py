"""The reports as a reader meets them: in a real Chromium, narrow and wide, light and dark."""

from __future__ import annotations

import pytest

from dsp_gym.evaluation.counterfactual.report import write_page
from spark_pipelines.quality.report import quality_of, report_html
from tests.browser import BROWSER, CONTRASTS, Browser
from tests.unit.evaluation.counterfactual.cards import GOOD, card
from tests.unit.spark_pipelines.quality_datasets import made

pytestmark = [BROWSER, pytest.mark.slow]


@pytest.fixture(scope="module")
def tab():
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def scorecard(tmp_path_factory):
    return write_page(card({"ds2": GOOD, "ours": {}}), tmp_path_factory.mktemp("card") / "a.html")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    file = tmp_path_factory.mktemp("dataset") / "a.html"
    file.write_text(report_html(made(), quality_of(made())), encoding="utf-8")
    return file


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400, 2560])
@pytest.mark.parametrize("name", ["scorecard", "dataset"])
def test_a_report_fits_every_width_in_both_schemes(tab, request, name, width, scheme, tmp_path):
    tab.page.set_viewport_size({"width": width, "height": 900})
    tab.page.emulate_media(color_scheme=scheme)
    tab.open(request.getfixturevalue(name).as_uri())
    tab.wait_for("canvas")
    assert tab.run("document.documentElement.scrollWidth") <= width
    assert tab.run("[...document.querySelectorAll('canvas')].every(c => c.width > 200)")
    contrasts = tab.run(CONTRASTS)
    assert len(contrasts) > 20
    assert min(contrasts) >= 4.5
    assert tab.page.screenshot(path=tmp_path / "page.png", full_page=True)
    assert tab.errors == []
