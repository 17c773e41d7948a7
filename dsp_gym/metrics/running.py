"""Undisturbed runs of a job and their tasks, as its samples show them.

Metrics contain no events: a restart shows in falling counters, a rescale in other subtasks, and an
outage or a failed scrape in missing ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from dsp_gym.arrays import Floats, Ints
from dsp_gym.job.spec import JobSpec
from dsp_gym.metrics.columns import interval_between
from dsp_gym.metrics.samples import SAMPLE_S, Samples

_COUNTED = "records_out_total"
"""A counter that every task has, and that starts at zero with the task."""
_LEAST_CELLS = 2
"""Cells below which a configuration is only a scrape that a rescale fell into."""


@dataclass(frozen=True, slots=True)
class RunningTime:
    """A time in which one set of tasks ran without a restart or a gap."""

    since_s: float
    until_s: float
    parallelism: Mapping[str, int]  # by vertex of the job file
    restarted: bool = False  # whether counters restarted since the run before


def interval_of(samples: Samples) -> float:
    """Return the seconds between two samples of one subtask.

    Returns:
        Their median; the interval of a recording where there are too few samples.
    """
    for vertex in samples.vertices():
        times, _, values = samples.grid(vertex, _COUNTED)
        if (np.isfinite(values).sum(axis=0) > 1).any():
            return interval_between(times, values)
    return float(SAMPLE_S)


Counts = Mapping[tuple[str, int], float]
"""By vertex and subtask, what its task had counted."""


def last_counts(spec: JobSpec, samples: Samples) -> dict[tuple[str, int], float]:
    """What every subtask had counted at its last sample.

    Returns:
        By vertex and subtask; those that never reported are not in it.
    """
    found = {}
    for vertex in spec.vertices:
        _, subtasks, values = samples.grid(vertex.name, _COUNTED)
        for subtask, column in zip(subtasks.tolist(), values.T, strict=True):
            known = column[np.isfinite(column)]
            if len(known):
                found[vertex.name, subtask] = float(known[-1])
    return found


def running_in(
    spec: JobSpec, samples: Samples, before: Counts = MappingProxyType({})
) -> list[RunningTime]:
    """Cut samples where the job was restarted, rescaled, down or not scraped.

    Time is divided into cells of two scrape intervals, so that tasks on several TaskManagers, which
    are not scraped at one instant, are counted together.

    Args:
        spec: the job.
        samples: samples of the job, of any length.
        before: what the subtasks had counted before the first sample, as far as it is known.

    Returns:
        The parts in order of time, each of two cells or more; none where a vertex never reported.
    """
    grids = [samples.grid(vertex.name, _COUNTED) for vertex in spec.vertices]
    if any(len(times) == 0 for times, _, _ in grids):
        return []
    # Two intervals: each task reports at least once in every cell.
    cell_s = 2.0 * interval_of(samples)
    first_s = min(float(times[0]) for times, _, _ in grids)
    last_s = max(float(times[-1]) for times, _, _ in grids)
    cells = int((last_s - first_s) // cell_s) + 1
    tasks = np.zeros((len(grids), cells), np.int64)
    fell = np.zeros(cells, np.bool_)
    for row, (times, subtasks, values) in enumerate(grids):
        at = ((times - first_s) // cell_s).astype(np.int64)
        tasks[row] = _present(at, values, cells)
        name = spec.vertices[row].name
        earlier = [before.get((name, subtask), -np.inf) for subtask in subtasks.tolist()]
        fell[_falls(at, values, np.array(earlier))] = True
    # Tasks by vertex and cell; neighbouring cells with the same tasks and no fall are one run.
    found: list[RunningTime] = []
    ended = 0
    # A single cell is a rescale in progress, seen half before and half after.
    for begin, end in _alike(tasks, fell):
        if end - begin >= _LEAST_CELLS and (tasks[:, begin] > 0).all():
            found.append(
                RunningTime(
                    first_s + begin * cell_s,
                    min(first_s + end * cell_s, last_s),
                    {
                        vertex.name: int(count)
                        for vertex, count in zip(spec.vertices, tasks[:, begin], strict=True)
                    },
                    restarted=bool(fell[ended : begin + 1].any()),
                )
            )
            ended = end
    return found


def _present(at: Ints, values: Floats, cells: int) -> Ints:
    """Count the subtasks that reported in each cell, (cells,)."""
    seen = np.zeros((cells, values.shape[1]), np.bool_)
    np.logical_or.at(seen, at, ~np.isnan(values))
    return np.asarray(seen.sum(axis=1), np.int64)


def _falls(at: Ints, values: Floats, before: Floats) -> Ints:
    """Find cells in which a counter is lower than before."""
    found = []
    for column, earlier in zip(values.T, before.tolist(), strict=True):
        known = np.flatnonzero(~np.isnan(column))
        found.append(at[known[np.diff(column[known], prepend=earlier) < 0]])
    return np.unique(np.concatenate(found)) if found else np.zeros(0, np.int64)


def _alike(tasks: Ints, fell: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Find begin and end of neighbouring cells with the same tasks, without those of a restart."""
    changes = (np.diff(tasks, axis=1) != 0).any(axis=0) | fell[1:] | fell[:-1]
    edges = [0, *(np.flatnonzero(changes) + 1).tolist(), tasks.shape[1]]
    return [
        (begin, end) for begin, end in pairwise(edges) if not (end - begin == 1 and fell[begin])
    ]
