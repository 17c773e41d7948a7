"""A fleet at a glance: what it costs, what can be saved with how much certainty, what blocks it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dsp_gym.control.verdict_summary import SavingRange, VerdictSummary
from dsp_gym.pages import money, number

CAUSES = {
    "seen": "not seen",
    "verdict": "no verdict yet",
    "model": "the model does not fit",
    "replay": "no policy could be replayed",
    "late": "every policy is late too often",
    "days observed": "not watched for long enough",
    "coverage": "too many gaps in the metrics",
    "guardrails": "guardrails step in too often",
    "failures": "decisions failed",
    "SLO": "perhaps later than now",
    "saving": "too little to save",
    "unsure": "not sure that it saves enough",
    "dearer": "what keeps it in time costs more",
}
"""What keeps a saving from being certain, in words, by the subject of the condition."""


@dataclass(frozen=True, slots=True)
class JobLine:
    """One job of a fleet."""

    name: str
    currency: str | None = None  # None: nothing was seen of the job
    cost_per_month: float | None = None  # of the running configuration
    late_since_s: float | None = None  # None: in time, or not known
    trouble: str | None = None  # why the job is not seen
    verdict: VerdictSummary | None = None

    @property
    def claimed(self) -> float:
        """Money a month that may be claimed."""
        return 0.0 if self.verdict is None else self.verdict.claimed_per_month

    @property
    def saving(self) -> SavingRange | None:
        """Money a month that the best policy saves; None: not known."""
        return None if self.verdict is None else self.verdict.saving

    @property
    def expected(self) -> float:
        """The same as a number; negative: it costs more; 0: not known."""
        return 0.0 if self.saving is None else self.saving.value

    @property
    def word(self) -> str | None:
        """The verdict in a word."""
        return None if self.verdict is None else self.verdict.word

    @property
    def is_likely(self) -> bool:
        """Whether there is a saving that is expected, and not certain yet."""
        return self.word == "keep watching" and self.expected > 0

    @property
    def cause(self) -> str | None:
        """Why nothing is certain: a key of `CAUSES`; None where a policy may act."""
        if self.trouble is not None:
            return "seen"
        if self.verdict is None:
            return "verdict"
        if self.word in ("promote", "rescue"):
            return None
        found = self.verdict.blocks
        subject = found[0].subject if found else "late"
        if subject == "saving" and self.expected < 0:
            return "dearer"
        return "unsure" if subject == "saving" and self.word != "reject" else subject


@dataclass(frozen=True, slots=True)
class FleetTotals:
    """Sums over the jobs whose prices have one currency, a month of 730 hours."""

    currency: str
    jobs: int
    spent: float
    claimed: float  # certain: lower ends of the intervals, where every condition holds
    claimed_jobs: int
    likely: float  # expected where a condition is not met yet
    likely_low: float
    likely_high: float
    likely_jobs: int
    rescue: float  # that policies cost more where they save the SLO
    rescue_jobs: int


@dataclass(frozen=True, slots=True)
class Cause:
    """What keeps savings from being certain, and on which jobs."""

    code: str
    text: str
    jobs: tuple[str, ...]


def totals(lines: Sequence[JobLine]) -> tuple[FleetTotals, ...]:
    """Add up the jobs of a fleet.

    Args:
        lines: the jobs.

    Returns:
        One sum for each currency, the largest first; jobs of unknown cost count for nothing.
    """
    currencies = dict.fromkeys(line.currency for line in lines if line.currency is not None)
    found = [_total([line for line in lines if line.currency == one], one) for one in currencies]
    return tuple(sorted(found, key=lambda one: -one.spent))


def _total(lines: Sequence[JobLine], currency: str) -> FleetTotals:
    likely = [line for line in lines if line.is_likely]
    ranges = [line.saving for line in likely if line.saving is not None]
    rescued = [line for line in lines if line.word == "rescue"]
    return FleetTotals(
        currency=currency,
        jobs=len(lines),
        spent=sum(line.cost_per_month or 0.0 for line in lines),
        claimed=sum(line.claimed for line in lines),
        claimed_jobs=sum(line.claimed > 0 for line in lines),
        likely=sum(one.value for one in ranges),
        likely_low=sum(one.low for one in ranges),
        likely_high=sum(one.high for one in ranges),
        likely_jobs=len(likely),
        rescue=sum(max(0.0, -line.expected) for line in rescued),
        rescue_jobs=len(rescued),
    )


def causes(lines: Sequence[JobLine]) -> tuple[Cause, ...]:
    """Say what keeps the other savings from being certain.

    Args:
        lines: the jobs.

    Returns:
        Causes with their jobs, that of most jobs first; each job has one, the gravest.
    """
    by_code: dict[str, list[str]] = {}
    for line in lines:
        if line.cause is not None:
            by_code.setdefault(line.cause, []).append(line.name)
    found = [Cause(code, CAUSES.get(code, code), tuple(jobs)) for code, jobs in by_code.items()]
    return tuple(sorted(found, key=lambda one: -len(one.jobs)))


def place(line: JobLine) -> tuple[int, float, float, float, str]:
    """Say where a job stands among others, sorted by what matters.

    Args:
        line: the job.

    Returns:
        A key: first jobs that are late, the longest first; then those that are not seen; then the
        others, by what can be saved, and by cost.
    """
    urgency = 0 if line.late_since_s is not None else 1 if line.trouble is not None else 2
    known = (line.late_since_s or 0.0, -line.expected, -(line.cost_per_month or 0.0))
    return urgency, *known, line.name


def headline(lines: Sequence[JobLine]) -> str:
    """A fleet in a few sentences.

    Args:
        lines: the jobs.

    Returns:
        What is spent, what can be saved with how much certainty, and what blocks the rest.
    """
    said = [text for one in totals(lines) for text in _money(one)]
    if not said:
        said = ["Nothing is known of the cost yet."]
    found = causes(lines)
    if found:
        parts = "; ".join(f"{one.text} ({_jobs(len(one.jobs))})" for one in found)
        some = any(line.claimed > 0 for line in lines)
        said.append(f"What blocks {'the rest' if some else 'it'}: {parts}.")
    return " ".join(said)


def _money(one: FleetTotals) -> Iterator[str]:
    """Sentences on the jobs of one currency."""
    yield f"{_jobs(one.jobs)} cost{'s' if one.jobs == 1 else ''} {_whole(one.spent, one)} a month."
    likely = (
        f"{_whole(one.likely, one)} ({_amount(one.likely_low)} to {_amount(one.likely_high)}) "
        f"likely, on {_jobs(one.likely_jobs)}"
    )
    if one.claimed > 0:
        certain = f"{_whole(one.claimed, one)} can be saved for certain, "
        certain += f"on {_jobs(one.claimed_jobs)}"
        yield f"{certain}; another {likely}." if one.likely_jobs else f"{certain}."
    elif one.likely_jobs:
        yield f"Nothing can be saved for certain yet; {likely}."
    else:
        yield "Nothing can be saved for certain yet."
    if one.rescue_jobs:
        needs = "needs" if one.rescue_jobs == 1 else "need"
        more = _whole(one.rescue, one)
        yield f"{_jobs(one.rescue_jobs)} {needs} {more} a month more to be in time."


def _jobs(count: int) -> str:
    return f"{count:,} job{'' if count == 1 else 's'}"


def _whole(value: float, one: FleetTotals) -> str:
    return money(_rounded(value), one.currency)


def _amount(value: float) -> str:
    return number(_rounded(value))


def _rounded(value: float) -> float:
    """An amount of a headline: no cents from ten on."""
    return float(round(value)) if abs(value) >= 10 else value
