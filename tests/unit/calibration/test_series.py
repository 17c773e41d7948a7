"""Calibration from a series and profiles, and the replay of recorded outages."""

from __future__ import annotations

import csv
import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from dsp_gym.calibration.mst_job import job_spec
from dsp_gym.calibration.series import job_text
from dsp_gym.calibration.series_fit import (
    WarmUp,
    catch_up_s,
    fit_series,
    fit_warm_up_after_rescales,
)
from dsp_gym.calibration.series_tables import (
    PROFILE_COLUMNS,
    SERIES_COLUMNS,
    RecordedOutage,
    read_profiles,
    read_series,
)
from dsp_gym.cli import app
from dsp_gym.errors import ConfigError
from dsp_gym.job.capacity import mst
from dsp_gym.studies.reproduce.closed_loop import ReplayedOutage, merge_outages, replay

SLOTS, LOAD, CAPACITY, EXTRA, WARM_S = 8, 8000.0, 40_000.0, 2.0, 60.0
LOSS = 0.1
READ_OVER_OFFERED = 1.25


def _write(path, columns, rows):
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        writer.writerows(rows)
    return path


def _series(folder):
    """A job whose records cost up to three times as much at first; once it catches up."""
    rows = []
    for i in range(120):
        t = 30 * i
        cost = (1 + EXTRA * math.exp(-(t + 15) / WARM_S)) * SLOTS / CAPACITY
        throughput = CAPACITY if i == 100 else LOAD * READ_OVER_OFFERED
        down = i == 99
        rows.append(
            (
                t, LOAD, "" if down else throughput, 0 if down else 30, "" if down else 500,
                "" if down else 1000, cost * LOAD * READ_OVER_OFFERED / SLOTS, SLOTS,
            )
        )  # fmt: skip
    return _write(folder / "series.csv", SERIES_COLUMNS, rows)


def _profiles(folder):
    rows = [
        (p, 1, memory, 1, 5000 * p ** (1 - LOSS), 40_000)
        for p in (2, 4, 8, 16)
        for memory in (1024, 2048, 4096)
    ]
    rows.append((4, 1, 2048, 1, 100, 1030))  # kept up: says nothing of capacity
    return _write(folder / "profiles.csv", PROFILE_COLUMNS, rows)


@pytest.fixture
def fit(tmp_path):
    return fit_series(read_series(_series(tmp_path)), read_profiles(_profiles(tmp_path)))


@pytest.fixture
def spec(fit):
    return job_spec(job_text(fit, "x", ["series.csv"], 4096.0), "x.yaml")


def test_a_series_is_read_with_its_gaps(tmp_path):
    series = read_series(_series(tmp_path))
    assert series.step_s == 30
    assert np.isnan(series.latency_s[99])
    assert series.late(2.0).sum() == 1
    assert series.every_second(2.0) == pytest.approx(np.full(3600, 2 * LOAD))


def test_the_load_factor_is_the_series_own(fit):
    # One row of 120 catches up more than was offered.
    assert fit.load_factor == pytest.approx(READ_OVER_OFFERED, rel=0.02)
    assert fit.reference_rate_per_s == pytest.approx(LOAD * fit.load_factor)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("offered_events_per_s", 0, "shows no load: the column is 0 or empty in every row"),
        ("offered_events_per_s", "", "shows no load"),
        ("throughput_events_per_s", "nan", "shows no throughput"),
        ("throughput_events_per_s", -1, "row 1 is below 0"),
    ],
)
def test_a_series_without_load_is_refused_with_what_to_do(tmp_path, column, value, message):
    path = _series(tmp_path)
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    _write(path, SERIES_COLUMNS, [(row | {column: value}).values() for row in rows])
    with pytest.raises(ConfigError, match=message) as error:
        read_series(path)
    assert column in str(error.value)


def test_a_series_without_a_column_is_refused(tmp_path):
    path = _write(tmp_path / "bad.csv", SERIES_COLUMNS[:-1], [])
    with pytest.raises(ConfigError, match="no column 'task_slots'"):
        read_series(path)


def test_capacity_loss_and_warm_up_are_found(fit):
    assert fit.slots == SLOTS
    assert fit.capacity_per_s == CAPACITY
    assert fit.loss == pytest.approx(LOSS, abs=1e-6)
    assert fit.warm_up.extra == pytest.approx(EXTRA, rel=0.05)
    assert fit.warm_up.records == pytest.approx(WARM_S * LOAD * READ_OVER_OFFERED / SLOTS, rel=0.05)
    assert fit.base_latency_s == 1.0


def test_the_job_file_carries_the_capacity_with_any_slots(fit, spec):
    for slots in (SLOTS, SLOTS // 2):
        carried = mst(spec, {"main": slots}).rate_per_s
        assert carried == pytest.approx(float(fit.capacity_at(slots)), rel=0.01)


def test_the_simulated_job_is_slow_after_a_restart_as_the_warm_up_says(fit, spec):
    load, outage_s = 20_000.0, 60
    run = replay(spec, np.full(900, load), SLOTS, [ReplayedOutage(300, outage_s, SLOTS)])
    caught = int(np.argmax(run.backlog[360:] <= 0.5 * load))
    expected = catch_up_s(
        fit, fit.warm_up, np.array([load]), np.array([float(outage_s)]), np.array([float(SLOTS)])
    )[0]
    assert caught == pytest.approx(expected, rel=0.15)
    warm = outage_s * load / (CAPACITY - load)
    assert caught > 1.1 * warm


def test_replayed_outages_stop_the_job_and_bring_it_back_with_its_slots(spec):
    run = replay(
        spec,
        np.full(600, LOAD),
        SLOTS,
        [ReplayedOutage(200, 30, 4), ReplayedOutage(590, 60, SLOTS)],
    )
    assert np.flatnonzero(run.down).tolist() == [*range(200, 230), *range(590, 600)]
    assert run.backlog[229] == pytest.approx(30 * LOAD)
    assert run.age_s[230] == pytest.approx(30, abs=4)
    assert run.age_s[580] == pytest.approx(0, abs=0.5)
    assert not run.consumed_per_s[200:230].any()
    kept = np.sum(run.consumed_per_s) + run.backlog[-1]
    assert kept == pytest.approx(600 * LOAD, rel=0.01)


def test_records_since_the_checkpoint_are_read_again(spec):
    plain, again = (
        replay(spec, np.full(600, LOAD), SLOTS, [ReplayedOutage(200, 30, SLOTS, reread)])
        for reread in (0.0, 10.0)
    )
    extra = np.sum(again.consumed_per_s) - np.sum(plain.consumed_per_s)
    assert extra == pytest.approx(10 * LOAD, rel=0.01)
    assert again.age_s[230] == pytest.approx(40, abs=4)


def test_an_outage_during_another_prolongs_it():
    found = merge_outages(
        [ReplayedOutage(50, 30, 4), ReplayedOutage(10, 20, 8), ReplayedOutage(60, 40, 6, 5.0)]
    )
    assert found == [ReplayedOutage(10, 20, 8), ReplayedOutage(50, 50, 6, 5.0)]


def test_what_a_redeploy_costs_follows_from_the_time_to_catch_up(fit):
    truth = WarmUp(6.0, 50_000.0)
    loads = np.array([5000.0, 8000.0, 12_000.0, 15_000.0])
    outage = np.full(4, 60.0)
    slots = np.array([8.0, 8.0, 8.0, 6.0])
    caught = catch_up_s(fit, truth, loads * READ_OVER_OFFERED, outage, slots)
    recorded = [
        RecordedOutage("mine", 1, 3000 * i, 60, 8, int(slots[i]), loads[i], 0, caught[i], False)
        for i in range(4)
    ]
    found = fit_warm_up_after_rescales(fit, recorded, "mine")
    again = catch_up_s(fit, found.warm_up, loads * READ_OVER_OFFERED, outage, slots)
    assert again == pytest.approx(caught, rel=0.15)
    assert found.outage_s == (60, 60, 60)
    assert any("4 rescales of mine" in text for text in found.warnings)
    many = fit_warm_up_after_rescales(fit, recorded * 3, "mine")
    assert not any("rescales of mine" in text for text in many.warnings)
    with pytest.raises(ConfigError, match="no outages of that policy"):
        fit_warm_up_after_rescales(fit, recorded, "other")


def test_the_command_writes_a_job(tmp_path):
    out, page = tmp_path / "cars.yaml", tmp_path / "cars.html"
    tables = [str(_profiles(tmp_path)), str(_series(tmp_path))]  # known by their columns
    done = CliRunner().invoke(
        app, ["calibrate", *tables, "--out", str(out), "--report", str(page), "--json"]
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["capacity_per_s"] == CAPACITY
    assert job_spec(out.read_text(), "cars.yaml").job == "cars"
    assert "calibrated from a series" in page.read_text()
