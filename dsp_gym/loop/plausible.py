"""Metrics out of their range are no evidence.

A busy time of 50,000 ms/s or a negative backlog is a sign of a broken measurement, not of a large
load. Such a value becomes unknown. One of a vertex costs that vertex alone, as if it had not
reported the value (`dsp_gym.loop.lacking`): it gives up nothing, nor do the vertices downstream
whose demand is unknown with it. One of the job itself empties the metrics window, and the job keeps
the running configuration.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np

from dsp_gym.arrays import Bools, Floats
from dsp_gym.compiling import njit
from dsp_gym.loop.lacking import BACKLOG, FLOW
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

_CHECKED, _DOUBTED = "plausible", "doubted"

_LOAD = frozenset(
    ("records_in_total", "records_out_total", *FLOW, *BACKLOG, "pending_records_max_subtask")
)
"""Metrics of a vertex without which the demand of the vertices downstream is unknown."""


class Ranges(NamedTuple):
    """Least and greatest plausible value of every metric, in the order of a snapshot's blocks."""

    job: Floats  # (2, metrics of a job)
    vertex: Floats  # (2, metrics of a vertex)


class Doubted(NamedTuple):
    """What `plausible` removed from a snapshot of J jobs."""

    sentences: tuple[str, ...]  # a sentence per job, "" where nothing was removed
    jobs: Bools  # (J,) a value of the job itself
    vertices: Bools  # (J, V) a value of the vertex, or one that its demand follows from


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
        values are unknown, and the metrics windows empty where they are of the job itself; the same
        copy at every call.
    """
    known = snapshot.kept(_CHECKED)
    if known is not None:
        return cast(MetricsSnapshot, known)
    if not _is_doubtful(snapshot.arrays, _RANGES):
        return snapshot.keep(_CHECKED, snapshot)
    cleaned = _cleaned(snapshot)
    cleaned.keep(_CHECKED, cleaned)
    return snapshot.keep(_CHECKED, cleaned)


def doubted(snapshot: MetricsSnapshot) -> Doubted | None:
    """Return what `plausible` removed from a snapshot.

    Args:
        snapshot: J jobs, a result of `plausible`.

    Returns:
        Sentences, jobs and vertices; None where nothing was removed.
    """
    return cast("Doubted | None", snapshot.kept(_DOUBTED))


def doubts(snapshot: MetricsSnapshot) -> tuple[str, ...]:
    """Say which values of a snapshot `plausible` removed.

    Args:
        snapshot: J jobs, a result of `plausible`.

    Returns:
        A sentence per job, "" where nothing was removed; () where nothing was for any job.
    """
    found = doubted(snapshot)
    return () if found is None else found.sentences


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
    jobs: Bools = np.asarray(of_job.any(axis=0))
    job = np.where(of_job, np.nan, seen.job)
    job[JOB.window_fill, jobs] = 0.0
    arrays = SnapshotArrays(
        seen.status.copy(),
        seen.parallelism.copy(),
        seen.memory_level.copy(),
        job,
        np.where(of_vertex, np.nan, seen.vertex),
    )
    cleaned = snapshot_of_arrays(snapshot.topology, arrays)
    sentences = tuple(
        _sentence(snapshot, j, of_job[:, j], of_vertex[:, j])
        if of_job[:, j].any() or of_vertex[:, j].any()
        else ""
        for j in range(len(snapshot))
    )
    cleaned.keep(_DOUBTED, Doubted(sentences, jobs, _without_evidence(snapshot, of_vertex)))
    return cleaned


def _without_evidence(snapshot: MetricsSnapshot, of_vertex: Bools) -> Bools:
    """Flag the vertices with implausible values, and those downstream of an implausible load."""
    found: Bools = np.asarray(of_vertex.any(axis=0))
    is_load = np.array([name in _LOAD for name in VERTEX_FLOATS])
    for j in np.flatnonzero(found.any(axis=1)).tolist():
        sends = of_vertex[is_load, j].any(axis=0)
        upstream = snapshot.topology.tables.upstream[snapshot.topology.row[j]]
        for v, inputs in enumerate(upstream):  # in topological order
            sends[v] |= sends[inputs[inputs >= 0]].any()
        found[j] |= sends
    return found


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
