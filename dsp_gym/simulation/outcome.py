"""What happened over an interval: the truth, kept apart from what a collector sees."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dsp_gym.simulation.state import (
    LATENCY_BINS,
    LATENCY_MAX_S,
    LATENCY_MIN_S,
    O_LATENCY,
    O_SECONDS,
)

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """Truth over an interval, each (J,)."""

    seconds: Floats
    slo_s: Floats  # seconds whose p95 latency exceeds the bound, or in which the job is down
    down_s: Floats
    latency_p95_s: Floats  # mean over the seconds
    latency_max_s: Floats
    arrived: Floats  # records offered
    processed: Floats  # records taken from the log
    pending: Floats  # records in the log at the end
    pending_s: Floats  # the same in seconds of arrivals, at least a tenth of the reference rate
    core_s: Floats  # requested
    mib_s: Floats  # requested
    tm_s: Floats  # TaskManagers provisioned
    cost: Floats  # money, requested
    cost_provisioned: Floats  # money, whole TaskManagers
    rescales: Floats  # asked for in this interval
    failures: Floats

    @classmethod
    def of(cls, columns: Floats) -> Outcome:
        """From the kernel's columns, (J, OUTCOME_COLUMNS)."""
        values = list(columns.T)
        values[O_LATENCY] = values[O_LATENCY] / np.maximum(values[O_SECONDS], 1.0)
        return cls(*values)


def histogram_quantile(histogram: Floats, q: float) -> Floats:
    """Latency in seconds below which a share q of the time lies, from (J, LATENCY_BINS) counts.

    NaN where nothing was counted. Log-interpolated within a bin.
    """
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
