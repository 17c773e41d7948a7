"""Jobs calibrated from runs that an autoscaler scaled, and what their table may not hold."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dsp_gym.calibration.scaled_fit import amdahl, cold_s, fit_runs, outages_of
from dsp_gym.calibration.scaled_job import calibrate_runs
from dsp_gym.calibration.scaled_runs import changes_of, quieted, read_runs
from dsp_gym.cli import app
from dsp_gym.errors import ConfigError
from dsp_gym.job.spec import JobSpec

COLUMNS = (
    "run,query,policy,setting,t_s,input_rate_per_s,throughput_per_s,lag_records,busy_share,"
    "taskmanagers,latency_s,idle_share,backpressured_raw,cpu_load"
)
CAPACITY, OUTAGE_S, STEP_S = 1000.0, 12, 15
PLAN = [(0, 4), (1500, 2), (3000, 1), (4500, 3), (6000, 2), (7500, 1), (9000, 4), (10500, 2)]
"""Seconds at which the number of TaskManagers changes."""


def rows(name: str = "one", plan=PLAN, seconds: int = 12_000, query: str = "q1"):
    """Samples of a fluid job: three operators, the first busy 80 % of a full slot's time."""
    found, lag, down, n = [], 0.0, 0, plan[0][1]
    changes = dict(plan[1:])
    gauge, lags = np.zeros(60), np.zeros(30)
    for t in range(seconds):
        load = 1500.0 + 1200.0 * np.sin(2 * np.pi * t / 3600)
        if t in changes:
            n, down = changes[t], OUTAGE_S
        have = lag + load
        done = 0.0 if down > 0 else min(have, n * CAPACITY)
        down, lag = down - 1, have - done
        gauge[t % 60], lags[t % 30] = done, lag  # Kafka's records-lag-max is one of 30 s
        if t % STEP_S == 0 and t > 0:
            share = gauge.mean() / (n * CAPACITY)
            busy = (0.8 + 0.4) * share / 3
            back = 0.2 * share
            line = (name, query, "hpa", 70, t, load, gauge.mean(), lags.max(), busy, n, lag / load)
            gauges = (1 - busy - back / 3, 1000 * back, min(1.0, 0.1 + 0.9 * share))
            found.append(",".join(str(value) for value in (*line, *gauges)))
    return found


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return rows()


def table(folder: Path, lines: list[str], header: str = COLUMNS) -> Path:
    file = folder / "runs.csv"
    file.write_text("\n".join([header, *lines]))
    return file


def with_field(lines: list[str], row: int, column: str, value: str) -> list[str]:
    fields = lines[row].split(",")
    fields[COLUMNS.split(",").index(column)] = value
    return [*lines[:row], ",".join(fields), *lines[row + 1 :]]


def scaled(lines: list[str], column: str, factor: float) -> list[str]:
    place = COLUMNS.split(",").index(column)
    found = []
    for line in lines:
        fields = line.split(",")
        fields[place] = str(float(fields[place]) * factor)
        found.append(",".join(fields))
    return found


def test_the_job_that_made_the_table_is_found(tmp_path, lines):
    fit = fit_runs(read_runs(table(tmp_path, lines)).runs)
    assert fit.capacity_per_s == pytest.approx(CAPACITY, rel=0.03)
    assert fit.capacity_at(np.array([2.0, 4.0])) == pytest.approx([2000, 4000], rel=0.05)
    assert fit.outage_s[1] == pytest.approx(OUTAGE_S, abs=2.0)
    assert fit.selectivity == 1.0


def test_signals_are_apart_from_capacity(tmp_path, lines):
    fit = fit_runs(read_runs(table(tmp_path, lines)).runs)
    assert len(fit.busy) == 3  # the sources wait for three times the mean
    read, work, other = (busy[1] + busy[2] for busy in fit.busy)  # of one TaskManager at full load
    # The mean is 0.4, and sources are not backpressured for 0.8: the middle is 0.6, and so on.
    assert (read, work, other) == pytest.approx((0.6, 0.45, 0.15), abs=0.05)
    assert sum(fit.backpressured[:3]) == pytest.approx(0.2, abs=0.02)
    assert fit.cpu is not None
    assert fit.cpu[0] == pytest.approx(0.1, abs=0.03)
    assert sum(fit.cpu[:3]) == pytest.approx(1.0, abs=0.04)


def test_the_job_file_holds_and_names_what_it_comes_from(tmp_path, lines):
    report = calibrate_runs(table(tmp_path, lines), "mine")
    assert "dsp-gym calibrate runs.csv" in report.job_text
    assert report.fitted.runs == 1
    assert report.fitted.slots == (1, 4) or report.fitted.slots[0] == 1
    assert "capacity" in report.render_html()


def test_only_the_columns_that_many_have_are_needed(tmp_path, lines):
    few = [",".join(line.split(",")[:1] + line.split(",")[4:10]) for line in lines]
    header = "run,t_s,input_rate_per_s,throughput_per_s,lag_records,busy_share,taskmanagers"
    fit = fit_runs(read_runs(table(tmp_path, few, header)).runs)
    assert fit.capacity_per_s == pytest.approx(CAPACITY, rel=0.05)
    assert (len(fit.busy), fit.cpu, fit.cold_s) == (1, None, 0.0)
    assert "as busy as the mean" in fit.warnings[-1]


def test_calibrate_writes_a_job_file_from_a_compressed_table(tmp_path, lines):
    file = tmp_path / "runs.csv.gz"
    file.write_bytes(gzip.compress("\n".join([COLUMNS, *lines]).encode()))
    out = tmp_path / "mine.yaml"
    result = CliRunner().invoke(app, ["calibrate", str(file), "--out", str(out), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["job"] == "mine"
    assert "signals:" in out.read_text()


def test_a_query_has_to_be_named_where_there_are_several(tmp_path, lines):
    file = table(tmp_path, [*lines, *rows("two", query="q3", seconds=600)])
    with pytest.raises(ConfigError, match=r"several queries.*q1, q3"):
        calibrate_runs(file, "mine")
    with pytest.raises(ConfigError, match="no run of that query"):
        calibrate_runs(file, "mine", "q7")


def test_a_gap_counts_as_unknown_and_a_large_one_is_refused(tmp_path, lines):
    read = read_runs(table(tmp_path, lines[:100] + lines[110:]))
    assert "lacks 10 of 799 samples" in read.notes[0]
    assert np.isnan(read.runs[0].lag_records[100:110]).all()
    assert len(read.runs[0]) == len(lines)
    with pytest.raises(ConfigError, match="'one' lacks 500 of 799 samples"):
        read_runs(table(tmp_path, lines[:100] + lines[600:]))


def test_a_clock_that_restarts_is_refused_by_name(tmp_path, lines):
    with pytest.raises(ConfigError, match=r"t_s of run 'one' goes from 150 to 15"):
        read_runs(table(tmp_path, [*lines[:10], *lines[:10]]))
    apart = [*lines[:10], *rows("two", seconds=200), *lines[10:20]]
    with pytest.raises(ConfigError, match="do not stand together"):
        read_runs(table(tmp_path, apart))


def test_rates_of_a_counter_that_restarts_are_unknown(tmp_path, lines):
    read = read_runs(table(tmp_path, with_field(lines, 7, "throughput_per_s", "-123.0")))
    assert "throughput_per_s is below 0 in 1 samples" in read.notes[0]
    assert np.isnan(read.runs[0].throughput_per_s[7])


def test_a_latency_below_0_is_one_of_clocks_that_differ(tmp_path, lines):
    read = read_runs(table(tmp_path, with_field(lines, 7, "latency_s", "-0.2")))
    assert "latency_s is below 0 in 1 samples, as of clocks that differ" in read.notes[0]
    assert read.runs[0].latency_s[7] == 0.0


def test_a_row_of_another_length_is_refused(tmp_path, lines):
    for row in (lines[3] + ",1", lines[3].rsplit(",", 1)[0]):
        with pytest.raises(ConfigError, match=r"row 5 has 1[35] fields, the header 14"):
            read_runs(table(tmp_path, [*lines[:3], row, *lines[4:]]))


@pytest.mark.parametrize(
    ("column", "factor", "unit"),
    [
        ("busy_share", 1000.0, "0..1000 ms/s"),
        ("idle_share", 1000.0, "0..1000 ms/s"),
        ("cpu_load", 100.0, "0..100 %"),
        ("backpressured_raw", 0.001, "0..1 in"),
    ],
)
def test_another_unit_is_converted_with_a_note(tmp_path, lines, column, factor, unit):
    read = read_runs(table(tmp_path, scaled(lines, column, factor)))
    plain = read_runs(table(tmp_path, lines))
    assert f"{column} is {unit}" in read.notes[0]
    for name in ("busy", "idle", "cpu", "backpressured"):
        ours, theirs = getattr(read.runs[0], name), getattr(plain.runs[0], name)
        assert ours == pytest.approx(theirs, nan_ok=True)


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("busy_share", "2500", "busy_share goes from 0 to 2500"),
        ("busy_share", "-0.1", "busy_share goes from -0.1"),
        ("cpu_load", "400", "cpu_load goes from 0 to 400"),
        ("taskmanagers", "2.5", "taskmanagers is no count"),
        ("taskmanagers", "-1", "taskmanagers is no count"),
        ("lag_records", "-5", "lag_records is below 0"),
        ("lag_records", "many", "lag_records of run 'one' is not a finite number"),
        ("t_s", "inf", "t_s of run 'one' is not a finite number"),
    ],
)
def test_what_cannot_be_is_refused_by_name(tmp_path, lines, column, value, said):
    with pytest.raises(ConfigError) as refused:
        read_runs(table(tmp_path, with_field(lines, 7, column, value)))
    assert said in str(refused.value)


def test_a_table_without_a_run_or_a_load_is_refused(tmp_path, lines):
    with pytest.raises(ConfigError, match="holds no run"):
        read_runs(table(tmp_path, []))
    with pytest.raises(ConfigError, match="input_rate_per_s is 0 or empty"):
        read_runs(table(tmp_path, scaled(lines, "input_rate_per_s", 0.0)))
    with pytest.raises(ConfigError, match="two rows or more"):
        read_runs(table(tmp_path, lines[:1]))


def test_runs_that_never_catch_up_or_never_change_say_so(tmp_path):
    quiet = read_runs(table(tmp_path, rows(plan=[(0, 4)], seconds=4000))).runs
    with pytest.raises(ConfigError, match="never catches up"):
        fit_runs([*quiet])
    behind = rows(plan=[(0, 1)], seconds=9000)
    with pytest.raises(ConfigError, match="no change of TaskManagers"):
        fit_runs(read_runs(table(tmp_path, behind)).runs)


def test_changes_that_follow_each_other_are_one(tmp_path, lines):
    assert changes_of(np.array([2.0, 2.0, np.nan, 3.0, 3.0, 1.0])) == [3, 5]
    assert quieted([3, 5, 20], 4) == [(3, 5), (20, 20)]
    run = read_runs(table(tmp_path, lines)).runs[0]
    assert len(outages_of(run)) < len(PLAN)  # the changes of a job that was behind tell nothing
    assert cold_s([run]) < 5.0


def test_amdahls_law_is_found():
    n = np.array([1.0, 2.0, 3.0, 5.0, 8.0])
    each = 700.0 / (1.0 + 0.04 * (n - 1))
    shown = [(int(k), float(rate), 50) for k, rate in zip(n, each, strict=True)]
    capacity, loss = amdahl(shown, [])
    assert capacity == pytest.approx(700.0, rel=0.01)
    assert loss == pytest.approx(0.04, abs=0.002)
    warnings: list[str] = []
    assert amdahl(shown[:1], warnings) == (700.0, 0.0)
    assert "in proportion" in warnings[0]


def test_signals_of_an_unknown_vertex_are_refused():
    from dsp_gym.job.catalog import load_job

    known = load_job("espa-q1").model_dump(by_alias=True)
    known["signals"]["vertices"]["reed"] = {"busy": (0.0,) * 5}
    with pytest.raises(ValueError, match=r"signals.vertices names the unknown vertex 'reed'"):
        JobSpec.model_validate(known)
