"""The scorecard as tables for a terminal and as one page for a browser."""

from __future__ import annotations

import math
from pathlib import Path

from dsp_gym.config.files import write_atomic
from dsp_gym.evaluation.counterfactual.claims import Claim, Estimated
from dsp_gym.evaluation.counterfactual.evaluation import CounterfactualEvaluation
from dsp_gym.pages import COLOURS, INK, Html, figure, note, page, section, svg, table

__all__ = ["CLAIM_COLUMNS", "claim_rows", "error_rows", "verdict_rows", "write_page"]

CLAIM_COLUMNS = (
    "policy",
    "cost, % vs. now",
    "late, points vs. now",
    "cost/h",
    "late",
    "lag s",
    "rescales/day",
    "agrees",
    "within 1",
    "regret/h",
    "trips",
)

_SHOWN = {
    "subtasks": "subtasks",
    "cost_per_h": "cost per hour",
    "lag_s": "backlog, seconds of arrivals",
}


def claim_rows(evaluated: CounterfactualEvaluation) -> list[tuple[str, ...]]:
    """One row per policy in the order of `CLAIM_COLUMNS`, figures with their 95 % intervals.

    Returns:
        Formatted cells, money per hour, lag in s; "–" where a figure is not known.
    """
    return [
        (
            one.policy,
            _change(one.figures.get("saving"), -100.0, 1),
            _change(one.figures.get("later"), 100.0, 2),
            _shown(one, "cost_per_h", "{:.3g}"),
            _shown(one, "slo_share", "{:.2%}"),
            _shown(one, "lag_s", "{:.3g}"),
            _shown(one, "rescales_per_day", "{:.3g}"),
            _share(one.agreement),
            _share(one.near),
            "–" if one.regret_per_h is None else f"{one.regret_per_h:.3g}",
            str(sum(one.trips.values())),
        )
        for one in evaluated.claims
    ]


def error_rows(evaluated: CounterfactualEvaluation) -> list[tuple[str, str, str, str]]:
    """The model's error on the observed run.

    Returns:
        Rows of (figure, model, observed, error).
    """
    error = evaluated.error
    rows = (
        ("backlog, seconds of arrivals", error.lag_s, "{:.3g}", f"{error.lag:.1%}"),
        ("late share of the time", error.slo_share, "{:.2%}", f"{error.slo:.2%} of the time"),
        ("cost per hour", error.cost_per_h, "{:.3g}", f"{error.cost:.1%}"),
    )
    found = [
        (name, words.format(said), words.format(seen), off)
        for name, (said, seen), words, off in rows
    ]
    if error.slo_range is not None:
        low, high = error.slo_range
        left = f"{error.slo_unexplained:.2%} of the time beyond it"
        span = f"{low:.2%} to {high:.2%}"
        found.append(("late, over the capacity's interval", span, found[1][2], left))
    return found


def verdict_rows(evaluated: CounterfactualEvaluation, policy: str) -> list[tuple[str, str, str]]:
    """One row per reason of a policy's verdict: subject, mark, text.

    Returns:
        (subject, mark, text); the mark is "holds", "not yet" or "speaks against".
    """
    marks = {(True, False): "holds", (False, False): "not yet", (False, True): "speaks against"}
    return [
        (
            reason.subject,
            marks[reason.holds, reason.speaks_against and not reason.holds],
            reason.text,
        )
        for reason in evaluated.verdicts[policy].reasons
    ]


def write_page(evaluated: CounterfactualEvaluation, file: Path) -> Path:
    """Writes the page, whole or not at all; plots need Matplotlib.

    Returns:
        The file.
    """
    watched = (
        f"{evaluated.days:.2f} days, {evaluated.decisions} decisions, {evaluated.coverage:.1%} of "
        f"the decision slots covered, {evaluated.held} slots without a snapshot or an answer."
    )
    parts: list[str] = [watched]
    parts += [
        section(
            f"{policy}: {verdict.word}",
            table(("", "", "why"), verdict_rows(evaluated, policy), prose=True),
        )
        for policy, verdict in evaluated.verdicts.items()
    ]
    claims: list[str] = [
        "The calibrated model of the job starts from the observed state and runs forward under "
        "the observed load with the policy in charge. In brackets: 95 % intervals, which cover "
        "the spread over the model's seeds and the model's own error.",
        table(CLAIM_COLUMNS, claim_rows(evaluated)),
    ]
    if not any(one.figures for one in evaluated.claims):
        claims.append(note("No claims: the model's error on the observed run is too large."))
    parts.append(section("What each policy would have done", *claims))
    parts.append(
        section(
            "The model's error on the observed run",
            "The same model, replayed with the configurations that were deployed.",
            table(("", "model", "observed", "error"), error_rows(evaluated)),
        )
    )
    parts.append(section("Over time", *_plots(evaluated)))
    trips = [
        (one.policy, name, str(count))
        for one in evaluated.claims
        for name, count in one.trips.items()
    ]
    if trips:
        parts.append(section("Guardrails", table(("policy", "guardrail", "decisions"), trips)))
    parts += [note(text) for text in evaluated.notes]
    return write_atomic(file, page(f"{evaluated.job}: what policies would have done", *parts))


def _plots(evaluated: CounterfactualEvaluation) -> list[Html]:
    drawn = []
    hours = [t / 3600 for t in evaluated.line.t_s]
    for key, label in _SHOWN.items():
        with figure(9.0, 2.6, salt=f"scorecard-{key}", extra="plan", purpose="the plots") as shown:
            axes = shown.subplots()
            axes.plot(
                hours, evaluated.line.observed[key], color=INK, label="observed", linewidth=1.6
            )
            for colour, (name, series) in zip(
                COLOURS * 4, evaluated.line.predicted.items(), strict=False
            ):
                axes.plot(
                    hours,
                    series[key],
                    color=colour,
                    linewidth=1.0,
                    label="model, replayed" if name == "incumbent" else name,
                )
            axes.set_xlabel("hours")
            axes.set_ylabel(label)
            axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
            drawn.append(svg(shown, f"{label} over time: observed, and under each policy"))
    return drawn


def _shown(one: Claim, name: str, words: str) -> str:
    found: Estimated | None = one.figures.get(name)
    if found is None:
        return "–"
    return f"{words.format(found.value)} [{words.format(found.low)}, {words.format(found.high)}]"


def _change(found: Estimated | None, factor: float, digits: int) -> str:
    """A figure against the incumbent's, with its sign and interval."""
    if found is None:
        return "–"
    low, high = sorted((factor * found.low, factor * found.high))
    value = factor * found.value + 0.0  # no negative zero
    return f"{value:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"


def _share(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.0%}"
