"""Samples on a grid: counters that restart, gaps, rescales, lateness."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from dsp_gym.errors import MetricsError
from dsp_gym.job.catalog import load_job
from dsp_gym.loop.configuration import Configuration
from dsp_gym.metrics.samples import Samples
from dsp_gym.whatif.history import bridged, distinct, since
from dsp_gym.whatif.sampled_history import Deployed, measured_history
from tests.unit.whatif.histories import history

SPEC = load_job("nexmark-q1")
NAMES = [vertex.name for vertex in SPEC.topological_order()]
SOURCE, SINK = NAMES[0], NAMES[-1]


def deployed(t_s, tasks, down_s=math.nan):
    levels = dict.fromkeys(NAMES, -1)
    return Deployed(t_s, Configuration(dict.fromkeys(NAMES, tasks), levels), down_s)


def read(series, configurations=None, until_s=1200.0, interval_s=60):
    samples = Samples.of_series(
        {(vertex, 0, metric): values for (vertex, metric), values in series.items()}
    )
    configurations = configurations or [deployed(0.0, 2)]
    return measured_history("q1", SPEC, samples, configurations, interval_s, until_s=until_s)


def counted(times, per_s=100.0):
    return times, per_s * times


TIMES = np.arange(0.0, 1201.0, 10.0)


def test_the_load_is_what_the_sources_took_and_what_their_log_grew_by():
    found = read(
        {
            (SOURCE, "records_out_total"): counted(TIMES, 100.0),
            (SOURCE, "pending_records"): (TIMES, 5.0 * TIMES),
        }
    )
    assert len(found) == 20
    assert found.load_per_s == pytest.approx(np.full(20, 105.0))


def test_a_counter_that_restarts_counts_from_zero():
    values = 100.0 * TIMES
    values[61:] = 100.0 * (TIMES[61:] - 600.0)
    found = read({(SOURCE, "records_out_total"): (TIMES, values)})
    assert found.load_per_s == pytest.approx(np.full(20, 100.0))


def test_a_short_gap_is_bridged_and_its_lateness_is_not_known():
    times = TIMES[(TIMES <= 300) | (TIMES >= 480)]
    late = np.where(times > 900, 9000.0, 10.0)
    series = {
        (SOURCE, "records_out_total"): counted(times),
        (SINK, "latency_p95_ms"): (times, late),
    }
    found = read(series)
    assert found.load_per_s == pytest.approx(np.full(20, 100.0))
    assert np.isnan(found.late[6])
    assert found.late[:5].tolist() == [0.0] * 5
    assert found.late[-4:].tolist() == [1.0] * 4


def test_a_long_gap_cuts_the_history():
    times = np.arange(0.0, 6001.0, 10.0)
    times = times[(times <= 1800) | (times >= 3600)]
    found = read({(SOURCE, "records_out_total"): counted(times)}, until_s=6000.0)
    stretches = found.stretches()
    assert len(stretches) == 2
    assert stretches[0].stop <= 31
    assert stretches[1].start >= 59


def test_a_rescale_is_deployed_when_the_old_configuration_stops_and_its_outage_is_kept():
    configurations = [deployed(0.0, 2), deployed(660.0, 3, down_s=600.0)]
    found = read({(SOURCE, "records_out_total"): counted(TIMES)}, configurations)
    assert found.wanted[:, 0].tolist() == [2] * 10 + [3] * 10
    assert np.flatnonzero(found.rescales).tolist() == [10]
    assert found.outage_s[10] == 60.0
    assert np.isnan(np.delete(found.outage_s, 10)).all()


def test_a_slot_begins_with_a_rescale_that_falls_into_it():
    configurations = [deployed(0.0, 2), deployed(624.0, 3, down_s=620.0)]
    found = read({(SOURCE, "records_out_total"): counted(TIMES)}, configurations)
    assert found.t_s[9:12].tolist() == [540.0, 620.0, 660.0]
    assert found.seconds[9:12].tolist() == [80.0, 40.0, 60.0]
    assert found.wanted[:, 0].tolist() == [2] * 10 + [3] * 10
    assert found.outage_s[10] == 4.0
    assert found.load_per_s == pytest.approx(np.full(20, 100.0))


def test_the_backlog_that_a_slot_begins_with_is_the_one_sampled_then():
    series = {
        (SOURCE, "records_out_total"): counted(TIMES),
        (SOURCE, "pending_records"): (TIMES, 5.0 * TIMES),
    }
    found = read(series)
    assert found.pending[:, 0].tolist() == [300.0 * k for k in range(20)]
    assert found.stretches() == [slice(0, 20)]


def test_since_when_the_job_runs_is_known_where_it_began_in_the_history():
    series = {(SOURCE, "records_out_total"): counted(TIMES)}
    configurations = [deployed(0.0, 2), deployed(624.0, 3, down_s=620.0)]
    found = read(series, configurations)
    assert found.running_since_s[[0, 10, 11]].tolist() == [0.0, 0.0, 624.0]


def test_a_slot_that_samples_cover_in_part_is_not_known():
    times = TIMES[(TIMES >= 90) & (TIMES <= 1120)]
    found = read({(SOURCE, "records_out_total"): counted(times)})
    assert np.flatnonzero(np.isfinite(found.load_per_s)).tolist() == list(range(2, 18))


def test_a_restart_without_a_rescale_is_cut_out_and_counted():
    configurations = [deployed(0.0, 2), deployed(690.0, 2, down_s=615.0), deployed(900.0, 3)]
    found = read({(SOURCE, "records_out_total"): counted(TIMES)}, configurations)
    assert np.flatnonzero(np.isnan(found.load_per_s)).tolist() == [10, 11]  # 600 s to 720 s
    assert np.isnan(found.outage_s).all()  # it says nothing of how long a rescale takes
    (note,) = found.notes
    assert "restarted once without a rescale: it was gone for 75 s, which are not" in note
    assert np.flatnonzero(found.rescales).tolist() == [15]


def test_a_job_that_is_down_is_late():
    configurations = [deployed(0.0, 2), deployed(630.0, 3, down_s=600.0)]
    series = {
        (SOURCE, "records_out_total"): counted(TIMES),
        (SINK, "latency_p95_ms"): (TIMES, np.full(len(TIMES), 10.0)),
    }
    found = read(series, configurations)
    assert found.late[10] == pytest.approx(0.5)
    assert found.late.sum() == pytest.approx(0.5)


def test_a_job_that_was_gone_is_late_though_nothing_was_sampled():
    times = TIMES[(TIMES <= 600) | (TIMES >= 780)]
    series = {
        (SOURCE, "records_out_total"): counted(times),
        (SINK, "latency_p95_ms"): (times, np.full(len(times), 10.0)),
    }
    found = read(series, [deployed(0.0, 2), deployed(775.0, 2, down_s=605.0)])
    assert np.isnan(found.arrived[10:13]).all()
    assert float((found.late * found.seconds)[10:13].sum()) == pytest.approx(170.0)


def test_a_job_that_was_gone_for_long_was_not_rescaled_meanwhile():
    times = np.arange(0.0, 9001.0, 10.0)
    times = times[(times <= 1800) | (times >= 5400)]
    configurations = [deployed(0.0, 2), deployed(5400.0, 3, down_s=1800.0)]
    found = read({(SOURCE, "records_out_total"): counted(times)}, configurations, until_s=9000.0)
    assert np.isnan(found.outage_s).all()
    assert found.late[30:90].tolist() == [1.0] * 60


def test_without_latency_the_log_tells_how_late_the_job_is():
    owed = np.where(TIMES > 600, 100.0 * 60, 0.0)
    found = read(
        {
            (SOURCE, "records_out_total"): counted(TIMES),
            (SOURCE, "pending_records"): (TIMES, owed),
        }
    )
    assert np.isfinite(found.late).any()
    assert found.late[:9].tolist() == [0.0] * 9


def test_with_neither_lateness_is_not_known():
    found = read({(SOURCE, "records_out_total"): counted(TIMES)})
    assert np.isnan(found.late).all()


def test_parts_hold_rate_busyness_and_selectivity_of_their_own_time():
    times = np.arange(0.0, 7201.0, 10.0)
    series = {
        (SOURCE, "records_out_total"): counted(times),
        (NAMES[1], "busy_ms_total"): (times, 600.0 * times),
        (NAMES[1], "records_in_total"): counted(times),
        (NAMES[1], "records_out_total"): counted(times, 50.0),
    }
    found = read(series, [deployed(0.0, 2)], until_s=7200.0)
    assert len(found.parts) == 16
    one = found.parts[-1]
    assert one.rate_per_s == pytest.approx(100.0)
    assert one.busy[NAMES[1]] == pytest.approx(0.6)
    assert not one.saturated


def test_a_job_that_follows_a_changing_load_is_steady():
    times = np.arange(0.0, 7201.0, 10.0)
    series = {(SOURCE, "records_out_total"): (times, 100.0 * times + 0.01 * times**2)}
    found = read(series, [deployed(0.0, 2)], until_s=7200.0)
    assert found.parts[-1].drift == pytest.approx(0.0)
    assert found.parts[-1].spread == pytest.approx(0.0)


def test_a_history_without_sources_is_refused():
    with pytest.raises(MetricsError, match="no source reported"):
        read({(SINK, "latency_p95_ms"): (TIMES, TIMES)})


def test_two_jobs_of_one_name_are_refused():
    with pytest.raises(MetricsError, match="two jobs are called 'orders'"):
        distinct([history(), history()])


def test_less_history_than_asked_is_said():
    assert (
        "14 days were asked for, the load of 4.0 days is known"
        in since(history(days=4.0), 14).notes
    )
    short = since(history(), 1.0)
    assert short.days == pytest.approx(1.0)
    assert not short.notes


def test_the_last_days_are_cut_whatever_is_known_of_those_before():
    one = history(days=4.0)
    dark = one.arrived.copy()
    dark[: 3 * 288] = np.nan  # of the last day everything is known
    cut = since(dataclasses.replace(one, arrived=dark), 2.0)
    assert cut.days == pytest.approx(2.0)
    assert cut.notes == ("2 days were asked for, the load of 1.0 days is known",)
    (minutes,) = since(dataclasses.replace(one, arrived=np.nan * dark), 2.0).notes
    assert minutes == "2 days were asked for, the load of 0 minutes is known"


def test_gaps_at_the_ends_stay():
    load = np.array([np.nan, 1.0, np.nan, 3.0, np.nan])
    assert bridged(load, 60)[1:4].tolist() == [1.0, 2.0, 3.0]
    assert np.isnan(bridged(load, 60)[[0, 4]]).all()


@pytest.mark.parametrize("log", [False, True])
def test_lateness_that_nothing_tells_is_not_known(log):
    source = SPEC.source.model_copy(update={"log": log})
    spec = SPEC.model_copy(update={"source": source})
    samples = Samples.of_series({(SOURCE, 0, "records_out_total"): counted(TIMES)})
    found = measured_history("q1", spec, samples, [deployed(0.0, 2)], 60, until_s=1200.0)
    assert np.isnan(found.late).all()
    assert np.isnan(found.lag_s).all()
    assert found.load_per_s == pytest.approx(100.0)
