"""Do the 90 % intervals of predicted rates hold the truth?

Each cell is a measured rate that neither a fit nor its interval has seen: the interval comes from
the section `fitted` of a job file made without it. Left out are one slot count of StreamBed's grid
at a time, or all above its middle; of the recorded runs of a real Flink all but a third, or those
with more than two state tasks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dsp_gym.calibration.config import CalibrationConfig, fitted_runs
from dsp_gym.calibration.errors import compare
from dsp_gym.calibration.evidence import SeenRate, distances_of
from dsp_gym.calibration.fit import fit
from dsp_gym.calibration.mst_fit import fit_measurements
from dsp_gym.calibration.mst_job import evidence_of as evidence_of_tables
from dsp_gym.calibration.mst_job import job_spec, job_text
from dsp_gym.calibration.mst_job import seen_rate as seen_in_tables
from dsp_gym.calibration.mst_tables import Measurements, MstRun, read_measurements
from dsp_gym.calibration.observations import SteadyPart, observe_all
from dsp_gym.calibration.recordings import measured_runs
from dsp_gym.calibration.runs_evidence import evidence_of as evidence_of_runs
from dsp_gym.calibration.runs_evidence import seen_rate as seen_in_runs
from dsp_gym.config.files import load_model
from dsp_gym.job.catalog import load_job
from dsp_gym.job.evidence import Evidence
from dsp_gym.job.spec import JobSpec
from dsp_gym.job.validity import half_width
from dsp_gym.studies.reproduce.registry import Check, needs

SOURCE, CLAIM = "streambed_mst.csv, flink_runs/", "90 % intervals hold the truth"
HELD = (0.85, 0.97)
"""Share of cells that 90 % intervals may hold."""
ENOUGH = 100
QUERIES = ("q1", "q5", "q11")
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
"""Runs at capacity of a fit that is tested."""


@dataclass(frozen=True, slots=True)
class PredictedCell:
    """A measured rate beside the prediction of a fit that had not seen it."""

    data: str
    what: str  # left out
    measured_per_s: float
    predicted_per_s: float
    doublings: float  # from what the fit saw
    half_width: float  # of the 90 % interval, natural logarithm

    @property
    def log_error(self) -> float:
        """Natural logarithm of predicted over measured."""
        return math.log(self.predicted_per_s / self.measured_per_s)

    @property
    def held(self) -> bool:
        """Whether the interval holds the measured rate."""
        return abs(self.log_error) <= self.half_width


@needs("streambed_mst.csv", "intervals/all", SOURCE, CLAIM, "90 %")
def intervals(data: Path) -> list[Check]:
    """Check how often 90 % intervals hold what was measured.

    Returns:
        The share of truths held, over all cells with its bar, and reported by data and distance.
    """
    found = cells(data)
    low, high = HELD
    share = _share(found)
    whole = Check(
        "intervals/all",
        SOURCE,
        f"{CLAIM}: {len(found)} cells",
        "90 %",
        round(share, 3),
        f"{low:.0%} to {high:.0%} of at least {ENOUGH}",
        len(found) >= ENOUGH and low <= share <= high,
        used_in_fit=False,
        note=_note(found),
    )
    groups: dict[str, list[PredictedCell]] = {f"{cell.data}, {cell.what}": [] for cell in found}
    for cell in found:
        groups[f"{cell.data}, {cell.what}"].append(cell)
    groups |= {
        "inside what the fit saw": [c for c in found if c.doublings == 0],
        "beyond it by less than a doubling": [c for c in found if 0 < c.doublings < 1],
        "beyond it by a doubling or more": [c for c in found if c.doublings >= 1],
    }
    return [whole, *(_reported(name, some) for name, some in groups.items() if some)]


def cells(data: Path) -> list[PredictedCell]:
    """Every cell.

    Returns:
        Cells of StreamBed's grid, of the recorded runs, and of this project's own recordings.
    """
    found = [cell for query in QUERIES for cell in _of_query(data, query)]
    for name in RUNS:
        found += _of_runs(data, name)
    for name in OWN:
        found += _of_own(FIGURES / f"calibrate-{name}.json", name)
    return found


def _of_query(data: Path, query: str) -> Iterable[PredictedCell]:
    tables = (data / "streambed_mst.csv", data / "streambed_operator_rates.csv")
    measured = read_measurements(*tables, query)
    slots = sorted({_slots(measured, run) for run in measured.runs})
    middle = slots[len(slots) // 2]
    folds = [({one}, "one slot count left out") for one in slots]
    folds.append(({one for one in slots if one > middle}, "all larger slot counts left out"))
    for out, what in folds:
        kept = [run for run in measured.runs if _slots(measured, run) not in out]
        others = [run for run in measured.runs if _slots(measured, run) in out]
        found = fit_measurements(replace(measured, runs=tuple(kept)))
        spec = job_spec(job_text(found, query, ["grid"], "intervals"), query)
        seen = evidence_of_tables(found, spec, "intervals")
        predicted = [found.model.mst_per_s(run.parallelism, run.memory_mib) for run in others]
        rates = [seen_in_tables(found, spec, run) for run in others]
        yield from _cells(f"StreamBed {query}", what, spec, seen, rates, predicted)


def _slots(measured: Measurements, run: MstRun) -> int:
    """The slot budget; 0 where every operator has one task whatever the budget."""
    return 0 if all(run.parallelism[v] == 1 for v in measured.working) else run.slots


def _of_runs(data: Path, name: str) -> Iterable[PredictedCell]:
    config = load_model(CalibrationConfig, "calibrations", f"flink-runs-{name}")
    changes: dict[str, object] = {"recordings": (str(data / "flink_runs"),)}
    spec = load_job(config.job)
    for which, what in (("third", "a third fitted"), ("parallelism", "one and two tasks fitted")):
        bound = SMALL if which == "parallelism" else None
        update = {**changes, "fit": which, "max_parallelism": bound}
        chosen = config.model_copy(update=update)
        runs = measured_runs(spec, chosen)
        seen = observe_all(runs)
        names = fitted_runs(chosen, runs, seen)
        yield from _of_parts(f"flink_runs {name}", what, spec, seen, names)


def _of_own(report: Path, name: str) -> Iterable[PredictedCell]:
    """The runs of a committed report, fitted again."""
    if not report.is_file():
        return
    document = json.loads(report.read_text(encoding="utf-8"))
    parts = []
    for row in document["parts"]:
        seen = dict(row["seen"])
        if seen["offered_per_s"] is None:
            seen["offered_per_s"] = math.inf
        parts.append(SteadyPart(**seen))
    names = frozenset(row["seen"]["run"] for row in document["parts"] if row["in_fit"])
    yield from _of_parts(name, "a third fitted", load_job(name), parts, names)


def _of_parts(
    data: str, what: str, spec: JobSpec, seen: Sequence[SteadyPart], names: frozenset[str]
) -> Iterable[PredictedCell]:
    training = [part for part in seen if part.run in names]
    if sum(part.saturated for part in training) < FEWEST:
        return
    found = fit(spec, training)
    # The rate of a run that never became steady is no measurement of a capacity.
    compared = [c for c in compare(found.model(), seen, names) if not c.seen.is_unsteady]
    fitted = [c for c in compared if c.in_fit]
    evidence = evidence_of_runs(spec, fitted, "intervals")
    others = [c for c in compared if not c.in_fit and c.at_capacity]
    if evidence is None or not others:
        return
    rates = [seen_in_runs(spec, c.seen) for c in others]
    predicted = [c.predicted.rate_per_s for c in others]
    yield from _cells(data, what, spec, evidence, rates, predicted)


def _cells(
    data: str,
    what: str,
    spec: JobSpec,
    seen: Evidence,
    others: Sequence[SeenRate],
    predicted: Sequence[float],
) -> Iterable[PredictedCell]:
    if seen.error is None:
        return
    distance = distances_of(spec, seen, others, predicted)
    widths = half_width(seen.error, distance.far, distance.memory)
    for one, rate, far, width in zip(
        others, predicted, distance.worst.tolist(), widths.tolist(), strict=True
    ):
        yield PredictedCell(data, what, one.rate_per_s, rate, far, width)


def _reported(name: str, found: Sequence[PredictedCell]) -> Check:
    slug = "intervals/" + name.lower().replace(",", "").replace(" ", "-").replace("/", "-")
    return Check(
        slug,
        SOURCE,
        f"share held: {name}",
        "90 %",
        round(_share(found), 3),
        "reported",
        None,
        used_in_fit=False,
        note=_note(found),
    )


def _share(found: Sequence[PredictedCell]) -> float:
    return float(np.mean([cell.held for cell in found]))


def _note(found: Sequence[PredictedCell]) -> str:
    error = np.abs([cell.log_error for cell in found])
    factor = math.exp(float(np.median([cell.half_width for cell in found])))
    return (
        f"{len(found)} cells; error median {np.expm1(np.median(error)):.1%}, "
        f"p90 {np.expm1(np.quantile(error, 0.9)):.1%}; interval, median: a factor of {factor:.2f}"
    )
