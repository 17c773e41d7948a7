"""The scorecard's figures as SVG text, the same bytes for the same scorecard.

Runs over time follow figure 5 of Justin: rate against target on top, cores and memory below; the
latency is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from dsp_gym.evaluation.scorecard import IntervalEstimate, RunTimeline, Scorecard
from dsp_gym.pages import COLOURS, GREY, INK, Html, figure, svg

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["BAR_METRICS", "bars", "timelines"]

BAR_METRICS: dict[str, str] = {
    "cost": "cost, requested",
    "cost_provisioned": "cost, provisioned",
    "slo_s": "SLO seconds",
}
"""Metrics drawn as bars, with their titles."""


BETWEEN = 0.12
"""Room between two runs side by side, as a share of their length."""


def bars(scorecard: Scorecard, job: str) -> Html:
    """Draws interquartile means with their intervals, one bar per policy.

    Returns:
        One `<svg>`.
    """
    policies = scorecard.policies
    places = range(len(policies))
    with _figure(3.4 * len(BAR_METRICS), 0.7 + 0.34 * len(policies), f"bars {job}") as drawn:
        axes = drawn.subplots(1, len(BAR_METRICS), sharey=True)
        for axis, (metric, title) in zip(axes, BAR_METRICS.items(), strict=True):
            nothing = IntervalEstimate(value=0.0, low=0.0, high=0.0)  # the bound is a cost alone
            found = [scorecard.row(policy, job).metrics.get(metric, nothing) for policy in policies]
            values = [estimate.value for estimate in found]
            # An interval need not hold its estimate, but a whisker must not be negative.
            below = [max(0.0, estimate.value - estimate.low) for estimate in found]
            above = [max(0.0, estimate.high - estimate.value) for estimate in found]
            axis.barh(places, values, color=[_colour(place) for place in places], height=0.62)
            axis.errorbar(
                values, places, xerr=[below, above], fmt="none", ecolor=INK, capsize=3, lw=1
            )
            axis.set_title(title, loc="left")
            axis.set_xlim(left=0)
            axis.grid(visible=True, axis="x")
        axes[0].set_yticks(places, policies)
        axes[0].invert_yaxis()
        return svg(drawn, f"{', '.join(BAR_METRICS.values())} by policy on {job}")


def timelines(scorecard: Scorecard, job: str) -> Html:
    """Draws one run per policy over time, policies side by side.

    Returns:
        One `<svg>`.
    """
    runs = [run for run in scorecard.timelines if run.job == job]
    hours = max((run.t_s[-1] / 3600 for run in runs if run.t_s), default=1.0)
    with _figure(2.9 * max(len(runs), 2), 6.4, f"time {job}") as drawn:
        # One axis per quantity: an axis per run, too, takes ten times as long to lay out and draw.
        axes = drawn.subplots(4, 1, sharex=True)
        for column, run in enumerate(runs):
            colour = _colour(scorecard.policies.index(run.policy))
            _draw_run(axes, run, column * (1 + BETWEEN) * hours, colour)
        labels = ("records/s", "cores", "memory, GiB", "p95 latency, s")
        for axis, label in zip(axes, labels, strict=True):
            axis.set_ylabel(label)
            axis.grid(visible=True)
        for axis in axes[:3]:  # once all are drawn: it ends autoscaling of the axis
            axis.set_ylim(bottom=0)
        if runs:
            legend = {"loc": "lower right", "bbox_to_anchor": (1, 1), "ncols": 2}
            axes[0].legend(*_first_two(axes[0]), frameon=False, **legend)
            axes[-1].axhline(runs[0].slo_latency_s, color=INK, lw=0.8, ls="--")
        _number_hours(axes[-1], len(runs), hours)
        return svg(drawn, f"rate, cores, memory and latency over time on {job}")


def _draw_run(axes: Sequence[Axes], run: RunTimeline, left_h: float, colour: str) -> None:
    """Draws a run whose time begins at `left_h` of the axes."""
    rate, cores, memory, latency = axes
    hours = [left_h + t_s / 3600 for t_s in run.t_s]
    rate.plot(hours, run.target_per_s, color=GREY, lw=2.4, label="target")
    rate.plot(hours, run.rate_per_s, color=colour, lw=1, label="processed")
    # Above the power of ten of the axis.
    rate.text(left_h, 1.14, run.policy, transform=rate.get_xaxis_transform(), fontsize="medium")
    cores.step(hours, run.cores, color=colour, where="pre")
    memory.step(hours, [mib / 1024 for mib in run.memory_mib], color=colour, where="pre")
    # A logarithmic axis has no zero; a millisecond is below anything that matters here.
    latency.semilogy(hours, [max(s, 1e-3) for s in run.latency_p95_s], color=colour, lw=1)


def _first_two(axis: Axes) -> tuple[list[Artist], list[str]]:
    """The first run's lines with their labels: those of the others mean the same."""
    lines, labels = axis.get_legend_handles_labels()
    return lines[:2], labels[:2]


def _number_hours(axis: Axes, runs: int, hours: float) -> None:
    """Counts the hours of each run from 0."""
    from matplotlib.ticker import MaxNLocator

    each = [float(at) for at in MaxNLocator(4).tick_values(0, hours) if 0 <= at <= hours]
    lefts = [column * (1 + BETWEEN) * hours for column in range(runs)]
    axis.set_xticks([left + at for left in lefts for at in each], [f"{at:g}" for at in each] * runs)
    axis.set_xlim(-BETWEEN * hours / 2, (max(runs, 1) * (1 + BETWEEN) - BETWEEN / 2) * hours)
    axis.set_xlabel("hours")


def _figure(width_in: float, height_in: float, salt: str) -> AbstractContextManager[Figure]:
    return figure(width_in, height_in, salt=salt, extra="train", purpose="drawing the HTML report")


def _colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]
