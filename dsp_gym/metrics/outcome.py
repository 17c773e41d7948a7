"""The outcome of a real or recorded job over an interval, derived from its metrics.

Sources and sinks of this project count over restarts (`emitted_records_total`), so records are
neither lost nor counted twice by an outage. While a job is down its log is unknown: arrivals of
that time show in the interval in which it runs again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dsp_gym.arrays import Floats
from dsp_gym.job.cost import requested
from dsp_gym.job.placement import slots_of
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.configuration import Configuration
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.snapshot import MetricsSnapshot, Status
from dsp_gym.metrics.columns import grid_of, newest, side_by_side, slowest
from dsp_gym.metrics.samples import Samples, source_counter
from dsp_gym.metrics.window import Observed, increase

Span = tuple[float, float]

_UP = (Status.RUNNING, Status.SAVEPOINTING)  # records are processed while a savepoint is written


def observed_in(snapshot: MetricsSnapshot, row: int = 0) -> Observed:
    """Return the observations of one job of a snapshot beside its samples.

    Returns:
        Status, times and the running configuration by vertex name.
    """
    configuration = Configuration.of_row(snapshot, snapshot.topology, row)
    return Observed(
        t_s=float(snapshot.t_s[row]),
        status=Status(int(snapshot.status[row])),
        running_since_s=float(snapshot.running_since_s[row]),
        parallelism=configuration.parallelism,
        memory_level=configuration.memory_level,
        outage_s=float(snapshot.outage_s[row]),
        tm_count=float(snapshot.tm_count[row]),
    )


def measured_outcome(
    spec: JobSpec,
    samples: Samples,
    history: Sequence[Observed],
    since_s: float,
    until_s: float,
    *,
    rescales: int = 0,
) -> Outcome:
    """Compute the outcome of one job, each value of shape (1,).

    Latency and backlog are NaN where no sample has them; a job without a log has no backlog. While
    no record reaches a sink, the job is late when its log is further behind than the bound. Records
    and late seconds of a job that runs without sending metrics are NaN, too.

    Args:
        spec: the job.
        samples: at least those of the interval and the last one of each subtask before it.
        history: the observations, by time; at least one, best from before `since_s` on.
        since_s: begin of the interval.
        until_s: end of the interval.
        rescales: number of rescales asked for.

    Returns:
        Sums over the interval; NaN where they are unknown.
    """
    seconds = until_s - since_s
    pairs = list(_pairs(history, since_s, until_s))
    down_s = sum(_inside(_down(a, b, samples), since_s, until_s) for a, b in pairs)
    arrived, processed, pending = _records(spec, samples, history, since_s, until_s)
    if down_s == 0.0 and _is_silent(spec, samples, since_s, until_s):
        arrived = processed = math.nan  # the job runs: it is the metrics that are missing
    latency = _latency(spec, samples.between(since_s, until_s))
    floor = 0.1 * spec.source.rate_per_s
    # Late seconds need a rate: at least a tenth of the reference rate, as in the simulation.
    per_s = arrived / seconds if seconds > 0 else 0.0
    per_s = per_s if per_s > floor else floor  # also of an unknown one
    # No record reached a sink: the next one will be as old as the records waiting in the log.
    ages = latency if len(latency) else _waiting(spec, samples.between(since_s, until_s)) / per_s
    late_s = math.nan if down_s == 0.0 else 0.0
    if len(ages):
        late_s = float(np.mean(ages > spec.slo.latency_s)) * (seconds - down_s)
    core_s, mib_s, tm_s = _used(spec, pairs, since_s, until_s)
    prices, manager = spec.prices, spec.taskmanager
    tm_hour = manager.cores * prices.core_hour + manager.memory_mib / 1024 * prices.gib_hour
    values = {
        "seconds": seconds,
        "slo_s": down_s + late_s,
        "down_s": down_s,
        "latency_p95_s": float(latency.mean()) if len(latency) else math.nan,
        "latency_max_s": float(latency.max()) if len(latency) else math.nan,
        "arrived": arrived,
        "processed": processed,
        "pending": pending,
        "pending_s": pending / per_s,
        "core_s": core_s,
        "mib_s": mib_s,
        "tm_s": tm_s,
        "cost": (core_s * prices.core_hour + mib_s / 1024 * prices.gib_hour) / 3600,
        "cost_provisioned": tm_s * tm_hour / 3600,
        "rescales": float(rescales),
        "failures": float(sum(_has_failed(a, b) for a, b in pairs)),
    }
    return Outcome(**{name: np.array([value]) for name, value in values.items()})


def _used(
    spec: JobSpec, pairs: Sequence[tuple[Observed, Observed]], since_s: float, until_s: float
) -> tuple[float, float, float]:
    """Core seconds, MiB seconds and seconds of TaskManagers."""
    core_s = mib_s = tm_s = 0.0
    for a, b in pairs:
        changed_s = min(max(b.running_since_s, a.t_s), b.t_s)
        for state, span in ((a, (a.t_s, changed_s)), (b, (changed_s, b.t_s))):
            inside = _inside(span, since_s, until_s)
            if state.status == Status.FAILED:  # it ended, or was stopped: it holds nothing
                continue
            used = requested(spec, state.parallelism, state.memory_level)
            core_s += used.cores * inside
            mib_s += used.memory_mib * inside
            tm_s += _taskmanagers(spec, state) * inside
    return core_s, mib_s, tm_s


def arrivals_of(
    spec: JobSpec,
    samples: Samples,
    since_s: float,
    until_s: float,
    history: Sequence[Observed] = (),
) -> list[tuple[float, float]]:
    """List times and arrivals, counted from the last sample before an interval.

    Emitted records and the backlog together rise as records arrive, whether the job keeps up or
    not. A subtask that does not report, or has not been scraped yet, counts what it did last.

    Args:
        spec: the job.
        samples: at least those of the interval and the last one of each subtask before it.
        since_s: begin of the interval.
        until_s: end of the interval.
        history: the observations of that time; none: no subtask was added or removed.

    Returns:
        Pairs of t_s and records, rising.
    """
    seen = samples.between(-np.inf, until_s)
    found: dict[float, float] = {}
    for vertex in spec.vertices:
        if vertex.kind != "source":
            continue
        times, of, emitted = seen.grid(vertex.name, "emitted_records_total")
        at, others, owed = seen.grid(vertex.name, "pending_records")
        # Without a common time of both counters their sum means nothing.
        if not len(times) or (len(at) and not np.array_equal(times, at)):
            return []
        tasks = _Tasks.of(vertex.name, history)
        totals = tasks.summed(times, of, emitted)
        if len(at):
            totals = totals + tasks.summed(at, others, owed)
        for t_s, total in zip(times.tolist(), totals.tolist(), strict=True):
            found[t_s] = found.get(t_s, 0.0) + total
    if not found:
        return []
    when = np.array(sorted(found))
    # A running maximum removes the falls of subtasks that miss a scrape.
    counts = np.maximum.accumulate([found[t_s] for t_s in when.tolist()])
    # Begin with the last sample before the interval, whose count is the zero.
    first = max(0, int(np.searchsorted(when, since_s, side="right")) - 1)
    risen = counts[first:] - counts[first]
    return list(zip(when[first:].tolist(), risen.tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class _Tasks:
    """How many subtasks a vertex had, which tells those that are gone from those not scraped."""

    before: float
    after: float
    changed_s: float

    @classmethod
    def of(cls, vertex: str, history: Sequence[Observed]) -> _Tasks:
        """As observed; any number where it was not."""
        states = sorted(history, key=lambda state: state.t_s)
        if not states:
            return cls(math.inf, math.inf, -math.inf)
        first, last = states[0], states[-1]
        return cls(
            first.parallelism.get(vertex, math.inf),
            last.parallelism.get(vertex, math.inf),
            last.running_since_s,
        )

    def summed(self, times: Floats, subtasks: NDArray[np.int32], values: Floats) -> Floats:
        """Sum of what each subtask showed last, (T,); before its first sample what it shows then.

        Subtasks that a rescale adds or removes count from it, or until then.
        """
        held, later = newest(values), newest(values[::-1])[::-1]
        there_s = np.where(times < self.changed_s, self.before, self.after)
        there = subtasks < there_s[:, None]
        first = np.where(subtasks < self.before, later, np.nan)
        shown = np.where(there, np.where(np.isnan(held), first, held), np.nan)
        return np.asarray(np.nansum(shown, axis=1))


def _pairs(
    history: Sequence[Observed], since_s: float, until_s: float
) -> Iterator[tuple[Observed, Observed]]:
    """Pair neighbours in time that touch the interval; first and last state hold at its ends."""
    states = sorted(history, key=lambda state: state.t_s)
    if states[0].t_s > since_s:
        states.insert(0, replace(states[0], t_s=since_s))
    if states[-1].t_s < until_s:
        states.append(replace(states[-1], t_s=until_s))
    for a, b in pairwise(states):
        if b.t_s > since_s and a.t_s < until_s:
            yield a, b


def _down(a: Observed, b: Observed, samples: Samples) -> Span:
    """Return the time in which the job was down between two observations, empty if it ran."""
    was_up, is_up = a.status in _UP, b.status in _UP
    # Still down: since the last sample that a vertex sent, or since the first observation.
    if not is_up:
        seen = samples.between(a.t_s, b.t_s)
        times = seen.t_s[seen.vertex != ""]
        return (float(times[-1]) if was_up and len(times) else a.t_s, b.t_s)
    back_s = min(b.running_since_s, b.t_s)
    if back_s <= a.t_s:
        return (b.t_s, b.t_s)
    # Back again: the last outage, but no longer than since the observation before.
    longest = back_s - a.t_s
    known = was_up and not math.isnan(b.outage_s)
    return (back_s - (min(b.outage_s, longest) if known else longest), back_s)


def _has_failed(a: Observed, b: Observed) -> bool:
    """Return whether it failed for good, or restarted with its old configuration."""
    if b.status == Status.FAILED:
        return a.status != Status.FAILED
    came_back = b.status in _UP and a.status in _UP and b.running_since_s > a.t_s
    same = (a.parallelism, a.memory_level) == (b.parallelism, b.memory_level)
    return came_back and same


def _inside(span: Span, since_s: float, until_s: float) -> float:
    return max(0.0, min(span[1], until_s) - max(span[0], since_s))


def _records(
    spec: JobSpec,
    samples: Samples,
    history: Sequence[Observed],
    since_s: float,
    until_s: float,
) -> tuple[float, float, float]:
    """Return arrived, processed and waiting records of all sources."""
    seen = samples.between(-np.inf, until_s)
    processed = arrived = pending = 0.0
    for vertex in spec.vertices:
        if vertex.kind != "source":
            continue
        tasks = _Tasks.of(vertex.name, history)
        taken = _counted(seen, vertex.name, tasks, since_s)
        times, subtasks, owed = seen.grid(vertex.name, "pending_records")
        # Records read plus growth of the log.
        if len(times):
            total = tasks.summed(times, subtasks, owed)
            arrived += max(0.0, taken + float(total[-1] - total[_begin(times, since_s)]))
            pending += float(total[-1])
        else:
            arrived += taken
            pending += math.nan if spec.source.log else 0.0
        processed += taken
    return arrived, processed, pending


def _begin(times: Floats, since_s: float) -> int:
    """Row of the last sample before an interval, else of the first one in it."""
    return max(0, int(np.searchsorted(times, since_s, side="right")) - 1)


_SILENT_S = 60.0
"""Seconds before an interval; without a sample since then, nothing is known of its records."""


def _is_silent(spec: JobSpec, samples: Samples, since_s: float, until_s: float) -> bool:
    """Return whether a source sent no counter in an interval, nor shortly before it."""
    seen = samples.between(since_s - _SILENT_S, until_s)
    sources = [vertex.name for vertex in spec.vertices if vertex.kind == "source"]
    return any(not len(seen.grid(name, source_counter(seen, name))[0]) for name in sources)


def _counted(seen: Samples, source: str, tasks: _Tasks, since_s: float) -> float:
    """Return records a source read, until the last sample."""
    counter = source_counter(seen, source)
    times, subtasks, values = seen.grid(source, counter)
    if len(times) < 2:
        return 0.0
    # A counter kept in state falls back to a checkpoint, so only its ends count.
    if counter == "emitted_records_total":
        total = tasks.summed(times, subtasks, values)
        return max(0.0, float(total[-1] - total[_begin(times, since_s)]))
    # Each subtask from its own last sample before.
    begins = np.array([_begin(times[k], since_s) for k in np.isfinite(values).T])
    order = np.cumsum(np.isfinite(values), axis=0) - 1
    return float(np.nansum(increase(times, np.where(order >= begins, values, np.nan))[0]))


def _latency(spec: JobSpec, inside: Samples) -> Floats:
    """Return the p95 latency of the slowest sink subtask at each sample, (N,) s."""
    return slowest(inside, [vertex.name for vertex in spec.vertices])[1]


def _waiting(spec: JobSpec, inside: Samples) -> Floats:
    """Return the records in the logs of all sources at each sample, (N,)."""
    times, owed = grid_of(inside, [vertex.name for vertex in spec.vertices], "pending_records")
    return np.asarray(np.nansum(side_by_side(times, owed), axis=1))


def _taskmanagers(spec: JobSpec, state: Observed) -> float:
    """Return the observed TaskManagers, else those its subtasks need; sources run on others."""
    if not math.isnan(state.tm_count):
        return state.tm_count
    tasks = {v.name: state.parallelism[v.name] for v in spec.vertices if v.kind != "source"}
    slots = slots_of(tasks, shared=spec.slot_sharing)
    return math.ceil(slots / spec.taskmanager.slots)
