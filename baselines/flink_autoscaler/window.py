"""The metrics window: when it is full, which samples it drops, averages and rates over it."""

from __future__ import annotations

import numpy as np

from baselines.flink_autoscaler.state import (
    Window,
)
from dsp_gym.arrays import Floats, Ints
from dsp_gym.compiling import njit


@njit(cache=True, nogil=True, error_model="numpy")
def rate(ts_ms: Ints, values: Floats, v: int, m: int) -> float:
    """Compute the growth of metric m of vertex v between its first and its last known value.

    Returns:
        Growth per second; NaN with fewer than two values.
    """
    # A sample may lack a metric: skip missing values at both ends.
    first, last = 0, len(ts_ms) - 1
    while first < last and np.isnan(values[first, v, m]):
        first += 1
    while last > first and np.isnan(values[last, v, m]):
        last -= 1
    if first >= last:
        return np.nan
    grown = values[last, v, m] - values[first, v, m]
    # At least 1 ms, so that two samples of one instant give no division by zero.
    return float(1000.0 * grown / max(ts_ms[last] - ts_ms[first], 1))


@njit(cache=True, nogil=True, error_model="numpy")
def average(values: Floats, v: int, m: int, least: int) -> float:
    """Average the finite values of a metric.

    Returns:
        The mean; infinite if all known values are, NaN with fewer than `least`.
    """
    # Infinite values stand for "nothing came in": they count only where no finite one exists.
    total, n, infinite = 0.0, 0, False
    for i in range(len(values)):
        value = values[i, v, m]
        if np.isnan(value):
            continue
        if np.isinf(value):
            infinite = True
        else:
            total += value
            n += 1
    if n == 0:
        return np.inf if infinite else np.nan
    return total / n if n >= least else np.nan


@njit(cache=True, nogil=True, error_model="numpy")
def observed_rate(
    records_per_s: float,
    lag: float,
    backpressured_ms_per_s: float,
    lag_threshold_s: float,
    earlier: float,
) -> float:
    """Compute the observed true rate (OBSERVED_TPR) of a source at one sample.

    Only a source that catches up shows its true rate; otherwise the average of earlier observations
    is carried forward. No input gives an infinite rate, which allows a scale-down.

    Returns:
        Records/s.
    """
    if np.isnan(records_per_s):
        return np.nan
    # No input: an infinite rate lets the vertex scale down.
    if records_per_s == 0.0:
        return np.inf
    # A source behind its threshold runs at full speed but for backpressure: records/s over the time
    # it was not blocked (FLIP-271, observed true processing rate).
    if lag >= lag_threshold_s * records_per_s and backpressured_ms_per_s < 1000.0:
        return records_per_s / (1.0 - backpressured_ms_per_s / 1000.0)
    return earlier


@njit(cache=True, nogil=True)
def copy_rows(source: Floats, into: Floats) -> None:
    """Copy (N, M) numbers; an assignment of arrays takes numba seconds to compile."""
    for i in range(source.shape[0]):
        for m in range(source.shape[1]):
            into[i, m] = source[i, m]


@njit(cache=True, nogil=True)
def restarted(window: Window, j: int, running_ms: int) -> bool:
    """Empty the window of a job that has restarted since its first sample.

    Returns:
        Whether it did.
    """
    # Samples from before the restart describe other tasks.
    if window.size[j] > 0 and running_ms > window.ts_ms[j, 0]:
        window.size[j] = 0
        return True
    return False


@njit(cache=True, nogil=True)
def append(
    window: Window,
    j: int,
    now: int,
    running_ms: int,
    stabilization_ms: int,
    window_ms: int,
    vertex: Floats,
    job: Floats,
) -> bool:
    """Add a sample to a job's window.

    Samples taken while the job stabilises are kept and evaluated, but do not fill the window.

    Returns:
        True if the window is full; then older samples are dropped.
    """
    stable = running_ms + stabilization_ms
    full_at = now + window_ms
    count = window.size[j]
    # The window counts from the first sample after the stabilisation interval.
    for i in range(count):
        if window.ts_ms[j, i] >= stable:
            full_at = window.ts_ms[j, i] + window_ms
            break
    # A second sample of the same instant replaces the first.
    if count > 0 and window.ts_ms[j, count - 1] == now:
        count -= 1  # one sample per instant
    window.ts_ms[j, count] = now
    copy_rows(vertex, window.vertex[j, count])
    for m in range(job.shape[0]):
        window.job[j, count, 0, m] = job[m]
    count += 1
    window.size[j] = count
    if now < full_at:
        return False
    # Only a full window drops samples, so a job keeps all of a long stabilisation.
    drop = 0
    while drop < count and window.ts_ms[j, drop] < now - window_ms:
        drop += 1
    if drop > 0:
        for i in range(drop, count):
            window.ts_ms[j, i - drop] = window.ts_ms[j, i]
            copy_rows(window.vertex[j, i], window.vertex[j, i - drop])
            copy_rows(window.job[j, i], window.job[j, i - drop])
        window.size[j] = count - drop
    return True
