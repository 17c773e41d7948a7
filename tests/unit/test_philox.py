"""The counter-based generator: known answers, and properties its users rely on."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.simulation.philox import normal, philox, uniform


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        # Random123's kat_vectors, philox4x32 with 7 rounds
        ((0, 0), 0, (0x5F6FB7090D893F64, 0x4F121F814F730A48)),
        (
            (0x85A308D3243F6A88, 0x0370734413198A2E),
            0x299F31D0A4093822,
            (0x4DFCCABA190A87F0, 0xC47362BAB6B5242A),
        ),
    ],
)
def test_words_are_those_of_the_reference_implementation(counter, key, expected):
    a, b = (np.int64(np.uint64(word).astype(np.int64)) for word in counter)
    assert tuple(int(word) for word in philox(key, 0, a, b)) == expected


def words(mechanism: int = 1, seed: int = 5, count: int = 20_000) -> list[np.uint64]:
    return [np.uint64(philox(seed, mechanism, tick, 0)[0]) for tick in range(count)]


def test_uniform_numbers_fill_the_unit_interval_evenly():
    drawn = np.array([uniform(word) for word in words()])
    assert drawn.min() >= 0
    assert drawn.max() < 1
    counts, _ = np.histogram(drawn, bins=20, range=(0, 1))
    chi_squared = ((counts - 1000) ** 2 / 1000).sum()
    assert chi_squared < 43.8  # 19 degrees of freedom, p = 0.001


def test_normal_numbers_have_mean_0_deviation_1_and_no_outliers():
    drawn = np.array([normal(word) for word in words()])
    assert drawn.mean() == pytest.approx(0, abs=0.02)
    assert drawn.std() == pytest.approx(1, abs=0.02)
    assert np.abs(drawn).max() <= 3.5
    assert np.mean(np.abs(drawn) < 1) == pytest.approx(0.68, abs=0.02)


def test_mechanisms_seeds_and_counters_have_streams_of_their_own():
    streams = [
        [uniform(word) for word in words(mechanism, seed, 2000)]
        for mechanism in (1, 2, 3, 4)
        for seed in (0, 1)
    ]
    correlation = np.corrcoef(streams) - np.eye(8)
    assert np.abs(correlation).max() < 0.1
    other = [uniform(np.uint64(philox(0, 1, tick, 1)[0])) for tick in range(2000)]
    assert abs(np.corrcoef(streams[0], other)[0, 1]) < 0.1
