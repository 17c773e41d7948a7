"""A backtest for people: rows for the terminal, one page for the fleet and one for each job."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from dsp_gym.config.files import write_atomic
from dsp_gym.control import overview
from dsp_gym.control.modes import INCUMBENT
from dsp_gym.job.cost import HOURS_A_MONTH
from dsp_gym.pages import (
    Html,
    Judgement,
    ScatterPoint,
    details,
    judged,
    lead,
    link,
    money,
    note,
    number,
    page,
    scatter,
    section,
    span,
    table,
)
from dsp_gym.whatif import job_page
from dsp_gym.whatif.job_page import share, then
from dsp_gym.whatif.result import Backtest, JobResult
from dsp_gym.whatif.summary import job_line

FLEET_COLUMNS = ("policy", "saves a month", "may be claimed", "on jobs", "late", "rescales/day")

JOB_COLUMNS = (
    "job",
    "now:",
    "costs a month",
    "late",
    "saves a month",
    "may be claimed",
    "policy",
    "verdict",
    "why not:",
)
"""Heads with a colon take a line of their own on a card."""

LONGEST_STEM = 60
"""Characters of a job's name in the name of its page."""


def headline(found: Backtest) -> str:
    """The result in a few sentences.

    Returns:
        Of one job the verdict; of several what they cost, what can be saved, and what blocks it.
    """
    if len(found.jobs) == 1:
        return job_page.headline(found.jobs[0])
    return overview.headline(_lines(found))


def _lines(found: Backtest) -> list[overview.JobLine]:
    return [job_line(job, job.best) for job in found.jobs]


def fleet_rows(found: Backtest) -> list[tuple[str, ...]]:
    """One row for the deployed configurations, the incumbent if it is a policy, and each other.

    Returns:
        Cells in the order of `FLEET_COLUMNS`; money per month of 730 hours.
    """

    def mean(values: Sequence[tuple[float | None, float]]) -> float:
        known = [(value, weight) for value, weight in values if value is not None]
        total = sum(weight for _, weight in known)
        return sum(v * w for v, w in known) / total if total else float("nan")

    now = [(job.observed.late, job.observed.days) for job in found.jobs]
    rescales = sum(job.observed.rescales_per_day for job in found.jobs)
    rows: list[tuple[str, ...]] = [("now", "", "", "", share(mean(now)), number(rescales))]
    bases = [(job.incumbent, job) for job in found.jobs if job.incumbent is not None]
    if found.incumbent is not None:
        late = share(mean([(base.late.value, job.observed.days) for base, job in bases]))
        often = number(sum(base.rescales_per_day for base, _ in bases))
        rows.append((f"{found.incumbent}, incumbent", "", "", "", late, often))
    for one in found.fleet:
        claims = [(claim, job) for job in found.jobs for claim in job.claims]
        own = [(claim, job) for claim, job in claims if claim.policy == one.policy]
        saved = one.saving_per_month
        rows.append(
            (
                one.policy,
                span(saved.value, saved.low, saved.high),
                number(one.claimed_per_month),
                f"{one.jobs_claimed} of {one.jobs}",
                share(mean([(claim.late.value, job.observed.days) for claim, job in own])),
                number(sum(claim.rescales_per_day for claim, _ in own)),
            )
        )
    return rows


def job_rows(found: Backtest) -> list[tuple[str, ...]]:
    """One row for each job, with its best policy: first those that are late, then by saving.

    Returns:
        Cells in the order of `JOB_COLUMNS`; money per month of 730 hours.
    """
    return [_job_row(job, line) for _, job, line in _sorted(found)]


def _sorted(found: Backtest) -> list[tuple[int, JobResult, overview.JobLine]]:
    """The jobs with their places in the document and their lines, what matters first."""
    rows = zip(range(len(found.jobs)), found.jobs, _lines(found), strict=True)
    return sorted(rows, key=lambda row: overview.place(row[2]))


def _job_row(job: JobResult, line: overview.JobLine) -> tuple[str, ...]:
    best, verdict = job.best, line.verdict
    cost_now, late_now, _ = job.present
    now, _ = _now(job)
    why = "" if line.cause is None else overview.CAUSES.get(line.cause, line.cause)
    if best is None or verdict is None:
        return (job.name, now, number(cost_now), share(late_now), "–", "–", "–", "–", why)
    if line.cause is not None and verdict.blocks:
        first, *others = verdict.blocks
        why += f": {first.found} ({first.needed} needed)"
        why += f", and {len(others)} more" if others else ""
    saved = best.saving_per_month
    trusted = verdict.saving is not None
    return (
        job.name,
        now,
        number(cost_now),
        then(late_now, best.late.value) if trusted else share(late_now),
        span(saved.value, saved.low, saved.high) if trusted else "–",
        number(verdict.claimed_per_month) if trusted else "–",
        best.policy,
        best.verdict,
        why,
    )


def _now(job: JobResult) -> tuple[str, Judgement]:
    """Whether a job was late at the end of its history, and since when."""
    if job.late_since_s is None:
        return ("not known", "wait") if job.observed.late is None else ("in time", "good")
    if job.is_dated:
        moment = datetime.fromtimestamp(job.begin_s + job.late_since_s, UTC)
        return f"late since {moment:%Y-%m-%d %H:%M} UTC", "bad"
    return f"late since {job_page.after(job.late_since_s)} after the begin", "bad"


def write_report(found: Backtest, folder: Path) -> dict[str, Path]:
    """Write backtest.json, index.html and a page for each job.

    Returns:
        What was written, by kind: `json`, `html`.
    """
    files = page_names([job.name for job in found.jobs])
    for job, file in zip(found.jobs, files, strict=True):
        write_atomic(folder / file, job_page.job_page(job, found.trust))
    return {
        "json": write_atomic(folder / "backtest.json", found.to_json()),
        "html": write_atomic(folder / "index.html", _fleet_page(found, files)),
    }


def page_names(jobs: Sequence[str]) -> list[str]:
    """Files for the pages of jobs; whatever a name holds, it is one plain file.

    Returns:
        One name for each job, all different.

    >>> page_names(["ads clicks", "../../etc/passwd", "<b>"])
    ['job-1-ads-clicks.html', 'job-2-etc-passwd.html', 'job-3.html']
    """
    found = []
    for place, job in enumerate(jobs, 1):
        plain = unicodedata.normalize("NFKD", job).encode("ascii", "ignore").decode().lower()
        words = re.findall("[a-z0-9]{2,}|[0-9]", plain)
        stem = "-".join([f"job-{place}", *words])[:LONGEST_STEM].rstrip("-")
        found.append(f"{stem}.html")
    return found


def _fleet_page(found: Backtest, files: Sequence[str]) -> str:
    return page("What policies would have saved", *_parts(found, files))


def _parts(found: Backtest, files: Sequence[str]) -> Iterator[str]:
    yield lead(headline(found))
    yield (
        f"From {found.source}. Amounts in {found.currency} per month of {HOURS_A_MONTH} hours, at "
        "the prices of the job files, for requested resources. In brackets: 95 % "
        "intervals over the days of the history, widened by the model's error on the deployed "
        "configurations."
    )
    if found.incumbent is not None:
        yield (
            f"Savings are counted against {found.incumbent}, which was not observed: the model "
            "replays it in place of the deployed configurations."
        )
    yield section(
        "Jobs",
        f"Each job with its best policy, what matters first: jobs that were late at the end, then "
        f"by saving. Amounts in {found.currency}; the job's own page has the other policies.",
        table(JOB_COLUMNS, _drawn_rows(found, files), cards=True),
    )
    for one in found.left_out:
        yield note(f"left out: {one}")
    yield section("Policies", _cost_and_lateness(found), table(FLEET_COLUMNS, fleet_rows(found)))
    yield section(
        "How to read this",
        "The model of each job was fitted to its own history, and replayed the observed load with "
        "the deployed configurations and with each policy. The saving is the difference of both "
        "replays. Claimed is the lower end of the interval where every condition of the verdict "
        "holds; the job's own page has them. The model is not trusted if the replay of the "
        f"deployed configurations is off by more than {100 * found.trust.cost:g} % in cost, "
        f"{100 * found.trust.late:g} points of lateness or {100 * found.trust.lag:g} % of the "
        "backlog.",
        details("Versions", table(("of", "version"), sorted(found.versions.items()), prose=True)),
    )


def _drawn_rows(found: Backtest, files: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The rows of the jobs, with links and colours."""
    for at, job, line in _sorted(found):
        name, now, *figures, word, why = _job_row(job, line)
        yield (
            link(name, files[at]),
            judged(now, _now(job)[1]),
            *figures,
            judged(word, job_page.HOW[word]) if word in job_page.HOW else word,
            why,
        )


def _cost_and_lateness(found: Backtest) -> Html:
    """Now and every policy by their late share and cost, summed over the jobs."""
    deployed = sum(job.observed.model_cost_per_month for job in found.jobs)
    bases = [job.incumbent for job in found.jobs if job.incumbent is not None]
    cost = sum(base.cost_per_month.value for base in bases) if bases else deployed
    days = sum(job.observed.days for job in found.jobs) or 1.0
    points = []
    policies = [one.policy for one in found.fleet]
    for label in (INCUMBENT, *filter(None, [found.incumbent]), *policies):
        late, cost_now = 0.0, deployed if label == INCUMBENT else cost
        for job in found.jobs:
            weight = job.observed.days / days
            claim = next((one for one in job.claims if one.policy == label), None)
            if job.incumbent is not None and label == job.incumbent.policy:
                late += 100 * weight * job.incumbent.late.value
            elif claim is None:
                late += 100 * weight * (job.observed.model_late or 0.0)
            else:
                late += 100 * weight * claim.late.value
                cost_now -= claim.saving_per_month.value
        name = "now, by the model" if label == INCUMBENT else label
        text = f"{name}: {money(cost_now, found.currency)} a month, late {number(late)} %"
        points.append(ScatterPoint(name, [late], [cost_now], [text], label == INCUMBENT))
    return scatter(
        f"Cost a month against lateness of {len(points) - 1} policies and of the deployed "
        "configurations.",
        points,
        x_label="late, share of the time",
        y_label=f"{found.currency} a month",
    )
