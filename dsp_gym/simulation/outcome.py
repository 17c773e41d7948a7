"""Outcomes and latency quantiles from the kernel's columns."""

from __future__ import annotations

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.compiling import njit
from dsp_gym.loop.outcome import Outcome
from dsp_gym.numba_handles import direct
from dsp_gym.simulation.state import LATENCY_BINS, LATENCY_MAX_S, LATENCY_MIN_S, OUTCOME


def simulated_outcome(columns: Floats) -> Outcome:
    """Return the outcome in the kernel's columns, (J, len(OUTCOME)), which it shares.

    Returns:
        The same as named quantities, each (J,).
    """
    _average(columns, 0, len(columns))
    return Outcome.of_columns(columns)


@direct
@njit(cache=True, nogil=True)
def _average(o: Floats, low: int, high: int) -> None:
    """Divide the sum of latencies of each of jobs low..high-1 by its seconds."""
    for j in range(low, high):
        o[j, OUTCOME.latency_p95_s] /= max(o[j, OUTCOME.seconds], 1.0)


def histogram_quantile(histogram: Floats, q: float) -> Floats:
    """Return the latency below which a share q of the time lies, from (J, LATENCY_BINS) counts.

    Log-interpolated within a bin, whose edges grow geometrically.

    Returns:
        (J,) seconds; NaN where nothing was counted.
    """
    # The edges of `latency_bin`.
    edges = np.geomspace(LATENCY_MIN_S, LATENCY_MAX_S, LATENCY_BINS + 1)
    cumulated = np.cumsum(histogram, axis=1)
    total = cumulated[:, -1]
    wanted = q * total
    index = np.minimum((cumulated < wanted[:, None]).sum(axis=1), LATENCY_BINS - 1)
    rows = np.arange(len(histogram))
    inside = np.maximum(histogram[rows, index], 1e-12)
    share = np.clip((wanted - (cumulated[rows, index] - inside)) / inside, 0.0, 1.0)
    value = edges[index] * (edges[index + 1] / edges[index]) ** share
    return np.where(total > 0, value, np.nan)
