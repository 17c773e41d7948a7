"""One measurement of each subtask, however often and by whom its series were scraped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsp_gym.backends.flink.series import CLOCKS, JobMeasurements, Scraped, Subtask
from dsp_gym.errors import FlinkError
from dsp_gym.metrics.flink import BY_NAME
from dsp_gym.metrics.identity import Task

TASK = Task("a" * 32, "count")
OUT = "records_out_total"


def add(
    into: JobMeasurements,
    *,
    subtask: int = 0,
    attempt: int = 0,
    times: Any = range(0, 120, 5),
    rate: float = 100.0,
    began: float = 0.0,
    frozen_s: float = np.inf,
    **labels: str,
) -> None:
    """A task whose counter rises by `rate` from `began` on, until `frozen_s`, and its clocks."""
    t_s = np.asarray([*times], dtype=np.float64)
    age = np.minimum(t_s, frozen_s) - began
    for name in (OUT, *sorted(CLOCKS)):
        values = age * (rate if name == OUT else 300.0)
        one = Scraped(BY_NAME[name], labels, t_s, values)
        into.add(Subtask(TASK, subtask), attempt, (name,), one)


def seen(measurements: JobMeasurements) -> dict[int, list[tuple[float, float]]]:
    """Times and values of the counter by subtask."""
    found: dict[int, list[tuple[float, float]]] = {}
    for subtask, one in measurements.values():
        if one.metric.name == OUT:
            pairs = zip(one.times.tolist(), one.values.tolist(), strict=True)
            found.setdefault(subtask.index, []).extend(pairs)
    return found


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 4.9)), min_size=1, max_size=6),
    st.integers(1, 4),
)
def test_copies_count_once_whatever_label_they_differ_in(scrapes, subtasks):
    copied = JobMeasurements("p")
    for subtask in range(subtasks):
        for k, (replica, offset_s) in enumerate(scrapes):
            add(copied, subtask=subtask, times=np.arange(0, 120, 5) + offset_s,
                rate=50.0 * (subtask + 1), replica=f"{replica}{k}", job="scrape")  # fmt: skip
    for subtask, values in seen(copied).items():
        assert len(values) == 24
        rise = np.diff([value for _, value in values]) / np.diff([t_s for t_s, _ in values])
        np.testing.assert_allclose(rise, 50.0 * (subtask + 1))
    assert copied.folded == ({"replica"} if len(scrapes) > 1 else set())


def test_the_fresh_and_complete_scrape_of_two_counts():
    two = JobMeasurements("p")
    add(two, times=range(0, 60, 5), replica="a")  # ended
    add(two, times=range(0, 120, 10), replica="b")
    assert [t_s for t_s, _ in seen(two)[0]] == list(range(0, 120, 10))


def test_series_of_one_subtask_that_count_differently_are_refused_with_the_label():
    two = JobMeasurements("http://prom")
    add(two, cluster="eu")
    add(two, rate=110.0, cluster="us")
    with pytest.raises(FlinkError, match=r"http://prom.*records_out_total.*cluster \('eu' and"):
        seen(two)


def test_equal_rates_of_two_jobs_are_not_one_counter():
    two = JobMeasurements("p")
    add(two, cluster="eu")
    add(two, began=-5000.0, cluster="us")
    with pytest.raises(FlinkError, match="cluster"):
        seen(two)


@pytest.mark.parametrize("began", [0.0, -3.0, -20.0])
def test_one_job_on_two_clusters_at_one_rate_is_not_one_counter(began):
    two = JobMeasurements("p")
    add(two, cluster="eu", instance="1:9250", tm_id="1:44321-ab")
    add(two, cluster="us", instance="2:9250", tm_id="2:33211-cd", began=began)
    with pytest.raises(FlinkError, match="two TaskManagers at a time") as refused:
        seen(two)
    assert 'cluster="' in str(refused.value.remedy)


def test_the_label_of_a_taskmanager_may_be_called_otherwise():
    two = JobMeasurements("p", "pod")
    add(two, region="eu", pod="tm-1")
    add(two, region="us", pod="tm-2")
    with pytest.raises(FlinkError, match="two TaskManagers at a time") as refused:
        seen(two)
    assert 'region="' in str(refused.value.remedy)


def test_two_jobs_of_which_one_has_restarted_are_not_one_counter():
    two = JobMeasurements("p")
    add(two, attempt=-1, cluster="eu")
    t_s = np.arange(0.0, 120.0, 5.0)
    restarted = np.where(t_s < 60.0, 5000.0 + 300.0 * t_s, 300.0 * (t_s - 60.0))
    other = Scraped(BY_NAME[OUT], {"cluster": "us"}, t_s, restarted)
    two.add(Subtask(TASK, 0), -1, (OUT,), other)
    with pytest.raises(FlinkError, match="cluster"):
        seen(two)


def test_two_scrapes_of_a_counter_that_restarted_are_copies():
    copied = JobMeasurements("p")
    for replica, offset_s in (("a", 0.0), ("b", 2.0)):
        t_s = np.arange(0.0, 120.0, 5.0) + offset_s
        values = np.where(t_s < 60.0, 5000.0 + 100.0 * t_s, 100.0 * (t_s - 60.0))
        copied.add(Subtask(TASK, 0), -1, (OUT,), Scraped(BY_NAME[OUT], {"r": replica}, t_s, values))
    assert len(seen(copied)[0]) == 24
    assert copied.folded == {"r"}


def test_an_attempt_ends_where_the_next_begins_however_long_it_is_repeated():
    for last_s in (60, 120):  # as scraped, and as a Pushgateway repeats it
        restarted = JobMeasurements("p")
        for subtask in range(2):
            add(restarted, subtask=subtask, times=range(0, last_s, 5), frozen_s=55.0)
        for subtask in range(3):
            add(restarted, subtask=subtask, attempt=1, times=range(65, 120, 5), began=60.0)
        found = seen(restarted)
        assert sorted(found) == [0, 1, 2]
        after = [(t_s, value) for t_s, value in found[0] if t_s >= 65]
        assert after == [(float(t), 100.0 * (t - 60)) for t in range(65, 120, 5)]
        assert restarted.restarted_s() == 65


def test_a_subtask_that_a_smaller_attempt_has_no_more_is_gone():
    shrunk = JobMeasurements("p")
    for subtask in range(3):
        add(shrunk, subtask=subtask, times=range(0, 120, 5), frozen_s=55.0)
    for subtask in range(2):
        add(shrunk, subtask=subtask, attempt=1, times=range(65, 120, 5), began=60.0)
    assert max(t_s for t_s, _ in seen(shrunk)[2]) < 65


def test_a_neighbour_of_a_restarted_region_runs_on():
    regions = JobMeasurements("p")
    add(regions, subtask=0, times=range(0, 60, 5))
    add(regions, subtask=0, attempt=1, times=range(65, 120, 5), began=60.0)
    add(regions, subtask=1, times=range(0, 120, 5))
    assert len(seen(regions)[1]) == 24


def test_two_taskmanagers_one_after_the_other_are_both_kept():
    moved = JobMeasurements("p")
    add(moved, attempt=-1, times=range(0, 60, 5), tm_id="tm-a")
    add(moved, attempt=-1, times=range(65, 120, 5), began=60.0, tm_id="tm-b")
    assert len(seen(moved)[0]) == 12 + 11
    assert not moved.folded


def test_the_repeated_values_of_a_lost_taskmanager_do_not_count():
    pushed = JobMeasurements("p")
    add(pushed, attempt=-1, frozen_s=30.0, tm_id="tm-a")
    add(pushed, attempt=-1, times=range(65, 120, 5), began=60.0, tm_id="tm-b")
    assert seen(pushed)[0] == [(float(t), 100.0 * (t - 60)) for t in range(65, 120, 5)]


@given(
    st.lists(st.integers(0, 50), min_size=60, max_size=60),
    st.integers(2, 11),
    st.floats(0.1, 4.9),
)
def test_scrapes_of_one_counter_are_copies_however_it_rises(per_second, samples, offset_s):
    copied = JobMeasurements("p")
    counted = np.cumsum(per_second).astype(np.float64)
    for replica, shift_s in (("a", 0.0), ("b", offset_s)):
        t_s = 5.0 * np.arange(samples) + shift_s
        one = Scraped(BY_NAME[OUT], {"replica": replica}, t_s, counted[t_s.astype(np.int64)])
        copied.add(Subtask(TASK, 0), 0, (OUT,), one)
    assert len(seen(copied)[0]) >= samples
