"""The scorecard: every run, and the aggregates per policy and job."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from dsp_gym.arrays import Floats
from dsp_gym.config.files import parse
from dsp_gym.config.model import ConfigModel
from dsp_gym.config.strict_json import read_json
from dsp_gym.errors import SchemaError
from dsp_gym.evaluation.statistics import (
    Difference,
    mean,
    paired_difference,
    ratio_of_means,
    stratified_bootstrap,
)
from dsp_gym.job.spec import CURRENCY

SCHEMA = "dsp-gym/scorecard/1"

EPISODE_METRICS: dict[str, str] = {
    "slo_s": "seconds in which p95 latency exceeded the bound, or the job was down",
    "slo_share": "the same as a share of the episode",
    "latency_p50_s": "median over the episode's seconds of end-to-end p95 latency",
    "latency_p95_s": "95th percentile of the same",
    "latency_p99_s": "99th percentile of the same",
    "lag_s": "backlog over the episode's mean arrival rate, mean over decisions",
    "core_h": "core-hours requested, sources left out",
    "gib_h": "GiB-hours requested, sources left out",
    "cost": "price of the requested resources",
    "cost_provisioned": "price of the TaskManagers that ran",
    "rescales": "rescales started",
    "down_s": "seconds in which the job processed nothing",
    "settling_s": "seconds from a load change above 20 % (or the start) to a steady configuration "
    "that keeps the bound, mean over changes",
    "overshoot": "most subtasks taken after a load change over those kept in the end, mean",
    "interventions": "decisions that guardrails changed, all guardrails",
}
"""Every measured value of an episode; lower values are better for each."""

RELATIVE = ("core_h", "gib_h", "cost", "cost_provisioned")
"""Values that are never 0, so that a difference makes sense in per cent."""


class ScorecardCell(ConfigModel):
    """One policy on one job under one load with one seed."""

    policy: str = Field(description="label of the policy")
    job: str = Field(description="name of the job")
    load: str = Field(description="name of the load")
    seed: int = Field(description="seed of the load")
    metrics: dict[str, float] = Field(description="by name, see EPISODE_METRICS")
    bound: float | None = Field(
        None, description="no policy that serves every arrival in time costs less; none: not known"
    )
    peak: float | None = Field(
        None, description="cost of the cheapest fixed configuration that carries the load's peak"
    )
    trips: dict[str, int] = Field(description="interventions by guardrail")


class IntervalEstimate(ConfigModel):
    """A mean over loads and seeds with its bootstrap interval."""

    value: float = Field(description="the mean, or what `statistic` of the scorecard names")
    low: float = Field(description="lower end of the interval")
    high: float = Field(description="upper end of the interval")


class Saving(ConfigModel):
    """Share of the possible saving: mean of (peak - cost) over mean of (peak - bound)."""

    share: float = Field(
        description="higher is better; 0: costs as much as the peak-provisioned job; 1: at the "
        "bound; above 1 only by violating the SLO, so it is read beside slo_share"
    )
    low: float = Field(description="lower end of the interval")
    high: float = Field(description="upper end of the interval")


class ScorecardRow(ConfigModel):
    """One policy on one job."""

    policy: str = Field(description="label of the policy")
    job: str = Field(description="name of the job")
    metrics: dict[str, IntervalEstimate] = Field(description="by name, see EPISODE_METRICS")
    trips: dict[str, float] = Field(description="interventions per episode by guardrail, mean")
    differences: dict[str, Difference] = Field(description="against the reference, in units")
    relative: dict[str, Difference] = Field(description="against the reference, as a share of it")
    saving: Saving | None = Field(
        None, description="share of the possible saving; none: not computed, or nothing to save"
    )


class RunValidity(ConfigModel):
    """How far the runs of a policy on a job went from what the job's model was fitted to."""

    policy: str = Field(description="label of the policy")
    job: str = Field(description="name of the job")
    doublings: float = Field(description="largest distance of a quantity from its fitted range")
    capacity_factor: float | None = Field(
        description="half of the 90 % interval of a capacity at that distance, as a factor; none: "
        "no error was measured"
    )
    sentences: tuple[str, ...] = Field(description="everything outside the fit")


class RunRescale(ConfigModel):
    """One rescale of a run."""

    t_s: float = Field(description="time of the decision")
    reason: str = Field(description="the policy's, or that of the guardrail that changed it")


class RunTimeline(ConfigModel):
    """One run, decision by decision, as it is drawn."""

    policy: str = Field(description="label of the policy")
    job: str = Field(description="name of the job")
    load: str = Field(description="name of the load")
    seed: int = Field(description="seed of the load")
    t_s: tuple[float, ...] = Field(description="end of each interval")
    target_per_s: tuple[float, ...] = Field(description="records that arrived per second")
    rate_per_s: tuple[float, ...] = Field(description="records processed per second at the sources")
    cores: tuple[float, ...] = Field(description="requested cores, mean over the interval")
    memory_mib: tuple[float, ...] = Field(description="requested memory, mean over the interval")
    latency_p95_s: tuple[float, ...] = Field(description="mean over the interval's seconds")
    slo_latency_s: float = Field(description="the bound")
    rescales: tuple[RunRescale, ...] = Field(
        (), exclude_if=lambda value: not value, description="with the reason of each"
    )


class Scorecard(ConfigModel):
    """The result of a benchmark; the same benchmark gives the same bytes."""

    schema_: Literal["dsp-gym/scorecard/1"] = Field(
        "dsp-gym/scorecard/1", alias="schema", description="schema and version"
    )
    reference: str | None = Field(description="the policy the others are compared with")
    config: dict[str, Any] = Field(description="the benchmark as it was run, defaults included")
    versions: dict[str, str] = Field(description="versions that the numbers depend on")
    currency: str = Field(CURRENCY, description="of all costs, an ISO 4217 code")
    statistic: Literal["mean", "interquartile mean"] = Field(
        "interquartile mean",
        description="of the values in `rows`; scorecards that do not say it hold interquartile "
        "means, which leave out the latest quarter of the runs",
    )
    rows: tuple[ScorecardRow, ...] = Field(
        description="one per policy and job, in the benchmark's order"
    )
    cells: tuple[ScorecardCell, ...] = Field(description="every run")
    timelines: tuple[RunTimeline, ...] = Field((), description="a few runs per policy and job")
    validity: tuple[RunValidity, ...] = Field(
        (),
        exclude_if=lambda value: not value,
        description="one per policy and job whose file reports a fit",
    )

    @property
    def policies(self) -> tuple[str, ...]:
        """Labels in the benchmark's order."""
        return tuple(dict.fromkeys(row.policy for row in self.rows))

    @property
    def jobs(self) -> tuple[str, ...]:
        """Names in the benchmark's order."""
        return tuple(dict.fromkeys(row.job for row in self.rows))

    def row(self, policy: str, job: str) -> ScorecardRow:
        """Return the row of one policy and job; KeyError if there is none.

        Returns:
            Means and intervals over the loads and seeds of the job.
        """
        for row in self.rows:
            if (row.policy, row.job) == (policy, job):
                return row
        raise KeyError((policy, job))

    def to_json(self) -> str:
        """Return one JSON document, keys sorted, a newline at its end.

        Returns:
            Indented text, the same bytes for the same results.
        """
        document = self.model_dump(mode="json", by_alias=True)
        return json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str, file: str = "scorecard") -> Scorecard:
        """Read a scorecard that `to_json` wrote; refuse another version.

        Returns:
            The scorecard.
        """
        document = read_json(text, file)
        found = document.get("schema") if isinstance(document, dict) else None
        if found != SCHEMA:
            raise SchemaError(
                "is not a scorecard of a supported version",
                file=file,
                key="schema",
                value=found,
                remedy=f"This release of dsp-gym reads '{SCHEMA}'.",
            )
        return parse(cls, document, file)

    def to_csv(self) -> str:
        """Return one line per run, interventions by guardrail in columns `trips.NAME`.

        Returns:
            Text with a header; numbers in full precision, an unknown one is empty.
        """
        guardrails = sorted({name for cell in self.cells for name in cell.trips})
        header = ["policy", "job", "load", "seed", *EPISODE_METRICS, "bound", "peak"]
        header += [f"trips.{name}" for name in guardrails]
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(header)
        for cell in self.cells:
            known = [*(cell.metrics.get(name) for name in EPISODE_METRICS), cell.bound, cell.peak]
            values = ["" if value is None else repr(value) for value in known]
            trips = [cell.trips.get(name, 0) for name in guardrails]
            writer.writerow([cell.policy, cell.job, cell.load, cell.seed, *values, *trips])
        return stream.getvalue()


class _Resampling(NamedTuple):
    n: int
    confidence: float


def score(
    cells: Sequence[ScorecardCell],
    *,
    reference: str | None,
    confidence: float,
    resamples: int,
) -> tuple[ScorecardRow, ...]:
    """Return one row per policy and job, policies side by side within a job.

    Args:
        cells: Every policy on the same jobs, loads and seeds.
        reference: The policy to compare with, or None.
        confidence: Of intervals and bounds.
        resamples: Of the bootstrap.

    Returns:
        Rows in the order of jobs, then policies.
    """
    how = _Resampling(resamples, confidence)
    policies = dict.fromkeys(cell.policy for cell in cells)
    rows = []
    for job in dict.fromkeys(cell.job for cell in cells):
        tables = {policy: _tables(cells, policy, job) for policy in policies}
        for policy, table in tables.items():
            mine = [cell for cell in cells if (cell.policy, cell.job) == (policy, job)]
            other = None if reference in (None, policy) else tables[str(reference)]
            rows.append(
                ScorecardRow(
                    policy=policy,
                    job=job,
                    metrics={
                        name: IntervalEstimate(
                            **stratified_bootstrap(
                                values, mean, n=resamples, confidence=confidence
                            )._asdict()
                        )
                        for name, values in table.items()
                    },
                    trips=_mean_trips(mine),
                    differences=_differences(table, other, EPISODE_METRICS, how),
                    relative=_differences(table, other, RELATIVE, how, relative=True),
                    saving=_saving(mine, how),
                )
            )
    return tuple(rows)


def _tables(cells: Sequence[ScorecardCell], policy: str, job: str) -> dict[str, Floats]:
    """Return every metric of one policy and job as an array of shape (loads, seeds)."""
    by_load: dict[str, list[Mapping[str, float]]] = {}
    for cell in cells:
        if (cell.policy, cell.job) == (policy, job):
            by_load.setdefault(cell.load, []).append(cell.metrics)
    return {
        name: np.array([[run[name] for run in runs] for runs in by_load.values()])
        for name in EPISODE_METRICS
        if all(name in run for runs in by_load.values() for run in runs)
    }


def _saving(cells: Sequence[ScorecardCell], how: _Resampling) -> Saving | None:
    saved: dict[str, list[tuple[float, float]]] = {}
    for cell in cells:
        if cell.bound is None or cell.peak is None:
            return None
        both = (cell.peak - cell.metrics["cost"], cell.peak - cell.bound)
        saved.setdefault(cell.load, []).append(both)
    table = np.array(list(saved.values()))  # (loads, seeds, 2)
    if table[..., 1].mean() <= 0:
        return None
    found = ratio_of_means(table[..., 0], table[..., 1], n=how.n, confidence=how.confidence)
    return Saving(share=found.value, low=found.low, high=found.high)


def _differences(
    mine: Mapping[str, Floats],
    other: Mapping[str, Floats] | None,
    names: Iterable[str],
    how: _Resampling,
    *,
    relative: bool = False,
) -> dict[str, Difference]:
    if other is None:
        return {}
    differences = {}
    for name in names:
        if name not in mine or name not in other:
            continue
        # A seed draws other noise in each load, so seeds are nested in loads.
        differences[name] = paired_difference(
            mine[name],
            other[name],
            mean,
            relative=relative,
            seeds="nested",
            n=how.n,
            confidence=how.confidence,
        )
    return differences


def _mean_trips(cells: Sequence[ScorecardCell]) -> dict[str, float]:
    names = sorted({name for cell in cells for name in cell.trips})
    return {name: sum(cell.trips.get(name, 0) for cell in cells) / len(cells) for name in names}
