"""The cost of restarts beside their outage, learned while a backlog keeps a job at its limit."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dsp_gym.loop.snapshot import Status
from dsp_gym.loop.topology import Topology
from dsp_gym.simulation.state import X
from dsp_gym.sizing.prior import Prior
from dsp_gym.sizing.service import ServiceModel
from dsp_gym.sizing.warming import Warming
from tests.simulating import constant, exact, keyed, line
from tests.strategies import blank_snapshot

JOB = Topology.of([line()])
TASKS = 4
CAPACITY = 4000.0  # a task of the map carries 1,000/s
MODEL = ServiceModel()
MODEL.reset(JOB, Prior.of_files(JOB))


class Restarted:
    """A job that restarts with a backlog, and is slower for the first seconds of its run."""

    def __init__(self, load_per_s=2000.0):
        self.load_per_s, self.now_s, self.warming = load_per_s, 600.0, Warming()
        self.warming.reset(JOB, Prior.none(JOB))
        self.look(since_s=0.0, processed=1e6, pending=0.0)

    def look(self, since_s, processed, pending, **values):
        def source(value):
            return [[value, np.nan, np.nan]]

        snapshot = blank_snapshot(
            JOB,
            self.now_s,
            **{
                "parallelism": [[4, TASKS, 1]],
                "memory_level": -1,
                "running_since_s": since_s,
                "records_in_total": source(processed),
                "pending_records": source(pending),
            }
            | values,
        )
        self.warming.observe(snapshot, MODEL.believed)

    def restart(self, lost_s, outage_s=60.0, age_s=0.0, minutes=20, is_dated=False):
        """A restart that costs `lost_s` of capacity, at half speed; looked at every minute."""
        since_s, pending, processed = self.now_s, self.load_per_s * outage_s, 0.0
        for second in range(1, 60 * minutes + 1):
            speed = 0.5 if second <= 2.0 * lost_s else 1.0
            taken = min(speed * CAPACITY, pending + self.load_per_s)
            pending, processed = pending + self.load_per_s - taken, processed + taken
            if second % 60 == int(-age_s) % 60 and second + age_s >= 60:
                self.now_s = since_s + second + age_s
                dated = {"counted_s": since_s + second, "window_fill": 1.0}
                seen = dated if is_dated else {"window_fill": min(1.0, second / 120.0)}
                self.look(since_s, processed, pending, **seen)
        self.now_s = since_s + 60.0 * minutes + 60.0
        return self.expected

    @property
    def expected(self):
        return float(self.warming.arrays.lost_s[0])


def test_nothing_is_expected_of_a_restart_before_one_was_seen():
    assert Restarted().expected == 0.0


@pytest.mark.parametrize("load_per_s", [1000.0, 2000.0, 3000.0])
def test_the_first_restart_that_tells_is_believed_under_any_load(load_per_s):
    job = Restarted(load_per_s)
    job.restart(lost_s=60.0, outage_s=300.0)
    assert job.expected == pytest.approx(60.0, rel=0.05)


@pytest.mark.parametrize("is_dated", [False, True])
def test_metrics_that_are_old_count_as_old(is_dated):
    found = Restarted().restart(60.0, outage_s=300.0, age_s=20.0, is_dated=is_dated)
    assert found == pytest.approx(60.0, rel=0.05)


def test_later_restarts_move_the_mean():
    job = Restarted()
    job.restart(60.0, 300.0)
    job.restart(30.0, 300.0)
    assert job.expected == pytest.approx(45.0, rel=0.05)
    for _ in range(12):
        job.restart(30.0, 300.0)
    assert job.expected == pytest.approx(30.0, rel=0.05)


def test_a_backlog_that_is_gone_soon_says_nothing_against_a_larger_loss():
    job = Restarted(load_per_s=1000.0)
    job.restart(100.0, outage_s=400.0)
    before = job.expected
    job.restart(100.0, outage_s=130.0)  # 130 s of load at half speed: gone after 130 s
    assert job.expected == pytest.approx(before, rel=0.1)


def test_a_backlog_that_is_gone_before_one_looks_bounds_the_loss():
    job = Restarted(load_per_s=1000.0)
    job.restart(100.0, outage_s=400.0)
    for _ in range(12):
        job.restart(0.0, outage_s=60.0)  # all of it is gone within 20 s
    assert job.expected < 50.0


def test_a_job_that_was_only_overloaded_teaches_nothing():
    job = Restarted()
    for minute in range(1, 6):
        job.now_s += 60.0
        job.look(since_s=0.0, processed=1e6 + 1000.0 * minute, pending=1e6)
    assert job.expected == 0.0


def test_a_second_restart_ends_the_watch_of_the_first():
    job = Restarted()
    job.restart(60.0, 300.0, minutes=2)
    job.restart(60.0, 300.0)
    assert job.expected == pytest.approx(60.0, rel=0.1)


def test_metrics_that_a_young_run_lacks_are_waited_for():
    job = Restarted()
    job.now_s += 60.0
    job.look(since_s=job.now_s - 60.0, processed=np.nan, pending=np.nan)
    assert job.warming.arrays.missing_s[0] == 0.0
    job.now_s += 60.0
    job.look(since_s=job.now_s - 120.0, processed=1e5, pending=1e5)
    # 100,000 records are worth 25 of the 120 s since the restart.
    assert job.warming.arrays.seen_s[0] == 120.0
    assert job.warming.arrays.missing_s[0] == pytest.approx(95.0)
    job.now_s += 900.0
    job.look(since_s=job.now_s - 1020.0, processed=np.nan, pending=np.nan)
    assert math.isnan(job.warming.arrays.seen_s[0])  # waited for too long
    assert job.expected == pytest.approx(95.0)


def test_a_job_that_shows_no_tasks_yet_teaches_nothing():
    job, p = Restarted(), [[0, 0, 0]]
    job.now_s += 60.0
    job.look(since_s=job.now_s - 60.0, processed=1e5, pending=1e5, parallelism=p)
    assert job.expected == 0.0
    assert job.warming.arrays.missing_s[0] == 0.0


def test_a_job_that_is_down_is_not_watched():
    job = Restarted()
    job.look(since_s=700.0, processed=0.0, pending=1e6, status=Status.RESTARTING)
    assert job.warming.arrays.since_s[0] == 0.0


def test_what_was_seen_outlives_a_process():
    one = Restarted()
    one.restart(60.0, 300.0)
    other = Warming()
    other.reset(JOB, Prior.none(JOB))
    other.restore(one.warming.state())
    assert other.state() == one.warming.state()


COLD = {"reads": 1, "writes": 0, "keys": 3e5, "value_bytes": 100, "prefilled": True}
COLD |= {"read_hit_us": 50, "read_miss_us": 2000, "unshared_mib": 32}


def test_a_job_file_says_what_a_restart_of_the_simulated_job_costs():
    spec = keyed(COLD, source={"rate_per_s": 8000.0}, memory={"levels": 3})
    jobs = constant(spec, 1e6, exact(), map=2)  # far too much: it is always at its limit
    prior = Prior.of_files(jobs.topology)
    processed = []
    for _ in range(900):
        jobs.advance(1)
        processed.append(float(jobs.state.vertex[0, 1, X.records_in]))
    rate = np.diff(processed)
    lost_s = np.sum(1.0 - rate / rate[-60:].mean())
    assert lost_s > 10.0
    assert prior.lost_s[0] == pytest.approx(lost_s, rel=0.15)


def test_a_job_file_counts_as_one_restart():
    spec = keyed(COLD, source={"rate_per_s": 8000.0})
    jobs = Topology.of([spec])
    prior, warming = Prior.of_files(jobs), Warming()
    warming.reset(jobs, prior)
    assert warming.arrays.lost_s[0] == prior.lost_s[0] > 0.0
    assert warming.arrays.restarts[0] == 1.0


def test_jobs_without_state_lose_nothing():
    assert Prior.of_files(JOB).lost_s[0] == 0.0
    assert Prior.none(JOB).lost_s[0] == 0.0
