"""The second process of a rescale: it finishes what the first one leaves undone by dying."""

from __future__ import annotations

import io
import os
import shutil
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dsp_gym.backends.base import INTENTS
from dsp_gym.backends.flink.rescale import finishing
from dsp_gym.backends.flink.rescale.finisher import ENDED, LOADED, STANDS_BY, Order
from dsp_gym.backends.flink.rescale.finishing import BY, attend, finish
from dsp_gym.backends.flink.rescale.resubmit import ResubmitActuator
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.backends.upstream.access import AccessConfig
from dsp_gym.config.files import names
from dsp_gym.errors import ConfigError, StorageError
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.protocols import ActuatorStatus
from dsp_gym.records import finishing as locks
from dsp_gym.records.finishing import stood_by, wait_until_finished
from dsp_gym.records.journal import Journal, read
from dsp_gym.records.rescales import unfinished
from dsp_gym.redaction import HIDDEN
from tests.fakes.justin_endpoint import served
from tests.fakes.resubmitting import ResubmittingCluster, check_exactly_once
from tests.killing import Stage, killed, restarted, steps
from tests.simulating import line, wanted

FIRST, NEXT = "0123456789abcdef0123456789abcdef", "ab" * 16
SECRET = "hunter2-hunter2"
MOST_MIB = 64
"""Resident memory of a second process: Python, NumPy, pydantic and requests."""


@pytest.fixture
def cluster(tmp_path) -> ResubmittingCluster:
    jar = tmp_path / "jobs.jar"
    jar.write_bytes(b"a jar")
    made = ResubmittingCluster(jar, tmp_path / "savepoints")
    own = {"job-name": "line", "parallelism": "source=4,map=1,sink=1", "password": SECRET}
    own["managed-mib"] = "source=158,map=158,sink=158"
    made.start(FIRST, {"program": "micro-update", "slot-sharing": "per-vertex", **own})
    return made


@pytest.fixture
def stage(tmp_path, cluster) -> Iterator[Stage]:
    with served(cluster) as url:
        spec = line(flink={"program": "micro-update", "jar": str(tmp_path / "jobs.jar")})
        yield Stage(url, spec, tmp_path / "savepoints", tmp_path / "journal")


def order_of(stage: Stage, **other: object) -> Order:
    order = Order(
        journal=stage.journal, policy="test", rest_url=stage.url, timeout_s=0.3, access=None,
        job_name="line", spec=stage.spec, rescale_timeout_s=5.0, next_id=NEXT,
        arguments={"password": SECRET},
    )  # fmt: skip
    return order.model_copy(update=other)


def begun(stage: Stage, hidden: str = HIDDEN, **more: object) -> str:
    """A journal that ends with the intent to stop the job; its trigger."""
    trigger = uuid.uuid4().hex
    levels = dict.fromkeys(("source", "map", "sink"), 0)
    before, after = ({"source": 4, "map": tasks, "sink": 1} for tasks in (1, 3))
    with Journal(stage.journal) as journal:
        for event, body in (
            ("asked", {"from": {"parallelism": before, "memory_level": levels},
                       "to": {"parallelism": after, "memory_level": levels}}),
            ("stopping", {"job_id": FIRST, "directory": str(stage.savepoints), "checkpoint": None,
                          "trigger_id": trigger, "next_id": NEXT,
                          "arguments": {"password": hidden}, "slot_sharing": "per-vertex",
                          **more}),
        ):  # fmt: skip
            journal.append("actuation", time.time(), "line", "test", {"event": event, **body})
    return trigger


def stopped(stage: Stage, hidden: str = HIDDEN) -> None:
    """The job is being stopped, and who has asked for it is gone."""
    trigger = begun(stage, hidden)
    FlinkRest(stage.url).stop_with_savepoint(FIRST, str(stage.savepoints), trigger)


def runs(cluster: ResubmittingCluster, tasks: int) -> bool:
    alive = cluster.alive()
    return len(alive) == 1 and f"map={tasks}," in alive[0].arguments["parallelism"]


def until(true: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 20.0
    while not true():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def submissions(cluster: ResubmittingCluster) -> int:
    return sum(path.endswith("/run") for _, path in cluster.asked)


class TestStandingBy:
    @pytest.fixture
    def pipes(self) -> Iterator[tuple]:
        ends = []
        for _ in range(2):
            reads, writes = os.pipe()
            ends += [os.fdopen(reads, "rb"), os.fdopen(writes, "wb")]
        yield tuple(ends)
        for end in ends:
            end.close()

    def attended(self, pipes: tuple, *says: bytes) -> Order | None:
        heard, says_to, hears_from, said = pipes
        for words in says:
            says_to.write(words)
        says_to.close()
        found = attend(heard, said)
        said.close()
        self.answers = hears_from.read()
        return found

    def test_at_the_end_of_the_pipe_it_takes_over(self, stage, pipes):
        order = order_of(stage)
        written = order.model_dump_json(by_alias=True).encode() + b"\n"
        assert self.attended(pipes, written) == order
        assert self.answers == LOADED + STANDS_BY

    def test_at_the_end_of_the_rescale_there_is_nothing_to_do(self, stage, pipes):
        written = order_of(stage).model_dump_json(by_alias=True).encode() + b"\n"
        assert self.attended(pipes, written, ENDED) is None

    def test_without_a_whole_order_there_is_nothing_to_do(self, stage, pipes):
        written = order_of(stage).model_dump_json(by_alias=True).encode()
        assert self.attended(pipes, written) is None
        assert self.answers == LOADED


@pytest.mark.parametrize("name", names("jobs"))
def test_an_order_arrives_as_it_was_given(stage, name):
    spec = load_job(name)
    order = order_of(stage, spec=spec, access=None)
    found = Order.model_validate_json(order.model_dump_json(by_alias=True))
    assert found == order
    assert isinstance(found.spec, JobSpec)


@pytest.mark.parametrize(
    "access",
    [
        {"file": "account"},
        {"ca_file": "ca.pem", "cert_file": "c.pem", "key_file": "k.pem", "proxy": "http://proxy:3"},
    ],
)
def test_credentials_are_named_by_their_files_and_read_by_the_second_process(
    stage, tmp_path, access
):
    given = {key: value if key == "proxy" else tmp_path / value for key, value in access.items()}
    order = order_of(stage, access=AccessConfig(**given))
    line = order.model_dump_json(by_alias=True).encode() + b"\n"
    assert Order.model_validate_json(line) == order
    with pytest.raises(ConfigError, match="there is no such file"):
        attend(io.BytesIO(line), io.BytesIO())


def test_an_order_that_cannot_be_read_is_not_repeated():
    with pytest.raises(ValueError, match="validation error") as raised:
        attend(io.BytesIO(b'{"arguments": "%b"}\n' % SECRET.encode()), io.BytesIO())
    assert SECRET not in str(raised.value)


def test_a_stopped_job_is_submitted_with_the_arguments_that_a_journal_hides(stage, cluster):
    stopped(stage)
    finish(order_of(stage))
    assert runs(cluster, 3)
    assert cluster.alive()[0].id == NEXT
    assert cluster.alive()[0].arguments["password"] == SECRET
    assert unfinished(stage.journal) is None
    mine = [entry.body for entry in read(stage.journal) if entry.body.get("by") == BY]
    assert [body["event"] for body in mine] == [
        "resumed", "savepoint", "stopped", "submitted", "running", "reached",
    ]  # fmt: skip
    assert SECRET not in (stage.journal / "journal-000000000000.jsonl").read_text()


def test_a_job_that_a_person_was_called_for_is_submitted_all_the_same(stage, cluster):
    stopped(stage)
    with Journal(stage.journal) as journal:
        for event in ("failed", "alarm"):
            body = {"event": event, "reason": "no slots"}
            journal.append("actuation", time.time(), "line", "test", body)
    finish(order_of(stage))
    assert runs(cluster, 3)
    assert steps(stage)[-1] == "reached"


def failed(stage: Stage, cluster: ResubmittingCluster) -> Path:
    """The job has ended, and who was taking its rescale back is gone; its savepoint."""
    stopped(stage)
    until(lambda: not cluster.alive())
    (written,) = stage.savepoints.glob("savepoint-*/_metadata")
    savepoint = {"event": "savepoint", "location": str(written.parent), "seconds": 0.1}
    with Journal(stage.journal) as journal:
        for body in (savepoint, {"event": "failed", "reason": "Flink did not answer in time"}):
            journal.append("actuation", time.time(), "line", "test", body)
    return written.parent


def test_a_job_that_was_brought_back_under_the_id_of_the_next_one_is_left_alone(stage, cluster):
    failed(stage, cluster)
    cluster.checkpointed.add(NEXT)
    cluster.start(NEXT, dict(cluster.jobs[FIRST].arguments))
    finish(order_of(stage))
    assert [job.id for job in cluster.alive()] == [NEXT]
    assert steps(stage)[-1] == "restored"


def test_a_submission_of_the_first_process_that_arrives_late_starts_no_second_job(stage, cluster):
    savepoint = failed(stage, cluster)
    arguments = {**cluster.jobs[FIRST].arguments, "parallelism": "source=4,map=3,sink=1"}
    words = [word for key, value in arguments.items() for word in (f"--{key}", value)]
    body = {"programArgsList": words, "savepointPath": str(savepoint), "jobId": NEXT}
    late = threading.Timer(1.0, cluster._run, (body,))
    late.start()
    finish(order_of(stage))
    late.join()
    assert runs(cluster, 1)
    check_exactly_once(cluster)


@pytest.mark.parametrize("is_recorded", [True, False])  # the savepoint of the stop
def test_a_job_that_somebody_started_and_that_ended_since_is_not_started_from_an_older_state(
    stage, cluster, is_recorded
):
    stopped(stage)
    until(lambda: not cluster.alive())
    (written,) = stage.savepoints.glob("savepoint-*/_metadata")
    if is_recorded:
        body = {"event": "savepoint", "location": str(written.parent), "seconds": 0.1}
        with Journal(stage.journal) as journal:
            journal.append("actuation", time.time(), "line", "test", body)
    theirs = cluster.start("f" * 32, dict(cluster.jobs[FIRST].arguments))
    cluster.checkpointed.add(theirs.id)
    theirs.stops_s = theirs.ends_s = time.monotonic()
    finish(order_of(stage))
    assert cluster.alive() == []
    assert submissions(cluster) == 0
    assert unfinished(stage.journal) is None
    said = [entry.body for entry in read(stage.journal) if entry.body.get("by") == BY]
    assert [body["event"] for body in said] == ["resumed", "alarm", "left", "failed"]
    assert said[1]["savepoint"].endswith(f"{theirs.id}/chk-1")
    assert f"job {theirs.id} ran under the job's name and has ended since" in said[1]["reason"]
    assert (str(written.parent) in said[1]["reason"]) is is_recorded


def test_a_job_of_that_name_that_ended_before_the_rescale_keeps_nothing_stopped(stage, cluster):
    earlier = cluster.start("e" * 32, dict(cluster.jobs[FIRST].arguments))
    earlier.created_s -= 60.0
    earlier.stops_s = earlier.ends_s = time.monotonic()
    stopped(stage)
    finish(order_of(stage))
    assert runs(cluster, 3)


def test_a_request_to_stop_that_arrives_late_is_waited_for(stage, cluster):
    trigger, rest = begun(stage), FlinkRest(stage.url)
    late = threading.Timer(0.1, rest.stop_with_savepoint, (FIRST, str(stage.savepoints), trigger))
    late.start()
    finish(order_of(stage, timeout_s=5.0))
    late.join()
    assert runs(cluster, 3)


def test_a_job_that_was_never_told_to_stop_is_left_alone(stage, cluster):
    begun(stage)
    finish(order_of(stage))
    assert [job.id for job in cluster.alive()] == [FIRST]
    assert steps(stage)[-1] == "restored"


@pytest.mark.parametrize("intent", [{"job_name": "my line"}, {}])  # an earlier release's: none
def test_a_job_named_as_prometheus_labels_it_that_was_never_told_to_stop_is_left_alone(
    stage, cluster, intent
):
    cluster.jobs[FIRST].arguments["job-name"] = "my line"
    begun(stage, **intent)
    finish(order_of(stage, job_name="my_line"))
    assert [job.id for job in cluster.alive()] == [FIRST]
    assert steps(stage)[-1] == "restored"


def test_a_job_named_as_prometheus_labels_it_is_submitted_under_its_own_name(stage, cluster):
    cluster.jobs[FIRST].arguments["job-name"] = "my line"
    trigger = begun(stage, job_name="my line")
    FlinkRest(stage.url).stop_with_savepoint(FIRST, str(stage.savepoints), trigger)
    finish(order_of(stage, job_name="my_line"))
    assert runs(cluster, 3)
    assert cluster.alive()[0].arguments["job-name"] == "my line"


@pytest.mark.parametrize("other", [{"next_id": "cd" * 16}, {"journal": "nothing"}])
def test_another_rescale_is_left_alone(stage, cluster, tmp_path, other):
    stopped(stage)
    if "journal" in other:
        other = {"journal": tmp_path / "nothing"}
    finish(order_of(stage, **other))
    assert submissions(cluster) == 0


def test_while_the_journal_is_written_nothing_is_taken_over(stage, cluster, monkeypatch):
    monkeypatch.setattr(finishing, "_RELEASED_S", 0.0)
    stopped(stage)
    with Journal(stage.journal):
        finish(order_of(stage))
    assert submissions(cluster) == 0


def test_a_disk_that_takes_nothing_keeps_no_job_stopped(stage, cluster, monkeypatch):
    def full(folder: Path) -> Journal:
        raise OSError("No space left on device")

    stopped(stage, "in the open")
    monkeypatch.setattr(finishing, "Journal", full)
    finish(order_of(stage))
    assert runs(cluster, 3)
    assert restarted(stage) is None  # which finds it running, and says so
    assert submissions(cluster) == 1


def test_two_at_once_start_one_job(stage, cluster, tmp_path):
    stopped(stage)
    shutil.copytree(stage.journal, tmp_path / "copy")  # as if no lock kept them apart
    orders = [order_of(stage), order_of(stage, journal=tmp_path / "copy")]
    threads = [threading.Thread(target=finish, args=(order,)) for order in orders]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert runs(cluster, 3)
    check_exactly_once(cluster)


def test_a_restarted_process_waits_until_the_rescale_is_finished(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "_PATIENCE_S", 0.0)
    wait_until_finished(tmp_path, lambda: False)  # nobody has ever stood by
    lock, waited = stood_by(tmp_path), threading.Event()
    with pytest.raises(StorageError, match="another process finishes a rescale"):
        stood_by(tmp_path)
    wait_until_finished(tmp_path, lambda: True)

    def wait() -> None:
        wait_until_finished(tmp_path, lambda: False)
        waited.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert not waited.wait(0.05)
    lock.close()
    thread.join()
    assert waited.is_set()


def rescaled(stage: Stage, seen: Callable[[str, int], None]) -> tuple[int, list[str]]:
    """A rescale to its end: its status, and its steps; each is told with the second process."""
    rest, kinds = FlinkRest(stage.url), []
    with Journal(stage.journal) as journal:
        notes, finisher = stage.notes(journal), stage.finisher(rest)

        def step(kind: str, body: dict) -> None:
            (notes.intent if kind in INTENTS else notes.step)(kind, body)
            kinds.append(kind)
            seen(kind, finisher.pid or 0)

        actuator = ResubmitActuator(
            rest, "line", stage.spec, stage.savepoints, timeout_s=5, poll_s=0.01, on_event=step,
        )  # fmt: skip
        actuator.finisher = finisher
        with actuator:
            levels = np.array([list(actuator._known.memory_level.values())])
            actuator.apply(wanted(np.array([[4, 3, 1]]), levels))
        return int(actuator.status()[0]), kinds


@pytest.mark.slow
def test_it_stands_by_before_the_stop_is_small_keeps_secrets_and_ends_with_the_rescale(
    stage, cluster
):
    pids, shown = set[int](), {}

    def seen(kind: str, pid: int) -> None:
        pids.add(pid)
        if kind == "stopping":
            shown.update({name: Path(f"/proc/{pid}/{name}").read_bytes()
                          for name in ("cmdline", "environ", "status", "maps")})  # fmt: skip
            assert os.getsid(pid) == pid
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                os.kill(pid, number)

    url = stage.url.replace("//", f"//user:{SECRET}@")
    status, kinds = rescaled(replace(stage, url=url), seen)
    assert status == ActuatorStatus.REACHED
    assert kinds[1] == "stopping"
    (pid,) = pids
    assert pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert BY not in {entry.body.get("by") for entry in read(stage.journal)}
    assert SECRET.encode() not in shown["cmdline"] + shown["environ"]
    (kib,) = (int(text.split()[1]) for text in shown["status"].split(b"\n") if b"VmRSS" in text)
    assert kib < MOST_MIB * 1024
    assert b"llvmlite" not in shown["maps"]
    stood_by(stage.journal).close()


@pytest.mark.slow
def test_when_the_first_process_is_killed_the_second_one_finishes_the_rescale(stage, cluster):
    killed(stage, (4, 3, 1), "submission under way", attended=True)
    until(lambda: runs(cluster, 3))
    assert restarted(stage) is None  # it waits, and finds the rescale ended
    assert [b.body["event"] for b in read(stage.journal) if b.body.get("by") == BY][-1] == "reached"
    check_exactly_once(cluster)
    assert submissions(cluster) <= 2


@pytest.mark.slow
def test_a_second_process_that_cannot_start_does_not_keep_a_job_from_being_rescaled(
    stage, cluster, caplog, monkeypatch
):
    monkeypatch.setattr(locks, "_PATIENCE_S", 0.0)

    def seen(kind: str, pid: int) -> None:
        assert pid == 0

    stage.journal.mkdir()
    with stood_by(stage.journal):
        status, _ = rescaled(stage, seen)
    assert status == ActuatorStatus.REACHED
    assert "no second process stands by while job line is rescaled" in caplog.text
