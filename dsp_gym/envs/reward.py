"""The reward: named terms and their weights.

    reward = -(cost * w_cost + slo * w_slo + backlog * w_backlog + rescale * w_rescale)

In simulation the terms come from the true outcome, not from observed metrics.
To add a term, add a field to `RewardWeights`: the table of terms is read from there.
"""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, NamedTuple, Protocol, cast

import numpy as np
from pydantic import Field

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.config.model import ConfigModel
from dsp_gym.loop.outcome import OUTCOME_FIELDS, OUTCOME_PLACES, Outcome
from dsp_gym.numba_handles import direct

RewardTerms = dict[str, Floats]
"""Unweighted terms by name, each (J,), in the order of `TERMS`."""


class JobOutcome(Protocol):
    """The outcome of one job over one interval, as a term sees it.

    Every quantity of an `Outcome` stands under its name, such as `slo_s`, as a number.
    """

    def __getattr__(self, name: str) -> float: ...


@dataclass(frozen=True, slots=True)
class Term:
    """The computation of one term; name, default weight and sentence are those of its weight."""

    unit: str
    compute: Callable[[JobOutcome, float], float]
    """The term, 0 or more, from one job's outcome and its reference cost per second; compiled."""


def _cost(outcome: JobOutcome, reference_cost_per_s: float) -> float:
    return float(outcome.cost / (reference_cost_per_s * max(outcome.seconds, 1.0)))


def _slo(outcome: JobOutcome, reference_cost_per_s: float) -> float:
    share = outcome.slo_s / max(outcome.seconds, 1.0)
    return float(share) if share == share else 0.0  # unknown while a job's metrics are missing


def _backlog(outcome: JobOutcome, reference_cost_per_s: float) -> float:
    return float(math.log1p(outcome.pending_s))


def _rescale(outcome: JobOutcome, reference_cost_per_s: float) -> float:
    return outcome.rescales


class RewardWeights(ConfigModel):
    """Weights of the unweighted terms; every term is at or above zero, larger is worse."""

    cost: Annotated[float, Term("reference costs", _cost)] = Field(
        1.0, ge=0, description="money requested over that of the job's reference configuration"
    )
    slo: Annotated[float, Term("share", _slo)] = Field(
        4.0, ge=0, description="share of seconds that violate the SLO, down included"
    )
    backlog: Annotated[float, Term("log", _backlog)] = Field(
        0.2, ge=0, description="log(1 + backlog in seconds of arrivals) at the interval's end"
    )
    rescale: Annotated[float, Term("rescales", _rescale)] = Field(
        0.1, ge=0, description="rescales started"
    )


def _terms_of(weights: type[RewardWeights]) -> dict[str, Term]:
    return {
        name: part
        for name, field in weights.model_fields.items()
        for part in field.metadata
        if isinstance(part, Term)
    }


TERM_TABLE = _terms_of(RewardWeights)
"""Computation of each term, by name, in the order of the weights."""

TERMS = tuple(TERM_TABLE)
"""Names of the terms, in order."""


class ScoringRules(NamedTuple):
    """Weights and ends of an episode, as `score` takes them."""

    weights: Floats  # (len(TERMS), J)
    give_up_s: float  # backlog in seconds of arrivals from which a job cannot recover
    interval_s: int
    episode_s: int

    @classmethod
    def of(cls, weights: Floats, give_up_s: float, interval_s: int, episode_s: int) -> ScoringRules:
        """Build the rules of an environment.

        Args:
            weights: (len(TERMS), J), as `weights_of` makes them; may be written later.
            give_up_s: Backlog from which a job cannot recover, in seconds of arrivals.
            interval_s: Seconds between decisions.
            episode_s: Length of an episode, s.

        Returns:
            Numbers for compiled code.
        """
        return cls(weights, float(give_up_s), interval_s, episode_s)


def weights_of(weights: RewardWeights, jobs: int) -> Floats:
    """Repeat the weights for every job.

    Returns:
        (len(TERMS), J), the same for all jobs.
    """
    given = np.array([getattr(weights, name) for name in TERMS], np.float64)
    return np.repeat(given[:, None], jobs, axis=1)


def reward_terms(outcome: Outcome, reference_cost_per_s: Floats) -> RewardTerms:
    """Compute the terms of one interval.

    Args:
        outcome: the outcome of the interval.
        reference_cost_per_s: (J,) money per second of the smallest configuration that sustains the
            job's reference rate; it makes cost comparable between jobs.

    Returns:
        Unweighted terms by name, each (J,).
    """
    columns = outcome.columns
    terms = np.empty((len(TERMS), len(columns)))
    per_s = np.ascontiguousarray(reference_cost_per_s, dtype=np.float64)
    _fill(columns, per_s, 0, len(columns), terms)
    return dict(zip(TERMS, terms, strict=True))


def reward(terms: Mapping[str, Floats], weights: RewardWeights) -> Floats:
    """Weigh and add up the terms.

    Args:
        terms: unweighted terms by name, each (J,).
        weights: their weights.

    Returns:
        The reward (J,), at or below zero.
    """
    weighted = [getattr(weights, name) * terms[name] for name in TERMS]
    # In the order of the terms, as `score` adds them: both give the same bits.
    total = weighted[0]
    for term in weighted[1:]:
        total = total + term
    return np.asarray(-total)


# The compiled pass: numba cannot loop over different functions, so their calls are written out.

_Row = namedtuple("_Row", OUTCOME_FIELDS)  # type: ignore[misc]  # a row of the table of quantities
_Writer = Callable[[Floats, Floats, int, Floats], None]


def _writer(table: Mapping[str, Term]) -> _Writer:
    """Compile a function that writes every term of row j of the outcomes to its place."""
    # A row of outcomes becomes a named tuple, so that terms read `outcome.cost`.
    quantities = ", ".join(f"columns[j, {place}]" for place in range(len(OUTCOME_FIELDS)))
    calls = [
        f"    terms[{place}, j] = compute_{name}(outcome, unit[j])"
        for place, name in enumerate(table)
    ]
    scope: dict[str, object] = {
        f"compute_{name}": njit(nogil=True)(term.compute) for name, term in table.items()
    }
    scope["Row"] = _Row
    lines = ["def _write(columns, unit, j, terms):", f"    outcome = Row({quantities})", *calls]
    exec("\n".join(lines), scope)
    return njit(nogil=True)(cast(_Writer, scope["_write"]))


_write_terms = _writer(TERM_TABLE)
_PENDING_S = OUTCOME_PLACES["pending_s"]


@direct
@njit(cache=True, nogil=True)
def _fill(
    columns: Floats, reference_cost_per_s: Floats, low: int, high: int, terms: Floats
) -> None:
    for j in range(low, high):
        _write_terms(columns, reference_cost_per_s, j, terms)


@direct
@njit(cache=True, nogil=True)
def score(
    columns: Floats,
    reference_cost_per_s: Floats,
    rules: ScoringRules,
    low: int,
    high: int,
    steps: Ints,
    scores: Floats,
    ends: Bools,
) -> None:
    """Count one step of jobs low..high-1; compute their terms, rewards and whether they end.

    Args:
        columns: (J, quantities) outcomes.
        reference_cost_per_s: (J,), as in `reward_terms`.
        rules: weights and ends.
        low: first job.
        high: one past the last job.
        steps: (J,) steps of the episode; this one is added.
        scores: (len(TERMS) + 1, J), becomes the terms, then the reward.
        ends: (2, J), becomes terminated and truncated; a terminated job is not truncated.
    """
    last = scores.shape[0] - 1
    for j in range(low, high):
        _write_terms(columns, reference_cost_per_s, j, scores)
        total = rules.weights[0, j] * scores[0, j]
        for term in range(1, last):
            total += rules.weights[term, j] * scores[term, j]
        scores[last, j] = -total
        steps[j] += 1
        ends[0, j] = columns[j, _PENDING_S] > rules.give_up_s
        ends[1, j] = steps[j] * rules.interval_s >= rules.episode_s and not ends[0, j]
