"""The contract of every backend. A new one subclasses `BackendContract`."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from dsp_gym.backends.base import Actuator, Backend, Collector, Platform, reason_to_hold
from dsp_gym.backends.paced import Paced, PacedBackend
from dsp_gym.backends.replay import connection as replay
from dsp_gym.backends.simulated import connection as simulated
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.backends.simulated.recording import SimulatedRecording
from dsp_gym.control.loop import ControlLoop
from dsp_gym.loop.configuration import Configuration
from dsp_gym.loop.outcome import OUTCOME_FIELDS
from dsp_gym.loop.topology import Topology
from dsp_gym.metrics.window import WindowConfig
from dsp_gym.policies.registry import make
from dsp_gym.records.manifest import RecordedLoad
from tests.living import Living
from tests.simulating import exact, line, wanted

WINDOW = WindowConfig(window_s=30, stabilization_s=10)


class BackendContract:
    """Laws of a backend of one job that runs and may be looked at; it has an hour to show."""

    acts = True
    """Whether something can be asked of the job."""

    @pytest.fixture
    def backend(self) -> Backend:
        raise NotImplementedError

    def test_it_is_a_pair_of_a_collector_and_perhaps_an_actuator(self, backend):
        assert isinstance(backend, Backend)
        assert isinstance(backend.collector, Collector)
        assert isinstance(backend.platform, Platform)
        assert (backend.actuator is not None) == self.acts
        assert backend.actuator is None or isinstance(backend.actuator, Actuator)

    def test_time_passes_as_far_as_it_is_advanced(self, backend):
        seen = backend.collector.snapshot()
        outcome = backend.advance(60)
        for name in OUTCOME_FIELDS:
            assert getattr(outcome, name).shape == (len(seen),), name
        assert outcome.seconds.tolist() == [60.0] * len(seen)
        later = backend.collector.snapshot()
        np.testing.assert_allclose(later.t_s - seen.t_s, 60.0)

    def test_outcomes_follow_one_another_without_a_gap(self, backend):
        begun_s = backend.collector.snapshot().t_s
        seconds = sum(backend.advance(30).seconds for _ in range(4))
        np.testing.assert_allclose(backend.collector.snapshot().t_s - begun_s, seconds)

    def test_after_an_advance_the_collector_says_how_old_its_data_are(self, backend):
        backend.advance(60)
        seen = backend.collector.snapshot()
        assert isinstance(backend.collector.age_s, float)
        assert backend.collector.trouble is None
        assert reason_to_hold(backend, seen) is None
        assert not backend.is_lost
        assert not backend.is_over
        times = [t_s for t_s, _ in backend.collector.arrivals]
        assert times == sorted(times)

    def test_a_policy_drives_it_in_the_loop_and_rescales_only_what_may_be_rescaled(self, backend):
        backend.advance(60)
        loop = ControlLoop(backend, make("ds2"), interval_s=60)
        loop.reset(np.zeros(len(backend.collector.topology), np.int64))
        steps = [loop.step() for _ in range(6)]
        asked = [step.guarded.parallelism.tolist() for step in steps]
        ran = [step.snapshot.parallelism.tolist() for step in steps]
        assert any(a != r for a, r in zip(asked, ran, strict=True))  # the policy wants another one
        assert (ran[-1] != ran[0]) == self.acts
        assert (sum(step.outcome.rescales[0] for step in steps) > 0) == self.acts

    def test_what_ran_before_a_change_can_be_asked_for_again(self, backend):
        if backend.actuator is None:
            return
        backend.advance(60)
        seen = backend.collector.snapshot()
        before = wanted(seen.parallelism.copy(), seen.memory_level.copy())
        more = seen.parallelism.copy()
        more[:, 1] += 2
        backend.actuator.apply(wanted(more, seen.memory_level.copy()))
        backend.advance(120)
        assert backend.collector.snapshot().parallelism[0, 1] == more[0, 1]
        backend.actuator.roll_back(before, "the job is late")
        backend.advance(120)
        assert backend.collector.snapshot().parallelism[0, 1] == seen.parallelism[0, 1]

    def test_closing_ends_it(self, backend):
        backend.close()


def busy() -> SimulatedJobs:
    """A job that needs two tasks of its map, and has one."""
    jobs = SimulatedJobs(Topology.of([line()]), exact())
    jobs.reset(np.zeros(1, np.int64), np.full((1, 1), 1500.0))
    return jobs


class TestSimulatedJobs(BackendContract):
    @pytest.fixture
    def backend(self) -> Backend:
        return busy()


class TestASimulatedRun(BackendContract):
    @pytest.fixture
    def backend(self) -> Backend:
        return Paced([PacedBackend(busy(), 0.0, 3600.0)], apply=True)

    def test_it_ends_with_its_load(self):
        backend = simulated.connect(line(), "diurnal", WINDOW, apply=True, duration_s=120)
        backend.advance(60)
        assert not backend.is_over
        backend.advance(60)
        assert backend.is_over
        assert backend.now_s() == 120

    def test_a_stop_ends_the_waiting_for_its_speed(self):
        stop = threading.Event()
        stop.set()
        backend = Paced([PacedBackend(busy(), 0.0)], apply=True, speed=0.001, stop=stop)
        assert backend.advance(60).seconds[0] == 60


class TestAShadowOfASimulatedRun(BackendContract):
    acts = False

    @pytest.fixture
    def backend(self) -> Backend:
        return Paced([PacedBackend(busy(), 0.0, 3600.0)], apply=False)


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """One run of fifteen minutes."""
    folder = tmp_path_factory.mktemp("recorded") / "r"
    made = SimulatedRecording(folder, line(), exact())
    load = RecordedLoad(name="busy", steps=((0, 1500.0),))
    made.add("busy", Configuration.of_spec(line()), load, 900)
    return folder


class TestARecording(BackendContract):
    acts = False

    @pytest.fixture
    def backend(self, recording) -> Backend:
        return replay.connect(recording, line(), WINDOW)


class TestFlinkBackend(BackendContract):
    @pytest.fixture
    def backend(self) -> Backend:
        return Living().backend
