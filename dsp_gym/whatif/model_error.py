"""The claims about each policy, with the model's own error beside them and in their intervals.

The model is first replayed with the configurations that were deployed. Its lag, lateness and cost
are compared with the observed ones: the difference is the model's error on this job and this load.
A policy's figures are the model's with the policy in charge. The claim is the difference from the
model's own incumbent, so that an error common to both cancels; the interval is widened by the
error that may not cancel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from pydantic import Field

from dsp_gym.arrays import Floats
from dsp_gym.config.model import ConfigModel
from dsp_gym.whatif.journal import Decided, ObservedRun
from dsp_gym.whatif.stretch import Predicted
from dsp_gym.whatif.tally import SUMMED, ObservedTally, Tally

__all__ = [
    "Claim",
    "Estimated",
    "ModelError",
    "Trust",
    "decision_agreement",
    "claim_of",
    "error_of",
    "figures_of",
    "model_error",
    "with_ranges",
]


Z95 = 1.959964
"""Two-sided 95 % of a normal distribution."""


class Trust(ConfigModel):
    """The largest errors of the model on the observed run under which its claims are made."""

    lag: float = Field(
        0.25, gt=0, le=10, description="largest error of the lag, relative, or 2 s where it is less"
    )
    slo_share: float = Field(
        0.02, gt=0, le=1, description="largest error of the late share of the time"
    )
    cost: float = Field(0.15, gt=0, le=10, description="largest error of the cost, relative")


POSSIBLE: Mapping[str, tuple[float, float]] = {
    "slo_share": (0.0, 1.0),
    "saving": (-math.inf, 1.0),
    "later": (-1.0, 1.0),
}
"""Bounds of the figures; the others are no less than 0."""


@dataclass(frozen=True, slots=True)
class Estimated:
    """A figure and its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ModelError:
    """The model's error on the observed run."""

    lag_s: tuple[float, float]  # predicted, observed: mean backlog in seconds of arrivals
    slo_share: tuple[float, float]
    cost_per_h: tuple[float, float]
    lag_range_s: tuple[float, float] | None = None  # with the capacity at both ends of its interval
    slo_range: tuple[float, float] | None = None  # None: the capacity was taken as it is

    @property
    def lag(self) -> float:
        """Error of the lag, relative; below 8 s of lag an error of 2 s counts as a quarter."""
        predicted, observed = self.lag_s
        return abs(predicted - observed) / max(observed, 8.0)

    @property
    def slo(self) -> float:
        """Error of the late share of the time, absolute."""
        return abs(self.slo_share[0] - self.slo_share[1])

    @property
    def lag_unexplained(self) -> float:
        """What of the error of the lag the uncertainty of the capacity leaves over."""
        return _outside(self.lag_s, self.lag_range_s) / max(self.lag_s[1], 8.0)

    @property
    def slo_unexplained(self) -> float:
        """What of the error of the late share the uncertainty of the capacity leaves over."""
        return _outside(self.slo_share, self.slo_range)

    @property
    def cost(self) -> float:
        """Error of the cost, relative."""
        predicted, observed = self.cost_per_h
        return abs(predicted - observed) / max(observed, 1e-12)

    def beyond(self, trust: Trust) -> list[str]:
        """The errors above their bounds; what the capacity's uncertainty explains is none.

        Returns:
            One sentence for each; empty if the model is trusted.
        """
        found = []
        for name, error, bound in (
            ("lag", self.lag_unexplained, trust.lag),
            ("late share of the time", self.slo_unexplained, trust.slo_share),
            ("cost", self.cost, trust.cost),
        ):
            if not error <= bound:
                found.append(
                    f"the model's {name} is off by {error:.1%}, more than the allowed {bound:.1%}"
                )
        return found


def _outside(pair: tuple[float, float], span: tuple[float, float] | None) -> float:
    """Distance of what was observed from a prediction, or from the range of several."""
    predicted, observed = pair
    low, high = span or (predicted, predicted)
    # Not a maximum with 0: an unknown value stays unknown.
    return 0.0 if low <= observed <= high else min(abs(observed - low), abs(observed - high))


@dataclass(frozen=True, slots=True)
class Claim:
    """The predicted figures of one policy.

    `figures` holds cost_per_h, slo_share, lag_s, latency_p95_s, rescales_per_day, `saving` (share
    of the incumbent's cost) and `later` (late share above the incumbent's); it is empty if the
    model is not trusted.
    """

    policy: str
    figures: Mapping[str, Estimated]
    agreement: float  # share of its decisions that equal the deployed configuration
    near: float  # the same within one task per vertex, levels equal
    trips: Mapping[str, int]  # times that guardrails stepped in, by guardrail
    failures: Mapping[str, int]  # by cause
    asked: int
    regret_per_h: float | None = None
    """Cost above the cheapest policy that is no later than the incumbent."""


def figures_of(parts: Sequence[Predicted]) -> dict[str, Floats]:
    """Figures of a prediction over all stretches.

    Returns:
        Cost per hour, late share of the time, rescales per day, lag and p95 latency in s, each
        (S,): one value per seed.
    """
    return _tally(parts).figures()


def _tally(parts: Sequence[Predicted]) -> Tally:
    found = Tally.of(len(parts[0].outcome["seconds"][0]))
    for part in parts:
        for k in range(len(part.outcome["seconds"])):
            found.add({name: part.outcome[name][k] for name in SUMMED}, looked=False)
    return found


def model_error(
    course: ObservedRun, slices: Sequence[slice], parts: Sequence[Predicted]
) -> ModelError:
    """The model's error on the observed run.

    Args:
        course: the observed run.
        slices: the stretches that were predicted.
        parts: the model's replay of the deployed configurations, one per stretch.

    Returns:
        Predicted and observed lag, late share and cost over the same slots.
    """
    said, seen = Tally.of(len(parts[0].outcome["seconds"][0])), ObservedTally()
    for part, predicted in zip(slices, parts, strict=True):
        for at, slot in enumerate(range(part.start, part.stop)):
            told = {name: float(course.outcome[name][slot]) for name in SUMMED}
            looked = bool(np.isfinite(told["pending_s"]))
            said.add({name: predicted.outcome[name][at] for name in SUMMED}, looked=looked)
            seen.add(told)
    return error_of(said, seen)


def error_of(said: Tally, seen: ObservedTally) -> ModelError:
    """The model's error over some intervals.

    Args:
        said: the incumbent's, by the model.
        seen: those that were observed.

    Returns:
        Predicted and observed lag, late share and cost.
    """
    figures, seconds = said.figures(), seen.sums["seconds"]
    slots = seen.looked or math.nan
    return ModelError(
        lag_s=(said.looked_s / slots, seen.sums["pending_s"] / slots),
        slo_share=(float(np.mean(figures["slo_share"])), seen.sums["slo_s"] / seconds),
        cost_per_h=(float(np.mean(figures["cost_per_h"])), 3600 * seen.sums["cost"] / seconds),
    )


def with_ranges(error: ModelError, ends: Sequence[ModelError]) -> ModelError:
    """The error with the range of the predictions over the capacity's interval.

    Returns:
        A copy; without ends the error itself.
    """
    if not ends:
        return error
    every = (error, *ends)
    lag, late = [one.lag_s[0] for one in every], [one.slo_share[0] for one in every]
    return replace(error, lag_range_s=(min(lag), max(lag)), slo_range=(min(late), max(late)))


def claim_of(
    policy: str,
    predicted: dict[str, Floats],
    incumbent: dict[str, Floats],
    error: ModelError,
    trust: Trust,
    decided: Decided | None,
    course: ObservedRun,
    ends: Sequence[tuple[dict[str, Floats], dict[str, Floats]]] = (),
) -> Claim:
    """Makes the claim about one policy; without figures if the model is not trusted.

    Args:
        policy: its name.
        predicted: its figures, see `figures_of`.
        incumbent: the incumbent's, by the same model.
        error: the model's error on the observed run.
        trust: the largest error of a trusted model.
        decided: its decisions beside the observed run; None: it was not asked.
        course: the observed run.
        ends: both figures with the capacity at either end of its interval; empty: taken as it is.

    Returns:
        Figures with their intervals, agreement with the observed run, guardrail trips, failures.
    """
    figures: dict[str, Estimated] = {}
    if not error.beyond(trust):
        told = _compared(predicted, incumbent)
        slo = error.slo_unexplained if ends else error.slo
        lag = error.lag_unexplained if ends else error.lag
        off = {
            "cost_per_h": error.cost * float(np.mean(predicted["cost_per_h"])),
            "slo_share": slo,
            "lag_s": lag * float(np.mean(predicted["lag_s"])),
            # The share that is saved is a ratio: an error of both costs alike cancels, and what
            # does not is at most the error times what is saved.
            "saving": error.cost * float(np.mean(np.abs(told["saving"]))),
            "later": slo,
        }
        others = [_compared(*pair) for pair in ends]
        figures = {
            name: _possible(
                name, _estimated(values, off.get(name, 0.0), [other[name] for other in others])
            )
            for name, values in told.items()
        }
    same, near = decision_agreement(course, decided)
    if decided is None:
        return Claim(policy, figures, same, near, {}, {}, 0)
    return Claim(
        policy, figures, same, near, decided.trips, decided.failures, int(decided.asked.sum())
    )


def decision_agreement(course: ObservedRun, decided: Decided | None) -> tuple[float, float]:
    """How often a policy's decision equals the deployed configuration.

    Returns:
        The share of equal decisions, and the share of those within one task per vertex; NaN if
        the policy was never asked.
    """
    if decided is None or not decided.asked.any():
        return float("nan"), float("nan")
    rows = decided.asked
    apart = np.abs(decided.parallelism[rows] - course.parallelism[rows]).max(axis=1)
    level = np.all(decided.memory_level[rows] == course.memory_level[rows], axis=1)
    return float(np.mean(level & (apart == 0))), float(np.mean(level & (apart <= 1)))


def _compared(predicted: dict[str, Floats], incumbent: dict[str, Floats]) -> dict[str, Floats]:
    """A policy's figures, and what it saves and how much later it is than the incumbent."""
    return {
        **predicted,
        "saving": 1.0 - predicted["cost_per_h"] / incumbent["cost_per_h"],
        "later": predicted["slo_share"] - incumbent["slo_share"],
    }


def _estimated(values: Floats, off: float, ends: Sequence[Floats] = ()) -> Estimated:
    """Mean over seeds; the interval holds their spread, the model's error, and both ends."""
    mean = float(np.mean(values))
    spans = [_span(values, off), *(_span(other, off) for other in ends)]
    return Estimated(mean, min(low for low, _ in spans), max(high for _, high in spans))


def _possible(name: str, found: Estimated) -> Estimated:
    """The figure with its interval inside its bounds: nobody rescales -19 times a day."""
    least, most = POSSIBLE.get(name, (0.0, math.inf))
    return Estimated(found.value, max(least, found.low), min(most, found.high))


def _span(values: Floats, off: float) -> tuple[float, float]:
    mean = float(np.mean(values))
    spread = Z95 * float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    wide = float(np.hypot(spread, off))
    return mean - wide, mean + wide
