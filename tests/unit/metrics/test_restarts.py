"""Outages of a few seconds, from scrapes that are half a minute apart."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.metrics.restarts import restart_between, up_since_s
from dsp_gym.metrics.running import interval_of, running_in
from dsp_gym.metrics.samples import Samples
from tests.simulating import line

PER_S, FASTER = 100.0, 4.0  # arrivals, and how much faster a backlog is worked off
UP_S, END_S = 1800.0, 3600.0
TASKS = 3


def scraped(outage_s, scrape_s, phase_s=0.0, *, tells_backlog=True, tells_times=True, again_s=0.0):
    """A job that is down for some seconds until `UP_S`; each task is scraped at its own time."""
    stopped_s, series = UP_S - outage_s, {}
    for vertex in line().vertices:
        for task in range(TASKS):
            times = phase_s + scrape_s * task / TASKS + np.arange(0.0, END_S, scrape_s)
            times = times[(times <= stopped_s) | (times > UP_S)]
            old = times <= stopped_s
            since = times - UP_S
            owed_s = np.maximum(0.0, outage_s + again_s - (FASTER - 1.0) * since)
            fresh = np.minimum(since * FASTER, since + outage_s + again_s)
            counts = np.where(old, times, fresh) * PER_S / TASKS
            series[vertex.name, task, "records_out_total"] = times, counts
            if tells_backlog and vertex.kind == "source":
                waiting = np.where(old, 7.0, 7.0 + PER_S / TASKS * owed_s)
                series[vertex.name, task, "pending_records"] = times, waiting
            for share in ("busy", "idle", "backpressured") if tells_times else ():
                up = np.where(old, times, since)
                series[vertex.name, task, f"{share}_ms_total"] = times, 1000.0 / 3.0 * up
    return Samples.of_series(series)


def outage(samples):
    scrape_s = interval_of(samples)
    before, after = running_in(line(), samples)
    found = restart_between(line(), samples, before, after, scrape_s)
    return found.up_s - found.stopped_s


@pytest.mark.parametrize("scrape_s", [15.0, 30.0, 60.0])
@pytest.mark.parametrize("outage_s", [3.0, 5.0, 76.0])
@pytest.mark.parametrize("tells_backlog", [True, False])
def test_the_records_tell_when_a_job_stopped_between_two_scrapes(scrape_s, outage_s, tells_backlog):
    for phase_s in (0.0, 0.3 * scrape_s, 0.8 * scrape_s):
        samples = scraped(outage_s, scrape_s, phase_s, tells_backlog=tells_backlog)
        assert outage(samples) == pytest.approx(outage_s, rel=0.05, abs=1.0), phase_s


def test_records_that_are_read_again_count_as_an_earlier_stop():
    assert outage(scraped(3.0, 30.0, again_s=2.0)) == pytest.approx(5.0, abs=0.1)


def test_without_accumulated_times_an_outage_is_known_to_a_scrape():
    found = [outage(scraped(4.0, 30.0, phase, tells_times=False)) for phase in range(0, 30, 3)]
    assert np.all(np.abs(np.array(found) - 4.0) < 30.0)


def test_scrapes_as_close_as_a_recording_s_count_from_the_last_one():
    assert 4.0 <= outage(scraped(4.0, 5.0)) <= 4.0 + 5.0


def test_tasks_that_are_busy_in_turn_are_up_no_longer_than_each_of_them():
    series = {}
    for vertex in line().vertices:
        for task, busy in ((0, 0.9), (1, 0.1)):
            for share, part in (("busy", busy), ("idle", 1 - busy), ("backpressured", 0.0)):
                series[vertex.name, task, f"{share}_ms_total"] = [110.0], [10_000.0 * part]
    assert up_since_s(line(), Samples.of_series(series)) == pytest.approx(100.0)
