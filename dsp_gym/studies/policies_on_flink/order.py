"""What a validation shows: prices real and simulated, their order, and agents against rules."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dsp_gym.evaluation.validation import ValidationConfig
from dsp_gym.studies.policies_on_flink.loop import ValidationTotals
from dsp_gym.studies.policies_on_flink.published import PublishedRun
from dsp_gym.studies.policies_on_flink.runs import PlannedValidation, RealRun, ValidationCase

DIFFERS = 0.10
"""Two simulated prices that are this far apart, as a share of the lower, have an order."""

CHEAPER = 0.90
"""Share of the best rule's cost that an agent is to stay below, at no more late seconds."""


class PolicyFigures(NamedTuple):
    """One policy on one job under one load; lists have a number per run."""

    policy: str
    rule: bool
    real: tuple[RealRun | PublishedRun, ...]
    simulated: tuple[ValidationTotals, ...]
    late_price: float  # money per late second

    @property
    def real_price(self) -> float:
        """Money plus the price of late seconds, mean over real runs; NaN without any."""
        return _mean([self.price(run.cost, run.late_s) for run in self.real])

    @property
    def simulated_price(self) -> float:
        """The same, mean over simulated runs."""
        return _mean([self.price(run.cost, run.late_s) for run in self.simulated])

    def price(self, cost: float, late_s: float) -> float:
        """Money plus the price of late seconds.

        Returns:
            Money.
        """
        return cost + self.late_price * late_s


@dataclass(frozen=True, slots=True)
class CaseFigures:
    """All policies on one job under one load."""

    case: ValidationCase
    policies: tuple[PolicyFigures, ...]

    @property
    def is_complete(self) -> bool:
        """Whether every policy ran for real at least once."""
        return all(one.real for one in self.policies)


class _Pair(NamedTuple):
    """Two policies whose simulated prices have an order."""

    case: str
    cheaper: str  # in the simulation
    dearer: str
    simulated: float  # ratio of the prices, above 1
    real: float  # the same ratio; below 1: the order is another one


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else float("nan")


def figures_of(plan: PlannedValidation, found: Sequence[CaseFigures]) -> dict[str, object]:
    """Return everything that docs/validation.md shows.

    Args:
        plan: What was to be run.
        found: What was run so far, by case.

    Returns:
        JSON values by name; a number that is not known is null.
    """
    config, complete = plan.config, [one for one in found if one.is_complete]
    pairs = [pair for one in complete for pair in _pairs(one)]
    runs = [run for one in found for policy in one.policies for run in policy.real]
    return {
        "seconds": config.seconds,
        "compression": config.compression,
        "interval_s": config.real_interval_s,
        "late_price": config.late_price,
        "repetitions": config.repetitions,
        "simulations": config.simulations,
        "runs": {"done": len(runs), "planned": len(plan.runs)},
        "recorded": sorted(run.started for run in runs),
        "versions": sorted({run.version for run in runs}),
        "left_out": dict(plan.left_out),
        "records_conserved": [sum(run.conserved for run in runs), len(runs)],
        "cases": [_case(one) for one in found],
        "order": {
            "differs": DIFFERS,
            "pairs": [pair._asdict() for pair in pairs],
            "same": sum(pair.real > 1.0 for pair in pairs),
            "spread": _spread(complete),
        },
        "agents": _agents(config, complete),
    }


def _case(found: CaseFigures) -> dict[str, object]:
    job = found.case.job
    return {
        "job": job.job,
        "rescaling": job.rescaling,
        "label": job.label,
        "load": found.case.load,
        "peak_per_s": float(found.case.rates.max()),
        "start": str(found.case.start),
        "outage_s": list(found.case.spec.rescale.outage_s),
        "policies": [_policy(one, found.case) for one in found.policies],
    }


def _policy(one: PolicyFigures, case: ValidationCase) -> dict[str, object]:
    def shown(
        runs: Sequence[RealRun | PublishedRun | ValidationTotals], price: float
    ) -> dict[str, object]:
        return {
            "cost": [run.cost for run in runs],
            "late_s": [run.late_s for run in runs],
            "rescales": [run.rescales for run in runs],
            "price": None if np.isnan(price) else price,
        }

    return {
        "policy": one.policy,
        "rule": one.rule,
        "real": shown(one.real, one.real_price),
        "simulated": shown(one.simulated, one.simulated_price),
        "conserved": [run.conserved for run in one.real],
        "failures": [run.failures for run in one.real],
    }


def _pairs(found: CaseFigures) -> list[_Pair]:
    pairs = []
    for a, b in itertools.combinations(found.policies, 2):
        cheaper, dearer = sorted((a, b), key=lambda one: one.simulated_price)
        ratio = dearer.simulated_price / cheaper.simulated_price
        if ratio > 1.0 + DIFFERS:
            real = dearer.real_price / cheaper.real_price
            pairs.append(_Pair(found.case.label, cheaper.policy, dearer.policy, ratio, real))
    return pairs


def _spread(complete: Sequence[CaseFigures]) -> float | None:
    """Say how far repetitions of a run are apart in price: median of the range over the mean."""
    ranges = []
    for one in complete:
        for policy in one.policies:
            prices = [policy.price(run.cost, run.late_s) for run in policy.real]
            if len(prices) > 1:
                ranges.append((max(prices) - min(prices)) / float(np.mean(prices)))
    return float(np.median(ranges)) if ranges else None


def _agents(config: ValidationConfig, complete: Sequence[CaseFigures]) -> list[dict[str, object]]:
    """Compare each agent with the rule of the lowest real price, by job over all its loads."""
    rows: list[dict[str, object]] = []
    for label in dict.fromkeys(one.case.job.label for one in complete):
        of_job = [one for one in complete if one.case.job.label == label]
        sums = {policy.name: _summed(of_job, policy.name) for policy in config.policies}
        rules = [policy.name for policy in config.policies if policy.rule]
        if not rules:
            continue
        best = min(rules, key=lambda name: sums[name]["price"])
        for policy in config.policies:
            if policy.rule:
                continue
            own, rule = sums[policy.name], sums[best]
            cost = own["cost"] / rule["cost"]
            rows.append(
                {
                    "job": label,
                    "agent": policy.name,
                    "rule": best,
                    "cost": cost,
                    "late_s": [own["late_s"], rule["late_s"]],
                    "price": own["price"] / rule["price"],
                    "simulated_cost": own["simulated_cost"] / rule["simulated_cost"],
                    "simulated_price": own["simulated_price"] / rule["simulated_price"],
                    "holds": cost <= CHEAPER and own["late_s"] <= rule["late_s"],
                }
            )
    return rows


def _summed(cases: Sequence[CaseFigures], policy: str) -> Mapping[str, float]:
    """Return a policy's means per run, summed over loads."""
    own = [one for case in cases for one in case.policies if one.policy == policy]
    return {
        "cost": sum(_mean([run.cost for run in one.real]) for one in own),
        "late_s": sum(_mean([run.late_s for run in one.real]) for one in own),
        "price": sum(one.real_price for one in own),
        "simulated_cost": sum(_mean([run.cost for run in one.simulated]) for one in own),
        "simulated_price": sum(one.simulated_price for one in own),
    }
