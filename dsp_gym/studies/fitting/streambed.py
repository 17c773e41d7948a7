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

from dsp_gym.arrays import Floats
from dsp_gym.calibration.csv_rows import measured_rows
from dsp_gym.calibration.evidence import (
    LeftOut,
    SeenRate,
    error_of,
    folds,
    predictions_left_out,
    ranges_of,
    what_folds_leave_out,
    with_section,
)
from dsp_gym.config import files
from dsp_gym.errors import MissingExtraError
from dsp_gym.job.capacity import mst
from dsp_gym.job.catalog import load_job
from dsp_gym.job.evidence import Evidence
from dsp_gym.job.memory import managed_mib_per_slot
from dsp_gym.job.placement import place, with_slot_memory
from dsp_gym.studies.fitting.fitted_values import fitted_values, with_values
from dsp_gym.studies.fitting.streambed_data import (
    AT_SCALE,
    CROWDED_MIB,
    ENOUGH_MIB,
    QUERIES,
    Query,
    StreambedCell,
    StreambedRun,
    cells,
    read_runs,
)
from dsp_gym.studies.fitting.streambed_model import QueryModel, spec_of

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


def fit(query: Query, training: Sequence[StreambedCell], text: str) -> str:
    """The job file with its numbers fitted to the training cells.

    Returns:
        The text with the fitted lines replaced and all others as they were.
    """
    text = with_values(text, _from_operator_rates(query, training, text))
    model = QueryModel(query, text)
    beyond = production_cell(query, training)
    names = [name for name, _ in query.by_mst]
    start = np.array([value for _, value in query.by_mst])

    def loss(scale: Floats) -> float:
        values = dict(zip(names, start * np.exp(scale), strict=True))
        if any(value >= 1 for name, value in values.items() if not name.endswith("_us")):
            return 1e6
        model.set(values)
        unlikely = sum(((values[name] - mean) / sd) ** 2 for name, mean, sd in query.prior)
        found = sum(model.loss(cell) for cell in training) + unlikely
        if beyond is not None and query.production is not None:
            found += model.loss(beyond, query.production.noise)
        return float(found)

    best = _minimize(loss, len(names))
    return with_values(text, dict(zip(names, start * np.exp(best), strict=True)))


def production_cell(query: Query, training: Sequence[StreambedCell]) -> StreambedCell | None:
    """The production run, placed as StreamBed places it: rates of the largest budget measured.

    Returns:
        A cell of one run; None where the query has no production run.
    """
    run = query.production
    if run is None:
        return None
    most = max(cell.slots for cell in training)
    seen = [r for cell in training for r in cell.runs if cell.slots == most]
    # Source records/s that one task of each vertex carries, sources left out.
    per_task = np.median([np.divide(r.true_rate, r.input_ratio) for r in seen], axis=0)[1:]
    tasks = [1] * len(per_task)
    for _ in range(run.slots - len(tasks)):  # each further slot where it limits
        limiting = min(range(len(tasks)), key=lambda i: tasks[i] * per_task[i])
        tasks[limiting] += 1
    placed = replace(
        seen[0],
        memory_mib=run.memory_mib,
        slots=run.slots,
        mst_per_s=run.mst_per_s,
        parallelism=(seen[0].parallelism[0], *tasks),
    )
    return StreambedCell(query.name, run.memory_mib, run.slots, (placed,))


def fit_miss(query: Query, crowded: Sequence[StreambedCell], text: str) -> str:
    """The job file with the cost of a cache miss fitted to cells whose state does not fit.

    Returns:
        The text with the line `join_miss_us` replaced.
    """
    model = QueryModel(query, text)
    start = fitted_values(text)["join_miss_us"]

    def loss(scale: Floats) -> float:
        model.set({"join_miss_us": start * float(np.exp(scale[0]))})
        return float(sum(abs(np.log(model.predict(c) / c.mst_per_s)) for c in crowded))

    return with_values(text, {"join_miss_us": start * float(np.exp(_minimize(loss, 1)[0]))})


def leave_one_out(query: Query, runs: Sequence[StreambedRun], text: str) -> list[CellPrediction]:
    """Each cell of 2 GB per slot and more, predicted by a fit without its slot budget.

    Returns:
        A prediction per cell, by rising slots: records/s as placed in the run, and as placed by us.
    """
    every = cells(runs, query.name)
    found = []
    for slots in sorted({cell.slots for cell in every}):
        fold = fit(query, [cell for cell in every if cell.slots != slots], text)
        spec = spec_of(query, fold)
        model = QueryModel(query, fold)
        for cell in every:
            if cell.slots == slots:
                placed = place(with_slot_memory(spec, cell.memory_mib), slots)
                found.append(CellPrediction(cell, model.predict(cell), placed.result.rate_per_s))
    return found


def evidence_of(query: Query, runs: Sequence[StreambedRun], text: str) -> Evidence:
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
    fed = cells(runs, query.name)
    beyond = production_cell(query, fed)
    spec = spec_of(query, text)
    stateful = [v.name for v in spec.vertices if v.state is not None]
    crowded = "join_miss_us" in fitted_values(text)
    starved = cells(runs, query.name, CROWDED_MIB) if crowded else []
    every = [*fed, *starved]

    def seen_rate(run: StreambedRun) -> SeenRate:
        managed = managed_mib_per_slot(run.memory_mib, spec.taskmanager.slots)
        return SeenRate(
            dict(zip(query.operators, run.parallelism, strict=True)),
            dict.fromkeys(stateful, managed),
            run.mst_per_s,
            starved=run.memory_mib < ENOUGH_MIB,
        )

    measured = [(cell, run) for cell in every for run in cell.runs]
    seen = [seen_rate(run) for _, run in measured]

    def predict_from(rows: Sequence[int]) -> Callable[[int], float]:
        kept = [measured[i] for i in rows]
        fold = fit(
            query, _gathered(query, [r for _, r in kept if r.memory_mib >= ENOUGH_MIB]), text
        )
        hungry = [r for _, r in kept if r.memory_mib < ENOUGH_MIB]
        fold = fit_miss(query, _gathered(query, hungry), fold) if hungry else fold
        model = QueryModel(query, fold)
        return lambda i: model.predict(_gathered(query, [measured[i][1]])[0])

    error = error_of(
        predictions_left_out(spec, seen, predict_from, folds(seen)), what_folds_leave_out(seen)
    )
    if beyond is not None and query.production is not None:
        carried = query.production.carried_per_s
        seen += [replace(seen_rate(run), rate_per_s=carried) for run in beyond.runs]
    return ranges_of(spec, seen, COMMAND).model_copy(update={"error": error})


def single_task_evidence(data: Path, job: str) -> Evidence:
    """Of a job whose operator rates alone are known: its MST with one task of each is a test.

    Args:
        data: folder of measured data.
        job: name of the job file, `streambed-` and the query.

    Returns:
        The section `fitted`; the error is that of the measured MSTs, which no fit has seen.
    """
    spec = load_job(job)
    query = job.removeprefix("streambed-")
    rows = [
        row
        for row in measured_rows(data / "streambed_single_task_operators.csv")
        if row["query"] == query and int(row["slot_memory_mb"]) >= ENOUGH_MIB
    ]
    measured = {
        (int(row["slot_memory_mb"]), row["run_id"]): float(row["mst_events_per_s"]) for row in rows
    }
    ones = {v.name: v.parallelism if v.kind == "source" else 1 for v in spec.vertices}
    stateful = [v.name for v in spec.vertices if v.state is not None]
    seen, predictions = [], []
    for (memory_mib, _), measured_per_s in measured.items():
        managed = managed_mib_per_slot(memory_mib, spec.taskmanager.slots)
        seen.append(SeenRate(ones, dict.fromkeys(stateful, managed), measured_per_s))
        said = mst(with_slot_memory(spec, memory_mib), ones).rate_per_s
        predictions.append(LeftOut(0.0, 0.0, float(np.log(said / measured_per_s))))
    error = error_of(predictions, "MST of every run: only operator rates were fitted")
    return ranges_of(spec, seen, COMMAND).model_copy(update={"error": error})


def _gathered(query: Query, runs: Sequence[StreambedRun]) -> list[StreambedCell]:
    """The runs by cell."""
    keys = sorted({(run.memory_mib, run.slots) for run in runs})
    return [
        StreambedCell(
            query.name,
            memory,
            slots,
            tuple(r for r in runs if (r.memory_mib, r.slots) == (memory, slots)),
        )
        for memory, slots in keys
    ]


def _from_operator_rates(
    query: Query, training: Sequence[StreambedCell], text: str
) -> dict[str, float]:
    """Selectivities, and the CPU time of vertices that never limit."""
    runs = [run for cell in training for run in cell.runs]
    values = {}
    for vertex, reader in query.selectivity:
        into, out = query.operators.index(vertex), query.operators.index(reader)
        ratio = [run.input_ratio[out] / run.input_ratio[into] for run in runs]
        values[f"{vertex}_selectivity"] = statistics.median(ratio)
    model = QueryModel(query, text)
    for vertex in query.by_rate:
        index = query.operators.index(vertex)
        rate = statistics.median(run.true_rate[index] for run in runs)
        values[f"{vertex}_us"] = (1 / rate - model.state_s(ENOUGH_MIB, vertex)) * 1e6
    return values


def _minimize(loss: Callable[[Floats], float], size: int) -> Floats:
    try:
        from scipy.optimize import minimize
    except ModuleNotFoundError:
        raise MissingExtraError("dev", "fitting a job file") from None
    start = np.vstack([np.zeros(size), 0.3 * np.eye(size)])
    options = {"initial_simplex": start, "xatol": 1e-4, "fatol": 1e-9, "maxiter": 2000}
    found = minimize(loss, np.zeros(size), method="Nelder-Mead", options=options)
    return np.asarray(found.x)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    import argparse

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--data", type=Path, required=True, help="folder with streambed_*.csv")
    parser.add_argument("--write", action="store_true", help="write the fitted job files")
    options = parser.parse_args(arguments)
    runs = read_runs(options.data)
    for query in (*QUERIES.values(), *AT_SCALE.values()):
        path = files.find("jobs", query.job)
        text = path.read_text(encoding="utf-8")
        typer.echo(f"{query.job}: left out, measured, predicted (error), placed by itself")
        for p in leave_one_out(query, runs, text):
            typer.echo(
                f"  {p.cell.memory_mib:5d} MiB {p.cell.slots:3d} slots"
                f" {p.cell.mst_per_s:12,.0f} {p.published_per_s:12,.0f} ({p.error:+6.1%})"
                f" {p.placed_per_s:12,.0f} ({p.placed_error:+6.1%})"
            )
        text = fit(query, cells(runs, query.name), text)
        if "join_miss_us" in fitted_values(text):
            text = fit_miss(query, cells(runs, query.name, CROWDED_MIB), text)
        evidence = evidence_of(query, runs, text)
        text = with_section(text, evidence)
        for sentence in evidence.sentences():
            typer.echo(f"  {sentence}")
        typer.echo("  " + ", ".join(f"{k} {v:g}" for k, v in fitted_values(text).items()))
        if options.write:
            typer.echo(f"  written: {files.write_atomic(path, text)}")
    for job in SINGLE_TASK:
        path = files.find("jobs", job)
        evidence = single_task_evidence(options.data, job)
        typer.echo(f"{job}:")
        for sentence in evidence.sentences():
            typer.echo(f"  {sentence}")
        if options.write:
            text = with_section(path.read_text(encoding="utf-8"), evidence)
            typer.echo(f"  written: {files.write_atomic(path, text)}")


if __name__ == "__main__":
    main()
