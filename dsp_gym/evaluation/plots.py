"""The scorecard's figures as SVG text, the same bytes for the same scorecard.

Runs over time follow figure 5 of Justin: rate against target on top, cores and memory below; the
latency is ours.
"""

from __future__ import annotations

import html
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dsp_gym.errors import MissingExtraError
from dsp_gym.evaluation.scorecard import Estimate, Scorecard, Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["BARS", "bars", "timelines"]

BARS: dict[str, str] = {
    "cost": "cost, requested",
    "cost_provisioned": "cost, provisioned",
    "slo_s": "SLO seconds",
}
"""Metrics drawn as bars, with their titles."""

_COLOURS = ("#3b6ea8", "#c8553d", "#4f8f5b", "#8e6bbf", "#b0892f", "#3c9aa0", "#a8517e", "#6b7280")
_TARGET, _INK = "#9aa1ab", "#1f2430"


def bars(scorecard: Scorecard, job: str) -> str:
    """Interquartile means with their intervals, one bar per policy, as SVG."""
    policies = scorecard.policies
    places = range(len(policies))
    with _figure(3.4 * len(BARS), 0.7 + 0.34 * len(policies), f"bars {job}") as figure:
        axes = figure.subplots(1, len(BARS), sharey=True)
        for axis, (metric, title) in zip(axes, BARS.items(), strict=True):
            nothing = Estimate(value=0.0, low=0.0, high=0.0)  # the bound is a cost alone
            found = [scorecard.row(policy, job).metrics.get(metric, nothing) for policy in policies]
            values = [estimate.value for estimate in found]
            # An interval need not hold its estimate, but a whisker must not be negative.
            below = [max(0.0, estimate.value - estimate.low) for estimate in found]
            above = [max(0.0, estimate.high - estimate.value) for estimate in found]
            axis.barh(places, values, color=[_colour(place) for place in places], height=0.62)
            axis.errorbar(
                values, places, xerr=[below, above], fmt="none", ecolor=_INK, capsize=3, lw=1
            )
            axis.set_title(title, loc="left")
            axis.set_xlim(left=0)
            axis.grid(visible=True, axis="x")
        axes[0].set_yticks(places, policies)
        axes[0].invert_yaxis()
        return _svg(figure, f"{', '.join(BARS.values())} by policy on {job}")


def timelines(scorecard: Scorecard, job: str) -> str:
    """One run per policy over time, policies side by side, as SVG."""
    runs = [run for run in scorecard.timelines if run.job == job]
    with _figure(2.9 * max(len(runs), 2), 6.4, f"time {job}") as figure:
        grid = figure.subplots(4, len(runs), sharex=True, sharey="row", squeeze=False)
        for column, run in enumerate(runs):
            _draw_run(list(grid[:, column]), run, _colour(scorecard.policies.index(run.policy)))
        for axis, label in zip(
            grid[:, 0], ("records/s", "cores", "memory, GiB", "p95 latency, s"), strict=True
        ):
            axis.set_ylabel(label)
        for axis in grid[:3, 0]:  # once all are drawn: it ends autoscaling of the shared axis
            axis.set_ylim(bottom=0)
        return _svg(figure, f"rate, cores, memory and latency over time on {job}")


def _draw_run(axes: Sequence[Axes], run: Timeline, colour: str) -> None:
    rate, cores, memory, latency = axes
    hours = [t_s / 3600 for t_s in run.t_s]
    rate.plot(hours, run.target_per_s, color=_TARGET, lw=2.4, label="target")
    rate.plot(hours, run.rate_per_s, color=colour, lw=1, label="processed")
    rate.set_title(run.policy, loc="left")
    rate.legend(loc="lower right", frameon=False)
    cores.step(hours, run.cores, color=colour, where="pre")
    memory.step(hours, [mib / 1024 for mib in run.memory_mib], color=colour, where="pre")
    # A logarithmic axis has no zero; a millisecond is below anything that matters here.
    latency.semilogy(hours, [max(s, 1e-3) for s in run.latency_p95_s], color=colour, lw=1)
    latency.axhline(run.slo_latency_s, color=_INK, lw=0.8, ls="--")
    latency.set_xlabel("hours")
    for axis in axes:
        axis.grid(visible=True)


def _colour(place: int) -> str:
    return _COLOURS[place % len(_COLOURS)]


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
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}


@contextmanager
def _figure(width: float, height: float, salt: str) -> Iterator[Figure]:
    """A figure drawn with our settings whatever the user's are; `salt` keeps its ids its own."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise MissingExtraError("train", "drawing the HTML report") from error
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({**_STYLE, "svg.hashsalt": salt})
        yield Figure(figsize=(width, height), layout="constrained")


def _svg(figure: Figure, description: str) -> str:
    """The figure as an `<svg>` element for a page."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    label = html.escape(description, quote=True)
    return text[text.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
