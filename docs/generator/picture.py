"""The README's picture: cost against lateness on jobs and loads that nobody had seen."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

SCHEMES = {
    "light": {
        "ink": "#1f2430",
        "faint": "#e3e6ea",
        "own": "#2f62a0",
        "rule": "#c04a32",
        "known": "#6b7280",
    },
    "dark": {
        "ink": "#e4e7ec",
        "faint": "#2c323b",
        "own": "#6ea6e8",
        "rule": "#f08a70",
        "known": "#a3abb8",
    },
}
OWN = ("planner", "learned-ppo")
SHOWN = ("clairvoyant", *OWN)
"""Beside the tuned rules."""

LABELS = {"flink-autoscaler-tuned": (0, 7, -3), "justin-artifact-tuned": (-1, 4, -14)}
"""Point that carries the name, and where the name stands from there; else right of the last."""

MOST_LATE = 4.0
"""Percent; where the picture ends."""


def draw(cell: Mapping[str, Any], folder: Path) -> None:
    """Writes `core-v2-light.svg` and `core-v2-dark.svg`.

    Args:
        cell: A cell of what is kept of the frontier.
        folder: Where they go.
    """
    for scheme, colours in SCHEMES.items():
        with matplotlib.rc_context():
            matplotlib.rcdefaults()
            matplotlib.rcParams.update(
                {"svg.hashsalt": "core-v2", "font.family": "sans-serif", "font.size": 10}
            )
            figure = Figure(figsize=(8.4, 3.9), layout="constrained")
            _draw(figure, cell, colours)
            file = folder / f"core-v2-{scheme}.svg"
            figure.savefig(file, transparent=True, metadata={"Date": None, "Creator": None})


def _draw(figure: Figure, cell: Mapping[str, Any], colours: Mapping[str, str]) -> None:
    axis = figure.subplots()
    for one in cell["policies"]:
        name, own = one["policy"], one["policy"] in OWN
        points = sorted((100 * late, cost) for late, cost in one["points"])
        points = [point for point in points if point[0] <= MOST_LATE]
        if not points or not (one["rule"] or name in SHOWN):
            continue
        colour = colours["own" if own else "rule" if one["rule"] else "known"]
        style = "-" if own else "--" if one["rule"] else ":"
        late, cost = zip(*points, strict=True)
        axis.plot(late, cost, style, color=colour, marker="o", ms=4, lw=2.2 if own else 1.4)
        said = f"{name} (knows the load)" if name == "clairvoyant" else name
        place, right, up = LABELS.get(name, (-1, 7, -3))
        weight = "bold" if name == "planner" else "normal"
        where = {"xytext": (right, up), "textcoords": "offset points"}
        axis.annotate(said, points[place], color=colour, weight=weight, **where)
    axis.set_xlim(0, MOST_LATE + 1)
    axis.set_ylim(bottom=0)
    axis.set_xlabel("late, % of the time", color=colours["ink"])
    axis.set_ylabel("cost per job and day", color=colours["ink"])
    axis.tick_params(colors=colours["ink"], length=0)
    axis.grid(visible=True, color=colours["faint"], lw=0.8)
    axis.set_axisbelow(True)
    for side in axis.spines.values():
        side.set_visible(False)
