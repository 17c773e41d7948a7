"""The reports as a reader meets them: in a real Chromium, narrow and wide, light and dark."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from dsp_gym.cli import app
from dsp_gym.pages import Curve, Panel, curves, page
from dsp_gym.whatif.backtest import backtest
from dsp_gym.whatif.fleet_page import write_report
from dsp_gym.whatif.policies import named_entrants
from spark_pipelines.quality.report import quality_of, report_html
from tests import frontiers
from tests.browser import BROWSER, CONTRASTS, Browser, looks
from tests.unit.calibration.reports import calibrated, measured
from tests.unit.spark_pipelines.quality_datasets import made
from tests.unit.whatif.histories import document, history

pytestmark = [BROWSER, pytest.mark.slow]

PAGES = ("dataset", "calibration", "throughput", "simulate", "evaluation")
PAGES += ("frontier", "fleet", "fleet_job")

BENCHMARK = """
policies: [ds2, justin-paper, static]
reference: ds2
jobs: [nexmark-q1, nexmark-q11]
loads: {test: {loads: [diurnal-bursts], seeds: {from: 0, to: 2}}}
episode_s: 1800
bootstrap: 100
"""
FRONTIER = frontiers.FRONTIER.replace(
    "jobs:", "  - {policy: clairvoyant, knob: slo_weight, values: [1, 8]}\njobs:", 1
)


@pytest.fixture(scope="module")
def tab():
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    file = tmp_path_factory.mktemp("dataset") / "a.html"
    file.write_text(report_html(made(), quality_of(made())), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def calibration(tmp_path_factory):
    file = tmp_path_factory.mktemp("calibration") / "a.html"
    file.write_text(calibrated().render_html(), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def throughput(tmp_path_factory):
    file = tmp_path_factory.mktemp("throughput") / "a.html"
    file.write_text(measured().render_html(), encoding="utf-8")
    return file


def run(*line):
    result = CliRunner().invoke(app, [str(word) for word in line])
    assert result.exit_code == 0, result.output


@pytest.fixture(scope="module")
def simulate(tmp_path_factory):
    file = tmp_path_factory.mktemp("simulate") / "a.html"
    chosen = ("--policies", "ds2", "--load", "diurnal-bursts", "--duration", "30m")
    run("simulate", "nexmark-q11", *chosen, "--plot", file)
    return file


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluation")
    (folder / "small.yaml").write_text(BENCHMARK)
    run("evaluate", folder / "small.yaml", "--track", "none", "--out", folder)
    return folder / "report.html"


@pytest.fixture(scope="module")
def frontier(tmp_path_factory):
    folder = tmp_path_factory.mktemp("frontier")
    (folder / "small.yaml").write_text(FRONTIER)
    run("evaluate", folder / "small.yaml", "--track", "none", "--out", folder)
    return folder / "report.html"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fleet")
    names = ["../../evil", "<img src=x onerror=alert(1)>", *(f"team-job-{i}" for i in range(28))]
    return write_report(document(names, ("ds2", "justin-paper", "planner")), folder)["html"]


@pytest.fixture(scope="module")
def fleet_job(tmp_path_factory):
    job = history(job="random-dag:7:16", days=1.0, tasks=9)
    entrants = named_entrants(("ds2", "justin-paper"), "default")
    found = backtest([job], "a test", entrants=entrants)
    assert found.jobs[0].vertices == 16
    assert found.jobs[0].changes["ds2"]
    folder = tmp_path_factory.mktemp("fleet-job")
    write_report(found, folder)
    return next(folder.glob("job-1-*.html"))


@pytest.mark.parametrize(("width", "scheme"), looks(390, 1400, 2560))
@pytest.mark.parametrize("name", PAGES)
def test_a_report_fits_every_width_in_both_schemes(tab, request, name, width, scheme):
    tab.page.set_viewport_size({"width": width, "height": 900})
    tab.page.emulate_media(color_scheme=scheme)
    tab.open(request.getfixturevalue(name).as_uri())
    tab.wait_for("canvas")
    assert tab.run("document.documentElement.scrollWidth") <= width
    assert tab.run("[...document.querySelectorAll('canvas')].every(c => c.width > 200)")
    contrasts = tab.run(CONTRASTS)
    assert len(contrasts) > 20
    assert min(contrasts) >= 4.5
    tab.keep_picture(f"{name}-{width}-{scheme}")
    assert tab.errors == []


DRAWN = """
window.drawn = [];
const draw = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...where) {
  window.drawn.push(text);
  return draw.call(this, text, ...where);
};
"""
"""Keeps the texts that a page draws on its charts."""


def moments(tab, file, zone):
    """The labels of a chart's axes, and the moment under the cursor, to a reader in a time zone."""
    context = tab.process.new_context(timezone_id=zone, locale="en-GB")
    try:
        context.add_init_script(DRAWN)
        seen = context.new_page()
        seen.goto(file.as_uri())
        seen.locator("canvas").first.wait_for(state="attached")
        seen.locator(".u-over").first.hover()
        return seen.evaluate("window.drawn"), seen.evaluate(
            "document.querySelector('.chart > .said').textContent"
        )
    finally:
        context.close()


def dated(tmp_path, time):
    """A page with a chart over six hours of a day that begins at midnight, UTC."""
    t_s = [1_767_571_200.0 + 600.0 * k for k in range(37)]  # from 2026-01-05
    chart = curves("load", t_s, [Panel("Load", [Curve("load", [7.0] * 37)])], time="date")
    file = tmp_path / f"{time}.html"
    file.write_text(page("Load", chart).replace('"time":"date"', f'"time":"{time}"'))
    return file


def test_a_report_tells_times_in_utc_wherever_it_is_read(tab, tmp_path):
    report = dated(tmp_path, "date")
    labels, moment = moments(tab, report, "UTC")
    assert {"12:00am", "6:00am"} <= set(labels)
    assert moment == "2026-01-05 03:00 UTC"
    assert moments(tab, report, "Asia/Kolkata") == (labels, moment)


def test_the_page_of_a_running_process_tells_times_by_the_reader_s_clock(tab, tmp_path):
    """As its sentences do."""
    labels, moment = moments(tab, dated(tmp_path, "local"), "Asia/Kolkata")
    assert {"5:30am", "11:30am"} <= set(labels)
    assert moment == "05/01/2026, 08:30"


@pytest.mark.parametrize(("width", "scheme"), looks(360, 1400))
def test_of_a_fleet_every_job_is_readable_on_a_phone(tab, fleet, width, scheme):
    """The rows of the jobs are cards there: nothing of them has to be scrolled sideways."""
    tab.page.set_viewport_size({"width": width, "height": 800})
    tab.page.emulate_media(color_scheme=scheme)
    tab.open(fleet.as_uri())
    tab.wait_for(".cards")
    assert tab.run("document.documentElement.scrollWidth") <= width
    box = "document.querySelector('.cards').parentElement"
    assert tab.run(f"{box}.scrollWidth <= {box}.clientWidth")
    lead = tab.run("document.querySelector('.lead').textContent")
    assert " jobs cost " in lead
    assert "What blocks " in lead or "can be saved for certain" in lead
