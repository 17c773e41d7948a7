"""The scorecard for people: tables for the terminal, and one HTML page that needs nothing else."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from dsp_gym.config.files import write_atomic
from dsp_gym.errors import MissingExtraError
from dsp_gym.evaluation import plots
from dsp_gym.evaluation.scorecard import METRICS, Difference, Estimate, Row, Scorecard

__all__ = ["Summary", "number", "render_html", "summary", "write_report"]

LABELS: dict[str, str] = {
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


SAVING = "share of the possible saving"


@dataclass(frozen=True, slots=True)
class Summary:
    """One job's table: metrics down, policies across."""

    job: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def number(value: float) -> str:
    """A number for people: three digits that matter, thousands in full.

    >>> number(0.012345), number(12.345), number(123456.7)
    ('0.0123', '12.3', '123,457')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def summary(scorecard: Scorecard, job: str, intervals: Collection[str] = tuple(METRICS)) -> Summary:
    """The table of one job, with the differences from the reference below the values.

    Args:
        scorecard: The scorecard.
        job: Which job.
        intervals: Metrics shown with their intervals; a terminal has no room for all.
    """
    found = [scorecard.row(policy, job) for policy in scorecard.policies]
    rows = [
        (LABELS[name], *(_estimate(row.metrics.get(name), name in intervals) for row in found))
        for name in METRICS
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


def _estimate(estimate: Estimate | None, interval: bool) -> str:
    if estimate is None:
        return "–"
    if not interval or estimate.low == estimate.high:
        return number(estimate.value)
    return f"{number(estimate.value)} [{number(estimate.low)}, {number(estimate.high)}]"


def _saving(row: Row) -> str:
    """The share with the violations it was bought with."""
    if row.saving is None:
        return "–"
    late = f"{100 * row.metrics['slo_share'].value:.2g} % late"
    share, low, high = (100 * x for x in (row.saving.share, row.saving.low, row.saving.high))
    interval = "" if low == high else f" [{low:.0f}, {high:.0f}]"
    return f"{share:.0f}{interval} %, {late}"


def _relative(row: Row, metric: str) -> str:
    found = row.relative.get(metric)
    if found is None:
        return "–"
    return _between(found, lambda share: f"{100 * share:+.1f}") + " %"


def _absolute(row: Row, metric: str) -> str:
    found = row.differences.get(metric)
    return "–" if found is None else _between(found, _signed)


def _signed(value: float) -> str:
    return f"+{number(value)}" if value > 0 else number(value)


def _between(found: Difference, shown: Callable[[float], str]) -> str:
    if found.low == found.high:
        return shown(found.estimate)
    return f"{shown(found.estimate)} [{shown(found.low)}, {shown(found.high)}]"


def write_report(scorecard: Scorecard, folder: str | Path) -> dict[str, Path]:
    """Writes scorecard.json, cells.csv and, where matplotlib is installed, report.html.

    Returns:
        What was written, by kind: `json`, `csv`, `html`.
    """
    folder = Path(folder)
    written = {
        "json": write_atomic(folder / "scorecard.json", scorecard.to_json()),
        "csv": write_atomic(folder / "cells.csv", scorecard.to_csv()),
    }
    try:
        page = render_html(scorecard)
    except MissingExtraError:
        return written
    return written | {"html": write_atomic(folder / "report.html", page)}


def render_html(scorecard: Scorecard) -> str:
    """The whole report as one page without any outside reference.

    Raises:
        MissingExtraError: Matplotlib, which draws the figures, is not installed.
    """
    title = scorecard.config.get("description") or "Scorecard"
    sections = "\n".join(_job_section(scorecard, job) for job in scorecard.jobs)
    return _PAGE.format(
        title=html.escape(str(title)),
        style=_STYLE,
        lead=_lead(scorecard),
        sections=sections,
        meanings=_table(("metric", "what it is"), [(LABELS[n], t) for n, t in METRICS.items()]),
        versions=_table(("of", "version"), sorted(scorecard.versions.items())),
        config=html.escape(json.dumps(scorecard.config, indent=2, sort_keys=True)),
    )


def _lead(scorecard: Scorecard) -> str:
    runs = len(scorecard.cells) // (len(scorecard.policies) * len(scorecard.jobs))
    confidence = 100 * float(scorecard.config.get("confidence", 0.95))
    text = (
        f"{len(scorecard.policies)} policies on {len(scorecard.jobs)} jobs, {runs} runs each on "
        f"the same loads and seeds. Values are interquartile means with {confidence:g} % bootstrap "
        "intervals; less is better everywhere."
    )
    if scorecard.reference is not None:
        text += f" Differences are paired with {scorecard.reference}."
    if any(row.saving is not None for row in scorecard.rows):
        text += (
            " The share of the possible saving is 0 % for the cheapest fixed configuration that "
            "carries the peak and 100 % at the bound, which no policy that keeps the SLO can pass; "
            "how much of the time was late stands beside it, because lateness saves money too."
        )
    return html.escape(text)


def _job_section(scorecard: Scorecard, job: str) -> str:
    table = summary(scorecard, job)
    runs = [run for run in scorecard.timelines if run.job == job]
    parts = [
        f"<section><h2>{html.escape(job)}</h2>",
        _scrolled(_table(table.columns, table.rows)),
        _scrolled(plots.bars(scorecard, job)),
    ]
    if runs:
        caption = f"Load {runs[0].load}, seed {runs[0].seed}: the first of each, not a chosen one."
        parts.append(f"<h3>Over time</h3><p>{html.escape(caption)}</p>")
        parts.append(_scrolled(plots.timelines(scorecard, job)))
    return "\n".join([*parts, "</section>"])


def _scrolled(content: str) -> str:
    return f'<div class="wide">{content}</div>'


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>\n"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>"


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2430; background: #fff;
       max-width: 1200px; margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-top: 1px solid #e6e8ec;
       padding-top: 1.5rem; }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .75rem; text-align: right; border-bottom: 1px solid #e6e8ec;
         white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
details td { white-space: normal; text-align: left; }
pre { background: #f6f7f9; padding: 1rem; overflow-x: auto; font-size: 12px; }
"""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<h1>{title}</h1>
<p>{lead}</p>
{sections}
<section>
<h2>How to read and repeat this</h2>
<details><summary>What the metrics are</summary>{meanings}</details>
<details><summary>Versions</summary>{versions}</details>
<details><summary>The benchmark as it was run</summary><pre>{config}</pre></details>
</section>
</body>
</html>
"""
