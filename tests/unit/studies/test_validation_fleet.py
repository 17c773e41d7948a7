"""The study of three real jobs, from a backtest's document."""

from __future__ import annotations

import pytest

from dsp_gym.studies.validation.fleet import figures


def job(name, model_cost, late, model_late):
    return {
        "name": name,
        "observed": {
            "cost_per_month": 100.0,
            "model_cost_per_month": model_cost,
            "late": late,
            "model_late": model_late,
        },
    }


def test_a_model_is_trusted_within_5_percent_of_cost_and_2_points_of_lateness():
    jobs = [job("a", 104.0, 0.10, 0.11), job("b", 96.0, 0.10, 0.09), job("c", 100.0, 0.1, 0.13)]
    found = figures(599.0, {"jobs": jobs}, 60.0)
    assert [one["trusted"] for one in found["jobs"].values()] == [True, True, False]
    assert found["jobs"]["c"]["late_off"] == pytest.approx(0.03)
    assert found["holds"] == {"page": True, "trusted": True}


def test_lateness_nobody_measured_is_not_trusted():
    jobs = [job("a", 100.0, None, None), job("b", 100.0, 0.1, 0.1), job("c", 106.0, 0.1, 0.1)]
    found = figures(601.0, {"jobs": jobs}, 60.0)
    assert [one["trusted"] for one in found["jobs"].values()] == [False, True, False]
    assert found["holds"] == {"page": False, "trusted": False}
