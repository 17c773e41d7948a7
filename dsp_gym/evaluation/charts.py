"""The charts of a scorecard: cost against lateness, and runs over time."""

from __future__ import annotations

from typing import Literal

from dsp_gym.evaluation.headline import KNOWING, largest_late_share, own, standings
from dsp_gym.evaluation.scorecard import RunTimeline, Scorecard
from dsp_gym.pages import Curve, Html, Mark, Panel, ScatterPoint, choice, curves, money, scatter

NUMBERS_IN_A_PAGE = 150_000
"""About a megabyte; longer curves are thinned."""

LOAD = "load"

HEIGHT, HEIGHT_ALONE = 160, 300
"""Pixels of a panel; curves of a single policy are what its page is for."""


def cost_and_lateness(scorecard: Scorecard, job: str) -> Html:
    """Draw every policy in the plane of lateness and cost, the bound on lateness shaded.

    Returns:
        Markup.
    """
    mine, points = own(scorecard), []
    for row in (scorecard.row(policy, job) for policy in scorecard.policies):
        if row.policy == KNOWING[0]:
            continue  # a cost alone
        late, cost = 100 * row.metrics["slo_share"].value, row.metrics["cost"].value
        text = (
            f"{row.policy}: costs {money(cost, scorecard.currency)}, late {late:.3g} % of the time"
        )
        points.append(ScatterPoint(row.policy, [late], [cost], [text], row.policy in mine))
    return scatter(
        f"Cost against lateness of {len(points)} policies on {job}.",
        points,
        x_label="late, share of the time",
        y_label=f"{scorecard.currency} per run",
        bound=100 * largest_late_share(scorecard),
    )


def over_time(scorecard: Scorecard, job: str) -> Html:
    """Load, resources and latency of every policy, one load at a time.

    Returns:
        Markup; empty where no run was kept.
    """
    runs = [run for run in scorecard.timelines if run.job == job]
    by_load: dict[str, list[RunTimeline]] = {}
    for run in runs:
        by_load.setdefault(f"{run.load}, seed {run.seed}", []).append(run)
    room = max(100, NUMBERS_IN_A_PAGE // max(1, 4 * len(scorecard.timelines)))
    best = standings(scorecard, [job])[0].policy
    shown = own(scorecard) | {best, scorecard.reference or best}  # what a reader compares first
    hidden = [policy for policy in scorecard.policies if policy not in shown]
    parts = {load: _curves(job, load, kept, room, hidden) for load, kept in by_load.items()}
    return choice("Load", parts) if parts else Html("")


def _curves(job: str, load: str, runs: list[RunTimeline], shown: int, hidden: list[str]) -> Html:
    first, latency = runs[0], "Latency, 95th percentile"
    height = HEIGHT if len(runs) > 1 else HEIGHT_ALONE
    load_lines = [*_of(runs, "rate_per_s"), Curve(LOAD, first.target_per_s, "dashed")]
    panels = [
        Panel("Load", load_lines, "records/s", height=height),
        Panel(latency, _of(runs, "latency_p95_s"), "s", first.slo_latency_s, height),
        Panel("Cores", _of(runs, "cores", "step"), "requested", height=height),
        Panel("Memory", _of(runs, "memory_mib", "step", 1 / 1024), "GiB, requested", height=height),
    ]
    marks = [Mark(one.t_s, run.policy, one.reason) for run in runs for one in run.rescales]
    description = f"{job} under {load}: load, latency, cores and memory of {len(runs)} policies."
    return curves(description, first.t_s, panels, marks, shown=shown, hidden=hidden)


def _of(
    runs: list[RunTimeline],
    quantity: str,
    style: Literal["line", "step"] = "line",
    factor: float = 1.0,
) -> list[Curve]:
    """Return one curve per run."""
    return [
        Curve(run.policy, [factor * value for value in getattr(run, quantity)], style)
        for run in runs
    ]
