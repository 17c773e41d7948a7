"""Lost answers to a submission: a job that has resumed from a savepoint is never repeated."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsp_gym.backends.file_lease import FileLease
from dsp_gym.backends.flink import rest
from dsp_gym.backends.flink.rescale.resubmit import ResubmitActuator
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.loop.protocols import ActuatorStatus
from tests.fakes.breakable import BreakableLink
from tests.fakes.justin_endpoint import served
from tests.fakes.resubmitting import FakeJob, ResubmittingCluster, check_exactly_once
from tests.simulating import line, wanted

FIRST = "0123456789abcdef0123456789abcdef"
WAIT_S = 20.0


class Rig:
    """A cluster behind a link, and an actuator whose steps are kept."""

    def __init__(
        self, cluster: ResubmittingCluster, link: BreakableLink, jar: Any, name: str = "line"
    ) -> None:
        self.cluster, self.link = cluster, link
        self.steps: list[tuple[str, dict[str, Any]]] = []
        self.actuator = ResubmitActuator(
            FlinkRest(link.url, timeout_s=2), name,
            line(flink={"program": "micro-update", "jar": str(jar)}), cluster.savepoints,
            timeout_s=3, poll_s=0.01,
            on_event=lambda kind, body: self.steps.append((kind, body)),
        )  # fmt: skip
        self.actuator.retry_s = 0.1

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.steps]

    def named_again(self, in_flink: str, here: str) -> Rig:
        """The same cluster, whose job is called so in Flink and so here."""
        first = self.cluster.jobs[FIRST]
        self.cluster.jobs[FIRST].arguments = {**first.arguments, "job-name": in_flink}
        jar = self.actuator.spec.flink.jar
        return Rig(self.cluster, self.link, jar, here)

    def rescale(self) -> int:
        """To three tasks of the map; the status at the end."""
        levels = np.array([list(self.actuator._known.memory_level.values())])
        self.actuator.apply(wanted(np.array([[4, 3, 1]]), levels))
        assert self.actuator.wait(WAIT_S)
        return int(self.actuator.status()[0])

    def cut(self, seconds: float) -> None:
        self.link.cut()
        threading.Timer(seconds, self.link.mend).start()

    def after_submission(self, happens: Callable[[FakeJob], None]) -> None:
        """Something happens when Flink has taken the next job, before it answers."""
        run = self.cluster._run

        def taken(body: Any) -> tuple[int, Any]:
            answer = run(body)
            self.cluster._run = run
            happens(self.cluster.jobs[body["jobId"]])
            return answer

        self.cluster._run = taken

    def cancelled(self) -> list[str]:
        return [path for method, path in self.cluster.asked if method == "PATCH"]


@pytest.fixture
def rig(tmp_path) -> Iterator[Rig]:
    jar = tmp_path / "jobs.jar"
    jar.write_bytes(b"a jar")
    cluster = ResubmittingCluster(jar, tmp_path / "savepoints")
    cluster.start(
        FIRST,
        {
            "program": "micro-update", "slot-sharing": "per-vertex", "job-name": "line",
            "parallelism": "source=4,map=1,sink=1", "managed-mib": "source=158,map=158,sink=158",
        },
    )  # fmt: skip
    cluster.checkpointed.add(FIRST)
    with served(cluster) as url, closing(BreakableLink(url)) as link:
        made = Rig(cluster, link, jar)
        with closing(made.actuator):
            yield made


def test_a_job_whose_submission_was_not_answered_is_not_cancelled_once_it_runs(rig):
    def lost(job: FakeJob) -> None:
        rig.cluster.checkpointed.add(job.id)
        rig.cut(0.5)

    rig.after_submission(lost)
    assert rig.rescale() == ActuatorStatus.REACHED
    assert rig.kinds[-3:] == ["failed", "running", "reached"]
    assert rig.cancelled() == []
    check_exactly_once(rig.cluster)
    (runs,) = rig.cluster.alive()
    assert "map=3" in runs.arguments["parallelism"]


def test_a_job_named_as_prometheus_labels_it_is_not_submitted_twice(rig):
    rig = rig.named_again("my line", "my_line")
    rig.after_submission(lambda job: (rig.cluster.checkpointed.add(job.id), rig.cut(0.5)))
    with closing(rig.actuator):
        assert rig.rescale() == ActuatorStatus.REACHED
    check_exactly_once(rig.cluster)


def test_nothing_is_submitted_beside_a_job_named_as_prometheus_labels_it(rig):
    rig = rig.named_again("my line", "my_line")
    stopped = rig.actuator._wait_for_end

    def then_started(job_id: str) -> None:
        stopped(job_id)
        rig.cluster.start("f" * 32, dict(rig.cluster.jobs[FIRST].arguments))

    rig.actuator._wait_for_end = then_started
    with closing(rig.actuator):
        assert rig.rescale() == ActuatorStatus.FAILED
    assert [job.id for job in rig.cluster.alive()] == ["f" * 32]


@pytest.fixture
def slow_build(rig, monkeypatch) -> Callable[[int], None]:
    """Flink takes longer to build the next jobs than their submission is waited for."""
    monkeypatch.setattr(rest, "_RUN_TIMEOUT_S", 0.2)

    def slow(submissions: int) -> None:
        run, left = rig.cluster._run, [1.0] * submissions

        def built(body: Any) -> tuple[int, Any]:
            time.sleep(left.pop() if left else 0.0)
            return run(body)

        rig.cluster._run = built

    return slow


def test_a_submission_that_arrives_late_starts_nothing_beside_the_restored_job(rig, slow_build):
    slow_build(1)
    assert rig.rescale() != ActuatorStatus.REACHED
    assert rig.kinds[-1] == "restored"
    time.sleep(1.0)  # the first submission is built by now
    (runs,) = rig.cluster.alive()
    assert "map=1" in runs.arguments["parallelism"]
    check_exactly_once(rig.cluster)


def test_a_job_that_comes_up_late_as_wanted_is_kept(rig, slow_build):
    slow_build(100)
    assert rig.rescale() == ActuatorStatus.REACHED
    time.sleep(1.0)  # whatever was asked for is built by now
    assert rig.kinds[-2:] == ["running", "reached"]
    assert rig.cancelled() == []
    (runs,) = rig.cluster.alive()
    assert "map=3" in runs.arguments["parallelism"]
    check_exactly_once(rig.cluster)


def test_while_flink_is_out_of_reach_a_submitted_job_is_waited_for(rig):
    document = rig.cluster._document

    def first_look(job: FakeJob, now_s: float) -> dict[str, Any]:
        if job.id != FIRST and not rig.cancelled():
            rig.cluster._document = document
            rig.cut(0.5)
        return document(job, now_s)

    rig.cluster._document = first_look
    assert rig.rescale() == ActuatorStatus.REACHED
    assert "failed" not in rig.kinds
    assert rig.kinds[-2:] == ["running", "reached"]
    check_exactly_once(rig.cluster)


def test_a_job_that_has_gone_on_and_does_not_run_in_full_is_waited_for(rig):
    def slow(job: FakeJob) -> None:
        rig.cluster.checkpointed.add(job.id)
        job.runs_s = time.monotonic() + 4

    rig.after_submission(slow)
    assert rig.rescale() == ActuatorStatus.REACHED
    assert rig.kinds[-3:] == ["failed", "running", "reached"]
    assert rig.cancelled() == []
    check_exactly_once(rig.cluster)


def test_a_job_that_has_not_gone_on_is_replaced_by_the_one_before(rig):
    def never(job: FakeJob) -> None:
        job.runs_s = time.monotonic() + 1000

    rig.after_submission(never)
    assert rig.rescale() != ActuatorStatus.REACHED
    assert rig.kinds[-1] == "restored"
    assert len(rig.cancelled()) == 1
    check_exactly_once(rig.cluster)
    (runs,) = rig.cluster.alive()
    assert "map=1" in runs.arguments["parallelism"]


def test_a_job_that_has_gone_on_and_ended_is_named_and_not_started_from_older_state(rig):
    def fails(job: FakeJob) -> None:
        rig.cluster.checkpointed.add(job.id)
        job.ends_s, job.state_at_end = time.monotonic(), "FAILED"

    rig.after_submission(fails)
    assert rig.rescale() == ActuatorStatus.FAILED
    assert rig.kinds[-1] == "alarm"
    alarm = rig.steps[-1][1]
    assert "came up, ran, and has ended since" in alarm["reason"]
    assert alarm["savepoint"].endswith("/chk-1")
    assert alarm["savepoint"] in alarm["remedy"]
    assert rig.cluster.alive() == []


def test_a_job_that_has_gone_on_and_ended_is_started_from_what_it_retained(rig):
    def fails(job: FakeJob) -> None:
        rig.cluster.checkpointed.add(job.id)
        job.runs_s, job.state_at_end = time.monotonic() - 0.05, "FAILED"
        job.stops_s = job.ends_s = time.monotonic()
        retained = rig.cluster.savepoints.parent / "checkpoints" / job.id / "chk-1"
        retained.mkdir(parents=True)
        count = job.begins_at + job.records(job.stops_s)
        (retained / "_metadata").write_text(str(count))

    rig.after_submission(fails)
    assert rig.rescale() == ActuatorStatus.FAILED
    assert rig.kinds[-1] == "restored"
    check_exactly_once(rig.cluster)


def test_a_job_that_somebody_else_has_started_stops_this_process(rig):
    assert rig.rescale() == ActuatorStatus.REACHED
    assert rig.actuator.interference() is None  # the next job is this process's own
    (mine,) = rig.cluster.alive()
    mine.stops_s = mine.ends_s = time.monotonic()
    rig.cluster.start("f" * 32, {**mine.arguments, "parallelism": "source=4,map=7,sink=1"})
    found = rig.actuator.interference()
    assert found is not None
    assert found.before == "source=4@0 map=3@0 sink=1@0"
    assert found.after.startswith(f"source=4@0 map=7@0 sink=1@0 (job {'f' * 32}, started at ")
    asked = len(rig.cluster.asked)
    rig.actuator.apply(wanted(np.array([[4, 2, 1]]), np.array([[-1, -1, -1]])))
    assert rig.actuator.wait(WAIT_S)
    assert len(rig.cluster.asked) == asked


def test_requirements_that_somebody_else_has_put_stop_this_process(rig):
    rig.cluster.scheduler = "adaptive"
    rig.actuator._is_adaptive = None  # as if it had been so from the start
    assert rig.actuator.interference() is None
    assert rig.rescale() == ActuatorStatus.REACHED
    assert rig.actuator.interference() is None  # those of the next job are this process's own
    (mine,) = rig.cluster.alive()
    mine.asked_tasks["map"] = 7
    found = rig.actuator.interference()
    assert found is not None
    assert found.before == "source=4@0 map=3@0 sink=1@0"
    assert found.after.startswith(f"source=4@0 map=7@0 sink=1@0 (job {mine.id}, started at ")
    asked = len(rig.cluster.asked)
    rig.actuator.apply(wanted(np.array([[4, 2, 1]]), np.array([[-1, -1, -1]])))
    assert rig.actuator.wait(WAIT_S)
    assert len(rig.cluster.asked) == asked


def test_requirements_put_right_after_a_resubmission_are_somebody_elses(rig):
    rig.cluster.scheduler = "adaptive"
    rig.actuator._is_adaptive = None
    assert rig.rescale() == ActuatorStatus.REACHED
    rig.cluster.alive()[0].asked_tasks["map"] = 7  # before this process looks again
    assert rig.actuator.interference() is not None


def test_nothing_is_submitted_beside_a_job_that_somebody_else_has_started(rig):
    stopped = rig.actuator._wait_for_end

    def then_started(job_id: str) -> None:
        stopped(job_id)
        rig.cluster.start("f" * 32, dict(rig.cluster.jobs[FIRST].arguments))

    rig.actuator._wait_for_end = then_started
    assert rig.rescale() == ActuatorStatus.FAILED
    assert [job.id for job in rig.cluster.alive()] == ["f" * 32]
    assert rig.kinds[-2:] == ["left", "failed"]
    assert rig.cancelled() == []


def test_a_lost_lease_is_noticed_before_the_job_is_stopped(rig, tmp_path):
    lease = FileLease(tmp_path / "leases", "line")
    assert lease.try_acquire()
    rig.actuator.lease = lease
    (Path(lease.name) / "term-00000002").write_text("{}")
    assert rig.rescale() == ActuatorStatus.FAILED
    assert rig.kinds == ["asked", "stopping", "left", "failed"]
    assert [job.id for job in rig.cluster.alive()] == [FIRST]


def test_a_job_that_comes_back_by_itself_after_the_alarm_is_restored(rig):
    """Flink waits for the slots of a TaskManager that it lost during the savepoint."""

    def restarts(job: FakeJob, body: Any, now_s: float) -> tuple[int, Any]:
        job.runs_s = now_s + 1.5
        return 202, {"request-id": body["triggerId"]}

    cause = {"class": "JobMasterException", "stack-trace": "JobMasterException: TaskManager lost"}
    failed = {"status": {"id": "COMPLETED"}, "operation": {"failure-cause": cause}}
    rig.cluster._stop, rig.cluster._trigger = restarts, lambda *_: (200, failed)
    rig.actuator.timeout_s = 0.5
    assert rig.rescale() == ActuatorStatus.FAILED
    assert rig.kinds[-3:] == ["failed", "alarm", "restored"]
    assert "TaskManager lost" in rig.steps[-2][1]["reason"]
    assert [one.id for one in rig.cluster.alive()] == [FIRST]
