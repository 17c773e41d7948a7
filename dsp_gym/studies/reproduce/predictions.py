"""Predictions of measured rates that no fit has used: do their 90 % intervals hold the truth?

Each cell is a measured rate that neither a fit nor its interval has seen: the interval comes from
the section `fitted` of a job file made without it. Left out are one slot count of StreamBed's grid
at a time, all above its middle, or all but the smallest one or two; of the recorded runs of a real
Flink all but a third, or those with more than two state tasks. The errors of the latter have checks
of their own.

The growth of intervals with the distance is a constant that was read off StreamBed's queries. So
each query is judged with the growth that the other two would have given: its whole table is left
out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dsp_gym.calibration.config import CalibrationConfig
from dsp_gym.calibration.errors import Compared, compare
from dsp_gym.calibration.evidence import LEAST_GROWTH, SeenRate, distances_of
from dsp_gym.calibration.fit import fit
from dsp_gym.calibration.mst_fit import fit_measurements
from dsp_gym.calibration.mst_job import evidence_of as evidence_of_tables
from dsp_gym.calibration.mst_job import job_spec, job_text
from dsp_gym.calibration.mst_job import seen_rate as seen_in_tables
from dsp_gym.calibration.mst_tables import read_measurements
from dsp_gym.calibration.observations import SteadyPart
from dsp_gym.calibration.recordings import calibrate
from dsp_gym.calibration.runs_evidence import evidence_of as evidence_of_runs
from dsp_gym.calibration.runs_evidence import seen_rate as seen_in_runs
from dsp_gym.config.files import load_model
from dsp_gym.job.catalog import load_job
from dsp_gym.job.evidence import LEVEL, Evidence, FitError
from dsp_gym.job.spec import JobSpec
from dsp_gym.job.validity import half_width
from dsp_gym.studies.reproduce.registry import Check

RATE_MEDIAN, RATE_P90, EXTRAPOLATED = 0.10, 0.25, 0.15
SHARE_MEAN, READ_WITHIN_2, TAU = 0.07, 0.90, 0.85
"""Bars of errors, shares and ranks of recorded runs."""
HELD = (0.85, 0.97)
"""Share of cells that 90 % intervals may hold."""
ENOUGH = 200
QUERIES = ("q1", "q5", "q11")
SMALLEST = ("the smallest slot count", "the two smallest slot counts")
RUNS = ("read", "update", "direct-read", "direct-update")
OWN = (
    "flink-q1",
    "flink-q11",
    "flink-wordcount",
    "flink-micro-update",
    "flink-large-update",
)
FIGURES = Path("docs/figures/validation")
"""Reports of calibrations to this project's own recordings, with what every run showed."""
SMALL = 2
"""Most state tasks in the fits that are extrapolated."""
FEWEST = 2
"""Parts at capacity of a fit that is tested."""


@dataclass(frozen=True, slots=True)
class PredictedCell:
    """A measured rate beside the prediction of a fit that had not seen it."""

    of: str  # the data, and what the fit left out
    measured_per_s: float
    predicted_per_s: float
    far: float  # doublings of slots, tasks, rate and skew beyond what the fit saw
    memory: float  # doublings of managed memory
    error: FitError  # stated with the fit

    @property
    def doublings(self) -> float:
        """From what the fit saw."""
        return max(self.far, self.memory)

    @property
    def half_width(self) -> float:
        """Half of the 90 % interval, natural logarithm."""
        return float(half_width(self.error, np.array(self.far), np.array(self.memory)))

    @property
    def growth(self) -> float | None:
        """What half the interval would have to grow by per doubling; None inside the fit."""
        if self.far == 0 or self.memory > 0:
            return None
        return max(0.0, abs(self.log_error) - self.error.within) / self.far

    @property
    def log_error(self) -> float:
        """Natural logarithm of predicted over measured."""
        return math.log(self.predicted_per_s / self.measured_per_s)

    @property
    def held(self) -> bool:
        """Whether the interval holds the measured rate."""
        return abs(self.log_error) <= self.half_width


def intervals(data: Path) -> list[Check]:
    """Check how often 90 % intervals hold what was measured.

    Returns:
        The share of truths held, over all cells with its bar, and reported by data and distance.
    """
    found = cells(data)
    groups = {
        of: [cell for cell in found if cell.of == of] for of in dict.fromkeys(c.of for c in found)
    }
    groups |= {
        "inside what the fit saw": [c for c in found if c.doublings == 0],
        "beyond it by less than a doubling": [c for c in found if 0 < c.doublings < 1],
        "beyond it by a doubling or more": [c for c in found if c.doublings >= 1],
    }
    low, high = HELD
    whole = replace(
        _share("all", f"90 % intervals hold the truth: {len(found)} cells", found),
        tolerance=f"{low:.0%} to {high:.0%} of at least {ENOUGH}",
        passed=len(found) >= ENOUGH and low <= float(np.mean([c.held for c in found])) <= high,
    )
    return [
        whole,
        *(
            _share(
                name.lower().replace(",", "").replace(" ", "-").replace("/", "-"),
                f"share held: {name}",
                some,
            )
            for name, some in groups.items()
            if some
        ),
    ]


def cells(data: Path) -> list[PredictedCell]:
    """Every cell.

    Returns:
        Cells of StreamBed's grid, of the recorded runs, and of this project's own recordings.
    """
    by_query = {query: list(_of_query(data, query)) for query in QUERIES}
    growth = {query: _growth(found) for query, found in by_query.items()}
    judged = []
    for query, found in by_query.items():
        others = [growth[other] for other in QUERIES if other != query]
        least = float(np.exp(np.mean(np.log(others))))
        judged += [_with_growth(cell, least) for cell in found]
    return [
        *judged,
        *(cell for name in RUNS for cell in _of_runs(data, name)),
        *(cell for name in OWN for cell in _of_own(FIGURES / f"calibrate-{name}.json", name)),
    ]


def _growth(found: Sequence[PredictedCell]) -> float:
    """What nine in ten predictions of one query beyond their fits need per doubling."""
    needed = [one.growth for one in found if one.growth is not None]
    return max(LEAST_GROWTH, float(np.quantile(needed, LEVEL)))


def _with_growth(cell: PredictedCell, least: float) -> PredictedCell:
    grown = max(cell.error.per_doubling, least)
    return replace(cell, error=cell.error.model_copy(update={"per_doubling": grown}))


def _of_query(data: Path, query: str) -> Iterator[PredictedCell]:
    tables = (data / "streambed_mst.csv", data / "streambed_operator_rates.csv")
    measured = read_measurements(*tables, query)
    # The slot budget; 0 where every operator has one task whatever the budget.
    slots_of = {
        run: run.slots if any(run.parallelism[v] > 1 for v in measured.working) else 0
        for run in measured.runs
    }
    slots = sorted(set(slots_of.values()))
    middle = slots[len(slots) // 2]
    folds = [({one}, "one slot count left out") for one in slots]
    folds.append(({one for one in slots if one > middle}, "all larger slot counts left out"))
    for few, what in enumerate(SMALLEST, 1):
        folds.append((set(slots[few:]), f"{what} fitted"))
    for out, what in folds:
        kept = tuple(run for run in measured.runs if slots_of[run] not in out)
        others = [run for run in measured.runs if slots_of[run] in out]
        found = fit_measurements(replace(measured, runs=kept))
        spec = job_spec(job_text(found, query, ["grid"], "intervals"), query)
        seen = evidence_of_tables(found, spec, "intervals", per_doubling=0.0)
        predicted = [found.model.mst_per_s(run.parallelism, run.memory_mib) for run in others]
        rates = [seen_in_tables(found, spec, run) for run in others]
        yield from _cells(f"StreamBed {query}, {what}", spec, seen, rates, predicted)


def _of_runs(data: Path, name: str) -> Iterator[PredictedCell]:
    config = load_model(CalibrationConfig, "calibrations", f"flink-runs-{name}")
    for which, bound, what in (
        ("third", None, "a third fitted"),
        ("parallelism", SMALL, "one and two tasks fitted"),
    ):
        update = {"fit": which, "max_parallelism": bound, "recordings": (str(data / "flink_runs"),)}
        report = calibrate(config.model_copy(update=update), refit=False)
        of = f"flink_runs {name}, {what}"
        yield from _of_parts(of, load_job(config.job), report.compared)


def _of_own(report: Path, name: str) -> Iterator[PredictedCell]:
    """The runs of a committed report, fitted again."""
    if not report.is_file():
        return
    spec, rows = load_job(name), json.loads(report.read_text(encoding="utf-8"))["parts"]
    endless = {"offered_per_s": math.inf}  # where the source offered all it could
    parts = [
        SteadyPart(**row["seen"] | (endless if row["seen"]["offered_per_s"] is None else {}))
        for row in rows
    ]
    names = frozenset(row["seen"]["run"] for row in rows if row["in_fit"])
    model = fit(spec, [part for part in parts if part.run in names]).model()
    yield from _of_parts(f"{name}, a third fitted", spec, compare(model, parts, names))


def _of_parts(of: str, spec: JobSpec, compared: Sequence[Compared]) -> Iterator[PredictedCell]:
    if sum(c.in_fit and c.seen.saturated for c in compared) < FEWEST:
        return
    # The rate of a run that never became steady is no measurement of a capacity.
    steady = [c for c in compared if not c.seen.is_unsteady]
    evidence = evidence_of_runs(spec, [c for c in steady if c.in_fit], "intervals")
    others = [c for c in steady if not c.in_fit and c.at_capacity]
    if evidence is not None and others:
        rates = [seen_in_runs(spec, c.seen) for c in others]
        yield from _cells(of, spec, evidence, rates, [c.predicted.rate_per_s for c in others])


def _cells(
    of: str,
    spec: JobSpec,
    seen: Evidence,
    others: Sequence[SeenRate],
    predicted: Sequence[float],
) -> Iterator[PredictedCell]:
    if seen.error is None:
        return
    distance = distances_of(spec, seen, others, predicted)
    for one, rate, far, memory in zip(
        others, predicted, distance.far, distance.memory, strict=True
    ):
        yield PredictedCell(of, one.rate_per_s, rate, float(far), float(memory), seen.error)


def _share(name: str, claim: str, found: Sequence[PredictedCell]) -> Check:
    error = np.abs([cell.log_error for cell in found])
    factor = math.exp(float(np.median([cell.half_width for cell in found])))
    return Check(
        f"intervals/{name}",
        "streambed_mst.csv, flink_runs/",
        claim,
        "90 %",
        round(float(np.mean([cell.held for cell in found])), 3),
        "reported",
        None,
        note=f"{len(found)} cells; error median {np.expm1(np.median(error)):.1%}, "
        f"p90 {np.expm1(np.quantile(error, 0.9)):.1%}; interval, median: a factor of "
        f"{factor:.2f}",
    )


SOURCE = "flink_runs/runs.csv, samples.csv.gz"


def flink_runs(data: Path) -> list[Check]:
    """Check predictions of runs that were held out of the fit.

    Returns:
        One check per figure.
    """
    from dsp_gym.studies.validation.flink_runs import flink_runs as figures_of

    found = figures_of(data)
    held_out, ranks = found.held_out, found.agreement
    fit = f"{found.fitted_runs} of {found.all_runs} runs fitted"
    rates = f"{held_out.rate_count} parts at capacity; {fit}"
    checks = [
        _check(
            "rate-median",
            "median error of the sustained rate",
            held_out.rate_median,
            RATE_MEDIAN,
            rates,
        ),
        _check("rate-p90", "90th percentile of the same", held_out.rate_p90, RATE_P90, rates),
        _check(
            "busy",
            "mean error of the operators' busy share",
            held_out.busy_mean,
            SHARE_MEAN,
            f"{held_out.busy_count} values; {fit}",
        ),
        _check(
            "hit-rate",
            "mean error of the block cache's hit ratio",
            held_out.hit_mean,
            SHARE_MEAN,
            f"{held_out.hit_count} values; {fit}",
        ),
        _check(
            "read-latency",
            "share of median read latencies within a factor of 2",
            held_out.read_within_2,
            READ_WITHIN_2,
            f"{held_out.read_count} values; {fit}",
            most=False,
        ),
        _check(
            "extrapolated",
            "median error of the rate with 4 and 8 tasks, fitted to 1 and 2",
            found.extrapolated.rate_median,
            EXTRAPOLATED,
            f"{found.extrapolated.rate_count} parts at capacity",
        ),
    ]
    if ranks is None:
        return checks
    pairs = (
        f"{ranks.pairs} pairs further apart than twice the repeat spread of "
        f"{found.repeat_cv:.1%}, {ranks.trades} of them trade tasks against memory"
    )
    against, tau = "the same, against the linear model's", ranks.tau
    return [
        *checks,
        _check("order", "Kendall's tau over pairs of configurations", tau, TAU, pairs, most=False),
        _check("order-linear", against, tau, ranks.linear_tau, pairs, most=False),
    ]


def _check(
    name: str, claim: str, ours: float | None, bar: float, note: str, *, most: bool = True
) -> Check:
    """A figure beside its bar: at most that where `most`, else at least."""
    return Check(
        f"flink-runs/{name}",
        SOURCE,
        claim,
        "measured",
        None if ours is None else round(ours, 3),
        f"at most {bar:g}" if most else f"at least {bar:.3g}",
        ours is not None and (ours <= bar if most else ours >= bar),
        note=note,
    )
