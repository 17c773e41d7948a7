"""An outcome derived from metrics is true within the limits of metrics."""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np
import pytest

from dsp_gym.backends.simulated.recording import simulated_samples
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.snapshot import Status
from dsp_gym.metrics.outcome import arrivals_of, measured_outcome, observed_in
from dsp_gym.metrics.samples import Samples
from dsp_gym.metrics.window import Observed
from tests.simulating import constant, exact, line

SPEC = line()
RUNNING = {"source": 4, "map": 2, "sink": 1}
LEVELS = dict.fromkeys(RUNNING, 0)


def seen(t_s: float, status: Status = Status.RUNNING, since_s: float = 0.0, **rest) -> Observed:
    given = {"parallelism": RUNNING, "memory_level": LEVELS, "tm_count": 2.0} | rest
    return Observed(t_s=t_s, status=status, running_since_s=since_s, **given)


def of(history, samples=(), since_s=0.0, until_s=60.0, **rest) -> dict[str, float]:
    outcome = measured_outcome(SPEC, Samples.of(samples), history, since_s, until_s, **rest)
    return {field.name: float(getattr(outcome, field.name)[0]) for field in fields(Outcome)}


@pytest.mark.parametrize("rate", [800.0, 3000.0])
def test_of_a_simulated_job_it_is_what_the_simulation_knows(rate):
    jobs = constant(SPEC, rate, exact(), map=2)
    first = simulated_samples(jobs, 60)
    jobs_before = jobs.snapshot()
    truth_jobs = constant(SPEC, rate, exact(), map=2)
    truth_jobs.advance(60)
    truth = truth_jobs.advance(60)
    samples = Samples.joined([first, simulated_samples(jobs, 60)])
    told = measured_outcome(SPEC, samples, [observed_in(jobs_before)], 60.0, 120.0)
    for name in ("seconds", "slo_s", "down_s", "arrived", "processed", "pending", "pending_s",
                 "core_s", "mib_s", "tm_s", "cost", "cost_provisioned"):  # fmt: skip
        expected = getattr(truth, name)[0]
        assert getattr(told, name)[0] == pytest.approx(expected, rel=1e-6, abs=1e-6), name
    # One value in five seconds against every second.
    assert told.latency_p95_s[0] == pytest.approx(truth.latency_p95_s[0], rel=0.05)


def test_an_outage_seen_while_it_lasts_begins_with_the_last_sample():
    samples = [(t, "map", 0, "busy_ms_per_s", 1.0) for t in (5.0, 10.0, 15.0)]
    told = of([seen(0), seen(60, Status.RESTARTING)], samples)
    assert told["down_s"] == 45
    assert told["slo_s"] == 45


def test_an_outage_between_two_looks_lasts_as_long_as_the_job_says():
    told = of([seen(0), seen(60, since_s=40.0, outage_s=7.0)])
    assert told["down_s"] == 7
    assert of([seen(0), seen(60, since_s=40.0)])["down_s"] == 40  # nothing better is known


def test_an_outage_that_reaches_over_the_interval_counts_with_its_part_inside():
    history = [seen(-30, Status.RESTARTING), seen(60, since_s=20.0, outage_s=50.0)]
    assert of(history)["down_s"] == 20


def test_a_job_that_writes_a_savepoint_is_up():
    assert of([seen(0), seen(30, Status.SAVEPOINTING), seen(60)])["down_s"] == 0


def test_a_restart_nobody_asked_for_is_a_failure_and_a_rescale_is_none():
    assert of([seen(0), seen(60, since_s=30.0, outage_s=5.0)])["failures"] == 1
    wider = {**RUNNING, "map": 3}
    rescaled = of([seen(0), seen(60, since_s=30.0, outage_s=5.0, parallelism=wider)], rescales=1)
    assert rescaled["failures"] == 0
    assert rescaled["rescales"] == 1
    # Sources stand elsewhere: 3 tasks until 30 s, 4 after.
    assert rescaled["core_s"] == 3 * 30 + 4 * 30
    failed = of([seen(0), seen(30, Status.FAILED), seen(60, Status.FAILED)])
    assert failed["failures"] == 1


def test_records_are_counted_over_a_restart_and_what_is_owed_has_arrived():
    samples = []
    for t_s, emitted, owed in ((0.0, 1000.0, 0.0), (30.0, 2500.0, 500.0), (60.0, 4000.0, 100.0)):
        samples += [
            (t_s, "source", 0, "emitted_records_total", emitted),
            (t_s, "source", 0, "pending_records", owed),
        ]
    told = of([seen(0)], samples)
    assert told["processed"] == 3000
    assert told["arrived"] == 3100
    assert told["pending"] == 100
    assert told["pending_s"] == pytest.approx(100 / max(3100 / 60, 0.1 * SPEC.source.rate_per_s))


def test_a_job_without_own_counters_is_counted_by_flinks_which_restart_at_zero():
    samples = [
        (t_s, "source", 0, "records_out_total", value)
        for t_s, value in ((0.0, 1000.0), (20.0, 1500.0), (40.0, 200.0), (60.0, 700.0))
    ]
    told = of([seen(0)], samples)
    assert told["processed"] == 500 + 200 + 500
    assert math.isnan(told["pending"])


def test_latency_is_that_of_the_slowest_subtask_and_counts_against_the_slo():
    samples = []
    for t_s, slow in ((5.0, 100.0), (10.0, 100.0), (15.0, 5000.0), (20.0, 3000.0)):
        samples += [
            (t_s, "sink", 0, "latency_p95_ms", 50.0), (t_s, "sink", 1, "latency_p95_ms", slow),
        ]  # fmt: skip
    told = of([seen(0)], samples, until_s=20.0)
    assert told["latency_p95_s"] == pytest.approx((0.1 + 0.1 + 5 + 3) / 4)
    assert told["latency_max_s"] == 5
    assert told["slo_s"] == 10


def test_without_samples_the_cost_is_known_and_the_rest_is_not():
    told = of([seen(0)])
    assert told["core_s"] == 3 * 60
    assert told["tm_s"] == 2 * 60
    assert math.isnan(told["latency_p95_s"])
    assert math.isnan(told["pending"])
    assert np.isfinite(told["cost"])


def sent(*times, latency_ms=9_000.0):
    """Samples of a job that takes 100 records/s and is late."""
    return [
        row
        for t_s in times
        for row in (
            (t_s, "source", 0, "emitted_records_total", 100.0 * t_s),
            (t_s, "source", 0, "pending_records", 0.0),
            (t_s, "sink", 0, "latency_p95_ms", latency_ms),
        )
    ]


def test_of_a_gap_in_the_metrics_of_a_job_that_runs_nothing_is_known():
    at = {"since_s": 600.0, "until_s": 660.0}
    told = of([seen(600.0)], sent(500.0, 530.0), **at)
    assert [told[name] for name in ("arrived", "processed", "slo_s")] == pytest.approx(
        [math.nan] * 3, nan_ok=True
    )
    assert (told["down_s"], told["cost"]) == (0, pytest.approx(of([seen(600.0)], **at)["cost"]))
    slow = of([seen(600.0)], sent(550.0, 640.0), **at)  # of one that is scraped seldom it is
    assert (slow["arrived"], slow["slo_s"]) == (9_000.0, 60)


def test_of_a_job_that_is_down_no_metrics_are_needed():
    told = of([seen(600.0, Status.RESTARTING)], sent(500.0), since_s=600.0, until_s=660.0)
    assert (told["arrived"], told["down_s"], told["slo_s"]) == (0, 60, 60)


def test_without_latency_and_backlog_nobody_says_that_a_job_is_in_time():
    told = of([seen(0)], [(t, "source", 0, "emitted_records_total", t) for t in (5.0, 55.0)])
    assert (told["processed"], math.isnan(told["slo_s"])) == (50, True)


def test_a_job_that_does_not_run_costs_nothing():
    gone = [seen(0, Status.FAILED), seen(60, Status.FAILED)]
    assert [of(gone)[name] for name in ("cost", "core_s", "tm_s")] == [0, 0, 0]


def test_a_job_whose_sinks_are_silent_is_as_late_as_its_log():
    """A stalled job would be on time for ever otherwise, and no bad rescale be taken back."""
    times = np.arange(5.0, 61.0, 5.0)

    def behind(records_per_s: float) -> list:
        emitted = [(t, "source", 0, "emitted_records_total", 100.0 * t) for t in times]
        waiting = [(t, "source", 0, "pending_records", records_per_s * t) for t in times]
        return emitted + waiting

    # 1,000 arrive a second and 100 leave; the log is further behind than 2 s from 3 s on.
    assert of([seen(0), seen(60)], behind(900.0))["slo_s"] == 60
    assert of([seen(0), seen(60)], behind(0.0))["slo_s"] == 0
    on_time = [(t, "sink", 0, "latency_p95_ms", 10.0) for t in times]
    assert of([seen(0), seen(60)], behind(900.0) + on_time)["slo_s"] == 0


def test_what_arrives_is_told_sample_by_sample_whether_the_job_keeps_up_or_not():
    times = [0.0, 5.0, 10.0, 15.0, 20.0]
    emitted = [0.0, 500.0, 600.0, 600.0, 1900.0]  # slower, down, then it catches up
    waiting = [0.0, 0.0, 400.0, 900.0, 100.0]
    rows = [
        (t, "source", p, metric, value / 2)
        for metric, values in (("emitted_records_total", emitted), ("pending_records", waiting))
        for t, value in zip(times, values, strict=True)
        for p in (0, 1)
    ]
    told = arrivals_of(SPEC, Samples.of(rows), 6.0, 21.0)
    assert told == [(5.0, 0.0), (10.0, 500.0), (15.0, 1000.0), (20.0, 1500.0)]
    silent = [row for row in rows if not (row[0] == 15.0 and row[2] == 1)]
    # One of two subtasks is not sampled: it counts what it did last.
    assert arrivals_of(SPEC, Samples.of(silent), 6.0, 21.0)[2:] == [(15.0, 750.0), (20.0, 1500.0)]
    assert arrivals_of(SPEC, Samples.of([]), 6.0, 21.0) == []


def scraped(scrape_s, managers, per_s=500.0, owed=1000.0, tasks=4, missed=(), until_s=400.0):
    """A source whose subtasks run on several TaskManagers, each scraped at times of its own."""
    rows = []
    for task in range(tasks):
        offset_s = scrape_s * (task % managers) / managers
        for t in np.arange(offset_s, until_s, scrape_s).tolist():
            if (task, t) not in missed:
                rows += [
                    (t, "source", task, "records_in_total", 1e6 + per_s * t),
                    (t, "source", task, "emitted_records_total", 1e6 + per_s * t),
                    (t, "source", task, "pending_records", owed),
                ]
    return rows


@pytest.mark.parametrize("counter", ["emitted_records_total", "records_in_total"])
@pytest.mark.parametrize("scrape_s", [5.0, 15.0, 30.0, 60.0])
@pytest.mark.parametrize("managers", [1, 2, 4])
def test_no_record_is_lost_however_scrapes_of_taskmanagers_are_spread(counter, scrape_s, managers):
    rows = [row for row in scraped(scrape_s, managers) if row[3] in (counter, "pending_records")]
    spans = [(a, a + 60.0) for a in (120.0, 180.0, 240.0, 300.0)]
    told = [of([seen(a), seen(b)], rows, a, b) for a, b in spans]
    assert [one["arrived"] for one in told] == pytest.approx([4 * 500.0 * 60] * 4)
    assert [one["processed"] for one in told] == pytest.approx([4 * 500.0 * 60] * 4)
    assert [one["pending"] for one in told] == [4000.0] * 4


def test_arrivals_of_an_interval_begin_where_those_of_the_last_one_ended():
    samples, history = Samples.of(scraped(15.0, 4)), [seen(0.0), seen(400.0)]
    told = [arrivals_of(SPEC, samples, a, a + 60.0, history) for a in (120.0, 180.0, 240.0)]
    assert [one[-1][1] for one in told] == pytest.approx([4 * 500.0 * 60] * 3)


@pytest.mark.parametrize("missed", [(), ((3, 171.25),)])
def test_a_scrape_that_was_missed_makes_no_records_and_loses_none(missed):
    rows = scraped(15.0, 4, missed=missed)
    told = [of([seen(a), seen(a + 60.0)], rows, a, a + 60.0) for a in (120.0, 180.0)]
    assert sum(one["arrived"] for one in told) == pytest.approx(4 * 500.0 * 120)
    assert [one["pending"] for one in told] == [4000.0, 4000.0]


def test_what_subtasks_owed_that_a_rescale_removed_others_owe():
    before = [row for row in scraped(5.0, 2) if row[0] <= 150.0]
    after = [row for row in scraped(5.0, 2, owed=2000.0, tasks=2) if row[0] > 155.0]
    counts = [row for row in (*before, *after) if row[3] != "emitted_records_total"]
    fewer = seen(180.0, since_s=153.0, outage_s=3.0, parallelism=RUNNING | {"source": 2})
    told = of([seen(120.0), fewer], counts, 120.0, 180.0)
    assert told["pending"] == 4000.0
    assert told["arrived"] == told["processed"] > 0
