"""A Gaussian process over parallelism: processing ability as a smooth function of tasks.

Mean 0, covariance sigma_f^2 exp(-d^2 / (2 length^2)) over the distance d in tasks, and noise. The
mean of the process depends on the share of the noise, not on sigma_f; theirs, 1e-8 of 1e12, is
below the precision of float64, so that the process runs through what was observed. Their library
maximises the marginal likelihood in both parameters; for a given length sigma_f has a closed form,
which leaves a search over one number.
"""

from __future__ import annotations

import math

import numpy as np

from baselines.cholesky import factor, substitute
from dsp_gym.arrays import Floats
from dsp_gym.compiling import njit

NOISE = 1e-10
"""Variance of the noise over sigma_f^2: the least with which twenty observations can be solved."""

SHORTEST, LONGEST, LENGTHS = 0.5, 32.0, 25
"""Lengths that are tried, tasks: four to an octave."""

LEAST = 3
"""Observations from which on a length is fitted: two are explained by any."""


@njit(cache=True, nogil=True, borrows=True)
def correlation(distance: float, length: float) -> float:
    """Return the correlation of two parallelisms, 0..1, by their distance in tasks."""
    return math.exp(-0.5 * (distance / length) ** 2)


@njit(cache=True, nogil=True)
def weigh(at: Floats, ability: Floats, length: float) -> tuple[Floats, float]:
    """Weigh observations, so that the mean of the process is their sum by correlation.

    Args:
        at: (n,) different parallelisms.
        ability: (n,) records/s that each processes.
        length: Tasks over which the process is correlated.

    Returns:
        Weights (n,), and the logarithm of the marginal likelihood at the best sigma_f, up to a
        constant; minus infinity where the observations cannot be told apart at that length.
    """
    n = at.shape[0]
    system, weights = np.empty((n, n)), ability.copy()
    for i in range(n):
        for k in range(n):
            system[i, k] = correlation(at[i] - at[k], length)
        system[i, i] += NOISE
    if not factor(system):
        return weights, -np.inf
    substitute(system, weights)
    # log |K| / 2 is the sum of the logarithms of the factor's diagonal.
    fit = size = 0.0
    for i in range(n):
        fit += ability[i] * weights[i] / n
        size += math.log(system[i, i])
    if not fit > 0.0:
        return weights, -np.inf
    return weights, -0.5 * n * math.log(fit) - size


@njit(cache=True, nogil=True)
def fit_length(at: Floats, ability: Floats, given: float) -> float:
    """Fit the length of the process: the marginal likelihood decides between those tried.

    Args:
        at: (n,) different parallelisms.
        ability: (n,) records/s that each processes.
        given: The length of too few observations, tasks.

    Returns:
        The most likely length, tasks.
    """
    if at.shape[0] < LEAST:
        return given
    found, best = given, -np.inf
    for i in range(LENGTHS):
        length = SHORTEST * (LONGEST / SHORTEST) ** (i / (LENGTHS - 1))
        _, likelihood = weigh(at, ability, length)
        if likelihood > best:
            found, best = length, likelihood
    return found


@njit(cache=True, nogil=True, borrows=True)
def mean_at(tasks: float, at: Floats, weights: Floats, length: float) -> float:
    """Return the mean of the process at a parallelism, records/s."""
    mean = 0.0
    for i in range(at.shape[0]):
        mean += weights[i] * correlation(tasks - at[i], length)
    return mean
