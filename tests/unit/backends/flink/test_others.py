"""Changes by somebody else, leases, and jobs that cannot be acted on: actuators of plain Flink."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest

from dsp_gym.backends.file_lease import FileLease
from dsp_gym.backends.flink.rescale import AdaptiveActuator, JustinActuator, ResubmitActuator
from dsp_gym.backends.flink.rescale import in_place as rescaling
from dsp_gym.errors import FlinkError
from dsp_gym.loop.protocols import ActuatorStatus
from tests.fakes.adaptive_job import AdaptiveJob, DirectRest
from tests.simulating import line, wanted

TASKS = {"source": 4, "map": 1, "sink": 1}
UNIFORM = line(flink={"program": "micro-update"}, memory={"levels": 1, "uniform": True})


@pytest.fixture
def job(monkeypatch):
    monkeypatch.setattr(rescaling, "STALE_S", 0.0)  # the fake does not cache
    monkeypatch.setattr(rescaling, "PATIENCE_S", 0.2)
    return AdaptiveJob(TASKS)


@pytest.fixture
def acting(job):
    """Makes an actuator; gives it and its events."""
    with contextlib.ExitStack() as stack:

        def made(kind=AdaptiveActuator, *rest, timeout_s=0.3, **given):
            events: list[tuple[str, dict]] = []
            actuator = kind(
                DirectRest(job), "line", UNIFORM, *rest, timeout_s=timeout_s, poll_s=0.01,
                on_event=lambda what, body: events.append((what, body)), **given,
            )  # fmt: skip
            return stack.enter_context(actuator), events

        yield made


def ask(actuator, maps: int) -> int:
    level = np.array([[actuator._known.memory_level[name] for name in TASKS]])
    actuator.apply(wanted(np.array([[4, maps, 1]]), level))
    assert actuator.wait(10.0)
    return int(actuator.status()[0])


def test_a_change_by_somebody_else_stops_this_process_and_is_named(job, acting):
    actuator, events = acting()
    assert ask(actuator, 2) == ActuatorStatus.REACHED
    assert actuator.interference() is None
    job.requirements = job.asking({**TASKS, "map": 5})
    found = actuator.interference()
    assert found is not None
    assert found.before == "source=4 map=2 sink=1"
    assert found.after == "source=4 map=5 sink=1 (job a1)"
    assert found.reason.startswith("somebody else has changed the job, as seen at 20")
    assert ask(actuator, 3) == ActuatorStatus.FAILED
    assert len(job.puts) == 1
    assert [what for what, _ in events].count("interference") == 1
    job.requirements = job.puts[-1]
    assert actuator.interference() is found  # until it is started again


def test_a_started_process_takes_what_it_finds_for_the_baseline(job, acting):
    job.requirements = job.asking({**TASKS, "map": 5})
    actuator, _ = acting()
    assert actuator.interference() is None


def test_a_change_is_seen_right_before_a_write_too(job, acting):
    actuator, events = acting()
    job.requirements = job.asking({**TASKS, "map": 5})
    assert ask(actuator, 3) == ActuatorStatus.FAILED
    assert job.puts == []
    assert "somebody else has changed the job" in dict(events)["failed"]["reason"]


def test_another_start_under_the_name_of_the_job_is_seen(job, acting):
    actuator, _ = acting()
    job.job_id = "b2"
    found = actuator.interference()
    assert found is not None
    assert "(job b2)" in found.after


def test_a_lost_taskmanager_is_no_interference(job, acting):
    actuator, _ = acting()
    assert ask(actuator, 4) == ActuatorStatus.REACHED
    job.most = 2
    assert actuator.interference() is None


def test_a_request_whose_answer_was_lost_may_arrive_late(job, acting):
    actuator, events = acting()
    job.most = 1  # it never comes into effect, and the old requirements are put back
    assert ask(actuator, 3) == ActuatorStatus.TIMED_OUT
    assert "restored" in dict(events)
    job.requirements = job.puts[0]
    assert actuator.interference() is None


def test_what_was_undone_is_interference_though_it_was_ours_once(job, acting):
    actuator, _ = acting()
    first = job.requirements
    assert ask(actuator, 2) == ActuatorStatus.REACHED
    job.requirements = first
    assert actuator.interference() is not None


def test_requirements_of_somebody_else_are_not_put_back(job, acting):
    actuator, events = acting()
    job.most = 1
    foreign = job.asking({**TASKS, "map": 7})

    def put(path, body):
        AdaptiveJob.put(job, path, body)
        job.requirements = foreign

    job.put = put
    assert ask(actuator, 3) == ActuatorStatus.TIMED_OUT
    assert job.requirements == foreign
    assert "map=7" in dict(events)["left"]["reason"]


def test_of_two_with_a_lease_one_acts(job, acting, tmp_path):
    first, second = (FileLease(tmp_path, "line", 30.0) for _ in range(2))
    assert first.try_acquire()
    assert not second.try_acquire()
    one, _ = acting(lease=first)
    other, events = acting(lease=second)
    assert ask(one, 2) == ActuatorStatus.REACHED
    assert ask(other, 3) == ActuatorStatus.FAILED
    assert f"another process holds the lease {second.name}: {first.holder}" in str(
        dict(events)["failed"]["reason"]
    )
    assert len(job.puts) == 1
    one.close()
    assert second.try_acquire()
    assert ask(other, 3) == ActuatorStatus.REACHED
    assert other.interference() is None  # what it found when it took over is its baseline


def test_a_lost_lease_is_noticed_right_before_the_write(job, acting, tmp_path):
    lease = FileLease(tmp_path, "line", 30.0)
    assert lease.try_acquire()
    actuator, events = acting(lease=lease)
    (Path(lease.name) / "term-00000009").write_text("{}")
    assert ask(actuator, 3) == ActuatorStatus.FAILED
    assert job.puts == []
    assert "an unknown process" in str(dict(events)["failed"]["reason"])


def test_a_write_that_was_frozen_until_another_led_is_seen_by_that_one(job, acting, tmp_path):
    now_s = [0.0, 0.0]
    leases = [FileLease(tmp_path, "line", clock=lambda n=n: now_s[n]) for n in range(2)]
    assert leases[0].try_acquire()
    (one, _), (other, _) = (acting(lease=lease) for lease in leases)

    def put(path, body):
        assert not leases[1].try_acquire()
        now_s[1] += 31.0  # the first stands still between its look and its write
        assert leases[1].try_acquire()
        assert other.interference() is None
        AdaptiveJob.put(job, path, body)

    job.put = put
    assert ask(one, 3) == ActuatorStatus.REACHED
    found = other.interference()
    assert found is not None
    assert "map=3" in found.after
    assert ask(one, 4) == ActuatorStatus.FAILED
    assert len(job.puts) == 1


class TestReadiness:
    def test_a_job_that_can_be_changed_is_ready(self, acting, tmp_path):
        acting()[0].check_ready()

    def test_without_the_adaptive_scheduler_nothing_can_be_changed_in_place(self, job, acting):
        job.is_adaptive = False
        with pytest.raises(FlinkError, match="cannot be rescaled in place") as raised:
            acting()[0].check_ready()
        assert "jobmanager.scheduler: adaptive" in str(raised.value.remedy)

    def test_without_justins_flink_there_is_no_endpoint(self, acting):
        with pytest.raises(FlinkError, match="Justin's endpoint") as raised:
            acting(JustinActuator)
        assert "where.actuator: resubmit" in str(raised.value.remedy)

    def test_a_job_whose_only_source_has_ended_is_left_alone(self, job, acting):
        job.finished = True
        with pytest.raises(FlinkError, match="source has read all there was"):
            acting()[0].check_ready()

    def test_a_missing_jar_is_named(self, acting, tmp_path, monkeypatch):
        actuator, _ = acting(ResubmitActuator, tmp_path / "savepoints")
        monkeypatch.setattr(
            "dsp_gym.backends.flink.submission.Submission.jar", lambda self: tmp_path / "no.jar"
        )
        with pytest.raises(FlinkError, match="jar of the job is missing"):
            actuator.check_ready()

    def test_a_folder_that_takes_no_savepoints_is_named(self, acting, tmp_path, monkeypatch):
        (tmp_path / "file").write_text("")
        (tmp_path / "jobs.jar").write_text("")
        actuator, _ = acting(ResubmitActuator, tmp_path / "file" / "savepoints")
        monkeypatch.setattr(
            "dsp_gym.backends.flink.submission.Submission.jar", lambda self: tmp_path / "jobs.jar"
        )
        with pytest.raises(FlinkError, match="savepoints cannot be written there"):
            actuator.check_ready()
