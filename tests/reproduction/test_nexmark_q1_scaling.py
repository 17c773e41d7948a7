"""ContTune's Q1 map (nexmark_q1_mapper_scaling.csv): its loss with parallelism."""

from __future__ import annotations

import pytest

from dsp_gym.config.files import find
from dsp_gym.studies.fitting.fitted_values import fitted_values
from dsp_gym.studies.fitting.nexmark import power_of


def test_the_shipped_power_is_the_measured_one(data_folder):
    shipped = fitted_values(find("jobs", "nexmark-q1").read_text())["q1_power"]
    assert shipped == pytest.approx(power_of(data_folder), rel=1e-3)


@pytest.mark.parametrize(("parallelism", "efficiency"), [(2, 0.91), (6, 0.80), (10, 0.70)])
def test_it_is_within_seven_points_of_the_published_efficiencies(parallelism, efficiency):
    shipped = fitted_values(find("jobs", "nexmark-q1").read_text())["q1_power"]
    assert parallelism**-shipped == pytest.approx(efficiency, abs=0.07)
