"""What every actuator keeps. A new one subclasses `ActuatorContract`."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.loop.protocols import IDLE, PENDING, REACHED, REFUSED, Actuator
from dsp_gym.loop.topology import Topology
from dsp_gym.simulation.simulated import SimulatedJobs
from tests.simulating import line, wanted


class ActuatorContract:
    """Laws of an actuator; `actuator` runs two jobs `source -> map -> sink`, not yet asked."""

    @pytest.fixture
    def actuator(self) -> Actuator:
        raise NotImplementedError

    def forward(self, actuator: Actuator, seconds: int) -> None:
        """Let time go by for the jobs behind the actuator."""
        raise NotImplementedError

    def running(self, actuator: Actuator) -> np.ndarray:
        """The parallelism that runs."""
        raise NotImplementedError

    def ask(self, actuator: Actuator, maps: list[int]) -> None:
        """Ask for that many tasks of the map of each job."""
        p = self.running(actuator).copy()
        p[:, 1] = maps
        actuator.apply(wanted(p, np.zeros_like(p)))

    def test_it_is_an_actuator(self, actuator):
        assert isinstance(actuator, Actuator)

    def test_before_anything_is_asked_it_is_idle(self, actuator):
        assert actuator.status().tolist() == [IDLE, IDLE]
        assert actuator.status().dtype == np.int64

    def test_a_request_is_pending_and_then_reached_and_others_stay_idle(self, actuator):
        self.ask(actuator, [3, 1])
        assert actuator.status().tolist() == [PENDING, IDLE]
        self.forward(actuator, 300)
        assert actuator.status().tolist() == [REACHED, IDLE]
        assert self.running(actuator)[:, 1].tolist() == [3, 1]

    def test_asking_again_for_what_runs_asks_for_nothing(self, actuator):
        self.ask(actuator, [3, 1])
        self.forward(actuator, 300)
        self.ask(actuator, [3, 1])
        assert actuator.status().tolist() == [REACHED, IDLE]

    def test_it_returns_at_once(self, actuator):
        before = self.running(actuator).copy()
        self.ask(actuator, [3, 2])
        np.testing.assert_array_equal(self.running(actuator), before)

    def test_it_does_not_keep_or_change_what_it_was_given(self, actuator):
        p = self.running(actuator).copy()
        p[:, 1] = 4
        level = np.zeros_like(p)
        given = wanted(p, level)
        actuator.apply(given)
        p[:] = 1  # the caller's array is the caller's
        self.forward(actuator, 300)
        assert self.running(actuator)[:, 1].tolist() == [4, 4]
        assert not level.any()

    def test_a_request_while_another_is_under_way_is_refused(self, actuator):
        self.ask(actuator, [3, 1])
        self.ask(actuator, [5, 1])
        assert actuator.status().tolist() == [REFUSED, IDLE]
        self.forward(actuator, 300)
        assert self.running(actuator)[0, 1] == 3

    def test_requests_outside_the_bounds_are_brought_inside(self, actuator):
        self.ask(actuator, [10_000, 0])
        self.forward(actuator, 300)
        assert self.running(actuator)[:, 1].tolist() == [24, 1]


class TestSimulatedJobs(ActuatorContract):
    @pytest.fixture(params=["redeploy", "in_place"])
    def actuator(self, request) -> SimulatedJobs:
        spec = line(rescale={"mode": request.param, "outage_s": [20, 20, 20]})
        jobs = SimulatedJobs(Topology.of([spec], [0, 0]))
        jobs.reset(np.arange(2), np.full((2, 1), 100.0))
        jobs.advance(10)
        return jobs

    def forward(self, actuator, seconds):
        actuator.advance(seconds)

    def running(self, actuator):
        return actuator.snapshot().parallelism
