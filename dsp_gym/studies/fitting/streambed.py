"""Fits the `streambed-q*` job files to StreamBed's measured MSTs and operator rates.

    python -m dsp_gym.studies.fitting.streambed --data FOLDER [--write]

Selectivities and the cost of operators that never limit come from operator rates; the cost and the
loss with parallelism of those that do are fitted to MSTs. The loss is contention to a floor: within
the testbed a power law fits as well, but it says 72 K/s for one task of every operator of q11 and
60 K/s for q5, where 60 and 51 K/s were measured in runs that no fit sees.
A cell is (query, memory per slot, slot budget); its MST the median of the repeats that were not
aborted. Prints how well each cell is predicted by a fit that has not seen its slot budget.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import typer

from dsp_gym.calibration.evidence import (
    LeftOut,
    SeenRate,
    error_of,
    folds,
    predictions_left_out,
    ranges_of,
    run_folds,
    what_folds_leave_out,
)
from dsp_gym.calibration.mst_job import job_spec
from dsp_gym.calibration.mst_tables import MstRun, read_measurements
from dsp_gym.job.capacity import mst
from dsp_gym.job.catalog import load_job
from dsp_gym.job.evidence import Evidence
from dsp_gym.job.memory import managed_mib_per_slot
from dsp_gym.job.placement import place, with_slot_memory
from dsp_gym.job.spec import JobSpec
from dsp_gym.studies.fitting.fitted_values import (
    fitted_values,
    keep,
    searched,
    text_of,
    with_values,
)
from dsp_gym.studies.fitting.streambed_model import (
    AT_SCALE,
    CROWDED_MIB,
    ENOUGH_MIB,
    QUERIES,
    Query,
    QueryModel,
    StreambedCell,
    cells,
    read_runs,
)
from dsp_gym.studies.runner import DataOption, WriteOption, run

STOPS = {"xatol": 1e-4, "fatol": 1e-9, "maxiter": 2000}
"""When the search of fitted numbers ends."""
COMMAND = "python -m dsp_gym.studies.fitting.streambed --data ../shared/data --write"
SINGLE_TASK = ("streambed-q2", "streambed-q8")
"""Job files by hand from operator rates of runs with one task per operator."""


@dataclass(frozen=True, slots=True)
class CellPrediction:
    """A cell, and what a fit that had not seen its slot budget says."""

    cell: StreambedCell
    published_per_s: float  # with the parallelism of the measurement
    placed_per_s: float  # placed by `dsp-gym plan --slots`

    @property
    def error(self) -> float:
        """Relative error with the parallelism of the measurement."""
        return self.published_per_s / self.cell.mst_per_s - 1

    @property
    def placed_error(self) -> float:
        """Relative error with our own placement."""
        return self.placed_per_s / self.cell.mst_per_s - 1


def fit_runs(query: Query, runs: Sequence[MstRun], text: str) -> str:
    """The job file with all its numbers fitted, those of a crowded memory where it has any.

    Returns:
        The text with the fitted lines replaced and all others as they were.
    """
    text = fit(query, cells(runs), text)
    crowded = cells(runs, CROWDED_MIB) if "join_miss_us" in fitted_values(text) else []
    return fit_miss(query, crowded, text) if crowded else text


def fit(query: Query, training: Sequence[StreambedCell], text: str) -> str:
    """The job file with its numbers fitted to the training cells.

    Returns:
        The text with the fitted lines replaced and all others as they were.
    """
    text = with_values(text, _from_operator_rates(query, training, text))
    model = QueryModel(query, text)
    beyond = production_cell(query, training)

    def loss(values: dict[str, float]) -> float:
        if any(value >= 1 for name, value in values.items() if not name.endswith("_us")):
            return 1e6
        model.set(values)
        found = sum(model.loss(cell) for cell in training)
        found += sum(((values[name] - mean) / sd) ** 2 for name, mean, sd in query.prior)
        if beyond is not None and query.production is not None:
            found += model.loss(beyond, query.production.noise)
        return float(found)

    return with_values(text, searched(loss, dict(query.by_mst), 0.3, **STOPS))


def production_cell(query: Query, training: Sequence[StreambedCell]) -> StreambedCell | None:
    """The production run, placed as StreamBed places it: rates of the largest budget measured.

    Returns:
        A cell of one run; None where the query has no production run.
    """
    plan = query.production
    if plan is None:
        return None
    most = max(cell.slots for cell in training)
    seen = [r for cell in training for r in cell.runs if cell.slots == most]
    # Source records/s that one task of each vertex carries, sources left out.
    per_task = np.median([np.divide(r.true_rate_per_s, r.input_ratio) for r in seen], axis=0)[1:]
    tasks = np.ones(len(per_task), np.int64)
    for _ in range(plan.slots - len(tasks)):
        tasks[np.argmin(tasks * per_task)] += 1  # each further slot where it limits
    placed = replace(
        seen[0],
        memory_mib=plan.memory_mib,
        slots=plan.slots,
        mst_per_s=plan.mst_per_s,
        parallelism=(seen[0].parallelism[0], *tasks.tolist()),
    )
    return StreambedCell((placed,))


def fit_miss(query: Query, crowded: Sequence[StreambedCell], text: str) -> str:
    """The job file with the cost of a cache miss fitted to cells whose state does not fit.

    Returns:
        The text with the line `join_miss_us` replaced.
    """
    model = QueryModel(query, text)
    start = {"join_miss_us": fitted_values(text)["join_miss_us"]}

    def loss(values: dict[str, float]) -> float:
        model.set(values)
        return float(sum(abs(np.log(model.predict(c) / c.mst_per_s)) for c in crowded))

    return with_values(text, searched(loss, start, 0.3, **STOPS))


def leave_one_out(query: Query, runs: Sequence[MstRun], text: str) -> list[CellPrediction]:
    """Each cell of 2 GB per slot and more, predicted by a fit without its slot budget.

    Returns:
        A prediction per cell, by rising slots: records/s as placed in the run, and as placed by us.
    """
    every, found = cells(runs), []
    for slots in sorted({cell.slots for cell in every}):
        fold = fit(query, [cell for cell in every if cell.slots != slots], text)
        model = QueryModel(query, fold)
        for cell in every:
            if cell.slots == slots:
                placed = place(with_slot_memory(model.spec, cell.memory_mib), slots)
                found.append(CellPrediction(cell, model.predict(cell), placed.result.rate_per_s))
    return found


def evidence_of(query: Query, runs: Sequence[MstRun], text: str) -> Evidence:
    """The ranges of the fitted cells, and the error of fits that leave some of them out.

    Cells with too little memory for the state of a query are beyond the ranges. They are predicted
    as well, by fits to those with enough.

    Args:
        query: what is fitted.
        runs: measured runs.
        text: the job file with its fitted numbers.

    Returns:
        The section `fitted` of the job file.
    """
    spec = job_spec(text, query.job)
    fed, crowded = cells(runs), "join_miss_us" in fitted_values(text)
    starved = cells(runs, CROWDED_MIB) if crowded else []
    measured = [run for cell in (*fed, *starved) for run in cell.runs]
    seen = [_seen_rate(spec, run, query.operators) for run in measured]

    def predict_from(rows: Sequence[int]) -> Callable[[int], float]:
        fold = fit_runs(query, [measured[i] for i in rows], text)
        model = QueryModel(query, fold)
        return lambda i: model.predict(StreambedCell((measured[i],)))

    predictions = predictions_left_out(spec, seen, predict_from, folds(seen))
    predictions += predictions_left_out(spec, seen, predict_from, run_folds(seen), by_run=True)
    error = error_of(predictions, what_folds_leave_out(seen))
    beyond = production_cell(query, fed)
    if beyond is not None and query.production is not None:
        placed = _seen_rate(spec, beyond.runs[0], query.operators)
        seen.append(replace(placed, rate_per_s=query.production.carried_per_s))
    return ranges_of(spec, seen, COMMAND).model_copy(update={"error": error})


def single_task_evidence(data: Path, job: str) -> Evidence:
    """Of a job whose operator rates alone are known: its MST with one task of each is a test.

    Args:
        data: folder of measured data.
        job: name of the job file, `streambed-` and the query.

    Returns:
        The section `fitted`; the error is that of the measured MSTs, which no fit has seen.
    """
    spec, file = load_job(job), data / "streambed_single_task_operators.csv"
    measured = read_measurements(file, file, job.removeprefix("streambed-"))
    ones = {v.name: v.parallelism if v.kind == "source" else 1 for v in spec.vertices}
    seen, predictions = [], []
    for one in measured.runs:
        if one.memory_mib >= ENOUGH_MIB:
            seen.append(replace(_seen_rate(spec, one), parallelism=ones))
            said = mst(with_slot_memory(spec, one.memory_mib), ones).rate_per_s
            predictions.append(LeftOut(0.0, 0.0, float(np.log(said / one.mst_per_s))))
    error = error_of(predictions, "MST of every run: only operator rates were fitted")
    return ranges_of(spec, seen, COMMAND).model_copy(update={"error": error})


def _seen_rate(spec: JobSpec, run: MstRun, operators: Sequence[str] = ()) -> SeenRate:
    managed = managed_mib_per_slot(run.memory_mib, spec.taskmanager.slots)
    return SeenRate(
        dict(zip(operators, run.parallelism, strict=False)),
        {v.name: managed for v in spec.vertices if v.state is not None},
        run.mst_per_s,
        starved=run.memory_mib < ENOUGH_MIB,
    )


def _from_operator_rates(
    query: Query, training: Sequence[StreambedCell], text: str
) -> dict[str, float]:
    """Selectivities, and the CPU time of vertices that never limit."""
    runs = [run for cell in training for run in cell.runs]
    model, place_of = QueryModel(query, text), query.operators.index
    values = {
        f"{vertex}_selectivity": statistics.median(
            run.input_ratio[place_of(reader)] / run.input_ratio[place_of(vertex)] for run in runs
        )
        for vertex, reader in query.selectivity
    }
    for vertex in query.by_rate:
        rate = statistics.median(run.true_rate_per_s[place_of(vertex)] for run in runs)
        values[f"{vertex}_us"] = (1 / rate - model.state_s(ENOUGH_MIB, vertex)) * 1e6
    return values


def main(data: DataOption, write: WriteOption = False) -> None:
    """Fit the StreamBed queries to measured MSTs and operator rates."""
    for query in (*QUERIES.values(), *AT_SCALE.values()):
        runs, text = read_runs(data, query.name), text_of(query.job)
        typer.echo(f"{query.job}: left out, measured, predicted (error), placed by itself")
        for p in leave_one_out(query, runs, text):
            typer.echo(
                f"  {p.cell.memory_mib:5.0f} MiB {p.cell.slots:3d} slots"
                f" {p.cell.mst_per_s:12,.0f} {p.published_per_s:12,.0f} ({p.error:+6.1%})"
                f" {p.placed_per_s:12,.0f} ({p.placed_error:+6.1%})"
            )
        text = fit_runs(query, runs, text)
        keep(query.job, text, evidence_of(query, runs, text), write=write)
    for job in SINGLE_TASK:
        keep(job, text_of(job), single_task_evidence(data, job), write=write)


if __name__ == "__main__":
    run(main)
