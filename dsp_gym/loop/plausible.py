"""Metrics out of their range are no evidence.

A busy time of 50,000 ms/s or a negative backlog is a sign of a broken measurement, not of a large
load. Such values become unknown, the metrics window of their job counts as empty, and a turn of the
loop keeps the running configuration.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np

from dsp_gym.arrays import Bools, Floats
from dsp_gym.compiling import njit
from dsp_gym.loop.snapshot import (
    JOB,
    JOB_FLOATS,
    SNAPSHOT_METRICS,
    VERTEX,
    VERTEX_FLOATS,
    MetricsSnapshot,
    SnapshotArrays,
    snapshot_of_arrays,
)
from dsp_gym.numba_handles import direct

_SLACK, _ROUNDING = 0.05, 1e-3
"""Tolerance beyond a range, as a share of it, and beyond a single bound.

Clocks of scrapes differ, and a rate is a difference of large sums.
"""

_NAMED = 3
"""Most metrics that a sentence names."""

_CHECKED, _DOUBTS = "plausible", "doubts"


class Ranges(NamedTuple):
    """Least and greatest plausible value of every metric, in the order of a snapshot's blocks."""

    job: Floats  # (2, metrics of a job)
    vertex: Floats  # (2, metrics of a vertex)


_COLUMNS = {name: column for name, _, column in SNAPSHOT_METRICS}


def _ranges(names: tuple[str, ...]) -> Floats:
    """Return the accepted range of some metrics, (2, n); infinite values are never accepted."""
    # Ranges come from the table of metrics; a range with two ends has a tolerance in proportion.
    limits = np.array([(_COLUMNS[name].least, _COLUMNS[name].most) for name in names]).T
    slack = np.where(np.isfinite(limits).all(axis=0), _SLACK * (limits[1] - limits[0]), _ROUNDING)
    most = np.finfo(np.float64).max
    return np.asarray(np.clip(limits + np.stack([-slack, slack]), -most, most))


_RANGES = Ranges(_ranges(JOB_FLOATS), _ranges(VERTEX_FLOATS))


def plausible(snapshot: MetricsSnapshot) -> MetricsSnapshot:
    """Return the snapshot without implausible values.

    Args:
        snapshot: J jobs.

    Returns:
        The snapshot itself where every value is within its range. Otherwise a copy in which other
        values are unknown, and the metrics windows of their jobs are empty; the same copy at every
        call.
    """
    known = snapshot.kept(_CHECKED)
    if known is not None:
        return cast(MetricsSnapshot, known)
    if not _is_doubtful(snapshot.arrays, _RANGES):
        return snapshot.keep(_CHECKED, snapshot)
    cleaned = _cleaned(snapshot)
    cleaned.keep(_CHECKED, cleaned)
    return snapshot.keep(_CHECKED, cleaned)


def doubts(snapshot: MetricsSnapshot) -> tuple[str, ...]:
    """Say which values of a snapshot `plausible` removed.

    Args:
        snapshot: J jobs, a result of `plausible`.

    Returns:
        A sentence per job, "" where nothing was removed; () where nothing was for any job.
    """
    return cast("tuple[str, ...]", snapshot.kept(_DOUBTS) or ())


@direct
@njit(cache=True, nogil=True)
def _is_doubtful(seen: SnapshotArrays, ranges: Ranges) -> bool:
    """Return whether any value of any job is out of its range; unknown values are not."""
    for m in range(seen.job.shape[0]):
        least, most = ranges.job[0, m], ranges.job[1, m]
        for j in range(seen.job.shape[1]):
            # Comparisons with NaN are False, so unknown values pass.
            if seen.job[m, j] < least or seen.job[m, j] > most:
                return True
    for m in range(seen.vertex.shape[0]):
        least, most = ranges.vertex[0, m], ranges.vertex[1, m]
        for j in range(seen.vertex.shape[1]):
            for v in range(seen.vertex.shape[2]):
                if seen.vertex[m, j, v] < least or seen.vertex[m, j, v] > most:
                    return True
    # This metric is summed over subtasks, so its range grows with them.
    each = ranges.vertex[1, VERTEX.busy_ms_per_s]
    summed = seen.vertex[VERTEX.busy_accumulated_ms_per_s]
    for j in range(summed.shape[0]):
        for v in range(summed.shape[1]):
            if summed[j, v] > each * max(1, seen.parallelism[j, v]):
                return True
    return False


def _cleaned(snapshot: MetricsSnapshot) -> MetricsSnapshot:
    """Copy a snapshot with values out of their range unknown."""
    seen = snapshot.arrays
    least, most = _RANGES.job[:, :, None]
    of_job: Bools = (seen.job < least) | (seen.job > most)
    lowest, highest = _RANGES.vertex[:, :, None, None]
    of_vertex: Bools = (seen.vertex < lowest) | (seen.vertex > highest)
    summed = VERTEX.busy_accumulated_ms_per_s
    each = float(_RANGES.vertex[1, VERTEX.busy_ms_per_s])
    of_vertex[summed] |= seen.vertex[summed] > each * np.maximum(1, seen.parallelism)
    # A job with any such value loses its window, so that guardrails hold it.
    doubted: Bools = np.asarray(of_job.any(axis=0) | of_vertex.any(axis=(0, 2)))
    job = np.where(of_job, np.nan, seen.job)
    job[JOB.window_fill, doubted] = 0.0
    arrays = SnapshotArrays(
        seen.status.copy(),
        seen.parallelism.copy(),
        seen.memory_level.copy(),
        job,
        np.where(of_vertex, np.nan, seen.vertex),
    )
    cleaned = snapshot_of_arrays(snapshot.topology, arrays)
    words = tuple(
        _sentence(snapshot, j, of_job[:, j], of_vertex[:, j]) if doubted[j] else ""
        for j in range(len(snapshot))
    )
    cleaned.keep(_DOUBTS, words)
    return cleaned


def _sentence(snapshot: MetricsSnapshot, j: int, of_job: Bools, of_vertex: Bools) -> str:
    """Name the implausible values of a job; flags by metric, and by metric and vertex."""
    seen, names = snapshot.arrays, snapshot.topology.names(j)
    found = [_told(JOB_FLOATS[m], "", seen.job[m, j]) for m in np.flatnonzero(of_job)]
    found += [
        _told(VERTEX_FLOATS[m], f" of '{names[v]}'", seen.vertex[m, j, v])
        for m, v in np.argwhere(of_vertex)
        if v < len(names)
    ]
    more = f", and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return f"metrics out of their range are no evidence: {'; '.join(found[:_NAMED])}{more}"


def _told(name: str, whose: str, value: float) -> str:
    """Name one implausible value, and the plausible range."""
    column = _COLUMNS[name]
    if np.isinf(column.least) and np.isinf(column.most):
        expected = "a finite number"
    elif np.isinf(column.most):
        expected = f"{column.least:g} or more"
    else:
        expected = f"{column.least:g} to {column.most:,g}"
    return f"{name}{whose} is {value:,g}, expected {expected}"
