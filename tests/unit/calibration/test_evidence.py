"""Evidence of a fit: its data, its error by distance, and the section of a job file."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dsp_gym.calibration.evidence import (
    LEAST_WITHIN,
    PER_DOUBLING,
    LeftOut,
    SeenRate,
    error_of,
    folds,
    predictions_left_out,
    ranges_of,
    run_folds,
    with_section,
)
from dsp_gym.config import files
from dsp_gym.config.strict_yaml import parse_yaml
from dsp_gym.job.spec import JobSpec

TEXT = """\
# A comment that stays.
job: small
source: {rate_per_s: 1000}
vertices:
  - {name: source, kind: source, cpu_us_per_record: 1}
  - name: map
    inputs: [{from: source}]
    cpu_us_per_record: 100
    state: {reads: 1, keys: 1000, value_bytes: 100}
  - {name: sink, kind: sink, inputs: [{from: map}], cpu_us_per_record: 1}
memory: {base_mib: 64, levels: 5}
"""


def job(text=TEXT):
    return files.parse(JobSpec, parse_yaml(text, file="small.yaml"), "small.yaml")


def at(tasks, mib=128.0, rate_per_s=None, **more):
    rate = 1000.0 * tasks if rate_per_s is None else rate_per_s
    return SeenRate({"source": 1, "map": tasks, "sink": 1}, {"map": mib}, rate, **more)


def test_the_ranges_are_those_of_what_was_measured():
    found = ranges_of(job(), [at(1), at(4, 256.0, hottest={"map": 1.2}), at(2)], "mine")
    assert (found.runs, found.slots, found.parallelism["map"]) == (3, (2, 5), (1, 4))
    assert (found.managed_memory_mib, found.rate_per_s) == ((128.0, 256.0), (1000.0, 4000.0))
    assert found.skew == {"map": (1.2, 1.2)}


def test_a_starved_run_is_no_part_of_the_ranges():
    found = ranges_of(job(), [at(1), at(2), at(2, 16.0, 100.0, starved=True)], "mine")
    assert (found.runs, found.managed_memory_mib, found.rate_per_s) == (
        3, (128.0, 128.0), (1000.0, 2000.0),
    )  # fmt: skip


def test_folds_leave_out_each_value_and_all_above_or_below_one():
    seen = [at(1), at(2), at(4), at(8), at(8)]
    assert set(folds(seen)) == {
        (1, 2, 3, 4), (0, 2, 3, 4), (0, 1, 3, 4), (0, 1, 2),  # each left out
        (0, 1), (2, 3, 4),  # the two lowest, the two highest
    }  # fmt: skip


def test_runs_of_one_configuration_are_left_out_one_by_one():
    assert folds([at(2), at(2), at(2)]) == [(1, 2), (0, 2), (0, 1)]
    assert folds([at(2)]) == []


def test_predictions_know_how_far_they_lie_from_what_their_fit_saw():
    seen = [at(1), at(2), at(4), at(8)]
    # The fit says that tasks do not help.
    found = predictions_left_out(job(), seen, lambda rows: lambda i: 1000.0, [(0, 1)])
    # Slots 2 to 3 were seen: 6 is one doubling beyond, tasks are 4 of 2, as far.
    assert [one.far for one in found] == pytest.approx([1.0, 2.0])
    assert [one.log_error for one in found] == pytest.approx([-math.log(4), -math.log(8)])


def test_the_line_holds_nine_in_ten_at_every_distance():
    rng = np.random.default_rng(1)
    made = [
        LeftOut(float(far), 0.0, float(rng.normal(0.0, 0.05 + 0.2 * far)))
        for far in np.repeat([0.0, 1.0, 2.0, 3.0], 100)
    ]
    found = error_of(made, "runs")
    held = [abs(o.log_error) <= found.within + found.per_doubling * o.far for o in made]
    assert np.mean(held[:100]) == pytest.approx(0.9, abs=0.02)
    assert 0.88 <= np.mean(held[100:]) <= 0.96
    assert found.per_doubling == pytest.approx(0.2 * 1.645, rel=0.25)


def test_memory_beyond_its_range_has_a_slope_of_its_own():
    made = [LeftOut(0.0, 0.0, 0.05)] * 20 + [LeftOut(0.0, 1.0, 1.05)] * 20
    found = error_of(made, "memories")
    assert (found.within, found.per_memory_doubling) == pytest.approx((0.05, 1.0))
    assert (found.median, found.p90) == pytest.approx((0.05, 0.05))  # memory inside


def test_an_error_that_did_not_grow_is_no_proof_of_the_next_doubling():
    made = [LeftOut(far, 0.0, 0.05) for far in (0.0, 1.0, 2.0) for _ in range(10)]
    assert error_of(made, "runs").per_doubling == PER_DOUBLING


def test_no_interval_is_narrower_than_the_tail_of_what_was_left_out():
    """Inside the fit all is well by luck; one number of tasks left out is off by 10 %."""
    made = [LeftOut(0.0, 0.0, 0.01)] * 20 + [LeftOut(0.5, 0.0, 0.1, "value")] * 20
    found = error_of(made, "numbers of tasks")
    assert found.within == found.p90 == pytest.approx(0.1)
    # Runs like others of the fit make no interval narrower.
    like = [LeftOut(0.0, 0.0, 0.001, "runs")] * 200
    assert error_of([*made, *like], "numbers of tasks").within == found.within
    # What lies above a cut tells how the error grows, not what it is nearby.
    cut = [LeftOut(0.0, 0.0, 0.01)] * 20 + [LeftOut(2.0, 0.0, 0.5)] * 20
    assert error_of(cut, "numbers of tasks").within == LEAST_WITHIN


def test_runs_are_left_out_whatever_they_ran_on():
    seen = [at(1), at(1), at(2), at(2), at(4), at(4), at(8)]
    kept = run_folds(seen)
    assert [sorted(set(range(7)) - set(rows)) for rows in kept] == [[0, 5], [1, 6], [2], [3], [4]]
    found = predictions_left_out(job(), seen, lambda rows: lambda i: 1000.0, kept, by_run=True)
    assert len(found) == 7
    assert {one.left_out for one in found} == {"runs"}
    assert run_folds([at(2)] * 3) == []  # each is left out already


def test_a_fold_is_near_where_it_leaves_out_one_number_or_one_memory():
    seen = [at(1), at(2), at(4), at(4, 256.0)]
    found = predictions_left_out(
        job(), seen, lambda rows: lambda i: 1000.0, [(0, 1), (0, 1, 2), (1, 2), (0,)]
    )
    assert [one.left_out for one in found] == ["value"] * 3 + ["span"] * 5


def test_few_predictions_take_the_largest_error():
    assert error_of([LeftOut(0.0, 0.0, e) for e in (0.1, -0.3, 0.2)], "runs").within == 0.3
    assert error_of([], "runs") is None


def test_the_section_is_written_at_the_end_and_replaced_the_next_time():
    first = ranges_of(job(), [at(1), at(4)], "first")
    text = with_section(TEXT, first)
    assert text.startswith(TEXT)
    assert job(text).fitted == first
    error = error_of([LeftOut(0.0, 0.0, 0.1)] * 20, "runs")
    second = ranges_of(job(), [at(1), at(8)], "second").model_copy(update={"error": error})
    again = with_section(text, second)
    assert again.count("fitted:") == 1
    assert job(again).fitted == second
    assert with_section(again, second) == again


def test_a_section_in_the_middle_of_a_file_is_moved_and_nothing_is_lost():
    evidence = ranges_of(job(), [at(1), at(4)], "mine")
    text = with_section(TEXT, evidence) + "# Prices of a friend.\nprices: {core_hour: 1}\n"
    again = with_section(text, evidence)
    assert job(again).prices.core_hour == 1
    assert "# Prices of a friend." in again
    assert job(again).fitted == evidence
