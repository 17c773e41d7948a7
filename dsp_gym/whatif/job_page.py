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
    Mark,
    Panel,
    curves,
    details,
    lead,
    link,
    money,
    note,
    number,
    page,
    section,
    span,
    table,
)
from dsp_gym.whatif.claims import BacktestTrust, PolicyClaim
from dsp_gym.whatif.result import JobBacktest
from dsp_gym.whatif.verdict import watched_text

__all__ = ["job_page", "share", "then"]

OBSERVED, REPLAYED = "now, observed", "now, by the model"

CLAIM_COLUMNS = (
    "policy",
    "saves a month",
    "may be claimed",
    "saves, %",
    "late",
    "late, points vs. now",
    "rescales/day",
)

PANELS: Mapping[str, tuple[str, str, Literal["line", "step"]]] = {
    "subtasks": ("Tasks", "subtasks without sources", "step"),
    "latency_s": ("Latency, 95th percentile", "s", "line"),
    "lag_s": ("Backlog", "s of arrivals", "line"),
    "cost_per_h": ("Cost", "{currency} per hour", "step"),
}

SHOWN_CHANGES = 300
"""Rescales of a policy that are named; the first ones."""


def job_page(job: JobBacktest, trust: BacktestTrust, currency: str) -> str:
    """The page of a job.

    Args:
        job: what was found about it.
        trust: bounds of a claim.
        currency: of the amounts.

    Returns:
        HTML of one page without outside references, but for the link to the fleet's page.
    """
    return page(f"{job.name}: what policies would have saved", *_parts(job, trust, currency))


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


def _parts(job: JobBacktest, trust: BacktestTrust, currency: str) -> Iterator[str]:
    yield link("All jobs", "index.html")
    best = job.best
    if best is not None:
        yield lead(_headline(best, currency))
    for text in job.notes:
        yield note(text)
    yield section("Over time", *_over_time(job, currency))
    yield section(
        "What each policy would have saved",
        f"Amounts in {currency} per month of {HOURS_A_MONTH} hours. In brackets: 95 % intervals.",
        table(CLAIM_COLUMNS, [_claim_row(one) for one in job.claims]),
        table(
            ("policy", "why the rest may not be claimed"),
            [(one.policy, f"{'; '.join(one.why_not)}.") for one in job.claims],
            prose=True,
        ),
    )
    yield section(
        "The model's error on the deployed configurations",
        f"Nothing is claimed beyond {100 * trust.cost:g} % in cost or {100 * trust.late:g} points "
        "of lateness.",
        table(("", "model", "observed"), _error_rows(job)),
    )
    yield section("Decisions", *_decisions(job))


def _headline(best: PolicyClaim, currency: str) -> str:
    saved = best.saving_per_month
    amount = f"{span(saved.value, saved.low, saved.high)} {currency}"
    text = f"{best.policy} would have saved {amount} a month"
    if saved.value < 0:
        text = f"{best.policy} would have cost {money(-saved.value, currency)} a month more"
    claimed = money(best.claimed_per_month, currency) if best.claimed_per_month > 0 else "nothing"
    return f"{text}; {claimed} of it may be claimed."


def _claim_row(one: PolicyClaim) -> tuple[str, ...]:
    saved, relative, later = one.saving_per_month, one.saving, one.later
    return (
        one.policy,
        span(saved.value, saved.low, saved.high),
        number(one.claimed_per_month),
        span(100 * relative.value, 100 * relative.low, 100 * relative.high),
        share(one.late),
        span(100 * later.value, 100 * later.low, 100 * later.high, sign=True),
        number(one.rescales_per_day),
    )


def _error_rows(job: JobBacktest) -> list[tuple[str, str, str]]:
    seen = job.observed
    return [
        ("cost a month", number(seen.model_cost_per_month), number(seen.cost_per_month)),
        ("late share of the time", share(seen.model_late), share(seen.late)),
        ("rescales a day", "as observed", number(seen.rescales_per_day)),
        ("load known for", "", watched_text(seen.days)),
    ]


def _over_time(job: JobBacktest, currency: str) -> Iterator[str]:
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
        panels.append(Panel(title, [own, *lines], unit.format(currency=currency), bound))
    begin_s = job.begin_s if job.is_dated else 0.0
    x = [begin_s + t_s for t_s in job.t_s]
    marks = [
        Mark(begin_s + one.slot * job.interval_s, _label(name), f"{one.what}: {one.reason}")
        for name, changes in job.changes.items()
        for one in changes[:SHOWN_CHANGES]
    ]
    marks.sort(key=lambda one: one.x)
    best = job.best
    shown = () if best is None else (best.policy,)
    hidden = [REPLAYED, *(one.policy for one in job.claims if one.policy not in shown)]
    said = f"{job.name}: load, tasks, latency, backlog and cost, observed and under each policy."
    time: Literal["date", "elapsed"] = "date" if job.is_dated else "elapsed"
    yield curves(said, x, panels, marks, time=time, hidden=hidden)


def _label(policy: str) -> str:
    return REPLAYED if policy == INCUMBENT else policy


def _decisions(job: JobBacktest) -> Iterator[Html]:
    for name, changes in job.changes.items():
        kept = changes[:SHOWN_CHANGES]
        rows = [(_after(one.slot * job.interval_s), one.what, one.reason) for one in kept]
        cut = f", the first {len(kept)}" if len(kept) < len(changes) else ""
        summary = f"{_label(name)}: {len(changes)} rescale{'' if len(changes) == 1 else 's'}{cut}"
        yield details(summary, table(("after", "change", "reason"), rows, prose=True))


def _after(seconds: float) -> str:
    """Time since the begin of the history.

    >>> _after(93_784)
    '1 d 02:03:04'
    """
    days, rest = divmod(int(seconds), 86_400)
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days} d {clock}" if days else clock
