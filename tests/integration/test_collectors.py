"""A real job observed through Prometheus and through Flink, while parts of it fail."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from dsp_gym.backends.flink.backend import FlinkCollector
from dsp_gym.backends.flink.job import FlinkJob
from dsp_gym.backends.flink.local.cluster import LocalCluster
from dsp_gym.backends.flink.local.settings import ClusterSettings
from dsp_gym.backends.flink.prometheus import PrometheusSamples
from dsp_gym.backends.flink.rest_samples import RestSamples
from dsp_gym.backends.flink.submission import Configuration, Submission
from dsp_gym.cli import app
from dsp_gym.job.catalog import load_job
from dsp_gym.loop.snapshot import PER_VERTEX, JobSnapshot, Status
from dsp_gym.metrics.flink import FLINK_METRICS
from dsp_gym.metrics.samples import SAMPLE_S
from dsp_gym.metrics.window import WindowConfig
from tests.real_flink import MEASURED, PATIENCE_S, REAL_FLINK
from tests.strategies import spec_of

pytestmark = REAL_FLINK

RATE = 2000.0
SPEC = spec_of(
    "seen",
    {"name": "bids", "kind": "source"},
    {
        "name": "session",
        "inputs": [{"from": "bids", "ship": "HASH"}],
        "state": {"reads": 1, "writes": 1, "keys": 2000, "value_bytes": 100},
    },
    {"name": "sink", "kind": "sink", "inputs": [{"from": "session"}], "scalable": False},
    memory={"base_mib": 32, "levels": 3},
    flink={"program": "q11", "arguments": {"keys": 2000, "gap-s": 2, "cpu-us": "session=200"}},
)
RUNNING = Configuration(
    {"bids": 1, "session": 2, "sink": 1}, {"bids": -1, "session": 1, "sink": -1}
)
WINDOW = WindowConfig(window_s=30, stabilization_s=5)
MEANS = PER_VERTEX[PER_VERTEX.index("records_in_per_s") :]


@dataclass
class Seen:
    """One job on one cluster, and both ways to look at it."""

    cluster: LocalCluster
    submission: Submission
    job: FlinkJob
    polled: RestSamples
    scraped: PrometheusSamples
    by_rest: FlinkCollector
    by_prometheus: FlinkCollector
    polls: list[float] = field(default_factory=list)  # when, in seconds since the epoch

    def poll(self) -> None:
        self.polls.append(time.time())
        self.polled.poll()

    def wait_until(self, holds: Callable[[], Any]) -> None:
        """Polls every 5 s as a control loop does, looks every second."""
        began = polled = time.monotonic()
        self.poll()
        while not holds():
            now = time.monotonic()
            assert now - began < PATIENCE_S, f"not so within {PATIENCE_S:g} s"
            time.sleep(min(1.0, max(0.0, polled + SAMPLE_S - now)))
            if time.monotonic() - polled >= SAMPLE_S:
                polled = max(polled + SAMPLE_S, time.monotonic() - SAMPLE_S)  # a look takes time
                self.poll()


@pytest.fixture(scope="module")
def seen(tmp_path_factory) -> Iterator[Seen]:
    settings = ClusterSettings(
        slots=4, managed_mib=256, task_heap_mib=256, network_mib=64, rest_port=0,
        prometheus_port=0, checkpoint_interval_s=5, restart_delay_s=1,
    )  # fmt: skip
    cluster = LocalCluster.up(settings, tmp_path_factory.mktemp("cluster"))
    try:
        load = {"rate": f"{RATE:g}", "epoch-ms": str(time.time_ns() // 10**6)}
        submission = Submission(SPEC, "seen", load)
        submission.submit(cluster.rest, RUNNING)
        job = FlinkJob(cluster.rest, "seen", SPEC)
        polled = RestSamples(cluster.rest, job, SPEC)
        scraped = PrometheusSamples(str(cluster.prometheus_url), job, SPEC)
        collectors = [FlinkCollector(SPEC, job, source, WINDOW) for source in (polled, scraped)]
        yield Seen(cluster, submission, job, polled, scraped, *collectors)
    finally:
        cluster.down()


def looked(collector: FlinkCollector) -> JobSnapshot:
    return collector.snapshot().job(0)


def is_empty(taken: JobSnapshot) -> bool:
    means = [taken.vertex(vertex, name) for vertex in taken.vertices for name in MEANS]
    return taken.get("window_fill") == 0 and means == [None] * len(means)


@MEASURED
def test_prometheus_and_rest_show_the_same_job(seen):
    collectors = (seen.by_rest, seen.by_prometheus)

    def is_steady(taken: JobSnapshot) -> bool:  # what was owed from the start is worked off
        rates = (
            taken.vertex("bids", "records_out_per_s"),
            taken.vertex("session", "records_in_per_s"),
        )
        if taken.get("window_fill") != 1:
            return False
        # Tasks that wait for a processor beside other tests count as busy meanwhile.
        busy = taken.vertex("session", "busy_ms_per_s")
        return busy < 600 and all(abs(x - RATE) < 0.1 * RATE for x in rates)

    seen.wait_until(lambda: all(is_steady(looked(c)) for c in collectors))
    rest, prometheus = looked(seen.by_rest), looked(seen.by_prometheus)
    for taken in (rest, prometheus):
        assert taken.status == Status.RUNNING
        assert taken.get("tm_count") == 1
        for vertex in taken.vertices:
            assert taken.vertex(vertex, "parallelism") == RUNNING.parallelism[vertex]
            assert taken.vertex(vertex, "memory_level") == RUNNING.memory_level[vertex]
        assert taken.vertex("session", "records_in_per_s") == pytest.approx(RATE, rel=0.15)
        # 200 us a record on two tasks, and RocksDB's work besides.
        assert 200 <= taken.vertex("session", "busy_ms_per_s") < 600
        assert taken.vertex("bids", "pending_records") < RATE
        assert 0 <= taken.vertex("session", "cache_hit_rate") <= 1
        assert 0 < taken.vertex("session", "state_read_latency_ms") < 100
        assert 0 < taken.get("latency_p95_s") < 10
        assert 1 < taken.get("tm_heap_used_mib") <= taken.get("tm_heap_max_mib")
        for vertex in taken.vertices:
            shares = [
                taken.vertex(vertex, f"{s}_ms_per_s") for s in ("busy", "backpressured", "idle")
            ]
            assert sum(shares) == pytest.approx(1000, abs=100)
    for vertex, name in (
        ("bids", "records_in_per_s"),
        ("bids", "records_out_per_s"),
        ("session", "records_in_per_s"),
    ):  # what leaves the windows comes in bursts: its rate depends on where a window ends
        one, other = rest.vertex(vertex, name), prometheus.vertex(vertex, name)
        assert one == pytest.approx(other, rel=0.15), (vertex, name)
    for vertex in rest.vertices:
        for name in ("busy_ms_per_s", "idle_ms_per_s", "busy_max_ms_per_s"):
            one, other = rest.vertex(vertex, name), prometheus.vertex(vertex, name)
            assert one == pytest.approx(other, abs=120), (vertex, name)


@pytest.mark.parametrize("source", ["polled", "scraped"])
def test_every_metric_of_the_table_is_found(seen, source):
    now_s = time.time()
    samples = getattr(seen, source).samples(now_s - 40, now_s)
    assert {metric.name for metric in FLINK_METRICS} - set(samples.metric.tolist()) == set()
    assert samples.vertices() == ["bids", "session", "sink"]
    _, subtasks, values = samples.grid("session", "records_in_total")
    assert subtasks.tolist() == [0, 1]
    polls = [t_s for t_s in seen.polls if t_s >= now_s - 40]
    most = 40 / SAMPLE_S if source == "scraped" else len(polls)
    for taken in np.isfinite(values).sum(axis=0):  # some come too late on a busy machine
        assert most / 2 <= taken <= most + 1


def test_the_discovered_file_describes_the_job_and_shadow_takes_it(seen, tmp_path):
    def run(*words: object) -> str:
        done = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    rest, prometheus = seen.cluster.rest_url, seen.cluster.prometheus_url
    run("discover", "--flink", rest, "--out", tmp_path)
    file = tmp_path / "seen.yaml"
    spec = load_job(file)
    assert {v.name: v.parallelism for v in spec.vertices} == RUNNING.parallelism
    assert [edge.from_ for edge in spec.vertex("sink").inputs] == ["session"]
    state = spec.vertex("session").state
    assert (state.window.kind, state.window.length_s) == ("session", 2)
    assert spec.vertex("session").selectivity < 1
    assert spec.memory.base_mib == 64  # what the slots of the job hold, not what they could
    assert spec.taskmanager.slots == 4
    assert spec.source.rate_per_s == pytest.approx(RATE, rel=0.5)
    run("discover", "--prometheus", prometheus, "--out", tmp_path / "scraped")
    guessed = load_job(tmp_path / "scraped" / "seen.yaml")
    assert {v.name: v.parallelism for v in guessed.vertices} == RUNNING.parallelism
    inputs = {v.name: [edge.from_ for edge in v.inputs] for v in guessed.vertices}
    assert inputs == {"bids": [], "session": ["bids"], "sink": ["session"]}
    run("config", "check", file, "--kind", "jobs")
    run("simulate", file, "--duration", "5m")
    beside = {
        "job": str(file), "where": {"rest_url": rest, "prometheus_url": prometheus},
        "policies": ["ds2", "incumbent"], "interval_s": 5, "journal": str(tmp_path / "journal"),
        "window": {"window_s": 10, "stabilization_s": 0},
    }  # fmt: skip
    (tmp_path / "shadow.yaml").write_text(yaml.safe_dump(beside))
    assert "RUNNING" in run("shadow", tmp_path / "shadow.yaml", "--steps", "1", "--no-serve")


def test_without_prometheus_nothing_old_is_shown_and_it_is_seen_again_when_back(seen):
    seen.wait_until(lambda: looked(seen.by_prometheus).get("window_fill") == 1)
    seen.wait_until(lambda: looked(seen.by_rest).get("window_fill") == 1)
    seen.cluster.stop("prometheus")
    try:
        began = time.monotonic()
        down = looked(seen.by_prometheus)
        assert time.monotonic() - began < 5.0
        assert down.status == Status.RUNNING
        assert is_empty(down)
        assert down.vertex("session", "records_in_total") is None
        trouble = seen.by_prometheus.trouble
        assert "Prometheus did not answer" in str(trouble)
        assert (trouble.api, trouble.reason) == ("prometheus", "Unreachable")
        assert looked(seen.by_rest).get("window_fill") >= 0.5  # polled a few seconds ago
    finally:
        seen.cluster.start("prometheus")
    seen.wait_until(lambda: not is_empty(looked(seen.by_prometheus)))
    assert seen.by_prometheus.trouble is None


def test_a_resubmitted_job_starts_an_empty_window_of_its_own(seen):
    before = looked(seen.by_prometheus)
    old, asked_s = seen.job.job_id, time.time()
    trigger = seen.cluster.rest.stop_with_savepoint(old, str(seen.cluster.savepoints))
    seen.wait_until(lambda: seen.cluster.rest.savepoint(old, trigger).done)
    seen.cluster.rest.wait_for(old, {"FINISHED"}, PATIENCE_S)
    gone = looked(seen.by_prometheus)
    assert gone.status == Status.FAILED
    assert is_empty(gone)
    savepoint = seen.cluster.rest.savepoint(old, trigger).location
    seen.submission.submit(seen.cluster.rest, RUNNING, savepoint)
    for collector in (seen.by_prometheus, seen.by_rest):
        taken = looked(collector)
        assert taken.status == Status.RUNNING
        assert is_empty(taken)  # of the old id Prometheus still knows every sample
        assert taken.get("running_since_s") > before.get("running_since_s")
        assert 0 < taken.get("outage_s") < time.time() - asked_s
        # Its sources stopped with the savepoint, before the job ended.
        ended_s = taken.get("running_since_s") - taken.get("outage_s")
        assert asked_s - 0.1 < taken.get("resumed_from_s") <= ended_s
    assert seen.job.ids == (old, seen.job.job_id)


def test_prometheus_answers_as_its_general_client_says(seen):
    """Our one question, held to the library that offers them all."""
    from prometheus_api_client import PrometheusConnect

    from dsp_gym.backends.flink.prometheus_api import PrometheusApi

    url, at_s = str(seen.cluster.prometheus_url), time.time()
    expression = 'flink_taskmanager_job_task_numRecordsIn{task_name!=""}[30s]'
    ours = PrometheusApi(url, 10.0).query(expression, at_s)
    theirs = PrometheusConnect(url).custom_query(expression, {"time": f"{at_s:.3f}"})
    assert ours
    assert ours == theirs


@pytest.mark.validate
def test_a_killed_taskmanager_is_a_restart_with_an_empty_window(seen):
    since_s = looked(seen.by_prometheus).get("running_since_s")
    seen.wait_until(lambda: not is_empty(looked(seen.by_prometheus)))
    killed_s = time.time()
    seen.cluster.process("taskmanager").kill()
    seen.wait_until(lambda: looked(seen.by_prometheus).status == Status.RESTARTING)
    assert is_empty(looked(seen.by_prometheus))
    assert is_empty(looked(seen.by_rest))
    seen.cluster.start("taskmanager")
    seen.wait_until(lambda: looked(seen.by_rest).status == Status.RUNNING)
    back = looked(seen.by_prometheus)
    assert is_empty(back)
    assert back.get("running_since_s") > since_s
    assert 0 < back.get("outage_s") < time.time() - killed_s
    collectors = (seen.by_rest, seen.by_prometheus)
    seen.wait_until(lambda: not any(is_empty(looked(c)) for c in collectors))
    for collector in collectors:
        assert collector.trouble is None
        # What was owed during the outage is caught up, so more than the rate is taken.
        assert looked(collector).vertex("session", "records_in_per_s") > 0.8 * RATE
