"""Equations 1 to 5 of Varga, Balassi, Kiss: "Towards autoscaling of Apache Flink jobs"."""

from __future__ import annotations

import numpy as np

from baselines.replicas import NOTHING, recommend
from dsp_gym.arrays import Floats, Ints
from dsp_gym.compiling import njit


@njit(cache=True, nogil=True)
def desired_replicas(
    current: int, lag_ratio: float, busy_ratio: float, tolerance: float, without: int = 0
) -> int:
    """Apply equation 1: the larger of ceil(current * metric / desired) over both metrics.

    As in Kubernetes, a missing metric is passed over when the other scales up, and keeps the
    replicas from being scaled down.

    >>> desired_replicas(4, -1.2, 1.5, 0.1), desired_replicas(4, 1.3, 0.5, 0.1)
    (6, 6)

    Args:
        current: Replicas.
        lag_ratio: Metric over desired value, of equation 4.
        busy_ratio: The same, of equation 5.
        tolerance: |ratio - 1| that is left alone.
        without: Replicas that have no metrics yet.

    Returns:
        Replicas; `NOTHING` where a metric is missing and the other does not scale up.
    """
    by_lag = recommend(current, lag_ratio, tolerance, without)
    by_busy = recommend(current, busy_ratio, tolerance, without)
    largest = max(by_lag, by_busy)
    # Kubernetes scales up on the metrics it has, and down only if it has all.
    missing = by_lag == NOTHING or by_busy == NOTHING
    return NOTHING if missing and largest < current else largest


@njit(cache=True, nogil=True)
def source_lag(
    pending: float, of_fullest: float, partitions_of_fullest: float, partitions: int
) -> float:
    """Apply equation 2 to one source: an upper bound of its backlog, records.

    The paper sums max lag * assigned partitions over subtasks, because Kafka's consumer shows only
    the largest lag of a subtask. Here the fullest subtask is known, so its lag per partition is
    taken for all partitions; the result is never below the sum itself, where that is known.

    >>> source_lag(float("nan"), 250_000.0, 5.0, 20)
    1000000.0

    Returns:
        Records.
    """
    if partitions > 0 and partitions_of_fullest > 0.0 and not np.isnan(of_fullest):
        # Partitions are taken to lag alike: the fullest subtask's mean for all of them.
        bound = of_fullest / partitions_of_fullest * partitions
        return bound if np.isnan(pending) else max(bound, pending)
    return pending


@njit(cache=True, nogil=True)
def relative_lag_change_rate(growth_per_s: float, rate_per_s: float) -> float:
    """Apply equation 3: 1 + deriv(totalLag) / totalRate.

    >>> relative_lag_change_rate(500.0, 1000.0)
    1.5

    Returns:
        The ratio; NaN where the sources read no records.
    """
    return 1.0 + growth_per_s / rate_per_s if rate_per_s > 0.0 else np.nan


@njit(cache=True, nogil=True)
def lag_metric(lag: float, threshold: float, relative: float) -> float:
    """Apply equation 4: equation 3 with its sign turned where the lag is not above the threshold.

    NaN (at the threshold, or without input below it) becomes zero in Prometheus' adapter, which
    does not keep the replicas up either.

    >>> lag_metric(200.0, 100.0, 1.5), lag_metric(50.0, 100.0, 1.0)
    (1.5, -1.0)

    Returns:
        The metric, negative to leave scaling down to utilisation.
    """
    if np.isnan(lag) or lag > threshold:
        # NaN is an unknown lag, which is a missing metric.
        return relative if lag > threshold else np.nan
    return 0.0 if lag == threshold or np.isnan(relative) else -relative


@njit(cache=True, nogil=True)
def utilization(idle_ms_per_s: Floats, tasks: Ints) -> float:
    """Apply equation 5: 1 - mean idle share over the tasks that count.

    Args:
        idle_ms_per_s: (V,) mean over a vertex's tasks.
        tasks: (V,) tasks that count; 0 for sources, if they do not.

    Returns:
        0..1; NaN without such tasks.
    """
    whole, weight = 0.0, 0
    for v in range(len(tasks)):
        if tasks[v] > 0:
            whole += idle_ms_per_s[v] * tasks[v]
            weight += tasks[v]
    return 1.0 - whole / weight / 1000.0 if weight > 0 else np.nan
