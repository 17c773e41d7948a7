from __future__ import annotations

import math

import pytest

from dsp_gym.calibration.observations import MeasuredRun, observe, observe_all
from dsp_gym.job.catalog import load_job
from dsp_gym.metrics.samples import Samples

SPEC = load_job("flink-runs-read")
TASKS = {"source": 1, "split": 2, "state": 2, "sink": 1}
LEVELS = {"source": -1, "split": -1, "state": 0, "sink": -1}


def run(rate, seconds=45, offered=((0.0, 1e6),), busy=800.0, extra=()) -> MeasuredRun:
    """A job whose source emits rate(t) records/s, sampled every 5 s."""
    rows, emitted = [], 0.0
    for t in range(1, seconds + 1):
        emitted += rate(t)
        if t % 5 == 0:
            rows.append((float(t), "source", 0, "emitted_records_total", emitted))
            for subtask in range(2):
                rows.append((float(t), "state", subtask, "records_in_total", emitted / 2))
                rows.append((float(t), "state", subtask, "records_out_total", emitted / 2))
                rows.append((float(t), "state", subtask, "busy_ms_per_s", busy))
    rows += extra
    return MeasuredRun("a", SPEC, TASKS, LEVELS, offered, Samples.of(rows))


def test_the_rate_of_a_saturated_run_leaves_out_its_first_ten_seconds():
    (seen,) = observe(run(lambda t: 9000.0 if t <= 10 else 1000.0))
    assert seen.rate_per_s == pytest.approx(1000.0)
    assert seen.saturated
    assert math.isinf(seen.offered_per_s)
    assert seen.selectivity["state"] == pytest.approx(1.0)
    assert seen.hottest["state"] == pytest.approx(1.0)


def test_a_run_is_cut_at_load_steps_and_what_is_near_them_left_out():
    steps = ((0.0, 1000.0), (60.0, 3000.0))
    # The load's clock is 3 s ahead of the job's.
    seen = observe(run(lambda t: 1000.0 if t <= 57 else 3000.0, 120, steps))
    assert [(o.offered_per_s, o.rate_per_s) for o in seen] == [(1000, 1000), (3000, 3000)]
    assert not any(o.saturated for o in seen)


def test_gauges_count_from_65_s_on_unless_the_run_is_saturated():
    paced = ((0.0, 1000.0),)
    assert observe(run(lambda t: 1000.0, 60, paced))[0].busy == {}
    assert observe(run(lambda t: 1000.0, 90, paced))[0].busy == {"state": pytest.approx(0.8)}
    assert observe(run(lambda t: 1000.0, 35))[0].busy == {"state": pytest.approx(0.8)}


def test_accumulated_busy_time_needs_no_minute():
    extra = [(t, "state", i, "busy_ms_total", (600 + 200 * i) * t)
             for t in range(5, 50, 5) for i in (0, 1)]  # fmt: skip
    (seen,) = observe(run(lambda t: 1000.0, 45, ((0.0, 1000.0),), extra=extra))
    assert seen.busy == {"state": pytest.approx(0.7)}


def test_a_part_that_catches_up_what_it_owes_is_no_observation():
    assert observe(run(lambda t: 2000.0, 60, ((0.0, 1000.0),))) == []


def test_a_run_that_is_too_short_or_silent_or_aborted_gives_nothing():
    assert observe(run(lambda t: 1000.0, 15)) == []
    assert observe(run(lambda t: 0.0, 60)) == []
    whole = run(lambda t: 1000.0)
    aborted = MeasuredRun("b", SPEC, TASKS, LEVELS, whole.offered, whole.samples, complete=False)
    assert observe_all([whole, aborted]) == observe(whole)


def test_hit_ratio_comes_from_increases_and_survives_a_restart_of_the_counter():
    hits = [(10.0, 100.0), (15.0, 400.0), (20.0, 50.0), (45.0, 650.0)]  # restarted after 15 s
    misses = [(10.0, 0.0), (45.0, 100.0)]
    extra = [(t, "state", 0, "cache_hits_total", v) for t, v in hits]
    extra += [(t, "state", 0, "cache_misses_total", v) for t, v in misses]
    (seen,) = observe(run(lambda t: 1000.0, extra=extra))
    assert seen.hit == {"state": pytest.approx(950 / 1050)}


def test_one_lost_scrape_is_no_noise():
    whole = run(lambda t: 1000.0, 60)
    kept = Samples.of(row for row in whole.samples.rows() if row[0] != 30.0)
    seen = observe(MeasuredRun("a", SPEC, TASKS, LEVELS, whole.offered, kept))
    assert seen[0].rate_per_s == pytest.approx(1000.0)
    assert seen[0].spread == pytest.approx(0.0, abs=1e-9)


def test_sources_that_are_scraped_one_after_the_other_are_no_noise():
    rows = []
    for task in range(3):
        for t in range(5, 65, 5):
            at = t + 1.5 * task
            rows.append((at, "source", task, "emitted_records_total", 1e6 * task**2 + 400.0 * at))
    tasks = {**TASKS, "source": 3}
    (seen,) = observe(MeasuredRun("a", SPEC, tasks, LEVELS, ((0.0, 1200.0),), Samples.of(rows)))
    assert seen.rate_per_s == pytest.approx(1200.0)
    assert seen.spread == pytest.approx(0.0, abs=0.01)
