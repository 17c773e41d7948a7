"""A backtest for people: rows for the terminal, one page for the fleet and one for each job."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

from dsp_gym.config.files import write_atomic
from dsp_gym.control.modes import INCUMBENT
from dsp_gym.job.cost import HOURS_A_MONTH
from dsp_gym.pages import (
    Html,
    ScatterPoint,
    details,
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
from dsp_gym.whatif.verdict import watched_text

FLEET_COLUMNS = ("policy", "saves a month", "may be claimed", "on jobs", "late", "rescales/day")

JOB_COLUMNS = (
    "job",
    "watched",
    "costs a month",
    "policy",
    "verdict",
    "saves a month",
    "may be claimed",
    "late",
    "rescales/day",
)

LONGEST_STEM = 60
"""Characters of a job's name in the name of its page."""


def headline(found: Backtest) -> str:
    """The result in one sentence.

    Returns:
        What may be claimed for the best policy, and on how many jobs.
    """
    currency = found.currency
    if len(found.jobs) == 1:
        return job_page.headline(found.jobs[0])
    jobs = f"{len(found.jobs)} jobs"
    against = "" if found.incumbent is None else f" against {found.incumbent}"
    # A policy whose lateness forbids it somewhere is named for what may be claimed elsewhere alone.
    claimed = max(found.fleet, key=lambda one: one.claimed_per_month, default=None)
    if claimed is not None and claimed.claimed_per_month > 0:
        return (
            f"{claimed.policy} would have saved at least "
            f"{money(claimed.claimed_per_month, currency)} a month{against} on "
            f"{claimed.jobs_claimed} of {jobs}."
        )
    good = [one for one in found.fleet if not one.jobs_late]
    if not good:
        return f"Nothing may be claimed on {jobs}: every policy is late too often on one of them."
    best = max(good, key=lambda one: one.saving_per_month.value)
    saved = best.saving_per_month
    return (
        f"Nothing may be claimed on {jobs} yet; for {best.policy} the model says "
        f"{span(saved.value, saved.low, saved.high)} {currency} a month{against}."
    )


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
    """One row for each job, with its best policy.

    Returns:
        Cells in the order of `JOB_COLUMNS`; money per month of 730 hours.
    """
    return [_job_row(job, job.name) for job in found.jobs]


def _job_row(job: JobResult, name: str) -> tuple[str, ...]:
    best = job.best
    cost_now, late_now, rescales_now = job.present
    watched, cost = watched_text(job.observed.days), number(cost_now)
    if best is None:
        return (name, watched, cost, "–", "–", "–", "–", "–", "–")
    saved = best.saving_per_month
    return (
        name,
        watched,
        cost,
        best.policy,
        best.verdict,
        span(saved.value, saved.low, saved.high),
        number(best.claimed_per_month),
        then(late_now, best.late.value),
        f"{number(rescales_now)} → {number(best.rescales_per_day)}",
    )


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
    yield _cost_and_lateness(found)
    if found.incumbent is not None:
        yield (
            f"Savings are counted against {found.incumbent}, which was not observed: the model "
            "replays it in place of the deployed configurations."
        )
    yield section("Policies", table(FLEET_COLUMNS, fleet_rows(found)))
    rows = [
        (link(job.name, file), *_job_row(job, job.name)[1:])
        for job, file in zip(found.jobs, files, strict=True)
    ]
    yield section(
        "Jobs",
        "Each job with its best policy; the job's own page has the others.",
        table(JOB_COLUMNS, rows),
    )
    for one in found.left_out:
        yield note(f"left out: {one}")
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
