"""Samples from Flink's REST interface: the polled, the kept and the left out."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.backends.flink.job import FlinkJob
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.backends.flink.rest_samples import RestSamples
from dsp_gym.backends.flink.source import SampleSource
from dsp_gym.errors import FlinkError
from tests.answering import TASKS, answering, tell
from tests.simulating import line


class Cluster:
    """Metrics that Flink fetches anew each time they are asked for, while `fetches`."""

    def __init__(self, told):
        self.told, self.now_s, self.fetches, self.fetched = told, 100.0, True, 0
        tell(told)
        self.values = {
            name: {f"{k}.accumulateBusyTimeMs": 0.0 for k in range(tasks)}
            for name, tasks in TASKS.items()
        }
        for name in TASKS:
            path = f"/jobs/a1/vertices/v-{name}"
            self.run(name, TASKS[name])
            told.answers[f"{path}/metrics"] = lambda asked, name=name: self.metrics(name, asked)
        told.answers["/taskmanagers/127.0.0.1%3A1-x/metrics"] = self.taskmanager
        rest = FlinkRest(told.url, timeout_s=2.0)
        job = FlinkJob(rest, "mine", line())
        self.source = RestSamples(rest, job, line(), 60.0, lambda: self.now_s, pause_s=0.01)

    def run(self, name, tasks):
        """Let a vertex have so many subtasks."""
        one = {"taskmanager-id": "127.0.0.1:1-x"}
        subtasks = [{"subtask": k, **one} for k in range(tasks)]
        self.told.answers[f"/jobs/a1/vertices/v-{name}"] = {"subtasks": subtasks}

    def metrics(self, name, asked):
        if "get" not in asked:
            return [{"id": key} for key in self.values[name]]
        self.fetched += self.fetches
        values = self.values[name]
        clock = {key for key in values if key.endswith("accumulateBusyTimeMs")}
        return [
            {"id": key, "value": str(values[key] + self.fetched if key in clock else values[key])}
            for key in asked["get"].split(",")
        ]

    def taskmanager(self, asked):
        self.fetched += self.fetches
        load = {"Status.JVM.CPU.Load": 0.5, "Status.JVM.Memory.Heap.Used": 2**20 * self.fetched}
        return [{"id": k, "value": str(load[k])} for k in asked["get"].split(",") if k in load]

    def poll(self, seconds=5.0):
        self.now_s += seconds
        self.source.poll()
        return self.source.samples(self.now_s - 1, self.now_s)


@pytest.fixture
def cluster():
    with answering() as told:
        yield Cluster(told)


def test_it_is_a_source(cluster):
    assert isinstance(cluster.source, SampleSource)


def test_a_poll_sees_every_subtask_and_taskmanager(cluster):
    cluster.values["map"] |= {"2.numRecordsIn": 70, "2.map.numRecordsIn": 71, "0.other": 1}
    seen = cluster.poll()
    assert seen.vertices() == sorted(TASKS)
    for vertex, tasks in TASKS.items():
        assert seen.grid(vertex, "busy_ms_total")[1].tolist() == list(range(tasks))
    assert seen.grid("map", "records_in_total")[1:] == ([2], [[70]])
    assert seen.grid("", "tm_cpu_load")[1:] == ([0], [[0.5]])
    assert set(seen.t_s) == {cluster.now_s}
    assert "other" not in "".join(cluster.told.asked)


def test_a_value_that_is_no_number_costs_its_metric_alone_and_is_named_once(cluster, caplog):
    cluster.values["map"] |= {"2.numRecordsIn": 70}
    cluster.values["sink"] |= {"0.numRecordsIn": "many"}
    for _ in range(2):
        seen = cluster.poll()
    assert seen.grid("map", "records_in_total")[1:] == ([2], [[70]])
    assert len(seen.grid("sink", "records_in_total")[1]) == 0
    assert len(seen.grid("sink", "busy_ms_total")[1]) == TASKS["sink"]
    (said,) = [record.getMessage() for record in caplog.records]
    assert "numRecordsIn of 'sink' is 'many', which is no number" in said


def test_polls_are_kept_in_order_and_for_a_while(cluster):
    for _ in range(20):
        cluster.poll()
    times = cluster.source.samples(0, 1000).grid("map", "busy_ms_total")[0]
    assert times.tolist() == [145.0 + 5 * k for k in range(12)]
    assert cluster.source.samples(150, 160).grid("map", "busy_ms_total")[0].tolist() == [155, 160]


def test_values_flink_did_not_fetch_anew_are_no_samples(cluster):
    """So the last values of a TaskManager that died do not go on."""
    cluster.poll()
    cluster.fetches = False
    cluster.poll()  # sees what the last fetch of the poll before brought
    assert len(cluster.poll()) == 0
    cluster.fetches = True
    assert cluster.poll().vertices() == sorted(TASKS)


def test_the_first_answer_is_no_sample_as_it_may_be_old(cluster):
    cluster.fetches = False
    assert len(cluster.poll()) == 0
    cluster.fetches = True
    assert cluster.poll().vertices() == sorted(TASKS)


def test_states_are_merged_scaled_and_unknown_ones_left_out(cluster):
    latency = "map.state_name.{}.valueStateGetLatency_{}"
    cluster.values["map"] |= {
        "0.map.one.rocksdb_estimate-live-data-size": 100,
        "0.map.two.rocksdb_estimate-live-data-size": 11,
        "0.map.one.rocksdb_block-cache-usage": 500,
        "0.map.two.rocksdb_block-cache-usage": 500,
        f"0.{latency.format('one', 'median')}": 4000.0,
        f"0.{latency.format('two', 'median')}": 6000.0,
        f"0.{latency.format('two', 'p95')}": float("nan"),
    }
    seen = cluster.poll()
    found = {
        name: seen.grid("map", name)[2][0, 0]
        for name in ("state_bytes", "cache_usage_bytes", "state_read_latency_p50_ms")
    }
    assert found == pytest.approx(
        {"state_bytes": 111, "cache_usage_bytes": 500, "state_read_latency_p50_ms": 0.006}
    )
    assert seen.grid("map", "state_read_latency_p95_ms")[2].size == 0


def test_the_metrics_of_subtasks_that_are_gone_are_left_out(cluster):
    assert cluster.poll().grid("map", "busy_ms_total")[1].tolist() == list(range(TASKS["map"]))
    cluster.run("map", 2)  # Flink still answers for those of the attempt before
    assert cluster.poll().grid("map", "busy_ms_total")[1].tolist() == [0, 1]


def test_a_source_reads_what_its_own_operator_counts(cluster):
    cluster.values["source"] = {
        f"{k}.{name}": value
        for k in range(TASKS["source"])
        for name, value in {
            "accumulateBusyTimeMs": 0.0,
            "numRecordsIn": 0.0,
            "numRecordsOut": 10.0,
            "Source__clicks.numRecordsIn": 1000.0,
            "Source__clicks.numRecordsOut": 1000.0,
            "filter.numRecordsIn": 1000.0,
        }.items()
    }
    seen = cluster.poll()
    assert set(seen.grid("source", "records_in_total")[2][0]) == {1000.0}
    assert set(seen.grid("source", "records_out_total")[2][0]) == {10.0}


def test_no_request_is_longer_than_flink_takes(cluster):
    many = {f"{k}.{'long' * 20}.pendingRecords": float(k) for k in range(200)}
    cluster.values["map"] |= many
    cluster.run("map", 200)
    values = cluster.poll().grid("map", "pending_records")[2]
    np.testing.assert_array_equal(values[0], np.arange(200))
    assert max(len(target) for target in cluster.told.asked) < 4000


def test_a_sample_is_as_old_as_the_clocks_of_its_task_say(cluster):
    """Flink answers with what it fetched up to its interval ago, here up to 4 s."""
    took_s = [40.0, 47.0, 50.0, 57.0]  # since the task started, at polls every 5 s
    for began_s, fetched_s in zip((100, 105, 110, 115), took_s, strict=True):
        cluster.values["map"] = {
            "0.accumulateBusyTimeMs": 0.0,  # counts what is fetched, in ms
            "0.accumulateIdleTimeMs": 1000 * fetched_s - 7000.0,
            "0.accumulateBackPressuredTimeMs": 7000.0,
            "0.numRecordsIn": 10 * fetched_s,
        }
        cluster.now_s = float(began_s)
        cluster.source.poll()
    times, _, values = cluster.source.samples(0, 1000).grid("map", "records_in_total")
    # The second poll was the freshest: the task had started 58 s before it at the latest.
    assert times == pytest.approx([98, 105, 108, 115], abs=0.1)
    assert np.diff(values[:, 0]) / np.diff(times) == pytest.approx([10, 10, 10], rel=0.01)


def test_another_attempt_has_another_clock(cluster):
    for clock_s in (40.0, 45.0, 1.0, 6.0):
        cluster.values["map"] = {
            "0.accumulateBusyTimeMs": 0.0,
            "0.accumulateIdleTimeMs": 1000 * clock_s,
            "0.accumulateBackPressuredTimeMs": 0.0,
        }
        cluster.poll()
    times = cluster.source.samples(0, 1000).grid("map", "busy_ms_total")[0]
    assert times == pytest.approx([105, 110, 115, 120], abs=0.1)


def test_a_failure_is_told_until_a_poll_succeeds(cluster):
    cluster.poll()
    kept = cluster.told.answers["/jobs/a1"]
    cluster.told.answers["/jobs/a1"] = (500, '{"errors": ["Internal server error."]}')
    with pytest.raises(FlinkError, match=r"/jobs/a1 answered 500"):
        cluster.poll()
    with pytest.raises(FlinkError):
        cluster.source.samples(0, 1000)
    cluster.told.answers["/jobs/a1"] = kept
    assert cluster.poll().vertices() == sorted(TASKS)


def test_a_job_that_is_not_there_is_a_failure(cluster):
    cluster.told.answers["/jobs/overview"] = {"jobs": []}
    with pytest.raises(FlinkError, match="no job named 'mine'"):
        cluster.poll()
