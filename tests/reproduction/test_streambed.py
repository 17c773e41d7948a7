"""StreamBed (streambed_mst.csv): throughput by slots and memory, each slot budget left out."""

from __future__ import annotations

import pytest

from dsp_gym.studies.fitting.fitted_values import fitted_values, text_of
from dsp_gym.studies.fitting.streambed import fit_runs
from dsp_gym.studies.fitting.streambed_model import QUERIES, read_runs


@pytest.mark.parametrize(
    "name",
    [  # q5's ten operators take longer than all others
        pytest.param(name, marks=[pytest.mark.validate] if name == "q5" else [])
        for name in sorted(QUERIES)
    ],
)
def test_the_shipped_files_are_what_the_fit_gives(name, data_folder):
    text = text_of(f"streambed-{name}")
    fitted = fit_runs(QUERIES[name], read_runs(data_folder, name), text)
    assert fitted_values(text) == pytest.approx(fitted_values(fitted), rel=2e-3)
