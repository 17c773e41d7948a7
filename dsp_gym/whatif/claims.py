"""What a backtest lets a team claim: savings with intervals, and why the rest may not be claimed.

A policy's saving is the difference of two predictions of one model, that of the deployed
configurations and that of the policy, on the same load: an error common to both cancels. Days are
drawn with replacement, the same for both; where one history has a day that another has not, it
adds nothing there. The interval is widened by the model's error on the deployed configurations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from pydantic import Field

from dsp_gym.arrays import Floats, Ints
from dsp_gym.config.model import ConfigModel
from dsp_gym.job.cost import HOURS_A_MONTH, requested
from dsp_gym.job.spec import JobSpec
from dsp_gym.whatif.blocks import JobReplay
from dsp_gym.whatif.history import JobHistory

__all__ = [
    "BacktestTrust",
    "ObservedJob",
    "PolicyClaim",
    "Ranged",
    "claim_of",
    "deployed_costs",
    "fleet_saving",
    "model_errors",
    "observed_of",
]

DRAWS = 2000

SEED = 0


class BacktestTrust(ConfigModel):
    """Bounds under which a saving may be claimed."""

    cost: float = Field(
        0.05, gt=0, le=1, description="largest error of the model's cost, share of the deployed"
    )
    late: float = Field(
        0.02, gt=0, le=1, description="largest error of the model's late share of the time"
    )
    min_days: float = Field(1.0, gt=0, le=365, description="fewest days whose load is known")
    max_later: float = Field(
        0.005,
        ge=0,
        le=1,
        description="most that the late share may rise; the interval's upper end counts",
    )


class Ranged(ConfigModel):
    """A value with its 95 % interval."""

    value: float = Field(description="the value")
    low: float = Field(description="lower end of the interval")
    high: float = Field(description="upper end of the interval")

    def times(self, factor: float) -> Ranged:
        """The same in another unit.

        Returns:
            Value and ends times a positive factor.
        """
        return Ranged(value=factor * self.value, low=factor * self.low, high=factor * self.high)


class ObservedJob(ConfigModel):
    """The deployed configurations of one job, as observed and as the model has them."""

    cost_per_month: float = Field(description="price of what was requested, 730 hours")
    model_cost_per_month: float = Field(description="the model's, with the same configurations")
    late: float | None = Field(description="observed late share of the time; none: not measured")
    model_late: float | None = Field(description="the model's, over the slots that were measured")
    rescales_per_day: float = Field(description="observed")
    days: float = Field(description="days whose load is known")


class PolicyClaim(ConfigModel):
    """What one policy would have saved on one job."""

    policy: str = Field(description="label of the policy")
    saving_per_month: Ranged = Field(description="money against the deployed configurations")
    saving: Ranged = Field(description="share of the deployed configurations' cost")
    late: float = Field(description="late share of the time under the policy")
    later: Ranged = Field(description="late share above that of the deployed configurations")
    rescales_per_day: float = Field(description="under the policy")
    claimed_per_month: float = Field(description="money that may be claimed: the interval's lower")
    why_not: tuple[str, ...] = Field(description="why the rest, or all of it, may not be claimed")


class _Sums(NamedTuple):
    """Of one replay by block, (B,) each."""

    seconds: Floats
    cost: Floats
    slo_s: Floats
    rescales: Floats

    @classmethod
    def of(cls, replayed: JobReplay, blocks: Sequence[int] | None = None) -> _Sums:
        by_block = {one.block: one for one in replayed.blocks}
        order = blocks if blocks is not None else list(by_block)
        return cls(
            *(
                np.array([getattr(by_block[b], n) if b in by_block else 0.0 for b in order])
                for n in cls._fields
            )
        )


def observed_of(history: JobHistory, deployed: JobReplay) -> ObservedJob:
    """The observed run of a job beside its replay.

    Returns:
        Cost, lateness and rescales of the deployed configurations.
    """
    known = np.isfinite(history.load_per_s)
    measured = np.isfinite(history.late)
    sums = _Sums.of(deployed)
    days = max(history.days, 1e-9)
    return ObservedJob(
        cost_per_month=HOURS_A_MONTH * float(deployed_costs(history)[known].mean()),
        model_cost_per_month=HOURS_A_MONTH * 3600 * float(sums.cost.sum() / sums.seconds.sum()),
        late=float(history.late[measured & known].mean()) if (measured & known).any() else None,
        model_late=deployed.late_where_measured,
        rescales_per_day=float(history.rescaled[known].sum() / days),
        days=history.days,
    )


def deployed_costs(history: JobHistory) -> Floats:
    """The price of the deployed configurations.

    Returns:
        (K,) money per hour of the requested resources, by slot.
    """
    both = np.concatenate([history.parallelism, history.memory_level], axis=1)
    distinct, place = np.unique(both, axis=0, return_inverse=True)
    names = [vertex.name for vertex in history.spec.topological_order()]
    return np.array([_cost(history.spec, names, row.tolist()) for row in distinct])[place.ravel()]


def _cost(spec: JobSpec, names: Sequence[str], row: Sequence[int]) -> float:
    tasks = dict(zip(names, row[: len(names)], strict=True))
    level = dict(zip(names, row[len(names) :], strict=True))
    return requested(spec, tasks, level).money_per_hour(spec)


def model_errors(found: ObservedJob, trust: BacktestTrust) -> tuple[str, ...]:
    """Why nothing may be claimed about a job, whatever the policy.

    Returns:
        One sentence for each reason; none if its model is trusted.
    """
    reasons = []
    if found.days < trust.min_days:
        reasons.append(
            f"the history covers {24 * found.days:.2g} hours; a claim needs "
            f"{24 * trust.min_days:g} hours"
        )
    cost = cost_error(found)
    if not cost <= trust.cost:
        reasons.append(
            f"the model's cost of the deployed configurations is off by {100 * cost:.1f} %, more "
            f"than {100 * trust.cost:g} %"
        )
    if found.late is None or found.model_late is None:
        reasons.append("lateness was not measured: the history holds neither latency nor backlog")
    elif not abs(found.model_late - found.late) <= trust.late:
        reasons.append(
            f"the model says that the deployed configurations were late "
            f"{100 * found.model_late:.1f} % of the time, observed were {100 * found.late:.1f} %: "
            f"more than {100 * trust.late:g} points apart"
        )
    return tuple(reasons)


def claim_of(
    deployed: JobReplay, replayed: JobReplay, found: ObservedJob, trust: BacktestTrust
) -> PolicyClaim:
    """What a policy would have saved on a job, and how much of it may be claimed.

    Args:
        deployed: the replay of the deployed configurations.
        replayed: that of the policy.
        found: the observed run.
        trust: bounds of a claim.

    Returns:
        Money per month of 730 hours, with 95 % intervals.
    """
    base, own = _Sums.of(deployed), _Sums.of(replayed)
    drawn = _drawn(len(base.cost))
    per_month = HOURS_A_MONTH * 3600
    saved = _ratio(base.cost - own.cost, base.seconds, drawn)
    share = _ratio(base.cost - own.cost, base.cost, drawn)
    later = _ratio(own.slo_s - base.slo_s, base.seconds, drawn)
    off = cost_error(found)
    late_error = abs((found.model_late or 0.0) - (found.late or 0.0))
    saving = _widened(saved.times(per_month), off * abs(saved.value) * per_month)
    later = _widened(later, late_error)
    reasons = [*model_errors(found, trust)]
    if later.high > trust.max_later:
        reasons.append(
            f"it may be late up to {100 * later.high:.2g} points more of the time, more than "
            f"{100 * trust.max_later:g}"
        )
    if saving.value <= 0:
        reasons.append("it saves nothing on this history")
    elif saving.low <= 0:
        reasons.append("the interval of the saving includes 0")
    claimed = 0.0 if reasons else saving.low
    if claimed:
        reasons.append("the lower end of the interval is claimed; what is above it may be chance")
    return PolicyClaim(
        policy=replayed.policy,
        saving_per_month=saving,
        saving=_widened(share, off * abs(share.value)),
        late=float(own.slo_s.sum() / own.seconds.sum()),
        later=later,
        rescales_per_day=float(own.rescales.sum() / own.seconds.sum() * 86_400),
        claimed_per_month=claimed,
        why_not=tuple(reasons),
    )


def fleet_saving(
    pairs: Sequence[tuple[JobReplay, JobReplay]],
    observed: Sequence[tuple[ObservedJob, PolicyClaim]],
) -> Ranged:
    """The sum of what a policy would have saved on several jobs.

    Days are drawn once for all jobs: on a busy day of the year they are busy together.

    Args:
        pairs: the deployed and the policy's replay of each job.
        observed: of the same jobs, whose model errors widen the interval, and the claims.

    Returns:
        Money per month of 730 hours.
    """
    blocks = sorted({one.block for deployed, _ in pairs for one in deployed.blocks})
    drawn = _drawn(len(blocks))
    total, mean = np.zeros(len(drawn)), 0.0
    for deployed, replayed in pairs:
        base, own = _Sums.of(deployed, blocks), _Sums.of(replayed, blocks)
        saved, seconds = base.cost - own.cost, base.seconds
        own_mean = float(saved.sum() / seconds.sum())
        sums = seconds[drawn].sum(axis=1)
        # A draw without a day of this job says nothing of it: the job's mean stands in.
        drawn_mean = saved[drawn].sum(axis=1) / np.maximum(sums, 1e-9)
        total += np.where(sums > 0, drawn_mean, own_mean)
        mean += own_mean
    per_month = HOURS_A_MONTH * 3600
    low, high = np.quantile(total, (0.025, 0.975)) * per_month
    value = mean * per_month
    off = [cost_error(one) * claim.saving_per_month.value for one, claim in observed]
    # The errors of several models are their own: they add at right angles.
    return _widened(
        Ranged(value=value, low=min(float(low), value), high=max(float(high), value)),
        float(np.linalg.norm(off)),
    )


def cost_error(found: ObservedJob) -> float:
    """The model's error of the cost of the deployed configurations, relative."""
    return abs(found.model_cost_per_month / max(found.cost_per_month, 1e-12) - 1.0)


def _drawn(blocks: int) -> Ints:
    """(draws, blocks) numbers of blocks, the same at every call."""
    return np.random.default_rng(SEED).integers(0, max(blocks, 1), size=(DRAWS, max(blocks, 1)))


def _ratio(above: Floats, below: Floats, drawn: Ints) -> Ranged:
    value = float(above.sum() / below.sum())
    draws = above[drawn].sum(axis=1) / np.maximum(below[drawn].sum(axis=1), 1e-12)
    low, high = np.quantile(draws, (0.025, 0.975)).tolist()
    return Ranged(value=value, low=min(low, value), high=max(high, value))


def _widened(found: Ranged, off: float) -> Ranged:
    """The interval with a model's error added at right angles."""
    return Ranged(
        value=found.value,
        low=found.value - float(np.hypot(found.value - found.low, off)),
        high=found.value + float(np.hypot(found.high - found.value, off)),
    )
