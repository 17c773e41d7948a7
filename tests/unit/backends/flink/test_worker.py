from __future__ import annotations

import signal
import threading

import numpy as np
import pytest

from dsp_gym.backends.base import INTENTS
from dsp_gym.backends.flink.rescale import worker
from dsp_gym.backends.flink.rescale.running import RunningJob
from dsp_gym.backends.flink.rescale.worker import OneJobActuator, Unreached, clipped
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.backends.flink.submission import Configuration, Submission
from dsp_gym.errors import FlinkError
from dsp_gym.job.catalog import load_job
from dsp_gym.job.deployment import adaptive, slot_levels
from dsp_gym.loop.protocols import ActuatorStatus
from dsp_gym.loop.topology import Topology
from tests.simulating import line, wanted

NAMES = ("source", "map", "sink")


class Desk(OneJobActuator):
    """An actuator whose job is a number on a desk: the thread and the status are the real ones."""

    def __init__(self, on_event=None, **rest) -> None:
        self.running = 1
        self.error: Exception | None = None
        self.recovery: Exception | None = None
        self.go = threading.Event()
        self.events: list[str] = []
        super().__init__(
            FlinkRest(),
            "line",
            line(),
            on_event=on_event or (lambda kind, body: self.events.append(kind)),
            **rest,
        )

    def _read(self) -> RunningJob:
        p = dict(zip(NAMES, (4, self.running, 1), strict=True))
        at = Configuration(p, dict.fromkeys(NAMES, 0))
        return RunningJob("id", "RUNNING", Submission(self.spec, "line"), at, {})

    def _rescale(self, job, wanted) -> None:
        self.go.wait()
        if self.error is not None:
            raise self.error
        self.running = wanted.parallelism["map"]

    def _recover(self, job, wanted) -> None:
        self.events.append("recovering")
        if self.recovery is not None:
            raise self.recovery

    def ask(self, maps: int) -> None:
        self.apply(wanted(np.array([[4, maps, 1]]), np.zeros((1, 3), np.int64)))

    def done(self) -> int:
        self.go.set()
        assert self.wait(10.0)
        return int(self.status()[0])


@pytest.fixture
def desk():
    made = Desk()
    yield made
    made.go.set()
    made.close()


def test_a_request_is_pending_until_it_is_reached(desk):
    desk.ask(3)
    assert desk.status().tolist() == [ActuatorStatus.PENDING]
    assert desk.done() == ActuatorStatus.REACHED
    assert desk.running == 3
    assert desk.events == ["asked", "reached"]


def test_its_thread_keeps_the_interpreter_alive_and_ends_with_the_request(desk):
    desk.ask(3)
    (thread,) = (one for one in threading.enumerate() if one.name == "rescale-line")
    assert not thread.daemon
    desk.done()
    thread.join(5)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Unreached("no slots"), ActuatorStatus.FAILED),
        (Unreached("too long", status=ActuatorStatus.TIMED_OUT), ActuatorStatus.TIMED_OUT),
        (FlinkError("REST is gone"), ActuatorStatus.FAILED),
        (KeyError("an answer nobody expected"), ActuatorStatus.FAILED),
    ],
)
def test_whatever_goes_wrong_is_told_and_recovered_from(desk, error, status):
    desk.error = error
    desk.ask(3)
    assert desk.done() == status
    assert desk.events == ["asked", "failed", "recovering"]


def test_a_recovery_that_fails_is_an_alarm_and_does_not_stay_pending(desk):
    desk.error, desk.recovery = FlinkError("first"), RuntimeError("second")
    desk.ask(3)
    assert desk.done() == ActuatorStatus.FAILED
    assert desk.events == ["asked", "failed", "recovering", "alarm"]


def test_a_decision_that_keeps_asks_nothing_of_a_job_that_has_no_tasks_yet(desk):
    desk.running = 0  # of a job that its scheduler has just created
    desk.ask(1)
    desk.done()
    assert desk.events == []
    desk.ask(3)
    assert desk.done() == ActuatorStatus.FAILED
    assert desk.events == ["failed"]
    desk.running = 1
    desk.ask(3)
    assert desk.done() == ActuatorStatus.REACHED


def test_after_a_failure_the_next_request_is_taken(desk):
    desk.error = FlinkError("once")
    desk.ask(3)
    desk.done()
    desk.error = None
    desk.ask(3)
    assert desk.done() == ActuatorStatus.REACHED


def test_what_had_no_effect_is_asked_again_when_its_time_is_over(desk, monkeypatch):
    def without_effect(job, wanted) -> None:
        desk._is_asked = True
        raise Unreached("it did not run", status=ActuatorStatus.TIMED_OUT)

    monkeypatch.setattr(desk, "_rescale", without_effect)
    for retry_s, refused in ((60.0, 1), (0.0, 0)):
        monkeypatch.setattr(worker, "RETRY_S", retry_s)
        desk.events.clear()
        for _ in range(2):
            desk.ask(3)
            assert desk.wait(5)
        assert desk.events.count("refused") == refused


def test_what_holds_on_to_the_running_configuration_is_no_request(desk):
    desk.ask(3)
    desk.ask(1)  # what runs until the rescale is through
    desk.ask(3)  # what is coming
    assert desk.status().tolist() == [ActuatorStatus.PENDING]
    assert desk.done() == ActuatorStatus.REACHED
    assert desk.events == ["asked", "reached"]


def test_another_request_meanwhile_is_refused_and_told(desk):
    desk.ask(3)
    desk.ask(5)
    assert desk.status().tolist() == [ActuatorStatus.FAILED]
    assert desk.done() == ActuatorStatus.FAILED
    assert desk.running == 3
    assert sorted(desk.events) == ["asked", "reached", "refused"]


def test_a_job_somebody_else_has_rescaled_is_put_right(desk):
    desk.running = 7
    desk.ask(1)  # what ran when the actuator was made
    assert desk.done() == ActuatorStatus.REACHED
    assert desk.running == 1


def test_a_job_somebody_else_has_rescaled_as_wanted_is_left_alone(desk):
    desk.running = 3
    desk.ask(3)
    assert desk.done() == ActuatorStatus.REACHED
    assert desk.events == []
    desk.ask(3)
    assert desk.done() == ActuatorStatus.REACHED


def test_a_listener_that_fails_stops_no_rescale_that_has_begun(caplog):
    def full_disk(kind, body):
        if kind not in INTENTS:
            raise OSError("No space left on device")

    actuator = Desk(on_event=full_disk)
    actuator.ask(3)
    assert actuator.done() == ActuatorStatus.REACHED
    assert actuator.running == 3
    assert "event reached of job line could not be recorded" in caplog.text


def test_without_a_record_of_the_intent_nothing_is_asked_of_the_job():
    heard: list[tuple[str, object]] = []

    def full_disk(kind, body):
        if kind in INTENTS:
            raise OSError("No space left on device")
        heard.append((kind, body.get("reason")))

    actuator = Desk(on_event=full_disk)
    actuator.ask(3)
    assert actuator.done() == ActuatorStatus.FAILED
    assert actuator.running == 1
    assert heard == [("failed", "nothing was asked of the job: No space left on device")]


def test_closing_waits_and_an_interrupt_is_raised_afterwards(desk, caplog):
    desk.ask(3)
    main = threading.main_thread().ident
    assert main is not None
    interrupt = threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT))
    finish = threading.Timer(0.4, desk.go.set)
    interrupt.start()
    finish.start()
    with pytest.raises(KeyboardInterrupt):
        desk.close()
    assert desk.running == 3
    assert "interrupted while job line is being rescaled" in caplog.text


def test_a_closed_actuator_refuses(desk):
    desk.close()
    desk.ask(3)
    assert desk.status().tolist() == [ActuatorStatus.FAILED]
    assert desk.events == ["refused"]


def test_before_anything_is_asked_it_is_idle(desk):
    desk.ask(1)
    assert desk.done() == ActuatorStatus.IDLE


def test_a_decision_is_clipped_to_the_bounds_of_the_job_file():
    topology = Topology.of([line(max_parallelism_per_vertex=6)])
    found = clipped(wanted(np.array([[9, 99, 9]]), np.array([[-5, 9, 1]])), topology)
    assert found.parallelism == {"source": 4, "map": 6, "sink": 1}
    assert found.memory_level == {"source": -1, "map": 2, "sink": 1}


def test_a_job_of_uniform_slots_is_asked_for_tasks_alone():
    spec = adaptive(load_job("nexmark-q11"), 0)
    topology = Topology.of([spec])
    tasks = np.full((1, topology.max_vertices), 2)
    for level in (-1, 0, 2):
        asked = wanted(tasks, np.full_like(tasks, level))
        assert clipped(asked, topology).memory_level == slot_levels(spec)
