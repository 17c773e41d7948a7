"""Reasons why a policy must hold, in one wording for all policies."""

from __future__ import annotations

HOLD_DOWN = "hold: the job is not running"
HOLD_YOUNG = "hold: the job has no metrics since its restart yet"
HOLD_BLIND = "hold: no measurement of the load for ten minutes"
HOLD_NOT_FINITE = (
    "hold: the network's output is NaN or infinite: an observation or its weights are out of range"
)
HOLD_UNSEEN = "hold: some vertex has not been seen busy, and there is no job file to start from"
