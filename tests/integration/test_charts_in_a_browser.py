"""Charts as a reader meets them: in a real Chromium, narrow and wide, light and dark."""

import math

import pytest

from dsp_gym.pages import (
    Curve,
    Mark,
    Panel,
    ScatterPoint,
    against,
    choice,
    curves,
    page,
    scatter,
    section,
    table,
)
from tests.browser import BROWSER, Browser

pytestmark = [BROWSER, pytest.mark.slow]

MINUTES = [60.0 * minute for minute in range(1440)]


def day(height: float) -> list[float]:
    return [height * (2 + math.sin(second / 14_000)) for second in MINUTES]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    panels = [
        Panel("Load", [Curve("load", day(1e5))], "records/s"),
        Panel("Latency p95", [Curve("ds2", day(1)), Curve("mdp", day(0.5))], "s", bound=2.0),
    ]
    marks = [Mark(43_200, "mdp", "session 4 to 6: a move pays"), Mark(60_000, "ds2", "busy")]
    curve = curves("a day", MINUTES, panels, marks)
    points = [
        ScatterPoint("ds2", [5.3], [5.2]),
        ScatterPoint("mdp", [2.0, 3.0], [8.7, 8.0], own=True),
    ]
    pairs = against(
        "predicted against seen",
        [
            ScatterPoint("fitted", [100.0, 1e4, 1e4], [120.0, 9e3, 1.1e4], ("a", "b", "c")),
            ScatterPoint("held out", [300.0], [310.0], ("held out, d",)),
        ],
        x_label="seen",
        y_label="predicted",
    )
    text = page(
        "A day",
        section("Cost", table(("policy", *("a long column",) * 12), [("ds2", *("123,456",) * 12)])),
        section("Plane", scatter("cost", points, x_label="late", y_label="cost", bound=5)),
        section("Agreement", pairs),
        section("Curves", choice("Load", {"one": curve, "other": curve})),
    )
    path = tmp_path_factory.mktemp("page") / "day.html"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tab():
    with Browser() as browser:
        yield browser


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400, 2560])
def test_a_page_fits_every_width_in_both_schemes(tab, written, width, scheme):
    tab.page.set_viewport_size({"width": width, "height": 900})
    tab.page.emulate_media(color_scheme=scheme)
    tab.open(written.as_uri())
    tab.wait_for(".chosen:not([hidden]) canvas")
    assert tab.run("document.documentElement.scrollWidth") <= width
    assert tab.run("[...document.querySelectorAll('canvas')].every(c => c.width > 200)")
    dark = tab.run("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert dark == (scheme == "dark")
    tab.keep_picture(f"charts-{width}-{scheme}")
    assert tab.errors == []


def test_the_legend_hides_a_line_and_the_cursor_tells_values_and_the_reason(tab, written):
    tab.page.set_viewport_size({"width": 1400, "height": 900})
    tab.open(written.as_uri())
    tab.wait_for(".chosen:not([hidden]) canvas")
    shown = tab.page.locator(".chosen:not([hidden])")
    plane = shown.locator(".u-over").last
    plane.scroll_into_view_if_needed()
    box = plane.bounding_box()
    tab.page.mouse.move(box["x"] + box["width"] * 43_200 / MINUTES[-1], box["y"] + 20)
    values = shown.locator(".values").last
    assert values.inner_text().startswith("ds2 2.0")
    assert "mdp 1.0" in values.inner_text()
    moment, reason = shown.locator(".said").inner_text().split(" — ")
    assert moment in {"11:59", "12:00", "12:01"}  # a pixel is more than a minute wide
    assert reason == "mdp: session 4 to 6: a move pays"
    shown.locator(".key", has_text="mdp").click()
    plane.scroll_into_view_if_needed()
    box = plane.bounding_box()
    tab.page.mouse.move(box["x"] + box["width"] * 43_200 / MINUTES[-1], box["y"] + 21)
    assert "mdp" not in values.inner_text()
    assert "mdp" not in shown.locator(".said").inner_text()
    assert tab.errors == []


def test_another_load_is_drawn_when_it_is_chosen(tab, written):
    tab.open(written.as_uri())
    tab.page.locator("select.choice").select_option("other")
    tab.wait_for(".chosen:nth-of-type(2):not([hidden]) canvas")
    assert tab.errors == []


def test_a_pair_says_what_it_is_and_lies_at_its_place_on_logarithmic_axes(tab, written):
    tab.page.set_viewport_size({"width": 1400, "height": 900})
    tab.open(written.as_uri())
    tab.wait_for(".chosen:not([hidden]) canvas")
    chart = tab.page.locator("section", has_text="Agreement").locator(".chart")
    plane = chart.locator(".u-over")
    plane.scroll_into_view_if_needed()
    box = plane.bounding_box()
    low, high = math.log(100 / 1.2), math.log(1.1e4 * 1.2)
    right, up = ((math.log(value) - low) / (high - low) for value in (300, 310))
    at = box["x"] + box["width"] * right, box["y"] + box["height"] * (1 - up)
    tab.page.mouse.move(*at)
    assert chart.locator(".said").inner_text() == "held out, d: 300 and 310"
    chart.locator(".key", has_text="held out").click()
    tab.page.mouse.move(at[0] + 1, at[1])
    assert chart.locator(".said").inner_text() != "held out, d: 300 and 310"
    assert tab.errors == []
