"""The model's job as seen through the metrics of a real one."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.backends.simulated.measured import REMEMBERED_S, MeasuredJobs
from dsp_gym.loop.topology import Topology
from dsp_gym.simulation.state import X
from tests.simulating import exact, line, wanted

SPEC = line(buffer_records=1)  # one task of the map carries 1,000 records/s


def jobs_under(rates) -> SimulatedJobs:
    """Two exact lines under rates by second."""
    jobs = SimulatedJobs(Topology.of([SPEC], [0, 0]), exact())
    jobs.reset(np.zeros(2, np.int64), np.tile(np.asarray(rates, float), (2, 1)))
    return jobs


def test_a_record_is_as_old_as_the_backlog_it_waited_in():
    # 2,000 arrive and 1,000 leave a second: after 60 s the record that leaves came after 30 s.
    told = MeasuredJobs(jobs_under(np.full(60, 2000.0))).advance(60)
    assert told.pending == pytest.approx(60_000, rel=0.01)
    assert told.latency_p95_s == pytest.approx(np.full(2, (2.5 + 30.0) / 2), abs=1.0)


def test_a_backlog_from_before_the_load_came_at_its_first_rate():
    jobs = jobs_under(np.full(60, 1000.0))
    jobs.state.vertex[:, 0, X.pending] = 20_000.0
    told = MeasuredJobs(jobs).advance(5)
    assert told.latency_p95_s == pytest.approx(np.full(2, 20.0), abs=0.2)


def test_a_job_looks_late_until_its_sinks_have_forgotten():
    # Ten seconds at twice the rate leave 10,000 records, worked off at 1,000 - 500 = 500/s in 20 s.
    rates = np.concatenate([np.full(10, 2000.0), np.full(80, 500.0)])
    truth = jobs_under(rates).advance(90).slo_s
    told = MeasuredJobs(jobs_under(rates)).advance(90).slo_s
    silent = MeasuredJobs(jobs_under(rates), has_latency=False).advance(90).slo_s
    assert np.all(told - silent == REMEMBERED_S)
    assert np.all(np.abs(silent - truth) <= 5)
    # Sampled each second, it looks late for as much longer as its sinks remember more.
    two, six = (
        MeasuredJobs(jobs_under(rates), remembers_s=seconds, sample_s=1).advance(90).slo_s
        for seconds in (2, 6)
    )
    assert six - two == pytest.approx(4)


def test_what_is_spent_and_carried_is_the_simulations():
    rates = np.concatenate([np.full(30, 1500.0), np.full(30, 300.0)])
    plain, measured = jobs_under(rates), MeasuredJobs(jobs_under(rates))
    for _ in range(2):
        truth, told = plain.advance(33), measured.advance(33)
        for name in ("seconds", "arrived", "processed", "pending", "pending_s", "cost", "core_s",
                     "down_s", "rescales"):  # fmt: skip
            assert getattr(told, name) == pytest.approx(getattr(truth, name)), name


def test_an_outage_is_late_from_its_first_second():
    measured = MeasuredJobs(jobs_under(np.full(120, 500.0)))
    measured.advance(30)
    seen = measured.snapshot()
    measured.apply(wanted(seen.parallelism + np.array([0, 1, 0]), seen.memory_level))
    told = measured.advance(15)
    assert np.all(told.down_s == 15)
    assert np.all(told.slo_s == 15)
    assert np.all(told.rescales == 1)


def test_a_savepoint_waits_behind_the_records_in_the_buffers_unless_its_time_was_observed():
    # 2,000 arrive, 1,000 leave: the map's buffers of 3,000 records are full, which is 3 s of work.
    spec = line(buffer_records=3000, rescale={"outage_s": [20, 20, 20]})

    def outages_s(rate):
        jobs = SimulatedJobs(Topology.of([spec, spec], [0, 1]), exact())
        jobs.reset(np.zeros(2, np.int64), np.full((2, 120), rate))
        measured = MeasuredJobs(jobs, down_share=1.0)
        measured.advance(60)
        seen = measured.snapshot()
        measured.take(10.5)
        measured.take(10.5, 1)
        measured.take(None, 1)
        measured.apply(wanted(seen.parallelism + np.array([0, 1, 0]), seen.memory_level))
        return jobs.state.phase_left_s

    observed_s, drawn_s = outages_s(2000.0)
    assert observed_s == pytest.approx(10.0, abs=0.1)
    assert drawn_s - observed_s == pytest.approx(3.0, rel=0.15)
    idle_s = outages_s(100.0)
    assert idle_s[1] - idle_s[0] < 0.1


@pytest.mark.parametrize(("outage_s", "late_s"), [(1.6, 0), (2.4, REMEMBERED_S)])
def test_the_first_records_after_an_outage_tell_how_long_it_was(outage_s, late_s):
    # The bound is 2 s; simulated outages last whole seconds.
    spec = line(rescale={"outage_s": [9, 9, 9]}, slo={"latency_s": 2.0})
    jobs = SimulatedJobs(Topology.of([spec]), exact())
    jobs.reset(np.zeros(1, np.int64), np.full((1, 90), 500.0))
    measured = MeasuredJobs(jobs, down_share=1.0, sample_s=1)
    measured.advance(30)
    measured.take(outage_s)
    seen = measured.snapshot()
    measured.apply(wanted(seen.parallelism + np.array([0, 3, 0]), seen.memory_level))
    told = measured.advance(60)
    assert told.slo_s[0] - told.down_s[0] == pytest.approx(late_s, abs=1.0)
