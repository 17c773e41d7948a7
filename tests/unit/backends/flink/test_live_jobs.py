"""A real job as the loop's ends: it waits, polls, and asks nothing of a job it cannot see."""

from __future__ import annotations

import numpy as np
import pytest

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
    living.jobs.advance(22)
    assert living.now_s == pytest.approx(22)
    assert living.slept_s == [5, 5, 5, 5, 2]
    assert living.polls == 5


def test_what_happened_reaches_back_to_the_last_call(living):
    living.jobs.advance(20)
    living.sleep(7)  # a policy that thinks for long
    assert living.jobs.advance(20).seconds[0] == pytest.approx(27)


def test_a_running_job_is_asked_for_what_is_wanted(living):
    living.jobs.advance(20)
    living.jobs.snapshot()
    assert living.jobs.held is None
    living.jobs.apply(more(living))
    assert living.jobs.status().tolist() == [PENDING]


def test_nothing_is_asked_while_metrics_are_unknown_and_the_reason_is_kept(living):
    living.trouble = "Prometheus does not answer"
    living.jobs.snapshot()
    living.jobs.apply(more(living))
    assert living.jobs.held == "Prometheus does not answer"
    assert not living.asked
    living.trouble = None
    living.jobs.snapshot()
    living.jobs.apply(more(living))
    assert len(living.asked) == 1


@pytest.mark.parametrize("status", [Status.RESTARTING, Status.SAVEPOINTING, Status.FAILED])
def test_nothing_is_asked_of_a_job_that_does_not_run(living, status):
    living.status_shown = status
    living.jobs.snapshot()
    living.jobs.apply(more(living))
    assert "failed" in living.jobs.held or status.name in living.jobs.held
    assert not living.asked


def test_a_job_between_its_stop_and_its_resubmission_is_restarting_and_not_lost(living):
    living.jobs.advance(20)
    living.jobs.snapshot()
    living.jobs.apply(more(living))
    living.status_shown = Status.FAILED
    seen = living.jobs.snapshot()
    assert seen.status.tolist() == [Status.RESTARTING]
    assert living.jobs.held is None


def test_a_job_that_cannot_be_looked_at_is_left_alone(living):
    living.refuses = "two jobs bear the name"
    with pytest.raises(Exception, match="two jobs"):
        living.jobs.snapshot()
    living.jobs.apply(more(living))
    assert not living.asked


def test_a_hold_ends_with_the_next_snapshot(living):
    living.jobs.snapshot()
    living.jobs.hold("the policy failed")
    living.jobs.apply(more(living))
    assert not living.asked
    living.jobs.snapshot()
    assert living.jobs.held is None


def test_closing_closes_the_actuator(living):
    living.jobs.close()
    assert living.closed


def test_cost_is_that_of_what_ran(living):
    outcome = living.jobs.advance(60)
    tables = living.simulated.topology.tables
    tasks = np.sum(living.simulated.state.parallelism[0][tables.kind[0] > 0])
    assert outcome.core_s[0] == pytest.approx(60.0 * tasks)
