"""The course of a search for cost and lateness: its trials and their gain, drawn and kept."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dsp_gym.config.files import write_atomic
from dsp_gym.experiments.tuning.study import GAIN, PATIENCE, SearchResult, costs_at
from dsp_gym.pages.charts import pareto
from dsp_gym.pages.figures import figure

_EXTRA, _PURPOSE = "tune", "drawing the course of a search"


def write_course(
    folder: Path,
    label: str,
    found: SearchResult,
    levels: tuple[float, ...],
    about: Mapping[str, object],
) -> tuple[Path, Path]:
    """Write LABEL-course.json and LABEL-course.svg, whole or not at all.

    Args:
        folder: Where they go.
        label: Of the policy.
        found: Result of the search.
        levels: Levels of lateness at which costs are compared.
        about: Facts of the objective and the search.

    Returns:
        Both files.
    """
    data, drawn = folder / f"{label}-course.json", folder / f"{label}-course.svg"
    document = {
        **about,
        "stop": {"patience": PATIENCE, "gain": GAIN},
        "settled": found.has_settled,
        "default": [_rounded(found.default.value), _rounded(found.default.late)],
        "trials": [[_rounded(one.value), _rounded(one.late)] for one in found.scores],
    }
    write_atomic(data, json.dumps(document) + "\n")
    write_atomic(drawn, _drawn(label, found, levels))
    return data, drawn


def _drawn(label: str, found: SearchResult, levels: tuple[float, ...]) -> bytes:
    """Draw the cheapest setting at each level after each trial, and all trials in the plane."""
    scores = (found.default, *found.scores)
    costs = np.array([costs_at([one], levels) for one in scores])
    # Beyond this nobody compares; a default may be late all the time.
    most = 300 * max(levels)
    shown = [(100 * one.late, one.value) for one in scores if 100 * one.late <= most]
    with figure(8.4, 3.4, salt=label, extra=_EXTRA, purpose=_PURPOSE) as drawn:
        course, plane = drawn.subplots(1, 2)
        for level, column in zip(levels, costs.T, strict=True):
            least = np.minimum.accumulate(column)
            reached = np.flatnonzero(np.isfinite(least))
            course.step(reached, least[reached], where="post", label=f"{100 * level:g} % late")
        course.set(xlabel="trials", ylabel="cost, of the reference configuration")
        course.set_xlim(0, max(1, found.trials))
        course.legend(frameon=False)
        if shown:
            plane.plot(*zip(*shown, strict=True), "o", ms=2.5, alpha=0.4)
            plane.step(*zip(*pareto(shown), strict=True), where="post", lw=1.2)
        for level in levels:
            plane.axvline(100 * level, ls=":", lw=0.8, color="#8a9099")
        plane.set(xlabel="late, % of the time", ylabel="cost, of the reference configuration")
        plane.set_xlim(0, most)
        drawn.suptitle(f"{label}: {found.trials} trials", fontsize=10)
        stream = io.BytesIO()
        drawn.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    return stream.getvalue()


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")
