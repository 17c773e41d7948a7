"""The draw of an episode, simulated or real: a seed, a load, and the job's differences."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.envs.config import EnvConfig
from dsp_gym.job import sizing
from dsp_gym.loads.sampler import LoadSampler
from dsp_gym.loads.splits import LoadSet, SplitName
from dsp_gym.loop.topology import Topology

MAX_KEPT_LOADS = 512
"""Most generated loads kept for reuse (an hour of seconds each; tens of MiB)."""


class Draws(NamedTuple):
    """The next episode of J jobs; rows that were not drawn hold neutral values."""

    seeds: Ints  # (J,)
    rates: Floats  # (J, episode_s) records/s
    factor: Floats  # (J,) scale of CPU times
    spread: Floats  # (J,) scale of the parallelism of a random start, 0.5 to 2
    levels: Ints  # (J,) memory level of a random start, to be taken modulo the job's levels
    late_price: Floats | None = None  # (J,) price of a late minute; None: unchanged
    job: Ints | None = None  # (J,) place of its job; None: unchanged
    skipped: Ints | None = None  # (J,) steps by which the episode is shorter; None: 0


class EpisodeSource:
    """Streams of episodes, one per job; episode n of a seed is the same wherever it is drawn.

    Args:
        topology: the jobs.
        loads: the loads of the episodes.
        split: part of the loads.
        config: episode length and differences between episodes.
        base_dir: folder in which relative trace paths start.
        compression: seconds of the load that pass in one second of the episode.
    """

    def __init__(
        self,
        topology: Topology,
        loads: LoadSet,
        split: SplitName,
        config: EnvConfig,
        base_dir: str | Path | None = None,
        compression: float = 1.0,
    ) -> None:
        self.sampler = LoadSampler(loads, base_dir)
        self.split: SplitName = split
        self.config = config
        self.compression = compression
        self._topology = topology
        self.job_odds: Floats | None = None
        """Odds of each job in episodes, (jobs,), with `randomise.job`; None: all equal."""
        self.base_seeds: Ints = np.zeros(len(topology), np.int64)
        self.episodes: Ints = np.zeros(len(topology), np.int64)
        self.labels: list[str] = [""] * len(topology)
        self._loads: dict[tuple[str, int], Floats] = {}

    def seed(self, seeds: Ints, mask: Bools | None = None) -> None:
        """Begin new streams, or those where the mask is True."""
        rows = np.ones(len(self.base_seeds), dtype=bool) if mask is None else mask
        self.base_seeds[rows] = np.asarray(seeds, dtype=np.int64)[rows]
        self.episodes[rows] = 0

    def draw(self, rows: Ints) -> Draws:
        """Draw the next episode of some of the jobs.

        Returns:
            Seeds, loads and scales of all J jobs; neutral values for the others.
        """
        # Rows that are not drawn keep 0 as seed.
        seeds = np.zeros(len(self.base_seeds), np.int64)
        for j in rows:
            seeds[j] = episode_seed(int(self.base_seeds[j]), int(self.episodes[j]))
        first = self.episodes == 0
        self.episodes[rows] += 1
        drawn = self.drawn(seeds, rows)
        if drawn.skipped is not None:
            drawn.skipped[~first] = 0
        return drawn

    def drawn(self, seeds: Ints, rows: Ints) -> Draws:
        """Draw the episodes of given seeds (J,), of some of the jobs.

        Returns:
            The draws of all J jobs; rows that were not asked for hold neutral values.
        """
        jobs, ranges = len(self.base_seeds), self.config.randomise
        drawn = Draws(
            seeds,
            np.zeros((jobs, self.config.episode_s)),
            np.ones(jobs),
            np.ones(jobs),
            np.full(jobs, -1, np.int64),
            None if ranges.late_price is None else np.ones(jobs),
            self._topology.row.copy() if ranges.job else None,
            np.zeros(jobs, np.int64) if ranges.stagger else None,
        )
        for j in rows:
            draw = np.random.Generator(np.random.Philox(key=int(drawn.seeds[j])))
            # The order of draws is fixed: a new kind of difference is drawn in `_vary`, after
            # these, so that old seeds give the same episodes.
            drawn.factor[j] = _log_uniform(draw.random(), ranges.service_factor)
            scale = _log_uniform(draw.random(), ranges.load_scale)
            drawn.spread[j] = 2.0 ** (2 * draw.random() - 1)
            drawn.levels[j] = draw.integers(0, 8)
            multipliers, self.labels[j] = self._load(int(draw.integers(0, 2**31)))
            self._vary(draw, drawn, j)
            if ranges.load_start == "any":
                multipliers = np.roll(multipliers, -int(draw.integers(0, len(multipliers))))
            k = self._topology.row[j] if drawn.job is None else drawn.job[j]
            per_s = scale * self._topology.tables.rate_per_s[k]
            np.multiply(multipliers, per_s, out=drawn.rates[j])
        return drawn

    def _vary(self, draw: np.random.Generator, drawn: Draws, j: int) -> None:
        """Draw the differences that only some environments have, after those of all."""
        ranges, config = self.config.randomise, self.config
        if ranges.late_price is not None and drawn.late_price is not None:
            drawn.late_price[j] = _log_uniform(draw.random(), ranges.late_price)
        if drawn.job is not None:
            drawn.job[j] = self._job(draw)
        if drawn.skipped is not None:
            drawn.skipped[j] = draw.integers(0, config.episode_s // config.interval_s)

    def _job(self, draw: np.random.Generator) -> int:
        jobs = len(self._topology.specs)
        # The odds are set by a training that prefers some jobs.
        if self.job_odds is None:
            return int(draw.integers(0, jobs))
        drawn = np.searchsorted(np.cumsum(self.job_odds), draw.random(), "right")
        return min(int(drawn), jobs - 1)

    def _load(self, index: int) -> tuple[Floats, str]:
        """Return the multipliers of a draw, kept for the next draw of the same cell."""
        # Cells repeat across episodes, so their loads are generated once.
        cell = self.sampler.draw(self.split, index)
        key = (cell.name, cell.seed)
        kept = self._loads.get(key)
        if kept is None:
            length_s = self.config.episode_s * self.compression
            kept = self.sampler.rates(cell, length_s, self.compression)[: self.config.episode_s]
            if len(self._loads) < MAX_KEPT_LOADS:
                self._loads[key] = kept
        return kept, cell.label


def start_configuration(
    topology: Topology, config: EnvConfig, drawn: Draws, rows: Ints
) -> tuple[Ints, Ints]:
    """Choose the configuration that episodes begin with.

    Returns:
        Parallelism and memory level, (J, V) each.
    """
    tables, row, how = topology.tables, topology.row, config.start
    level = tables.start_level[row].copy()
    parallelism = tables.start_parallelism[row].copy()
    if how == "random":
        random_level = (drawn.levels % tables.levels[row])[:, None]
        level = np.where(tables.stateful[row] == 1, random_level, level)
    if how != "job":
        # The mean of the first interval, since a single second is noisy.
        first = drawn.rates[:, : config.interval_s].mean(axis=1)
        parallelism[rows] = sizing.sized(
            tables, row[rows], first[rows], config.start_headroom, drawn.factor[rows], level[rows]
        )
    if how == "random":
        spread = drawn.spread[:, None]
        parallelism = np.maximum(1, np.rint(parallelism * spread)).astype(np.int64)
    return parallelism, level


def episode_seed(seed: int, episode: int) -> int:
    """Hash a base seed and the number of the episode to 63 bits (SplitMix64).

    Returns:
        A seed from 0 to 2^63 - 1.
    """
    z = (seed * 0x9E3779B97F4A7C15 + (episode + 1) * 0xD1B54A32D192ED03) & (2**64 - 1)
    # Steele, Lea and Flood, 2014: the finalizer's constants; neighbouring seeds become unrelated.
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
    return (z ^ (z >> 31)) >> 1


def _log_uniform(u: float, bounds: tuple[float, float]) -> float:
    low, high = bounds
    return float(low * (high / low) ** u)
