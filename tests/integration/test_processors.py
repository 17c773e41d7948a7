"""The same numbers on every processor and with any number of threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

HOUR = """
import sys
import numpy as np
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.job.catalog import load_job
from dsp_gym.loop.topology import Topology
from dsp_gym.simulation.options import SimulationOptions

names = ["bench-8", "nexmark-q3", "nexmark-q5", "nexmark-q11", "flink-micro-update"]
topology = Topology.of([load_job(name) for name in names], [i % 5 for i in range(160)])
jobs = SimulatedJobs(topology, SimulationOptions(threads={threads}))
share = np.random.default_rng(0).uniform(0.1, 1.2, (160, 3600))
jobs.reset(np.arange(160), share * topology.tables.rate_per_s[topology.row, None])
for _ in range(60):
    jobs.advance(60)
np.savez(sys.argv[1], **jobs.state._asdict())
"""


NOISE = """
import sys
import numpy as np
from dsp_gym.simulation.sampling import draw_noise, noise_lanes
from dsp_gym.sizing.lateness import late_share

noise = noise_lanes(40)
draw_noise(40, 7, 5, noise)
shares = np.random.default_rng(0).uniform(0.1, 1.2, (200, 3))
np.savez(sys.argv[1], noise=noise, late=[late_share(*each) for each in shares])
"""

WITHOUT_AVX = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "-avx,-avx2,-fma,-avx512f"}


def an_hour(folder: Path, threads: int = 1, **settings: str) -> dict[str, np.ndarray]:
    """The state of 160 jobs after an hour in another process."""
    return computed(HOUR.format(threads=threads), folder, settings)


def computed(code: str, folder: Path, settings: dict[str, str]) -> dict[str, np.ndarray]:
    """What a program in another process writes."""
    to = folder / "computed.npz"
    subprocess.run([sys.executable, "-c", code, to], env=os.environ | settings, check=True)
    with np.load(to) as saved:
        return dict(saved)


@pytest.fixture(scope="module")
def here(tmp_path_factory) -> dict[str, np.ndarray]:
    """The hour as this processor computes it."""
    return an_hour(tmp_path_factory.mktemp("here"))


@pytest.mark.slow
def test_more_threads_than_cores_change_no_bit(tmp_path: Path, here):
    many = an_hour(tmp_path, threads=5, NUMBA_NUM_THREADS="64")
    for name, array in here.items():
        np.testing.assert_array_equal(many[name], array, name)


@pytest.mark.slow
def test_machine_code_without_avx_gives_the_same_bits(tmp_path: Path):
    plain = computed(NOISE, tmp_path, {**WITHOUT_AVX, "NUMBA_CACHE_DIR": str(tmp_path)})
    here = computed(NOISE, tmp_path, {})
    assert np.ptp(here["noise"]) > 1
    assert np.ptp(here["late"]) > 0.1
    for name, array in here.items():
        np.testing.assert_array_equal(plain[name], array, name)


@pytest.mark.validate
def test_a_simulation_without_avx_gives_the_same_bits(tmp_path: Path, here):
    plain = an_hour(tmp_path, **WITHOUT_AVX, NUMBA_CACHE_DIR=str(tmp_path))
    for name, array in here.items():
        np.testing.assert_array_equal(plain[name], array, name)


@pytest.mark.slow
def test_a_c_library_without_fma_differs_in_the_last_digit_alone(tmp_path: Path, here):
    """Its exponential and logarithm round differently; glibc chooses them by the processor."""
    without = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-AVX2_Usable,-FMA_Usable"}
    plain = an_hour(tmp_path, **without)
    for name, array in here.items():
        np.testing.assert_allclose(plain[name], array, rtol=1e-12, err_msg=name)
