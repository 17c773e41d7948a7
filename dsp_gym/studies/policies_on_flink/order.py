"""What a validation shows: prices real and simulated, their order, and agents against rules.

Figures that were published can be read again: their real runs stand for those that were not done
since, for a simulation that has changed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from dsp_gym.config.strict_json import parse_json
from dsp_gym.errors import ConfigError
from dsp_gym.evaluation.validation import ValidationConfig
from dsp_gym.studies.policies_on_flink.runs import (
    PlannedValidation,
    RealRun,
    RunFigures,
    ValidationCase,
    ValidationTotals,
)

DIFFERS = 0.10
"""Two simulated prices that are this far apart, as a share of the lower, have an order."""

MONEY = ("cost", "price", "simulated_cost", "simulated_price")

CHEAPER = 0.90
"""Share of the best rule's cost that an agent is to stay below, at no more late seconds."""


class PublishedRun(RunFigures):
    """The figures of one real run."""

    conserved: bool = Field(description="every record of the load arrived once")
    started: str = Field(description="when it began, UTC")
    version: str = Field(description="of dsp-gym")


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
        return _mean(map(self.price, self.real))

    @property
    def simulated_price(self) -> float:
        """The same, mean over simulated runs."""
        return _mean(map(self.price, self.simulated))

    def price(self, run: RunFigures) -> float:
        """Money plus the price of late seconds.

        Returns:
            Money.
        """
        return run.cost + self.late_price * run.late_s


@dataclass(frozen=True, slots=True)
class CaseFigures:
    """All policies on one job under one load."""

    case: ValidationCase
    policies: tuple[PolicyFigures, ...]

    @property
    def is_complete(self) -> bool:
        """Whether every policy ran for real at least once."""
        return all(one.real for one in self.policies)


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return float(np.mean(found)) if found else float("nan")


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
            "pairs": pairs,
            "same": sum(pair["real"] > 1.0 for pair in pairs),
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
    def shown(runs: Sequence[RunFigures], price: float) -> dict[str, object]:
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


def _pairs(found: CaseFigures) -> list[dict[str, Any]]:
    """List pairs of policies whose simulated prices have an order, with the ratios of prices.

    A real ratio below 1 is another order.
    """
    pairs = []
    for a, b in itertools.combinations(found.policies, 2):
        cheaper, dearer = sorted((a, b), key=lambda one: one.simulated_price)
        simulated = dearer.simulated_price / cheaper.simulated_price
        if simulated > 1.0 + DIFFERS:
            pairs.append(
                {
                    "case": found.case.label,
                    "cheaper": cheaper.policy,
                    "dearer": dearer.policy,
                    "simulated": simulated,
                    "real": dearer.real_price / cheaper.real_price,
                }
            )
    return pairs


def _spread(complete: Sequence[CaseFigures]) -> float | None:
    """Say how far repetitions of a run are apart in price: median of the range over the mean."""
    prices = [[*map(one.price, one.real)] for case in complete for one in case.policies]
    ranges = [np.ptp(each) / np.mean(each) for each in prices if len(each) > 1]
    return float(np.median(ranges)) if ranges else None


def _agents(config: ValidationConfig, complete: Sequence[CaseFigures]) -> list[dict[str, object]]:
    """Compare each agent with the rule of the lowest real price, by job over all its loads."""
    rows: list[dict[str, object]] = []
    rules = [policy.name for policy in config.policies if policy.rule]
    agents = [policy.name for policy in config.policies if not policy.rule]
    for label in dict.fromkeys(one.case.job.label for one in complete if rules):
        of_job = [one for one in complete if one.case.job.label == label]
        sums = {policy.name: _summed(of_job, policy.name) for policy in config.policies}
        best = min(rules, key=lambda name: sums[name]["price"])
        for agent in agents:
            ratio = {name: sums[agent][name] / sums[best][name] for name in MONEY}
            late_s = [sums[agent]["late_s"], sums[best]["late_s"]]
            rows.append(
                {
                    "job": label,
                    "agent": agent,
                    "rule": best,
                    "cost": ratio["cost"],
                    "late_s": late_s,
                    "price": ratio["price"],
                    "simulated_cost": ratio["simulated_cost"],
                    "simulated_price": ratio["simulated_price"],
                    "holds": ratio["cost"] <= CHEAPER and late_s[0] <= late_s[1],
                }
            )
    return rows


def _summed(cases: Sequence[CaseFigures], policy: str) -> Mapping[str, float]:
    """Return a policy's means per run, summed over loads."""
    own = [one for case in cases for one in case.policies if one.policy == policy]
    return {
        "cost": sum(_mean(run.cost for run in one.real) for one in own),
        "late_s": sum(_mean(run.late_s for run in one.real) for one in own),
        "price": sum(one.real_price for one in own),
        "simulated_cost": sum(_mean(run.cost for run in one.simulated) for one in own),
        "simulated_price": sum(one.simulated_price for one in own),
    }


@dataclass(frozen=True, slots=True)
class PublishedRuns:
    """The real runs in figures that `dsp-gym validate --out` wrote."""

    cases: Mapping[str, Mapping[str, tuple[PublishedRun, ...]]]  # by case and policy
    outages_s: Mapping[str, tuple[float, float, float]]  # by case

    @classmethod
    def of(cls, file: Path) -> PublishedRuns:
        """Read figures.

        Args:
            file: Written by `--out`.

        Returns:
            The runs.

        Raises:
            ConfigError: The file is none.
        """
        try:
            figures: Any = parse_json(file.read_text(encoding="utf-8"))
            started = iter(figures["recorded"])
            version = ", ".join(figures["versions"])
            cases, outages_s = {}, {}
            for case in figures["cases"]:
                label = f"{case['label']} {case['load']}"
                cases[label] = {
                    one["policy"]: _runs(one, started, version) for one in case["policies"]
                }
                low, middle, high = map(float, case["outage_s"])
                outages_s[label] = low, middle, high
        except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
            raise ConfigError(
                f"holds no figures of a validation: {type(error).__name__}: {error}",
                file=file,
                remedy="Name a file that `dsp-gym validate CONFIG --out FILE` wrote.",
            ) from None
        return cls(cases, outages_s)


def _runs(one: Any, started: Iterator[object], version: str) -> tuple[PublishedRun, ...]:
    real = one["real"]
    moments = [next(started) for _ in real["cost"]]
    columns = {
        "cost": real["cost"],
        "late_s": real["late_s"],
        "rescales": real["rescales"],
        "failures": one["failures"],
        "conserved": one["conserved"],
        "started": moments,
    }
    return tuple(
        PublishedRun(**dict(zip(columns, row, strict=True)), version=version)
        for row in zip(*columns.values(), strict=True)
    )
