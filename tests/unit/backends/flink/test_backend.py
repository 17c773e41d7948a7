"""A real job as a backend: waiting, polling, and reporting when rescaling is impossible."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.backends.base import Clock, reason_to_hold
from dsp_gym.backends.flink.backend import FlinkBackend, FlinkCollector
from dsp_gym.backends.flink.job import FlinkJob
from dsp_gym.backends.flink.prometheus import PrometheusSamples
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.errors import FlinkError
from dsp_gym.loop.protocols import ActuatorStatus
from dsp_gym.loop.snapshot import Status
from dsp_gym.metrics.window import WindowConfig
from tests.answering import START_MS, TASKS, answering, tell
from tests.living import Living
from tests.simulating import line, wanted


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
    assert living.backend.actuator.status().tolist() == [ActuatorStatus.PENDING]


def test_while_metrics_are_unknown_the_job_is_left_alone_and_the_reason_is_kept(living):
    living.shown_trouble = FlinkError("Prometheus does not answer", api="prometheus")
    assert reason_to_hold(living.backend, living.snapshot()) is living.shown_trouble
    living.shown_trouble = None
    assert reason_to_hold(living.backend, living.snapshot()) is None


@pytest.mark.parametrize("status", [Status.RESTARTING, Status.SAVEPOINTING, Status.FAILED])
def test_a_job_that_does_not_run_is_left_alone(living, status):
    living.status_shown = status
    held = reason_to_hold(living.backend, living.snapshot())
    assert "failed" in str(held) or status.name in str(held)
    reason = "NotFound" if status == Status.FAILED else "Other"
    assert (held.api, held.reason) == ("flink", reason)


def test_a_job_that_is_being_rescaled_may_be_asked_again(living):
    living.backend.advance(20)
    living.backend.actuator.apply(more(living))
    living.status_shown = Status.RESTARTING
    assert reason_to_hold(living.backend, living.snapshot()) is None


def test_a_backend_without_an_actuator_is_held_by_any_restart(living):
    watching = FlinkBackend(living, None, Clock(living.clock, living.sleep))
    living.backend.actuator.apply(more(living))
    living.status_shown = Status.RESTARTING
    assert str(reason_to_hold(watching, living.snapshot())) == "the job is RESTARTING"
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


class Paid:
    """A backend on a fake Flink and a fake Prometheus that count what they are asked."""

    def __init__(self, cluster) -> None:
        tell(cluster)
        answer = {"status": "success", "data": {"resultType": "matrix", "result": self.series()}}
        cluster.answers["/api/v1/query"] = answer
        self.cluster, self.now_s = cluster, START_MS / 1000 + 300
        clock = Clock(lambda: self.now_s, self.sleep)
        spec = line()
        job = FlinkJob(FlinkRest(cluster.url), "mine", spec)
        samples = PrometheusSamples(cluster.url, job, spec)
        window = WindowConfig(window_s=60, stabilization_s=0)
        collector = FlinkCollector(spec, job, samples, window, clock)
        self.backend = FlinkBackend(collector, None, clock)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def series(self) -> list[dict[str, object]]:
        """One subtask of each vertex, so that TaskManagers are asked for, too."""
        return [
            {
                "metric": {
                    "__name__": "flink_taskmanager_job_task_numRecordsOut",
                    "job_id": "a1", "tm_id": "one", "task_name": name, "subtask_index": "0",
                },
                "values": [[START_MS / 1000 + 5 * k, str(100 * k)] for k in range(100)],
            }
            for name in TASKS
        ]  # fmt: skip

    def turn(self) -> tuple[int, int]:
        """Queries to Prometheus and calls to Flink of one decision and its interval."""
        self.cluster.asked.clear()
        self.backend.collector.snapshot()
        self.backend.advance(30)
        queries = sum(target.startswith("/api/v1/query") for target in self.cluster.asked)
        return queries, len(self.cluster.asked) - queries


def test_an_interval_costs_three_queries_and_one_look_at_flink():
    with answering() as cluster:
        paid = Paid(cluster)
        paid.turn()
        cluster.asked.clear()
        paid.backend.collector.look(paid.now_s)
        one_look = sum(not target.startswith("/api/v1/query") for target in cluster.asked)
        assert [paid.turn() for _ in range(3)] == [(3, one_look)] * 3


def test_the_snapshot_after_an_interval_is_that_of_its_end_and_a_later_one_is_new():
    with answering() as cluster:
        paid = Paid(cluster)
        paid.backend.advance(30)
        ended_s = paid.now_s
        assert paid.backend.collector.snapshot().t_s[0] == ended_s
        cluster.asked.clear()
        assert paid.backend.collector.snapshot().t_s[0] == ended_s
        assert cluster.asked
        paid.backend.advance(30)
        paid.sleep(7)  # somebody thought for long
        assert paid.backend.collector.snapshot().t_s[0] == paid.now_s


def test_metrics_that_cannot_be_had_fail_the_interval_and_empty_the_next_snapshot():
    with answering() as cluster:
        paid = Paid(cluster)
        paid.backend.advance(30)
        cluster.answers["/api/v1/query"] = (503, "busy")
        with pytest.raises(FlinkError, match="did not answer as it should"):
            paid.backend.advance(30)
        cluster.asked.clear()
        seen = paid.backend.collector.snapshot()
        assert not cluster.asked
        assert seen.window_fill[0] == 0
        held = reason_to_hold(paid.backend, seen)
        assert "did not answer" in str(held)
        assert (held.api, held.reason) == ("prometheus", "Other")
