"""Raw samples in long format."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsp_gym.errors import MetricsError
from dsp_gym.metrics.samples import Samples, source_counter, with_source_records

ROWS = st.lists(
    st.tuples(
        st.integers(0, 6).map(float),
        st.sampled_from(["", "map", "sink"]),
        st.integers(-1, 2),
        st.sampled_from(["busy_ms_total", "records_in_total"]),
        st.floats(-1e6, 1e6),
    ),
    max_size=40,
)


@given(rows=ROWS)
def test_rows_come_back_sorted_and_of_equal_keys_the_last_stays(rows):
    last = {row[:4]: row[4] for row in rows}
    assert list(Samples.of(rows).rows()) == [(*key, last[key]) for key in sorted(last)]


@given(rows=ROWS, cut=st.integers(0, 40))
def test_joined_parts_are_as_one(rows, cut):
    joined = Samples.joined([Samples.of(rows[:cut]), Samples.of(rows[cut:])])
    assert list(joined.rows()) == list(Samples.of(rows).rows())


@given(rows=ROWS, since=st.integers(-1, 7), until=st.integers(-1, 7), inner=st.integers(-1, 7))
def test_a_part_of_a_part_holds_what_was_sampled_in_both_spans(rows, since, until, inner):
    part = Samples.of(rows).between(since, until).between(inner, 9)
    kept = [row for row in Samples.of(rows).rows() if max(since, inner) < row[0] <= until]
    assert list(part.rows()) == kept
    assert part.vertices() == sorted({row[1] for row in kept} - {""})
    for vertex in ("", "map", "sink", "unknown"):
        for metric in ("busy_ms_total", "records_in_total"):
            times, subtasks, values = part.grid(vertex, metric)
            mine = {(r[0], r[2]): r[4] for r in kept if (r[1], r[3]) == (vertex, metric)}
            assert times.tolist() == sorted({t for t, _ in mine})
            assert subtasks.tolist() == sorted({s for _, s in mine})
            expected = [[mine.get((t, s), np.nan) for s in subtasks.tolist()] for t in times]
            np.testing.assert_array_equal(values, np.reshape(expected, values.shape))


def test_series_of_a_metric_are_put_in_order_of_time():
    both = Samples.of_series(
        {("b", 0, "m"): ([10, 5, 10], [1.0, 2.0, 3.0]), ("a", 1, "m"): ([10], [4.0])}
    )
    assert list(both.rows()) == [(5, "b", 0, "m", 2), (10, "a", 1, "m", 4), (10, "b", 0, "m", 3)]


def test_columns_of_different_length_are_refused():
    one, two = np.zeros(1), np.zeros(2)
    with pytest.raises(MetricsError, match=r"differ in length: \[1, 2\]"):
        Samples(one, np.array(["a"]), np.zeros(1, np.int32), np.array(["m"]), two)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), missing=st.sampled_from([0.0, 0.1, 0.6]))
def test_a_grid_holds_every_value_at_its_place(seed, missing):
    """Whether all subtasks report at all times or not; of a part as of the whole."""
    rng = np.random.default_rng(seed)
    rows = [
        (5.0 * t, vertex, int(p), metric, float(rng.random()))
        for t in range(int(rng.integers(1, 8)))
        for vertex in ("a", "b")
        for p in range(int(rng.integers(-1, 4)), int(rng.integers(0, 5)))
        for metric in ("x", "y")
        if rng.random() >= missing
    ]
    whole = Samples.of(rows)
    for samples, since_s, until_s in ((whole, -1.0, 99.0), (whole.between(0.0, 20.0), 0.0, 20.0)):
        here = {(t, p): value for t, vertex, p, metric, value in rows
                if (vertex, metric) == ("a", "x") and since_s < t <= until_s}  # fmt: skip
        times, subtasks, values = samples.grid("a", "x")
        assert times.tolist() == sorted({t for t, _ in here})
        assert subtasks.tolist() == sorted({p for _, p in here})
        known = {
            (t, p): values[i, j]
            for i, t in enumerate(times.tolist())
            for j, p in enumerate(subtasks.tolist())
            if not np.isnan(values[i, j])
        }
        assert known == here


def chained(**counters: float) -> dict[tuple[str, int, str], tuple[list[float], list[float]]]:
    """Series of a source of two subtasks, each counting so many records/s."""
    times = [float(t) for t in range(0, 60, 5)]
    return {
        ("clicks", subtask, name): (times, [per_s * t for t in times])
        for name, per_s in counters.items()
        for subtask in range(2)
    }


@pytest.mark.parametrize(
    ("counters", "per_s"),
    [
        ({"source_in_total": 5000.0, "source_out_total": 5000.0}, 5000.0),
        ({"source_in_total": 0.0, "source_out_total": 5000.0}, 5000.0),  # counts no input
        ({"source_in_total": 100.0, "source_out_total": 90.0}, 100.0),
        ({"records_in_total": 7.0, "source_in_total": 5000.0}, 7.0),  # as Flink's autoscaler
        ({}, 50.0),  # no operator scope: the chain's output
    ],
)
def test_a_source_reads_what_its_own_operators_count_whatever_its_chain_passes_on(counters, per_s):
    series = chained(**{"records_in_total": 0.0, "records_out_total": 50.0, **counters})
    samples = Samples.of_series(with_source_records(series))
    counter = source_counter(samples, "clicks")
    assert {*samples.metric.tolist()} == {"records_in_total", "records_out_total"}
    for column in samples.grid("clicks", counter)[2].T:
        np.testing.assert_allclose(np.diff(column) / 5.0, per_s)
    assert samples.grid("clicks", "records_out_total")[2][-1, 0] == 50.0 * 55
