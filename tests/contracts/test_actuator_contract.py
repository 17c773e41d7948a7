"""The contract of every actuator. A new one subclasses `ActuatorContract`."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

from dsp_gym.backends.base import Actuator
from dsp_gym.backends.flink.rescale import JustinActuator
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.backends.kubernetes.actuator import KubernetesActuator, Pace
from dsp_gym.backends.kubernetes.api import KubernetesApi
from dsp_gym.backends.kubernetes.config import KubernetesPlace
from dsp_gym.backends.kubernetes.lease import Lease
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.loop.protocols import ActuatorStatus
from dsp_gym.loop.topology import Topology
from tests.fakes.flink_operator import FlinkOperator, PretendedJob
from tests.fakes.justin_endpoint import JustinCluster, served
from tests.fakes.kubernetes_api import served_kubernetes
from tests.flink_resources import MAP, SINK, SOURCE, deployment
from tests.simulating import line, wanted


class ActuatorContract:
    """Laws of an actuator; `actuator` runs jobs with three vertices, not yet asked.

    The middle vertex runs with one task and may have `most`; the others keep theirs. A batch has
    two jobs, of which only the first is asked, unless `jobs` says that it has one.
    """

    jobs = 2
    most = 24
    asked: ClassVar[tuple[int, int, int]] = (3, 5, 4)  # three counts of tasks, all different

    @pytest.fixture
    def actuator(self) -> Actuator:
        raise NotImplementedError

    def forward(self, actuator: Actuator, seconds: int) -> None:
        """Let time go by for the jobs behind the actuator, until what was asked for has ended."""
        raise NotImplementedError

    def running(self, actuator: Actuator) -> np.ndarray:
        """The parallelism that runs."""
        raise NotImplementedError

    def levels(self, actuator: Actuator) -> np.ndarray:
        """The memory levels that run."""
        return np.zeros((self.jobs, 3), np.int64)

    def ask(self, actuator: Actuator, *maps: int) -> None:
        """Ask for that many tasks of the middle vertex of the first jobs; others hold on."""
        p = self.running(actuator).copy()
        p[: len(maps), 1] = maps
        actuator.apply(wanted(p, self.levels(actuator)))

    def status(self, actuator: Actuator) -> list[int]:
        """The status, which has to be the same at every other job: idle."""
        first, *others = actuator.status().tolist()
        assert others == [ActuatorStatus.IDLE] * (self.jobs - 1)
        return [first]

    def test_it_is_an_actuator(self, actuator):
        assert isinstance(actuator, Actuator)

    def test_before_anything_is_asked_it_is_idle(self, actuator):
        assert actuator.status().tolist() == [ActuatorStatus.IDLE] * self.jobs
        assert actuator.status().dtype == np.int64

    def test_a_request_is_pending_and_then_reached_and_others_stay_idle(self, actuator):
        self.ask(actuator, self.asked[0])
        assert self.status(actuator) == [ActuatorStatus.PENDING]
        self.forward(actuator, 300)
        assert self.status(actuator) == [ActuatorStatus.REACHED]
        assert self.running(actuator)[:, 1].tolist() == [self.asked[0], 1][: self.jobs]

    def test_asking_for_what_runs_asks_for_nothing(self, actuator):
        before = self.running(actuator).copy()
        self.ask(actuator)
        assert actuator.status().tolist() == [ActuatorStatus.IDLE] * self.jobs
        self.forward(actuator, 1)
        assert actuator.status().tolist() == [ActuatorStatus.IDLE] * self.jobs
        np.testing.assert_array_equal(self.running(actuator), before)

    def test_asking_again_for_what_runs_asks_for_nothing(self, actuator):
        self.ask(actuator, self.asked[0])
        self.forward(actuator, 300)
        self.ask(actuator, self.asked[0])
        assert self.status(actuator) == [ActuatorStatus.REACHED]

    def test_it_returns_at_once(self, actuator):
        before = self.running(actuator).copy()
        self.ask(actuator, *self.asked[: self.jobs])
        np.testing.assert_array_equal(self.running(actuator), before)

    def test_it_does_not_keep_or_change_what_it_was_given(self, actuator):
        p, level = self.running(actuator).copy(), self.levels(actuator)
        p[:, 1] = self.asked[2]
        given, given_level = wanted(p, level), level.copy()
        actuator.apply(given)
        p[:] = 1  # the caller's array is the caller's
        self.forward(actuator, 300)
        assert self.running(actuator)[:, 1].tolist() == [self.asked[2]] * self.jobs
        np.testing.assert_array_equal(level, given_level)

    def test_a_request_while_another_is_under_way_is_refused(self, actuator):
        p = self.running(actuator).copy()
        for tasks in self.asked[:2]:
            p[0, 1] = tasks
            actuator.apply(wanted(p.copy(), self.levels(actuator)))
        assert self.status(actuator) == [ActuatorStatus.FAILED]
        self.forward(actuator, 300)
        assert self.running(actuator)[0, 1] == self.asked[0]

    def test_a_roll_back_brings_back_what_ran_before_a_change(self, actuator):
        before = wanted(self.running(actuator).copy(), self.levels(actuator))
        self.ask(actuator, self.asked[0])
        self.forward(actuator, 300)
        actuator.roll_back(before, "it made the job late")
        assert self.status(actuator) == [ActuatorStatus.PENDING]
        self.forward(actuator, 300)
        assert self.status(actuator) == [ActuatorStatus.REACHED]
        assert self.running(actuator)[:, 1].tolist() == [1] * self.jobs

    def test_requests_outside_the_bounds_are_brought_inside(self, actuator):
        self.ask(actuator, *[10_000, 0][: self.jobs])
        self.forward(actuator, 300)
        assert self.running(actuator)[:, 1].tolist() == [self.most, 1][: self.jobs]


class OneJobContract(ActuatorContract):
    """Further laws of what rescales one real job in a thread of its own."""

    jobs = 1
    patience_s = 10.0

    def forward(self, actuator, seconds):
        assert actuator.wait(self.patience_s), "still under way"

    def test_closing_waits_for_what_is_under_way(self, actuator):
        self.ask(actuator, self.asked[0])
        actuator.close()
        assert self.status(actuator) == [ActuatorStatus.REACHED]
        assert self.running(actuator)[0, 1] == self.asked[0]

    def test_what_is_asked_after_closing_is_refused(self, actuator):
        actuator.close()
        self.ask(actuator, self.asked[0])
        assert self.status(actuator) == [ActuatorStatus.FAILED]
        self.forward(actuator, 1)
        assert self.running(actuator)[0, 1] == 1


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


class TestJustin(OneJobContract):
    @pytest.fixture
    def cluster(self) -> JustinCluster:
        return JustinCluster({"source": 4, "map": 1, "sink": 1})

    @pytest.fixture
    def actuator(self, cluster):
        spec = line(flink={"program": "micro-update"})
        with (
            served(cluster) as url,
            JustinActuator(FlinkRest(url), "line", spec, poll_s=0.02) as actuator,
        ):
            yield actuator

    @pytest.fixture(autouse=True)
    def _remember(self, cluster):
        self.cluster = cluster

    def running(self, actuator):
        return np.array([[self.cluster.running(name) for name in ("source", "map", "sink")]])


class TestKubernetes(OneJobContract):
    @pytest.fixture
    def actuator(self, tmp_path):
        ids = {"source": SOURCE, "map": MAP, "sink": SINK}
        self.job = PretendedJob(ids, {"source": 4, "map": 1, "sink": 1})
        self.job.delay_s = 0.2
        with served_kubernetes() as fake:
            fake.put(deployment())
            file = fake.kubeconfig(tmp_path / "config", fake.admin)
            place = KubernetesPlace(kubeconfig=file, namespace="jobs", name="words")
            api = KubernetesApi.connect(place)
            lease = Lease(api, "jobs", "words", "me")
            with (
                FlinkOperator(fake, "words", self.job),
                KubernetesActuator(
                    api, place, "words", line(), self.job.look, lease, pace=Pace(poll_s=0.02)
                ) as actuator,
            ):
                yield actuator

    def running(self, actuator):
        tasks = self.job.running()
        return np.array([[tasks[name] for name in ("source", "map", "sink")]])
