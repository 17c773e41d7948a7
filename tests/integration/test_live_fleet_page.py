"""The live page of a job of many vertices, and of twins, in a real browser."""

from __future__ import annotations

import pytest

from dsp_gym.control.beside import write_twins
from dsp_gym.whatif.follow import Follower
from dsp_gym.whatif.result import Trust
from tests.browser import BROWSER, CONTRASTS, Browser
from tests.unit.control.serve.conftest import session_of

pytestmark = [pytest.mark.slow, BROWSER]

WIDTHS = (360, 1400)
TWINS = """[...document.querySelectorAll('#twin-figures tbody tr')].map(r =>
  [r.dataset.policy, r.dataset.period, ...[...r.cells].slice(2).map(c => c.textContent)])"""


@pytest.fixture(scope="module")
def browser():
    with Browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """A job of 16 vertices, with twins beside it."""
    folder = tmp_path_factory.mktemp("watched")
    policies = [{"name": "ds2", "policy": "ds2"}, "flink-autoscaler", "incumbent"]
    given = {"job": "random-dag:7:16", "policies": policies, "guardrails": None}
    with session_of(folder, "diurnal", **given) as session:
        session.run.run(steps=20)
        twins = Follower(session.run.writer.folder, 2, Trust(lag=10, late=1, cost=10))
        assert twins.look(most=None)
        write_twins(session.run.writer.folder, twins.document())
        yield session


def opened(browser: Browser, address: str, width: int, scheme: str) -> None:
    browser.page.emulate_media(color_scheme=scheme)
    browser.page.set_viewport_size({"width": width, "height": 900})
    browser.open(address)
    browser.wait_for("#curves canvas")


def fits(browser: Browser, width: int) -> None:
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert min(browser.run(CONTRASTS)) >= 4.5
    assert browser.errors == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_twins_and_sixteen_vertices_fit(browser, watched, width, scheme):
    opened(browser, watched.server.url, width, scheme)
    browser.wait_for("#twin-curves canvas")
    assert browser.run("document.querySelectorAll('#graph g').length") == 16
    assert browser.run("document.querySelectorAll('#twin-curves canvas').length") == 4
    assert browser.run("document.getElementById('fleet').hidden")
    fits(browser, width)
    browser.keep_picture(f"twins-{width}-{scheme}")


def test_the_page_shows_the_figures_of_the_twins(browser, watched):
    opened(browser, watched.server.url, 1400, "light")
    browser.wait_for("#twin-figures tbody tr")
    rows = {(policy, period): cells for policy, period, *cells in browser.run(TWINS)}
    document = watched.board.twins()
    for period, said in document["periods"].items():
        assert set(said["policies"]) == {"incumbent", "ds2", "flink-autoscaler"}
        for policy, one in said["policies"].items():
            cost, saved, late, later, rescales = rows[policy, period]
            assert cost.endswith(" USD")
            assert saved.endswith(" USD")
            for text, key in ((cost, "cost"), (saved, "saved"), (late, "late_s"),
                              (later, "later_s"), (rescales, "rescales")):  # fmt: skip
                told = float(text.removesuffix(" USD").replace(",", ""))
                assert told == pytest.approx(one[key], rel=0.006)
    said = browser.run("document.getElementById('twins-said').textContent")
    assert "The model of the deployed configurations: " in said


def test_twins_of_a_wrong_model_show_why_and_nothing_else(browser, watched):
    folder, kept = watched.run.writer.folder, watched.board.twins()
    wrong = {**kept, "curves": None, "periods": {
        name: {**said, "policies": {}, "distrust": ["the model's cost is off by 40.0%"]}
        for name, said in kept["periods"].items()
    }}  # fmt: skip
    write_twins(folder, wrong)
    try:
        opened(browser, watched.server.url, 360, "light")
        browser.wait_for("#twins:not([hidden])")
        said = browser.run("document.getElementById('twins-said').textContent")
        assert "No figures since the start: the model's cost is off by 40.0%." in said
        assert browser.run(TWINS) == []
        assert browser.run("document.getElementById('twin-curves').hidden")
        fits(browser, 360)
    finally:
        write_twins(folder, kept)
