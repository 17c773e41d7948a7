"""A scorecard in one sentence: what the best policy would save, and whether to let it act."""

from __future__ import annotations

from dsp_gym.control.modes import INCUMBENT
from dsp_gym.job.cost import HOURS_A_MONTH
from dsp_gym.pages import money, number, signed
from dsp_gym.whatif.evaluation import CounterfactualEvaluation
from dsp_gym.whatif.model_error import Claim, Estimated
from dsp_gym.whatif.verdict import (
    DAYS,
    UNCLAIMED,
    Reason,
    Verdict,
    saving_text,
)

__all__ = ["headline", "monthly_saving", "ranked"]

_ORDER = ("promote", "rescue", "keep watching", "reject")


def ranked(evaluated: CounterfactualEvaluation) -> tuple[Claim, ...]:
    """The watched policies, best first.

    Returns:
        Claims by verdict, then by what is saved at least; the incumbent is none of them.
    """

    def place(one: Claim) -> tuple[int, float]:
        saving = one.figures.get("saving")
        word = evaluated.verdicts[one.policy].word
        return _ORDER.index(word), 0.0 if saving is None else -saving.low

    return tuple(sorted((c for c in evaluated.claims if c.policy != INCUMBENT), key=place))


def monthly_saving(evaluated: CounterfactualEvaluation, policy: str) -> Estimated | None:
    """What a policy would save in a month of 730 hours.

    Returns:
        Money against the incumbent, as the model has it; None where no claim is made.
    """
    figures = {one.policy: one.figures for one in evaluated.claims}
    saving = figures[policy].get("saving")
    cost = figures.get(INCUMBENT, {}).get("cost_per_h")
    if saving is None or cost is None:
        return None
    month = HOURS_A_MONTH * cost.value
    return Estimated(month * saving.value, month * saving.low, month * saving.high)


def headline(evaluated: CounterfactualEvaluation) -> str:
    """The sentence.

    Returns:
        Saving, lateness and verdict of the best policy; "" where none was watched.
    """
    best = next(iter(ranked(evaluated)), None)
    if best is None:
        return ""
    verdict = evaluated.verdicts[best.policy]
    said = f"{_claim(evaluated, best)}; verdict: {verdict.word}"
    if verdict.word == "rescue":
        return f"{said}, it saves the SLO and {saving_text(best.figures['saving'].value)}."
    wanting = _wanting(verdict)
    return f"{said}{', ' if wanting else ''}{', '.join(map(_short, wanting))}."


def _claim(evaluated: CounterfactualEvaluation, one: Claim) -> str:
    saved, later = monthly_saving(evaluated, one.policy), one.figures.get("later")
    if saved is None or later is None:
        return f"{one.policy}: no claim, for the model's error on the observed run is too large"
    if saved.value < 0:
        saved = Estimated(-saved.value, -saved.high, -saved.low)
        told = f"cost {money(saved.value, evaluated.currency)} a month more"
    else:
        told = f"save {money(saved.value, evaluated.currency)} a month"
    low, high = number(saved.low), number(saved.high)
    between = "" if low == high else f" ({low} to {high})"
    points = signed(round(100 * later.value, 2))
    return f"{one.policy} would {told}{between}, late {points} points"


def _wanting(verdict: Verdict) -> list[Reason]:
    """The reasons behind a verdict that is not to promote."""
    against = [reason for reason in verdict.reasons if reason.speaks_against]
    thin = [reason for reason in verdict.reasons if not reason.holds]
    return against or [reason for reason in thin if reason.found != UNCLAIMED]


def _short(reason: Reason) -> str:
    if reason.subject == DAYS:
        return f"{reason.found} seen"
    return f"{reason.subject}: {reason.found} ({reason.needed} needed)"
