"""Interactive charts of a page: curves that share a crosshair, and points of cost and lateness.

Drawn in the reader's browser by uPlot 1.6.32 (MIT, `vendor/`), whose script travels in the page: no
network is asked. Numbers are written with four digits.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from dsp_gym.pages.page import Html

SHOWN = 2000
"""Points of a line, more than a screen has columns."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One curve; curves of the same name in several panels have one colour and one button."""

    name: str
    values: Sequence[float]  # one per x; NaN: unknown, a gap
    style: Literal["line", "step", "dashed"] = "line"


@dataclass(frozen=True, slots=True)
class Panel:
    """Curves over one axis of values."""

    title: str
    lines: Sequence[Curve]  # the first one lies in front
    unit: str = ""
    bound: float | None = None  # values up to here are good, such as the SLO's latency
    height: int = 160  # pixels


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment of a line, such as a rescale, with its reason."""

    x: float
    line: str
    text: str


@dataclass(frozen=True, slots=True)
class ScatterPoint:
    """One or several settings of a policy, in the plane of lateness and cost."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    texts: Sequence[str] = field(default=())  # shown under the cursor
    own: bool = False  # drawn larger
    dashed: bool = False


def curves(
    description: str,
    x: Sequence[float],
    panels: Sequence[Panel],
    marks: Sequence[Mark] = (),
    *,
    time: Literal["elapsed", "date", "number"] = "elapsed",
    shown: int = SHOWN,
    hidden: Collection[str] = (),
) -> Html:
    """Panels one below the other, with one crosshair, one zoom and one legend.

    Args:
        description: The content in words, for readers who do not see it.
        x: Ascending; seconds since the start, or since 1970 for dates.
        panels: From top to bottom; each line as long as `x`.
        marks: Moments to be named; drawn at the top of each panel.
        time: How x is written; dates in UTC.
        shown: Points of a line at most; a longer one is thinned evenly.
        hidden: Names of curves that the reader has to ask for.

    Returns:
        Markup: a `<div>` with the chart's numbers.
    """
    every = max(1, math.ceil(len(x) / shown))
    names = dict.fromkeys(line.name for panel in panels for line in panel.lines)
    return _chart(
        description,
        {
            "x": _numbers(x[::every], digits=10),
            "time": time,
            "hidden": [name for name in names if name in hidden],
            "colours": {name: place for place, name in enumerate(names)},
            "panels": [
                {
                    "title": panel.title,
                    "unit": panel.unit,
                    "bound": panel.bound,
                    "height": panel.height,
                    "lines": [
                        {
                            "name": line.name,
                            "style": line.style,
                            "values": _numbers(line.values[::every]),
                        }
                        for line in panel.lines
                    ],
                }
                for panel in panels
            ],
            "marks": [{"x": mark.x, "line": mark.line, "text": mark.text} for mark in marks],
        },
    )


def scatter(
    description: str,
    points: Sequence[ScatterPoint],
    *,
    x_label: str,
    y_label: str,
    bound: float | None = None,
    x_most: float | None = None,
    height: int = 380,
) -> Html:
    """Policies by lateness and cost, with the line of those that no other undercuts in both.

    Args:
        description: The content in words, for readers who do not see it.
        points: The policies.
        x_label: Of the lateness, in percent.
        y_label: Of the cost.
        bound: The largest lateness allowed, in percent.
        x_most: Where the chart ends at first; a double click shows all. None: at the last point.
        height: Pixels.

    Returns:
        Markup: a `<div>` with the chart's numbers.
    """
    pairs = [pair for point in points for pair in zip(point.x, point.y, strict=True)]
    return _chart(
        description,
        {
            "points": [
                {
                    "name": point.name,
                    "x": _numbers(point.x, digits=6),
                    "y": _numbers(point.y),
                    "texts": list(point.texts) or [point.name] * len(point.x),
                    "colour": place,
                    "own": point.own,
                    "dashed": point.dashed,
                }
                for place, point in enumerate(points)
            ],
            "front": [[_number(x, 6), _number(y)] for x, y in pareto(pairs)],
            "bound": bound,
            "xMost": x_most,
            "xLabel": x_label,
            "yLabel": y_label,
            "height": height,
        },
    )


def against(
    description: str,
    points: Sequence[ScatterPoint],
    *,
    x_label: str,
    y_label: str,
    height: int = 320,
) -> Html:
    """Two values of one quantity, such as seen and predicted, beside the line where they agree.

    Args:
        description: The content in words, for readers who do not see it.
        points: Groups, each with a colour and a button.
        x_label: Of the first values.
        y_label: Of the others.
        height: Pixels.

    Returns:
        Markup: a `<div>` with the chart's numbers. Positive values that span more than a power of
        ten stand on logarithmic axes.
    """
    known = [
        (
            group,
            [
                i
                for i, pair in enumerate(zip(group.x, group.y, strict=True))
                if all(map(math.isfinite, pair))
            ],
        )
        for group in points
    ]
    values = [value for group, rows in known for i in rows for value in (group.x[i], group.y[i])]
    least, most = min(values, default=0.0), max(values, default=1.0)
    return _chart(
        description,
        {
            "pairs": [
                {
                    "name": group.name,
                    "x": [_number(group.x[i], 6) for i in rows],
                    "y": [_number(group.y[i], 6) for i in rows],
                    "texts": [group.texts[i] if group.texts else group.name for i in rows],
                }
                for group, rows in known
            ],
            "colours": {group.name: place for place, group in enumerate(points)},
            "least": least,
            "most": most,
            "log": 0 < 10 * least < most,
            "xLabel": x_label,
            "yLabel": y_label,
            "height": height,
        },
    )


def pareto(pairs: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The pairs that no other undercuts in both numbers, by the first.

    >>> pareto([(2, 5), (1, 9), (3, 7), (4, 4)])
    [(1, 9), (2, 5), (4, 4)]
    """
    found: list[tuple[float, float]] = []
    for x, y in sorted(pairs):
        if not found or y < found[-1][1]:
            found.append((x, y))
    return found


def choice(label: str, parts: Mapping[str, Html]) -> Html:
    """Parts of which the reader sees one at a time.

    Args:
        label: What is chosen, such as "Load".
        parts: Markup by its name in the list; the first is shown.

    Returns:
        Markup: a `<select>` and the parts; the first part alone where there is one.
    """
    if len(parts) == 1:
        return next(iter(parts.values()))
    options = "".join(f"<option>{html.escape(name)}</option>" for name in parts)
    shown = "\n".join(f'<div class="chosen">{part}</div>' for part in parts.values())
    select = f'<label>{html.escape(label)} <select class="choice">{options}</select></label>'
    return Html(f"<div>{select}\n{shown}</div>")


def _chart(description: str, content: Mapping[str, object]) -> Html:
    # "</script" would end the element early, and "<!--<script" would keep it open.
    data = json.dumps(content, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    label = html.escape(description, quote=True)
    return Html(
        f'<div class="chart" role="img" aria-label="{label}">'
        f'<script type="application/json">{data}</script></div>'
        f'<noscript><p class="said">{html.escape(description)} (The chart needs JavaScript.)</p>'
        "</noscript>"
    )


def _numbers(values: Sequence[float], digits: int = 4) -> list[float | None]:
    return [_number(value, digits) for value in values]


def _number(value: float, digits: int = 4) -> float | None:
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() else rounded
