"""Histories from scrapes: when a job began, was stopped and came up, to less than a scrape."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.metrics.samples import Samples
from dsp_gym.whatif.prometheus import fetched_history
from tests.simulating import line

BEGUN_S = 1000.0
STOPPED_S = 1600.0  # of the last scrape before the rescale
UP_S = 1603.2
END_S = 2200.0
PER_S = 100.0


class Fetched:
    """Chunks of samples as `FlinkHistory` gives them."""

    job_name = "orders"
    remarks = ()

    def __init__(self, samples, chunk_s):
        self._samples, self._chunk_s = samples, chunk_s

    def graphs(self, since_s, until_s):
        pass

    def chunks(self, since_s, until_s, on_chunk):
        for begin_s in np.arange(0.0, until_s, self._chunk_s):
            yield Chunk(self._samples.between(begin_s, begin_s + self._chunk_s))


class Chunk:
    def __init__(self, samples):
        self._samples, self.rows = samples, len(samples)

    def samples(self):
        return self._samples


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
