"""StreamBed's tables through the general calibration, as a user would call it on tables of theirs.

Fitted to the runs with one task per operator, the second smallest and the largest slot count; all
other cells are predicted. The form of the loss is chosen by cross-validation inside the fit.
"""

from __future__ import annotations

import csv
import json
import math
import statistics
from dataclasses import dataclass, replace

import pytest
from typer.testing import CliRunner

from dsp_gym.calibration.mst_fit import fit_measurements
from dsp_gym.calibration.mst_job import job_spec, job_text
from dsp_gym.calibration.mst_tables import read_measurements
from dsp_gym.cli import app
from dsp_gym.job.placement import place, with_slot_memory

pytestmark = pytest.mark.slow

QUERIES = ("q1", "q5", "q11")
ENOUGH_MIB = 2048
BAR = 0.08


@dataclass(frozen=True)
class Predicted:
    """A cell the fit has not seen: relative errors."""

    memory_mib: float
    measured_p: float  # with the parallelism of the measurement
    placed: float  # as `dsp-gym plan --slots` places it
    linear: float  # true rates of one task, scaled linearly


def _is_single(measurements, run):
    return all(run.parallelism[v] == 1 for v in measurements.working)


def _linear_per_s(measurements, fitted, run):
    """Naive baseline: the median true rate of one task of each operator, times its tasks."""
    carried = []
    for v in measurements.working:
        rates = [r.true_rate_per_s[v] for r in fitted if not math.isnan(r.true_rate_per_s[v])]
        ratio = statistics.median(r.input_ratio[v] for r in fitted)
        carried.append(run.parallelism[v] * statistics.median(rates) / ratio)
    return min(carried)


def _predictions(measurements, slots):
    """Cells of slot counts that are not among `slots`, by a fit to those that are."""
    fitted = tuple(
        run for run in measurements.runs if _is_single(measurements, run) or run.slots in slots
    )
    fit = fit_measurements(replace(measurements, runs=fitted))
    spec = job_spec(job_text(fit, "held", ["streambed_mst.csv"], "again"), "held.yaml")
    single = [run for run in fitted if _is_single(measurements, run)]
    cells = {}
    for run in measurements.runs:
        if run not in fitted:
            cells.setdefault((run.memory_mib, run.slots), []).append(run)
    found = []
    for (memory, budget), runs in cells.items():
        measured = statistics.median(run.mst_per_s for run in runs)
        ours = statistics.median(fit.model.mst_per_s(r.parallelism, memory) for r in runs)
        linear = statistics.median(_linear_per_s(measurements, single, run) for run in runs)
        placed = place(with_slot_memory(spec, memory), budget).result.rate_per_s
        found.append(
            Predicted(memory, ours / measured - 1, placed / measured - 1, linear / measured - 1)
        )
    return found


@pytest.fixture
def measured(data_folder):
    tables = data_folder / "streambed_mst.csv", data_folder / "streambed_operator_rates.csv"
    return {query: read_measurements(*tables, query) for query in QUERIES}


def _median(cells, error):
    return statistics.median(abs(getattr(cell, error)) for cell in cells)


def test_held_out_slot_counts_are_predicted_within_eight_percent_and_better_than_linear(measured):
    held = []
    for measurements in measured.values():
        budgets = sorted({run.slots for run in measurements.runs})
        held += _predictions(measurements, {budgets[1], budgets[-1]})
    enough = [cell for cell in held if cell.memory_mib >= ENOUGH_MIB]
    assert len(enough) == 12
    assert _median(enough, "measured_p") <= BAR
    assert _median(enough, "placed") <= BAR
    assert _median(enough, "measured_p") < 0.6 * _median(enough, "linear")


@pytest.mark.validate
def test_each_slot_count_left_out_in_turn_is_predicted_within_eight_percent(measured):
    held = []
    for measurements in measured.values():
        budgets = {run.slots for run in measurements.runs}
        for left_out in budgets:
            held += _predictions(measurements, budgets - {left_out})
    enough = [cell for cell in held if cell.memory_mib >= ENOUGH_MIB]
    assert len(enough) == 24
    assert _median(enough, "measured_p") <= BAR
    assert _median(enough, "placed") <= BAR


@pytest.mark.validate
def test_q5_keeps_its_cliff_below_two_gigabytes_per_slot(measured):
    fit = fit_measurements(measured["q5"])
    assert fit.enough_mib == ENOUGH_MIB
    assert fit.measurements.operators[fit.model.memory.operator].operator == "join"
    tasks = (32, 1, 16, 1, 1, 1, 1, 9, 1, 1)
    assert fit.model.mst_per_s(tasks, 1024) < 0.3 * fit.model.mst_per_s(tasks, 2048)


@pytest.mark.parametrize("query", ["q1", "q11"])
def test_memory_has_no_effect_where_the_tables_show_none(measured, query):
    assert fit_measurements(measured[query]).model.memory is None


@pytest.mark.parametrize(("query", "cliff"), [("q2", False), ("q8", True)])
def test_queries_measured_with_one_task_each_are_fitted_too(data_folder, query, cliff):
    table = data_folder / "streambed_single_task_operators.csv"
    fit = fit_measurements(read_measurements(table, table, query))
    fed = [run for run in fit.measurements.runs if run.memory_mib >= ENOUGH_MIB]
    error = statistics.median(
        abs(fit.model.mst_per_s(run.parallelism, run.memory_mib) / run.mst_per_s - 1) for run in fed
    )
    assert error <= 0.1
    assert (fit.model.memory is not None) == cliff


def test_an_anonymous_query_of_few_rows_goes_through_the_command(data_folder, tmp_path):
    """Three runs under a name nobody knows: one task each, 16 and 48 slots of q11."""
    for table in ("streambed_mst.csv", "streambed_operator_rates.csv"):
        with (data_folder / table).open(newline="") as stream:
            rows = [r for r in csv.DictReader(stream) if r["run_id"] in {"73", "76", "82"}]
        with (tmp_path / table).open("w", newline="") as stream:
            writer = csv.DictWriter(stream, rows[0])
            writer.writeheader()
            writer.writerows({**row, "query": "mystery"} for row in rows)
    runner, out = CliRunner(), tmp_path / "mystery.yaml"
    tables = [str(tmp_path / f"streambed_{name}.csv") for name in ("mst", "operator_rates")]
    done = runner.invoke(app, ["calibrate", *tables, "--query", "mystery", "--out", str(out)])
    assert done.exit_code == 0, done.output
    placed = runner.invoke(
        app, ["plan", str(out), "--slots", "32", "--slot-memory-mib", "2048", "--json"]
    )
    rate = json.loads(placed.output)["mst"]["rate_per_s"]
    assert rate == pytest.approx(1_480_000, rel=0.15)  # median of three repeats of q11
