"""Resampled runs: jobs, loads and trainings as weights, and the intervals that follow.

Jobs and loads are both resampled, and every policy gets the same ones (the pigeonhole bootstrap;
Owen, Annals of Applied Statistics 2007), so what makes a job or a load hard for everyone cancels.
Trainings of a learned policy are resampled too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Floats

__all__ = ["BootstrapEstimate", "Resampling", "estimate_of"]


class BootstrapEstimate(NamedTuple):
    """A value with its interval."""

    value: float
    low: float
    high: float


class Resampling(NamedTuple):
    """Resampled runs as weights; the first row is the runs as they are."""

    jobs: Floats  # (n + 1, jobs), each row sums to 1
    loads: Floats  # (n + 1, loads), likewise

    @classmethod
    def of(cls, jobs: int, loads: int, n: int, seed: int = 0) -> Resampling:
        """Resample jobs and loads, each by itself.

        Args:
            jobs: How many there are.
            loads: How many there are.
            n: Resamplings.
            seed: The same for every policy that is compared.

        Returns:
            n + 1 rows of weights each.
        """
        stream = np.random.Generator(np.random.Philox(seed))

        def weights(count: int) -> Floats:
            drawn = stream.multinomial(count, np.full(count, 1 / count), size=n)
            return np.vstack([np.ones(count), drawn]) / count

        return cls(weights(jobs), weights(loads))

    def trainings(self, count: int, seed: int = 1) -> Floats:
        """Resample trainings of one policy.

        Args:
            count: How many there are.
            seed: Apart from that of jobs and loads.

        Returns:
            (n + 1, trainings) weights; each row sums to 1.
        """
        n = len(self.jobs) - 1
        stream = np.random.Generator(np.random.Philox(seed))
        drawn = stream.multinomial(count, np.full(count, 1 / count), size=n)
        return np.asarray(np.vstack([np.ones(count), drawn]) / count)


def estimate_of(values: Floats | None, confidence: float) -> BootstrapEstimate | None:
    """Read an interval off resampled values.

    Args:
        values: (n + 1,) the value of the runs as they are, then of each resampling; NaN where one
            has none.
        confidence: Of the interval, 0..1.

    Returns:
        The value and its interval; None where there is no value.
    """
    if values is None or not np.isfinite(values[0]):
        return None
    draws = values[1:][np.isfinite(values[1:])]
    if not len(draws):
        return None
    low, high = np.quantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2])
    return BootstrapEstimate(float(values[0]), float(low), float(high))
