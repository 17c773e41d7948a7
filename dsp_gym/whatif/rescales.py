"""Durations of a journal's rescales, which replace the assumptions of the job file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np

from dsp_gym.job.spec import JobSpec
from dsp_gym.whatif.journal import ObservedRun

__all__ = ["down_share", "observed_outages_s", "with_observed_outages"]

T = TypeVar("T")


def observed_outages_s(course: ObservedRun, spec: JobSpec) -> dict[int, float]:
    """Measures how long the log was not read in each observed rescale, restore excluded.

    A job stopped with a savepoint reads nothing from the request on: where the journal holds the
    savepoint's time, it counts, too.

    Returns:
        Seconds by the slot whose decision asked for it.
    """
    found = {}
    for before, stopping_s, outage_s in _rescales(course):
        restore_s = _restore_s(course, spec, before)
        found[before] = max(0.0, stopping_s + outage_s - restore_s)
    return found


def _restore_s(course: ObservedRun, spec: JobSpec, slot: int) -> float:
    """Seconds in which the state of that slot is restored."""
    return float(np.nansum(course.state_mib[slot]) / float(spec.rescale.restore_mib_per_s))


def down_share(course: ObservedRun) -> float | None:
    """Measures which part of the rescales the job was down; the rest is savepoints.

    While the job stops, the records in its buffers still get through.

    Returns:
        A share, 0 to 1; None without a savepoint of known duration.
    """
    if not len(course.savepoints):
        return None
    found = _counted(list(_rescales(course)))
    times = np.array([(stopping_s, outage_s) for _, stopping_s, outage_s in found]).reshape(-1, 2)
    return float(times[:, 1].sum() / times.sum()) if times.sum() > 0 else 1.0


def _rescales(course: ObservedRun) -> Iterator[tuple[int, float, float]]:
    """Of each rescale the slot of its decision, the seconds of its savepoint and of its outage."""
    for before, after in pairwise(np.flatnonzero(course.up).tolist()):
        changed = np.any(course.parallelism[after] != course.parallelism[before]) or np.any(
            course.memory_level[after] != course.memory_level[before]
        )
        came_back = course.running_since_s[after] > course.t_s[before]
        if changed and came_back and np.isfinite(course.outage_s[after]):
            when, took_s = course.savepoints.T
            stopping_s = took_s[(when > course.t_s[before]) & (when <= course.t_s[after])].sum()
            yield before, float(stopping_s), float(course.outage_s[after])


def _counted(found: Sequence[T]) -> Sequence[T]:
    """The rescales that count: the first 1, 2, 3, 4, 6, 8, 12, 16 and so on of those observed.

    What follows a run that goes on begins anew whenever this changes; that is rare like this.
    """
    power = 1 << (len(found).bit_length() - 1) if found else 0
    between = power + power // 2
    return found[: between if len(found) >= between else power]


def with_observed_outages(spec: JobSpec, course: ObservedRun) -> JobSpec:
    """Replaces the job's outages by the observed ones, if there are any.

    Every policy's rescales are drawn from them: the time this cluster needs to bring the job back
    does not depend on the policy. Each takes the shortest savepoint observed: that of a saturated
    job waits behind the records in its buffers, which the model knows (`MeasuredJobs`).

    Returns:
        A copy of the job; the job itself where no outage was observed.
    """
    found = _counted(list(_rescales(course)))
    if not found:
        return spec
    shortest_s = min(stopping_s for _, stopping_s, _ in found)
    outages = [
        max(0.0, shortest_s + outage_s - _restore_s(course, spec, before))
        for before, _, outage_s in found
    ]
    low, middle, high = np.quantile(outages, (0.1, 0.5, 0.9)).tolist()
    rescale = spec.rescale.model_copy(update={"outage_s": (low, middle, high)})
    return spec.model_copy(update={"rescale": rescale})
