"""The promotion gate: whether what was seen in shadow is enough to let a policy act."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dsp_gym.control.gate import GateConfig
from dsp_gym.evaluation.counterfactual.claims import Claim, ModelError, Trust
from dsp_gym.evaluation.counterfactual.course import Course

__all__ = ["Reason", "Verdict", "judge"]

Word = Literal["promote", "keep watching", "reject"]


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that was looked at."""

    subject: str
    holds: bool
    speaks_against: bool  # not only too little seen: what was seen is bad
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows, with every reason."""

    word: Word
    reasons: tuple[Reason, ...]


def judge(
    course: Course, found: Claim, error: ModelError, gate: GateConfig, trust: Trust
) -> Verdict:
    """Promote where everything holds, reject where something seen speaks against it.

    What is only not known yet (too few days, a model that cannot be trusted, an interval that is
    too wide) asks to keep watching.
    """
    reasons = [
        _at_least("days observed", course.days, gate.min_days, "{:.2f} days"),
        _at_least("coverage", course.coverage, gate.min_coverage, "{:.1%} of the decision slots"),
        _guard(course, found, gate),
        _failures(found, gate),
        _model(error, trust),
        _saving(found, gate),
        _slo(found, gate),
    ]
    if all(reason.holds for reason in reasons):
        return Verdict("promote", tuple(reasons))
    against = any(reason.speaks_against for reason in reasons)
    return Verdict("reject" if against else "keep watching", tuple(reasons))


def _at_least(subject: str, value: float, bound: float, words: str) -> Reason:
    holds = value >= bound
    text = f"{words.format(value)}, {'at least ' if holds else 'needed: '}{words.format(bound)}"
    return Reason(subject, holds, False, text)


def _guard(course: Course, found: Claim, gate: GateConfig) -> Reason:
    per_day = sum(found.trips.values()) / max(course.days, 1e-9)
    holds = per_day <= gate.max_guard_trips_per_day
    most = max(found.trips, key=lambda name: found.trips[name], default=None)
    text = f"{per_day:.1f} guardrail trips a day, at most {gate.max_guard_trips_per_day:g}"
    return Reason(
        "guardrails",
        holds,
        not holds and course.days >= gate.min_days,
        text if most is None else f"{text}; most often {most}",
    )


def _failures(found: Claim, gate: GateConfig) -> Reason:
    failed = sum(found.failures.values())
    share = failed / max(1, found.asked)
    holds = share <= gate.max_failure_share
    text = f"{failed} of {found.asked} decisions failed, at most {gate.max_failure_share:.2%}"
    return Reason("failures", holds, not holds, text)


def _model(error: ModelError, trust: Trust) -> Reason:
    wrong = error.beyond(trust)
    text = "; ".join(wrong) or (
        f"lag off by {error.lag:.1%}, late share by {error.slo:.2%}, cost by {error.cost:.1%}"
    )
    return Reason("model", not wrong, False, text)


def _saving(found: Claim, gate: GateConfig) -> Reason:
    s = found.figures.get("saving")
    if s is None:
        return Reason("saving", False, False, "nothing is claimed")
    holds = s.low >= gate.min_saving
    text = f"saves {s.value:.1%} [{s.low:.1%}, {s.high:.1%}], at least {gate.min_saving:.1%} needed"
    return Reason("saving", holds, s.high < gate.min_saving, text)


def _slo(found: Claim, gate: GateConfig) -> Reason:
    s = found.figures.get("later")
    if s is None:
        return Reason("SLO", False, False, "nothing is claimed")
    holds = s.high <= gate.max_later
    text = (
        f"late {s.value:+.2%} of the time against the incumbent [{s.low:+.2%}, {s.high:+.2%}], "
        f"at most {gate.max_later:+.2%}"
    )
    return Reason("SLO", holds, s.low > gate.max_later, text)
