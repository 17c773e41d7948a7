"""The promotion gate: whether the evidence from shadow mode is enough to let a policy act."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dsp_gym.control.gate import GateConfig
from dsp_gym.evaluation.counterfactual.claims import Claim, ModelError, Trust
from dsp_gym.evaluation.counterfactual.course import ObservedRun

__all__ = ["Reason", "Verdict", "judge", "lateness_text", "saving_text"]

Word = Literal["promote", "keep watching", "reject"]

NO_CLAIM = "no claim: the model's error on the observed run is too large"


@dataclass(frozen=True, slots=True)
class Reason:
    """One condition of the gate."""

    subject: str
    holds: bool
    speaks_against: bool  # the evidence is bad, not only too thin
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The recommendation for one policy, with every reason."""

    word: Word
    reasons: tuple[Reason, ...]


def judge(
    course: ObservedRun, found: Claim, error: ModelError, gate: GateConfig, trust: Trust
) -> Verdict:
    """Judges one policy: promote if every condition holds, reject if the evidence is bad.

    Evidence that is only too thin (too few days, an untrusted model, a wide interval) gives
    "keep watching".

    Args:
        course: the observed run.
        found: the policy's predicted figures.
        error: the model's error on the observed run.
        gate: the conditions of promotion.
        trust: the largest error of a trusted model.

    Returns:
        The recommendation, with one reason per condition.
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
    text = f"{words.format(value)}, at least {words.format(bound)} needed"
    return Reason(subject, holds, False, text)


def _guard(course: ObservedRun, found: Claim, gate: GateConfig) -> Reason:
    per_day = float(sum(found.trips.values()) / max(course.days, 1e-9))
    holds = per_day <= gate.max_guard_trips_per_day
    most = max(found.trips, key=lambda name: found.trips[name], default=None)
    text = f"{per_day:.1f} guardrail trips a day, at most {gate.max_guard_trips_per_day:g} allowed"
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
    text = (
        f"{failed} of {found.asked} decisions failed, at most {gate.max_failure_share:.2%} allowed"
    )
    return Reason("failures", holds, not holds, text)


def _model(error: ModelError, trust: Trust) -> Reason:
    wrong = error.beyond(trust)
    text = "; ".join(wrong) or (
        f"errors on the observed run: lag {error.lag:.1%}, late share of the time "
        f"{_points(error.slo)}, cost {error.cost:.1%}"
    )
    if error.slo_range is not None and not wrong:
        low, high = error.slo_range
        text += (
            f"; within the error of its capacity it is late {100 * low:.3g} to "
            f"{_points(high)} of the time, {_points(error.slo_share[1])} were observed"
        )
    return Reason("model", not wrong, False, text)


def _saving(found: Claim, gate: GateConfig) -> Reason:
    s = found.figures.get("saving")
    if s is None:
        return Reason("saving", False, False, NO_CLAIM)
    holds = s.low >= gate.min_saving
    bound = (
        f"a saving of at least {100 * gate.min_saving:g} % needed"
        if gate.min_saving >= 0
        else f"at most {-100 * gate.min_saving:g} % more allowed"
    )
    text = f"{saving_text(s.value)} [{_signed(-s.high)} to {_signed(-s.low)} % in cost], {bound}"
    return Reason("saving", holds, s.high < gate.min_saving, text)


def _slo(found: Claim, gate: GateConfig) -> Reason:
    s = found.figures.get("later")
    if s is None:
        return Reason("SLO", False, False, NO_CLAIM)
    holds = s.high <= gate.max_later
    text = (
        f"{lateness_text(s.value)} [{_signed(s.low)} to {_signed(s.high)} points], "
        f"at most {_points(gate.max_later)} more allowed"
    )
    return Reason("SLO", holds, s.low > gate.max_later, text)


def saving_text(share: float) -> str:
    """The change of cost as words, from the share of the incumbent's cost that a policy saves.

    Returns:
        A phrase with a positive percentage: "saves ..." or "costs ... more".

    >>> saving_text(0.123), saving_text(-1.184)
    ('saves 12.3 %', 'costs 118 % more')
    """
    if share < 0:
        return f"costs {-100 * share:.3g} % more"
    return f"saves {100 * share:.3g} %"


def lateness_text(share: float) -> str:
    """The change of lateness as words, from the share of the time late above the incumbent's.

    Returns:
        A phrase in percentage points, the share being of time: 0.01 is one point.

    >>> lateness_text(-0.9439), lateness_text(0.012)
    ('late 94.4 points less than the incumbent', 'late 1.2 points more than the incumbent')
    """
    if share == 0:
        return "late as often as the incumbent"
    return f"late {_points(abs(share))} {'less' if share < 0 else 'more'} than the incumbent"


def _points(share: float) -> str:
    """Percentage points of the time."""
    shown = f"{100 * share:.3g}"
    return f"{shown} point" if shown == "1" else f"{shown} points"


def _signed(share: float) -> str:
    """Per cent or percentage points, with the sign; no negative zero."""
    return f"{100 * share + 0.0:+.3g}"
