"""Hit rate of the block cache, and what a small MemTable costs a write."""

from __future__ import annotations

import math

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.job.memory import FULL_MEMTABLE_MIB
from dsp_gym.job.spec import Popularity

GRID = 65
"""Points of a hit curve over cache / working set in [0, 1]."""


def hit_curve(popularity: Popularity, keys: float) -> Floats:
    """Hit rate of an LRU cache that holds the fraction x of the working set, x on GRID points.

    Uniform keys: x itself. Zipf: Che's approximation (Che, Tung, Wang, 2002) over at most 4,096
    classes of keys; the characteristic time solves sum(1 - exp(-p_i t)) = x * keys.

    Returns:
        (GRID,) hit rates, 0..1, rising.

    >>> hit_curve(Popularity(), 1e6)[32]
    np.float64(0.5)
    """
    x = np.linspace(0.0, 1.0, GRID)
    if popularity.form == "uniform" or popularity.exponent == 0:
        return x
    edges = np.unique(np.round(np.geomspace(1, keys + 1, 4096)))
    count = np.diff(edges)
    middle = np.sqrt(edges[:-1] * np.maximum(edges[1:] - 1, edges[:-1]))
    p = middle**-popularity.exponent
    p /= np.sum(p * count)
    log_t = np.linspace(-2, np.log(keys / p[-1] / keys) + 8, 2000)
    miss = np.exp(-np.outer(np.exp(log_t), p))
    held = ((1 - miss) @ count) / np.sum(count)
    hits = (1 - miss) @ (p * count)
    curve = np.interp(x, held, hits)
    curve[0], curve[-1] = 0.0, 1.0
    return np.asarray(np.maximum.accumulate(curve))


def write_factor(memtable_mib: float, penalty: float) -> float:
    """Cost of a write relative to one with a full MemTable; grows by `penalty` per halving.

    Returns:
        A factor, at least 1.

    >>> write_factor(32, 0.03), write_factor(64, 0.03)
    (1.03, 1.0)
    """
    if memtable_mib <= 0:
        return 1.0 + 4 * penalty
    return 1.0 + penalty * max(0.0, math.log2(FULL_MEMTABLE_MIB / min(memtable_mib, 64.0)))
