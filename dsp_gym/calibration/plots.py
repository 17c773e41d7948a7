"""The report's figures as SVG text: predicted against seen, fitted and held-out runs apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dsp_gym.calibration.errors import Compared
from dsp_gym.pages import COLOURS, GREY, INK, Html, figure, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["figures"]

_FITTED, _HELD_OUT = GREY, COLOURS[0]
Points = list[tuple[float, float, bool]]


def figures(compared: Sequence[Compared]) -> Html:
    """Plots rate, busyness, hit rate and read latency, predicted over measured.

    Returns:
        One `<svg>`.
    """
    panels: list[tuple[str, Points, bool]] = [
        (
            "rate, records/s",
            [(c.seen.rate_per_s, c.predicted.rate_per_s, c.in_fit) for c in compared],
            True,
        ),
        ("busy", _points(compared, "busy"), False),
        ("hit rate", _points(compared, "hit"), False),
        ("read latency, us", _points(compared, "read_us"), True),
    ]
    with figure(
        13.0, 3.5, salt="calibration", extra="plan", purpose="drawing the calibration's report"
    ) as drawn:
        for axis, (title, points, log) in zip(drawn.subplots(1, 4), panels, strict=True):
            _draw(axis, title, points, log)
        handles, labels = drawn.axes[0].get_legend_handles_labels()
        drawn.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
        return svg(drawn, "predicted over seen: rate, busyness, hit rate, read latency")


def _points(compared: Sequence[Compared], quantity: str) -> Points:
    found = []
    for c in compared:
        said: Mapping[str, float] = getattr(c.predicted, quantity)
        found += [
            (value, said[v], c.in_fit)
            for v, value in getattr(c.seen, quantity).items()
            if v in said
        ]
    return found


def _draw(axis: Axes, title: str, points: Points, log: bool) -> None:
    axis.set_title(title, loc="left")
    axis.set_xlabel("seen")
    if not points:
        return
    if log:
        axis.set_xscale("log")
        axis.set_yscale("log")
    ends = [bound(value for point in points for value in point[:2]) for bound in (min, max)]
    axis.plot(ends, ends, color=INK, lw=0.8)
    for in_fit, colour, label in ((True, _FITTED, "fitted"), (False, _HELD_OUT, "held out")):
        some = [point for point in points if point[2] == in_fit]
        axis.scatter([p[0] for p in some], [p[1] for p in some], s=18, color=colour, label=label)
    axis.grid(visible=True)
