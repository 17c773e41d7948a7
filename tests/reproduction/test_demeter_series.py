"""Demeter CARS (demeter_cars_*.csv): two 18 h runs replayed on the calibrated job."""

from __future__ import annotations

import pytest

from dsp_gym.calibration.series_tables import read_series


@pytest.mark.parametrize(
    ("policy", "share"), [("reactive_hpa_cpu", 0.175), ("flink_operator_autoscaler", 0.347)]
)
def test_the_recorded_share_of_late_rows_is_as_published(data_folder, policy, share):
    series = read_series(data_folder / f"demeter_cars_{policy}.csv")
    assert series.late(2.0).mean() == pytest.approx(share, abs=0.001)
