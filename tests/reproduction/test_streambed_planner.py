"""StreamBed's planner: its integer program on measured rates, and plans far beyond the testbed."""

from __future__ import annotations

import pytest

from dsp_gym.studies.reproduce.streambed_planner import (
    QUERIES,
    ROW_BAR,
    ROWS,
    bids2_errors,
    extrapolated,
)

MISSED = {
    "q5": "221 slots where 480 are needed, -54.0 %: the log model meets the production run "
    "(2.5 to 3.0 M/s for 1,069 slots), but the job's join grows evenly from three tasks to fifty "
    "and lies below a logarithm between; nothing is published there, and 10 % of the rate is half "
    "the slots",
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
