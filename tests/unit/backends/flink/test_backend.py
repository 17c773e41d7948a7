"""A real job as a backend: it waits and polls, and says when nothing may be asked of the job."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.backends.base import Clock, reason_to_hold
from dsp_gym.backends.flink.backend import FlinkBackend
from dsp_gym.loop.protocols import PENDING
from dsp_gym.loop.snapshot import Status
from tests.living import Living
from tests.simulating import wanted


@pytest.fixture
def living() -> Living:
    return Living()


def more(living: Living, p: int = 3):
    """The request for that many tasks of the map."""
    parallelism = living.simulated.state.parallelism.copy()
    parallelism[:, 1] = p
    return wanted(parallelism, living.simulated.state.level.copy())


def test_advancing_waits_and_polls_every_five_seconds(living):
    living.backend.advance(22)
    assert living.now_s == pytest.approx(22)
    assert living.slept_s == [5, 5, 5, 5, 2]
    assert living.polls == 5


def test_what_happened_reaches_back_to_the_last_call(living):
    living.backend.advance(20)
    living.sleep(7)  # a policy that thinks for long
    assert living.backend.advance(20).seconds[0] == pytest.approx(27)


def test_a_running_job_may_be_scaled(living):
    living.backend.advance(20)
    assert reason_to_hold(living.backend, living.snapshot()) is None
    living.backend.actuator.apply(more(living))
    assert living.backend.actuator.status().tolist() == [PENDING]


def test_while_metrics_are_unknown_the_job_is_left_alone_and_the_reason_is_kept(living):
    living.shown_trouble = "Prometheus does not answer"
    assert reason_to_hold(living.backend, living.snapshot()) == "Prometheus does not answer"
    living.shown_trouble = None
    assert reason_to_hold(living.backend, living.snapshot()) is None


@pytest.mark.parametrize("status", [Status.RESTARTING, Status.SAVEPOINTING, Status.FAILED])
def test_a_job_that_does_not_run_is_left_alone(living, status):
    living.status_shown = status
    held = reason_to_hold(living.backend, living.snapshot())
    assert "failed" in held or status.name in held


def test_a_job_that_is_being_rescaled_may_be_asked_again(living):
    living.backend.advance(20)
    living.backend.actuator.apply(more(living))
    living.status_shown = Status.RESTARTING
    assert reason_to_hold(living.backend, living.snapshot()) is None


def test_a_backend_without_an_actuator_is_held_by_any_restart(living):
    watching = FlinkBackend(living, None, Clock(living.clock, living.sleep))
    living.backend.actuator.apply(more(living))
    living.status_shown = Status.RESTARTING
    assert reason_to_hold(watching, living.snapshot()) == "the job is RESTARTING"
    assert watching.actuator is None
    assert watching.advance(20).rescales[0] == 0


def test_a_job_that_is_gone_is_lost(living):
    assert not living.backend.is_lost
    living.status_shown = Status.FAILED
    living.snapshot()
    assert living.backend.is_lost


def test_rescales_are_counted_once_however_often_they_are_asked_for(living):
    living.backend.advance(20)
    for _ in range(3):
        living.backend.actuator.apply(more(living))
    assert living.backend.advance(60).rescales[0] == 1
    living.backend.actuator.roll_back(more(living, 1), "late")
    assert living.taken_back == ["late"]
    assert living.backend.advance(60).rescales[0] == 1
    assert living.backend.advance(60).rescales[0] == 0


def test_closing_closes_the_actuator(living):
    living.backend.close()
    assert living.closed


def test_cost_is_that_of_what_ran(living):
    outcome = living.backend.advance(60)
    tables = living.simulated.topology.tables
    tasks = np.sum(living.simulated.state.parallelism[0][tables.kind[0] > 0])
    assert outcome.core_s[0] == pytest.approx(60.0 * tasks)
