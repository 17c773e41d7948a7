"""Reports for a browser: one page of sections, tables and figures that fetches nothing.

from dsp_gym.pages import figure, page, section, svg, table

with figure(6.0, 3.0, salt="rate", extra="train", purpose="drawing the report") as drawn:
    drawn.subplots().plot(hours, rate_per_s)
    curve = svg(drawn, "rate over time")
text = page(
    "Nightly run",
    "Two policies on one load.",  # text is a paragraph, and escaped
    section("Cost", table(("policy", "cost"), [("ds2", "4.20")]), curve),
)
"""

from __future__ import annotations

from dsp_gym.pages.charts import (
    Curve,
    Mark,
    Panel,
    ScatterPoint,
    against,
    choice,
    curves,
    scatter,
)
from dsp_gym.pages.figures import figure, svg
from dsp_gym.pages.numbers import money, number, percent, signed, span
from dsp_gym.pages.page import (
    STYLE,
    Emphasis,
    Html,
    Judgement,
    chart_script,
    code,
    details,
    heading,
    judged,
    lead,
    link,
    note,
    page,
    section,
    shaded,
    table,
)

__all__ = [
    "Emphasis",
    "Html",
    "Judgement",
    "Curve",
    "Mark",
    "Panel",
    "ScatterPoint",
    "against",
    "chart_script",
    "choice",
    "code",
    "curves",
    "details",
    "figure",
    "heading",
    "judged",
    "lead",
    "link",
    "money",
    "note",
    "number",
    "page",
    "STYLE",
    "percent",
    "scatter",
    "section",
    "shaded",
    "signed",
    "span",
    "svg",
    "table",
]
