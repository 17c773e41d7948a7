"""Hit rate of the block cache, and the cost of writes with a small MemTable.

RocksDB caches blocks, and keys lie in them at random, whatever their popularity. Che's
approximation (Che, Tung, Wang, 2002) of an LRU cache says: a block of access rate r is cached with
probability 1 - exp(-r T), where the characteristic time T follows from the cache's size. With n
random keys to a block the sum over blocks has a closed form: their Laplace transform is the n-th
power of a key's, so

    occupied(T) = 1 - phi(T)^n                        share of the blocks that are cached
    hit(T)      = 1 - phi(T)^(n-1) psi(T) / psi(0)    share of the lookups that hit

with phi(T) = E exp(-wT) and psi(T) = E w exp(-wT) over the popularity w of a key.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.job.memory import FULL_MEMTABLE_MIB
from dsp_gym.job.spec import Popularity, State

HALF_GRID = 64
"""Points of a hit curve up to cache / working set = 1."""
GRID = 2 * HALF_GRID + 1
"""Points of a hit curve, dense where the cache is small, up to 4 working sets."""
CURVE_X = (np.arange(GRID) / HALF_GRID) ** 2
"""(GRID,) cache / working set at the points of a hit curve."""

KEY_CLASSES = 256
"""Number of classes that group keys of similar popularity."""
TIMES = 384
"""Number of characteristic times, between which a curve is linear."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Content of a cache of blocks, and how lookups use it.

    The state is a log-structured merge tree: a read looks into its upper levels, which are small,
    before it finds its key in the last one. Without Bloom filters (Flink's default) each level
    costs a block; every data block is found through an index block.
    """

    popularity: Popularity
    keys: float  # distinct, for the law of popularity
    keys_per_block: float = 1.0
    upper_lookups: float = 0.0  # data blocks of upper levels beside each one of the last level
    level_ratio: float = 10.0  # bytes of the last level over those of all above
    index_lookups: float = 0.0  # index and filter blocks beside each data block
    index_share: float = 0.0  # their bytes over those of the data
    cold: float = 0.0  # share of lookups of blocks that were never read: flushed, compacted

    @classmethod
    def of_state(cls, state: State) -> Blocks:
        """Build the blocks of a vertex's state as its job file describes them.

        Returns:
            Keys per block from the entry's size, and the tree's form. Churn is left out: the share
            that a job file gives is of the hits.
        """
        return cls(
            state.popularity,
            state.keys,
            max(1.0, state.block_bytes / (state.value_bytes * state.space_factor)),
            state.upper_lookups,
            state.level_ratio,
            state.index_hits,
            state.index_share,
        )


@dataclass(frozen=True, slots=True)
class LruCurve:
    """Hit rates of an LRU cache over its size."""

    size: Floats  # (T,) cache / working set of data blocks, rising from 0
    data: Floats  # (T,) share of data block lookups that hit, cold ones included
    index: Floats  # (T,) share of index block lookups that hit

    def overall(self, blocks: Blocks) -> Floats:
        """Return the hit rate over data and index blocks, as RocksDB's tickers count it.

        Returns:
            (T,) hit rates.
        """
        # One lookup of a data block comes with i lookups of index and filter blocks.
        i = blocks.index_lookups
        return (self.data + i * self.index) / (1.0 + i)


def hit_curve(blocks: Blocks) -> Floats:
    """Return the hit rate of data blocks on the points `CURVE_X`, of the lookups that are not cold.

    Returns:
        (GRID,) hit rates, 0..1, rising.

    >>> bool(hit_curve(Blocks(Popularity(), 1e6))[32] == 0.25)  # uniform: the cached share
    True
    """
    # Uniform popularity and one level need no approximation: the cached share is the hit rate.
    plain = blocks.popularity.form == "uniform" or blocks.popularity.exponent == 0
    if plain and not (blocks.upper_lookups or blocks.index_share or blocks.cold):
        return np.minimum(CURVE_X, 1.0)
    return _lru_hit_curve(blocks).copy()


@lru_cache(maxsize=8192)  # a graph is drawn by its costs, and compiled again where it runs
def _lru_hit_curve(blocks: Blocks) -> Floats:
    found = lru_curve(blocks)
    curve = np.interp(CURVE_X, found.size, found.data) / (1.0 - blocks.cold)
    # The grid ends beyond the last characteristic time; rounding must not let the curve fall.
    curve[0], curve[-1] = 0.0, 1.0
    return np.asarray(np.maximum.accumulate(np.minimum(curve, 1.0)))


def lru_curve(blocks: Blocks) -> LruCurve:
    """Apply Che's approximation to the levels of a tree, its index blocks and its cold blocks.

    Cold blocks are read once and take their space until they are the oldest. Index blocks are
    uniform. A level's popularity is that of its keys.

    Returns:
        Hit rates at rising characteristic times; the first is 0.
    """
    # `upper` is the share of lookups in upper levels, `small` their share of the bytes.
    law = _Law.of(blocks)
    upper = blocks.upper_lookups / (1.0 + blocks.upper_lookups)
    small = 1.0 / (1.0 + blocks.level_ratio)
    levels = [(1.0, 1.0)] if upper == 0 else [(1.0 - upper, 1.0 - small), (upper, small)]
    # Time in data lookups over data blocks: a block of mean popularity is looked up once in 1.
    t = law.time
    occupied, hit = blocks.cold * t, np.zeros(len(t))
    for lookups, size in levels:
        warm = lookups * (1.0 - blocks.cold)
        occupied += size * np.interp(t * warm / size, t, law.cached)
        hit += warm * np.interp(t * warm / size, t, law.hits)
    index = np.ones(len(t))
    if blocks.index_share > 0:
        index = -np.expm1(-t * blocks.index_lookups / blocks.index_share)
        occupied += blocks.index_share * index
    index[0] = 0.0
    return LruCurve(occupied, hit, index)


def level0_hit_curve(
    blocks: Blocks, files: float, memtable_over_cache: float, reads_per_write: float = 1.0
) -> Floats:
    """Return the hit rate of data blocks on `CURVE_X` while compactions replace the blocks.

    Level 0 shares the cache with the level below, which is the state. Its size and its lookups
    (`service.level0_lookups`) follow from MemTable over state, and that ratio from the cache's size
    and the point of the curve. A compaction replaces every block: the new ones are cold, the old
    ones stay until they are the oldest. `upper_lookups`, index blocks and `cold` are left out.

    Args:
        blocks: the state's blocks.
        files: number of level-0 files that starts a compaction.
        memtable_over_cache: size of a MemTable when it is flushed, over the block cache.
        reads_per_write: state reads for one write.

    Returns:
        (GRID,) hit rates of all lookups, 0..1.
    """
    plain = Blocks(blocks.popularity, blocks.keys, blocks.keys_per_block)
    reads = max(reads_per_write, 1e-9)
    return _level0_hit_curve(plain, files, memtable_over_cache, reads).copy()


@lru_cache(maxsize=64)  # a job's levels and the steps of a fit share it
def _level0_hit_curve(
    blocks: Blocks, files: float, memtable_over_cache: float, reads_per_write: float
) -> Floats:
    law = _Law.of(blocks)
    # u = flushed MemTable / state at each point of the curve. `below` is the share of reads that
    # find their key in no level-0 file, `above` the lookups per read in level 0 (both as in
    # `level0_lookups`).
    u = np.maximum(CURVE_X * memtable_over_cache, 1e-6)
    below = np.exp(-0.5 * (files - 1.0) * u)
    above = (1.0 - below) / -np.expm1(-u)
    level0 = -0.5 * (files - 1.0) * np.expm1(-u)  # its size over the state's
    # Times are in reads over blocks of the state; reads that a MemTable serves do not count.
    lasts = files * blocks.keys_per_block * reads_per_write * -np.expm1(-u)
    # Of each level: its lookups per block, its size over the state's, and how long a block lives
    # until a compaction replaces it (level-0 files on average half as long).
    shares = ((below, 1.0, lasts), (above / level0, level0, 0.5 * lasts))
    low, high = np.full(GRID, -16.0), np.full(GRID, 16.0)
    for _ in range(40):  # bisect the logarithm of the characteristic time
        middle = 0.5 * (low + high)
        t = np.exp(middle)
        occupied = sum(size * law.occupied(rate * t, rate * life) for rate, size, life in shares)
        fits = occupied < CURVE_X
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    t = np.exp(low)
    hits = sum(rate * size * law.hit(rate * t, rate * life) for rate, size, life in shares)
    curve = np.asarray(hits / (below + above))
    curve[0] = 0.0
    return curve


@dataclass(frozen=True, slots=True)
class _Law:
    """Shares of a level over time, in lookups of a block of mean popularity."""

    time: Floats  # (T,) from 0
    cached: Floats  # (T,) share of blocks looked up within the time
    hits: Floats  # (T,) share of lookups whose block was looked up within the time before
    cached_sum: Floats  # (T,) integral of `cached`
    hits_sum: Floats  # (T,) integral of `hits`

    @classmethod
    def of(cls, blocks: Blocks) -> _Law:
        share, weight = _keys(blocks)
        n = blocks.keys_per_block
        # The rarest key and the most popular one bound the times at which the shares change.
        t = np.geomspace(1e-4 / float(weight.max()), 1e4 / min(1.0, float(weight.min())), TIMES)
        t = np.r_[0.0, t]
        decay = np.exp(-np.outer(t / n, weight))
        phi, psi = decay @ share, decay @ (share * weight)
        cached, hits = 1.0 - phi**n, 1.0 - phi ** (n - 1.0) * psi
        return cls(t, cached, hits, _integral(t, cached), _integral(t, hits))

    def occupied(self, time: Floats, life: Floats) -> Floats:
        """Return the blocks in the cache over the blocks of the level, replaced ones included."""
        young = np.minimum(time, life)  # the age of a block is uniform up to its life
        alive = self._at(young, self.cached) * (1.0 - young / life)
        alive += self._at(young, self.cached_sum) / life
        replaced = self._at(young, self.cached_sum)
        replaced += (time - young) * self._at(life, self.cached)
        return np.asarray(alive + replaced / life)

    def hit(self, time: Floats, life: Floats) -> Floats:
        """Return the share of lookups that find their block in the cache."""
        # A block younger than the characteristic time can be hit only by a lookup during its life.
        young = np.minimum(time, life)
        old_enough = self._at(young, self.hits) * (1.0 - young / life)
        return np.asarray(old_enough + self._at(young, self.hits_sum) / life)

    def _at(self, time: Floats, values: Floats) -> Floats:
        return np.asarray(np.interp(time, self.time, values))


def _integral(time: Floats, values: Floats) -> Floats:
    """Integrate by trapezoids from the first point on."""
    return np.asarray(np.r_[0.0, np.cumsum(0.5 * np.diff(time) * (values[1:] + values[:-1]))])


def _keys(blocks: Blocks) -> tuple[Floats, Floats]:
    """Classify keys: (classes,) share of the keys, and (classes,) popularity over the mean."""
    law = blocks.popularity
    if law.form == "uniform" or law.exponent == 0:
        return np.ones(1), np.ones(1)
    # Classes widen geometrically with the rank of a key, since popularity falls as a power of it;
    # each is weighed by the popularity at its geometric middle.
    edges = np.unique(np.round(np.geomspace(1, blocks.keys + 1, KEY_CLASSES)))
    count = np.diff(edges)
    middle = np.sqrt(edges[:-1] * np.maximum(edges[1:] - 1, edges[:-1]))
    weight = middle**-law.exponent
    share = count / np.sum(count)
    return share, weight / np.sum(share * weight)


def write_factor(memtable_mib: float, penalty: float) -> float:
    """Return the cost of a write over one with a full MemTable; it grows by `penalty` per halving.

    Returns:
        A factor, at least 1.

    >>> write_factor(32, 0.03), write_factor(64, 0.03)
    (1.03, 1.0)
    """
    if memtable_mib <= 0:
        # Without managed memory: as a MemTable of a sixteenth of the full size.
        return 1.0 + 4 * penalty
    return 1.0 + penalty * max(0.0, math.log2(FULL_MEMTABLE_MIB / min(memtable_mib, 64.0)))
