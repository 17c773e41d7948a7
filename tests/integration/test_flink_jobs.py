"""The jobs of configs/jobs/flink-*.yaml on a real Flink: exact counts, and costs as declared."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dsp_gym.backends.flink.local.cluster import LocalCluster
from dsp_gym.backends.flink.local.settings import ClusterSettings
from dsp_gym.backends.flink.rest import ENDED
from dsp_gym.backends.flink.submission import Configuration, Submission, load_arguments
from dsp_gym.errors import FlinkError
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec
from dsp_gym.metrics.flink import BY_NAME, vertex_of
from tests.real_flink import MEASURED, PATIENCE_S, REAL_FLINK, SMALL_SEGMENT_KIB, cancel_all

pytestmark = REAL_FLINK

QUERIES = ("q1", "q2", "q3", "q5", "q8", "q11")
OTHERS = ("wordcount", "micro-read", "micro-write", "micro-update")
QUICK = ("q3", "micro-update")
"""A join, windows, a flat map and every access to state; the others wait for `make validate`."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    settings = ClusterSettings(
        rest_port=0,
        prometheus=False,
        managed_mib=640,
        metric_fetch_s=0.5,
        network_segment_kib=SMALL_SEGMENT_KIB,
    )
    made = LocalCluster.up(settings, tmp_path_factory.mktemp("jobs"))
    yield made
    made.down()


@pytest.fixture(autouse=True)
def _alone(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test starts with every slot free."""
    yield
    if "cluster" in request.fixturenames:
        cancel_all(request.getfixturevalue("cluster"))


class Running:
    """A job as submitted, and what it reports."""

    def __init__(
        self, cluster: LocalCluster, spec: JobSpec, tasks: dict[str, int] | None = None,
        level: int = 0, savepoint: str | None = None, **arguments: object,
    ) -> None:  # fmt: skip
        start = Configuration.of_spec(spec)
        stateful = {vertex.name: level for vertex in spec.vertices if vertex.state}
        levels = {**start.memory_level, **stateful}
        configuration = Configuration({**start.parallelism, **(tasks or {})}, levels)
        given = {key.replace("_", "-"): str(value) for key, value in arguments.items()}
        self.rest, self.spec, self.cluster = cluster.rest, spec, cluster
        self.id = Submission.of_spec(spec, given).submit(self.rest, configuration, savepoint)

    def vertices(self) -> list[dict[str, Any]]:
        return self.rest.job(self.id)["vertices"]

    def metric(self, vertex: str, name: str) -> list[float]:
        """One value per subtask; fewer before all have reported."""
        names = [v.name for v in self.spec.vertices]
        found = next(v for v in self.vertices() if vertex_of(v["name"], names) == vertex)
        path = f"/jobs/{self.id}/vertices/{found['id']}/metrics"
        ids = [
            metric["id"]
            for metric in self.rest.get(path)
            if BY_NAME[name].matches(metric["id"].partition(".")[2])
        ]
        values = self.rest.get(f"{path}?get={','.join(ids)}") if ids else []
        return [float(value["value"]) for value in values]

    def total(self, vertex: str, name: str) -> float:
        return sum(self.metric(vertex, name))

    def growth_per_s(self, vertex: str, name: str, seconds: float) -> float:
        """How fast a total grows over so many seconds."""
        before, began = self._fresh(vertex, name)
        time.sleep(seconds)
        after, ended = self._fresh(vertex, name)
        return (after - before) / (ended - began)

    def _fresh(self, vertex: str, name: str) -> tuple[float, float]:
        """A total that Flink has fetched just now: it answers with an old one until then."""
        old, end = self.total(vertex, name), time.monotonic() + 6
        while (value := self.total(vertex, name)) == old and time.monotonic() < end:
            time.sleep(0.1)
        return value, time.monotonic()

    def wait_for(self, vertex: str, name: str, at_least: float) -> float:
        end = time.monotonic() + PATIENCE_S
        while (value := self.total(vertex, name)) < at_least:
            assert time.monotonic() < end, f"{vertex} {name} is {value:g}, not {at_least:g}"
            time.sleep(0.3)
        return value

    def stop(self) -> str:
        trigger = self.rest.stop_with_savepoint(self.id, self.cluster.savepoints.as_uri())
        self.rest.wait_for(self.id, ENDED, PATIENCE_S)
        location = self.rest.savepoint(self.id, trigger).location
        assert location is not None
        return location


def now_ms() -> int:
    return int(time.time() * 1000)


@MEASURED
@pytest.mark.parametrize(
    "job",
    [
        *QUICK,
        *(
            pytest.param(job, marks=pytest.mark.validate)
            for job in QUERIES + OTHERS
            if job not in QUICK
        ),
    ],
)
def test_a_job_has_the_vertices_of_its_file_and_results_arrive(cluster, job):
    spec = load_job(f"flink-{job}")
    windows = {"window_s": 2, "slide_s": 1, "gap_s": 1}
    # One task of each vertex: 4 ms a record, as Q5 pays, leave room to catch up.
    running = Running(cluster, spec, rate=100, epoch_ms=now_ms(), **windows)
    names = [vertex.name for vertex in spec.vertices]
    assert sorted(str(vertex_of(v["name"], names)) for v in running.vertices()) == sorted(names)
    last = next(vertex.name for vertex in spec.vertices if vertex.kind == "sink")
    running.wait_for(last, "received_records_total", 1)
    end = time.monotonic() + PATIENCE_S  # what became due before the job was up is late
    while not all(0 <= p95 < 1000 for p95 in running.metric(last, "latency_p95_ms")):
        assert time.monotonic() < end, running.metric(last, "latency_p95_ms")
        time.sleep(0.5)


def test_no_record_is_lost_or_made_from_savepoint_to_savepoint(cluster, tmp_path):
    spec = load_job("flink-wordcount")
    load = load_arguments([300] * 15 + [0], tmp_path, now_ms())
    first = Running(cluster, spec, {"flatmap": 1, "count": 2}, **load)
    first.wait_for("source", "emitted_records_total", 500)
    savepoint = first.stop()
    more = {"source": 3, "flatmap": 2, "count": 3}
    second = Running(cluster, spec, more, savepoint=savepoint, level=1, **load)
    assert second.wait_for("count", "received_records_total", 45_000) == 45_000
    assert second.total("source", "emitted_records_total") == 4_500
    assert second.total("source", "pending_records") == 0
    assert len(second.metric("source", "emitted_records_total")) == 3


def test_another_epoch_begins_another_load_with_the_state_there_is(cluster, tmp_path):
    spec = load_job("flink-micro-read")
    few = {"keys": 1000, "cpu-us": "state=0"}
    load = load_arguments([1000, 0], tmp_path, now_ms())
    first = Running(cluster, spec, **load, **few, populate="true")
    first.wait_for("state", "records_in_total", 1000)
    load = load_arguments([500, 500, 0], tmp_path, now_ms())
    second = Running(cluster, spec, savepoint=first.stop(), **load, **few)
    assert second.wait_for("sink", "received_records_total", 2000) == 2000
    assert second.total("source", "emitted_records_total") == 2000
    assert second.metric("state", "records_in_total") == [1000]


@MEASURED
def test_what_a_source_cannot_emit_it_owes(cluster):
    running = Running(cluster, load_job("flink-q1"), rate=5000, epoch_ms=now_ms(),
                      cpu_us="map=1000")  # fmt: skip
    running.wait_for("bids", "pending_records", 10_000)  # the network's buffers are full by now
    # One task takes 1,000 of 5,000 per second.
    assert running.growth_per_s("bids", "pending_records", 6) == pytest.approx(4000, rel=0.25)


@MEASURED
@pytest.mark.validate
def test_twelve_tasks_are_saturated_at_the_cost_they_were_given(cluster):
    running = Running(cluster, load_job("flink-q1"), {"map": 12}, rate=1_000_000,
                      epoch_ms=now_ms(), cpu_us="map=2000")  # fmt: skip
    running.wait_for("map", "records_in_total", 12_000)
    assert running.growth_per_s("map", "records_in_total", 10) == pytest.approx(6000, rel=0.08)


@MEASURED
@pytest.mark.validate
def test_a_source_emits_its_rate(cluster):
    running = Running(cluster, load_job("flink-q3"), rate=400, epoch_ms=now_ms())
    running.wait_for("auctions", "emitted_records_total", 1500)
    auctions = running.growth_per_s("auctions", "emitted_records_total", 6)
    persons = running.growth_per_s("persons", "emitted_records_total", 6)
    assert auctions == pytest.approx(300, rel=0.1)
    assert persons == pytest.approx(100, rel=0.1)


@MEASURED
def test_a_source_with_nothing_due_sleeps(cluster):
    """Thousands of records a second are due less than a millisecond apart."""
    running = Running(cluster, load_job("flink-q1"), {"map": 4}, rate=3000, epoch_ms=now_ms(),
                      cpu_us="map=10")  # fmt: skip
    running.wait_for("bids", "emitted_records_total", 9000)
    assert running.growth_per_s("bids", "busy_ms_total", 6) < 400


def test_managed_memory_is_what_was_asked_for(cluster):
    spec = load_job("flink-micro-update")
    Running(cluster, spec, {"state": 2}, level=2, rate=100, epoch_ms=now_ms())
    (manager,) = cluster.rest.taskmanagers()
    assert manager["freeResource"]["managedMemory"] == 640 - 2 * 16 - 2 * 64


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cpu_us": "mapp=3"}, "there is no vertex mapp, only"),
        ({"cpu_us": "map"}, "expected VERTEX=NUMBER"),
        ({"load_file": "x.csv"}, "give either --rate or --load-file"),
        ({"partitions": 0}, "expected 1 or more"),
    ],
)
def test_a_wrong_argument_is_named(cluster, arguments, message):
    with pytest.raises(FlinkError, match=message):
        Running(cluster, load_job("flink-q1"), rate=100, **arguments)


def test_a_program_there_is_not_is_named_with_those_there_are(cluster):
    spec = load_job("flink-q1")
    program = spec.flink.model_copy(update={"program": "q4"})
    with pytest.raises(FlinkError, match=r"q4 is unknown; choose one of .*micro-read"):
        Running(cluster, spec.model_copy(update={"flink": program}), rate=100)


def test_a_missing_jar_names_the_command_that_builds_it(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(
        "dsp_gym.backends.flink.local.distribution.JAR", tmp_path / "flink-jobs.jar"
    )
    with pytest.raises(FlinkError, match="make flink-jobs"):
        Submission.of_spec(load_job("flink-q1"), {}).jar()
