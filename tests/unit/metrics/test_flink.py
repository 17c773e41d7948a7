"""Names of metrics, as Flink 2.1's REST interface and Prometheus reporter spell them."""

from __future__ import annotations

import re

import pytest

from dsp_gym.metrics.flink import (
    BY_NAME,
    FLINK_METRICS,
    SOURCE_METRICS,
    names_in,
    prometheus_names,
    vertex_of,
)

REST = {
    "busyTimeMsPerSecond": "busy_ms_per_s",
    "accumulateBusyTimeMs": "busy_ms_total",
    "numRecordsIn": "records_in_total",
    "session.numRecordsIn": None,
    "numRecordsInPerSecond": None,
    "Source__bids.pendingRecords": "pending_records",
    "Source__bids.emittedRecordsTotal": "emitted_records_total",
    "session.rocksdb_block_cache_hit": "cache_hits_total",
    "session.rocksdb_block_cache_miss": "cache_misses_total",
    "session.window-contents.rocksdb_block-cache-usage": "cache_usage_bytes",
    "session._timer_state/event_window-timers.rocksdb_estimate-live-data-size": "state_bytes",
    "session.state_name.window-contents.aggregatingStateGetLatency_median":
        "state_read_latency_p50_ms",
    "session.state_name.window-contents.aggregatingStateAddLatency_p95":
        "state_write_latency_p95_ms",
    "session.state_name.window-contents.aggregatingStateGetLatency_p98": None,
    "session.state_name.window-contents.stateClearLatency_p95": None,
    "sink.endToEndLatencyMs_p95": "latency_p95_ms",
    "sink.endToEndLatencyMs_mean": None,
    "sink.receivedRecordsTotal": "received_records_total",
    "Status.JVM.CPU.Load": "tm_cpu_load",
    "Status.JVM.GarbageCollector.All.TimeMsPerSecond": "tm_gc_ms_per_s",
}  # fmt: skip
"""Identifiers of a running job, without their subtask, and the metric each of them is."""

PREFIX = "flink_taskmanager_job_task_"
PROMETHEUS = {
    f"{PREFIX}numRecordsIn": "records_in_total",
    f"{PREFIX}operator_numRecordsIn": None,
    f"{PREFIX}operator_pendingRecords": "pending_records",
    f"{PREFIX}operator_rocksdb_block_cache_hit": "cache_hits_total",
    f"{PREFIX}operator_merging_window_set_rocksdb_block_cache_usage": "cache_usage_bytes",
    "flink_taskmanager_Status_JVM_CPU_Load": "tm_cpu_load",
    "flink_jobmanager_Status_JVM_CPU_Load": None,
    "flink_taskmanager_Status_Flink_Memory_Managed_Used": "tm_managed_used_mib",
}


@pytest.mark.parametrize(("identifier", "name"), REST.items())
def test_rest_identifiers_are_known(identifier, name):
    assert [m.name for m in FLINK_METRICS if m.matches(identifier)] == ([name] if name else [])


@pytest.mark.parametrize(
    ("identifier", "name"),
    [
        ("Source__clicks.numRecordsIn", "source_in_total"),
        ("Source__orders[1].numRecordsOut", "source_out_total"),
        ("filter.numRecordsIn", None),
        ("numRecordsIn", None),
        ("Source__clicks.numRecordsInPerSecond", None),
    ],
)
def test_source_operators_count_beside_their_task(identifier, name):
    assert [m.name for m in SOURCE_METRICS if m.matches(identifier)] == ([name] if name else [])


@pytest.mark.parametrize(("series", "name"), PROMETHEUS.items())
def test_prometheus_series_are_known(series, name):
    plain = [metric for metric in FLINK_METRICS if metric.quantile is None]
    found = [m.name for m in plain if re.fullmatch(prometheus_names(m), series)]
    assert found == ([name] if name else [])


def test_a_histogram_is_one_series_whatever_the_quantile():
    series = f"{PREFIX}operator_state_name_aggregatingStateGetLatency"
    for name in ("state_read_latency_p50_ms", "state_read_latency_p99_ms"):
        assert re.fullmatch(prometheus_names(BY_NAME[name]), series)
    assert not re.fullmatch(prometheus_names(BY_NAME["state_write_latency_p50_ms"]), series)


@pytest.mark.parametrize(
    ("task", "vertex"),
    [
        ("Source: bids", "bids"),
        ("Source:_bids", "bids"),
        ("auction_filter", "auction_filter"),
        ("count -> Sink: sink", "count"),
        ("count____Sink:_sink", "count"),
        ("Map -> (sink: Writer, count)", "sink"),
        ("sink: Committer", "sink"),
        ("key-by", "key-by"),
        ("key_by", "key-by"),
        ("Window(TumblingEventTimeWindows(10000))", None),
    ],
)
def test_a_task_belongs_to_the_first_vertex_its_chain_names(task, vertex):
    assert vertex_of(task, ["bids", "auction_filter", "count", "sink", "key-by"]) == vertex


@pytest.mark.parametrize(
    "task",
    [
        "Source: 订单数据源",
        "数据清洗 -> Sink: 写入结果表",
        "🚀 launch",
        "Source: orders[1] -> Calc[2]",
    ],
)
def test_a_name_in_any_script_leads_back_to_its_task(task):
    assert all(vertex_of(task, [name]) == name for name in names_in(task))
    assert len(names_in(task)) == len(task.split(" -> "))
