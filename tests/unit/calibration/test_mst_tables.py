"""Measured throughput tables: reading, fitting, and the resulting job file."""

from __future__ import annotations

import csv
import json

import pytest
from typer.testing import CliRunner

from dsp_gym.calibration.mst_fit import fit_measurements
from dsp_gym.calibration.mst_job import job_spec, job_text, selectivities
from dsp_gym.calibration.mst_model import behind_windows
from dsp_gym.calibration.mst_report import report_of
from dsp_gym.calibration.mst_tables import MeasuredOperator, gather, read_measurements
from dsp_gym.cli import app
from dsp_gym.errors import ConfigError
from dsp_gym.job.capacity import mst
from dsp_gym.job.placement import with_slot_memory

MAP_US, AGG_US, LOSS = 0.5, 20.0, 0.02
STATE_FITS_MIB = 2048
GRID = {"one": (1, 1), 12: (1, 10), 16: (1, 14), 32: (2, 29), 48: (3, 44)}
"""Slot budget to tasks of map and window_agg; the sink has one."""


def _truth(map_tasks, agg_tasks, memory):
    """Throughput of a job whose loss is of the contention form, and whose state may not fit."""
    agg_us = AGG_US * (1 if memory >= STATE_FITS_MIB else 10)
    carried = [
        p / (1 + LOSS * (p - 1)) / cost * 1e6
        for p, cost in ((map_tasks, MAP_US), (agg_tasks, agg_us))
    ]
    return min(carried)


def _write(path, rows):
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def _tables(folder, budgets=("one", 16, 48), memories=(4096,), query="x", suspects=0):
    """The two tables of a measured query with a graph source -> map -> window_agg -> sink."""
    runs, operators = [], []
    for memory in memories:
        for budget in budgets:
            tasks = (32, *GRID[budget], 1)
            run = {"run_id": len(runs), "query": query, "slot_memory_mb": memory}
            rate = _truth(*GRID[budget], memory)
            runs.append(
                run
                | {
                    "slot_budget": 12 if budget == "one" else budget,
                    "mst_events_per_s": rate,
                    "suspect": 0,
                }
            )
            graph = ("source", "", ""), ("map", "0", "FORWARD"), ("window_agg", "1", "HASH"), (
                "sink", "2", "FORWARD",
            )  # fmt: skip
            agg_us = GRID[budget][1] / _truth(1000, GRID[budget][1], memory) * 1e6
            rates = ("", 1e6 / MAP_US, 1e6 / agg_us, 0.0)
            for i, (operator, inputs, ship) in enumerate(graph):
                operators.append(
                    {
                        "run_id": run["run_id"],
                        "query": query,
                        "op_index": i,
                        "operator": operator,
                        "inputs": inputs,
                        "ship": ship,
                        "parallelism": tasks[i],
                        "input_ratio_to_source": 0.1 if i == 3 else 1.0,
                        "true_rate_per_task_events_per_s": rates[i],
                    }
                )
    for i in range(suspects):
        runs.append({**runs[0], "run_id": f"bad{i}", "mst_events_per_s": 1.0, "suspect": 1})
    return _write(folder / "mst.csv", runs), _write(folder / "rates.csv", operators)


def _without(path, column):
    with path.open(newline="") as stream:
        rows = [
            {key: value for key, value in row.items() if key != column}
            for row in csv.DictReader(stream)
        ]
    return _write(path, rows)


def test_the_graph_is_read_from_the_operators_table(tmp_path):
    found = read_measurements(*_tables(tmp_path), "x")
    assert [o.name for o in found.operators] == ["source", "map", "window_agg", "sink"]
    assert found.operators[2].inputs == (1,)
    assert found.operators[2].ships == ("HASH",)
    assert found.working == (1, 2, 3)
    assert [cell.parallelism for cell in gather(found.runs)] == [
        (32, 1, 1, 1), (32, 1, 14, 1), (32, 3, 44, 1)
    ]  # fmt: skip


def test_suspect_runs_are_left_out_and_counted(tmp_path):
    found = read_measurements(*_tables(tmp_path, suspects=2), "x")
    assert found.suspect_runs == 2
    assert len(found.runs) == 3


@pytest.mark.parametrize("column", ["mst_events_per_s", "slot_memory_mb", "query"])
def test_a_missing_column_is_named(tmp_path, column):
    mst_table, rates = _tables(tmp_path)
    _without(mst_table, column)
    with pytest.raises(ConfigError, match=f"mst.csv.*no column '{column}'.*It needs"):
        read_measurements(mst_table, rates, "x")


def test_optional_columns_may_be_missing(tmp_path):
    mst_table, rates = _tables(tmp_path)
    _without(mst_table, "suspect"), _without(mst_table, "slot_budget"), _without(rates, "ship")
    found = read_measurements(mst_table, rates, "x")
    assert found.operators[2].ships == ("HASH",)  # keyed by its name
    assert sorted(run.slots for run in found.runs) == [3, 16, 48]  # tasks in use


def test_an_unknown_query_and_a_number_that_is_none_are_named(tmp_path):
    mst_table, rates = _tables(tmp_path)
    with pytest.raises(ConfigError, match="no query 'q5'"):
        read_measurements(mst_table, rates, "q5")
    mst_table.write_text(mst_table.read_text().replace("4096", "much"))
    with pytest.raises(ConfigError, match=r"slot_memory_mb.*much.*not a number"):
        read_measurements(mst_table, rates, "x")


def test_runs_without_operators_are_refused(tmp_path):
    mst_table, rates = _tables(tmp_path)
    kept = [line for line in rates.read_text().splitlines() if not line.startswith("2,")]
    rates.write_text("\n".join(kept) + "\n")
    with pytest.raises(ConfigError, match="no operators of run 2"):
        read_measurements(mst_table, rates, "x")


def test_slot_counts_the_fit_has_not_seen_are_predicted(tmp_path):
    fit = fit_measurements(read_measurements(*_tables(tmp_path), "x"))
    for budget in (12, 32):
        predicted = fit.model.mst_per_s((32, *GRID[budget], 1), 4096)
        assert predicted == pytest.approx(_truth(*GRID[budget], 4096), rel=0.03)
    assert fit.model.memory is None


def test_one_slot_count_is_enough_for_a_fit_by_the_default_form(tmp_path):
    fit = fit_measurements(read_measurements(*_tables(tmp_path, budgets=(16,)), "x"))
    assert fit.model.form.name == "contention"
    assert fit.choices[0].error is None
    spec = job_spec(job_text(fit, "x", ["mst.csv"], "again"), "x.yaml")
    assert any("too few" in warning for warning in report_of(fit, spec).warnings)
    assert fit.model.mst_per_s((32, 1, 14, 1), 4096) == pytest.approx(_truth(1, 14, 4096), rel=0.05)


def test_memory_has_an_effect_only_where_the_cells_show_one(tmp_path):
    memories = (512, 2048, 4096)
    fit = fit_measurements(read_measurements(*_tables(tmp_path, memories=memories), "x"))
    assert fit.enough_mib == STATE_FITS_MIB
    assert fit.measurements.operators[fit.model.memory.operator].name == "window_agg"
    tasks = (32, *GRID[16], 1)
    assert fit.model.mst_per_s(tasks, 512) < 0.4 * fit.model.mst_per_s(tasks, 2048)
    assert fit.model.mst_per_s(tasks, 4096) == fit.model.mst_per_s(tasks, 2048)


@pytest.mark.parametrize("memories", [(4096,), (512, 2048, 4096)])
def test_the_job_file_carries_what_the_model_carries(tmp_path, memories):
    fit = fit_measurements(read_measurements(*_tables(tmp_path, memories=memories), "x"))
    spec = job_spec(job_text(fit, "x", ["mst.csv"], "again"), "x.yaml")
    names = [operator.name for operator in fit.measurements.operators]
    for run in fit.measurements.runs:
        p = dict(zip(names, run.parallelism, strict=True))
        ours = mst(with_slot_memory(spec, run.memory_mib), p, dict.fromkeys(names, 0)).rate_per_s
        assert ours == pytest.approx(fit.model.mst_per_s(run.parallelism, run.memory_mib), rel=5e-3)


def test_selectivities_give_every_operator_its_measured_input():
    operators = (
        MeasuredOperator("source", "source", (), ()),
        MeasuredOperator("left", "window_agg", (0,), ("HASH",)),
        MeasuredOperator("right", "window_agg", (0,), ("HASH",)),
        MeasuredOperator("join", "join", (1, 2), ("HASH", "HASH")),
        MeasuredOperator("sink", "sink", (3,), ("FORWARD",)),
    )
    ratio = (1.0, 1.0, 1.0, 0.4, 0.1)
    source, left, right, join, _ = selectivities(operators, ratio)
    assert source == 1
    assert left + right == pytest.approx(0.4)
    assert join == pytest.approx(0.25)


def test_only_keyed_operators_behind_a_window_may_see_few_keys(tmp_path):
    assert behind_windows(read_measurements(*_tables(tmp_path), "x")) == ()


@pytest.mark.slow
def test_the_command_writes_a_job_that_mst_reads(tmp_path):
    mst_table, rates = _tables(tmp_path)
    out, page = tmp_path / "mine.yaml", tmp_path / "mine.html"
    runner = CliRunner()
    options = [str(mst_table), str(rates), "--query", "x"]
    done = runner.invoke(
        app, ["calibrate", *options, "--out", str(out), "--report", str(page), "--json"]
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["query"] == "x"
    assert "left out of the fit" in page.read_text()
    placed = runner.invoke(
        app, ["plan", str(out), "--slots", "32", "--slot-memory-mib", "2048", "--json"]
    )
    rate = json.loads(placed.output)["mst"]["rate_per_s"]
    assert rate == pytest.approx(_truth(*GRID[32], 2048), rel=0.05)


def test_the_command_wants_one_thing_to_calibrate_from(tmp_path):
    mst_table, _ = _tables(tmp_path)
    runner = CliRunner()
    for arguments in (["calibrate"], ["calibrate", str(mst_table)]):
        assert runner.invoke(app, arguments).exit_code == 2
