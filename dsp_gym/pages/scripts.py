"""The style and the script of a page's charts: uPlot 1.6.32 (MIT, `vendor/`) and `charts.js`."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

__all__ = ["chart_script"]


@cache
def chart_script() -> tuple[str, str]:
    """What a page with charts needs.

    Returns:
        Its style and its script.
    """
    here = files("dsp_gym.pages")
    style = here.joinpath("vendor/uPlot.min.css").read_text(encoding="utf-8")
    scripts = (here.joinpath(name) for name in ("vendor/uPlot.iife.min.js", "charts.js"))
    return style, "\n".join(script.read_text(encoding="utf-8") for script in scripts)
