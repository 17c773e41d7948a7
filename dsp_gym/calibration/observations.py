"""What a recorded run shows in its steady parts: rates, busyness, hit rate, state latency.

A run is cut where its offered load steps. Counters count from 10 s after a start or a step (cold
cache, full buffers) to a sample before the next step, since the load's clock starts with the
submission. A part in which the job catches up what it owes is not steady and is left out.

Busyness comes from Flink's accumulated busy time. Where only its gauges were kept, which are means
over the last 60 s, they are read from 65 s after a start or a step; in a saturated run that is
shorter, from its last sample, which holds the least of the start.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.job.memory import level_mib
from dsp_gym.job.spec import JobSpec
from dsp_gym.metrics.columns import side_by_side
from dsp_gym.metrics.samples import SAMPLE_S, Samples, source_counter
from dsp_gym.metrics.window import increase

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
UNSTEADY = 0.15
"""Relative error of a rate, as a steady one, from which a part counts as never steady."""
LEAST_FOR_THIRDS = 9
"""Steps between samples from which thirds of a part are compared."""
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

    @classmethod
    def of_part(cls, spec: JobSpec, part: SteadyPart) -> MeasuredRun:
        """Take a steady part, whose samples are not kept, for a run."""
        offered = ((0.0, part.offered_per_s),)
        return cls(
            part.run,
            spec,
            part.parallelism,
            part.level,
            offered,
            Samples.of(()),
            latency=part.latency,
        )


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
    wander: float = 0.0  # half the log range of the rate over thirds; 0: too short to tell
    capped: bool = False  # its source emitted less than asked, though nothing held it back

    @property
    def uncertainty(self) -> float:
        """Relative error of the rate, taken for a steady one.

        Half of what it drifted, or wandered where that is more, and the scatter of its samples
        over their number's square root; what was not measured counts as none.
        """
        moved = np.nan_to_num([abs(self.drift) / 2.0, self.wander]).max()
        samples = max(1.0, (self.end_s - self.start_s - SETTLED_S) / SAMPLE_S)
        scatter = np.nan_to_num(self.spread) / np.sqrt(samples)
        return float(np.hypot(moved, scatter))

    @property
    def is_unsteady(self) -> bool:
        """It never became steady: its rate says little about its configuration."""
        return self.uncertainty > UNSTEADY

    @property
    def memory(self) -> float:
        """Managed memory as a number that grows with it: log2 of MiB over vertices, -1 for none."""
        return memory_of(self.level, self.base_mib)

    @property
    def configuration(self) -> tuple[object, ...]:
        """Tasks and levels by vertex and the memory of level 0; equal where the job ran alike."""
        tasks, levels = sorted(self.parallelism.items()), sorted(self.level.items())
        return tuple(tasks), tuple(levels), self.base_mib

    def managed_mib(self, vertex: str, base_mib: float) -> float:
        """Managed memory of one task of a vertex.

        Args:
            vertex: its name.
            base_mib: MiB of level 0 in the job file, for recordings that do not say.

        Returns:
            MiB; 0 for none.
        """
        return level_mib(self.base_mib or base_mib, self.level.get(vertex, -1))


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
    """Find the steady parts of every run that was not aborted.

    Returns:
        The parts, run by run.
    """
    return [found for run in runs if run.complete for found in observe(run)]


def observe(run: MeasuredRun) -> list[SteadyPart]:
    """Find the steady parts of one run.

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
    rate, spread, drift, wander = _rate(run.spec, settled)
    if end - start - SETTLED_S < LEAST_STEADY_S or not rate > 0:
        return None
    saturated = rate < SATURATED * offered
    if rate > offered / SATURATED:  # catches up what it owes from before
        return None
    gauges_from = start + GAUGE_S
    if saturated and end <= gauges_from:
        gauges_from = end
    gauges = run.samples.between(gauges_from - 0.5 * SAMPLE_S, end)
    busy = _busy(settled) or (_busy_gauges(gauges) if end >= gauges_from else {})
    capped = saturated and _is_capped(run.spec, gauges, busy)
    saturated = saturated and not capped
    selectivity, hottest = _flow(run.spec, settled)
    return SteadyPart(
        run.name,
        start,
        end,
        dict(run.parallelism),
        dict(run.level),
        np.inf if saturated else (rate if capped else offered),
        rate,
        spread,
        drift,
        saturated,
        busy,
        _hit_ratios(settled),
        _medians(settled, "state_read_latency_p50_ms", 1e3),
        _medians(settled, "state_write_latency_p50_ms", 1e3),
        selectivity,
        hottest,
        run.latency,
        run.spec.memory.base_mib,
        wander,
        capped,
    )


def _is_capped(spec: JobSpec, gauges: Samples, busy: Mapping[str, float]) -> bool:
    """Nothing holds the sources back, and no vertex is busy: they cannot emit more themselves."""
    blocked = []
    for vertex in spec.vertices:
        if vertex.kind == "source":
            times, _, values = gauges.grid(vertex.name, "backpressured_ms_per_s")
            last = side_by_side(times, values)[-1:]
            blocked += last[np.isfinite(last)].tolist()
    if not blocked or not busy:  # not measured
        return False
    return max(blocked) * 1e-3 < 1.0 - SATURATED and max(busy.values()) < SATURATED


def _rate(spec: JobSpec, samples: Samples) -> tuple[float, float, float, float]:
    """Records/s over all sources, their spread between samples, their drift and wander."""
    nothing = (float("nan"),) * 4
    total, steps, halves, thirds = 0.0, np.zeros(0), np.zeros(2), np.zeros(3)
    for vertex in spec.vertices:
        if vertex.kind != "source":
            continue
        times, _, values = samples.grid(vertex.name, source_counter(samples, vertex.name))
        if len(times) < 3 or not np.nanmax(values) > 0:
            return nothing
        total += _per_s(times, values)
        each = np.diff(np.nansum(side_by_side(times, values), axis=1)) / np.diff(times)
        steps = each if steps.size == 0 else steps[: len(each)] + each[: len(steps)]
        middle = len(times) // 2
        halves += [
            _per_s(times[: middle + 1], values[: middle + 1]),
            _per_s(times[middle:], values[middle:]),
        ]
        third = len(times) // 3
        cuts = [0, third, len(times) - 1 - third, len(times) - 1]
        thirds += [
            _per_s(times[a : b + 1], values[a : b + 1]) if b > a else np.nan
            for a, b in itertools.pairwise(cuts)
        ]
    if not total > 0:
        return nothing
    # Median absolute deviation: one lost scrape must not count as noise.
    spread = 1.4826 * float(np.median(np.abs(steps - np.median(steps)))) / total
    drift = float(np.log(halves[1] / halves[0])) if np.all(halves > 0) else float("nan")
    # Of thirds of one or two samples each, scatter alone makes a range.
    wander = 0.0
    if len(steps) >= LEAST_FOR_THIRDS and np.all(thirds > 0):
        wander = 0.5 * float(np.log(thirds.max() / thirds.min()))
    return total, spread, drift, wander


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
        times, _, values = samples.grid(vertex.name, "records_in_total")
        if len(times) < 2:
            continue
        into = increase(times, values)[0]
        if not np.nansum(into) > 0:
            continue
        if values.shape[1] > 1 and vertex.kind != "source":
            hottest[vertex.name] = float(np.nanmax(into) / np.nanmean(into))
        if vertex.kind != "sink":
            out = _total(samples, vertex.name, "records_out_total")
            selectivity[vertex.name] = out / float(np.nansum(into))
    return selectivity, hottest
