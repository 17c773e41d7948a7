"""The contract of every collector. A new one subclasses `CollectorContract`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from dsp_gym.backends.base import Clock, Collector
from dsp_gym.backends.flink.backend import FlinkCollector
from dsp_gym.backends.flink.job import FlinkJob
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.backends.replay.jobs import ReplayJobs
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.backends.simulated.recording import SimulatedRecording
from dsp_gym.errors import FlinkError
from dsp_gym.loop.configuration import Configuration
from dsp_gym.loop.snapshot import PER_JOB, PER_VERTEX, MetricsSnapshot, Status
from dsp_gym.loop.topology import Topology
from dsp_gym.loop.wire import snapshot_from_json, snapshot_to_json
from dsp_gym.metrics.window import WindowConfig
from dsp_gym.records.manifest import RecordedLoad
from dsp_gym.records.recording import Recording
from tests.answering import START_MS, Scripted, answering, tell
from tests.simulating import FAULTY, exact, keyed, line

MEANS = PER_VERTEX[PER_VERTEX.index("records_in_per_s") :]


class CollectorContract:
    """Laws of a collector; `collector` runs the jobs that `forward` moves on."""

    @pytest.fixture
    def collector(self) -> Collector:
        raise NotImplementedError

    def forward(self, collector: Collector, seconds: int) -> None:
        """Let time go by for the jobs behind the collector."""
        raise NotImplementedError

    def seen(self, collector: Collector) -> list[MetricsSnapshot]:
        taken = []
        for _ in range(8):
            self.forward(collector, 60)
            taken.append(collector.snapshot())
        return taken

    def test_it_is_a_collector(self, collector):
        assert isinstance(collector, Collector)

    def test_shapes_and_kinds_are_those_of_the_snapshot(self, collector):
        jobs, vertices = len(collector.topology), collector.topology.max_vertices
        for snapshot in self.seen(collector):
            assert len(snapshot) == jobs
            for name in PER_JOB:
                assert getattr(snapshot, name).shape == (jobs,), name
            for name in PER_VERTEX:
                assert getattr(snapshot, name).shape == (jobs, vertices), name
            for name in ("status", "parallelism", "memory_level"):
                assert getattr(snapshot, name).dtype == np.int64, name

    def test_time_goes_on_and_no_run_begins_in_the_future(self, collector):
        before = -np.inf
        for snapshot in self.seen(collector):
            assert np.all(snapshot.t_s > before)
            assert np.all(snapshot.running_since_s <= snapshot.t_s)
            before = snapshot.t_s

    def test_looking_changes_nothing(self, collector):
        self.forward(collector, 300)
        one, again = collector.snapshot(), collector.snapshot()
        for name in (*PER_JOB, *PER_VERTEX):
            np.testing.assert_array_equal(getattr(one, name), getattr(again, name), err_msg=name)

    def test_a_snapshot_stays_as_it_was_taken(self, collector):
        self.forward(collector, 300)
        taken = collector.snapshot()
        kept = {name: getattr(taken, name).copy() for name in (*PER_JOB, *PER_VERTEX)}
        self.forward(collector, 60)
        for name, value in kept.items():
            np.testing.assert_array_equal(getattr(taken, name), value, err_msg=name)

    def test_without_a_window_there_are_no_means_and_with_one_there_are(self, collector):
        is_vertex = collector.topology.mask
        for snapshot in self.seen(collector):
            empty = snapshot.window_fill == 0
            for name in MEANS:
                assert np.all(np.isnan(getattr(snapshot, name)[empty])), name
            known = ~np.isnan(snapshot.busy_ms_per_s)
            np.testing.assert_array_equal(known, is_vertex & ~empty[:, None])

    def test_running_configurations_are_inside_the_bounds(self, collector):
        tables, row = collector.topology.tables, collector.topology.row
        mask = collector.topology.mask
        for snapshot in self.seen(collector):
            p, level = snapshot.parallelism, snapshot.memory_level
            assert np.all((p >= tables.min_parallelism[row]) & (p <= tables.max_parallelism[row]))
            assert np.all((level < tables.levels[row][:, None])[mask])
            assert np.all(level[mask] >= -1)
            assert set(snapshot.status) <= {int(status) for status in Status}

    def test_padding_is_unknown(self, collector):
        for snapshot in self.seen(collector):
            for name in PER_VERTEX[2:]:
                assert np.all(np.isnan(getattr(snapshot, name)[~collector.topology.mask])), name

    def test_what_is_seen_survives_the_wire(self, collector):
        self.forward(collector, 300)
        taken = collector.snapshot()
        documents = [snapshot_to_json(taken.job(j)) for j in range(len(taken))]
        back = snapshot_from_json(documents)
        for name in PER_JOB:
            np.testing.assert_allclose(getattr(back, name), getattr(taken, name), err_msg=name)
        for name in PER_VERTEX[2:]:
            np.testing.assert_allclose(getattr(back, name), getattr(taken, name), err_msg=name)


class TestSimulatedJobs(CollectorContract):
    @pytest.fixture
    def collector(self) -> SimulatedJobs:
        two = line()
        small = two.model_copy(update={"job": "two", "vertices": (two.vertices[0], _sink(two))})
        jobs = SimulatedJobs(Topology.of([line(), keyed(), small], [0, 1, 2, 0]), FAULTY)
        jobs.reset(np.arange(4), np.full((4, 1), 500.0))
        return jobs

    def forward(self, collector, seconds):
        collector.advance(seconds)


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """One run of fifteen minutes."""
    folder = tmp_path_factory.mktemp("recorded") / "r"
    made = SimulatedRecording(folder, line(), exact())
    load = RecordedLoad(name="steady", steps=((0, 500.0),))
    made.add("steady", Configuration.of_spec(line()), load, 900)
    return folder


class TestReplayJobs(CollectorContract):
    @pytest.fixture
    def collector(self, recording) -> ReplayJobs:
        window = WindowConfig(window_s=120, stabilization_s=60)
        return ReplayJobs(Recording.open(recording).run("steady"), window)

    def forward(self, collector, seconds):
        collector.advance(seconds)


class TestFlinkCollector(CollectorContract):
    """A job that is out of reach, restarts, and stays in its next restart."""

    @pytest.fixture
    def collector(self) -> Iterator[FlinkCollector]:
        with answering() as cluster:
            tell(cluster)
            self.cluster, self.source = cluster, Scripted(START_MS / 1000, now_s=START_MS / 1000)
            job = FlinkJob(FlinkRest(cluster.url), "mine", line())
            window = WindowConfig(window_s=120, stabilization_s=60)
            yield FlinkCollector(line(), job, self.source, window, Clock(lambda: self.source.now_s))

    def forward(self, collector, seconds):
        source = self.source
        source.now_s += seconds
        ran_s = source.now_s - START_MS / 1000
        source.failure = FlinkError("out of reach") if ran_s == 180 else None
        if ran_s == 240:
            source.since_s = source.now_s
            tell(self.cluster, since_ms=int(source.now_s * 1000))
        if ran_s == 420:
            tell(self.cluster, state="RESTARTING", running={})

    def test_faults_empty_the_window_and_pass(self, collector):
        seen = self.seen(collector)
        assert [taken.window_fill[0] for taken in seen] == [0, 0.5, 0, 0, 0, 0.5, 0, 0]
        assert [taken.status[0] for taken in seen] == 6 * [Status.RUNNING] + 2 * [Status.RESTARTING]


def _sink(spec):
    sink = spec.vertex("sink")
    reads = sink.inputs[0].model_copy(update={"from_": "source"})
    return sink.model_copy(update={"inputs": (reads,)})
