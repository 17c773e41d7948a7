"""Whatever is recorded is read again, row by row; what is lost is said."""

from __future__ import annotations

import math
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from dsp_gym.loop.configuration import Configuration
from dsp_gym.metrics.flink import BY_NAME
from dsp_gym.metrics.samples import SAMPLE_S, Samples
from dsp_gym.records.manifest import RecordedLoad
from dsp_gym.records.recording import Recording, gaps_in
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
