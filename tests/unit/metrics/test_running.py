"""Undisturbed running of a job, by its counters."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.job.catalog import load_job
from dsp_gym.metrics.running import running_in
from dsp_gym.metrics.samples import Samples

SPEC = load_job("nexmark-q1")
TIMES = np.arange(0.0, 1200.0, 5.0)


def ran(counter, times=TIMES):
    series = {(v.name, 0, "records_out_total"): (times, counter(times)) for v in SPEC.vertices}
    return running_in(SPEC, Samples.of_series(series))


def test_counters_that_begin_anew_tell_a_restart():
    first, second = ran(lambda t: np.where(t < 600, t, t - 600))
    assert (first.restarted, second.restarted) == (False, True)
    assert first.parallelism == second.parallelism
    assert first.until_s <= 600 <= second.since_s


@pytest.mark.parametrize("missing_s", [60, 300])
def test_scrapes_that_failed_tell_none(missing_s):
    since = TIMES - 600
    times = TIMES[(since < 0) | (since >= missing_s)]
    assert [one.restarted for one in ran(lambda t: t, times)] == [False, False]
