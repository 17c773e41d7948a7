"""The files of the live page, and the headers that keep the page to itself."""

from __future__ import annotations

from functools import cache
from http import HTTPStatus
from importlib.resources import files

from dsp_gym.control.serve.listener import Answer
from dsp_gym.pages import STYLE, chart_script

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


@cache
def assets() -> dict[str, Answer]:
    """Read the page and what it loads; none holds data of a job.

    Returns:
        Answers by path; not to be changed.
    """
    here = files("dsp_gym.control.serve").joinpath("page")
    of_charts, script = chart_script()
    style = of_charts + STYLE + here.joinpath("live.css").read_text(encoding="utf-8")
    files_by_path = {
        "/": ("text/html; charset=utf-8", here.joinpath("index.html").read_bytes()),
        "/page/live.css": ("text/css; charset=utf-8", style.encode()),
        "/page/charts.js": ("text/javascript; charset=utf-8", script.encode()),
        "/page/live.js": (
            "text/javascript; charset=utf-8",
            here.joinpath("live.js").read_bytes(),
        ),
    }
    return {
        path: Answer(HTTPStatus.OK, kind, content, PAGE_HEADERS)
        for path, (kind, content) in files_by_path.items()
    }
