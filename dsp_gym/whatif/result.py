"""The result of a backtest as a document: every job, every policy, and the fleet."""

from __future__ import annotations

import json
from typing import Literal

from pydantic import Field

from dsp_gym.config.model import ConfigModel

Line = dict[str, tuple[float | None, ...]]
"""Values over the drawn points by quantity."""

Word = Literal["promote", "rescue", "keep watching", "reject"]
"""`rescue`: let it act, too; it saves the SLO, and costs more than the bound of saving allows."""


class Trust(ConfigModel):
    """The largest errors of the model on the deployed configurations under which it is trusted."""

    cost: float = Field(0.05, gt=0, le=10, description="of the cost, relative")
    late: float = Field(0.02, gt=0, le=1, description="of the late share of the time")
    lag: float = Field(
        0.25, gt=0, le=10, description="of the lag, relative, or 2 s where that is more"
    )


class Ranged(ConfigModel):
    """A value with its 95 % interval."""

    value: float = Field(description="the value")
    low: float = Field(description="lower end of the interval")
    high: float = Field(description="upper end of the interval")

    def with_gone(self, gone: float) -> Ranged:
        """A late share of the replayed time, made one of the whole time.

        Args:
            gone: share of the whole time in which the job was gone, so late.

        Returns:
            Late share of the whole time.
        """
        ends = self.times(1.0 - gone)
        return Ranged(value=gone + ends.value, low=gone + ends.low, high=gone + ends.high)

    def times(self, factor: float) -> Ranged:
        """The same in another unit.

        Returns:
            Value and ends times a positive factor.
        """
        return Ranged(value=factor * self.value, low=factor * self.low, high=factor * self.high)


class ReplayedRescale(ConfigModel):
    """One rescale."""

    t_s: float = Field(description="seconds since the begin of the history")
    what: str = Field(description="the vertices that change, from and to")
    reason: str = Field(description="of the policy, or of the guardrail that changed its decision")


class ObservedJob(ConfigModel):
    """The deployed configurations of one job, as observed and as the model has them."""

    days: float = Field(description="from the first slot to the last")
    coverage: float = Field(description="share of the slots whose load is known")
    held: int = Field(0, description="slots of a run without a snapshot or an answer")
    cost_per_month: float = Field(description="price of what was requested, 730 hours")
    model_cost_per_month: float = Field(description="the model's, with the same configurations")
    late: float | None = Field(description="observed late share of the time; none: not measured")
    model_late: float | None = Field(description="the model's, over the slots that were measured")
    lag_s: float | None = Field(description="observed mean backlog, s of arrivals; none: unknown")
    model_lag_s: float | None = Field(description="the model's, over the slots that were measured")
    rescales_per_day: float = Field(description="observed")
    gone: float = Field(
        0.0,
        description="share of the time in which the job was gone without a rescale; no replay "
        "covers it, and every late share contains it",
    )

    @property
    def cost_error(self) -> float:
        """The model's error of the cost, relative."""
        return abs(self.model_cost_per_month / max(self.cost_per_month, 1e-12) - 1.0)

    @property
    def late_error(self) -> float:
        """The model's error of the late share of the time; 0 where that was not measured."""
        return abs((self.model_late or 0.0) - (self.late or 0.0))

    @property
    def lag_error(self) -> float:
        """The model's error of the lag, relative; below 8 s of lag 2 s count as a quarter."""
        return abs((self.model_lag_s or 0.0) - (self.lag_s or 0.0)) / max(self.lag_s or 0.0, 8.0)


class Reason(ConfigModel):
    """One condition of the verdict."""

    subject: str = Field(description="what it is about")
    holds: bool = Field(description="whether it is met")
    speaks_against: bool = Field(description="the evidence is bad, not only too thin")
    text: str = Field(description="the condition in a sentence")
    found: str = Field(description="in a few characters, as a cell of a table")
    needed: str = Field(description="likewise")


class Assumption(ConfigModel):
    """A number behind the verdict that nothing in the history shows."""

    of: Literal["outage_s", "parameters", "incumbent"] = Field(
        description="of a rescale, of the model, or of a policy in place of what was deployed"
    )
    names: tuple[str, ...] = Field((), description="of the model's parameters, or of the policy")
    values: tuple[float, ...] = Field((), description="of an outage its 10, 50 and 90 %, s")
    late: float = Field(0.0, description="late share of the time that rests on it")
    decides: bool = Field(description="whether another value would change the verdict")


class PolicyClaim(ConfigModel):
    """What one policy would have done on one job, and the verdict on it."""

    policy: str = Field(description="label of the policy")
    saving_per_month: Ranged = Field(description="money against the deployed configurations")
    saving: Ranged = Field(description="share of the deployed configurations' cost")
    late: Ranged = Field(description="late share of the time")
    later: Ranged = Field(
        description="late share of the time above that of the deployed configurations"
    )
    lag_s: float = Field(description="mean backlog, s of arrivals")
    latency_p95_s: float = Field(description="mean p95 latency, s")
    rescales_per_day: float = Field(description="mean")
    agreement: float | None = Field(
        None, description="share of its decisions beside the job that equal what was deployed"
    )
    trips: dict[str, int] = Field(
        default_factory=dict, description="times that guardrails stepped in beside the job"
    )
    verdict: Word = Field(description="whether to let it act")
    reasons: tuple[Reason, ...] = Field(description="every condition")
    assumed: tuple[Assumption, ...] = Field((), description="what was assumed, not measured")
    claimed_per_month: float = Field(
        description="money that may be claimed: the interval's lower end where all conditions hold"
    )

    @property
    def is_late(self) -> bool:
        """Whether its lateness forbids it."""
        return not all(one.holds for one in self.reasons if one.subject == "SLO")


class ReplayedIncumbent(ConfigModel):
    """The policy that the others would replace, in charge of one job in place of what ran."""

    policy: str = Field(description="label of the policy")
    cost_per_month: Ranged = Field(description="price of what it would have requested, 730 hours")
    late: Ranged = Field(description="late share of the time")
    lag_s: float = Field(description="mean backlog, s of arrivals")
    latency_p95_s: float = Field(description="mean p95 latency, s")
    rescales_per_day: float = Field(description="mean")


class JobResult(ConfigModel):
    """One job."""

    name: str = Field(description="its name; text of others, neither a path nor markup")
    vertices: int = Field(description="vertices of its graph")
    begin_s: float = Field(description="begin of the history, s; since 1970 where is_dated")
    is_dated: bool = Field(description="whether times count from 1970")
    interval_s: float = Field(description="seconds between decisions")
    intervals: int = Field(description="intervals that were replayed")
    seeds: int = Field(description="predictions of each policy")
    currency: str = Field(description="of its amounts of money, an ISO 4217 code")
    slo_latency_s: float = Field(description="bound on latency, s")
    observed: ObservedJob = Field(description="the deployed configurations")
    late_since_s: float | None = Field(
        None,
        description="since when the job was late at the end, s since the begin; none: in time, "
        "or not known where observed.late is none, too",
    )
    incumbent: ReplayedIncumbent | None = Field(
        None, description="the policy that savings are counted against; none: what was deployed"
    )
    distrust: tuple[str, ...] = Field(description="the model's errors beyond their bounds")
    claims: tuple[PolicyClaim, ...] = Field(description="one for each policy")
    failures: dict[str, str] = Field(description="policies that could not be replayed, and why")
    notes: tuple[str, ...] = Field(description="what to know about its history and model")
    t_s: tuple[float, ...] = Field(description="the drawn points, s since the begin")
    seen: Line = Field(description="load_per_s, subtasks, cost_per_h, latency_s, lag_s as observed")
    lines: dict[str, Line] = Field(description="the same without the load, by policy")
    changes: dict[str, tuple[ReplayedRescale, ...]] = Field(description="rescales by policy")

    def ranked(self) -> tuple[PolicyClaim, ...]:
        """The policies, best first.

        Returns:
            Claims by verdict, those whose lateness forbids them last, then by what is saved at
            least.
        """

        def place(one: PolicyClaim) -> tuple[bool, int, float]:
            return one.is_late, _ORDER.index(one.verdict), -one.saving_per_month.low

        return tuple(sorted(self.claims, key=place))

    @property
    def best(self) -> PolicyClaim | None:
        """The policy to look at; None where lateness forbids every one."""
        return next((one for one in self.ranked() if not one.is_late), None)

    @property
    def present(self) -> tuple[float, float | None, float]:
        """What the policies would replace: cost a month, late share, rescales a day."""
        base = self.incumbent
        if base is not None:
            return base.cost_per_month.value, base.late.value, base.rescales_per_day
        seen = self.observed
        return seen.cost_per_month, seen.late, seen.rescales_per_day


_ORDER = ("promote", "rescue", "keep watching", "reject")


class FleetClaim(ConfigModel):
    """One policy on all jobs."""

    policy: str = Field(description="label of the policy")
    jobs: int = Field(description="jobs on which it was replayed")
    saving_per_month: Ranged = Field(description="money, sum over the jobs")
    claimed_per_month: float = Field(description="sum of the claims on each job")
    jobs_claimed: int = Field(description="jobs about which something may be claimed")
    jobs_late: int = Field(description="jobs on which its lateness forbids it")


class Backtest(ConfigModel):
    """What policies would have saved."""

    schema_: Literal["dsp-gym/backtest/1"] = Field(
        "dsp-gym/backtest/1", alias="schema", description="schema and version"
    )
    source: str = Field(description="where the history comes from")
    currency: str = Field(description="of every amount of money, an ISO 4217 code")
    trust: Trust = Field(description="bounds of the model's error")
    incumbent: str | None = Field(
        None, description="the policy that savings are counted against; none: what was deployed"
    )
    fleet: tuple[FleetClaim, ...] = Field(description="one for each policy")
    jobs: tuple[JobResult, ...] = Field(description="by name")
    left_out: tuple[str, ...] = Field((), description="jobs without a usable history, and why")
    versions: dict[str, str] = Field(description="versions that the numbers depend on")

    def to_json(self) -> str:
        """One JSON document, keys sorted, a newline at its end.

        Returns:
            The same bytes for the same histories.
        """
        document = self.model_dump(mode="json", by_alias=True)
        return json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n"
