"""When a job stopped and came up again, from scrapes that may be further apart than its outage.

Clocks that tasks accumulate say since when they are up. Of the stop only the last scrape before it
is known; the records tell the rest: what arrived until a later scrape, less what waits longer and
less what the new tasks have read, was read between that last scrape and the stop.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.job.spec import JobSpec
from dsp_gym.metrics.running import RunningTime
from dsp_gym.metrics.samples import SAMPLE_S, Samples

LONGEST_OUTAGE_S = 1800.0
"""A longer time without the job is no rescale."""

_SHARES = ("busy", "idle", "backpressured")
_NEAR = 3
"""Scrapes before and after a restart in which its end and its begin are looked for."""
_LOAD = 4
"""Scrapes before a restart that tell the load: few, as it is often a new load that rescales."""
_CATCHING_UP = 10
"""Scrapes after a restart in which the job is seen to have caught up."""
_CAUGHT_UP = 1.05
"""A job that reads no faster than so many times its load has caught up."""


@dataclass(frozen=True, slots=True)
class Restart:
    """When the tasks of one run stopped, and when those of the next one were up, s."""

    stopped_s: float
    up_s: float


def restart_between(
    spec: JobSpec, samples: Samples, before: RunningTime, after: RunningTime, scrape_s: float
) -> Restart:
    """Find when a run stopped and the next one came up.

    Runs are known to two scrapes, in which a backlog grows by far more than while the job is down.

    Args:
        spec: the job.
        samples: of both runs, as far as they are at hand.
        before: the run that stopped.
        after: the next one.
        scrape_s: seconds between two scrapes.

    Returns:
        Both moments; where scrapes are as close as a recording's, the last scrape is the stop.
    """
    begin_s, end_s = before.until_s - _NEAR * scrape_s, after.since_s + _NEAR * scrape_s
    near = samples.between(begin_s, end_s)
    counted = [near.grid(vertex.name, "records_out_total") for vertex in spec.vertices]
    scrapes = np.concatenate([times for times, _, _ in counted])
    begun = np.concatenate([_begun(times, counts, scrape_s) for times, _, counts in counted])
    old = scrapes[scrapes < begun.min(initial=math.inf)]
    if not len(begun) or not len(old):
        return Restart(before.until_s, after.since_s)
    last_s, first_s = float(old.max()), float(begun.min())
    told_s = up_since_s(spec, near.between(last_s, first_s + scrape_s))
    up_s = min(max(told_s, last_s), first_s)
    if scrape_s <= SAMPLE_S:
        return Restart(last_s, up_s)
    latest_s = min(last_s + scrape_s, up_s)
    read_s = _read_until_s(spec, samples, last_s, first_s, scrape_s)
    stopped_s = (last_s + latest_s) / 2
    if read_s is not None:
        stopped_s = min(max(read_s, last_s), latest_s)
    if math.isinf(told_s):  # somewhere between the stop and the first scrape of the new tasks
        up_s = (max(stopped_s, first_s - scrape_s) + first_s) / 2
    return Restart(stopped_s, up_s)


def up_since_s(spec: JobSpec, samples: Samples) -> float:
    """Compute since when tasks are up, from the times that they accumulated.

    Returns:
        Unix seconds, of the task that is up for longest of those sampled first; infinite where no
        task tells its times.
    """
    found = [math.inf]
    for vertex in spec.vertices:
        begun = list(begun_s(samples, vertex.name).values())
        first_s = min((t_s for t_s, _ in begun), default=math.inf)
        found += [since_s for t_s, since_s in begun if t_s == first_s]
    return min(found)


def begun_s(samples: Samples, vertex: str) -> dict[int, tuple[float, float]]:
    """Compute when each task of a vertex began, from the times that it had accumulated.

    Busy, idle and backpressured time together are all the time since a task began.

    Returns:
        By subtask, the time of its first sample and its begin, s; only tasks that tell all three.
    """
    firsts: list[dict[int, tuple[float, float]]] = []
    for share in _SHARES:
        times, subtasks, values = samples.grid(vertex, f"{share}_ms_total")
        first: dict[int, tuple[float, float]] = {}
        for subtask, column in zip(subtasks.tolist(), values.T, strict=True):
            known = np.flatnonzero(np.isfinite(column))
            if len(known):
                first[subtask] = float(times[known[0]]), float(column[known[0]])
        firsts.append(first)
    told = set(firsts[0]).intersection(*firsts[1:])
    found = {}
    for subtask in sorted(told):
        t_s = max(first[subtask][0] for first in firsts)
        if all(first[subtask][0] == t_s for first in firsts):
            found[subtask] = t_s, t_s - 1e-3 * sum(first[subtask][1] for first in firsts)
    return found


def goes_on(
    spec: JobSpec, samples: Samples, before: RunningTime, after: RunningTime, scrape_s: float
) -> bool:
    """Whether the tasks of one run are those of the run before, which no rescale stopped.

    Then other numbers of tasks show TaskManagers that were not scraped.

    Args:
        spec: the job.
        samples: of the later run.
        before: the earlier run.
        after: the later run.
        scrape_s: seconds between two scrapes.

    Returns:
        True where the clocks of tasks began before, or, without clocks, where records are counted
        and no count fell.
    """
    if after.restarted:
        return False
    first = samples.between(after.since_s, after.since_s + 2.0 * scrape_s)
    up_s = up_since_s(spec, first)
    if math.isfinite(up_s):
        return up_s < (before.since_s + before.until_s) / 2
    return any(np.any(first.grid(v.name, "records_out_total")[2] > 0) for v in spec.vertices)


def _begun(times: Floats, counts: Floats, scrape_s: float) -> Floats:
    """Find the first samples of new tasks: their counts fall, or begin later than all others."""
    found = [np.empty(0)]
    for column in counts.T:
        known = np.flatnonzero(np.isfinite(column))
        is_new = np.diff(column[known], prepend=column[known[:1]]) < 0
        is_new[:1] = times[known[:1]] > times[0] + 1.5 * scrape_s
        found.append(times[known[is_new]])
    return np.concatenate(found)


def _read_until_s(
    spec: JobSpec, samples: Samples, last_s: float, first_s: float, scrape_s: float
) -> float | None:
    """When the old tasks read their last record, from the records of a later scrape.

    Records that the new tasks read once more count as an earlier stop: until then the log had not
    been worked off.

    Returns:
        Unix seconds; None where the load before is not known, or the backlog after.
    """
    near = samples.between(last_s - (_LOAD + 0.5) * scrape_s, first_s + _CATCHING_UP * scrape_s)
    names = [vertex.name for vertex in spec.vertices if vertex.kind == "source"]
    read = [one for name in names for one in _columns(near, name, _counter(near, name))]
    waiting = [one for name in names for one in _columns(near, name, "pending_records")]
    told = bool(waiting) and all(one.times[0] <= last_s for one in waiting)
    load = sum(one.per_s(last_s, restarts=True) for one in read)
    load += sum(one.per_s(last_s) for one in waiting) if told else 0.0
    if not load > 0:
        return None
    new = [one for one in (column.since(last_s) for column in read) if len(one.times)]
    ends_s = min((float(one.times[-1]) for one in new), default=-math.inf)
    # A scrape later every new task has been scraped.
    for now_s in np.arange(first_s + scrape_s, ends_s + 1e-6, scrape_s).tolist():
        count = sum(one.at(now_s) for one in new)
        if told:
            grown = sum(one.at(now_s) - one.at(last_s) for one in waiting)
            return float(now_s - (count + grown) / load)
        if count - sum(one.at(now_s - scrape_s) for one in new) <= _CAUGHT_UP * load * scrape_s:
            return float(now_s - count / load)
    return None


@dataclass(frozen=True, slots=True)
class _Column:
    """One metric of one task; tasks are scraped at times of their own."""

    times: Floats
    values: Floats

    def per_s(self, until_s: float, *, restarts: bool = False) -> float:
        """By how much it rose until then, 1/s; a counter that restarts is read from there on."""
        kept = self.times <= until_s
        times, values = self.times[kept], self.values[kept]
        falls = np.flatnonzero(np.diff(values) < 0) + 1
        begin = int(falls[-1]) if restarts and len(falls) else 0
        if len(times) - begin < 2:
            return 0.0
        return float((values[-1] - values[begin]) / (times[-1] - times[begin]))

    def at(self, t_s: float) -> float:
        """Its value between two samples."""
        return float(np.interp(t_s, self.times, self.values))

    def since(self, t_s: float) -> _Column:
        """Its samples after that."""
        kept = self.times > t_s
        return _Column(self.times[kept], self.values[kept])


def _columns(samples: Samples, vertex: str, metric: str) -> list[_Column]:
    times, _, values = samples.grid(vertex, metric)
    known = [np.isfinite(column) for column in values.T]
    return [_Column(times[k], column[k]) for k, column in zip(known, values.T, strict=True)]


def _counter(samples: Samples, source: str) -> str:
    """The counter of what a source reads that begins at zero with the task."""
    reads = np.any(samples.grid(source, "records_in_total")[2] > 0)
    return "records_in_total" if reads else "records_out_total"
