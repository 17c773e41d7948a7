"""Durations of the rescales in a journal, which replace the assumptions of the job file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.job.spec import JobSpec
from dsp_gym.whatif.journal import ObservedRun

T = TypeVar("T")


def outages_s(run: ObservedRun) -> Floats:
    """Measure how long the log was not read in each observed rescale, restore included.

    A job stopped with a savepoint reads nothing from the request on: where the journal holds the
    savepoint's time, it counts, too.

    Returns:
        (K,) seconds, at the slot whose decision asked for it; NaN elsewhere.
    """
    found = np.full(len(run), np.nan)
    for before, stopping_s, outage_s in _rescales(run):
        found[before] = stopping_s + outage_s
    return found


def down_share(run: ObservedRun) -> float | None:
    """Measure which part of the rescales the job was down; the rest is savepoints.

    While the job stops, the records in its buffers still get through.

    Returns:
        A share, 0 to 1; None without a savepoint of known duration.
    """
    if not len(run.savepoints):
        return None
    found = counted(list(_rescales(run)))
    times = np.array([(stopping_s, outage_s) for _, stopping_s, outage_s in found]).reshape(-1, 2)
    return float(times[:, 1].sum() / times.sum()) if times.sum() > 0 else 1.0


def drawn_outages_s(run: ObservedRun, spec: JobSpec) -> tuple[float, ...]:
    """The outages from which those of other policies are drawn, restore excluded.

    The time this cluster needs to bring the job back does not depend on the policy. Each takes the
    shortest savepoint observed: that of a saturated job waits behind the records in its buffers,
    which the model knows (`MeasuredJobs`).

    Returns:
        Seconds, one for each rescale that counts; empty where none was observed.
    """
    found = list(_rescales(run))
    if not found:
        return ()
    shortest_s = min(stopping_s for _, stopping_s, _ in counted(found))
    restore = float(spec.rescale.restore_mib_per_s)
    return tuple(
        max(0.0, shortest_s + outage_s - float(np.nansum(run.state_mib[before])) / restore)
        for before, _, outage_s in found
    )


def _rescales(run: ObservedRun) -> Iterator[tuple[int, float, float]]:
    """Of each rescale the slot of its decision, the seconds of its savepoint and of its outage."""
    for before, after in pairwise(np.flatnonzero(run.up).tolist()):
        changed = np.any(run.parallelism[after] != run.parallelism[before]) or np.any(
            run.memory_level[after] != run.memory_level[before]
        )
        came_back = run.running_since_s[after] > run.t_s[before]
        if changed and came_back and np.isfinite(run.outage_s[after]):
            when, took_s = run.savepoints.T
            stopping_s = took_s[(when > run.t_s[before]) & (when <= run.t_s[after])].sum()
            yield before, float(stopping_s), float(run.outage_s[after])


def counted(found: Sequence[T]) -> Sequence[T]:
    """The rescales that count: the first 1, 2, 3, 4, 6, 8, 12, 16 and so on of those observed.

    A replay that follows a run starts again whenever this changes, so it changes rarely.
    """
    power = 1 << (len(found).bit_length() - 1) if found else 0
    between = power + power // 2
    return found[: between if len(found) >= between else power]
