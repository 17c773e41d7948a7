"""What a recorded run shows in its steady parts: rates, busyness, hit rate, state latency.

A run is cut where its offered load steps. Counters count from 10 s after a start or a step (cold
cache, full buffers) to a sample before the next step, since the load's clock starts with the
submission. A part in which the job catches up what it owes is not steady and is left out.

Busyness comes from Flink's accumulated busy time. Where only its gauges were kept, which are means
over the last 60 s, they are read from 65 s after a start or a step; in a saturated run that is
shorter, from its last sample, which holds the least of the start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.job.spec import JobSpec
from dsp_gym.metrics.samples import SAMPLE_S, Samples
from dsp_gym.metrics.window import increase

__all__ = ["Latency", "MeasuredRun", "SteadyPart", "memory_of", "observe", "observe_all"]

Latency = Literal["median", "mean"]
"""A histogram's p50 of a real job; the mean that a simulation knows."""

SETTLED_S = 10.0
"""Seconds after a start or a load step before counters are used."""
GAUGE_S = 65.0
"""Seconds after a start or a load step until a gauge of 60 s holds nothing older."""
SATURATED = 0.9
"""A job that emits less than this share of what is offered is at its capacity."""
LEAST_STEADY_S = 10.0
"""Shortest settled part of a run that shows a rate."""
LEAST_LOOKUPS = 200.0
"""Cache lookups below which a hit ratio means nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredRun:
    """One job in one configuration: a run, or the part of it between two rescales."""

    name: str
    spec: JobSpec
    parallelism: Mapping[str, int]
    level: Mapping[str, int]  # by vertex; -1: no managed memory
    offered: tuple[tuple[float, float], ...]  # (seconds since running, records/s from then on)
    samples: Samples  # t_s: seconds since running
    complete: bool = True
    start_s: float = float("nan")  # from submission to running
    stop_s: float = float("nan")  # stop with savepoint
    latency: Latency = "median"  # what its state latencies are


@dataclass(frozen=True, slots=True)
class SteadyPart:
    """One steady part of a run. Dictionaries by vertex hold only what was measured."""

    run: str
    start_s: float
    end_s: float
    parallelism: Mapping[str, int]
    level: Mapping[str, int]
    offered_per_s: float  # inf: more than the job can take
    rate_per_s: float  # over all sources
    spread: float  # relative spread of the rate between 5 s samples
    drift: float  # log of the rate in the second half over that in the first
    saturated: bool
    busy: Mapping[str, float] = field(default_factory=dict)  # 0..1, mean over subtasks
    hit: Mapping[str, float] = field(default_factory=dict)  # of the block cache's tickers
    read_us: Mapping[str, float] = field(default_factory=dict)
    write_us: Mapping[str, float] = field(default_factory=dict)
    selectivity: Mapping[str, float] = field(default_factory=dict)
    hottest: Mapping[str, float] = field(default_factory=dict)  # fullest subtask over the mean
    latency: Latency = "median"  # what read_us is
    base_mib: float | None = None  # managed memory of level 0 when measured; None: the job file's

    @property
    def memory(self) -> float:
        """Managed memory as a number that grows with it: log2 of MiB over vertices, -1 for none."""
        return memory_of(self.level, self.base_mib)


def memory_of(level: Mapping[str, int], base_mib: float | None) -> float:
    """Managed memory over all vertices, on a log2 scale.

    Args:
        level: memory level by vertex, -1: none.
        base_mib: MiB of level 0; None: counts as 1.

    Returns:
        The sum of log2 of each vertex's MiB; one without managed memory counts as -1.
    """
    base = np.log2(base_mib or 1.0)
    return float(sum(x + base if x >= 0 else -1.0 for x in level.values()))


def observe_all(runs: Sequence[MeasuredRun]) -> list[SteadyPart]:
    """Finds the steady parts of every run that was not aborted.

    Returns:
        The parts, run by run.
    """
    return [found for run in runs if run.complete for found in observe(run)]


def observe(run: MeasuredRun) -> list[SteadyPart]:
    """Finds the steady parts of one run.

    Returns:
        The parts in order of time; empty if the run is too short or its sources did not report.
    """
    if not len(run.samples):
        return []
    end_s = float(run.samples.t_s[-1])
    starts = [start for start, _ in run.offered]
    ends = [*(start - SAMPLE_S for start in starts[1:]), end_s]
    found = []
    for (start, rate), end in zip(run.offered, ends, strict=True):
        part = _part(run, start, min(end, end_s), rate)
        if part is not None:
            found.append(part)
    return found


def _part(run: MeasuredRun, start: float, end: float, offered: float) -> SteadyPart | None:
    # Half a sample more on the left: the increase counts from the sample at the bound itself.
    settled = run.samples.between(start + SETTLED_S - 0.5 * SAMPLE_S, end)
    rate, spread, drift = _rate(run.spec, settled)
    if end - start - SETTLED_S < LEAST_STEADY_S or not rate > 0:
        return None
    saturated = rate < SATURATED * offered
    if rate > offered / SATURATED:  # catches up what it owes from before
        return None
    gauges_from = start + GAUGE_S
    if saturated and end <= gauges_from:
        gauges_from = end
    gauges = run.samples.between(gauges_from - 0.5 * SAMPLE_S, end)
    selectivity, hottest = _flow(run.spec, settled)
    return SteadyPart(
        run.name,
        start,
        end,
        dict(run.parallelism),
        dict(run.level),
        np.inf if saturated else offered,
        rate,
        spread,
        drift,
        saturated,
        _busy(settled) or (_busy_gauges(gauges) if end >= gauges_from else {}),
        _hit_ratios(settled),
        _medians(settled, "state_read_latency_p50_ms", 1e3),
        _medians(settled, "state_write_latency_p50_ms", 1e3),
        selectivity,
        hottest,
        run.latency,
        run.spec.memory.base_mib,
    )


def _rate(spec: JobSpec, samples: Samples) -> tuple[float, float, float]:
    """Records/s over all sources, their spread between samples, and their drift."""
    total, steps, halves = 0.0, np.zeros(0), np.zeros(2)
    for vertex in spec.vertices:
        if vertex.kind != "source":
            continue
        times, values = _counter(samples, vertex.name, "emitted_records_total", "records_out_total")
        if len(times) < 3:
            return float("nan"), float("nan"), float("nan")
        total += _per_s(times, values)
        each = np.diff(np.nansum(values, axis=1)) / np.diff(times)
        steps = each if steps.size == 0 else steps[: len(each)] + each[: len(steps)]
        middle = len(times) // 2
        halves += [
            _per_s(times[: middle + 1], values[: middle + 1]),
            _per_s(times[middle:], values[middle:]),
        ]
    if not total > 0:
        return float("nan"), float("nan"), float("nan")
    # Median absolute deviation: one lost scrape must not count as noise.
    spread = 1.4826 * float(np.median(np.abs(steps - np.median(steps)))) / total
    drift = float(np.log(halves[1] / halves[0])) if np.all(halves > 0) else float("nan")
    return total, spread, drift


def _counter(samples: Samples, vertex: str, *metrics: str) -> tuple[Floats, Floats]:
    """The first of several counters that the vertex reports."""
    for metric in metrics:
        times, _, values = samples.grid(vertex, metric)
        if len(times) and np.nanmax(values) > 0:
            return times, values
    return np.zeros(0), np.zeros((0, 0))


def _per_s(times: Floats, values: Floats) -> float:
    rose, seconds = increase(times, values)
    return float(np.nansum(rose / seconds))


def _hit_ratios(samples: Samples) -> dict[str, float]:
    found = {}
    for vertex in samples.vertices():
        hits, misses = (
            _total(samples, vertex, f"cache_{kind}_total") for kind in ("hits", "misses")
        )
        if hits + misses >= LEAST_LOOKUPS:
            found[vertex] = hits / (hits + misses)
    return found


def _total(samples: Samples, vertex: str, metric: str) -> float:
    times, _, values = samples.grid(vertex, metric)
    return float(np.nansum(increase(times, values)[0])) if len(times) else 0.0


def _busy(samples: Samples) -> dict[str, float]:
    """Busy share from the accumulated times, mean over subtasks."""
    found = {}
    for vertex in samples.vertices():
        times, _, values = samples.grid(vertex, "busy_ms_total")
        if len(times) > 1:
            rose, seconds = increase(times, values)
            if np.isfinite(rose).any():
                found[vertex] = min(1.0, float(np.nanmean(rose / seconds)) * 1e-3)
    return found


def _busy_gauges(samples: Samples) -> dict[str, float]:
    found = {}
    for vertex in samples.vertices():
        _, _, values = samples.grid(vertex, "busy_ms_per_s")
        if np.isfinite(values).any():
            found[vertex] = float(np.nanmean(values)) * 1e-3
    return found


def _medians(samples: Samples, metric: str, scale: float) -> dict[str, float]:
    found = {}
    for vertex in samples.vertices():
        _, _, values = samples.grid(vertex, metric)
        known = values[np.isfinite(values) & (values > 0)]
        if known.size:
            found[vertex] = float(np.median(known)) * scale
    return found


def _flow(spec: JobSpec, samples: Samples) -> tuple[dict[str, float], dict[str, float]]:
    """Records out per record in, and the fullest subtask's input over the mean."""
    selectivity, hottest = {}, {}
    for vertex in spec.vertices:
        if vertex.kind == "source":
            continue
        times, _, values = samples.grid(vertex.name, "records_in_total")
        if len(times) < 2:
            continue
        into = increase(times, values)[0]
        if not np.nansum(into) > 0:
            continue
        if values.shape[1] > 1:
            hottest[vertex.name] = float(np.nanmax(into) / np.nanmean(into))
        if vertex.kind == "operator":
            out = _total(samples, vertex.name, "records_out_total")
            selectivity[vertex.name] = out / float(np.nansum(into))
    return selectivity, hottest
