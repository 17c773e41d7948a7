"""The files of the live page, and the headers that keep the page to itself."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import NamedTuple

from dsp_gym.pages import chart_script, page_style

PAGE_HEADERS = (
    (
        "Content-Security-Policy",
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
)
"""No script nor style stands in the page itself, so that no text of a job can become one."""


class Asset(NamedTuple):
    """A file as it is served."""

    kind: str
    content: bytes


@cache
def assets() -> dict[str, Asset]:
    """Read the page and what it loads; none holds data of a job.

    Returns:
        Files by path; not to be changed.
    """
    here = files("dsp_gym.control.serve").joinpath("page")
    of_charts, script = chart_script()
    style = of_charts + page_style() + here.joinpath("live.css").read_text(encoding="utf-8")
    return {
        "/": Asset("text/html; charset=utf-8", here.joinpath("index.html").read_bytes()),
        "/page/live.css": Asset("text/css; charset=utf-8", style.encode()),
        "/page/charts.js": Asset("text/javascript; charset=utf-8", script.encode()),
        "/page/live.js": Asset(
            "text/javascript; charset=utf-8", here.joinpath("live.js").read_bytes()
        ),
    }
