"""Histories from scrapes: when a job began, was stopped and came up, to less than a scrape."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from dsp_gym.metrics.samples import Samples
from dsp_gym.whatif.prometheus import fetched_history
from tests.scraped_managers import ALWAYS, HOUR_S, PER_S, SPEC, Fetched, managed
from tests.simulating import line

BEGUN_S = 1000.0
STOPPED_S = 1600.0  # of the last scrape before the rescale
UP_S = 1603.2
END_S = 2200.0


def scraped(tells_times=True):
    """A job of one task per vertex that came up 2 s before its first scrape, then has two."""
    series = {}
    runs = [(BEGUN_S, BEGUN_S - 2.0, STOPPED_S, 1), (STOPPED_S + 5.0, UP_S, END_S, 2)]
    for vertex in line().vertices:
        for task in (0, 1):
            times, up = [], []
            for first_s, up_s, last_s, tasks in runs:
                scrapes = np.arange(first_s, last_s + 1.0, 5.0) if task < tasks else np.empty(0)
                times, up = [*times, *scrapes], [*up, *(scrapes - up_s)]
            up = np.array(up)
            series[vertex.name, task, "records_out_total"] = (times, PER_S * up)
            for share in ("busy", "idle", "backpressured") if tells_times else ():
                series[vertex.name, task, f"{share}_ms_total"] = (times, 1000.0 / 3.0 * up)
    return Samples.of_series(series)


def history(samples, chunk_s=10_000.0):
    return fetched_history(Fetched(samples, chunk_s), line(), 0.03, 30, now_s=END_S)


def test_a_rescale_takes_from_the_last_scrape_until_the_tasks_are_up():
    found = history(scraped())
    (at,) = np.flatnonzero(found.rescales)
    assert found.t_s[at] == STOPPED_S
    assert found.outage_s[at] == pytest.approx(UP_S - STOPPED_S)
    assert found.running_since_s[-1] == pytest.approx(UP_S)


def test_a_job_that_has_just_started_is_replayed_from_its_first_scrape():
    found = history(scraped())
    assert found.t_s[0] == BEGUN_S
    assert found.running_since_s[0] == pytest.approx(BEGUN_S - 2.0)


def test_without_accumulated_times_the_first_scrape_tells_that_tasks_are_up():
    found = history(scraped(tells_times=False))
    assert np.nanmax(found.outage_s) == pytest.approx(5.0)
    assert np.isnan(found.running_since_s[0])


@pytest.mark.parametrize("chunk_s", [300.0, 400.0, 1601.0])
def test_a_rescale_is_the_same_in_smaller_chunks(chunk_s):
    whole, parts = history(scraped()), history(scraped(), chunk_s)
    assert np.nanmax(parts.outage_s) == pytest.approx(np.nanmax(whole.outage_s))
    assert parts.rescales.sum() == whole.rescales.sum() == 1


def told(samples, chunk_s=HOUR_S, until_s=3 * HOUR_S):
    return fetched_history(Fetched(samples, chunk_s), SPEC, until_s / 86_400, 60, now_s=until_s)


@pytest.mark.parametrize("managers", [1, 2, 10])
@pytest.mark.parametrize("spread", [False, True])
def test_load_and_busy_time_are_those_of_all_taskmanagers_however_scraped(managers, spread):
    found = told(managed(*[(ALWAYS, ())] * managers, spread=spread))
    assert found.load_per_s == pytest.approx(managers * PER_S)
    assert (found.parallelism == managers).all()
    busy = [part.busy[vertex.name] for part in found.parts for vertex in SPEC.vertices]
    assert busy == pytest.approx([0.3] * len(busy))


@pytest.mark.parametrize("tells_times", [False, True])
@pytest.mark.parametrize("hole", [(4200.0, 4500.0), (2400.0, 4500.0), (0.0, 1200.0)])
def test_a_taskmanager_that_is_not_scraped_is_no_rescale(hole, tells_times):
    samples = managed((ALWAYS, ()), (ALWAYS, (hole,)), tells_times=tells_times)
    found = told(samples)
    assert not found.rescales.any()
    assert np.isnan(found.outage_s).all()
    assert len(np.unique(found.cost_per_h)) == 1
    assert (found.parallelism == 2).all()
    known = np.isfinite(found.load_per_s)
    assert known.mean() > 0.7
    assert found.load_per_s[known].max() == pytest.approx(2 * PER_S)


@pytest.mark.parametrize("tells_times", [False, True])
def test_a_rescale_is_one_whatever_is_scraped(tells_times):
    first, second = ((-5000.0, 5000.0), (5010.0, math.inf)), ((5010.0, math.inf),)
    found = told(managed((first, ()), (second, ()), tells_times=tells_times))
    assert found.rescales.sum() == 1
    assert 0 < np.nanmax(found.outage_s) <= 30.0


@pytest.mark.parametrize(
    ("begin_s", "end_s"),
    [(4000.0, 4600.0), (6900.0, 7500.0), (3600.0, 4200.0), (3700.0, 14_500.0)],
)
def test_a_job_that_was_gone_is_late_whether_chunks_end_meanwhile_or_not(begin_s, end_s):
    runs = ((-5000.0, begin_s), (end_s, math.inf))
    found = told(managed((runs, ()), (runs, ()), until_s=6 * HOUR_S), until_s=6 * HOUR_S)
    late_s = np.nansum(found.late * found.seconds)
    assert late_s == pytest.approx(end_s - begin_s, abs=30.0)
    assert any("gone for" in note for note in found.notes)


def test_a_job_that_took_nothing_has_a_load_of_zero():
    samples = managed((ALWAYS, ()))
    counts = np.char.startswith(samples.metric, "records")
    idle = replace(samples, value=np.where(counts, 0.0, samples.value))
    assert (told(idle).load_per_s == 0.0).all()
