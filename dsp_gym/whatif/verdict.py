"""The verdict: whether the evidence is enough to let a policy act, and what it rests on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from dsp_gym.control.gate import GateConfig
from dsp_gym.control.modes import INCUMBENT
from dsp_gym.pages import number, signed
from dsp_gym.whatif.blocks import JobReplay
from dsp_gym.whatif.claims import Figures, figures_of, model_errors
from dsp_gym.whatif.history import Decided, JobHistory
from dsp_gym.whatif.result import Assumption, ObservedJob, PolicyClaim, Reason, Trust, Word

DAYS = "days observed"


@dataclass(frozen=True, slots=True)
class VerdictTerms:
    """The bounds of a verdict."""

    gate: GateConfig
    trust: Trust
    incumbent: str = INCUMBENT
    """Label of what a policy would replace: the deployed configurations, or another policy."""


def judged(history: JobHistory, replay: JobReplay, policy: str, terms: VerdictTerms) -> PolicyClaim:
    """Make the claim about one policy.

    Args:
        history: with the fitted model.
        replay: of the job.
        policy: its label.
        terms: the bounds of the verdict.

    Returns:
        Its figures, the verdict with every reason, and what that assumes.
    """
    figures, seen, own = (
        figures_of(replay, policy, terms.incumbent),
        replay.observed,
        replay.policies[policy],
    )
    watched = history.watched
    decided = None if watched is None else watched.decided.get(policy)
    word, reasons = judge(figures, _while_asked(history, seen, decided), decided, terms)
    saved = figures["saving_per_month"]
    return PolicyClaim(
        policy=policy,
        **figures,
        lag_s=own.lag_s,
        latency_p95_s=own.latency_p95_s,
        rescales_per_day=float(86_400 * own.of("rescales").sum() / own.of("seconds").sum()),
        agreement=None if decided is None else _agreement(history, decided),
        trips={} if decided is None else decided.trips,
        verdict=word,
        reasons=reasons,
        assumed=tuple(_assumed(history, replay, policy, figures, word, terms)),
        claimed_per_month=max(0.0, saved.low) if word == "promote" else 0.0,
    )


def judge(
    figures: Figures, seen: ObservedJob, decided: Decided | None, terms: VerdictTerms
) -> tuple[Word, tuple[Reason, ...]]:
    """Judge one policy: promote if every condition holds, reject if the evidence is bad.

    Evidence that is only too thin (too few days, an untrusted model, a wide interval) gives
    "keep watching". Where the incumbent misses its SLO and the policy does not, money is no
    condition: that is a rescue.

    Args:
        figures: of the policy.
        seen: the observed job and the model's error on it; days and coverage are those of the time
            in which the policy was asked.
        decided: the policy's decisions beside the job; None: it was not asked.
        terms: the bounds of the verdict.

    Returns:
        The recommendation, with one reason per condition.
    """
    gate, wrong = terms.gate, model_errors(seen, terms.trust)
    late = seen.late or 0.0
    if terms.incumbent != INCUMBENT:
        late = figures["late"].value - figures["later"].value
    rescues = not wrong and _rescues(figures, late, gate)
    reasons = [_days(seen, decided, gate), _coverage(seen, decided, gate)]
    if decided is not None:
        reasons += [_guard(seen, decided, gate), _failures(decided, gate)]
    reasons += [_model(seen, wrong), _saving(figures, gate, rescues=rescues), _slo(figures, gate)]
    if all(reason.holds for reason in reasons):
        return "promote" if _saves(figures, gate) else "rescue", tuple(reasons)
    # The figures of a model that is wrong speak neither for nor against a policy.
    shown = [r for r in reasons if not (wrong and r.subject in ("saving", "SLO"))]
    against = any(reason.speaks_against and not reason.holds for reason in shown)
    return "reject" if against else "keep watching", tuple(reasons)


def _while_asked(history: JobHistory, seen: ObservedJob, decided: Decided | None) -> ObservedJob:
    """Count days and coverage from a policy's first decision on, and slots without one as unknown.

    A policy may have been added to a run long after its begin.
    """
    if decided is None:
        return seen
    asked = np.flatnonzero(decided.asked)
    rows = slice(asked[0] if len(asked) else len(history), None)
    part = replace(
        history,
        t_s=history.t_s[rows],
        seconds=history.seconds[rows],
        arrived=np.where(decided.asked, history.arrived, np.nan)[rows],
    )
    days, coverage = min(seen.days, part.days), min(seen.coverage, part.coverage)
    return seen.model_copy(update={"days": days, "coverage": coverage})


def _assumed(
    history: JobHistory,
    replay: JobReplay,
    policy: str,
    figures: Figures,
    word: Word,
    terms: VerdictTerms,
) -> Iterator[Assumption]:
    """What the figures of a policy rest on that nothing in the history shows."""
    base, own = replay.policies[terms.incumbent], replay.policies[policy]
    rescales = max(one.of("rescales").sum() for one in (base, own))
    if not history.drawn_outages_s and rescales > 0:
        # Of the whole time, as late shares are: no replay covers that in which the job was gone.
        seconds = own.of("seconds").sum() / (1.0 - replay.observed.gone)
        late = float((own.of("down_s").sum() - base.of("down_s").sum()) / seconds)
        high, most = figures["later"].high, terms.gate.max_later
        # No outage at all, and outages twice as long: does the condition of the SLO stand?
        decides = len({one <= most for one in (high - late, high, high + late)}) > 1
        # Is the model trusted without the outages that it gave to the deployed rescales?
        deployed_late = float(replay.policies[INCUMBENT].of("down_s").sum() / seconds)
        decides |= _untrusted(replay.observed, deployed_late, terms.trust)
        late = max(0.0, late)
        values = tuple(float(s) for s in history.spec.rescale.outage_s)
        yield Assumption(of="outage_s", values=values, late=late, decides=decides)
    acts = word in ("promote", "rescue")
    if history.assumed:
        yield Assumption(of="parameters", names=history.assumed, decides=acts)
    if terms.incumbent != INCUMBENT:
        yield Assumption(of="incumbent", names=(terms.incumbent,), decides=acts)


def _untrusted(seen: ObservedJob, assumed_late: float, trust: Trust) -> bool:
    """Whether an assumed lateness alone puts the model's beyond its bound."""
    if seen.late is None or seen.model_late is None:
        return False
    error = seen.model_late - seen.late
    return error > trust.late >= error - assumed_late


def assumption_text(one: Assumption) -> str:
    """Say what was assumed, not measured.

    Returns:
        A phrase.

    >>> assumption_text(Assumption(of="outage_s", values=(5, 8, 12), late=0.01, decides=True))
    'an outage of 5 to 12 s for each rescale, which decides the verdict'
    """
    what = f"the model's {', '.join(one.names)}"
    if one.of == "incumbent":
        what = f"the cost and lateness of {one.names[0]}, which the model predicts"
    if one.of == "outage_s":
        low, high = number(one.values[0]), number(one.values[-1])
        what = f"an outage of {_range(low, high)} s for each rescale"
    return f"{what}{', which decides the verdict' if one.decides else ''}"


def _agreement(history: JobHistory, decided: Decided) -> float | None:
    """Share of a policy's decisions beside the job that equal what was deployed."""
    rows = decided.asked
    if not rows.any():
        return None
    same = np.all(decided.parallelism[rows] == history.parallelism[rows], axis=1)
    same &= np.all(decided.memory_level[rows] == history.memory_level[rows], axis=1)
    return float(np.mean(same))


def _days(seen: ObservedJob, decided: Decided | None, gate: GateConfig) -> Reason:
    since = "" if decided is None else " since the policy was first asked"
    shown, needed = watched_text(seen.days), watched_text(gate.min_days)
    # "2 of 7 days", but "5 hours of 7 days".
    found = shown.split()[0] if shown.split()[-1].startswith(needed.split()[-1][:3]) else shown
    return Reason(
        subject=DAYS,
        holds=seen.days >= gate.min_days,
        speaks_against=False,
        text=f"{seen.days:.2f} days{since}, at least {gate.min_days:.2f} days needed",
        found=f"{found} of {needed}",
        needed=f"≥ {needed}",
    )


def _coverage(seen: ObservedJob, decided: Decided | None, gate: GateConfig) -> Reason:
    held, bound = seen.coverage, gate.min_coverage
    known = "are known" if decided is None else "are known and have a decision of the policy"
    return Reason(
        subject="coverage",
        holds=held >= bound,
        speaks_against=False,
        text=f"{held:.1%} of the slots {known}, at least {bound:.1%} needed",
        # Not rounded up: 94.96 % are not the 95 % needed.
        found=f"{number(math.floor(1000 * held) / 10)} %",
        needed=f"≥ {number(100 * bound)} %",
    )


def _guard(seen: ObservedJob, decided: Decided, gate: GateConfig) -> Reason:
    per_day = float(sum(decided.trips.values()) / max(seen.days, 1e-9))
    holds = per_day <= gate.max_guard_trips_per_day
    most = max(decided.trips, key=lambda name: decided.trips[name], default=None)
    text = f"{per_day:.1f} guardrail trips a day, at most {gate.max_guard_trips_per_day:g} allowed"
    return Reason(
        subject="guardrails",
        holds=holds,
        speaks_against=not holds and seen.days >= gate.min_days,
        text=text if most is None else f"{text}; most often {most}",
        found=f"{number(per_day)} a day",
        needed=f"≤ {number(gate.max_guard_trips_per_day)} a day",
    )


def _failures(decided: Decided, gate: GateConfig) -> Reason:
    failed, asked = sum(decided.failures.values()), int(decided.asked.sum())
    holds = failed / max(1, asked) <= gate.max_failure_share
    return Reason(
        subject="failures",
        holds=holds,
        speaks_against=not holds,
        text=f"{failed} of {asked} decisions failed, at most {gate.max_failure_share:.2%} allowed",
        found=f"{failed:,} of {asked:,}",
        needed=f"≤ {number(100 * gate.max_failure_share)} %",
    )


def _model(seen: ObservedJob, wrong: tuple[str, ...]) -> Reason:
    text = "; ".join(wrong) or (
        f"errors on the deployed configurations: cost {100 * seen.cost_error:.1f} %, late share of "
        f"the time {_points(seen.late_error)}, backlog {100 * seen.lag_error:.1f} %"
    )
    return Reason(
        subject="model",
        holds=not wrong,
        speaks_against=False,
        text=text,
        found="beyond its bounds" if wrong else "trusted",
        needed="errors within bounds",
    )


def _rescues(figures: Figures, late: float, gate: GateConfig) -> bool:
    """Whether a policy cuts the lateness of an incumbent that is late too often."""
    rescue = gate.rescue
    cuts = late >= rescue.late and -figures["later"].high >= rescue.cut * late
    return cuts and 1.0 - figures["saving"].low <= rescue.max_cost


def _saves(figures: Figures, gate: GateConfig) -> bool:
    return figures["saving"].low >= gate.min_saving


def _saving(figures: Figures, gate: GateConfig, *, rescues: bool) -> Reason:
    s = figures["saving"]
    bound = (
        f"a saving of at least {100 * gate.min_saving:g} % needed"
        if gate.min_saving >= 0
        else f"at most {-100 * gate.min_saving:g} % more allowed"
    )
    text = f"{saving_text(s.value)} [{_signed(-s.high)} to {_signed(-s.low)} % in cost], {bound}"
    if rescues and not _saves(figures, gate):
        text += f"; a rescue may cost up to {number(gate.rescue.max_cost)} times as much"
    return Reason(
        subject="saving",
        holds=_saves(figures, gate) or rescues,
        speaks_against=s.high < gate.min_saving and not rescues,
        text=text,
        found=f"{_range(number(100 * s.low), number(100 * s.high))} %",
        needed=f"≥ {number(100 * gate.min_saving)} %",
    )


def _slo(figures: Figures, gate: GateConfig) -> Reason:
    s = figures["later"]
    return Reason(
        subject="SLO",
        holds=s.high <= gate.max_later,
        speaks_against=s.low > gate.max_later,
        text=f"{lateness_text(s.value)} [{_signed(s.low)} to {_signed(s.high)} points], at most "
        f"{_points(gate.max_later)} more allowed",
        found=f"{_range(_signed(s.low), _signed(s.high))} points",
        needed=f"≤ +{_points(gate.max_later)}",
    )


def watched_text(days: float) -> str:
    """How long a job was watched; rounded down, so that 6.98 days are not 7.

    Returns:
        Days, or hours or minutes where they are less than one.

    >>> watched_text(2.04), watched_text(6.98), watched_text(1.0), watched_text(0.0833)
    ('2 days', '6.9 days', '1 day', '1.9 hours')
    >>> watched_text(0.00764)
    '11 minutes'
    """
    value, unit, digits = (days, "day", 1) if days >= 1 else (24 * days, "hour", 1)
    if value < 1:
        value, unit, digits = 60 * value, "minute", 0
    shown = number(math.floor(10**digits * value + 1e-6) / 10**digits)
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
