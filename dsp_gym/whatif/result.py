"""The result of a backtest as a document: every job, every policy, and the fleet."""

from __future__ import annotations

import json
from typing import Literal

from pydantic import Field

from dsp_gym.config.model import ConfigModel
from dsp_gym.whatif.blocks import ReplayedRescale
from dsp_gym.whatif.claims import BacktestTrust, ObservedJob, PolicyClaim, Ranged

__all__ = ["Backtest", "FleetClaim", "JobBacktest"]

Line = dict[str, tuple[float | None, ...]]
"""Values over the drawn points by quantity."""


class JobBacktest(ConfigModel):
    """One job."""

    name: str = Field(description="its name; text of others, neither a path nor markup")
    vertices: int = Field(description="vertices of its graph")
    begin_s: float = Field(description="begin of the history, s; since 1970 where is_dated")
    is_dated: bool = Field(description="whether times count from 1970")
    interval_s: int = Field(description="seconds between decisions")
    slo_latency_s: float = Field(description="bound on latency, s")
    observed: ObservedJob = Field(description="the deployed configurations")
    claims: tuple[PolicyClaim, ...] = Field(description="one for each policy")
    notes: tuple[str, ...] = Field(description="what to know about its history and model")
    t_s: tuple[float, ...] = Field(description="the drawn points, s since the begin")
    seen: Line = Field(description="load_per_s, subtasks, cost_per_h, latency_s, lag_s as observed")
    lines: dict[str, Line] = Field(description="the same without the load, by policy")
    changes: dict[str, tuple[ReplayedRescale, ...]] = Field(description="rescales by policy")

    @property
    def best(self) -> PolicyClaim | None:
        """The policy to look at: the largest claim; without any, the largest saving.

        Of those that may not be claimed, one that is late no more often goes first.
        """

        def place(one: PolicyClaim) -> tuple[float, bool, float]:
            return (one.claimed_per_month, one.later.value <= 0, one.saving_per_month.value)

        return max(self.claims, key=place, default=None)


class FleetClaim(ConfigModel):
    """One policy on all jobs."""

    policy: str = Field(description="label of the policy")
    saving_per_month: Ranged = Field(description="money, sum over the jobs")
    claimed_per_month: float = Field(description="sum of the claims on each job")
    jobs_claimed: int = Field(description="jobs about which something may be claimed")


class Backtest(ConfigModel):
    """What policies would have saved."""

    schema_: Literal["dsp-gym/backtest/1"] = Field(
        "dsp-gym/backtest/1", alias="schema", description="schema and version"
    )
    source: str = Field(description="where the history comes from")
    currency: str = Field(description="of every amount of money, an ISO 4217 code")
    trust: BacktestTrust = Field(description="bounds of a claim")
    policies: tuple[str, ...] = Field(description="labels, as they were asked for")
    fleet: tuple[FleetClaim, ...] = Field(description="one for each policy")
    jobs: tuple[JobBacktest, ...] = Field(description="by name")
    left_out: tuple[str, ...] = Field((), description="jobs without a usable history, and why")
    versions: dict[str, str] = Field(description="versions that the numbers depend on")

    def to_json(self) -> str:
        """One JSON document, keys sorted, a newline at its end.

        Returns:
            The same bytes for the same histories.
        """
        document = self.model_dump(mode="json", by_alias=True)
        return json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n"
