"""StreamBed's planner: its integer program on measured rates, and plans far beyond the testbed."""

from __future__ import annotations

import pytest

from dsp_gym.reproduce.streambed_planner import (
    QUERIES,
    ROW_BAR,
    ROWS,
    bids2_errors,
    extrapolated,
)

MISSED = {
    "q5": "on the simulator its results leave in bursts that hold the window back, from 24 slots "
    "on: the log model sees too little of what many more slots bring",
    "q11": "p^0.905 of the job file's window lies below the line that 4 to 48 slots show: none of "
    "the three models bends so little",
}
"""Tolerances that are not met, and why; strict, so that a test that begins to pass says so."""


def test_bids2_s_objective_for_the_measured_budgets(data_folder):
    errors = bids2_errors(data_folder)
    assert len(errors) == ROWS
    assert max(abs(error) for error in errors) <= ROW_BAR


@pytest.mark.slow
@pytest.mark.parametrize(
    "query",
    [
        pytest.param(q, marks=[pytest.mark.xfail(reason=MISSED[q])] if q in MISSED else [])
        for q in QUERIES
    ],
)
def test_slots_for_ten_times_the_testbed(query):
    _, _, low, high = QUERIES[query]
    truth, planned, rate, _ = extrapolated(query)
    assert low <= planned / truth - 1 <= high, f"{planned} slots for {rate:g}/s, truth {truth}"
