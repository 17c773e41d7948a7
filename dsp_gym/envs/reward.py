"""The reward: named terms and their weights.

    reward = -(cost * w_cost + slo * w_slo + backlog * w_backlog + rescale * w_rescale)

In simulation the terms come from the outcome, what really happened, not from what was seen.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from pydantic import Field

from dsp_gym.arrays import Floats
from dsp_gym.config.model import ConfigModel
from dsp_gym.loop.outcome import Outcome

TERMS = ("cost", "slo", "backlog", "rescale")


class RewardWeights(ConfigModel):
    """Weights of the unweighted terms; every term is at or above zero, larger is worse."""

    cost: float = Field(
        1.0, ge=0, description="money requested over that of the job's reference configuration"
    )
    slo: float = Field(
        4.0, ge=0, description="share of seconds that violate the SLO, down included"
    )
    backlog: float = Field(
        0.2, ge=0, description="log(1 + backlog in seconds of arrivals) at the interval's end"
    )
    rescale: float = Field(0.1, ge=0, description="rescales started")


class RewardTerms(NamedTuple):
    """Unweighted terms, each (J,)."""

    cost: Floats
    slo: Floats
    backlog: Floats
    rescale: Floats


def reward_terms(outcome: Outcome, reference_cost_per_s: Floats) -> RewardTerms:
    """Terms of one interval.

    Args:
        outcome: what happened.
        reference_cost_per_s: (J,) money per second of the smallest configuration that sustains the
            job's reference rate; it makes cost comparable between jobs.
    """
    return RewardTerms(
        cost=outcome.cost / (reference_cost_per_s * np.maximum(outcome.seconds, 1.0)),
        slo=outcome.slo_s / np.maximum(outcome.seconds, 1.0),
        backlog=np.log1p(outcome.pending_s),
        rescale=outcome.rescales,
    )


def reward(terms: RewardTerms, weights: RewardWeights) -> Floats:
    """The weighted sum, (J,); never above zero."""
    total = (
        weights.cost * terms.cost
        + weights.slo * terms.slo
        + weights.backlog * terms.backlog
        + weights.rescale * terms.rescale
    )
    return np.asarray(-total)
