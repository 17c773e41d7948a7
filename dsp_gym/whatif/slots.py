"""Samples of a job on a regular grid of slots: counters, gauges and latencies, vertex by vertex.

A counter that falls has restarted, so its value is its increase. Where no sample is near, nothing
is known of a slot, but counters show how much arrived meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from dsp_gym.arrays import Bools, Floats
from dsp_gym.job.spec import JobSpec
from dsp_gym.metrics.columns import interval_between, newest, side_by_side, slowest
from dsp_gym.metrics.restarts import begun_s
from dsp_gym.metrics.samples import Samples, source_counter


@dataclass(frozen=True, slots=True, eq=False)
class SampledSlots:
    """What samples say of K slots and V vertices, in topological order; NaN: not told."""

    begin_s: Floats  # (K,)
    known: Bools  # (K,) every source was sampled
    emitted: Floats  # (K,) records that all sources gave out
    grown: Floats  # (K,) records by which their log grew
    pending: Floats  # (K,) records in it at the end
    late: Floats  # (K,) late share of the samples of sinks
    latency_s: Floats  # (K,) their p95, mean
    busy: Floats  # (K, V) share of the time, mean over subtasks
    came: Floats  # (K, V) records received
    went: Floats  # (K, V) records given out
    hits: Floats  # (K, V) of the block cache
    misses: Floats  # (K, V)

    @classmethod
    def joined(cls, parts: Sequence[SampledSlots]) -> SampledSlots:
        """Slots of several pieces of time, one after the other.

        Returns:
            All of them.
        """
        return cls(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)))


def sampled_slots(spec: JobSpec, samples: Samples, edges: Floats) -> SampledSlots:
    """Put samples on a grid.

    Args:
        spec: the job.
        samples: of the slots, and a scrape more at either end where there is one.
        edges: (K + 1,) begin of each slot and the end of the last, s.

    Returns:
        K slots.
    """
    vertices = [vertex.name for vertex in spec.topological_order()]
    reading = _Reading(samples, edges)
    latency, late = reading.latency(vertices, float(spec.slo.latency_s))
    slots = len(edges) - 1
    known: Bools = np.ones(slots, dtype=bool)
    emitted, grown, pending = (np.zeros(slots) for _ in range(3))
    for source in [v.name for v in spec.topological_order() if v.kind == "source"]:
        times, rises = reading.emitted(source)
        known &= _near(times, edges)
        emitted += rises
        growth, owed = reading.owed(source)
        grown += np.nan_to_num(growth)
        pending += owed

    def of_vertices(metric: str) -> Floats:
        found = [reading.risen(name, metric)[1] for name in vertices]
        return np.stack(found, axis=1)

    return SampledSlots(
        begin_s=edges[:-1],
        known=known,
        emitted=emitted,
        grown=grown,
        pending=pending,
        late=late,
        latency_s=latency,
        busy=np.stack([reading.busy(name) for name in vertices], axis=1),
        came=of_vertices("records_in_total"),
        went=of_vertices("records_out_total"),
        hits=of_vertices("cache_hits_total"),
        misses=of_vertices("cache_misses_total"),
    )


def slot_edges(begin_s: float, slots: int, interval_s: int, cuts_s: Iterable[float]) -> Floats:
    """Lay a grid whose slots begin with the rescales: the nearest edge moves to each.

    Args:
        begin_s: of the first slot.
        slots: their number, K.
        interval_s: length of a slot without a rescale nearby.
        cuts_s: when the job was stopped for a rescale, or ended, rising; NaN: not known.

    Returns:
        (K + 1,) begin of each slot and the end of the last, s; the outer two never move.

    >>> slot_edges(0.0, 4, 30, [70.0, 100.0]).tolist()
    [0.0, 30.0, 70.0, 100.0, 120.0]
    """
    edges: Floats = begin_s + interval_s * np.arange(slots + 1, dtype=np.float64)
    free = set(range(1, slots))
    for cut_s in cuts_s:
        place = -1 if math.isnan(cut_s) else round((cut_s - begin_s) / interval_s)
        if place in free:
            free.remove(place)
            edges[place] = cut_s
    return edges


class _Reading:
    """Samples of one job by slot."""

    def __init__(self, samples: Samples, edges: Floats) -> None:
        self.samples, self.edges = samples, edges

    def risen(self, vertex: str, metric: str) -> tuple[Floats, Floats]:
        """Times of a counter (T,), and by how much it rose in each slot (K,); NaN: not told."""
        times, subtasks, values = self.samples.grid(vertex, metric)
        if len(times) < 2:
            return np.empty(0), np.full(len(self.edges) - 1, np.nan)
        usual_s = interval_between(times, values)
        risen = np.zeros(len(self.edges) - 1)
        for subtask, column in zip(subtasks.tolist(), values.T, strict=True):
            known = np.flatnonzero(np.isfinite(column))
            if not len(known):
                continue
            at, counted = times[known], _over_restarts(column[known])
            is_later = at[0] > times[0] + 1.5 * usual_s
            if is_later and self._began(vertex, subtask, float(at[0]), usual_s):
                # At zero, after the sample of the others before.
                at = np.append(times[known[0] - 1], at)
                counted = np.append(0.0, column[known[0]] + counted)
            risen += np.diff(np.interp(self.edges, *_to_others(at, counted, times, usual_s)))
        return times, risen

    def _began(self, vertex: str, subtask: int, at_s: float, usual_s: float) -> bool:
        """Whether a task that is first sampled then began then; else it had not been scraped.

        Where no clock tells, the others of its vertex do, which begin anew with it.
        """
        told = begun_s(self.samples, vertex).get(subtask)
        if told is not None:
            return told[1] >= float(self.samples.t_s[0])
        times, _, counts = self.samples.grid(vertex, "records_out_total")
        near = np.abs(times - at_s) <= 1.5 * usual_s
        held = newest(counts)
        fell = np.diff(held, axis=0, prepend=held[:1]) < 0
        return bool(fell[near].any())

    def emitted(self, source: str) -> tuple[Floats, Floats]:
        """The same of the records that a source reads; 0 where it reports none."""
        times, rises = self.risen(source, source_counter(self.samples, source))
        return times, np.nan_to_num(rises)

    def owed(self, source: str) -> tuple[Floats, Floats]:
        """By how much a source's log grew in each slot, and what it held at the end."""
        at, _, values = self.samples.grid(source, "pending_records")
        if not len(at):
            unknown = np.full(len(self.edges) - 1, np.nan)
            return unknown, unknown
        waiting = np.interp(self.edges, at, np.nansum(side_by_side(at, values), axis=1))
        return np.diff(waiting), waiting[1:]

    def busy(self, vertex: str) -> Floats:
        """Busy share: of the accumulated times, else of the gauge."""
        times, _, values = self.samples.grid(vertex, "busy_ms_total")
        if len(times) > 1:
            there = np.isfinite(side_by_side(times, values)).sum(axis=1).astype(float)
            tasks = _slot_means(times, there, self.edges)
            seconds = np.diff(self.edges)
            _, rises = self.risen(vertex, "busy_ms_total")
            return np.asarray(np.clip(rises * 1e-3 / (seconds * np.maximum(tasks, 1.0)), 0.0, 1.0))
        times, _, values = self.samples.grid(vertex, "busy_ms_per_s")
        means = _row_means(side_by_side(times, values))
        return np.asarray(np.clip(_slot_means(times, means, self.edges) * 1e-3, 0, 1))

    def latency(self, vertices: Sequence[str], bound_s: float) -> tuple[Floats, Floats]:
        """Mean p95 latency of the slowest sink, and the late share of the samples."""
        when, seen = slowest(self.samples, vertices)
        late = (seen > bound_s).astype(float)
        return _slot_means(when, seen, self.edges), _slot_means(when, late, self.edges)


def _over_restarts(told: Floats) -> Floats:
    """What one counter rose by since its first sample; one that falls began again at zero."""
    steps = np.diff(told, prepend=told[0])
    return np.cumsum(np.where(steps < 0, told, steps))


def _to_others(at: Floats, counted: Floats, times: Floats, usual_s: float) -> tuple[Floats, Floats]:
    """Prolong the count of a subtask to the first and last sample of others, less than one away."""
    if len(at) < 2:
        return at, counted
    if 0.0 < at[0] - times[0] < usual_s:
        slope = (counted[1] - counted[0]) / (at[1] - at[0])
        counted = np.append(counted[0] - slope * (at[0] - times[0]), counted)
        at = np.append(times[0], at)
    if 0.0 < times[-1] - at[-1] < usual_s:
        slope = (counted[-1] - counted[-2]) / (at[-1] - at[-2])
        counted = np.append(counted, counted[-1] + slope * (times[-1] - at[-1]))
        at = np.append(at, times[-1])
    return at, counted


def _row_means(values: Floats) -> Floats:
    known = np.isfinite(values)
    count = known.sum(axis=1)
    sums = np.where(known, values, 0.0).sum(axis=1)
    return np.where(count > 0, sums / np.maximum(count, 1), np.nan)


def _slot_means(times: Floats, values: Floats, edges: Floats) -> Floats:
    """Mean of the known values of each slot; NaN where there is none."""
    slots = len(edges) - 1
    place = np.searchsorted(edges, times, side="left") - 1  # a sample at an edge ends its slot
    kept = (place >= 0) & (place < slots) & np.isfinite(values)
    sums = np.bincount(place[kept], values[kept], minlength=slots)
    count = np.bincount(place[kept], minlength=slots)
    return np.where(count > 0, sums / np.maximum(count, 1), np.nan)


def _near(times: Floats, edges: Floats) -> Bools:
    """Slots that lie in no gap between samples."""
    if len(times) < 2:
        return np.zeros(len(edges) - 1, dtype=bool)
    usual = float(np.median(np.diff(times)))
    widest = max(2.5 * usual, float(np.median(np.diff(edges))))
    known = (edges[:-1] >= times[0] - usual) & (edges[1:] <= times[-1] + usual)
    for i in np.flatnonzero(np.diff(times) > widest).tolist():
        known &= ~((edges[1:] > times[i] + usual) & (edges[:-1] < times[i + 1] - usual))
    return np.asarray(known)
