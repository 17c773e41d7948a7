"""The scorecard for people: tables for the terminal, and one HTML page that needs nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dsp_gym.config.files import write_atomic
from dsp_gym.evaluation import charts
from dsp_gym.evaluation.headline import KNOWING, headline, largest_late_share, own, ranked
from dsp_gym.evaluation.scorecard import (
    EPISODE_METRICS,
    Difference,
    IntervalEstimate,
    Saving,
    Scorecard,
    ScorecardRow,
)
from dsp_gym.pages import (
    Emphasis,
    Html,
    code,
    details,
    heading,
    lead,
    note,
    number,
    page,
    section,
    signed,
    table,
)

__all__ = [
    "RankedTable",
    "Summary",
    "metric_label",
    "number",
    "percent",
    "render_html",
    "ranked_table",
    "summary",
    "validity_notes",
    "write_report",
]

METRIC_LABELS: dict[str, str] = {
    "slo_s": "SLO seconds",
    "slo_share": "share of the time",
    "latency_p50_s": "latency p50, s",
    "latency_p95_s": "latency p95, s",
    "latency_p99_s": "latency p99, s",
    "lag_s": "lag, s",
    "core_h": "core-hours",
    "gib_h": "GiB-hours",
    "cost": "cost, requested",
    "cost_provisioned": "cost, provisioned",
    "rescales": "rescales",
    "down_s": "downtime, s",
    "settling_s": "settling time, s",
    "overshoot": "overshoot",
    "interventions": "interventions",
}
"""What a metric is called in a table."""

MONEY = ("cost", "cost_provisioned")
"""Metrics in the currency of the scorecard."""


SAVING = "share of the possible saving"


@dataclass(frozen=True, slots=True)
class Summary:
    """One job's table: metrics down, policies across."""

    job: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class RankedTable:
    """One job's table: policies down, best first, the few metrics that decide across."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    policies: tuple[str, ...]  # of the rows
    best: str | None  # the cheapest that is late no longer than allowed; none: all are


def metric_label(name: str, currency: str) -> str:
    """What a metric is called in a table, with the currency of money.

    Args:
        name: The metric's name.
        currency: Of the scorecard.

    Returns:
        The label.

    >>> metric_label("cost", "EUR"), metric_label("rescales", "EUR")
    ('cost, requested, EUR', 'rescales')
    """
    return f"{METRIC_LABELS[name]}, {currency}" if name in MONEY else METRIC_LABELS[name]


def percent(share: float) -> str:
    """A share in percent for people: two digits that matter.

    Returns:
        Digits; no unit.

    >>> percent(0.0123), percent(0.304), percent(0.999)
    ('1.2', '30', '100')
    """
    return f"{100 * share:.0f}" if abs(share) >= 0.1 else f"{100 * share:.2g}"


def summary(scorecard: Scorecard, job: str) -> Summary:
    """Every metric of one job, with the differences from the reference below the values.

    Args:
        scorecard: The scorecard.
        job: Which job.

    Returns:
        Column names, and rows of text.
    """
    found = [scorecard.row(policy, job) for policy in scorecard.policies]
    rows = [
        (
            metric_label(name, scorecard.currency),
            *(_estimate(row.metrics.get(name)) for row in found),
        )
        for name in EPISODE_METRICS
    ]
    if any(row.saving is not None for row in found):
        rows.append((SAVING, *(_saving(row) for row in found)))
    guardrails = sorted({name for row in found for name, count in row.trips.items() if count})
    rows += [
        (f"  by {name}", *(number(row.trips.get(name, 0.0)) for row in found))
        for name in guardrails
    ]
    if scorecard.reference is not None:
        rows.append(
            (f"cost against {scorecard.reference}", *(_relative(row, "cost") for row in found))
        )
        rows.append(
            (f"SLO s against {scorecard.reference}", *(_absolute(row, "slo_s") for row in found))
        )
    return Summary(job, ("", *scorecard.policies), tuple(rows))


def ranked_table(scorecard: Scorecard, job: str, *, wide: bool = False) -> RankedTable:
    """The policies of one job, best first.

    Args:
        scorecard: The scorecard.
        job: Which job.
        wide: Add what does not fit 80 columns.

    Returns:
        The table.
    """
    rows, reference = ranked(scorecard, job), scorecard.reference
    columns = ["policy", f"cost, {scorecard.currency}"]
    if reference is not None:
        columns.append(f"vs {reference}")
    columns += ["late", "latency p95", "rescales"]
    if wide:
        columns += ["core-hours", "GiB-hours", "downtime, s", "lag, s"]
        saved = any(row.saving is not None for row in rows)
        columns += [SAVING] if saved else []

    def value(row: ScorecardRow, metric: str) -> str:
        return _estimate(row.metrics.get(metric), interval=False)

    def cells(row: ScorecardRow) -> tuple[str, ...]:
        found = [row.policy, _estimate(row.metrics["cost"], interval=wide)]
        if reference is not None:
            found.append(_relative(row, "cost"))
        late, latency = f"{percent(row.metrics['slo_share'].value)} %", value(row, "latency_p95_s")
        found += [late, latency if latency == "–" else f"{latency} s", value(row, "rescales")]
        if wide:
            found += [value(row, metric) for metric in ("core_h", "gib_h", "down_s", "lag_s")]
            if saved:
                found.append("–" if row.saving is None else _saving_share(row.saving))
        return tuple(found)

    allowed = largest_late_share(scorecard)
    keeping = (row for row in rows if row.policy not in KNOWING)
    best = next((row for row in keeping if row.metrics["slo_share"].value <= allowed), None)
    return RankedTable(
        tuple(columns),
        tuple(map(cells, rows)),
        tuple(row.policy for row in rows),
        None if best is None else best.policy,
    )


def validity_notes(scorecard: Scorecard, job: str) -> list[str]:
    """How far the runs of a job went from what its model was fitted to.

    Returns:
        The interval of its capacity, and what lay outside the fit, policies gathered; empty
        without evidence of a fit.
    """
    found = [one for one in scorecard.validity if one.job == job]
    factors = [one.capacity_factor for one in found if one.capacity_factor is not None]
    notes = []
    if factors:
        low, high = (f"{value:.2f}" for value in (min(factors), max(factors)))
        text = low if low == high else f"{low} to {high}, by policy"
        notes.append(f"capacities of the model hold within a factor of {text} (90 % interval)")
    said: dict[str, list[str]] = {}
    for one in found:
        for sentence in one.sentences:
            said.setdefault(sentence, []).append(one.policy)
    for sentence, policies in said.items():
        everyone = len(policies) == len(found)
        notes.append(sentence if everyone else f"{sentence} ({', '.join(policies)})")
    return notes


def _estimate(estimate: IntervalEstimate | None, interval: bool = True) -> str:
    if estimate is None:
        return "–"
    if not interval or estimate.low == estimate.high:
        return number(estimate.value)
    return f"{number(estimate.value)} [{number(estimate.low)}, {number(estimate.high)}]"


def _saving(row: ScorecardRow) -> str:
    """The share with the violations it was bought with."""
    if row.saving is None:
        return "–"
    return f"{_saving_share(row.saving)}, {percent(row.metrics['slo_share'].value)} % late"


def _saving_share(saving: Saving) -> str:
    share, low, high = (100 * x for x in (saving.share, saving.low, saving.high))
    interval = "" if low == high else f" [{low:.0f}, {high:.0f}]"
    return f"{share:.0f}{interval} %"


def _relative(row: ScorecardRow, metric: str) -> str:
    found = row.relative.get(metric)
    if found is None:
        return "–"
    return _between(found, lambda share: signed(100 * share)) + " %"


def _absolute(row: ScorecardRow, metric: str) -> str:
    found = row.differences.get(metric)
    return "–" if found is None else _between(found, signed)


def _between(found: Difference, shown: Callable[[float], str]) -> str:
    if found.low == found.high:
        return shown(found.estimate)
    return f"{shown(found.estimate)} [{shown(found.low)}, {shown(found.high)}]"


def write_report(scorecard: Scorecard, folder: str | Path) -> dict[str, Path]:
    """Writes scorecard.json, cells.csv and report.html.

    Returns:
        What was written, by kind: `json`, `csv`, `html`.
    """
    folder = Path(folder)
    return {
        "json": write_atomic(folder / "scorecard.json", scorecard.to_json()),
        "csv": write_atomic(folder / "cells.csv", scorecard.to_csv()),
        "html": write_atomic(folder / "report.html", render_html(scorecard)),
    }


def render_html(scorecard: Scorecard) -> str:
    """The whole report as one page without any outside reference.

    Returns:
        HTML of one page.
    """
    meanings = [
        (metric_label(name, scorecard.currency), about) for name, about in EPISODE_METRICS.items()
    ]
    return page(
        str(scorecard.config.get("description") or "Scorecard"),
        lead(headline(scorecard)),
        *(_job_section(scorecard, job) for job in scorecard.jobs),
        section(
            "How to read and repeat this",
            _lead(scorecard),
            details("Metrics", table(("metric", "meaning"), meanings, prose=True)),
            details(
                "Versions",
                table(("of", "version"), sorted(scorecard.versions.items()), prose=True),
            ),
            details(
                "The benchmark as it was run",
                code(json.dumps(scorecard.config, indent=2, sort_keys=True)),
            ),
        ),
    )


def _lead(scorecard: Scorecard) -> str:
    runs = len(scorecard.cells) // (len(scorecard.policies) * len(scorecard.jobs))
    confidence = 100 * float(scorecard.config.get("confidence", 0.95))
    saving = any(row.saving is not None for row in scorecard.rows)
    text = (
        f"{_counted(len(scorecard.policies), 'policy', 'policies')} on "
        f"{_counted(len(scorecard.jobs), 'job')}, {_counted(runs, 'run')} each on the same loads "
        f"and seeds. Values are interquartile means with {confidence:g} % bootstrap intervals. "
        f"Lower values are better{f'; of the {SAVING}, higher ones' if saving else ''}."
    )
    if scorecard.reference is not None:
        text += f" Differences are paired with {scorecard.reference}."
    if saving:
        text += (
            " The share of the possible saving is 0 % for the cheapest fixed configuration that "
            "carries the peak and 100 % at the bound, which no policy that keeps the SLO can pass; "
            "the late share of the time stands beside it, because lateness saves money too."
        )
    return text


def _counted(count: int, one: str, several: str | None = None) -> str:
    """A number with its noun."""
    return f"{count} {one if count == 1 else several or f'{one}s'}"


def _job_section(scorecard: Scorecard, job: str) -> Html:
    shown, every = ranked_table(scorecard, job, wide=True), summary(scorecard, job)
    mine, allowed = own(scorecard), percent(largest_late_share(scorecard))
    emphasis: dict[int, Emphasis] = {}
    for place, policy in enumerate(shown.policies):
        if policy == shown.best:
            emphasis[place] = "best mine" if policy in mine else "best"
        elif policy in mine:
            emphasis[place] = "mine"
    parts: list[str] = [table(shown.columns, shown.rows, emphasis=emphasis)]
    beyond = validity_notes(scorecard, job)
    if beyond:
        folded = (note(text) for text in beyond)
        parts.append(details(f"Where the model of {job} is beyond its fit", *folded))
    if len(scorecard.policies) > 1:
        parts += [
            heading("Cost and lateness"),
            f"Shaded: late at most {allowed} % of the time. Dotted: no policy is better in both.",
            charts.cost_and_lateness(scorecard, job),
        ]
    if any(run.job == job for run in scorecard.timelines):
        parts += [
            heading("Over time"),
            "The first seed of a load, chosen before any result was known. Ticks are rescales.",
            charts.over_time(scorecard, job),
        ]
    parts.append(details("All metrics", table(every.columns, every.rows)))
    return section(job, *parts)
