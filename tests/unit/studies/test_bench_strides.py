from __future__ import annotations

import pytest

from dsp_gym.studies.bench.strides import WAYS, bench_strides


@pytest.mark.slow
def test_both_ways_are_timed_on_the_benchmark():
    rates = bench_strides(jobs=6, runs=1)
    assert [rate.name.rpartition(", ")[2] for rate in rates] == list(WAYS)
    assert all(rate.median > 0 for rate in rates)
