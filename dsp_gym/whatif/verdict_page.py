"""The scorecard as tables for a terminal and as one page for a browser."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from dsp_gym.config.files import write_atomic
from dsp_gym.control.modes import INCUMBENT
from dsp_gym.job.cost import HOURS_A_MONTH
from dsp_gym.pages import (
    Curve,
    Html,
    Judgement,
    Panel,
    curves,
    details,
    judged,
    lead,
    note,
    number,
    page,
    section,
    span,
    table,
)
from dsp_gym.whatif.evaluation import CounterfactualEvaluation
from dsp_gym.whatif.headline import headline, monthly_saving, ranked
from dsp_gym.whatif.model_error import Claim, Estimated
from dsp_gym.whatif.verdict import Verdict, watched_text

__all__ = ["claim_columns", "claim_rows", "error_rows", "verdict_rows", "write_page"]

OBSERVED, REPLAYED = "incumbent, observed", "incumbent, by the model"

_PANELS: Mapping[str, tuple[str, str, Literal["line", "step"]]] = {
    "subtasks": ("Tasks", "subtasks", "step"),
    "cost_per_h": ("Cost", "{currency} per hour", "step"),
    "latency_p95_s": ("Latency, 95th percentile", "s", "line"),
    "lag_s": ("Backlog", "s of arrivals", "line"),
}

_HOW: Mapping[str, Judgement] = {
    "promote": "good",
    "rescue": "good",
    "keep watching": "wait",
    "reject": "bad",
}


def claim_columns(evaluated: CounterfactualEvaluation) -> tuple[str, ...]:
    """The columns of `claim_rows`.

    Returns:
        Their headings, with the currency of the costs.
    """
    return (
        "policy",
        "cost, % vs. now",
        "late, points vs. now",
        f"{evaluated.currency}/h",
        "late",
        "lag s",
        "rescales/day",
        "agrees",
        "within 1",
        f"regret, {evaluated.currency}/h",
        "trips",
    )


def claim_rows(evaluated: CounterfactualEvaluation) -> list[tuple[str, ...]]:
    """One row per policy in the order of `claim_columns`, figures with their 95 % intervals.

    Returns:
        Formatted cells, money per hour, lag in s; "–" where a figure is not known.
    """
    return [
        (
            one.policy,
            _change(one.figures.get("saving"), -100.0),
            _change(one.figures.get("later"), 100.0),
            _shown(one, "cost_per_h"),
            _shown(one, "slo_share", 100.0, " %"),
            _shown(one, "lag_s"),
            _shown(one, "rescales_per_day"),
            _share(one.agreement),
            _share(one.near),
            "–" if one.regret_per_h is None else number(one.regret_per_h),
            f"{sum(one.trips.values()):,}",
        )
        for one in evaluated.claims
    ]


def error_rows(evaluated: CounterfactualEvaluation) -> list[tuple[str, str, str, str]]:
    """The model's error on the observed run.

    Returns:
        Rows of (figure, model, observed, error).
    """
    error = evaluated.error
    lag, late, cost = error.lag_s, error.slo_share, error.cost_per_h
    off = f"{_percent(error.slo)} of the time"
    found = [
        ("backlog, seconds of arrivals", number(lag[0]), number(lag[1]), _percent(error.lag)),
        ("late share of the time", _percent(late[0]), _percent(late[1]), off),
        (f"{evaluated.currency} per hour", number(cost[0]), number(cost[1]), _percent(error.cost)),
    ]
    if error.slo_range is not None:
        low, high = map(_percent, error.slo_range)
        left = f"{_percent(error.slo_unexplained)} of the time beyond it"
        name = "late, over the capacity's interval"
        found.append((name, f"{low} to {high}", found[1][2], left))
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
    """Writes the page, whole or not at all.

    Returns:
        The file.
    """
    title = f"{evaluated.job}: what policies would have done"
    return write_atomic(file, page(title, *_parts(evaluated)))


def _parts(evaluated: CounterfactualEvaluation) -> Iterator[str]:
    yield lead(headline(evaluated))
    yield (
        f"Watched for {watched_text(evaluated.days)}: {evaluated.decisions:,} decisions, "
        f"{_percent(evaluated.coverage)} of the decision slots, {evaluated.held:,} slots without a "
        "snapshot or an answer."
    )
    yield section("Verdicts", *_verdicts(evaluated))
    yield section(
        "Over time",
        "In front the incumbent, as observed; behind it the model, replayed with the deployed "
        "configurations and with each policy in charge. Green: within the SLO.",
        _over_time(evaluated),
    )
    yield section("What each policy would have done", *_claims(evaluated))
    yield section(
        "The model's error on the observed run",
        "The same model, replayed with the deployed configurations.",
        table(("", "model", "observed", "error"), error_rows(evaluated)),
    )
    if evaluated.notes:
        yield section("Notes", table((), [(text,) for text in evaluated.notes], prose=True))


def _verdicts(evaluated: CounterfactualEvaluation) -> Iterator[str]:
    policies = [one.policy for one in ranked(evaluated)]
    if not policies:
        yield "No policy but the incumbent was watched."
        return
    of = {policy: evaluated.verdicts[policy] for policy in policies}
    criteria = of[policies[0]].reasons
    rows: list[tuple[str, ...]] = [("needed", "", *(reason.needed for reason in criteria))]
    rows += [(policy, *_judged(verdict)) for policy, verdict in of.items()]
    yield "✓ holds, … more has to be seen, ✗ speaks against the policy."
    yield table(
        ("policy", "verdict", *(reason.subject for reason in criteria)), rows, emphasis={1: "best"}
    )
    for policy, verdict in of.items():
        texts = table(("", "", "why"), verdict_rows(evaluated, policy), prose=True)
        yield details(f"{policy}: {verdict.word}, in words", texts)


def _judged(verdict: Verdict) -> Iterator[Html]:
    """The row of a verdict: its word, and every criterion."""
    yield judged(verdict.word, _HOW[verdict.word])
    for reason in verdict.reasons:
        how: Judgement = "bad" if reason.speaks_against else "wait"
        yield judged(reason.found, "good" if reason.holds else how)


def _claims(evaluated: CounterfactualEvaluation) -> Iterator[str]:
    yield (
        "The calibrated model of the job starts from the observed state and runs forward under "
        "the observed load with the policy in charge. In brackets: 95 % intervals, which cover "
        f"the spread over the model's seeds and the model's own error. A month has {HOURS_A_MONTH} "
        "hours."
    )
    if not any(one.figures for one in evaluated.claims):
        yield note("No claims: the model's error on the observed run is too large.")
    rows = [(row[0], _month(evaluated, row[0]), *row[1:]) for row in claim_rows(evaluated)]
    first, *others = claim_columns(evaluated)
    yield table((first, f"saves, {evaluated.currency} a month", *others), rows)
    trips = [
        (one.policy, name, f"{count:,}")
        for one in evaluated.claims
        for name, count in one.trips.items()
    ]
    if trips:
        yield details("Guardrails", table(("policy", "guardrail", "trips"), trips))


def _month(evaluated: CounterfactualEvaluation, policy: str) -> str:
    saved = None if policy == INCUMBENT else monthly_saving(evaluated, policy)
    return "–" if saved is None else span(saved.value, saved.low, saved.high)


def _over_time(evaluated: CounterfactualEvaluation) -> Html:
    line = evaluated.line
    kept = set(list(evaluated.verdicts)[:1] + [one.policy for one in ranked(evaluated)][:2])
    panels = [Panel("Load", [Curve(OBSERVED, line.observed["load_per_s"])], "records/s")]
    for key, (title, unit, style) in _PANELS.items():
        curves_of = [
            Curve(REPLAYED if name == INCUMBENT else name, series[key], style)
            for name, series in line.predicted.items()
        ]
        bound = line.slo_latency_s if key == "latency_p95_s" else None
        panels.append(
            Panel(
                title,
                [Curve(OBSERVED, line.observed[key], style), *curves_of],
                unit.format(currency=evaluated.currency),
                bound,
            )
        )
    hidden = [REPLAYED, *(name for name in evaluated.verdicts if name not in kept)]
    said = (
        f"{evaluated.job}: load, tasks, cost, latency and backlog, observed and under each policy."
    )
    return curves(said, line.t_s, panels, hidden=hidden)


def _shown(one: Claim, name: str, factor: float = 1.0, unit: str = "") -> str:
    found: Estimated | None = one.figures.get(name)
    if found is None:
        return "–"
    return f"{span(factor * found.value, factor * found.low, factor * found.high)}{unit}"


def _change(found: Estimated | None, factor: float) -> str:
    """A figure against the incumbent's, with its sign and interval."""
    if found is None:
        return "–"
    low, high = sorted((factor * found.low, factor * found.high))
    return span(factor * found.value, low, high, sign=True)


def _share(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.0%}"


def _percent(share: float) -> str:
    return f"{number(100 * share)} %"
