"""Samples from Prometheus, and the handling of missing answers."""

from __future__ import annotations

import json
import re
import socket
import time

import numpy as np
import pytest
from requests import Request

from dsp_gym.backends.flink.backend import FlinkBackend, FlinkCollector
from dsp_gym.backends.flink.job import FlinkJob
from dsp_gym.backends.flink.prometheus import PrometheusSamples
from dsp_gym.backends.flink.prometheus_api import PRESETS, Labels, PrometheusApi
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.backends.flink.source import SampleSource
from dsp_gym.backends.upstream.access import AccessConfig
from dsp_gym.errors import ConfigError, FlinkError
from dsp_gym.metrics.window import WindowConfig
from tests.answering import answering, tell
from tests.simulating import line

TASK = "flink_taskmanager_job_task_"
QUERY = "/api/v1/query"


@pytest.fixture
def server():
    """Flink and Prometheus in one; `series` is what Prometheus has."""
    with answering() as told:
        tell(told)
        told.series = []

        def query(asked):
            selector = re.fullmatch(r"({.*})\[\d+ms\]", asked["query"]).group(1)
            matchers = [
                (label, re.escape(value) if equals == "=" else json.loads(f'"{value}"'))
                for label, equals, value in re.findall(r'(\w+)(=~|=)"((?:[^"\\]|\\.)*)"', selector)
            ]
            found = [
                s for s in told.series
                if all(re.fullmatch(value, s["metric"].get(label, "")) for label, value in matchers)
            ]  # fmt: skip
            told.queries.append(asked)
            return {"status": "success", "data": {"resultType": "matrix", "result": found}}

        told.queries = []
        told.answers[QUERY] = query
        yield told


@pytest.fixture
def source(server):
    job = FlinkJob(FlinkRest(server.url, timeout_s=2.0), "mine", line())
    return PrometheusSamples(server.url, job, line(), timeout_s=2.0)


def shown_by(source):
    collector = FlinkCollector(line(), source.job, source, WindowConfig())
    return FlinkBackend(collector, None)


def series(name, *values, task="map", subtask=0, **labels):
    at = {"task_name": task, "subtask_index": str(subtask), "job_id": "a1", "tm_id": "one:1"}
    return {"metric": {"__name__": name} | at | labels, "values": [(t, str(v)) for t, v in values]}


def of_taskmanager(name, *values, host="one:1"):
    metric = {"__name__": f"flink_taskmanager_{name}", "tm_id": host}
    return {"metric": metric, "values": [(t, str(v)) for t, v in values]}


def test_it_is_a_source(source):
    assert isinstance(source, SampleSource)
    assert source.poll() is None


def test_each_value_stands_at_the_time_it_was_scraped(server, source):
    server.series = [
        series(f"{TASK}numRecordsIn", (10.25, 5), (15.25, 9), subtask=1),
        series(f"{TASK}operator_pendingRecords", (10.25, 7), task="Source:_source"),
        series(f"{TASK}numRecordsIn", (12.0, 1), task="unknown"),
        of_taskmanager("Status_JVM_Memory_Heap_Used", (11.0, 3 * 2**20)),
    ]
    assert list(source.samples(5, 20).rows()) == [
        (10.25, "map", 1, "records_in_total", 5),
        (10.25, "source", 0, "pending_records", 7),
        (11.0, "", 0, "tm_heap_used_mib", 3),
        (15.25, "map", 1, "records_in_total", 9),
    ]
    for asked in server.queries:  # no instant value, which may be five minutes old
        assert asked["query"].endswith("[15000ms]")
        assert asked["time"] == "20.000"


COUNTED = ((10, 100), (15, 200))


def test_a_source_is_read_by_its_own_operator(server, source):
    filtered = {"task": "Source:_source____filter"}
    server.series = [
        series(f"{TASK}numRecordsIn", (10, 0), (15, 0), **filtered),
        series(f"{TASK}numRecordsOut", (10, 1), (15, 2), **filtered),
        series(
            f"{TASK}operator_numRecordsIn", *COUNTED, operator_name="Source:_source", **filtered
        ),
        series(f"{TASK}operator_numRecordsIn", (10, 7), operator_name="filter", **filtered),
    ]
    assert {row[3:] for row in source.samples(5, 20).rows()} == {
        ("records_in_total", 100), ("records_in_total", 200),
        ("records_out_total", 1), ("records_out_total", 2),
    }  # fmt: skip


def test_of_two_jobs_with_one_id_the_one_of_the_name_is_read(server, source):
    server.series = [
        series(f"{TASK}numRecordsIn", *COUNTED, job_name="mine"),
        series(f"{TASK}numRecordsIn", (10, 5), (15, 6), job_name="others"),
    ]
    assert [row[4] for row in source.samples(5, 20).rows()] == [100, 200]
    server.series = [
        series(f"{TASK}numRecordsIn", *COUNTED, job_name=name) for name in ("one", "two")
    ]
    with pytest.raises(FlinkError, match="2 jobs have the id a1: 'one', 'two'; none is named mine"):
        source.samples(5, 20)


def test_labels_of_another_prometheus_are_read_by_their_names(server):
    job = FlinkJob(FlinkRest(server.url, timeout_s=2.0), "mine", line())
    labels = Labels.parse('job_id=, job_name=flink_job, tm_id=, cluster="eu"')
    theirs = PrometheusSamples(server.url, job, line(), timeout_s=2.0, labels=labels)
    server.series = [
        series(f"{TASK}numRecordsIn", *COUNTED, job_id="", flink_job="mine", cluster="eu"),
        series(f"{TASK}numRecordsIn", (10, 5), job_id="", flink_job="mine", cluster="us"),
        series(f"{TASK}numRecordsIn", (10, 6), job_id="", flink_job="other", cluster="eu"),
    ]
    assert [row[4] for row in theirs.samples(5, 20).rows()] == [100, 200]


MONITORED = {
    "job": "jobs/flink", "instance": "10.0.0.7:9249", "namespace": "jobs", "pod": "mine-tm-1",
    "container": "flink-main-container", "endpoint": "metrics", "host": "10_0_0_7",
}  # fmt: skip
COUNTED_IN = f"{TASK}numRecordsIn"
LABEL_SETS = {
    "flink": [{"job_name": "mine", "host": "10_0_0_7", "task_attempt_num": "0"}],
    "scope-excluded": [{"job_name": "mine", "job_id": "", "tm_id": ""}],
    "pod-monitor": [{"job_name": "mine", **MONITORED}],
    "service-monitor": [{"job_name": "mine", **MONITORED, "service": "mine-metrics"}],
    "thanos": [
        {"job_name": "mine", "prometheus": "monitoring/k8s", "prometheus_replica": f"k8s-{n}"}
        for n in range(2)
    ],
    "mimir": [{"job_name": "mine", "cluster": "eu", "__tenant_id__": "team"}],
    "cortex": [{"job_name": "mine", "cluster": "eu"}],
    "pushgateway": [{"job_name": "mine", "job": "pushgateway", "exported_job": "mine8f2c"}],
    "opentelemetry": [
        {
            "job_name": "mine", "__name__": "flink.taskmanager.job.task.numRecordsIn_total",
            "service_name": "flink", "service_version": "2.1", "otel_scope_name": "io.flink",
        }
    ],
}  # fmt: skip
"""Labels of series beside those of `series`, as they reach a Prometheus each way."""


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_reads_series_as_they_arrive_that_way(server, preset):
    server.series = [
        series(COUNTED_IN, *COUNTED, **labels) for labels in LABEL_SETS[preset]
    ] + [series(COUNTED_IN, (10, 5), **{**LABEL_SETS[preset][0], "job_name": "other"})]  # fmt: skip
    job = FlinkJob(FlinkRest(server.url, timeout_s=2.0), "mine", line())
    source = PrometheusSamples(server.url, job, line(), 0.5, labels=Labels.parse(preset))
    assert [row[4] for row in source.samples(5, 20).rows()] == [100, 200]


def test_further_labels_follow_a_preset():
    found = Labels.parse('opentelemetry, job_name=flink.job.name, cluster="eu"')
    assert (found.job_name, found.only) == ("flink.job.name", (("cluster", "eu"),))
    assert found.selector("up", (found.job_name, "mine")) == (
        '{__name__=~"up","flink.job.name"=~"mine",cluster="eu"}'
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pod-monitr", "neither a pair of labels nor.*pod-monitor, service-monitor"),
        ("job_name=x, thanos", "'thanos'.*neither a pair"),
        ("jobname=x", "no label of Flink's.*Did you mean 'job_name'.*task_attempt_num"),
        ("job_id=,job_name=", "without job_name and job_id nothing tells"),
        ("subtask_index=", "without subtask_index nothing tells"),
    ],
)
def test_labels_that_name_nothing_are_refused(text, said):
    with pytest.raises(ConfigError, match=said):
        Labels.parse(text)


def test_a_label_that_no_series_has_is_named_with_those_that_they_have(server):
    job = FlinkJob(FlinkRest(server.url, timeout_s=2.0), "mine", line())
    theirs = PrometheusSamples(
        server.url, job, line(), timeout_s=2.0, labels=Labels.parse("job_id=flink_id")
    )
    assert len(theirs.samples(5, 20)) == 0  # there is nothing yet
    server.series = [series(f"{TASK}numRecordsOut", (10, 5))]
    for _ in range(2):
        with pytest.raises(FlinkError, match=r"label flink_id, .*job_id=THEIRS.*have job_id, sub"):
            theirs.samples(5, 20)
    eu = PrometheusSamples(
        server.url, theirs.job, line(), timeout_s=2.0, labels=Labels.parse('cluster="eu"')
    )
    server.series = [
        series(f"{TASK}numRecordsOut", (10, 5), cluster=name) for name in ("us", "asia")
    ]
    with pytest.raises(FlinkError, match=r'label cluster="eu", .*It is asia or us'):
        eu.samples(5, 20)
    server.series = [series(COUNTED_IN, *COUNTED, flink_id="a1")]
    assert [row[4] for row in theirs.samples(5, 20).rows()] == [100, 200]


def test_series_that_identify_no_vertex_are_refused_with_the_label_they_lack(server, source):
    server.series = [series(f"{TASK}numRecordsIn", *COUNTED, task="")]
    with pytest.raises(FlinkError, match=r"no label 'task_id'.*labels: task_id=THEIRS"):
        source.samples(5, 20)


def test_copies_are_counted_once_and_their_label_is_said_once(server, source, caplog):
    server.series = [
        series(f"{TASK}numRecordsIn", (10, 100), (15, 200), (20, 300), replica=replica)
        for replica in "ab"
    ]
    for _ in range(2):
        assert [row[4] for row in source.samples(5, 30).rows()] == [100, 200, 300]
    assert source.folded == shown_by(source).folded == {"replica"}
    assert [record.message for record in caplog.records] == [
        f"{server.url}: series that differ in replica alone are counted once"
    ]


def test_since_is_open_and_until_is_closed(server, source):
    server.series = [series(f"{TASK}numRecordsIn", (5.0, 1), (6.0, 2), (20.0, 3), (21.0, 4))]
    assert source.samples(5, 20).t_s.tolist() == [6, 20]
    assert len(source.samples(20, 20)) == 0


def test_states_of_a_subtask_are_merged_and_what_is_unknown_is_left_out(server, source):
    one, two = (f"{TASK}operator_{state}_rocksdb" for state in ("one", "two"))
    latency = f"{TASK}operator_state_name_valueStateGetLatency"
    server.series = [
        series(f"{one}_estimate_live_data_size", (10, 100), (15, 100)),
        series(f"{two}_estimate_live_data_size", (10, 11), (20, 13)),
        series(f"{one}_block_cache_usage", (10, 500)),
        series(f"{two}_block_cache_usage", (10, 500)),
        series(latency, (10, 4000), quantile="0.5", state_name="one"),
        series(latency, (10, 6000), (15, "NaN"), quantile="0.5", state_name="two"),
        series(latency, (10, 9000), quantile="0.98", state_name="two"),
    ]
    found = {(row[0], row[3]): row[4] for row in source.samples(0, 30).rows()}
    assert found == pytest.approx({
        (10, "state_bytes"): 111, (15, "state_bytes"): 100, (20, "state_bytes"): 13,
        (10, "cache_usage_bytes"): 500, (10, "state_read_latency_p50_ms"): 0.006,
    })  # fmt: skip


def test_the_later_id_of_a_resubmitted_job_is_right_where_both_are_scraped(server, source):
    assert source.job.job_id == "a1"
    tell(server, state="FINISHED")
    tell(server, job_id="b2")
    assert source.job.job_id == "b2"
    name = f"{TASK}numRecordsIn"
    server.series = [
        series(name, (15, 1), (20, 2), job_id="b2"),
        series(name, (10, 900), (15, 950), job_id="a1"),
        series(name, (10, 7), (15, 7), job_id="stranger"),
    ]
    times, _, values = source.samples(0, 30).grid("map", "records_in_total")
    assert (times.tolist(), values[:, 0].tolist()) == ([10, 15, 20], [900, 1, 2])


def test_taskmanagers_are_those_of_the_job_and_keep_their_numbers(server, source):
    cpu = "Status_JVM_CPU_Load"
    hosts = {"one:1": 0.1, "two:2": 0.2, "three:3": 0.3}
    server.series = [of_taskmanager(cpu, (10, load), host=host) for host, load in hosts.items()]
    mine = series(f"{TASK}numRecordsIn", (10, 1), tm_id="two:2")
    server.series.append(mine)
    assert source.samples(0, 30).grid("", "tm_cpu_load")[1:] == ([0], [[0.2]])
    mine["metric"]["tm_id"] = "one:1"
    server.series.append(series(f"{TASK}numRecordsIn", (10, 1), subtask=1, tm_id="two:2"))
    _, numbers, loads = source.samples(0, 30).grid("", "tm_cpu_load")
    assert (numbers.tolist(), loads.tolist()) == ([0, 1], [[0.2, 0.1]])


def test_a_prometheus_that_is_down_is_known_at_once(server):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    job = FlinkJob(FlinkRest(server.url), "mine", line())
    began = time.monotonic()
    with pytest.raises(
        FlinkError, match=rf"{url}: Prometheus did not answer.*dsp-gym flink"
    ) as down:
        PrometheusSamples(url, job, line()).samples(0, 10)
    assert time.monotonic() - began < 4.0  # it has 5 s to answer
    assert (down.value.api, down.value.reason) == ("prometheus", "Unreachable")


def test_a_prometheus_that_is_slow_is_not_waited_for(server, source):
    _ = source.job.job_id
    server.late_s = 6.0
    began = time.monotonic()
    with pytest.raises(FlinkError, match=r"no answer in time") as slow:
        source.samples(0, 10)
    assert time.monotonic() - began < 5.0
    assert (slow.value.api, slow.value.reason) == ("prometheus", "Timeout")
    server.late_s = 0.0
    assert len(source.samples(0, 10)) == 0


WITHOUT_LABELS = {
    "metric": {"__name__": "flink_taskmanager_job_task_numRecordsIn"},
    "values": [],
}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((404, "not here"), "404"),
        ((500, "broken"), "500"),
        ((503, "starting"), "503"),
        ((200, "<html>"), "did not answer as it should"),
        ((200, '{"status": "success"}'), "did not answer as it should: 'data'"),
        ({"data": {"result": [WITHOUT_LABELS]}}, "not from Flink"),
        ({"data": {"result": [{"value": 1}]}}, "not from Flink"),
        ({"data": {"result": None}}, "not from Flink"),
    ],
)
def test_a_wrong_answer_is_an_error_that_names_the_server(server, source, answer, said):
    server.answers[QUERY] = answer
    with pytest.raises(FlinkError, match=rf"^{server.url}: .*{said}") as wrong:
        source.samples(0, 10)
    assert (wrong.value.api, wrong.value.reason) == ("prometheus", "Other")


def test_a_job_nobody_has_seen_is_an_error(server, source):
    server.answers["/jobs/overview"] = {"jobs": []}
    with pytest.raises(FlinkError, match="no job named 'mine'"):
        source.samples(0, 10)


def test_many_series_are_read_in_no_time(server, source):
    times = 5.0 * np.arange(1, 25)
    server.series = [
        series(f"{TASK}{name}", *((t, t) for t in times), subtask=subtask)
        for name in ("numRecordsIn", "numRecordsOut", "accumulateBusyTimeMs")
        for subtask in range(64)
    ]
    assert len(source.samples(0, 200)) == 3 * 64 * 24


@pytest.mark.parametrize(
    ("text", "sent"),
    [("me:s3:cret\n", "Basic bWU6czM6Y3JldA=="), ("0123456789abcdef", "Bearer 0123456789abcdef")],
)
def test_the_account_comes_from_a_file_that_others_cannot_read(tmp_path, text, sent):
    file = tmp_path / "account"
    file.write_text(text)
    file.chmod(0o600)
    api = PrometheusApi("http://prometheus:9090", 1.0, AccessConfig(file=file))
    asked = api.session.prepare_request(Request("POST", "http://prometheus:9090/api/v1/query"))
    assert asked.headers["Authorization"] == sent
    file.chmod(0o604)
    with pytest.raises(ConfigError, match="mode is 604"):
        PrometheusApi("http://prometheus:9090", 1.0, AccessConfig(file=file))
