"""The reward: named terms and their weights.

    reward = -(cost * w_cost + slo * w_slo + backlog * w_backlog + rescale * w_rescale)

In simulation the terms come from the true outcome, not from observed metrics.
To add a term, add a field to `RewardWeights`: the table of terms is read from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from dsp_gym.arrays import Floats
from dsp_gym.config.model import ConfigModel
from dsp_gym.loop.outcome import Outcome

__all__ = ["TERMS", "RewardTerms", "RewardWeights", "Term", "reward", "reward_terms"]

RewardTerms = dict[str, Floats]
"""Unweighted terms by name, each (J,), in the order of `TERMS`."""


@dataclass(frozen=True, slots=True)
class Term:
    """How one term is computed; name, default weight and sentence are those of its weight."""

    unit: str
    compute: Callable[[Outcome, Floats], Floats]
    """The term (J,), 0 or more, of an outcome and the reference cost per second (J,)."""


def _cost(outcome: Outcome, reference_cost_per_s: Floats) -> Floats:
    return outcome.cost / (reference_cost_per_s * np.maximum(outcome.seconds, 1.0))


def _slo(outcome: Outcome, reference_cost_per_s: Floats) -> Floats:
    return outcome.slo_s / np.maximum(outcome.seconds, 1.0)


def _backlog(outcome: Outcome, reference_cost_per_s: Floats) -> Floats:
    return np.asarray(np.log1p(outcome.pending_s))


def _rescale(outcome: Outcome, reference_cost_per_s: Floats) -> Floats:
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
"""How each term is computed, by name, in the order of the weights."""

TERMS = tuple(TERM_TABLE)
"""Names of the terms, in order."""


def reward_terms(outcome: Outcome, reference_cost_per_s: Floats) -> RewardTerms:
    """Compute the terms of one interval.

    Args:
        outcome: the outcome of the interval.
        reference_cost_per_s: (J,) money per second of the smallest configuration that sustains the
            job's reference rate; it makes cost comparable between jobs.

    Returns:
        Unweighted terms by name, each (J,).
    """
    return {name: term.compute(outcome, reference_cost_per_s) for name, term in TERM_TABLE.items()}


def reward(terms: Mapping[str, Floats], weights: RewardWeights) -> Floats:
    """Weigh and add up the terms.

    Args:
        terms: unweighted terms by name, each (J,).
        weights: their weights.

    Returns:
        The reward (J,), at or below zero.
    """
    weighted = [getattr(weights, name) * terms[name] for name in TERMS]
    total = weighted[0]
    for term in weighted[1:]:
        total = total + term
    return np.asarray(-total)
