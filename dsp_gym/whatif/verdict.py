"""The promotion gate: whether the evidence from shadow mode is enough to let a policy act."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from dsp_gym.control.gate import GateConfig, RescueConfig
from dsp_gym.pages import number, signed
from dsp_gym.whatif.journal import ObservedRun
from dsp_gym.whatif.model_error import Claim, ModelError, Trust

__all__ = [
    "DAYS",
    "UNCLAIMED",
    "Reason",
    "Verdict",
    "judge",
    "lateness_text",
    "saving_text",
    "watched_text",
]

Word = Literal["promote", "rescue", "keep watching", "reject"]
"""`rescue`: let it act, too; it saves the SLO, and costs more than the bound of saving allows."""

DAYS = "days observed"

UNCLAIMED = "no claim"

NO_CLAIM = "no claim: the model's error on the observed run is too large"


@dataclass(frozen=True, slots=True)
class Reason:
    """One condition of the gate."""

    subject: str
    holds: bool
    speaks_against: bool  # the evidence is bad, not only too thin
    text: str
    found: str = ""  # in a few characters, as a cell of a table
    needed: str = ""


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
    "keep watching". Where the incumbent misses its SLO and the policy does not, money is no
    condition: that is a rescue.

    Args:
        course: the observed run.
        found: the policy's predicted figures.
        error: the model's error on the observed run.
        gate: the conditions of promotion.
        trust: the largest error of a trusted model.

    Returns:
        The recommendation, with one reason per condition.
    """
    rescues = _rescues(found, error, gate.rescue)
    reasons = [
        _days(course, gate),
        _coverage(course, gate),
        _guard(course, found, gate),
        _failures(found, gate),
        _model(error, trust),
        _saving(found, gate, rescues=rescues),
        _slo(found, gate),
    ]
    if all(reason.holds for reason in reasons):
        cheaper = _saves(found, gate)
        return Verdict("promote" if cheaper else "rescue", tuple(reasons))
    against = any(reason.speaks_against for reason in reasons)
    return Verdict("reject" if against else "keep watching", tuple(reasons))


def _days(course: ObservedRun, gate: GateConfig) -> Reason:
    text = f"{course.days:.2f} days, at least {gate.min_days:.2f} days needed"
    seen, needed = watched_text(course.days), watched_text(gate.min_days)
    # "2 of 7 days", but "5 hours of 7 days".
    found = seen.split()[0] if seen.split()[-1].startswith(needed.split()[-1][:3]) else seen
    holds = course.days >= gate.min_days
    return Reason(DAYS, holds, False, text, f"{found} of {needed}", f"≥ {needed}")


def _coverage(course: ObservedRun, gate: GateConfig) -> Reason:
    held, bound = course.coverage, gate.min_coverage
    text = f"{held:.1%} of the decision slots, at least {bound:.1%} of the decision slots needed"
    # Not rounded up: 94.96 % are not the 95 % needed.
    found = f"{number(math.floor(1000 * held) / 10)} %"
    return Reason("coverage", held >= bound, False, text, found, f"≥ {number(100 * bound)} %")


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
        f"{number(per_day)} a day",
        f"≤ {number(gate.max_guard_trips_per_day)} a day",
    )


def _failures(found: Claim, gate: GateConfig) -> Reason:
    failed = sum(found.failures.values())
    share = failed / max(1, found.asked)
    holds = share <= gate.max_failure_share
    text = (
        f"{failed} of {found.asked} decisions failed, at most {gate.max_failure_share:.2%} allowed"
    )
    return Reason(
        "failures",
        holds,
        not holds,
        text,
        f"{failed:,} of {found.asked:,}",
        f"≤ {number(100 * gate.max_failure_share)} %",
    )


def _model(error: ModelError, trust: Trust) -> Reason:
    wrong = error.beyond(trust)
    text = "; ".join(wrong) or (
        f"errors on the observed run: lag {error.lag:.1%}, late share of the time "
        f"{_points(error.slo)}, cost {error.cost:.1%}"
    )
    if error.slo_range is not None and not wrong:
        low, high = error.slo_range
        text += (
            f"; within the error of its capacity it is late {number(100 * low)} to "
            f"{_points(high)} of the time, {_points(error.slo_share[1])} were observed"
        )
    found = "beyond its bounds" if wrong else "trusted"
    return Reason("model", not wrong, False, text, found, "errors within bounds")


def _rescues(found: Claim, error: ModelError, rescue: RescueConfig) -> bool:
    """Whether a policy cuts the lateness of an incumbent that is late too often."""
    saving, later = found.figures.get("saving"), found.figures.get("later")
    late = error.slo_share[1]
    if saving is None or later is None or not late >= rescue.late:
        return False
    return -later.high >= rescue.cut * late and 1.0 - saving.low <= rescue.max_cost


def _saves(found: Claim, gate: GateConfig) -> bool:
    return found.figures["saving"].low >= gate.min_saving


def _saving(found: Claim, gate: GateConfig, *, rescues: bool) -> Reason:
    s, needed = found.figures.get("saving"), f"≥ {number(100 * gate.min_saving)} %"
    if s is None:
        return Reason("saving", False, False, NO_CLAIM, UNCLAIMED, needed)
    holds = _saves(found, gate) or rescues
    bound = (
        f"a saving of at least {100 * gate.min_saving:g} % needed"
        if gate.min_saving >= 0
        else f"at most {-100 * gate.min_saving:g} % more allowed"
    )
    text = f"{saving_text(s.value)} [{_signed(-s.high)} to {_signed(-s.low)} % in cost], {bound}"
    if rescues and not _saves(found, gate):
        text += f"; a rescue may cost up to {number(gate.rescue.max_cost)} times as much"
    shown = f"{_range(number(100 * s.low), number(100 * s.high))} %"
    return Reason("saving", holds, s.high < gate.min_saving and not rescues, text, shown, needed)


def _slo(found: Claim, gate: GateConfig) -> Reason:
    s, needed = found.figures.get("later"), f"≤ +{_points(gate.max_later)}"
    if s is None:
        return Reason("SLO", False, False, NO_CLAIM, UNCLAIMED, needed)
    holds = s.high <= gate.max_later
    text = (
        f"{lateness_text(s.value)} [{_signed(s.low)} to {_signed(s.high)} points], "
        f"at most {_points(gate.max_later)} more allowed"
    )
    shown = f"{_range(_signed(s.low), _signed(s.high))} points"
    return Reason("SLO", holds, s.low > gate.max_later, text, shown, needed)


def watched_text(days: float) -> str:
    """How long a job was watched; rounded down, so that 6.98 days are not 7.

    Returns:
        Days, or hours where they are less than one.

    >>> watched_text(2.04), watched_text(6.98), watched_text(1.0), watched_text(0.0833)
    ('2 days', '6.9 days', '1 day', '1.9 hours')
    """
    value, unit = (days, "day") if days >= 1 else (24 * days, "hour")
    shown = number(math.floor(10 * value + 1e-6) / 10)
    return f"{shown} {unit}{'' if shown == '1' else 's'}"


def saving_text(share: float) -> str:
    """The change of cost as words, from the share of the incumbent's cost that a policy saves.

    Returns:
        A phrase with a positive percentage: "saves ..." or "costs ... more".

    >>> saving_text(0.123), saving_text(-1.184)
    ('saves 12.3 %', 'costs 118 % more')
    """
    if share < 0:
        return f"costs {number(-100 * share)} % more"
    return f"saves {number(100 * share)} %"


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


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _points(share: float) -> str:
    """Percentage points of the time."""
    shown = number(100 * share)
    return f"{shown} point" if shown == "1" else f"{shown} points"


def _signed(share: float) -> str:
    """Per cent or percentage points, with the sign; no negative zero."""
    return signed(100 * share)
