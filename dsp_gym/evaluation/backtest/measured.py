"""The history of a job from its samples: counters, gauges and configurations on a regular grid.

A counter that falls has restarted, so its value is its increase. Where no sample is near, nothing
is known of a slot; counters tell how much arrived over a short gap, but not how late the job was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.calibration.observations import LEAST_LOOKUPS, SATURATED, Latency, SteadyPart
from dsp_gym.errors import MetricsError
from dsp_gym.evaluation.backtest.history import JobHistory, bridged
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.configuration import Configuration
from dsp_gym.metrics.samples import Samples

__all__ = ["Deployed", "measured_history"]

PART_S = 300.0
"""Length of the parts that a model is fitted to; a short history is cut into shorter ones."""

FEWEST_PARTS = 24

SETTLED_S = 120.0
"""After a start or a rescale nothing is steady: caches fill, a backlog is caught up."""

MOST_PARTS = 48
"""Parts that a model is fitted to, spread over configurations and rates."""


@dataclass(frozen=True, slots=True)
class Deployed:
    """A configuration of a job, and since when it ran."""

    t_s: float  # its records were processed from then on
    configuration: Configuration
    down_since_s: float  # the job was down from then to `t_s`; NaN: not known, or not at all


def measured_history(
    name: str,
    spec: JobSpec,
    samples: Samples,
    deployed: Sequence[Deployed],
    interval_s: int,
    *,
    until_s: float,
    latency: Latency = "median",
    notes: Sequence[str] = (),
    is_dated: bool = False,
) -> JobHistory:
    """Puts the samples of one job on a grid.

    Args:
        name: of the job.
        spec: its graph and first numbers.
        samples: all of it.
        deployed: configurations in the order of time.
        interval_s: length of a slot.
        until_s: end of the history.
        latency: what its state latencies are.
        notes: what to know about the history.
        is_dated: whether times count from 1970.

    Returns:
        The history from the first configuration on.

    Raises:
        MetricsError: No source reported, or the history is shorter than a slot.
    """
    begin_s = deployed[0].t_s
    slots = int((until_s - begin_s) / interval_s)
    edges: Floats = begin_s + interval_s * np.arange(slots + 1, dtype=np.float64)
    reading = _Reading(spec, samples, edges, interval_s)
    if slots < 1 or not reading.emitted.any():
        raise MetricsError(
            f"job '{name}': no source reported how many records it took over "
            f"{max(0.0, until_s - begin_s):.0f} s",
            remedy="Check that the history holds numRecordsOut of the sources.",
        )
    tasks, level, running = _configured(spec, deployed, edges[:-1])
    down = _down_share(deployed, edges)
    load = bridged(reading.load(), interval_s)
    lag_s = reading.pending / np.maximum(load, 0.1 * float(spec.source.rate_per_s))
    outages = np.array([one.t_s - one.down_since_s for one in deployed])
    outages[0] = np.nan
    began = np.concatenate([[False], np.diff(running) > 0])
    return JobHistory(
        name=name,
        spec=spec,
        t_s=edges[:-1],
        interval_s=interval_s,
        load_per_s=load,
        parallelism=tasks,
        memory_level=level,
        late=np.clip(down + (1 - down) * reading.late(lag_s), 0.0, 1.0),
        lag_s=lag_s,
        latency_s=reading.latency_s,
        outage_s=np.where(began, outages[running], np.nan),
        parts=_parts(spec, reading, load, tasks, level, _settled(deployed, edges), latency),
        notes=tuple(notes),
        is_dated=is_dated,
    )


class _Reading:
    """Samples of one job by slot."""

    def __init__(self, spec: JobSpec, samples: Samples, edges: Floats, interval_s: int) -> None:
        self.spec, self.samples, self.edges, self.interval_s = spec, samples, edges, interval_s
        self.sources = [v.name for v in spec.topological_order() if v.kind == "source"]
        self.emitted = np.zeros(len(edges) - 1)
        self.known: Bools = np.ones(len(edges) - 1, dtype=bool)
        self._risen: dict[tuple[str, ...], Floats | None] = {}
        self._means: dict[tuple[str, str], Floats] = {}
        self.pending = np.zeros(len(edges) - 1)
        self._grown = np.zeros(len(edges) - 1)
        for source in self.sources:
            self._take(source)
        self.latency_s, self._late = self._latency()

    def load(self) -> Floats:
        """Records/s that arrived in each slot; NaN where no source reported."""
        arrived = np.maximum(self.emitted + np.nan_to_num(self._grown), 0.0)
        return np.where(self.known, arrived / self.interval_s, np.nan)

    def late(self, lag_s: Floats) -> Floats:
        """Late share of the samples; where no sink tells, whether the log is too far behind."""
        if np.isfinite(self._late).any():
            return self._late
        bound = float(self.spec.slo.latency_s)
        return np.where(np.isfinite(lag_s) & self.known, (lag_s > bound).astype(float), np.nan)

    def risen(self, vertex: str, *metrics: str) -> Floats | None:
        """By how much the first of several counters rose in each slot; None: not reported."""
        key = (vertex, *metrics)
        if key not in self._risen:
            times, values = self._counter(vertex, *metrics)
            rises = np.diff(np.interp(self.edges, times, _total(values))) if len(times) else None
            self._risen[key] = rises
        return self._risen[key]

    def mean(self, vertex: str, metric: str) -> Floats:
        """Mean of a gauge over the samples and subtasks of each slot; NaN where there is none."""
        if (vertex, metric) not in self._means:
            times, _, values = self.samples.grid(vertex, metric)
            self._means[vertex, metric] = _slot_means(times, _row_means(values), self.edges)
        return self._means[vertex, metric]

    def _counter(self, vertex: str, *metrics: str) -> tuple[Floats, Floats]:
        for metric in metrics:
            times, _, values = self.samples.grid(vertex, metric)
            if len(times) > 1 and np.nanmax(values, initial=0.0) > 0:
                return times, values
        return np.empty(0), np.empty((0, 0))

    def _take(self, source: str) -> None:
        counters = ("emitted_records_total", "records_out_total")
        risen = self.risen(source, *counters)
        if risen is None:
            return
        self.emitted += risen
        self.known &= _near(self._counter(source, *counters)[0], self.edges)
        at, _, owed = self.samples.grid(source, "pending_records")
        if not len(at):
            self.pending += np.nan if self.spec.source.log else 0.0
            return
        waiting = np.interp(self.edges, at, np.nansum(owed, axis=1))
        self.pending += waiting[1:]
        self._grown += np.diff(waiting)

    def _latency(self) -> tuple[Floats, Floats]:
        """Mean p95 latency of the slowest sink and late share of the samples, by slot."""
        highest: dict[float, float] = {}
        for vertex in self.spec.vertices:
            times, _, values = self.samples.grid(vertex.name, "latency_p95_ms")
            told = np.where(np.isfinite(values), values, -np.inf).max(axis=1, initial=-np.inf)
            for t_s, value in zip(times.tolist(), told.tolist(), strict=True):
                if value > -math.inf:
                    highest[t_s] = max(highest.get(t_s, 0.0), value / 1000)
        when = np.array(sorted(highest))
        told = np.array([highest[t_s] for t_s in when.tolist()])
        late = (told > float(self.spec.slo.latency_s)).astype(float)
        return _slot_means(when, told, self.edges), _slot_means(when, late, self.edges)


def _total(values: Floats) -> Floats:
    """Counters over restarts and over all subtasks, (T,); a subtask that is gone stays counted."""
    total = np.zeros(len(values))
    for column in values.T:
        known = np.flatnonzero(np.isfinite(column))
        if not len(known):
            continue
        series = column[known]
        steps = np.diff(series, prepend=series[0])
        risen = np.cumsum(np.where(steps < 0, series, steps))
        # A subtask that appears later begins at zero: what it counted by then is its own.
        first = series[0] if known[0] > 0 else 0.0
        held = np.searchsorted(known, np.arange(len(values)), side="right")
        total += np.where(held > 0, first + risen[np.maximum(held - 1, 0)], 0.0)
    return total


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
    usual = float(np.median(np.diff(times)))
    widest = max(2.5 * usual, edges[1] - edges[0])
    bounds = np.concatenate([[times[0]], times, [times[-1]]])
    wide = np.flatnonzero(np.diff(bounds) > widest)
    known = (edges[1:] > times[0]) & (edges[:-1] < times[-1])
    for i in wide.tolist():
        known &= ~((edges[1:] > bounds[i] + usual) & (edges[:-1] < bounds[i + 1] - usual))
    return np.asarray(known)


def _configured(
    spec: JobSpec, deployed: Sequence[Deployed], begins: Floats
) -> tuple[Ints, Ints, Ints]:
    """Tasks and levels (K, V) of each slot, and which configuration it is (K,)."""
    names = [vertex.name for vertex in spec.topological_order()]
    running = np.searchsorted([one.t_s for one in deployed], begins + 1e-6, side="right") - 1
    # What a rescale leads to is deployed from its begin on, when the old configuration stops.
    stopped = np.array([one.down_since_s for one in deployed])
    following = np.minimum(running + 1, len(deployed) - 1)
    running = np.where(begins >= np.nan_to_num(stopped[following], nan=np.inf), following, running)
    tasks = np.array([[one.configuration.parallelism[n] for n in names] for one in deployed])
    level = np.array([[one.configuration.memory_level[n] for n in names] for one in deployed])
    return tasks[running].astype(np.int64), level[running].astype(np.int64), running


def _down_share(deployed: Sequence[Deployed], edges: Floats) -> Floats:
    """Share of each slot in which the job was down."""
    down = np.zeros(len(edges) - 1)
    for one in deployed[1:]:
        if math.isfinite(one.down_since_s):
            inside = np.minimum(edges[1:], one.t_s) - np.maximum(edges[:-1], one.down_since_s)
            down += np.maximum(inside, 0.0)
    return np.asarray(np.minimum(down / (edges[1] - edges[0]), 1.0), dtype=np.float64)


def _settled(deployed: Sequence[Deployed], edges: Floats) -> Bools:
    """Slots long enough after every start."""
    settled = np.ones(len(edges) - 1, dtype=bool)
    for one in deployed:
        stopped = one.t_s if math.isnan(one.down_since_s) else one.down_since_s
        settled &= (edges[1:] <= stopped) | (edges[:-1] >= one.t_s + SETTLED_S)
    return settled


def _parts(
    spec: JobSpec,
    reading: _Reading,
    load: Floats,
    tasks: Ints,
    level: Ints,
    settled: Bools,
    latency: Latency,
) -> tuple[SteadyPart, ...]:
    """Steady parts spread over configurations and rates; those that catch up are left out."""
    part_s = min(PART_S, len(load) * reading.interval_s / FEWEST_PARTS)
    each = max(3, round(part_s / reading.interval_s))
    usable = settled & reading.known & np.isfinite(load)
    found = []
    for begin in range(0, len(load) - each + 1, each):
        part = slice(begin, begin + each)
        same = np.all(tasks[part] == tasks[begin]) and np.all(level[part] == level[begin])
        if same and usable[part].all():
            one = _part(spec, reading, load, tasks, level, part, latency)
            if one is not None:
                found.append(one)
    found.sort(key=lambda one: (str(one.configuration), one.rate_per_s))
    if len(found) <= MOST_PARTS:
        return tuple(found)
    chosen = np.unique(np.linspace(0, len(found) - 1, MOST_PARTS).round().astype(int))
    return tuple(found[i] for i in chosen.tolist())


def _part(
    spec: JobSpec,
    reading: _Reading,
    load: Floats,
    tasks: Ints,
    level: Ints,
    part: slice,
    latency: Latency,
) -> SteadyPart | None:
    seconds = (part.stop - part.start) * reading.interval_s
    rates = reading.emitted[part] / reading.interval_s
    rate, offered = float(rates.mean()), float(load[part].mean())
    if not rate > 0 or rate > offered / SATURATED:
        return None
    saturated = rate < SATURATED * offered
    begin_s = float(reading.edges[part.start])
    names = [vertex.name for vertex in spec.topological_order()]
    half = len(rates) // 2
    drift = math.nan
    if half and rates[:half].mean() > 0 and rates[half:].mean() > 0:
        drift = math.log(rates[half:].mean() / rates[:half].mean())
    busy, hit, selectivity = {}, {}, {}
    for v, name in enumerate(names):
        used = _busy(reading, name, part, int(tasks[part.start, v]), seconds)
        if used is not None:
            busy[name] = used
        hits, misses = (
            _sum(reading.risen(name, f"cache_{kind}_total"), part) for kind in ("hits", "misses")
        )
        if hits + misses >= LEAST_LOOKUPS:
            hit[name] = hits / (hits + misses)
        came = _sum(reading.risen(name, "records_in_total"), part)
        if came > 0 and next(x.kind for x in spec.vertices if x.name == name) == "operator":
            selectivity[name] = _sum(reading.risen(name, "records_out_total"), part) / came
    return SteadyPart(
        f"{begin_s:.0f} s",
        0.0,
        float(seconds),
        dict(zip(names, tasks[part.start].tolist(), strict=True)),
        dict(zip(names, level[part.start].tolist(), strict=True)),
        math.inf if saturated else offered,
        rate,
        float(np.std(rates) / rate) if len(rates) > 2 else math.nan,
        drift,
        saturated,
        busy=busy,
        hit=hit,
        selectivity=selectivity,
        latency=latency,
        base_mib=float(spec.memory.base_mib),
    )


def _busy(reading: _Reading, vertex: str, part: slice, tasks: int, seconds: float) -> float | None:
    """Busy share of a vertex, mean over subtasks: of the accumulated times, else of the gauge."""
    risen = reading.risen(vertex, "busy_ms_total")
    if risen is not None:
        return min(1.0, _sum(risen, part) * 1e-3 / (seconds * max(tasks, 1)))
    told = reading.mean(vertex, "busy_ms_per_s")[part]
    known = told[np.isfinite(told)]
    return None if not len(known) else min(1.0, float(known.mean()) * 1e-3)


def _sum(values: Floats | None, part: slice) -> float:
    return 0.0 if values is None else float(values[part].sum())
