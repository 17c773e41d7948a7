"""The history of each job's load, as far as decisions need it; all of it scales with the load.

Means, peaks and troughs over several spans are forgotten exponentially, so that few numbers hold
hours.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.compiling import njit
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.per_job_state import Kept, Parts, RowMemory
from dsp_gym.loop.protocols import Mask, State
from dsp_gym.loop.snapshot import JOB, VERTEX, SnapshotArrays
from dsp_gym.loop.topology import JobFacts, Topology
from dsp_gym.numba_handles import Handle, Handles
from dsp_gym.sizing.arrivals import pending_records

MEAN_SPANS = {"now": 150.0, "10min": 600.0, "30min": 1800.0, "2h": 7200.0, "6h": 21600.0}
"""Span of each mean, s."""

EXTREME_SPANS = {"30min": 1800.0, "2h": 7200.0, "8h": 28800.0}
"""Span in which a peak or a trough is forgotten, s."""

_SWING_S, _FLICKER_S, _RESCALES_S = 3600.0, 7200.0, 7200.0
"""Spans over which volatility and rescales are remembered, s."""

_JUMP = 0.1
"""Difference from the mean, as a logarithm, above which the last minute alone is the present."""

_LEAST = 1e-3
"""Share of the longest mean to which smaller loads are raised: 0 has no logarithm."""

_MEAN_S = np.array(list(MEAN_SPANS.values()))
_EXTREME_S = np.array(list(EXTREME_SPANS.values()))


class CourseRows(NamedTuple):
    """The memory of each job, (J,); NaN: no value yet."""

    seen_s: Floats  # time of the last snapshot
    begun_s: Floats  # time of the first load
    present_per_s: Floats  # load that counts as the present one
    last_per_s: Floats  # arrivals since the snapshot before
    before_per_s: Floats  # arrivals of the snapshot before
    window_per_s: Floats  # arrivals as the means of the metrics window have them
    backlog: Floats  # records
    swing: Floats  # mean distance of the load from its mean of ten minutes
    flicker: Floats  # mean distance of a minute from the one before
    since_s: Floats  # time at which the job last became RUNNING
    rescales: Floats  # restarts, of the last hours
    blind_s: Floats  # time since the load was last measured, s


class Means(NamedTuple):
    """Mean loads over `MEAN_SPANS`, (J, 5)."""

    mean: Floats


class PeaksAndTroughs(NamedTuple):
    """Forgetting peaks and troughs of the load over `EXTREME_SPANS`, (J, 3)."""

    peak: Floats
    trough: Floats


class CourseMemory(NamedTuple):
    """The whole memory, for compiled code."""

    course: CourseRows
    means: Means
    extremes: PeaksAndTroughs


class LoadCourse(Kept):
    """A memory of the history of each job's load."""

    def __init__(self) -> None:
        first = dict.fromkeys(CourseRows._fields, np.nan) | dict.fromkeys(
            ("backlog", "swing", "flicker", "rescales", "blind_s"), 0.0
        )
        self._course = RowMemory({name: ("job", value) for name, value in first.items()})
        self._means = RowMemory({"mean": ("job", np.nan)}, depth=len(MEAN_SPANS))
        self._extremes = RowMemory(
            {"peak": ("job", np.nan), "trough": ("job", np.nan)}, depth=len(EXTREME_SPANS)
        )
        self._kept = Parts(course=self._course, means=self._means, extremes=self._extremes)
        # One handle for three tables; it is dropped when an array is replaced.
        self._handles = Handles()

    def reset(self, jobs: Topology, mask: Mask | None = None) -> None:
        """Forget all jobs, or those where the mask is True."""
        for memory in (self._course, self._means, self._extremes):
            memory.reset(jobs, mask)
        self._handles = Handles()

    @property
    def followed(self) -> Handle[CourseMemory]:
        """The memory as one argument of compiled code."""
        return self._handles.of(
            "own",
            lambda: CourseMemory(
                self._course.arrays(CourseRows),
                self._means.arrays(Means),
                self._extremes.arrays(PeaksAndTroughs),
            ),
        )

    def present_per_s(self) -> Floats:
        """Return the load that counts as the present one.

        Returns:
            (J,) records/s; NaN: none was seen yet.
        """
        return np.asarray(self._course["present_per_s"])

    def restore(self, state: State) -> None:
        """Continue from the values of `state()`."""
        super().restore(state)
        self._handles = Handles()


@njit(cache=True, nogil=True)
def _begin(f: CourseMemory, j: int, rate: float) -> None:
    """Let all means and extremes of job j begin at its first load."""
    for i in range(_MEAN_S.shape[0]):
        f.means.mean[j, i] = rate
    for i in range(_EXTREME_S.shape[0]):
        f.extremes.peak[j, i] = f.extremes.trough[j, i] = rate
    f.course.last_per_s[j] = rate


@njit(cache=True, nogil=True)
def follow(
    t: JobFacts, seen: SnapshotArrays, arrived_per_s: float, f: CourseMemory, j: int
) -> None:
    """Take in a snapshot of job j.

    Args:
        t: The jobs.
        seen: The snapshot.
        arrived_per_s: Arrivals since the snapshot before; NaN: unknown.
        f: The memory, written.
        j: The job's row.
    """
    c, k = f.course, t.row[j]
    now, since = seen.job[JOB.t_s, j], seen.job[JOB.running_since_s, j]
    elapsed = 0.0 if math.isnan(c.seen_s[j]) else max(0.0, now - c.seen_s[j])
    c.seen_s[j] = now
    # A count that is forgotten exponentially: each restart adds 1.
    c.rescales[j] *= math.exp(-elapsed / _RESCALES_S)
    if since != c.since_s[j] and not math.isnan(since):
        c.rescales[j] += 0.0 if math.isnan(c.since_s[j]) else 1.0
        c.since_s[j] = since
    backlog = pending_records(t, seen, j)
    # An unknown backlog (the job is down) leaves the last one standing.
    if not math.isnan(backlog):
        c.backlog[j] = backlog
    c.window_per_s[j] = 0.0
    for v in range(t.n[k]):
        if t.kind[k, v] == SOURCE:
            growth = seen.vertex[VERTEX.pending_growth_per_s][j, v]
            c.window_per_s[j] += seen.vertex[VERTEX.records_in_per_s][j, v]
            c.window_per_s[j] += 0.0 if math.isnan(growth) else growth

    mean, rate = f.means.mean[j], arrived_per_s
    c.blind_s[j] = c.blind_s[j] + elapsed if math.isnan(rate) else 0.0
    is_first = math.isnan(c.begun_s[j])
    if math.isnan(rate) or (is_first and rate <= 0.0):
        return
    if is_first:
        c.begun_s[j] = now
        _begin(f, j, rate)
    # A rate of 0 has no logarithm.
    rate = max(rate, _LEAST * mean[mean.shape[0] - 1])
    for i in range(mean.shape[0]):
        mean[i] += (rate - mean[i]) * (1.0 - math.exp(-elapsed / _MEAN_S[i]))
    for i in range(_EXTREME_S.shape[0]):
        # Old extremes fade towards the mean of ten minutes; new ones count in full.
        keep = math.exp(-elapsed / _EXTREME_S[i])
        peak, trough = f.extremes.peak[j], f.extremes.trough[j]
        peak[i] = max(mean[0], mean[1] + (peak[i] - mean[1]) * keep)
        trough[i] = min(mean[0], mean[1] + (trough[i] - mean[1]) * keep)
    swing, flicker = abs(math.log(mean[0] / mean[1])), abs(math.log(rate / c.last_per_s[j]))
    c.swing[j] += (swing - c.swing[j]) * (1.0 - math.exp(-elapsed / _SWING_S))
    c.flicker[j] += (flicker - c.flicker[j]) * (1.0 - math.exp(-elapsed / _FLICKER_S))
    c.before_per_s[j], c.last_per_s[j] = c.last_per_s[j], rate
    # A jump beyond noise is believed at once; smaller changes go through the short mean.
    c.present_per_s[j] = rate if abs(math.log(rate / mean[0])) > _JUMP else mean[0]
