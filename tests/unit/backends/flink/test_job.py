"""A job followed by name through a cluster's documents."""

from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np
import pytest

from dsp_gym.backends.flink.job import FlinkJob
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.errors import FlinkError
from dsp_gym.loop.snapshot import Status
from tests.answering import START_MS, TASKS, answering, tell
from tests.simulating import line


@pytest.fixture
def cluster():
    with answering() as told:
        yield told


@pytest.fixture
def job(cluster):
    return FlinkJob(FlinkRest(cluster.url, timeout_s=2.0), "mine", line())


def test_a_running_job_is_seen_as_it_runs(cluster, job):
    tell(cluster)
    seen = job.observe(1500.0)
    assert (seen.status, job.trouble, job.job_id) == (Status.RUNNING, None, "a1")
    assert seen.t_s == 1500
    assert seen.running_since_s == START_MS / 1000  # of the subtask that came last
    assert seen.parallelism == TASKS
    assert seen.memory_level == {"source": -1, "map": 1, "sink": -1}  # 316 MiB are twice 158
    assert seen.tm_count == 2
    assert seen.outage_s != seen.outage_s  # no restart was seen


def test_a_vertex_that_the_job_file_has_not_is_named_once(cluster, job, caplog):
    tell(cluster)
    vertices = cluster.answers["/jobs/a1"]["vertices"]
    for name in ("later", "sink: Committer"):
        vertices.append({**vertices[-1], "id": f"v-{name}", "name": name})
    cluster.answers["/jobs/a1/vertices/v-later/subtasktimes"] = {"subtasks": []}
    cluster.answers["/jobs/a1/vertices/v-sink: Committer/subtasktimes"] = {"subtasks": []}
    for _ in range(2):
        assert job.observe(1500.0).parallelism == TASKS
    (said,) = [record.getMessage() for record in caplog.records]
    assert "job 'mine' has vertices that the job file 'line' has not: 'later'; they" in said


def test_an_answer_about_another_job_is_refused(cluster, job):
    tell(cluster)
    cluster.answers["/jobs/a1"] |= {"jid": "b2", "name": "other"}
    assert job.observe(1500.0).status == Status.RESTARTING
    assert "asked for job a1, answered about job b2 ('other')" in str(job.trouble)


def test_looking_twice_shows_the_same(cluster, job):
    tell(cluster, RESTARTING=START_MS - 7000)
    first = job.observe(1500.0)
    np.testing.assert_equal(asdict(job.observe(1500.0)), asdict(first))  # unknown equals unknown
    assert first.outage_s == 7


@pytest.mark.parametrize("state", ["INITIALIZING", "CREATED", "RESTARTING", "FAILING"])
def test_a_job_on_its_way_is_restarting(cluster, job, state):
    tell(cluster, state=state, running={})
    assert job.observe(1500.0).status == Status.RESTARTING


def test_a_job_of_which_one_subtask_still_restores_its_state_is_restarting(cluster, job):
    tell(cluster, running=TASKS | {"map": 2})
    assert job.observe(1500.0).status == Status.RESTARTING


@pytest.mark.parametrize("state", ["FAILED", "FINISHED", "CANCELED"])
def test_a_job_that_ended_has_failed_and_what_ran_is_still_known(cluster, job, state):
    tell(cluster)
    running = job.observe(1500.0)
    tell(cluster, state=state, running={})
    ended = job.observe(1510.0)
    assert ended.status == Status.FAILED
    assert ended.parallelism == running.parallelism
    assert ended.memory_level == running.memory_level
    assert job.trouble is None
    with pytest.raises(FlinkError, match="no job named 'mine' runs"):
        _ = job.job_id


def test_a_job_that_lost_its_jobmanager_is_waited_for(cluster, job):
    tell(cluster)
    job.observe(1500.0)
    tell(cluster, state="SUSPENDED", running={})
    assert job.observe(1510.0).status == Status.RESTARTING


def test_a_branch_that_has_read_all_there_was_does_not_stop_the_job(cluster, job):
    tell(cluster)
    ended = cluster.answers["/jobs/a1"]
    for vertex in ended["vertices"]:
        if "map" in vertex["name"]:
            vertex["tasks"] = {"FINISHED": vertex["parallelism"]}
    assert job.observe(1500.0).status == Status.RUNNING


def test_a_job_nobody_submitted_has_failed(job):
    seen = job.observe(1500.0)
    assert (seen.status, seen.running_since_s) == (Status.FAILED, 1500)
    assert seen.parallelism == {"source": 4, "map": 1, "sink": 1}  # what the job file starts with


def test_a_savepoint_under_way_is_seen_and_a_checkpoint_is_not_one(cluster, job):
    tell(cluster)
    history = cluster.answers["/jobs/a1/checkpoints"]["history"]
    history.append({"is_savepoint": False, "status": "IN_PROGRESS"})
    history.append({"is_savepoint": True, "status": "COMPLETED"})
    assert job.observe(1500.0).status == Status.RUNNING
    history.append({"is_savepoint": True, "status": "IN_PROGRESS"})
    assert job.observe(1500.0).status == Status.SAVEPOINTING


def test_an_outage_is_from_leaving_running_to_the_last_subtask(cluster, job):
    tell(cluster)
    job.observe(1500.0)
    tell(cluster, since_ms=START_MS + 620_000, RESTARTING=START_MS + 600_000)
    seen = job.observe(1700.0)
    assert (seen.outage_s, seen.running_since_s) == (20, 1620)


def test_a_scheduler_that_forgets_when_it_restarted_was_last_seen_running(cluster, job):
    tell(cluster)
    job.observe(1600.0)
    tell(cluster, since_ms=START_MS + 620_000)
    assert job.observe(1700.0).outage_s == 20


def test_the_adaptive_scheduler_s_outage_begins_with_the_job_it_built_anew(cluster, job):
    tell(cluster)
    job.observe(1600.0)
    tell(cluster, since_ms=START_MS + 620_000, CREATED=START_MS + 618_500)
    assert job.observe(1700.0).outage_s == 1.5


def test_a_resubmitted_job_is_followed_by_name_and_its_outage_spans_both_ids(cluster, job):
    tell(cluster)
    job.observe(1500.0)
    tell(cluster, state="FINISHED", running={}, ended_ms=START_MS + 550_000)
    tell(cluster, job_id="b2", since_ms=START_MS + 562_000)
    seen = job.observe(1600.0)
    assert (seen.status, job.job_id, job.ids) == (Status.RUNNING, "b2", ("a1", "b2"))
    assert (seen.outage_s, seen.running_since_s) == (12, 1562)


def test_an_id_the_cluster_forgot_ended_when_it_was_last_seen_running(cluster, job):
    tell(cluster)
    job.observe(1540.0)
    cluster.answers["/jobs/overview"] = {"jobs": []}
    del cluster.answers["/jobs/a1"]
    tell(cluster, job_id="b2", since_ms=START_MS + 562_000)
    assert job.observe(1600.0).outage_s == 22


def test_two_jobs_of_one_name_are_an_error(cluster, job):
    tell(cluster)
    tell(cluster, job_id="b2")
    with pytest.raises(FlinkError, match=r"2 jobs are named 'mine'.*where.job_id"):
        job.observe(1500.0)


def test_one_of_several_jobs_of_a_name_is_followed_by_its_id_and_then_by_what_is_new(cluster):
    tell(cluster)
    tell(cluster, job_id="b2")
    job = FlinkJob(FlinkRest(cluster.url, timeout_s=2.0), "mine", line(), own_id="b2")
    assert (job.observe(1500.0).status, job.job_id) == (Status.RUNNING, "b2")
    tell(cluster, job_id="b2", state="FINISHED", running={}, ended_ms=START_MS + 550_000)
    assert job.observe(1560.0).status == Status.FAILED  # a1 has run beside it, and is another
    with pytest.raises(FlinkError, match="no job named 'mine' runs"):
        _ = job.job_id
    tell(cluster, job_id="c3", since_ms=START_MS + 562_000)
    assert (job.observe(1600.0).status, job.job_id) == (Status.RUNNING, "c3")
    assert job.ids == ("b2", "c3")


def test_an_id_that_none_of_several_jobs_has_is_an_error(cluster):
    tell(cluster)
    tell(cluster, job_id="b2")
    job = FlinkJob(FlinkRest(cluster.url, timeout_s=2.0), "mine", line(), own_id="d4")
    with pytest.raises(FlinkError, match=r"2 jobs are named 'mine': a1, b2"):
        job.observe(1500.0)


def by_id(cluster, **known):
    return FlinkJob(FlinkRest(cluster.url, timeout_s=2.0), "mine", line(), own_id="a1", **known)


def test_a_namesake_is_not_taken_for_a_job_that_ended_before_the_process_began(cluster):
    tell(cluster, state="CANCELED", running={}, ended_ms=START_MS + 550_000)
    tell(cluster, job_id="b2")  # it ran beside the other
    for look in (lambda job: job.observe(1600.0), lambda job: job.job_id):
        with pytest.raises(FlinkError, match=r"job a1 does not run, and job b2.*where.job_id"):
            look(by_id(cluster))


def test_a_job_that_flink_has_forgotten_has_no_successor_that_shows(cluster):
    tell(cluster, job_id="b2", since_ms=START_MS + 562_000)
    with pytest.raises(FlinkError, match="may be another"):
        by_id(cluster).observe(1600.0)
    assert by_id(cluster, submitted={"b2"}).observe(1600.0).status == Status.RUNNING


def test_a_job_started_after_the_named_one_had_ended_is_that_job(cluster):
    tell(cluster, state="FINISHED", running={}, ended_ms=START_MS + 550_000)
    tell(cluster, job_id="b2", since_ms=START_MS + 562_000, start_ms=START_MS + 560_000)
    job = by_id(cluster)
    assert (job.observe(1600.0).status, job.job_id) == (Status.RUNNING, "b2")


def test_a_job_of_another_file_is_trouble(cluster, job):
    tell(cluster)
    cluster.answers["/jobs/a1"]["vertices"].pop()
    assert job.observe(1500.0).status == Status.RESTARTING
    assert "no vertex 'sink', it has: Source: source, map" in str(job.trouble)


@pytest.mark.parametrize("broken", ["slow", "error", "nonsense", "half"])
def test_while_flink_does_not_answer_the_job_is_restarting_as_it_was_known(cluster, job, broken):
    tell(cluster)
    known = job.observe(1500.0)
    kept = dict(cluster.answers)
    if broken == "slow":
        cluster.late_s = 1.0
    elif broken == "half":  # the job is listed, but asking for it fails
        cluster.answers["/jobs/a1"] = (500, '{"errors": ["Internal server error."]}')
    else:
        answer = (500, "{}") if broken == "error" else (200, "<html>")
        cluster.answers |= dict.fromkeys(kept, answer)
    seen = job.observe(1510.0)
    assert seen.status == Status.RESTARTING
    assert cluster.url in str(job.trouble)
    reason = "Timeout" if broken == "slow" else "Other"
    assert (job.trouble.api, job.trouble.reason) == ("flink", reason)
    assert (seen.parallelism, seen.memory_level) == (known.parallelism, known.memory_level)
    cluster.late_s = 0.0
    cluster.answers |= kept
    again = job.observe(1520.0)
    assert (again.status, again.outage_s != again.outage_s) == (Status.RUNNING, True)
    assert job.trouble is None


def test_parallelism_the_adaptive_scheduler_does_not_know_is_the_last_known(cluster, job):
    tell(cluster)
    job.observe(1500.0)
    tell(cluster, state="CREATED", running={})
    cluster.answers["/jobs/a1"]["vertices"][1]["parallelism"] = -1
    assert job.observe(1510.0).parallelism == TASKS


def resumed_from(cluster, job_id, checkpoint, known=()):
    cluster.answers[f"/jobs/{job_id}/checkpoints"] = {
        "latest": {"restored": {"id": checkpoint, "is_savepoint": True}, "savepoint": None},
        "history": list(known),
    }


def test_the_savepoint_of_the_id_before_tells_when_its_sources_stopped(cluster, job):
    tell(cluster)
    job.observe(1500.0)
    tell(cluster, state="FINISHED", running={}, ended_ms=START_MS + 550_000)
    cluster.answers["/jobs/a1/checkpoints"] = {
        "latest": {"savepoint": {"id": 7, "trigger_timestamp": START_MS + 546_500}},
        "history": [{"id": 6, "trigger_timestamp": START_MS + 540_000, "status": "COMPLETED"}],
    }
    tell(cluster, job_id="b2", since_ms=START_MS + 562_000)
    resumed_from(cluster, "b2", 7)
    seen = job.observe(1600.0)
    assert (seen.outage_s, seen.resumed_from_s) == (12, 1546.5)


def test_a_checkpoint_of_its_own_tells_from_when_a_rebuilt_job_reads_again(cluster, job):
    tell(cluster)
    job.observe(1600.0)
    tell(cluster, since_ms=START_MS + 620_000, CREATED=START_MS + 618_500)
    resumed_from(cluster, "a1", 4, [{"id": 4, "trigger_timestamp": START_MS + 610_000}])
    assert job.observe(1700.0).resumed_from_s == 1610


def test_a_checkpoint_that_flink_forgot_tells_nothing(cluster, job):
    tell(cluster)
    resumed_from(cluster, "a1", 7)
    assert math.isnan(job.observe(1500.0).resumed_from_s)
    tell(cluster, since_ms=START_MS + 620_000)
    del cluster.answers["/jobs/a1"]
    tell(cluster, job_id="b2", since_ms=START_MS + 620_000)
    cluster.answers["/jobs/overview"]["jobs"] = [
        one for one in cluster.answers["/jobs/overview"]["jobs"] if one["jid"] == "b2"
    ]
    resumed_from(cluster, "b2", 7)
    del cluster.answers["/jobs/a1/checkpoints"]
    seen = job.observe(1700.0)
    assert seen.status == Status.RUNNING
    assert math.isnan(seen.resumed_from_s)


def test_a_name_from_prometheus_finds_its_job(cluster):
    tell(cluster)
    summary = cluster.answers["/jobs/overview"]["jobs"][0]
    summary["name"] = "my words"
    followed = FlinkJob(FlinkRest(cluster.url), "my_words", line())
    assert followed.observe(1500.0).status == Status.RUNNING
    summary["name"] = "your words"
    assert followed.observe(1510.0).status == Status.FAILED
