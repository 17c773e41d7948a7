"""Aggregates and bootstrap intervals for scores over loads and seeds.

After Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice",
NeurIPS 2021 (rliable): interquartile means, stratified bootstrap, probability of improvement.
Scores are arrays of shape (loads, seeds). Frontiers resample jobs and loads as weights, and
every policy gets the same ones (the pigeonhole bootstrap; Owen, Annals of Applied Statistics 2007),
so what makes a job or a load hard for everyone cancels; trainings are resampled, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field

from dsp_gym.arrays import Floats, Ints
from dsp_gym.config.model import ConfigModel

Array = Floats
Statistic = Callable[[Array], Array]
"""Reduces the last axis of an array."""

_TRIM = 0.25


class BootstrapEstimate(NamedTuple):
    """A value with its two-sided percentile interval."""

    value: float
    low: float
    high: float


class Difference(ConfigModel):
    """Mean of one policy minus mean of the reference, on the same loads and seeds."""

    estimate: float = Field(description="difference of means")
    low: float = Field(description="lower end of the two-sided interval")
    high: float = Field(description="upper end of the two-sided interval")
    lower: float = Field(description="one-sided: at least this")
    upper: float = Field(description="one-sided: at most this")


def mean(values: ArrayLike) -> Array:
    """Return the mean over the last axis.

    Returns:
        An array without the last axis; 0-d for one row of scores.
    """
    return np.asarray(np.mean(_checked(values), axis=-1))


def interquartile_mean(values: ArrayLike) -> Array:
    """Return the mean of the middle half over the last axis.

    A quarter of the scores, rounded down, is left out at each end, as rliable does.

    Returns:
        An array without the last axis; 0-d for one row of scores.

    >>> float(interquartile_mean([1, 2, 3, 4, 5, 6, 7, 1000]))
    4.5
    """
    scores = _checked(values)
    count = scores.shape[-1]
    cut = int(_TRIM * count)
    if cut:
        scores = np.partition(scores, (cut, count - cut - 1), axis=-1)
    return np.asarray(scores[..., cut : count - cut].mean(axis=-1))


def stratified_bootstrap(
    values: ArrayLike,
    statistic: Statistic = interquartile_mean,
    *,
    n: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> BootstrapEstimate:
    """Estimate a statistic over all scores, seeds resampled within each load.

    The loads are taken as given, their seeds as drawn at random (Agarwal et al., section 3).

    Args:
        values: Scores of shape (loads, seeds).
        statistic: What is estimated.
        n: Resamples; 2,000 puts the ends of a 95 % interval within about 3 % of its width.
        confidence: Share of intervals that hold the true value.
        seed: Seed of the resampling.

    Returns:
        The statistic with its interval.
    """
    scores = _checked(values, dimensions=2)
    drawn = _drawn("stratified", n, *scores.shape, seed)
    value = float(statistic(scores.reshape(-1)))
    return _estimate(value, statistic(scores.ravel()[drawn]), confidence)


def paired_difference(
    first: ArrayLike,
    second: ArrayLike,
    statistic: Statistic = mean,
    *,
    relative: bool = False,
    seeds: Literal["crossed", "nested"] = "crossed",
    n: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Difference:
    """Bootstrap of the difference of two policies that met the same loads.

    Loads and seeds are both resampled, and both policies get the same ones, so what makes a load
    hard for everyone cancels. Columns of one seed that mean the same in all loads, such as the
    training seed of a policy, are ``crossed``: whole columns are drawn (the pigeonhole bootstrap,
    Owen, Annals of Applied Statistics 2007). Seeds that differ by load are ``nested``.

    Args:
        first: Scores of shape (loads, seeds).
        second: The same, or (loads, 1) for a policy that has no seeds.
        statistic: Taken of each policy's resampled scores, before the difference.
        relative: Divide the difference by the second policy's statistic: -0.1 is 10 % less.
        seeds: How columns are resampled.
        n: Resamples.
        confidence: Of the two-sided interval, and of each one-sided bound.
        seed: Seed of the resampling.

    Returns:
        The difference first minus second, with its interval and one-sided bounds.
    """
    one, other = _checked(first, dimensions=2), _checked(second, dimensions=2)
    if one.shape[0] != other.shape[0]:
        raise ValueError(f"scores of {one.shape[0]} and {other.shape[0]} loads cannot be paired")
    shape = np.broadcast_shapes(one.shape, other.shape)
    one, other = np.broadcast_to(one, shape), np.broadcast_to(other, shape)
    drawn = _drawn(seeds, n, *shape, seed)

    def difference(a: Array, b: Array) -> Array:
        of_a, of_b = statistic(a), statistic(b)
        return (of_a - of_b) / of_b if relative else of_a - of_b

    draws = difference(one.ravel()[drawn], other.ravel()[drawn])
    ends = [(1 - confidence) / 2, (1 + confidence) / 2, 1 - confidence, confidence]
    low, high, lower, upper = _quantiles(draws, ends, confidence)
    return Difference(
        estimate=float(difference(one.reshape(-1), other.reshape(-1))),
        low=low,
        high=high,
        lower=lower,
        upper=upper,
    )


def ratio_of_means(
    part: ArrayLike, whole: ArrayLike, *, n: int = 2000, confidence: float = 0.95, seed: int = 0
) -> BootstrapEstimate:
    """Mean of one score over the mean of another, with its bootstrap interval.

    Loads are resampled and, within each, its seeds; both scores get the same ones.

    Args:
        part: Scores of shape (loads, seeds).
        whole: The same; its mean is not zero.
        n: Resamples.
        confidence: Of the interval.
        seed: Seed of the resampling.

    Returns:
        The ratio with its interval.
    """
    one, other = _checked(part, dimensions=2), _checked(whole, dimensions=2)
    drawn = _drawn("nested", n, *one.shape, seed).reshape(n, *one.shape)
    below = other.ravel()[drawn].mean(axis=(1, 2))
    draws = one.ravel()[drawn].mean(axis=(1, 2))[below != 0] / below[below != 0]
    return _estimate(float(one.mean() / other.mean()), draws, confidence)


@lru_cache(maxsize=4)
def _drawn(
    how: Literal["stratified", "crossed", "nested"], n: int, loads: int, columns: int, seed: int
) -> Ints:
    """Places of resampled scores in a flat table of loads and columns, (n, loads * columns).

    Kept, since every metric of every policy is resampled alike.

    Args:
        how: Stratified keeps the loads and draws a column within each; the others draw loads too,
            and either the same columns for all of them or others for each.
        n: Resamples.
        loads: Rows of the table.
        columns: Columns of the table.
        seed: Seed of the resampling.
    """
    stream = np.random.Generator(np.random.Philox(seed))
    rows: Ints = np.arange(loads)[:, None]
    if how != "stratified":
        rows = stream.integers(loads, size=(n, loads, 1))
    size = (n, 1, columns) if how == "crossed" else (n, loads, columns)
    places = (rows * columns + stream.integers(columns, size=size)).reshape(n, -1)
    places.flags.writeable = False
    return places


def _estimate(value: float, draws: Array, confidence: float) -> BootstrapEstimate:
    ends = [(1 - confidence) / 2, (1 + confidence) / 2]
    return BootstrapEstimate(value, *_quantiles(draws, ends, confidence))


def _quantiles(draws: Array, ends: list[float], confidence: float) -> list[float]:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence:g}, expected between 0 and 1")
    found: list[float] = np.quantile(draws, ends).tolist()
    return found


def _checked(values: ArrayLike, dimensions: int | None = None) -> Array:
    scores = np.asarray(values, dtype=np.float64)
    if scores.size == 0 or scores.ndim == 0 or dimensions not in (None, scores.ndim):
        expected = "(loads, seeds)" if dimensions == 2 else "(..., scores)"
        raise ValueError(f"scores have shape {scores.shape}, expected {expected}, not empty")
    if np.isnan(scores).any():
        raise ValueError("scores hold NaN: a run without a result must be left out, or named")
    return scores


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
        return cls(_weights(stream, jobs, n), _weights(stream, loads, n))

    @classmethod
    def of_clusters(
        cls, clusters: Sequence[str], strata: Sequence[str], n: int, seed: int = 0
    ) -> Resampling:
        """Resample clusters of runs that do not cross, such as all runs of a job.

        Clusters are drawn within their stratum, and a stratum keeps its share of the runs: what
        differs between resamplings is which jobs there are, not how many runs are of a kind.

        Args:
            clusters: The cluster of each run.
            strata: The stratum of each run; a cluster lies in one.
            n: Resamplings.
            seed: The same for every policy that is compared.

        Returns:
            Weights of the runs in place of jobs, and one load.
        """
        stream = np.random.Generator(np.random.Philox(seed))
        cluster, stratum = np.asarray(clusters), np.asarray(strata)
        found = np.empty((n + 1, len(cluster)))
        for name in dict.fromkeys(strata):
            rows = np.flatnonzero(stratum == name)
            _, of_row = np.unique(cluster[rows], return_inverse=True)
            weights = _weights(stream, int(of_row.max()) + 1, n)[:, of_row]
            share = len(rows) / len(cluster)
            found[:, rows] = share * weights / weights.sum(axis=1, keepdims=True)
        return cls(found, np.ones((n + 1, 1)))

    def trainings(self, count: int, seed: int = 1) -> Floats:
        """Resample trainings of one policy.

        Args:
            count: How many there are.
            seed: Apart from that of jobs and loads.

        Returns:
            (n + 1, trainings) weights; each row sums to 1.
        """
        stream = np.random.Generator(np.random.Philox(seed))
        return _weights(stream, count, len(self.jobs) - 1)


def _weights(stream: np.random.Generator, count: int, n: int) -> Floats:
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
    return _estimate(float(values[0]), draws, confidence)
