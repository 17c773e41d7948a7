"""A replayed run shows the recorded observations, whatever is decided."""

from __future__ import annotations

import dataclasses
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from dsp_gym.backends.replay.jobs import ReplayJobs
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.backends.simulated.recording import SimulatedRecording
from dsp_gym.control.loop import ControlLoop
from dsp_gym.errors import MetricsError
from dsp_gym.loop.configuration import Configuration
from dsp_gym.loop.snapshot import Status
from dsp_gym.metrics.samples import Samples
from dsp_gym.metrics.window import WindowConfig
from dsp_gym.policies.registry import make
from dsp_gym.records.manifest import Event, RecordedLoad
from dsp_gym.records.recording import Recording, Run
from dsp_gym.records.writer import EndedRun, RecordingWriter
from dsp_gym.simulation.options import SimulationOptions
from tests.simulating import exact, keyed

SPEC = keyed()
START = Configuration.of_spec(SPEC)
WINDOW = WindowConfig(window_s=30, stabilization_s=10)
LOAD = RecordedLoad(name="steady", steps=((0, 1000.0),))


@pytest.fixture
def recorded(tmp_path) -> Run:
    recording = SimulatedRecording(tmp_path / "r", SPEC, exact())
    recording.add("before", START, LOAD, 20)
    recording.add("a", START, LOAD, 120)
    return Recording.open(tmp_path / "r").run("a")


def test_a_snapshot_is_what_a_collector_saw(recorded):
    jobs = ReplayJobs(recorded, WINDOW)
    jobs.advance(60)
    seen = jobs.snapshot()
    assert seen.t_s[0] == 80
    assert seen.status[0] == Status.RUNNING
    assert seen.running_since_s[0] == 20
    assert seen.window_fill[0] == 1
    live = SimulatedJobs(
        jobs.topology,
        exact(measurement={"window_s": 30, "stabilization_s": 10, "delay_s": 0, "gauge_s": 5}),
    )
    live.reset(np.array([0]), np.array([[1000.0]]))
    live.advance(60)
    expected = live.snapshot()
    same = (
        "records_in_per_s", "records_out_per_s", "busy_ms_per_s", "cache_hit_rate",
        "pending_records", "parallelism", "memory_level", "state_read_latency_ms",
    )  # fmt: skip
    for name in same:
        found, truth = getattr(seen, name), getattr(expected, name)
        if name == "records_in_per_s":  # Flink counts no input of a source
            found, truth = found[:, 1:], truth[:, 1:]
        np.testing.assert_allclose(found, truth, rtol=1e-6, err_msg=name)


def test_nothing_can_be_asked_of_a_recording(recorded):
    jobs = ReplayJobs(recorded, WINDOW)
    assert jobs.actuator is None
    before = jobs.snapshot().parallelism
    outcome = jobs.advance(60)
    assert jobs.snapshot().parallelism.tolist() == before.tolist()
    assert outcome.rescales[0] == 0
    jobs.reset()
    assert jobs.now_s() == recorded.t_running_s


def test_it_ends_with_the_recording(recorded):
    jobs = ReplayJobs(recorded, WINDOW, start_s=50)
    assert jobs.advance(50).seconds[0] == 50
    assert not jobs.is_over
    assert jobs.advance(50).seconds[0] == 20
    assert jobs.is_over


def test_a_policy_decides_on_it_in_the_loop(recorded):
    jobs = ReplayJobs(recorded, WINDOW)
    loop = ControlLoop(jobs, make("ds2"), interval_s=60)
    loop.reset(np.array([0]))
    step = [loop.step(), loop.step()][-1]
    assert step.outcome.processed[0] == pytest.approx(60_000, rel=1e-6)
    assert step.snapshot.t_s[0] == recorded.t_running_s + 60
    assert step.decision.reasons == ("hold",)


def test_an_outage_within_a_run_is_replayed():
    wider = {**START.parallelism, "map": 3}
    events = (
        Event(t_s=40.0, run="a", kind="rescale_asked", body={}),
        Event(t_s=45.0, run="a", kind="stopped", body={}),
        Event(t_s=52.0, run="a", kind="running",
              body={"parallelism": wider, "memory_level": dict(START.memory_level)}),
        Event(t_s=90.0, run="a", kind="failure", body={"cause": "killed"}),
    )  # fmt: skip
    run = Run("a", SPEC, START, LOAD, 0, events, 0.0, 0.0, 100.0, True, given=Samples.of(()))
    jobs = ReplayJobs(run, WINDOW)
    first = jobs.advance(46)
    assert jobs.snapshot().status[0] == Status.RESTARTING
    assert first.down_s[0] == 1
    assert first.rescales[0] == 1
    second = jobs.advance(34)
    assert second.down_s[0] == 6
    assert second.failures[0] == 0
    seen = jobs.snapshot()
    assert seen.outage_s[0] == 7
    assert seen.running_since_s[0] == 52
    assert Configuration.of_row(seen, jobs.topology).parallelism == wider
    last = jobs.advance(20)
    assert last.failures[0] == 1
    assert last.down_s[0] == 10
    assert jobs.snapshot().status[0] == Status.FAILED


def test_the_end_of_a_recording_is_no_outage(recorded):
    stopped = Event(t_s=recorded.t_end_s, run="a", kind="stopped", body={})
    jobs = ReplayJobs(dataclasses.replace(recorded, events=(*recorded.events, stopped)), WINDOW)
    assert jobs.advance(200).down_s[0] == 0
    assert jobs.snapshot().status[0] == Status.RUNNING
    assert jobs.snapshot().window_fill[0] == 1


def test_a_run_that_never_ran_is_refused():
    run = Run("a", SPEC, START, LOAD, 0, (), 0.0, float("nan"), 100.0, False)
    with pytest.raises(MetricsError, match="run 'a' never ran"):
        ReplayJobs(run)


def test_a_recording_of_noise_is_a_recording_too(tmp_path):
    SimulatedRecording(tmp_path / "r", SPEC, SimulationOptions()).add("a", START, LOAD, 30)
    samples = Recording.open(tmp_path / "r").run("a").samples()
    times, subtasks, values = samples.grid("map", "records_in_total")
    assert times.tolist() == [5, 10, 15, 20, 25, 30]
    assert subtasks.tolist() == [0]
    assert values[:, 0].tolist() == [1000.0 * t for t in times]  # counters are not noisy
    busy = samples.grid("map", "busy_ms_total")[2]
    assert np.isfinite(busy).all()


def _peak_mib(folder: Path, days: int) -> float:
    """Memory that Python and NumPy take at most for recording days of a job and replaying them."""
    day_s = 86_400

    def hour(since_s: float) -> Samples:
        times = since_s + np.arange(5.0, 3601.0, 5.0)
        counted = {(v.name, 0, "records_out_total"): (times, times) for v in SPEC.vertices}
        return Samples.of_series(counted)

    tracemalloc.start()
    try:
        writer = RecordingWriter.create(folder, SPEC, {})
        end_s = float(days * day_s)
        times = {"t_begin_s": 0.0, "t_load_s": 0.0, "t_running_s": 0.0, "t_end_s": end_s}
        ended = EndedRun(name="long", configuration=START, load=LOAD, **times)
        writer.add(ended, (hour(h * 3600.0) for h in range(24 * days)), [])
        jobs = ReplayJobs(Recording.open(folder).run("long"), WINDOW)
        while not jobs.is_over:
            jobs.advance(3600)
            jobs.snapshot()
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_four_days_take_as_much_memory_as_one(tmp_path, monkeypatch):
    monkeypatch.setattr("dsp_gym.records.recording.HELD_ROWS", 0)
    _peak_mib(tmp_path / "first", 1)  # imports and caches
    one, four = (_peak_mib(tmp_path / str(days), days) for days in (1, 4))
    assert four <= 1.3 * one
