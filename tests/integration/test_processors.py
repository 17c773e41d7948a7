"""The same numbers whatever the processor can do and however many threads are allowed."""

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


def an_hour(folder: Path, threads: int = 1, **settings: str) -> dict[str, np.ndarray]:
    """The state of 160 jobs after an hour in another process."""
    code, to = HOUR.format(threads=threads), folder / "hour.npz"
    subprocess.run([sys.executable, "-c", code, to], env=os.environ | settings, check=True)
    with np.load(to) as saved:
        return dict(saved)


@pytest.mark.slow
def test_more_threads_than_cores_change_no_bit(tmp_path: Path):
    many, one = an_hour(tmp_path, threads=5, NUMBA_NUM_THREADS="64"), an_hour(tmp_path)
    for name, array in one.items():
        np.testing.assert_array_equal(many[name], array, name)


@pytest.mark.slow
def test_machine_code_without_avx_gives_the_same_bits(tmp_path: Path):
    without = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "-avx,-avx2,-fma,-avx512f"}
    without["NUMBA_CACHE_DIR"] = str(tmp_path)
    plain, here = an_hour(tmp_path, **without), an_hour(tmp_path)
    for name, array in here.items():
        np.testing.assert_array_equal(plain[name], array, name)


@pytest.mark.slow
def test_a_c_library_without_fma_differs_in_the_last_digit_alone(tmp_path: Path):
    """Its exponential and logarithm round differently; glibc chooses them by the processor."""
    without = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-AVX2_Usable,-FMA_Usable"}
    plain, here = an_hour(tmp_path, **without), an_hour(tmp_path)
    for name, array in here.items():
        np.testing.assert_allclose(plain[name], array, rtol=1e-12, err_msg=name)
