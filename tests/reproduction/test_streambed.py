"""StreamBed (streambed_mst.csv): throughput by slots and memory, each slot budget left out."""

from __future__ import annotations

import pytest

from dsp_gym.config.files import find
from dsp_gym.studies.fitting.fitted_values import fitted_values
from dsp_gym.studies.fitting.streambed import fit, fit_miss
from dsp_gym.studies.fitting.streambed_data import CROWDED_MIB, QUERIES, cells, read_runs


@pytest.mark.parametrize(
    "name",
    [  # q5's ten operators take longer than all others
        pytest.param(name, marks=[pytest.mark.validate] if name == "q5" else [])
        for name in sorted(QUERIES)
    ],
)
def test_the_shipped_files_are_what_the_fit_gives(name, data_folder):
    runs = read_runs(data_folder)
    text = find("jobs", f"streambed-{name}").read_text()
    fitted = fit(QUERIES[name], cells(runs, name), text)
    if "join_miss_us" in fitted_values(text):
        fitted = fit_miss(QUERIES[name], cells(runs, name, CROWDED_MIB), fitted)
    assert fitted_values(text) == pytest.approx(fitted_values(fitted), rel=2e-3)
