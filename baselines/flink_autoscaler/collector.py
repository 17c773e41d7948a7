"""The collector: samples from the metrics that Flink's REST API reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from baselines.flink_autoscaler.numbers import round3
from baselines.flink_autoscaler.options import Options
from baselines.flink_autoscaler.state import (
    BUSY,
    GC,
    GLOBALS,
    HEAP,
    HEAP_RATIO,
    IN,
    IN_PER_S,
    LAG,
    LOAD,
    MANAGED,
    METASPACE,
    OBSERVED,
    OUT,
    SCALING_METRICS,
    SLOTS,
)
from baselines.flink_autoscaler.window import observed_rate
from dsp_gym.arrays import Floats

Aggregates = Mapping[str, float]
"""min, max, avg and sum of one metric over subtasks or TaskManagers."""


class CollectionFailed(RuntimeError):
    """A metric that the autoscaler requires is missing."""


@dataclass(frozen=True)
class Vertex:
    """One vertex of a job as Flink's `/jobs/:id` shows it."""

    name: str
    inputs: Mapping[str, str]  # name -> ship strategy
    parallelism: int
    max_parallelism: int
    partitions: int = 0
    slot_sharing_group: str | None = None
    finished: bool = False
    records_in: float = 0.0  # IO metrics, all subtasks
    records_out: float = 0.0
    busy_ms: float = 0.0

    @property
    def is_source(self) -> bool:
        """Whether it has no inputs."""
        return not self.inputs


class _Reported(NamedTuple):
    """The relevant metrics of a vertex; all but the first are empty unless it is a source."""

    busy: Aggregates
    backpressured: Aggregates
    records_in: Sequence[Aggregates]
    in_per_s: Sequence[Aggregates]
    records_out: Sequence[Aggregates]
    pending: Sequence[Aggregates]


def vertex_sample(
    vertex: Vertex,
    metrics: Mapping[str, Aggregates],
    options: Options,
    carried: Callable[[], float],
    *,
    named: bool = False,
) -> Floats:
    """Take the sample of one vertex.

    Args:
        vertex: The vertex, with its IO metrics.
        metrics: Flink's name -> aggregates.
        options: Options, for the aggregator and the lag threshold.
        carried: Average of earlier OBSERVED_TPR, for a source that does not catch up.
        named: Whether the names of its metrics were seen before and are not asked for again; those
            of a source always are.

    Returns:
        (SCALING_METRICS,), NaN where a metric is missing.

    Raises:
        CollectionFailed: A required metric is not reported.
    """
    # NaN stands for a metric that Flink does not report.
    row = np.full(len(SCALING_METRICS), np.nan)
    found = _finished() if vertex.finished else _required(vertex, metrics, named)
    busy = _get(found.busy, options.busy_aggregator.lower())
    # ScalingMetrics.computeLoadMetrics: an infinite or missing gauge leaves the load unknown.
    row[LOAD] = max(0.0, busy) / 1000.0 if np.isfinite(busy) else np.nan
    counters = (vertex.records_in, vertex.records_out, vertex.busy_ms)
    row[IN], row[OUT], row[BUSY] = (0.0, 0.0, 0.0) if vertex.finished else counters
    row[IN] = np.maximum(0.0, row[IN])  # keeps a NaN, as in Java
    if vertex.is_source:
        # Several operators of a chain may report pending records; without any a source has no lag.
        row[LAG] = _summed(found.pending) if found.pending else 0.0
        # A source's numRecordsIn is often 0: then the operator's own count, then the output.
        for reported in (found.records_in, found.records_out):
            if row[IN] == 0.0 and reported:
                row[IN] = np.maximum(0.0, _get(reported[0], "sum"))
        # Negative reports are cut at 0; NumPy's maximum keeps a NaN, as Java's does.
        per_s = float(np.maximum(0.0, _get(found.in_per_s[0], "sum")))
        row[OBSERVED] = observed_rate(
            per_s,
            row[LAG],
            _get(found.backpressured, "avg"),
            float(options.observed_lag_ms // 1000),
            carried(),
        )
    elif "numRecordsInPerSecond" in metrics:
        row[IN_PER_S] = _get(metrics["numRecordsInPerSecond"], "sum")
    # The operator keeps samples with three decimals.
    return np.array([round3(float(value)) for value in row])


def _required(vertex: Vertex, metrics: Mapping[str, Aggregates], named: bool) -> _Reported:
    """Return the metrics a vertex has to report; a source reports more of them."""
    if named and not vertex.is_source:
        return _Reported(metrics.get("busyTimeMsPerSecond", {}), {}, [], [], [], [])
    # The names are asked for again: a required metric has to be among them.
    busy = _one(metrics, "busyTimeMsPerSecond", vertex)
    if not vertex.is_source:
        return _Reported(busy, {}, [], [], [], [])
    backpressured = _one(metrics, "backPressuredTimeMsPerSecond", vertex)

    def of_source(end: str) -> list[Aggregates]:
        # Flink names an operator's metrics in a chain "Source__NAME.metric".
        return [
            value
            for name, value in metrics.items()
            if name.startswith("Source__") and name.endswith(f".{end}")
        ]

    found = {end: of_source(end) for end in ("numRecordsIn", "numRecordsInPerSecond")}
    for end, values in found.items():
        if not values:
            raise CollectionFailed(f"vertex {vertex.name} reports no Source__*.{end}")
    return _Reported(
        busy,
        backpressured,
        found["numRecordsIn"],
        found["numRecordsInPerSecond"],
        of_source("numRecordsOut"),
        [value for name, value in metrics.items() if name.endswith(".pendingRecords")],
    )


def _finished() -> _Reported:
    zero = dict.fromkeys(("min", "max", "avg", "sum"), 0.0)
    return _Reported(zero, zero, [zero], [zero], [zero], [zero])


def _one(metrics: Mapping[str, Aggregates], name: str, vertex: Vertex) -> Aggregates:
    if name not in metrics:
        raise CollectionFailed(f"vertex {vertex.name} reports no {name}")
    return metrics[name]


def _get(aggregates: Aggregates, kind: str) -> float:
    value = aggregates.get(kind)
    return float("nan") if value is None else float(value)


def _summed(found: Sequence[Aggregates]) -> float:
    return sum(_get(value, "sum") for value in found)


def source_partitions(names: Iterable[str]) -> int:
    """Count the distinct partitions among the metrics of a Kafka or Pulsar source.

    Returns:
        The number; 0: unknown.
    """
    found = {one for name in names for one in (_of_kafka(name), _of_pulsar(name))}
    return len(found - {None})


def _of_kafka(name: str) -> tuple[str, ...] | None:
    """Cluster, topic and partition, which Kafka's reader writes into the name of a metric."""
    before, reader, rest = name.partition(".KafkaSourceReader.topic.")
    topic, _, number = rest.removesuffix(".currentOffset").rpartition(".partition.")
    if not (reader and rest.endswith(".currentOffset") and topic and number.isdecimal()):
        return None
    return "kafka", before.partition(".kafkaCluster.")[2], topic, number


def _of_pulsar(name: str) -> tuple[str, ...] | None:
    """Topic and partition, which Pulsar's consumer writes into the name of a metric."""
    _, consumer, rest = name.rpartition(".PulsarConsumer.")
    topic, _, after = rest.rpartition("-partition-")
    number, dot, last = after.partition(".")
    is_count = last.endswith(".numMsgsReceived")
    if not (consumer and topic and dot and number.isdecimal() and is_count):
        return None
    return "pulsar", topic, number


def job_sample(jm: Mapping[str, float] | None, tm: Mapping[str, Aggregates] | None) -> Floats:
    """Take the sample of the whole job.

    Returns:
        (GLOBALS,), NaN where the processes report nothing.

    Raises:
        CollectionFailed: TaskManagers report, but not all that is needed.
    """
    row = np.full(len(GLOBALS), np.nan)
    # Slots in use, from the JobManager's two counts.
    if jm is not None and {"taskSlotsTotal", "taskSlotsAvailable"} <= set(jm):
        row[SLOTS] = float(jm["taskSlotsTotal"]) - float(jm["taskSlotsAvailable"])
    if tm is None:
        return row
    for needed in (
        "HEAP_MEMORY_MAX",
        "HEAP_MEMORY_USED",
        "MANAGED_MEMORY_USED",
        "METASPACE_MEMORY_USED",
    ):
        if needed not in tm:
            raise CollectionFailed(f"the TaskManagers report no {needed}")
    if "TOTAL_GC_TIME_PER_SEC" in tm:
        # Milliseconds per second, as a share.
        row[GC] = _get(tm["TOTAL_GC_TIME_PER_SEC"], "max") / 1000.0
    row[HEAP] = _get(tm["HEAP_MEMORY_USED"], "max")
    row[HEAP_RATIO] = row[HEAP] / _get(tm["HEAP_MEMORY_MAX"], "max")
    row[MANAGED] = _get(tm["MANAGED_MEMORY_USED"], "max")
    row[METASPACE] = _get(tm["METASPACE_MEMORY_USED"], "max")
    return row
