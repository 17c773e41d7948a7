"""What a process takes beside many jobs: sixteen vertices, four policies and guardrails each."""

from __future__ import annotations

import pytest

from dsp_gym.studies.bench.policies import LARGE, chain
from dsp_gym.studies.bench.shadow import BARS, beside, configuration

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("jobs", "interval_s"), [(30, 10), pytest.param(300, 30, marks=pytest.mark.validate)]
)
def test_memory_beside_many_jobs_is_bounded(tmp_path, jobs, interval_s):
    found = beside(
        configuration(tmp_path),
        chain(LARGE),
        tmp_path,
        jobs=jobs,
        decisions=2,
        interval_s=interval_s,
    )
    assert found.memory_mib <= BARS[f"memory, {jobs} jobs"]
    assert not found.heavy
