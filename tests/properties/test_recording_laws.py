"""Recorded data is read back row by row; losses are reported."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dsp_gym.loop.configuration import Configuration
from dsp_gym.metrics.flink import BY_NAME
from dsp_gym.metrics.samples import SAMPLE_S, Samples
from dsp_gym.records.manifest import RecordedLoad
from dsp_gym.records.recording import PassingSamples, Recording, gaps_in
from dsp_gym.records.writer import EndedRun, RecordingWriter
from tests.simulating import line

SPEC = line()
NAMES = [vertex.name for vertex in SPEC.vertices]
LOAD = RecordedLoad(name="x", steps=((0, 1.0),))

rows = st.tuples(
    st.floats(0.001, 600),
    st.sampled_from(["", *NAMES]),
    st.integers(-1, 16),
    st.sampled_from(sorted(BY_NAME)),
    st.floats(width=64),
)


def same(found: Samples, expected: Samples) -> bool:
    pairs = zip(found.rows(), expected.rows(), strict=True)
    return all(
        a[:4] == b[:4] and (a[4] == b[4] or (math.isnan(a[4]) and math.isnan(b[4])))
        for a, b in pairs
    )


@settings(max_examples=25)
@given(given_rows=st.lists(rows, max_size=40), cut_s=st.floats(0, 600))
def test_samples_come_back_and_part_where_asked(tmp_path_factory, given_rows, cut_s):
    samples = Samples.of(given_rows)
    folder = tmp_path_factory.mktemp("recording") / "r"
    writer = RecordingWriter.create(folder, SPEC, {})
    run = EndedRun(
        name="a", configuration=Configuration.of_spec(SPEC), load=LOAD,
        t_begin_s=0.0, t_load_s=0.0, t_running_s=0.0, t_end_s=600.0,
    )  # fmt: skip
    writer.add(run, samples, [])
    run = Recording.open(folder).run("a")
    assert same(run.samples(), samples)
    assert same(Samples.joined(run.stream()), samples)
    parts = [run.samples().between(0, cut_s), run.samples().between(cut_s, 600)]
    assert len(parts[0]) + len(parts[1]) == len(samples)
    assert same(Samples.joined(parts), samples)


asks = st.lists(st.tuples(st.floats(0, 600), st.floats(0, 200)), max_size=8)


@settings(max_examples=25)
@given(
    given_rows=st.lists(rows, max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=5),
    asked=asks,
    behind_s=st.floats(0, 300),
)
def test_samples_that_pass_are_those_held_all_at_once(given_rows, cuts, asked, behind_s):
    """Wherever parts begin, and whether a reader goes on or back."""
    samples = Samples.of(given_rows)
    edges = [0, *sorted(min(cut, len(samples)) for cut in cuts), len(samples)]
    names = ("t_s", "vertex", "subtask", "metric", "value")
    parts = [
        Samples(**{name: getattr(samples, name)[low:high] for name in names})
        for low, high in pairwise(edges)
    ]
    passing = PassingSamples(lambda: iter(parts), behind_s)
    for since_s, length_s in asked:
        found = passing.between(since_s, since_s + length_s)
        assert same(found, samples.between(since_s, since_s + length_s))
        for vertex, metric in {(v, m) for _, v, _, m, _ in samples.rows()}:
            expected = samples.between(since_s, since_s + length_s).grid(vertex, metric)
            for one, other in zip(found.grid(vertex, metric), expected, strict=True):
                assert np.array_equal(one, other, equal_nan=True)


@given(times=st.sets(st.integers(1, 120), max_size=60))
def test_gaps_are_the_wide_spans_between_samples(times):
    samples = Samples.of((float(t), "map", 0, "busy_ms_per_s", 1.0) for t in times)
    gaps = gaps_in(samples, 0.0, 120.0)
    for since_s, until_s in gaps:
        assert until_s - since_s > 2 * SAMPLE_S
        assert not any(since_s < t < until_s for t in times)
    inside = [(a, b) for a, b in gaps]
    known = [0.0, *sorted(float(t) for t in times), 120.0]
    for a, b in pairwise(known):
        assert (b - a <= 2.5 * SAMPLE_S) or (a, b) in inside
