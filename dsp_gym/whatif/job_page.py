"""The page of one job: what it met, what ran, and what each policy would have run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Literal

from dsp_gym.control.modes import INCUMBENT
from dsp_gym.job.cost import HOURS_A_MONTH
from dsp_gym.pages import (
    Curve,
    Html,
    Judgement,
    Mark,
    Panel,
    curves,
    details,
    judged,
    lead,
    link,
    money,
    note,
    number,
    page,
    section,
    signed,
    span,
    table,
)
from dsp_gym.whatif.result import JobResult, PolicyClaim, Trust
from dsp_gym.whatif.verdict import assumption_text, watched_text

OBSERVED, REPLAYED = "now, observed", "now, by the model"

CLAIM_COLUMNS = (
    "policy",
    "saves a month",
    "may be claimed",
    "saves, %",
    "late",
    "late, points vs. now",
    "backlog, s",
    "rescales/day",
    "agrees",
)

BESIDE_COLUMNS = ("", "costs a month", "late", "rescales/day", "saves a month")

HOW: Mapping[str, Judgement] = {
    "promote": "good",
    "rescue": "good",
    "keep watching": "wait",
    "reject": "bad",
}

PANELS: Mapping[str, tuple[str, str, Literal["line", "step"]]] = {
    "subtasks": ("Tasks", "subtasks without sources", "step"),
    "latency_s": ("Latency, 95th percentile", "s", "line"),
    "lag_s": ("Backlog", "s of arrivals", "line"),
    "cost_per_h": ("Cost", "{currency} per hour", "step"),
}

SHOWN_CHANGES = 300
"""Rescales of a policy that are named; the first ones."""


def job_page(job: JobResult, trust: Trust) -> str:
    """The page of a job.

    Args:
        job: what was found about it.
        trust: bounds of a claim.

    Returns:
        HTML of one page without outside references, but for the link to the fleet's page.
    """
    return page(f"{job.name}: what policies would have saved", *_parts(job, trust))


def share(value: float | None) -> str:
    """A share of the time for people.

    Returns:
        Per cent, or "–" where it is not known.

    >>> share(0.0123), share(None)
    ('1.23 %', '–')
    """
    return "–" if value is None or math.isnan(value) else f"{number(100 * value)} %"


def then(now: float | None, later: float) -> str:
    """A share of the time now and under a policy.

    Returns:
        Both, with an arrow between them.
    """
    return f"{share(now)} → {share(later)}"


def headline(job: JobResult, best: PolicyClaim | None = None) -> str:
    """The result of a job in one sentence; a policy whose lateness forbids it is not named.

    Args:
        job: what was found about it.
        best: the claim about the policy to name; None: that about the job's best one.

    Returns:
        What that policy would save, the verdict, and what that assumes; or why there is none.
    """
    best = best or job.best
    if not job.claims:
        return f"{job.name}: {_nothing_replayed(job)}."
    if best is None:
        return f"{job.name}: no policy is sure to keep its lateness within the bound."
    saved, later, currency = best.saving_per_month, 100 * best.later.value, job.currency
    base = None if job.incumbent is None else job.incumbent.policy
    against = "" if base is None else f" against {base}"
    amount = f"save {money(saved.value, currency)} a month"
    ends = saved.low, saved.high
    if saved.value < 0:
        amount, ends = f"cost {money(-saved.value, currency)} a month more", (-ends[1], -ends[0])
        against = "" if base is None else f" than {base}"
    low, high = map(number, ends)
    between = "" if low == high else f" ({low} to {high})"
    said = f"{best.policy} would {amount}{against}{between}, late {signed(round(later, 2))} points"
    bad = [one for one in best.reasons if one.speaks_against and not one.holds]
    wanting = bad or [one for one in best.reasons if not one.holds]
    why = [f"{one.subject}: {one.found} ({one.needed} needed)" for one in wanting]
    assumed = [f"not measured: {assumption_text(one)}" for one in best.assumed if one.decides]
    words = "; ".join([", ".join([best.verdict, *why]), *assumed])
    return f"{said}; verdict: {words}."


def _nothing_replayed(job: JobResult) -> str:
    """Why a job has no figures of any policy."""
    if not job.failures:
        return "no policy was replayed beside the deployed configurations"
    why = "; ".join(f"{policy}: {text.rstrip('.')}" for policy, text in job.failures.items())
    return f"no policy could be replayed: {why}"


def verdict_rows(claim: PolicyClaim) -> list[tuple[str, str, str]]:
    """One row for each reason of a verdict, and for each assumption.

    Returns:
        (subject, mark, text); the mark is "holds", "not yet", "speaks against" or "assumed".
    """
    rows = []
    for one in claim.reasons:
        mark = "holds" if one.holds else "speaks against" if one.speaks_against else "not yet"
        rows.append((one.subject, mark, one.text))
    return [*rows, *(("not measured", "assumed", assumption_text(one)) for one in claim.assumed)]


def _parts(job: JobResult, trust: Trust) -> Iterator[str]:
    yield link("All jobs", "index.html")
    yield lead(headline(job))
    seen = job.observed
    yield (
        f"Watched for {watched_text(seen.days)}: {job.intervals:,} intervals, "
        f"{share(seen.coverage)} of the slots are known, {seen.held:,} without a snapshot or an "
        "answer."
    )
    for text in (*job.distrust, *job.notes):
        yield note(text)
    yield section("Verdicts", *_verdicts(job))
    if job.incumbent is not None:
        yield section(
            f"What leaving {job.incumbent.policy} would save",
            f"Cost and lateness under the observed load, in {job.currency} per month of "
            f"{HOURS_A_MONTH} hours; in brackets: 95 % intervals. {job.incumbent.policy} was not "
            "observed: it starts from the configuration that was deployed first, without "
            "guardrails, and its rescales last as long as those of the job.",
            table(BESIDE_COLUMNS, beside_rows(job)),
        )
    yield section("Over time", *_over_time(job))
    columns = list(CLAIM_COLUMNS)
    if job.incumbent is not None:
        columns[5] = f"late, points vs. {job.incumbent.policy}"
    yield section(
        "What each policy would have saved",
        f"Amounts in {job.currency} per month of {HOURS_A_MONTH} hours. In brackets: 95 % "
        "intervals.",
        table(columns, [_claim_row(one) for one in job.ranked()]),
        *_trips(job),
    )
    yield section(
        "The model's error on the deployed configurations",
        f"Nothing is claimed beyond {100 * trust.cost:g} % in cost, {100 * trust.late:g} points "
        f"of lateness or {100 * trust.lag:g} % of the backlog.",
        table(("", "model", "observed"), _error_rows(job)),
    )
    yield section("Decisions", *_decisions(job))


def beside_rows(job: JobResult) -> list[tuple[str, ...]]:
    """The deployed configurations, the policy that the others would replace, and the others.

    Returns:
        Cells in the order of `BESIDE_COLUMNS`; empty if the deployed configurations are what the
        policies would replace.
    """
    base, seen = job.incumbent, job.observed
    if base is None:
        return []
    cost, late = base.cost_per_month, base.late
    rows: list[tuple[str, ...]] = [
        (OBSERVED, number(seen.cost_per_month), share(seen.late), number(seen.rescales_per_day), "")
    ]
    rows.append(
        (
            base.policy,
            span(cost.value, cost.low, cost.high),
            f"{span(100 * late.value, 100 * late.low, 100 * late.high)} %",
            number(base.rescales_per_day),
            "",
        )
    )
    for one in job.ranked():
        late, saved = one.late, one.saving_per_month
        rows.append(
            (
                one.policy,
                number(cost.value - saved.value),
                f"{span(100 * late.value, 100 * late.low, 100 * late.high)} %",
                number(one.rescales_per_day),
                span(saved.value, saved.low, saved.high),
            )
        )
    return rows


def _verdicts(job: JobResult) -> Iterator[str]:
    ranked = job.ranked()
    if not ranked:
        yield "No policy but the deployed configurations was replayed."
        return
    criteria = ranked[0].reasons
    rows: list[tuple[str, ...]] = [("needed", "", *(one.needed for one in criteria))]
    rows += [(one.policy, *_judged(one)) for one in ranked]
    yield "✓ holds, … more has to be seen, ✗ speaks against the policy."
    columns = ("policy", "verdict", *(one.subject for one in criteria))
    yield table(columns, rows, emphasis={1: "best"})
    for one in ranked:
        texts = table(("", "", "why"), verdict_rows(one), prose=True)
        yield details(f"{one.policy}: {one.verdict}, in words", texts)


def _judged(claim: PolicyClaim) -> Iterator[Html]:
    """The row of a verdict: its word, and every criterion."""
    yield judged(claim.verdict, HOW[claim.verdict])
    for one in claim.reasons:
        how: Judgement = "bad" if one.speaks_against else "wait"
        yield judged(one.found, "good" if one.holds else how)


def _trips(job: JobResult) -> Iterator[str]:
    trips = [(c.policy, name, f"{n:,}") for c in job.claims for name, n in c.trips.items()]
    if trips:
        yield details("Guardrails", table(("policy", "guardrail", "trips"), trips))


def _claim_row(one: PolicyClaim) -> tuple[str, ...]:
    saved, relative, late, later = one.saving_per_month, one.saving, one.late, one.later
    return (
        one.policy,
        span(saved.value, saved.low, saved.high),
        number(one.claimed_per_month),
        span(100 * relative.value, 100 * relative.low, 100 * relative.high),
        f"{span(100 * late.value, 100 * late.low, 100 * late.high)} %",
        span(100 * later.value, 100 * later.low, 100 * later.high, sign=True),
        number(one.lag_s),
        number(one.rescales_per_day),
        "–" if one.agreement is None else f"{one.agreement:.0%}",
    )


def _error_rows(job: JobResult) -> list[tuple[str, str, str]]:
    seen = job.observed
    return [
        ("cost a month", number(seen.model_cost_per_month), number(seen.cost_per_month)),
        ("late share of the time", share(seen.model_late), share(seen.late)),
        ("backlog, s of arrivals", _number(seen.model_lag_s), _number(seen.lag_s)),
        ("rescales a day", "as observed", number(seen.rescales_per_day)),
    ]


def _number(value: float | None) -> str:
    return "–" if value is None else number(value)


def _over_time(job: JobResult) -> Iterator[str]:
    yield (
        "In front what was observed; behind it the model, replayed with the deployed "
        "configurations and with each policy in charge. Each point stands for several slots: the "
        "highest latency and backlog of them, and the mean of the rest. Green: within the SLO. "
        "Ticks are rescales."
    )

    def drawn(values: tuple[float | None, ...]) -> list[float]:
        return [math.nan if value is None else value for value in values]

    panels = [Panel("Load", [Curve(OBSERVED, drawn(job.seen["load_per_s"]))], "records/s")]
    for key, (title, unit, style) in PANELS.items():
        lines = [
            Curve(_label(name), drawn(line[key]), style)
            for name, line in job.lines.items()
            if key in line
        ]
        own = Curve(OBSERVED, drawn(job.seen[key]), style)
        bound = job.slo_latency_s if key == "latency_s" else None
        panels.append(Panel(title, [own, *lines], unit.format(currency=job.currency), bound))
    begin_s = job.begin_s if job.is_dated else 0.0
    x = [begin_s + t_s for t_s in job.t_s]
    marks = [
        Mark(begin_s + one.t_s, _label(name), f"{one.what}: {one.reason}")
        for name, changes in job.changes.items()
        for one in changes[:SHOWN_CHANGES]
    ]
    marks.sort(key=lambda one: one.x)
    best = job.best
    shown = {one.policy for one in (best, job.incumbent) if one is not None}
    hidden = [REPLAYED, *(one.policy for one in job.claims if one.policy not in shown)]
    said = f"{job.name}: load, tasks, latency, backlog and cost, observed and under each policy."
    time: Literal["date", "elapsed"] = "date" if job.is_dated else "elapsed"
    yield curves(said, x, panels, marks, time=time, hidden=hidden)


def _label(policy: str) -> str:
    return REPLAYED if policy == INCUMBENT else policy


def _decisions(job: JobResult) -> Iterator[Html]:
    for name, changes in job.changes.items():
        kept = changes[:SHOWN_CHANGES]
        rows = [(after(one.t_s), one.what, one.reason) for one in kept]
        cut = f", the first {len(kept)}" if len(kept) < len(changes) else ""
        summary = f"{_label(name)}: {len(changes)} rescale{'' if len(changes) == 1 else 's'}{cut}"
        yield details(summary, table(("after", "change", "reason"), rows, prose=True))


def after(seconds: float) -> str:
    """Time since the begin of the history.

    >>> after(93_784)
    '1 d 02:03:04'
    """
    days, rest = divmod(int(seconds), 86_400)
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days} d {clock}" if days else clock
