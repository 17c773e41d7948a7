"""The report of a scorecard: a table per job, every metric, charts, and how to read them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from dsp_gym.evaluation import charts
from dsp_gym.evaluation.headline import (
    KNOWING,
    Standing,
    headline,
    largest_late_share,
    own,
    standings,
)
from dsp_gym.evaluation.results import Report, ReportPart, Table
from dsp_gym.evaluation.results import render_html as render
from dsp_gym.evaluation.scorecard import (
    EPISODE_METRICS,
    IntervalEstimate,
    Saving,
    Scorecard,
    ScorecardRow,
)
from dsp_gym.evaluation.statistics import Difference
from dsp_gym.pages import (
    Emphasis,
    code,
    details,
    heading,
    number,
    percent,
    signed,
    table,
)

__all__ = [
    "metric_label",
    "number",
    "ranked_table",
    "render_html",
    "report_of",
    "summary",
    "validity_notes",
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


def metric_label(name: str, currency: str) -> str:
    """Say what a metric is called in a table, with the currency of money.

    Args:
        name: The metric's name.
        currency: Of the scorecard.

    Returns:
        The label.

    >>> metric_label("cost", "EUR"), metric_label("rescales", "EUR")
    ('cost, requested, EUR', 'rescales')
    """
    return f"{METRIC_LABELS[name]}, {currency}" if name in MONEY else METRIC_LABELS[name]


def summary(scorecard: Scorecard, job: str) -> Table:
    """List every metric of one job, with the differences from the reference below the values.

    Args:
        scorecard: The scorecard.
        job: Which job.

    Returns:
        A table with a column per policy.
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
    return Table("All metrics", ("", *scorecard.policies), tuple(rows))


def ranked_table(scorecard: Scorecard, job: str, *, wide: bool = False) -> Table:
    """List the policies of one job, best first.

    Args:
        scorecard: The scorecard.
        job: Name of the job.
        wide: Add what does not fit 80 columns.

    Returns:
        A table with a row per policy.
    """
    rows = [scorecard.row(one.policy, job) for one in standings(scorecard, [job])]
    reference, saved = scorecard.reference, any(row.saving is not None for row in rows)
    columns = ["policy", f"cost, {scorecard.currency}"]
    columns += [] if reference is None else [f"vs {reference}"]
    columns += ["late", "latency p95", "rescales"]
    if wide:
        columns += ["core-hours", "GiB-hours", "downtime, s", "lag, s"]
        columns += [SAVING] if saved else []

    def value(row: ScorecardRow, metric: str) -> str:
        return _estimate(row.metrics.get(metric), interval=False)

    def cells(row: ScorecardRow) -> tuple[str, ...]:
        found = [row.policy, _estimate(row.metrics["cost"], interval=wide)]
        found += [] if reference is None else [_relative(row, "cost")]
        late, latency = f"{percent(row.metrics['slo_share'].value)} %", value(row, "latency_p95_s")
        found += [late, latency if latency == "–" else f"{latency} s", value(row, "rescales")]
        if wide:
            found += [value(row, metric) for metric in ("core_h", "gib_h", "down_s", "lag_s")]
            if saved:
                found.append("–" if row.saving is None else _saving_share(row.saving))
        return tuple(found)

    return Table(job, tuple(columns), tuple(map(cells, rows)))


def _over_all_jobs(scorecard: Scorecard) -> Table:
    """List the policies over all jobs: what the headline speaks of."""
    found = standings(scorecard)
    reference = next((one for one in found if one.policy == scorecard.reference), None)
    head = ["policy", f"cost, {scorecard.currency}"]
    head += [] if reference is None else [f"vs {reference.policy}"]

    def cells(one: Standing) -> tuple[str, ...]:
        cost = [number(one.cost)]
        if reference is not None:
            same = one is reference
            cost.append("–" if same else f"{signed(100 * (one.cost / reference.cost - 1))} %")
        return (one.policy, *cost, f"{percent(one.late)} %")

    return Table("All jobs", (*head, "late"), tuple(map(cells, found)))


def validity_notes(scorecard: Scorecard, job: str) -> list[str]:
    """Say how far the runs of a job went from what its model was fitted to.

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
    """Return the share with the violations it was bought with."""
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


def report_of(scorecard: Scorecard, origin: str = "") -> Report:
    """Make the report of a scorecard.

    Args:
        scorecard: The scorecard.
        origin: How it was made.

    Returns:
        A part per job; with several jobs, all of them together come first.
    """
    whole = _over_all_jobs(scorecard)
    parts = [_job_part(scorecard, job) for job in scorecard.jobs]
    if len(parts) > 1:
        emphasis = _emphasis(scorecard, scorecard.jobs)
        parts.insert(0, ReportPart(whole, whole, emphasis))
    meanings = [
        (metric_label(name, scorecard.currency), about) for name, about in EPISODE_METRICS.items()
    ]
    return Report(
        title=str(scorecard.config.get("description") or "Scorecard"),
        headline=headline(scorecard),
        parts=tuple(parts),
        reading=(_explained(scorecard),),
        origin=origin,
        folded=(
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


def render_html(scorecard: Scorecard) -> str:
    """Render the report of a scorecard as one page without any outside reference.

    Returns:
        HTML of one page.
    """
    return render(report_of(scorecard))


def _explained(scorecard: Scorecard) -> str:
    runs = len(scorecard.cells) // (len(scorecard.policies) * len(scorecard.jobs))
    confidence = 100 * float(scorecard.config.get("confidence", 0.95))
    saving = any(row.saving is not None for row in scorecard.rows)
    text = (
        f"{_counted(len(scorecard.policies), 'policy', 'policies')} on "
        f"{_counted(len(scorecard.jobs), 'job')}, {_counted(runs, 'run')} each on the same loads "
        f"and seeds. Values are {scorecard.statistic}s with {confidence:g} % bootstrap intervals. "
        f"Lower values are better{f'; of the {SAVING}, higher ones' if saving else ''}."
    )
    if len(scorecard.jobs) > 1:
        text += " Over all jobs, costs are the geometric mean of the jobs' values."
    if scorecard.reference is not None:
        text += f" Differences are paired with {scorecard.reference}."
    if saving:
        text += (
            " The share of the possible saving is 0 % for the cheapest fixed configuration that "
            "carries the peak and 100 % at the bound, which no policy that keeps the SLO can pass; "
            "read it beside the late share of the time, because lateness saves money too."
        )
    return text


def _counted(count: int, one: str, several: str | None = None) -> str:
    """Write a number with its noun."""
    return f"{count} {one if count == 1 else several or f'{one}s'}"


def _emphasis(scorecard: Scorecard, jobs: Sequence[str]) -> dict[int, Emphasis]:
    """Return the rows that stand out: the cheapest that is rarely late, and the reader's own."""
    found, mine = standings(scorecard, jobs), own(scorecard)
    emphasis: dict[int, Emphasis] = {
        place: "mine" for place, one in enumerate(found) if one.policy in mine
    }
    if found[0].keeps and found[0].policy not in KNOWING:
        emphasis[0] = "best mine" if 0 in emphasis else "best"
    return emphasis


def _job_part(scorecard: Scorecard, job: str) -> ReportPart:
    shown: list[str] = []
    if len(scorecard.policies) > 1:
        allowed = percent(largest_late_share(scorecard))
        shown += [
            heading("Cost and lateness"),
            f"Shaded: late at most {allowed} % of the time. Dotted: no policy is better in both.",
            charts.cost_and_lateness(scorecard, job),
        ]
    if any(run.job == job for run in scorecard.timelines):
        shown += [
            heading("Over time"),
            "The first seed of a load, chosen before any result was known. Ticks are rescales.",
            charts.over_time(scorecard, job),
        ]
    whole, short = ranked_table(scorecard, job, wide=True), ranked_table(scorecard, job)
    # A late job's latency exceeds its bound: the whole table has that column.
    heads = [one for one in short.head if one != "latency p95" or scorecard.reference is None]
    return ReportPart(
        table=whole,
        short=short,
        lead=whole.leading(heads),
        emphasis=_emphasis(scorecard, [job]),
        charts=tuple(shown),
        more=(summary(scorecard, job),),
        caveats=tuple(validity_notes(scorecard, job)),
    )
