"""The subtasks of one metric side by side, each of them sampled at times of its own.

Prometheus spreads its scrapes over the interval, so subtasks on different TaskManagers share no
time: a row of `Samples.grid` holds those of one TaskManager. A sum or a mean over the subtasks
needs all of them at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.metrics.samples import SAMPLE_S, Samples

_MISSED = 2.5
"""Intervals between two samples of a subtask of which no more than one was missed."""

_ALONE = 0.95
"""Intervals next to a sample in which others are sampled before its subtask is again."""


def interval_between(times: Floats, values: Floats) -> float:
    """Compute the seconds between two samples of one subtask.

    Args:
        times: (T,) rising.
        values: (T, P) one column per subtask, NaN where it was not sampled.

    Returns:
        Their median over all subtasks; the interval of a recording where none has two samples.
    """
    gaps = [np.diff(times[np.isfinite(column)]) for column in values.T]
    gaps = [one for one in gaps if len(one)]
    return float(np.median(np.concatenate(gaps))) if gaps else float(SAMPLE_S)


def grid_of(samples: Samples, vertices: Sequence[str], metric: str) -> tuple[Floats, Floats]:
    """Return one metric of all subtasks of several vertices, NaN where missing.

    Returns:
        Times (T,) and values (T, P).
    """
    grids = [samples.grid(vertex, metric) for vertex in vertices]
    times = np.unique(np.concatenate([np.empty(0), *(at for at, _, _ in grids)]))
    parts = [np.empty((len(times), 0))]
    for at, subtasks, values in grids:
        part = np.full((len(times), len(subtasks)), np.nan)
        part[np.searchsorted(times, at)] = values
        parts.append(part)
    return times, np.concatenate(parts, axis=1)


def side_by_side(times: Floats, values: Floats) -> Floats:
    """Give every subtask a value at the times of all others.

    Args:
        times: (T,) rising.
        values: (T, P) one column per subtask, NaN where it was not sampled.

    Returns:
        (T, P): on the line between two samples of a subtask that are close; the nearest sample's
        value where its samples begin or end; NaN where it was not sampled for longer.
    """
    known = np.isfinite(values)
    if known.all():
        return values
    filled = values.copy()
    usual_s = interval_between(times, values)
    for column in np.flatnonzero(known.any(axis=0) & ~known.all(axis=0)).tolist():
        at, told = times[known[:, column]], values[known[:, column], column]
        place = np.searchsorted(at, times, side="right")
        before, after = np.maximum(place - 1, 0), np.minimum(place, len(at) - 1)
        close = (place > 0) & (place < len(at)) & (at[after] - at[before] <= _MISSED * usual_s)
        since_s, until_s = np.abs(times - at[before]), np.abs(at[after] - times)
        nearest = np.where(since_s <= until_s, told[before], told[after])
        near = np.minimum(since_s, until_s) < _ALONE * usual_s
        line = np.interp(times, at, told)
        filled[:, column] = np.where(close, line, np.where(near, nearest, np.nan))
    return filled


def newest(values: Floats) -> Floats:
    """Hold each subtask's value until its next sample.

    Args:
        values: (T, P) one column per subtask, NaN where it was not sampled.

    Returns:
        (T, P): NaN before a subtask's first sample.
    """
    if not values.size:
        return values
    rows = np.arange(len(values))[:, None]
    last = np.maximum.accumulate(np.where(np.isfinite(values), rows, -1), axis=0)
    held = np.take_along_axis(values, np.maximum(last, 0), axis=0)
    return np.where(last >= 0, held, np.nan)


def slowest(samples: Samples, vertices: Sequence[str]) -> tuple[Floats, Floats]:
    """Find the p95 latency of the slowest sink subtask.

    Returns:
        Times at which one was sampled (N,), and seconds (N,).
    """
    times, values = grid_of(samples, vertices, "latency_p95_ms")
    sampled = np.isfinite(values).any(axis=1)
    held = side_by_side(times, values)[sampled]
    highest = np.where(np.isfinite(held), held, -np.inf).max(axis=1, initial=-np.inf)
    return times[sampled], highest / 1000
