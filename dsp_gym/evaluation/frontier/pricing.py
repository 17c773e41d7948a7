"""Policies ranked by price, money and late time together: in a cell, and under shifts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.evaluation.frontier.estimate import points_of
from dsp_gym.evaluation.frontier.play import CellRuns, PolicyRuns
from dsp_gym.evaluation.statistics import BootstrapEstimate, Resampling, estimate_of


@dataclass(frozen=True, slots=True)
class PricedPolicy:
    """A policy at the setting that was cheapest on seen jobs and loads, late time priced in."""

    policy: str
    value: float | None  # of the knob
    price: BootstrapEstimate  # in costs of the job's reference configuration
    # Probability of improvement: share of the runs that are cheaper than the best rule's; None: it
    # is that rule, or no rule ran.
    better: BootstrapEstimate | None
    over_fallback: BootstrapEstimate | None  # price less its fallback's, run by run; None: has none


def price_cell(
    runs: CellRuns,
    chosen: dict[str, int],
    late_weight: float,
    *,
    resamples: int,
    confidence: float,
) -> tuple[PricedPolicy, ...]:
    """Rank policies by money and the price of late time together.

    Args:
        runs: Every run of the cell.
        chosen: The setting of each policy, as `cheapest_settings` chose it on other runs.
        late_weight: Price of a late second, in seconds of the reference configuration.
        resamples: Of the bootstrap.
        confidence: Of the intervals.

    Returns:
        The policies, the cheapest first.
    """
    draws = Resampling.of(len(runs.jobs), len(runs.loads), resamples)
    prices = {
        one.policy: prices_of(one, runs, late_weight)[chosen[one.policy]] for one in runs.policies
    }
    rules = [one.policy for one in runs.policies if one.rule]
    best = min(rules, key=lambda name: float(prices[name].mean()), default=None)

    def mean(values: Floats) -> BootstrapEstimate:
        by_training = values.mean(axis=3)  # seeds
        weights = draws.trainings(by_training.shape[2])
        means = np.einsum("nj,nl,nt,jlt->n", draws.jobs, draws.loads, weights, by_training)
        estimate = estimate_of(means, confidence)
        assert estimate is not None  # prices are finite
        return estimate

    found = []
    for one in runs.policies:
        price = prices[one.policy]
        rule = prices[best] if best is not None and one.policy != best else None
        fallback = None if one.fallback is None else prices[one.fallback]
        found.append(
            PricedPolicy(
                policy=one.policy,
                value=one.values[chosen[one.policy]],
                price=mean(price),
                better=None if rule is None else mean(_better(price, rule)),
                over_fallback=None if fallback is None else mean(price - _beside(fallback, price)),
            )
        )
    return tuple(sorted(found, key=lambda one: one.price.value))


def _better(price: Floats, rule: Floats) -> Floats:
    """Count the runs that are cheaper than the rule's; as in a rank test, a draw counts half."""
    other = _beside(rule, price)
    return np.asarray((price < other) + 0.5 * (price == other))


def _beside(other: Floats, price: Floats) -> Floats:
    """Return prices to hold against others: of several trainings, unless as many, the mean."""
    several = {other.shape[2], price.shape[2]} - {1}
    return other.mean(axis=2, keepdims=True) if len(several) > 1 else other


def cheapest_settings(runs: CellRuns, late_weight: float) -> dict[str, int]:
    """Return the setting of each policy that costs least with late time priced in.

    Args:
        runs: Runs that policies may be tuned on.
        late_weight: Price of a late second, in seconds of the reference configuration.

    Returns:
        The place of the setting by policy.
    """
    return {
        one.policy: int(prices_of(one, runs, late_weight).mean(axis=(1, 2, 3, 4)).argmin())
        for one in runs.policies
    }


def prices_of(one: PolicyRuns, runs: CellRuns, late_weight: float) -> Floats:
    """Price each run, late time included.

    Args:
        one: The runs of a policy.
        runs: The cell they are of.
        late_weight: Price of a late second, in seconds of the reference configuration.

    Returns:
        Costs of the reference configuration, (settings, jobs, loads, trainings, seeds).
    """
    unit = np.array(runs.reference_cost)[:, None, None, None]
    return np.asarray(one.runs("cost") / unit + late_weight * one.runs("late"))


@dataclass(frozen=True, slots=True)
class ShiftedPolicy:
    """A policy at its one setting under one shift."""

    shift: str
    policy: str
    rule: bool
    cost: float  # per day, geometric mean over jobs
    late: float  # share of the time
    rescales: float  # per day
    ratio: BootstrapEstimate  # of prices to the best tuned rule's, geometric mean over jobs
    rise: float | None  # of the ratio above that without a shift; None: it is that


def compare_shifts(
    played: Sequence[CellRuns], late_weight: float, *, resamples: int, confidence: float
) -> tuple[ShiftedPolicy, ...]:
    """Compare policies under shifts by price, money and late time together.

    Args:
        played: The runs under each shift, those without one first.
        late_weight: Price of a late second, in seconds of the reference configuration.
        resamples: Of the bootstrap.
        confidence: Of the intervals.

    Returns:
        Every policy under every shift, in that order.
    """
    found: list[ShiftedPolicy] = []
    before: dict[str, float] = {}
    for runs in played:
        draws = Resampling.of(len(runs.jobs), len(runs.loads), resamples)
        logs = {}
        for one in runs.policies:
            price = prices_of(one, runs, late_weight)[0].mean(axis=(2, 3))
            logs[one.policy] = np.einsum(
                "nj,nj->n", draws.jobs, np.log(np.einsum("nl,jl->nj", draws.loads, price))
            )
        rules = [one.policy for one in runs.policies if one.rule]
        best = min(rules, key=lambda name: float(logs[name][0]))
        for one in runs.policies:
            ratio = estimate_of(np.exp(logs[one.policy] - logs[best]), confidence)
            assert ratio is not None  # prices are finite
            point = points_of(one)[0]
            rise = ratio.value - before[one.policy] if one.policy in before else None
            found.append(
                ShiftedPolicy(
                    shift=runs.cell,
                    policy=one.policy,
                    rule=one.rule,
                    cost=point.cost,
                    late=point.late,
                    rescales=point.rescales,
                    ratio=ratio,
                    rise=rise,
                )
            )
        if not before:
            before = {one.policy: one.ratio.value for one in found}
    return tuple(found)
