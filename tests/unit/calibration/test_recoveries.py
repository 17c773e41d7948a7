"""Outage and capacity from measured recoveries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dsp_gym.calibration.recoveries import Recoveries, fit_recoveries, left_out, read_recoveries
from dsp_gym.errors import ConfigError
from dsp_gym.sizing.recovery import LEAST_SPARE, recovery_s

HEADER = "run,checkpoint_interval_s,throughput_per_s,recovery_s"


def made(outage_s: float, capacity: float, noise: float = 0.0) -> Recoveries:
    """Recoveries at six loads and three intervals."""
    load, interval_s = (
        found.ravel() for found in np.meshgrid(np.linspace(2e3, 25e3, 6), [10.0, 60.0, 120.0])
    )
    taken_s = recovery_s(load, capacity, outage_s, interval_s)
    taken_s = taken_s * np.exp(noise * np.random.default_rng(0).standard_normal(len(taken_s)))
    return Recoveries("made", interval_s, load, taken_s)


def table(folder: Path, *rows: str) -> Path:
    file = folder / "recoveries.csv"
    file.write_text("\n".join([HEADER, *rows]))
    return file


def test_a_job_without_load_is_back_after_its_outage():
    assert recovery_s(0.0, 100.0, 70.0, 30.0) == 70.0


def test_the_outage_and_what_is_read_again_are_worked_off_with_the_spare_capacity():
    # 70 s of outage and 30 s read again at 50/s: 5,000 records, worked off at 50/s.
    assert recovery_s(50.0, 100.0, 70.0, 30.0) == pytest.approx(70 + 100)


def test_at_its_capacity_a_job_still_catches_up():
    assert recovery_s(100.0, 100.0, 1.0, 0.0) == pytest.approx(1 + 1 / LEAST_SPARE)


def test_the_numbers_that_made_the_recoveries_are_found():
    fit = fit_recoveries(made(69.0, 38_000.0))
    assert fit.outage_s == pytest.approx(69.0, rel=0.01)
    assert fit.capacity_per_s == pytest.approx(38_000.0, rel=0.01)


def test_noise_of_a_tenth_moves_them_by_less():
    fit = fit_recoveries(made(69.0, 38_000.0, noise=0.1))
    assert fit.outage_s == pytest.approx(69.0, rel=0.1)
    assert fit.capacity_per_s == pytest.approx(38_000.0, rel=0.1)


def test_an_interval_is_predicted_from_the_others():
    found = made(69.0, 38_000.0)
    predicted, fits = left_out(found)
    assert len(fits) == 3
    assert predicted == pytest.approx(found.taken_s, rel=0.02)
    with pytest.raises(ConfigError, match="one checkpoint interval only"):
        left_out(found.where(found.interval_s == 10.0))


def test_a_table_holds_jobs_and_rows_without_an_interval_are_left_out(tmp_path):
    file = table(tmp_path, "a,10,100,80", "b,10,200,90", "a,,300,99", "a,30,400,85")
    one, other = read_recoveries(file)
    assert (one.job, one.load_per_s.tolist(), one.taken_s.tolist()) == ("a", [100, 400], [80, 85])
    assert (other.job, len(other)) == ("b", 1)


@pytest.mark.parametrize("wrong", ["soon", "-3", "nan", ""])
def test_a_time_that_is_none_is_named(tmp_path, wrong):
    with pytest.raises(ConfigError, match="recovery_s is no positive number"):
        read_recoveries(table(tmp_path, f"a,10,100,{wrong}"))


def test_a_missing_column_is_named(tmp_path):
    file = tmp_path / "recoveries.csv"
    file.write_text("run,throughput_per_s,recovery_s\na,1,2\n")
    with pytest.raises(ConfigError, match="has no column 'checkpoint_interval_s'"):
        read_recoveries(file)


def test_a_table_without_an_interval_in_any_row_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="holds no recovery"):
        read_recoveries(table(tmp_path, "a,,300,99"))
