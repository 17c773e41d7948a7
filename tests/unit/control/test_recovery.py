"""A rescale whose process was killed (kill -9) at any point: the next start finishes it, once."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dsp_gym.config.files import parse
from dsp_gym.control.config import RunConfig
from dsp_gym.control.start import started as started_run
from dsp_gym.errors import FlinkError
from dsp_gym.records.finishing import stood_by
from dsp_gym.records.journal import Journal, read
from tests.fakes.justin_endpoint import served
from tests.fakes.resubmitting import Pace, ResubmittingCluster, check_exactly_once
from tests.killing import POINTS, Stage, killed, recovery_of, restarted, steps
from tests.living import Living
from tests.simulating import line

FIRST = "0123456789abcdef0123456789abcdef"
BEFORE, AFTER = {"source": 4, "map": 1, "sink": 1}, {"source": 4, "map": 3, "sink": 1}


@pytest.fixture
def jar(tmp_path) -> Path:
    path = tmp_path / "jobs.jar"
    path.write_bytes(b"a jar")
    return path


@pytest.fixture
def cluster(tmp_path, jar) -> ResubmittingCluster:
    made = ResubmittingCluster(jar, tmp_path / "savepoints")
    started(made)
    return made


def started(cluster: ResubmittingCluster) -> None:
    tasks = ",".join(f"{name}={count}" for name, count in BEFORE.items())
    levels = ",".join(f"{name}=158" for name in BEFORE)
    own = {"job-name": "line", "parallelism": tasks, "managed-mib": levels, "rate": "5"}
    cluster.start(FIRST, {"program": "micro-update", "slot-sharing": "per-vertex", **own})


@pytest.fixture
def stage(tmp_path, jar, cluster) -> Iterator[Stage]:
    with served(cluster) as url:
        spec = line(flink={"program": "micro-update", "jar": str(jar)})
        yield Stage(url, spec, tmp_path / "savepoints", tmp_path / "journal")


def check_recovery(stage: Stage, cluster: ResubmittingCluster, point: str) -> None:
    began_s = time.monotonic()
    left = restarted(stage)
    assert time.monotonic() - began_s < 30
    (runs,) = cluster.alive()
    tasks = dict(part.split("=") for part in runs.arguments["parallelism"].split(","))
    begun = POINTS.index(point) >= POINTS.index("stop was sent")
    assert {name: int(count) for name, count in tasks.items()} == (AFTER if begun else BEFORE)
    assert runs.arguments["rate"] == "5"
    check_exactly_once(cluster)
    assert (left is None) == (point != "asked")  # nothing was to be stopped: told when connected
    before = len(cluster.asked)
    assert restarted(stage) == left
    assert len(cluster.asked) == before  # a second restart asks for nothing


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_any_point_it_is_finished_or_was_never_begun(stage, cluster, point):
    killed(stage, (4, 3, 1), point)
    check_recovery(stage, cluster, point)


def paced(seed: int) -> Pace:
    drawn = random.Random(seed)
    return Pace(*(drawn.uniform(0.0, most) for most in (0.4, 0.2, 0.2, 0.3)))


@pytest.mark.validate
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_any_point_of_any_course_it_is_finished(stage, cluster, point, seed):
    cluster.pace = paced(seed)
    killed(stage, (4, 3, 1), point)
    time.sleep(random.Random(seed).choice([0.0, 0.1, 0.7]))
    forgets = seed % 4 == 3 and point not in ("asked", "stopping")
    if forgets and time.monotonic() > cluster.jobs[FIRST].ends_s:
        cluster.forget()  # the JobManager was started anew, too
        check_state_is_the_newest(stage, cluster)
    else:
        check_recovery(stage, cluster, point)


def check_state_is_the_newest(stage: Stage, cluster: ResubmittingCluster) -> None:
    """Of a JobManager that has forgotten the job before, its savepoint is what there is."""
    assert restarted(stage) is None
    (runs,) = cluster.alive()
    (written,) = stage.savepoints.glob("savepoint-*/_metadata")
    assert runs.begins_at == int(written.read_text())


@pytest.mark.slow
def test_without_the_right_to_act_the_state_and_the_command_are_named(stage, cluster):
    killed(stage, (4, 3, 1), "stopped")
    (written,) = stage.savepoints.glob("savepoint-*/_metadata")
    with pytest.raises(FlinkError, match="was not finished: its state is in") as raised:
        restarted(stage, mode="shadow")
    assert str(written.parent) in raised.value.message
    assert f'"savepointPath": "{written.parent}"' in str(raised.value.remedy)
    assert "Run with --apply to have it finished" in str(raised.value.remedy)
    assert cluster.alive() == []
    assert restarted(stage) is None
    check_exactly_once(cluster)


def test_a_run_that_starts_waits_for_the_second_process_of_the_one_before(tmp_path):
    where = {"rest_url": "http://127.0.0.1:9", "metrics": "rest"}
    job = {"job": "flink-wordcount", "policy": "static", "where": where}
    config = parse(RunConfig, job, "run.yaml")
    ended = threading.Event()

    def start() -> None:
        with pytest.raises(FlinkError), started_run(config, journal=tmp_path):
            pass
        ended.set()

    with stood_by(tmp_path):
        thread = threading.Thread(target=start)
        thread.start()
        assert not ended.wait(0.2)
    thread.join()
    assert ended.is_set()


def test_an_intent_of_an_earlier_release_is_named(stage, cluster):
    with Journal(stage.journal) as journal:
        for event, body in (
            ("asked", {"from": at(BEFORE), "to": at(AFTER)}),
            (
                "stopping",
                {"job_id": FIRST, "directory": "/savepoints", "checkpoint": "file:/chk-7"},
            ),
        ):
            journal.append("actuation", 5.0, "line", None, {"event": event, **body})
    assert restarted(stage) is not None  # the job runs
    cluster.jobs[FIRST].ends_s = 0.0
    with pytest.raises(FlinkError, match="its state is in file:/chk-7"):
        restarted(stage)


def at(tasks: dict[str, int]) -> dict[str, object]:
    return {"parallelism": tasks, "memory_level": dict.fromkeys(tasks, 0)}


@pytest.mark.parametrize(
    ("tasks", "written", "outcome"),
    [
        (3, None, "finished"),
        (1, None, "not begun, or undone"),
        (2, None, "another configuration runs"),
        (1, "7f", "written, and not carried out yet"),
        (1, "6e", "not begun, or undone"),  # by another decision
    ],
)
def test_what_the_cluster_finishes_by_itself_is_told(stage, tasks, written, outcome):
    with Journal(stage.journal) as journal:
        asked = {"event": "asked", "from": at(BEFORE), "to": at(AFTER), "id": "7f"}
        journal.append("actuation", 5.0, "line", None, asked)
        living = Living()
        recovery = recovery_of(stage, "active", journal)
        left = recovery.before_connecting(stage.journal)
        seen = living.seen()
        seen.parallelism[0, 1] = tasks
        recovery.after_connecting(left, seen, written)
        assert recovery.before_connecting(stage.journal) is None
    (told,) = (e.body for e in read(stage.journal) if e.body["event"] == "recovered")
    assert told["outcome"] == outcome


@pytest.mark.slow
def test_while_flink_is_out_of_reach_the_state_and_the_command_are_named(stage, cluster):
    killed(stage, (4, 3, 1), "savepoint")
    (written,) = stage.savepoints.glob("savepoint-*/_metadata")
    with pytest.raises(FlinkError, match=str(written.parent)) as raised:
        restarted(stage, url="http://127.0.0.1:9")
    assert '"--parallelism", "map=1,sink=1,source=4"' in str(raised.value.remedy)
    assert restarted(stage) is None
    check_exactly_once(cluster)


@pytest.mark.slow
def test_a_job_that_somebody_brought_back_meanwhile_is_left_alone(stage, cluster):
    killed(stage, (4, 3, 1), "stopped")
    until(lambda: not cluster.alive())
    arguments = cluster.jobs[FIRST].arguments | {"parallelism": "source=4,map=2,sink=1"}
    (written,) = stage.savepoints.glob("savepoint-*/_metadata")
    cluster.start("ab" * 16, arguments, int(written.read_text()))
    before = len(cluster.asked)
    assert restarted(stage) is None
    assert [job.id for job in cluster.alive()] == ["ab" * 16]
    assert len(cluster.asked) == before
    assert steps(stage)[-3:] == ["resumed", "failed", "restored"]


@pytest.mark.slow
def test_a_job_that_ran_and_ended_since_is_not_started_from_an_older_state(stage, cluster):
    killed(stage, (4, 3, 1), "running")
    (runs,) = cluster.alive()
    cluster.checkpointed.add(runs.id)
    runs.ends_s, runs.state_at_end = time.monotonic(), "FAILED"
    with pytest.raises(FlinkError, match="no job named 'line'"):
        restarted(stage)
    assert cluster.alive() == []
    alarm = [e.body for e in read(stage.journal) if e.body.get("event") == "alarm"][-1]
    assert alarm["savepoint"].endswith(f"{runs.id}/chk-1")
    assert "came up, ran, and has ended since" in alarm["reason"]


@pytest.mark.slow
def test_slots_that_went_meanwhile_bring_the_job_back_as_it_was(stage, cluster):
    killed(stage, (4, 3, 1), "stopped")
    until(lambda: not cluster.alive())
    refuse_more_than(cluster, 1)
    assert restarted(stage) is None
    (runs,) = cluster.alive()
    assert "map=1" in runs.arguments["parallelism"]
    check_exactly_once(cluster)
    assert steps(stage)[-1] == "restored"


def refuse_more_than(cluster: ResubmittingCluster, maps: int) -> None:
    """Flink refuses the submission of more tasks."""
    run = cluster._run

    def refused(body):
        given = " ".join(body["programArgsList"])
        if f"map={maps},sink" not in given:
            return 500, {"errors": ["NoResourceAvailableException: too few slots"]}
        return run(body)

    cluster._run = refused


def until(done: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 10
    while not done():
        assert time.monotonic() < end_s
        time.sleep(0.01)
