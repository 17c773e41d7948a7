"""A real Flink's runs (flink_runs/): calibrated on a third, the rest predicted."""

from __future__ import annotations

import pytest

from dsp_gym.studies.reproduce.flink_runs import flink_runs

pytestmark = pytest.mark.slow


def test_a_real_flink_is_predicted_on_runs_held_out_of_the_fit(data_folder):
    checks = flink_runs(data_folder)
    assert len(checks) == 8
    failed = [check for check in checks if not check.passed]
    assert not failed, "\n".join(f"{c.name}: {c.ours}, {c.tolerance}" for c in failed)
