"""Minutes of training loads: drawn with the seeds of a split, or from laws of the load."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dsp_gym.arrays import Floats
from dsp_gym.experiments.agent import LawConfig
from dsp_gym.job.draw import Draw
from dsp_gym.loads.generate import CHOICE, minute_means, philox, rates
from dsp_gym.loads.sampler import LoadSampler
from dsp_gym.loads.splits import LoadSet
from dsp_gym.loads.template import filled
from dsp_gym.loads.traces import TraceLibrary


def training_minutes(
    loads: LoadSet,
    episode_s: int,
    draws: int,
    *,
    seed: int = 0,
    scale: tuple[float, float] = (1.0, 1.0),
    base_dir: str | Path | None = None,
) -> Iterator[Floats]:
    """Draw from the training split, load by load.

    Args:
        loads: The splits.
        episode_s: Length of each draw in seconds.
        draws: Number of draws per load; a split with fewer seeds yields each seed once.
        seed: Index of the block of the split's seeds; after the last block the first one follows.
        scale: Range that a draw is scaled by, log-uniform.
        base_dir: Folder that relative trace paths start from.

    Yields:
        (minutes,) means, as multiples of the reference rate.
    """
    sampler, (low, high) = LoadSampler(loads, base_dir), scale
    for place, row in enumerate(sampler.cells("train")):
        # Cells are taken in blocks of `draws`, so that seeds of training do not overlap.
        random = philox(seed, place, CHOICE)
        for i in range(min(draws, len(row))):
            cell = row[(seed * draws + i) % len(row)]
            factor = low * (high / low) ** random.random()
            yield factor * minute_means(sampler.rates(cell, episode_s))


def minutes_of(
    law: LawConfig,
    episode_s: int,
    draws: int,
    seed: int,
    place: int,
    base_dir: str | Path | None = None,
) -> Iterator[Floats]:
    """Draw loads of a law, each with parameters of its own.

    Args:
        law: The law.
        episode_s: Length of each draw in seconds.
        draws: Number of draws.
        seed: Seed of the training; other seeds draw other loads.
        place: Place of the law among all.
        base_dir: Folder that relative trace paths start from.

    Yields:
        (minutes,) means, as multiples of the reference rate.
    """
    traces = TraceLibrary(base_dir)
    for i in range(draws):
        # Above the seeds of every referee, which end at 2^48: none of their loads is counted.
        own = (1 << 63) | (seed << 32) | (place << 16) | i
        load = filled(law.load, Draw(own))
        yield minute_means(rates(load, seed=own, duration_s=episode_s, traces=traces))
