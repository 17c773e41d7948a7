"""The espa runs (espa_runs.csv.gz): the shipped job files, and one setting of each rule."""

from __future__ import annotations

import pytest

from dsp_gym.calibration.scaled_runs import read_runs
from dsp_gym.config.files import find
from dsp_gym.studies.reproduce.espa_jobs import FILE, TOPICS, job_of, name_of


@pytest.mark.validate
def test_shipped_job_files_are_what_the_fit_writes(data_folder):
    runs = read_runs(data_folder / FILE).runs
    for query in TOPICS:
        text = find("jobs", name_of(query)).read_text(encoding="utf-8")
        assert job_of(query, runs).job_text == text
