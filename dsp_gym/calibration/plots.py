"""The report's figures as SVG text: predicted against seen, fitted and held-out runs apart."""

from __future__ import annotations

import html
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dsp_gym.calibration.errors import Compared
from dsp_gym.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["figures"]

_FITTED, _HELD_OUT, _INK = "#9aa1ab", "#3b6ea8", "#1f2430"
Points = list[tuple[float, float, bool]]


def figures(compared: Sequence[Compared]) -> str:
    """Rate, busyness, hit rate and read latency, predicted over seen, as one `<svg>`."""
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
    with _figure(13.0, 3.5) as figure:
        for axis, (title, points, log) in zip(figure.subplots(1, 4), panels, strict=True):
            _draw(axis, title, points, log)
        return _svg(figure, "predicted over seen: rate, busyness, hit rate, read latency")


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
    axis.plot(ends, ends, color=_INK, lw=0.8)
    for in_fit, colour, label in ((True, _FITTED, "fitted"), (False, _HELD_OUT, "held out")):
        some = [point for point in points if point[2] == in_fit]
        axis.scatter([p[0] for p in some], [p[1] for p in some], s=18, color=colour, label=label)
    axis.legend(frameon=False)
    axis.grid(visible=True)


_STYLE: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#c4c8cf",
    "axes.labelsize": 9,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "font.family": "sans-serif",
    "grid.color": "#e6e8ec",
    "legend.fontsize": 8,
    "svg.fonttype": "none",  # text stays text: small, and in the page's font
    "svg.hashsalt": "calibration",
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}


@contextmanager
def _figure(width: float, height: float) -> Iterator[Figure]:
    """A figure drawn with our settings whatever the user's are."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise MissingExtraError("plan", "drawing the calibration's report") from error
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield Figure(figsize=(width, height), layout="constrained")


def _svg(figure: Figure, description: str) -> str:
    """The figure as an `<svg>` element for a page."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    label = html.escape(description, quote=True)
    return text[text.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
