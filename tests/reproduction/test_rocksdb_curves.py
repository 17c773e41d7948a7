"""RocksDB's measured miss-ratio curves beside the block cache's model."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.job.cache import hit_curve
from dsp_gym.job.service import hit_rate
from dsp_gym.studies.reproduce.rocksdb_curves import predicted, read_curves


@pytest.mark.parametrize("name", ["db_bench_zipf0.6_20M", "db_bench_uniform_20M"])
def test_rocksdb_miss_ratio_curves_csv_from_what_db_bench_says_of_itself(data_folder, name):
    """No number is fitted: 20 M draws leave 12.6 M keys of 116 B in two levels, 10 to 1."""
    curve = next(c for c in read_curves(data_folder) if c.name == name)
    blocks = curve.blocks(upper_lookups=1.0, level_ratio=10.0, cold=float(curve.miss[-1]))
    size = 20e6 * (1 - np.exp(-1)) * 116 / 2**20
    said = predicted(curve, blocks, size)
    assert np.abs(said - curve.miss).mean() <= 0.03
    assert np.abs(said - curve.miss).max() <= 0.12
    # The simulation's table of it, between its points.
    table = hit_curve(blocks)
    tabled = [1 - (1 - blocks.cold) * hit_rate(table, c, size) for c in curve.cache_mib]
    assert np.array(tabled) == pytest.approx(said, abs=0.005)
