"""A metrics snapshot from raw samples: the same code for Prometheus, REST and recordings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from dsp_gym.arrays import Floats
from dsp_gym.config.model import ConfigModel
from dsp_gym.job.spec import Vertex
from dsp_gym.loop.snapshot import MetricsSnapshot, Status, unknown_snapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.metrics.columns import newest
from dsp_gym.metrics.running import interval_of
from dsp_gym.metrics.samples import SAMPLE_S, Samples

_SHARES = ("busy", "backpressured", "idle")
_TASKMANAGER = (
    "tm_cpu_load",
    "tm_heap_used_mib",
    "tm_heap_max_mib",
    "tm_gc_ms_per_s",
    "tm_managed_used_mib",
    "tm_metaspace_used_mib",
)

FRESH_S = 4 * SAMPLE_S
"""Age beyond which values are left out of a snapshot, s; more where scrapes are rarer."""

_FRESH = 1.5
"""The same in scrape intervals: a scrape comes a little late, and none is waited for in vain."""

_LEAST_COVERED = 0.5
"""Share of the best covered vertex' time below which a vertex counts as one that does not report.

One that has missed a scrape reports; one whose TaskManager has just come back does not yet.
"""

_CARRIED = ("records_in_per_s", "records_out_per_s", "pending_records", "pending_growth_per_s")
"""Of a vertex that has ended, 0."""

_REPORTED = ("busy_ms_per_s", "records_in_per_s", "records_out_per_s")
"""Means of which a vertex that reports has at least one."""


class WindowConfig(ConfigModel):
    """The samples over which the means of a snapshot of a real job are taken."""

    window_s: int = Field(
        120, ge=SAMPLE_S, le=3600, description="length of the metrics window, s (Justin: 120 s)"
    )
    stabilization_s: int = Field(
        60, ge=0, le=3600, description="samples left out after a (re)start, s (Justin: 60 s)"
    )


@dataclass(frozen=True, slots=True)
class Observed:
    """The observations of one job beside its samples."""

    t_s: float
    status: Status
    running_since_s: float
    parallelism: Mapping[str, int]  # by vertex, of the running job
    memory_level: Mapping[str, int]
    outage_s: float = float("nan")  # of the last rescale
    resumed_from_s: float = float("nan")  # time of the checkpoint that it resumed from
    tm_count: float = float("nan")
    running: Mapping[str, int] = field(default_factory=dict)
    """Subtasks that run, of vertices of which some have read all there was."""


def increase(times: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Return the increase of cumulative counters, and the seconds it took.

    A counter that falls has restarted at zero, so its value is its increase.

    Args:
        times: (T,) rising.
        values: (T, P) one column per subtask, NaN where missing.

    Returns:
        Increase (P,) and the seconds between a column's first and last known value (P,); both NaN
        where fewer than two values are known.
    """
    rose = np.full(values.shape[1], np.nan)
    seconds = np.full(values.shape[1], np.nan)
    for column in range(values.shape[1]):
        known = np.flatnonzero(~np.isnan(values[:, column]))
        if len(known) < 2:
            continue
        series = values[known, column]
        steps = np.diff(series)
        rose[column] = np.where(steps < 0, series[1:], steps).sum()
        seconds[column] = times[known[-1]] - times[known[0]]
    return rose, seconds


def snapshot_of(
    topology: Topology,
    observed: Sequence[Observed],
    samples: Sequence[Samples],
    window: WindowConfig,
) -> MetricsSnapshot:
    """Compute the snapshot of J jobs.

    Of a job that does not run only its configuration is known. A metric that not all subtasks of a
    vertex report is unknown: a sum over the others would be no rate of the vertex. That costs this
    vertex alone. `window_fill` is the share of the window between the first and the last sample of
    the vertices that report; it is 0 where no source does. Rates that a vertex lacks are those of
    its neighbours where these have no others (`_from_neighbours`).

    Args:
        topology: the jobs.
        observed: the observations of each job beside its samples.
        samples: samples of each job, at least of the last `window_s` + one sample; older ones and
            those from before the restart are left out here.
        window: the metrics window, over which samples are averaged.

    Returns:
        One row per job; NaN where a value is unknown.
    """
    # Everything is NaN until a sample says otherwise.
    seen = unknown_snapshot(topology)
    seen.window_s[:] = window.window_s
    seen.window_fill[:] = 0.0
    for row, (known, raw) in enumerate(zip(observed, samples, strict=True)):
        seen.status[row] = known.status
        seen.t_s[row], seen.running_since_s[row] = known.t_s, known.running_since_s
        seen.outage_s[row], seen.tm_count[row] = known.outage_s, known.tm_count
        seen.resumed_from_s[row] = known.resumed_from_s
        vertices = topology.spec(row).topological_order()
        for column, vertex in enumerate(vertices):
            at = (row, column)
            seen.parallelism[at] = known.parallelism.get(vertex.name, vertex.parallelism)
            seen.memory_level[at] = known.memory_level.get(vertex.name, -1)
        if known.status in (Status.RUNNING, Status.SAVEPOINTING):
            since_restart = raw.between(known.running_since_s, known.t_s)
            _measure(seen, row, since_restart, window, known.running)
    return seen


def _measure(
    seen: MetricsSnapshot,
    row: int,
    since_restart: Samples,
    window: WindowConfig,
    running: Mapping[str, int],
) -> None:
    """Fill in what samples show of a job that runs.

    Subtasks that have finished report no more. A vertex that has ended carries nothing: its rates
    and its backlog are 0, all else of it is unknown, so that nothing is decided on it.
    """
    vertices = seen.topology.spec(row).topological_order()
    t_s = float(seen.t_s[row])
    settled_s = max(
        t_s - window.window_s, float(seen.running_since_s[row]) + window.stabilization_s
    )
    # One sample before the window: its first increase starts there.
    recent = since_restart.between(settled_s - SAMPLE_S, t_s)
    inside = recent.between(settled_s, t_s)
    fresh_s = max(FRESH_S, _FRESH * interval_of(since_restart))
    fresh = since_restart.between(t_s - fresh_s, t_s)
    seen.counted_s[row] = _counted_s(fresh, [v.name for v in vertices if v.kind == "source"])
    for name in _TASKMANAGER:
        getattr(seen, name)[row] = _newest(fresh, "", name, np.mean)
    if seen.tm_cpu_load[row] < 0:  # how a JVM says that it does not know
        seen.tm_cpu_load[row] = np.nan
    parallelism = seen.parallelism[row].tolist()
    tasks = [running.get(v.name, parallelism[i]) for i, v in enumerate(vertices)]
    has_ended = [count == 0 for count in tasks]
    covered_s = np.array(
        [
            _covered_s(inside, v.name, tasks[i], (settled_s, t_s), fresh_s)
            for i, v in enumerate(vertices)
        ]
    )
    means = [
        _means(recent, inside, v.name, v.kind == "source", tasks[i]) for i, v in enumerate(vertices)
    ]
    unknown = [all(np.isnan(mean[name]) for name in _REPORTED) for mean in means]
    covered_s[unknown] = 0.0
    reports = covered_s > _LEAST_COVERED * covered_s.max()
    reports &= ~np.array(has_ended)
    if any(reports[i] for i, v in enumerate(vertices) if v.kind == "source"):
        seen.window_fill[row] = covered_s[reports].min() / window.window_s
        latencies = [mean.pop("latency_p95_s") for mean in means]
        seen.latency_p95_s[row] = np.fmax.reduce(latencies)
        means = [mean if reports[i] else {} for i, mean in enumerate(means)]
    else:
        means = [{} for _ in vertices]
    for column, vertex in enumerate(vertices):
        now = _now(fresh, vertex.name, vertex.kind == "source", tasks[column])
        found = dict.fromkeys(_CARRIED, 0.0) if has_ended[column] else now | means[column]
        for name, value in found.items():
            getattr(seen, name)[row, column] = value
    if seen.window_fill[row] > 0:
        _from_neighbours(vertices, seen.records_in_per_s[row], seen.records_out_per_s[row])


def _from_neighbours(vertices: Sequence[Vertex], arriving: Floats, leaving: Floats) -> None:
    """Fill in rates, (V,), that vertices lack and the graph gives, from the sources on.

    The input of a vertex is the output of all its inputs, each of which sends all its records to
    every consumer. The output of a vertex is the input of its only consumer, where that reads from
    no other. Edges that broadcast are not told apart from others in a job file.
    """
    at = {vertex.name: column for column, vertex in enumerate(vertices)}
    inputs = [[at[edge.from_] for edge in vertex.inputs] for vertex in vertices]
    for v, of in enumerate(inputs):
        if of and np.isnan(arriving[v]):
            arriving[v] = leaving[of].sum()
    for u in range(len(vertices)):
        consumers = [v for v, of in enumerate(inputs) if u in of]
        if len(consumers) == 1 and np.isnan(leaving[u]) and inputs[consumers[0]] == [u]:
            leaving[u] = arriving[consumers[0]]


def _is_whole(subtasks: NDArray[np.int32], parallelism: int) -> bool:
    """Return whether all subtasks of a vertex report; one series for all of them has number -1."""
    return len(subtasks) > 0 and (subtasks[0] < 0 or len(subtasks) >= parallelism)


def _covered_s(
    inside: Samples, vertex: str, parallelism: int, span: tuple[float, float], fresh_s: float
) -> float:
    """Return the seconds of (since, until] between samples of every subtask of a vertex.

    Counters go on through lost samples: two known ones give the rate of all the time between. So
    holes are where none is known for longer than `fresh_s` at one of the ends; a sample covers the
    `SAMPLE_S` before it.
    """
    since_s, until_s = span
    for metric in ("busy_ms_total", "busy_ms_per_s", "records_in_total", "records_out_total"):
        times, subtasks, values = inside.grid(vertex, metric)
        if values.size:
            break
    if not _is_whole(subtasks, parallelism):
        return 0.0
    holes = 0.0
    for column in values.T:
        known = times[~np.isnan(column)]
        if not len(known):
            return 0.0
        ends = np.array([known[0] - since_s, until_s - known[-1]])
        holes = max(holes, float((ends[ends > fresh_s] - SAMPLE_S).sum()))
    return max(0.0, until_s - since_s - holes)


def _counted_s(samples: Samples, sources: Sequence[str]) -> float:
    """Return the mean time of the newest counters of the sources over subtasks; NaN: none."""
    scraped = []
    for source in sources:
        times, _, values = samples.grid(source, "records_out_total")
        known = (times[~np.isnan(column)] for column in values.T)
        scraped += [of_subtask[-1] for of_subtask in known if len(of_subtask)]
    return float(np.mean(scraped)) if scraped else float("nan")


def _now(samples: Samples, vertex: str, is_source: bool, tasks: int) -> dict[str, float]:
    """Return gauges and counters as of the newest sample of a vertex with so many tasks."""
    seen = {
        name: _newest(samples, vertex, name, np.sum, tasks)
        for name in ("records_in_total", "records_out_total")
    }
    # Only subtasks that hold state, or partitions, report these.
    for name in ("cache_hits_total", "cache_misses_total"):
        seen[name] = _newest(samples, vertex, name, np.sum)
    seen["state_mib"] = _newest(samples, vertex, "state_bytes", np.sum) / 2**20
    for share in ("busy", "backpressured"):
        gauge = f"{share}_ms_per_s"
        seen[f"{share}_now_ms_per_s"] = _newest(samples, vertex, gauge, np.mean, tasks)
    if is_source:
        seen["pending_records"] = _newest(samples, vertex, "pending_records", np.sum)
        seen["pending_records_max_subtask"] = _newest(samples, vertex, "pending_records", np.max)
        if not seen["records_in_total"] > 0:  # Flink counts no input of a source
            seen["records_in_total"] = seen["records_out_total"]
    return seen


def _means(
    recent: Samples, inside: Samples, vertex: str, is_source: bool, tasks: int
) -> dict[str, float]:
    """Return the means over the window.

    Args:
        recent: samples of the window and the one before it.
        inside: samples of the window.
        vertex: name of the vertex.
        is_source: whether the vertex reads no other.
        tasks: its parallelism.
    """
    seen = {
        f"records_{way}_per_s": _rate(recent, vertex, f"records_{way}_total", tasks)
        for way in ("in", "out")
    }
    if is_source and not seen["records_in_per_s"] > 0:
        seen["records_in_per_s"] = seen["records_out_per_s"]
    # Busy, backpressured and idle are shares of each subtask's time.
    for share in _SHARES:
        per_subtask = _share(recent, inside, vertex, share, tasks)
        known = len(per_subtask) > 0
        seen[f"{share}_ms_per_s"] = float(per_subtask.mean()) if known else np.nan
        if share == "busy":
            seen["busy_max_ms_per_s"] = float(per_subtask.max()) if known else np.nan
            seen["busy_accumulated_ms_per_s"] = float(per_subtask.sum()) if known else np.nan
    hits, misses = (
        _total_increase(recent, vertex, f"cache_{what}_total") for what in ("hits", "misses")
    )
    seen["cache_hit_rate"] = hits / (hits + misses) if hits + misses > 0 else np.nan
    for way in ("read", "write"):
        seen[f"state_{way}_latency_ms"] = _mean_latency(inside, vertex, f"state_{way}_latency")
    seen["pending_growth_per_s"] = _growth(inside, vertex) if is_source else np.nan
    seen["latency_p95_s"] = _hottest(inside, vertex, "latency_p95_ms") / 1000.0
    return seen


def _growth(inside: Samples, vertex: str) -> float:
    """Return the growth of a source's backlog, records/s: of each subtask alone, then summed."""
    times, _, pending = inside.grid(vertex, "pending_records")
    slopes = _slopes(times, pending)
    return float(slopes.sum()) if len(slopes) else 0.0 if len(times) else float("nan")


def _slopes(times: Floats, values: Floats) -> Floats:
    """Return the change per second from first to last known value, of subtasks with two, (P,)."""
    slopes = []
    for column in values.T:
        known = np.flatnonzero(~np.isnan(column))
        if len(known) > 1:
            first, last = known[0], known[-1]
            slopes.append((column[last] - column[first]) / (times[last] - times[first]))
    return np.array(slopes, dtype=np.float64)


def _hottest(inside: Samples, vertex: str, gauge: str) -> float:
    """Return the mean over time of the highest subtask's value, each held until its next sample.

    Subtasks on several TaskManagers are not sampled at one instant.
    """
    _, _, values = inside.grid(vertex, gauge)
    if np.all(np.isnan(values)):
        return float("nan")
    highest = np.nan_to_num(newest(values), nan=-np.inf).max(axis=1)
    return float(highest[np.isfinite(highest)].mean())


def _share(recent: Samples, inside: Samples, vertex: str, share: str, tasks: int) -> Floats:
    """Return ms/s of each subtask, (P,): from Flink's cumulated times, else its gauges.

    None where fewer subtasks report than the vertex has.

    The gauges are 60 s means and lag behind a change; the cumulated times do not. They are no
    counters, though: Flink adds idle time when the task wakes up, and busy time is the rest of the
    clock, so for a moment it is too high and then falls.
    """
    times, subtasks, totals = recent.grid(vertex, f"{share}_ms_total")
    if totals.size:
        slopes = _slopes(times, totals) if _is_whole(subtasks, tasks) else np.empty(0)
        return np.asarray(np.clip(slopes, 0.0, 1000.0))
    _, subtasks, gauge = inside.grid(vertex, f"{share}_ms_per_s")
    if not _is_whole(subtasks, tasks):
        return np.empty(0)
    columns = [column[~np.isnan(column)] for column in gauge.T]
    means = np.array([column.mean() for column in columns if len(column)], dtype=np.float64)
    return np.asarray(np.clip(means, 0.0, 1000.0))


def _rate(recent: Samples, vertex: str, counter: str, tasks: int) -> float:
    times, subtasks, values = recent.grid(vertex, counter)
    if not _is_whole(subtasks, tasks):
        return float("nan")
    rose, seconds = increase(times, values)
    known = seconds > 0
    return float((rose[known] / seconds[known]).sum()) if np.any(known) else float("nan")


def _total_increase(recent: Samples, vertex: str, counter: str) -> float:
    times, _, values = recent.grid(vertex, counter)
    return float(np.nansum(increase(times, values)[0]))


def _mean_latency(inside: Samples, vertex: str, prefix: str) -> float:
    """Return the mean over window and subtasks of a histogram with quantiles .5, .75, .95, .99.

    The quantile function is taken as linear between them, flat below the first and above the last.
    """
    quantiles = [
        float(np.nanmean(values)) if values.size and np.any(~np.isnan(values)) else float("nan")
        for values in (inside.grid(vertex, f"{prefix}_p{q}_ms")[2] for q in (50, 75, 95, 99))
    ]
    p50, p75, p95, p99 = quantiles
    if np.isnan(p50):
        return float("nan")
    p75, p95, p99 = (p50 if np.isnan(q) else q for q in (p75, p95, p99))
    # The integral of that function: half the mass below the median, trapezoids in between.
    return 0.5 * p50 + 0.125 * (p50 + p75) + 0.1 * (p75 + p95) + 0.02 * (p95 + p99) + 0.01 * p99


def _newest(
    samples: Samples,
    vertex: str,
    metric: str,
    merge: Callable[[list[float]], float],
    tasks: int = 1,
) -> float:
    """Merge the newest known values of the subtasks; NaN where fewer than `tasks` have one."""
    _, subtasks, values = samples.grid(vertex, metric)
    if not _is_whole(subtasks, tasks):
        return float("nan")
    known = [column[~np.isnan(column)] for column in values.T]
    last = [column[-1] for column in known if len(column)]
    return float(merge(last)) if last else float("nan")
