"""Kernels that are compared do the same work."""

from pathlib import Path

import numpy as np
import pytest

from dsp_gym.studies.bench import kernels as study


@pytest.mark.slow
def test_every_kernel_moves_the_same_records(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    load = rng.uniform(0.5, 1.2, (study.JOBS, study.SECONDS))
    capacities = rng.uniform(0.6, 1.5, (study.JOBS, study.VERTICES))
    results = {}
    for name, transposed, kernel in study.kernels(tmp_path):
        given = [load, capacities, *np.zeros((3, study.JOBS, study.VERTICES))]
        if transposed:
            given = [np.ascontiguousarray(array.T) for array in given]
        kernel(*given)
        results[name] = np.array([array.T if transposed else array for array in given[2:]])
    first = results["numba, one job at a time"]
    assert first[0].max() > 1, "queues stand"
    for name, found in results.items():
        np.testing.assert_allclose(found, first, rtol=1e-9, atol=1e-9, err_msg=name)
