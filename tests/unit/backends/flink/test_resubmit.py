"""Resubmission: checks before a job is touched, places of savepoints, and typed confirmations."""

from __future__ import annotations

import os

import pytest

from dsp_gym.backends.flink.rescale.preflight import (
    check_memory,
    check_running,
    check_slots,
    check_writable,
)
from dsp_gym.backends.flink.rescale.resubmit import _without_secrets, by_hand
from dsp_gym.backends.flink.rescale.running import RunningJob
from dsp_gym.backends.flink.rescale.savepoints import newest_savepoint
from dsp_gym.backends.flink.rescale.worker import Unreached
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.backends.flink.submission import Configuration, Submission
from dsp_gym.records.rescales import Unfinished
from tests.fakes.justin_endpoint import JustinCluster, served
from tests.simulating import line

NAMES = ("source", "map", "sink")


def at(tasks: int, level: int = 0) -> Configuration:
    return Configuration({"source": 4, "map": tasks, "sink": 1}, dict.fromkeys(NAMES, level))


def job(state: str = "RUNNING", sharing: str = "per-vertex") -> RunningJob:
    spec = line(flink={"program": "micro-update", "jar": "/jars/mine.jar"})
    submission = Submission(spec, "line", {"rate": "5"}, sharing)
    return RunningJob("0123456789", state, submission, at(1), {})


@pytest.fixture
def cluster():
    return JustinCluster({"source": 4, "map": 1, "sink": 1})


@pytest.fixture
def rest(cluster):
    with served(cluster) as url:
        yield FlinkRest(url)


def test_only_a_running_job_is_rescaled():
    check_running(job())
    with pytest.raises(Unreached, match="the job is RESTARTING"):
        check_running(job("RESTARTING"))


def test_slots_that_come_free_count(cluster, rest):
    cluster.slots_available = 2
    check_slots(rest, job(), at(3))  # 8 = 6 + 2
    with pytest.raises(Unreached, match="needs 9 slots; the job has 6 and 2 are free"):
        check_slots(rest, job(), at(4))


def test_shared_slots_count_once(cluster, rest):
    cluster.slots_available = 2
    check_slots(rest, job(sharing="default"), at(6))
    with pytest.raises(Unreached, match="needs 7 slots; the job has 4 and 2 are free"):
        check_slots(rest, job(sharing="default"), at(7))


def test_memory_that_comes_free_counts_and_one_subtask_has_to_fit(rest):
    spec = line(memory={"base_mib": 1024, "levels": 8})
    check_memory(rest, job(), at(8, 2), spec)  # 13 x 4 GiB of 64 + 6
    with pytest.raises(Unreached, match="needs 106496 MiB of managed memory; the job has 6144"):
        check_memory(rest, job(), at(8, 3), spec)
    alone = Configuration({"map": 1}, {"map": 0})
    with pytest.raises(Unreached, match="one subtask would need 70000 MiB"):
        check_memory(rest, job(), alone, line(memory={"base_mib": 70_000}))


def test_a_directory_that_cannot_be_written_is_found_out(tmp_path):
    check_writable(tmp_path / "new" / "savepoints")
    assert list((tmp_path / "new" / "savepoints").iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(Unreached, match="savepoints cannot be written there: Not a directory"):
        check_writable(tmp_path / "file" / "savepoints")
    check_writable(None)  # not of this machine


def test_the_newest_complete_savepoint_of_the_job_is_found(tmp_path):
    for age, name in enumerate(
        ["savepoint-012345-new", "savepoint-012345-old", "savepoint-999999-x"]
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "_metadata").write_text("")
        os.utime(tmp_path / name / "_metadata", (1000 - age, 1000 - age))
    (tmp_path / "savepoint-012345-cut-off").mkdir()
    found = newest_savepoint(tmp_path, "0123456789", since_s=0)
    assert found == tmp_path / "savepoint-012345-new"
    assert newest_savepoint(tmp_path, "0123456789", since_s=1001) is None


def test_secret_arguments_are_not_in_the_journal_and_keep_others_from_taking_up_the_rescale():
    in_file = {"db.password": "hunter2"}
    spec = line(flink={"program": "micro-update", "arguments": in_file})
    program = Submission(spec, "line").program
    plain = {"rate": "5", "epoch": "7", "db.password": "hunter2"}
    assert _without_secrets(plain, program) == {"rate": "5", "epoch": "7"}
    others = {"db.password": "other", "sink": "jdbc:mysql://me:hunter2@h/db", "rate": "5"}
    hidden = _without_secrets(others, program)
    assert hidden == {"db.password": "***", "sink": "***", "rate": "5"}
    intent = {"job_id": "a", "trigger_id": "b", "next_id": "c", "slot_sharing": "default"}
    left = Unfinished(0.0, {}, stopping={**intent, "arguments": hidden})
    assert not left.can_be_taken_up
    assert Unfinished(0.0, {}, stopping={**intent, "arguments": {"rate": "5"}}).can_be_taken_up


def test_the_command_by_hand_names_a_jar_as_a_shell_takes_it():
    given = line(flink={"program": "micro-update", "jar": "/jars/my job.jar"})
    said = Submission(given, "line").jar_by_hand("http://flink:8081")
    assert "-F 'jarfile=@/jars/my job.jar' http://flink:8081/jars/upload" in said


def test_the_command_by_hand_holds_jar_arguments_and_savepoint():
    text = by_hand("http://flink:8081", job(), "file:/savepoints/one")
    assert "jarfile=@/jars/mine.jar http://flink:8081/jars/upload" in text
    assert '"savepointPath": "file:/savepoints/one"' in text
    assert '"--parallelism", "source=4,map=1,sink=1"' in text
    assert '"--rate", "5"' in text
