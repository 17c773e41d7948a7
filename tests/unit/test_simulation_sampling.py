"""Records of each second and sample: the bin of a latency, the noise of a sample."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dsp_gym.metrics.samples import SAMPLE_S
from dsp_gym.simulation import philox as rng
from dsp_gym.simulation.sampling import (
    NOISE_SAMPLES,
    count_latency,
    draw_noise,
    latency_bin,
    noise_lanes,
)
from dsp_gym.simulation.state import LATENCY_BINS, LATENCY_MAX_S, LATENCY_MIN_S

EDGES = np.geomspace(LATENCY_MIN_S, LATENCY_MAX_S, LATENCY_BINS + 1)


@settings(max_examples=50)
@given(
    latencies=st.lists(
        st.one_of(
            st.floats(0, 1e6),
            st.sampled_from([float(x) for e in EDGES for x in (e, np.nextafter(e, 0))]),
        ),
        max_size=20,
    )
)
def test_a_second_counts_in_the_bin_of_its_latency_whatever_came_before(latencies):
    histogram, expected = np.zeros(LATENCY_BINS), np.zeros(LATENCY_BINS)
    known = (0, math.inf, 0.0)
    for latency in latencies:
        known = count_latency(histogram, latency, known)
        expected[latency_bin(latency)] += 1.0
    np.testing.assert_array_equal(histogram, expected)


def test_noise_drawn_at_once_is_that_of_each_sample():
    noise, tick = noise_lanes(5), 1234
    draw_noise(5, 77, tick, noise)
    for v in range(5):
        for i in range(NOISE_SAMPLES):
            words = rng.philox(77, rng.NOISE, tick + i * SAMPLE_S, v)
            first, second = (np.uint64(word) for word in words)
            expected = rng.normal(first), rng.low_normal(second), rng.high_normal(second)
            assert tuple(noise[:, v * NOISE_SAMPLES + i]) == expected
