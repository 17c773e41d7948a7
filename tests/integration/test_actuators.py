"""Rescaling a job on a real Flink, with every failure on the way."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from dsp_gym.backends.flink.local.cluster import LocalCluster
from dsp_gym.backends.flink.local.processes import wait_until
from dsp_gym.backends.flink.local.settings import ClusterSettings
from dsp_gym.backends.flink.rescale import AdaptiveActuator, ResubmitActuator
from dsp_gym.backends.flink.rest import ENDED, FlinkRest
from dsp_gym.backends.flink.submission import Configuration, Submission, load_arguments, unready
from dsp_gym.config.files import parse
from dsp_gym.control import start as live
from dsp_gym.control.config import RunConfig
from dsp_gym.doctor import of_cluster
from dsp_gym.errors import FlinkError
from dsp_gym.loop.protocols import ActuatorStatus
from dsp_gym.metrics.flink import BY_NAME
from tests.acting import acting
from tests.fakes.breakable import BreakableLink
from tests.killing import POINTS, Stage, killed, restarted, steps
from tests.real_flink import (
    PATIENCE_S,
    QUICK_DS2,
    REAL_FLINK,
    SMALL_SEGMENT_KIB,
    at_once,
    cancel_all,
    short_lived_jvms,
    until,
)
from tests.simulating import wanted
from tests.strategies import spec_of

pytestmark = REAL_FLINK

SLOTS, MANAGED_MIB = 6, 400
SPEC = spec_of(
    "micro",
    {"name": "source", "kind": "source"},
    {
        "name": "state",
        "inputs": [{"from": "source", "ship": "HASH"}],
        "state": {"reads": 1, "writes": 1, "keys": 20_000, "value_bytes": 500},
    },
    {"name": "sink", "kind": "sink", "inputs": [{"from": "state"}], "scalable": False},
    max_parallelism_per_vertex=24,
    memory={"base_mib": 32, "levels": 5},
    flink={"program": "micro-update", "arguments": {"keys": 20_000, "value-bytes": 500}},
)


def configuration(tasks: int, level: int) -> Configuration:
    return Configuration(
        {"source": 1, "state": tasks, "sink": 1}, {"source": -1, "state": level, "sink": -1}
    )


def settings(**rest: Any) -> ClusterSettings:
    ports = {"rest_port": 0, "prometheus_port": 0, "prometheus": False}
    sizes = {
        "slots": SLOTS,
        "managed_mib": MANAGED_MIB,
        "task_heap_mib": 256,
        "network_mib": 96,
        "network_segment_kib": SMALL_SEGMENT_KIB,
    }
    return ClusterSettings(**(ports | sizes | {"checkpoint_interval_s": 2} | rest))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    with short_lived_jvms():
        made = LocalCluster.up(settings(), tmp_path_factory.mktemp("default"))
        yield made
        made.down()


@pytest.fixture(scope="module")
def adaptive(tmp_path_factory) -> Iterator[LocalCluster]:
    # A path of 74 characters: see the test of a long one.
    folder = tmp_path_factory.mktemp("adaptive")
    home = folder / "far-down-".ljust(max(74 - len(f"{folder}/"), 1), "-")
    with short_lived_jvms():
        made = LocalCluster.up(settings(scheduler="adaptive"), home)
        yield made
        made.down()


def started(cluster: LocalCluster, tasks: int, **arguments: str) -> str:
    """A fresh job with one level-0 state vertex; nothing else runs."""
    cancel_all(cluster)
    load = arguments or {"rate": "1000", "epoch-ms": str(int(time.time() * 1000))}
    submission = Submission.of_spec(SPEC, load)
    return submission.submit(cluster.rest, configuration(tasks, 0))


class Listener:
    """Keeps events; does something when one of a kind comes."""

    def __init__(self, **on: Callable[[], None]) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._on = on

    def __call__(self, kind: str, body: dict[str, Any]) -> None:
        self.events.append((kind, body))
        if kind in self._on:
            self._on.pop(kind)()

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.events]

    def __getitem__(self, kind: str) -> dict[str, Any]:
        return dict(self.events)[kind]


def rescaled(actuator: Any, tasks: int, level: int) -> int:
    """Ask and wait; the status at the end."""
    actuator.apply(wanted(np.array([[1, tasks, 1]]), np.array([[-1, level, -1]])))
    assert actuator.status().tolist() == [ActuatorStatus.PENDING]
    assert actuator.wait(PATIENCE_S), "still under way"
    return int(actuator.status()[0])


def runs(rest: FlinkRest, expected: Configuration) -> bool:
    """Whether the one job runs in full, with that configuration."""
    job = rest.find_job("micro")
    # A job that Flink creates anew shows no arguments.
    if rest.job(job.id)["state"] != "RUNNING":
        return False
    _, running = Submission.of_running(rest, job.id, SPEC)
    return running == expected and unready(rest.job(job.id), SPEC, expected) is None


def total(rest: FlinkRest, vertex: str, metric: str) -> float | None:
    """Sum of a metric over the subtasks of a vertex; None before all have reported."""
    job = rest.job(rest.find_job("micro").id)
    found = next(v for v in job["vertices"] if v["name"].endswith(vertex))
    path = f"/jobs/{job['jid']}/vertices/{found['id']}/metrics"
    known = [m["id"] for m in rest.get(path)]
    ids = [name for name in known if BY_NAME[metric].matches(name.partition(".")[2])]
    if len(ids) < found["parallelism"]:
        return None
    return sum(float(m["value"]) for m in rest.get(f"{path}?get={','.join(ids)}"))


def test_the_doctor_says_how_jobs_may_be_changed(cluster, adaptive):
    found = [[one.status for one in of_cluster(each.rest_url)] for each in (cluster, adaptive)]
    assert found[0] == ["ok", "ok", "missing", "ok", "ok"]
    assert found[1] == ["ok", "ok", "ok", "ok", "missing"]


@acting("redeploy", "memory")
def test_parallelism_and_memory_move_and_no_record_is_lost_or_made(cluster, tmp_path):
    epoch_ms = int(time.time() * 1000)
    due = 2000 * 20  # records in the 20 s after which the load is 0
    load = load_arguments([2000] * 20 + [0], tmp_path, epoch_ms)
    started(cluster, 1, **load)
    heard = Listener()
    with ResubmitActuator(
        cluster.rest, "micro", SPEC, cluster.savepoints, on_event=heard
    ) as actuator:
        assert rescaled(actuator, 2, 1) == ActuatorStatus.REACHED
        assert runs(cluster.rest, configuration(2, 1))
        assert rescaled(actuator, 1, 2) == ActuatorStatus.REACHED
        assert runs(cluster.rest, configuration(1, 2))
    steps = ["asked", "stopping", "savepoint", "stopped", "submitted", "running", "reached"]
    first, last = (body["location"] for kind, body in heard.events if kind == "savepoint")
    assert heard.kinds == [*steps, *steps[:-1], "disposed", "reached"]
    assert heard["disposed"]["savepoint"] == first
    assert (Path(last.removeprefix("file:")) / "_metadata").exists()
    assert 1_000 * 500 < heard["savepoint"]["bytes"] < 20_000 * 1000  # keys, of 500 bytes each
    assert 0 < heard["running"]["outage_s"] < 60
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        emitted = total(cluster.rest, "source", "emitted_records_total")
        received = total(cluster.rest, "sink", "received_records_total")
        if emitted == received == due and not Path(first.removeprefix("file:")).exists():
            return
        time.sleep(0.5)
    pytest.fail(f"due {due}, emitted {emitted}, received {received}")


def kept(cluster: LocalCluster) -> str:
    """The job with one level-0 state vertex that runs already, else a fresh one."""
    try:
        if runs(cluster.rest, configuration(1, 0)):
            return cluster.rest.find_job("micro").id
    except FlinkError:
        pass
    return started(cluster, 1)


@acting("redeploy")
class TestWhatIsRefusedLeavesTheJobAlone:
    @pytest.fixture
    def job_id(self, cluster) -> str:
        return kept(cluster)

    def refused(self, cluster, job_id, tasks, level, savepoints=None) -> Listener:
        heard = Listener()
        with ResubmitActuator(
            cluster.rest, "micro", SPEC, savepoints or cluster.savepoints, on_event=heard
        ) as actuator:
            assert rescaled(actuator, tasks, level) == ActuatorStatus.FAILED
        assert cluster.rest.find_job("micro").id == job_id
        assert runs(cluster.rest, configuration(1, 0))
        return heard

    def test_more_slots_than_there_are(self, cluster, job_id):
        heard = self.refused(cluster, job_id, SLOTS, 0)
        assert heard.kinds == ["asked", "failed"]
        assert f"needs {SLOTS + 2} slots; the job has 3 and 3 are free" in heard["failed"]["reason"]

    @acting("memory")
    def test_more_memory_than_there_is(self, cluster, job_id):
        heard = self.refused(cluster, job_id, 1, 4)
        assert "needs 512 MiB of managed memory; the job has 32 and" in heard["failed"]["reason"]

    def test_a_savepoint_directory_under_a_file(self, cluster, job_id, tmp_path):
        (tmp_path / "file").write_text("")
        heard = self.refused(cluster, job_id, 2, 0, tmp_path / "file" / "savepoints")
        assert heard.kinds == ["asked", "failed"]
        assert "savepoints cannot be written there: Not a directory" in heard["failed"]["reason"]

    def test_a_savepoint_that_fails_in_flink(self, cluster, job_id):
        heard = self.refused(cluster, job_id, 2, 0, "s3://bucket/savepoints")
        assert heard.kinds == ["asked", "stopping", "failed", "restored"]
        assert "UnsupportedFileSystemSchemeException" in heard["failed"]["reason"]
        assert heard["restored"]["stopped"] is False


@acting("redeploy")
def test_what_does_not_come_up_is_brought_back_as_it_was(cluster):
    before = started(cluster, 1)

    def take_the_free_slots() -> None:
        """Another job comes between, which nothing can foresee."""
        submission = Submission.of_spec(SPEC, {"rate": "1"}, "other")
        submission.submit(cluster.rest, configuration(1, 0))

    heard = Listener(stopped=take_the_free_slots)
    with ResubmitActuator(
        cluster.rest, "micro", SPEC, cluster.savepoints, timeout_s=6, on_event=heard
    ) as actuator:
        assert rescaled(actuator, 3, 0) == ActuatorStatus.TIMED_OUT
    told = [kind for kind in heard.kinds if kind != "alarm"]  # raised if it takes long to come back
    assert told[-3:] == ["submitted", "failed", "restored"]
    assert cluster.rest.find_job("micro").id == heard["restored"]["job_id"] != before
    assert runs(cluster.rest, configuration(1, 0))


@acting("redeploy")
def test_a_cluster_out_of_reach_in_the_middle_is_waited_for(cluster):
    started(cluster, 1)
    link = BreakableLink(cluster.rest_url)
    try:
        heard = Listener(stopped=link.cut, alarm=link.mend)
        with ResubmitActuator(
            FlinkRest(link.url, timeout_s=5), "micro", SPEC, cluster.savepoints,
            timeout_s=10, on_event=heard,
        ) as actuator:  # fmt: skip
            actuator.retry_s = 0.5
            assert rescaled(actuator, 2, 0) == ActuatorStatus.FAILED
            assert heard.kinds[-3:] == ["failed", "alarm", "restored"]
            assert heard["alarm"]["savepoint"] == heard["savepoint"]["location"]
            assert (
                f'"savepointPath": "{heard["savepoint"]["location"]}"' in heard["alarm"]["remedy"]
            )
            assert runs(cluster.rest, configuration(1, 0))
            assert rescaled(actuator, 2, 0) == ActuatorStatus.REACHED
    finally:
        link.close()


@acting("redeploy")
def test_a_job_that_somebody_cancels_meanwhile_is_not_started_again(cluster):
    job_id = started(cluster, 1)
    end = time.monotonic() + PATIENCE_S  # the alarm is to name the last checkpoint
    while cluster.rest.get(f"/jobs/{job_id}/checkpoints")["counts"]["completed"] == 0:
        assert time.monotonic() < end, "no checkpoint was completed"
        time.sleep(0.5)
    heard = Listener(stopping=lambda: cluster.rest.cancel(job_id))
    with ResubmitActuator(
        cluster.rest, "micro", SPEC, cluster.savepoints, timeout_s=10, on_event=heard
    ) as actuator:
        assert rescaled(actuator, 2, 0) == ActuatorStatus.FAILED
    assert heard.kinds == ["asked", "stopping", "failed", "alarm"]
    assert "CANCELED" in heard["alarm"]["reason"]
    assert "/chk-" in heard["alarm"]["savepoint"]
    assert [job.id for job in cluster.rest.jobs() if job.state not in ENDED] == []


@acting("redeploy")
def test_an_interrupted_program_ends_when_the_job_runs_again(cluster):
    started(cluster, 1)
    program = f"""
        import numpy as np
        from tests.integration.test_actuators import *
        rest = FlinkRest({cluster.rest_url!r})
        say = lambda kind, body: print(kind, flush=True)
        with ResubmitActuator(rest, "micro", SPEC, {str(cluster.savepoints)!r}, on_event=say) as a:
            a.apply(wanted(np.array([[1, 2, 1]]), np.array([[-1, 0, -1]])))
            time.sleep(60)
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        cwd=Path(__file__).resolve().parents[2],
    )  # fmt: skip
    assert child.stdout is not None
    for line in child.stdout:
        if line.strip() == "stopped":
            break
    child.send_signal(signal.SIGINT)
    output, errors = child.communicate(timeout=PATIENCE_S)
    assert "KeyboardInterrupt" in errors
    assert output.split()[-1] == "reached"
    assert runs(cluster.rest, configuration(2, 0))


def move_and_be_killed(cluster: LocalCluster, stage: Stage, tasks: int, point: str) -> None:
    """Rescale in a process that is killed; the next start has the job running within 2 minutes."""
    killed(stage, (1, tasks, 1), point)
    began_s = time.monotonic()
    restarted(stage)
    assert time.monotonic() - began_s < 120
    assert [job.state for job in cluster.rest.jobs() if job.state not in ENDED] == ["RUNNING"]


def check_counts(cluster: LocalCluster, due: int) -> None:
    """Every record of the load was emitted and received once."""
    end = time.monotonic() + PATIENCE_S
    counts = None
    while counts != (due, due):
        assert time.monotonic() < end, f"due {due}, emitted and received {counts}"
        time.sleep(0.5)
        counts = (
            total(cluster.rest, "source", "emitted_records_total"),
            total(cluster.rest, "sink", "received_records_total"),
        )


@pytest.fixture
def stage(cluster, tmp_path) -> Stage:
    load = load_arguments([1000] * 10 + [0], tmp_path, int(time.time() * 1000))
    started(cluster, 1, **load)
    return Stage(cluster.rest_url, SPEC, cluster.savepoints, tmp_path / "journal", 0.25, 60.0)


@acting("redeploy")
def test_killed_in_the_middle_the_next_start_finishes_and_no_record_is_lost_or_made(cluster, stage):
    move_and_be_killed(cluster, stage, 2, "stopped")
    assert runs(cluster.rest, configuration(2, 0))
    move_and_be_killed(cluster, stage, 1, "submission under way")
    assert runs(cluster.rest, configuration(1, 0))
    check_counts(cluster, 10_000)


@acting("redeploy")
@pytest.mark.validate
def test_killed_in_the_middle_a_second_process_finishes_at_once(cluster, stage):
    killed(stage, (1, 2, 1), "stop was sent", attended=True)
    began_s = time.monotonic()
    while steps(stage)[-1] != "reached":
        assert time.monotonic() < began_s + PATIENCE_S
        time.sleep(0.1)
    assert runs(cluster.rest, configuration(2, 0))
    assert restarted(stage) is None
    check_counts(cluster, 10_000)


@acting("redeploy")
@pytest.mark.validate
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_any_point_twice_no_record_is_lost_or_made(cluster, stage, point):
    for _ in range(2):
        before = running_tasks(cluster)
        move_and_be_killed(cluster, stage, 3 - before, point)
        is_begun = point not in ("asked", "stopping")
        assert running_tasks(cluster) == (3 - before if is_begun else before)
    check_counts(cluster, 10_000)


def running_tasks(cluster: LocalCluster) -> int:
    """Tasks of the state vertex."""
    job = cluster.rest.find_job("micro")
    return Submission.of_running(cluster.rest, job.id, SPEC)[1].parallelism["state"]


def checkpoints(cluster: LocalCluster) -> int:
    """Completed ones of the running job."""
    job = cluster.rest.find_job("micro").id
    return int(cluster.rest.get(f"/jobs/{job}/checkpoints")["counts"]["completed"])


@acting("in_place")
class TestInPlace:
    @pytest.fixture
    def job_id(self, adaptive) -> str:
        return kept(adaptive)

    def test_parallelism_moves_until_somebody_else_changes_the_job(self, adaptive, job_id):
        heard = Listener()
        with AdaptiveActuator(adaptive.rest, "micro", SPEC, on_event=heard) as actuator:
            actuator.check_ready()
            assert rescaled(actuator, 3, 0) == ActuatorStatus.REACHED
            assert heard.kinds == ["asked", "submitted", "running", "reached"]
            assert 0 < heard["running"]["outage_s"] < 30
            assert adaptive.rest.find_job("micro").id == job_id
            assert runs(adaptive.rest, configuration(3, 0))
            assert actuator.interference() is None
            theirs = adaptive.rest.resource_requirements(job_id)
            for one in theirs.values():  # nothing that would restart the job
                one["parallelism"]["lowerBound"] = one["parallelism"]["upperBound"]
            adaptive.rest.set_resource_requirements(job_id, theirs)
            found = actuator.interference()
            assert found is not None
            assert f"(job {job_id})" in found.after
            assert rescaled(actuator, 2, 0) == ActuatorStatus.FAILED
        assert adaptive.rest.resource_requirements(job_id) == theirs

    def test_a_long_path_of_the_home_keeps_no_state_from_being_merged(self, adaptive, job_id):
        """RocksDB would name a log by the whole path, too long for a file's name."""
        with AdaptiveActuator(adaptive.rest, "micro", SPEC) as actuator:
            assert rescaled(actuator, 3, 0) == ActuatorStatus.REACHED
            done = checkpoints(adaptive)
            assert wait_until(lambda: checkpoints(adaptive) > done, PATIENCE_S, 0.5)
            assert rescaled(actuator, 2, 0) == ActuatorStatus.REACHED
        assert "File name too long" not in adaptive.home.log("taskmanager").read_text()

    def test_the_loop_scales_without_a_new_job(self, adaptive, tmp_path):
        job_id = started(adaptive, 1, rate="600", **{"cpu-us": "state=4000"})
        document = SPEC.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        file = tmp_path / "micro.yaml"
        file.write_text(yaml.safe_dump(document))
        config = {
            "job": str(file),
            "where": {"home": str(adaptive.home.folder), "actuator": "adaptive", "metrics": "rest"},
            "policy": QUICK_DS2,
            "guardrails": None,
            "interval_s": 5,
            "window": {"window_s": 10, "stabilization_s": 0},
        }
        with live.started(
            at_once(parse(RunConfig, config, "run")), mode="active", journal=tmp_path / "journal"
        ) as run:
            # Two and a half tasks, by a clock that a busy machine stretches.
            grown = [configuration(tasks, 0) for tasks in (2, 3, 4)]
            until(run, lambda: any(runs(adaptive.rest, one) for one in grown))
        assert adaptive.rest.find_job("micro").id == job_id
        assert any(runs(adaptive.rest, one) for one in grown)

    def test_a_memory_move_is_refused_and_explained(self, adaptive, job_id):
        heard = Listener()
        with AdaptiveActuator(adaptive.rest, "micro", SPEC, on_event=heard) as actuator:
            assert rescaled(actuator, 2, 1) == ActuatorStatus.FAILED
        assert heard.kinds == ["asked", "failed"]
        assert "move the level of state 0 to 1" in heard["failed"]["reason"]

    def test_what_does_not_fit_is_refused(self, adaptive, job_id):
        heard = Listener()
        with AdaptiveActuator(adaptive.rest, "micro", SPEC, on_event=heard) as actuator:
            assert rescaled(actuator, 9, 0) == ActuatorStatus.FAILED
        assert "needs 11 slots" in heard["failed"]["reason"]

    def test_what_takes_too_long_is_put_back(self, adaptive, job_id):
        before = adaptive.rest.resource_requirements(job_id)
        heard = Listener()
        with AdaptiveActuator(
            adaptive.rest, "micro", SPEC, timeout_s=0.1, on_event=heard
        ) as actuator:
            assert rescaled(actuator, 2, 0) == ActuatorStatus.TIMED_OUT
        assert heard.kinds[:3] == ["asked", "submitted", "failed"]
        assert adaptive.rest.resource_requirements(job_id) == before

    def test_the_default_scheduler_is_named_as_the_reason(self, cluster):
        started(cluster, 1)
        heard = Listener()
        with AdaptiveActuator(cluster.rest, "micro", SPEC, on_event=heard) as actuator:
            with pytest.raises(FlinkError, match="cannot be rescaled in place"):
                actuator.check_ready()
            assert rescaled(actuator, 2, 0) == ActuatorStatus.FAILED
        assert "cannot be rescaled in place" in heard["failed"]["reason"]
        assert runs(cluster.rest, configuration(1, 0))
