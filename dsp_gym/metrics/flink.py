"""The one table of metrics: our name and unit, and their names at Flink, REST and Prometheus.

Flink's camelCase spelling lives here only. Recordings, collectors and the documentation read this
table. A metric that several Flink state types report is listed once with every spelling.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Scope = Literal["task", "operator", "source", "taskmanager"]
MetricKind = Literal["gauge", "counter"]
Merge = Literal["sum", "mean", "max"]

_READS = (
    "valueStateGetLatency",
    "listStateGetLatency",
    "mapStateGetLatency",
    "aggregatingStateGetLatency",
    "reducingStateGetLatency",
    "mapStateContainsLatency",
)
_WRITES = (
    "valueStateUpdateLatency",
    "listStateAddLatency",
    "listStateUpdateLatency",
    "mapStatePutLatency",
    "aggregatingStateAddLatency",
    "reducingStateAddLatency",
)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of one subtask (or TaskManager).

    `flink` holds the last parts of Flink's identifier as its REST interface spells it; several
    values of one subtask (of its states, of the operators of its chain) are merged by `merge`.
    The scope `source` is the operator scope of the sources in a chain, and of no other operator.
    """

    name: str
    scope: Scope
    flink: tuple[str, ...]
    kind: MetricKind = "gauge"
    merge: Merge = "sum"
    quantile: float | None = None  # of a histogram
    scale: float = 1.0  # factor from Flink's number to ours
    doc: str = ""

    def matches(self, identifier: str) -> bool:
        """Return whether an identifier of Flink's REST API, without the subtask, is this metric.

        Returns:
            True for this metric of the vertex, or of any operator inside it.
        """
        suffix = ""
        if self.quantile is not None:
            # Flink's REST interface calls the median `median` and all other quantiles `pNN`.
            suffix = "_median" if self.quantile == 0.5 else f"_p{_percent(self.quantile)}"
        ends = [f"{end}{suffix}" for end in self.flink]
        if self.scope in ("task", "taskmanager"):  # operators count `numRecordsIn`, too
            return identifier in ends
        is_source = identifier.startswith("Source__")
        of_scope = is_source or self.scope == "operator"
        return of_scope and identifier.endswith(tuple(f".{end}" for end in ends))


def _percent(quantile: float) -> str:
    return {0.5: "50", 0.75: "75", 0.95: "95", 0.99: "99"}.get(quantile) or str(quantile)


def _latency(prefix: str, ends: tuple[str, ...], doc: str) -> tuple[Metric, ...]:
    """Build a sampled histogram of state latency, in nanoseconds at Flink, in milliseconds here."""
    return tuple(
        Metric(
            f"{prefix}_p{_percent(q)}_ms",
            "operator",
            ends,
            # States of one subtask are read alike; the slowest of them is what the task waits for.
            merge="max",
            quantile=q,
            scale=1e-6,
            doc=f"{doc}, quantile {q}",
        )
        for q in (0.5, 0.75, 0.95, 0.99)
    )


FLINK_METRICS: tuple[Metric, ...] = (
    Metric("busy_ms_per_s", "task", ("busyTimeMsPerSecond",), merge="mean", doc="60 s mean"),
    Metric(
        "backpressured_ms_per_s",
        "task",
        ("backPressuredTimeMsPerSecond",),
        merge="mean",
        doc="60 s mean",
    ),
    Metric("idle_ms_per_s", "task", ("idleTimeMsPerSecond",), merge="mean", doc="60 s mean"),
    Metric(
        "busy_ms_total",
        "task",
        ("accumulateBusyTimeMs",),
        doc="since the task started; no counter, it may fall a little",
    ),
    Metric(
        "backpressured_ms_total",
        "task",
        ("accumulateBackPressuredTimeMs",),
        doc="since the task started; no counter, it may fall a little",
    ),
    Metric(
        "idle_ms_total",
        "task",
        ("accumulateIdleTimeMs",),
        doc="since the task started; no counter, it may fall a little",
    ),
    Metric(
        "records_in_total",
        "task",
        ("numRecordsIn",),
        "counter",
        doc="a source's are those it read itself, whatever its chain passes on",
    ),
    Metric(
        "records_out_total",
        "task",
        ("numRecordsOut",),
        "counter",
        doc="0 for a sink; a source's are those that leave its chain",
    ),
    Metric("pending_records", "operator", ("pendingRecords",), doc="source: backlog"),
    Metric(
        "cache_hits_total",
        "operator",
        ("rocksdb_block_cache_hit",),
        "counter",
        merge="max",
        doc="index, filter and data blocks",
    ),
    Metric(
        "cache_misses_total",
        "operator",
        ("rocksdb_block_cache_miss",),
        "counter",
        merge="max",
        doc="index, filter and data blocks",
    ),
    Metric(
        "cache_usage_bytes",
        "operator",
        ("rocksdb_block-cache-usage",),
        merge="max",
        doc="one cache for all states of a slot",
    ),
    Metric("state_bytes", "operator", ("rocksdb_estimate-live-data-size",), doc="live data"),
    *_latency("state_read_latency", _READS, "one state read, sampled"),
    *_latency("state_write_latency", _WRITES, "one state write, sampled"),
    *(
        Metric(
            f"latency_p{_percent(q)}_ms",
            "operator",
            ("endToEndLatencyMs",),
            merge="max",
            quantile=q,
            doc=f"sink: end-to-end, window residence left out, quantile {q}",
        )
        for q in (0.5, 0.95, 0.99)
    ),
    Metric(
        "emitted_records_total",
        "operator",
        ("emittedRecordsTotal",),
        "counter",
        doc="source: since the job's first start, kept in its state",
    ),
    Metric(
        "received_records_total",
        "operator",
        ("receivedRecordsTotal",),
        "counter",
        doc="sink: since the job's first start, kept in its state",
    ),
    Metric("tm_cpu_load", "taskmanager", ("Status.JVM.CPU.Load",), merge="mean", doc="0..1"),
    Metric(
        "tm_heap_used_mib",
        "taskmanager",
        ("Status.JVM.Memory.Heap.Used",),
        merge="mean",
        scale=2.0**-20,
    ),
    Metric(
        "tm_heap_max_mib",
        "taskmanager",
        ("Status.JVM.Memory.Heap.Max",),
        merge="mean",
        scale=2.0**-20,
    ),
    Metric(
        "tm_gc_ms_per_s",
        "taskmanager",
        ("Status.JVM.GarbageCollector.All.TimeMsPerSecond",),
        merge="mean",
    ),
    Metric(
        "tm_managed_used_mib",
        "taskmanager",
        ("Status.Flink.Memory.Managed.Used",),
        merge="mean",
        scale=2.0**-20,
    ),
    Metric(
        "tm_metaspace_used_mib",
        "taskmanager",
        ("Status.JVM.Memory.Metaspace.Used",),
        merge="mean",
        scale=2.0**-20,
    ),
)
"""Every collected metric. TaskManagers have vertex '' and their number as subtask."""

SOURCE_METRICS: tuple[Metric, ...] = (
    Metric("source_in_total", "source", ("numRecordsIn",), "counter"),
    Metric("source_out_total", "source", ("numRecordsOut",), "counter"),
)
"""Counters that `with_source_records` turns into a source's `records_in_total`, best first."""

SOURCE_NAMES = "Source:.*"
"""Names of source operators at Prometheus, a regular expression."""

BY_NAME: dict[str, Metric] = {metric.name: metric for metric in FLINK_METRICS}

_PREFIX = {
    "task": "flink_taskmanager_job_task_",
    "operator": "flink_taskmanager_job_task_operator_",
    "source": "flink_taskmanager_job_task_operator_",
    "taskmanager": "flink_taskmanager_",
}


def prometheus_names(metric: Metric) -> str:
    """Build a regular expression of the names of a metric's series at Prometheus.

    Flink's reporter replaces every character but letters, digits and underscores by one underscore.
    The name of a state may stand between the operator and the metric. By way of OpenTelemetry a
    name may keep its dots, and a counter ends with `_total`.

    Returns:
        A regular expression that matches whole names.

    >>> prometheus_names(BY_NAME["records_in_total"])
    'flink[._]taskmanager[._]job[._]task[._]numRecordsIn(_total)?'
    """
    # `dict.fromkeys` removes duplicates and keeps the order.
    ends = dict.fromkeys(re.sub(r"\W", "[._-]", end) for end in metric.flink)
    prefix = _PREFIX[metric.scope].replace("_", "[._]")
    between = "(?:.+[._])?" if metric.scope == "operator" else ""
    total = "(_total)?" if metric.kind == "counter" else ""
    end = f"({'|'.join(ends)})" if len(ends) > 1 else next(iter(ends))
    return f"{prefix}{between}{end}{total}"


def vertex_of(task_name: str, vertices: Iterable[str]) -> str | None:
    """Find the vertex of a job file that a Flink task belongs to; None where there is none.

    A task is named after its chain, sources and sinks with a prefix. Flink's Prometheus reporter
    replaces all characters but letters, digits, colons and underscores by an underscore.

    Returns:
        The vertex's name, or None.

    >>> vertex_of("Source: bids -> project", ["bids", "session"])
    'bids'
    >>> vertex_of("Source:_bids____project", ["bids", "session"])
    'bids'
    """
    return _vertex_of(task_name, tuple(vertices))


# Cached: collectors ask for the same tasks at every scrape.
@lru_cache(maxsize=8192)
def _vertex_of(task_name: str, vertices: tuple[str, ...]) -> str | None:
    for part in re.split(r"\s->\s", task_name):
        whole = part.strip()
        bare = whole.strip("() ")
        for name in (whole, bare, re.sub(r"^(Source|Sink): ", "", bare)):
            if name in vertices:
                return name
    known = {cleaned(v).strip("_"): v for v in vertices if re.search(r"[a-zA-Z0-9]", v)}
    # A chain's operators are joined by " -> ", which becomes several underscores.
    for part in re.split(r"__+", cleaned(task_name)):
        name = re.sub(r"^(Source|Sink):_", "", part.strip("_"))
        # Sinks of Flink's newer interface split into a writer and a committer.
        vertex = known.get(name) or known.get(re.sub(r":_(Writer|Committer)$", "", name))
        if vertex is not None:
            return vertex
    return None


def names_in(task_name: str) -> list[str]:
    """List names for a vertex of a job file with which `vertex_of` finds it by this task.

    Args:
        task_name: Name at Flink's REST interface or its Prometheus reporter.

    Returns:
        One for each recognisable operator of the chain, in its order, printable and not longer than
        120 characters.

    >>> names_in("Source: bids -> Flat Map -> Sink: out: Writer")
    ['bids', 'Flat Map', 'out']
    """
    found = []
    for part in re.split(r"\s->\s|__+", task_name):
        name = re.sub(r"^(Source|Sink):[ _]", "", part.strip(" _()"))
        name = re.sub(r":[ _](Writer|Committer)$", "", name)
        choices = [c.strip("_ ")[:120] for c in (name, *re.split(r"__+", cleaned(name)))]
        fit = [c for c in choices if c and c.isprintable() and vertex_of(task_name, (c,)) == c]
        # Best is a name by which Prometheus' reporter leads back to this task, too.
        found += [c for c in fit if vertex_of(cleaned(task_name), (c,)) == c][:1] or fit[:1]
    return list(dict.fromkeys(found))


def cleaned(name: str) -> str:
    """Return a name as Flink's Prometheus reporter writes it into a label.

    Returns:
        The name with an underscore for each character but letters, digits, colons and underscores.
    """
    return re.sub(r"[^a-zA-Z0-9:_]", "_", name)
