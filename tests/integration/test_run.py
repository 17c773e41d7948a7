"""`dsp-gym shadow --apply` on a real Flink: it scales, holds in trouble, never stops the job."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from dsp_gym.backends.flink.local.cluster import LocalCluster
from dsp_gym.backends.flink.rest import ENDED
from dsp_gym.cli.errors import USER_ERROR
from dsp_gym.config.files import parse
from dsp_gym.control.autoscaler import JobAutoscaler
from dsp_gym.control.backend_of import Substitute
from dsp_gym.control.config import RunConfig
from dsp_gym.control.start import started
from dsp_gym.errors import FlinkError
from dsp_gym.guardrails.slots import bounded
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec
from dsp_gym.records.journal import read
from tests.fakes.breakable import BreakableLink
from tests.real_flink import (
    PATIENCE_S,
    QUICK_DS2,
    QUICK_TO_RESTART,
    REAL_FLINK,
    WORD_COUNT,
    WORDS,
    at_once,
    command,
    running,
    signalled,
    small_cluster,
    submitting,
    until,
    write_job,
)

pytestmark = REAL_FLINK

ACTS = ("--apply", "--sole", "--no-serve")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    with small_cluster(tmp_path_factory.mktemp("run"), **QUICK_TO_RESTART) as made:
        yield made


@pytest.fixture(scope="module")
def job_file(tmp_path_factory) -> Path:
    return write_job(tmp_path_factory.mktemp("jobs"))


@pytest.fixture(scope="module", autouse=True)
def compiled(job_file, tmp_path_factory) -> None:
    """Compile what decides before a job runs: that takes up to a minute, and loads end."""
    as_beside_flink = bounded(None, load_job(str(job_file)), 40)
    given = {
        "job": str(job_file),
        "policy": QUICK_DS2,
        "guardrails": as_beside_flink.model_dump(mode="json"),
        "journal": str(tmp_path_factory.mktemp("compiled")),
    }
    simulated = Substitute(load="diurnal", duration_s=600)
    config = parse(RunConfig, given, "run.yaml")
    with started(config, mode="active", substitute=simulated) as run:
        run.turn()
        run.turn()


@pytest.fixture
def submit(cluster, job_file, tmp_path) -> Iterator[Callable[..., str]]:
    with submitting(cluster, load_job(str(job_file)), tmp_path) as submit:
        yield submit


def document(cluster, job_file, tmp_path, **given) -> dict:
    return {
        "job": str(job_file),
        "where": {"home": str(cluster.home.folder)},
        "policy": QUICK_DS2,
        "guardrails": None,
        "interval_s": 5,
        "window": {"window_s": 10, "stabilization_s": 0},
        "journal": str(tmp_path / "journal"),
        **given,
    }


@pytest.fixture
def config(cluster, job_file, tmp_path) -> Callable[..., RunConfig]:
    return lambda **given: at_once(
        parse(RunConfig, document(cluster, job_file, tmp_path, **given), "run.yaml")
    )


def flatmap(cluster: LocalCluster) -> int:
    """Tasks of the vertex that has to grow."""
    return running(cluster, parse(JobSpec, WORD_COUNT, "words"))["flatmap"]


def total(run: JobAutoscaler, vertex: str, metric: str) -> float:
    """The newest value of a counter, over all subtasks."""
    now_s = time.time()
    _, _, values = run.backend.collector.source.samples(now_s - 8, now_s).grid(vertex, metric)
    return float(values[-1].sum())


def test_ds2_scales_the_job_and_no_record_is_lost(cluster, submit, config, tmp_path):
    submit(*[600.0] * 40, 0.0)  # two and a half tasks of flatmap, then silence
    # Three intervals without a look would be noted as an error, and DS2 would scale the end down.
    # A window of 20 s has two samples still where a busy machine loses one.
    once = {"policy": "ds2", "params": {"warm_up_s": 0}}
    window = {"window_s": 20, "stabilization_s": 0}
    given = config(policy=once, window=window).model_copy(update={"interval_s": 5})
    with started(given, mode="active") as run:
        until(run, lambda: flatmap(cluster) >= 2)

        def counts() -> tuple[float, float]:
            emitted = total(run, "source", "emitted_records_total")
            return WORDS * emitted, total(run, "count", "received_records_total")

        until(run, lambda: counts() == (WORDS * 24_000, WORDS * 24_000))
    entries = list(read(tmp_path / "journal" / "words"))
    steps = [e.body["event"] for e in entries if e.kind == "actuation"]
    assert {"decided", "asked", "savepoint", "submitted", "running", "reached"} <= set(steps)
    decisions = [e for e in entries if e.kind == "decision"]
    assert len(decisions) == run.turns == steps.count("decided")
    outcomes = [e.body for e in entries if e.kind == "outcome"]
    rescales = sum(outcome["rescales"] for outcome in outcomes)
    assert 1 <= rescales <= steps.count("asked")
    assert 0 < sum(outcome["down_s"] for outcome in outcomes) < 60 * rescales
    assert not [e.body for e in entries if e.kind == "error"]


@pytest.mark.validate
def test_a_dry_run_touches_nothing(cluster, submit, job_file, tmp_path):
    job_id = submit(600.0)
    given = document(cluster, job_file, tmp_path)
    done = command("shadow", given, tmp_path, "--steps", "4", "--no-serve", "--json")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == 5
    assert any(line["changed"] for line in lines[:-1])
    assert not any(line["enacted"] for line in lines[:-1])
    assert lines[-1]["summary"]["decisions"] == 4
    assert cluster.rest.find_job("words").id == job_id
    assert running(cluster, load_job(str(job_file))) == {"source": 1, "flatmap": 1, "count": 1}


@pytest.mark.parametrize(
    "name", ["SIGTERM", pytest.param("SIGINT", marks=pytest.mark.validate)]
)  # test_shadow sends both
def test_ctrl_c_in_the_middle_of_a_rescale_leaves_the_job_running(
    cluster, submit, job_file, tmp_path, name
):
    submit(600.0)
    given = document(cluster, job_file, tmp_path)
    code, said = signalled("shadow", given, tmp_path, *ACTS, name=name, at="asked")
    assert code == 130
    assert "The job keeps running." in said
    assert cluster.rest.find_job("words").state == "RUNNING"
    assert flatmap(cluster) > 1


@pytest.mark.validate  # test_actuators kills at every point
def test_killed_with_its_second_process_the_job_comes_back_with_its_state(
    cluster, submit, job_file, tmp_path
):
    submit(600.0)
    given = document(cluster, job_file, tmp_path)
    code, _ = signalled(
        "shadow", given, tmp_path, *ACTS, name="SIGKILL", at=r"  stopped$", and_children=True
    )
    assert code == -9
    assert [job for job in cluster.rest.jobs() if job.state not in ENDED] == []
    dry = command("shadow", given, tmp_path, "--steps", "1")
    assert dry.returncode == USER_ERROR
    (location,) = (
        e.body["location"]
        for e in read(tmp_path / "journal" / "words")
        if e.body.get("event") == "savepoint"
    )
    assert f"was not finished: its state is in {location}" in dry.stderr
    assert f'"savepointPath": "{location}"' in dry.stderr
    again = command("shadow", given, tmp_path, *ACTS, "--steps", "2")
    assert again.returncode == 0, again.stderr
    job = cluster.rest.find_job("words")
    restored = cluster.rest.get(f"/jobs/{job.id}/checkpoints")["latest"]["restored"]
    assert restored["external_path"].removeprefix("file:") == location.removeprefix("file:")
    assert flatmap(cluster) > 1


def test_while_prometheus_is_down_or_flink_answers_500_nothing_is_asked_and_then_it_goes_on(
    cluster, submit, config, tmp_path
):
    submit(600.0)
    link = BreakableLink(cluster.rest_url)
    where = {
        "rest_url": link.url,
        "prometheus_url": cluster.prometheus_url,
        "savepoints": str(cluster.savepoints),
    }
    given = config(where=where)
    with closing(link), started(given, mode="active") as run:
        cluster.stop("prometheus")
        try:
            held = [run.turn() for _ in range(2)]
            assert all(turn.held is not None for turn in held)
            assert flatmap(cluster) == 1
            with pytest.raises(FlinkError, match="Prometheus"):
                start_and_stop(given.model_copy(update={"journal": tmp_path / "other"}))
        finally:
            cluster.start("prometheus")
        link.fail()
        run.turn()  # the last look may still stand
        for turn in (run.turn(), run.turn()):
            assert turn.held is not None
            assert "answered 500: Internal server error." in turn.held
        assert flatmap(cluster) == 1
        link.mend()
        until(run, lambda: flatmap(cluster) >= 2)
    entries = list(read(tmp_path / "journal" / "words"))
    errors = [e.body for e in entries if e.kind == "error"]
    assert any("127.0.0.1" in error["reason"] for error in errors)
    assert [e for e in entries if e.body.get("event") == "asked"]


@pytest.mark.validate
def test_a_killed_taskmanager_freezes_the_loop_until_the_job_is_back(
    cluster, submit, config, tmp_path
):
    submit(100.0)
    with started(config(), mode="active") as run:
        until(run, lambda: True)
        cluster.process("taskmanager").kill()
        try:
            until(run, lambda: run.held is not None)
        finally:
            cluster.start("taskmanager")
        until(run, lambda: run.held is None)
        until(run, lambda: total(run, "count", "busy_ms_per_s") >= 0)  # every task is seen again
    errors = [e.body for e in read(tmp_path / "journal" / "words") if e.kind == "error"]
    assert errors
    assert cluster.rest.find_job("words").state == "RUNNING"


def test_a_job_that_somebody_else_starts_is_left_alone_until_the_next_start(
    cluster, submit, config, tmp_path
):
    first = submit(10.0)
    with started(config(), mode="active") as run:
        cluster.rest.cancel(first)
        cluster.rest.wait_for(first, ENDED, PATIENCE_S)
        assert run.turn().held == "the job has failed, or is gone"
        second, third = submit(10.0), submit(10.0)
        doubled = run.turn()
        assert doubled.held is not None
        assert "2 jobs are named 'words'" in doubled.held
        cluster.rest.cancel(third)
        cluster.rest.wait_for(third, ENDED, PATIENCE_S)
        until(run, lambda: run.held is not None and "has changed the job" in run.held)
        assert f"(job {second}, started at " in str(run.held)
    with started(config(), mode="active") as run:
        until(run, lambda: run.held is None)
    assert cluster.rest.find_job("words").id == second


@pytest.mark.validate
def test_where_savepoints_cannot_be_written_the_job_runs_on_as_it_was(
    cluster, submit, config, tmp_path
):
    job_id = submit(600.0)
    where = {"home": str(cluster.home.folder), "savepoints": str(tmp_path / "file" / "savepoints")}

    def spoil() -> None:
        shutil.rmtree(tmp_path / "file", ignore_errors=True)
        (tmp_path / "file").write_text("no folder")

    def failures() -> list[str]:
        entries = read(tmp_path / "journal" / "words")
        return [e.body["reason"] for e in entries if e.body.get("event") == "failed"]

    with started(config(where=where), mode="active") as run:
        spoil()
        until(run, lambda: bool(failures()))
    with (
        pytest.raises(FlinkError, match="savepoints cannot be written there"),
        started(config(where=where), mode="active"),
    ):
        pass  # it is said before the start
    assert "savepoints cannot be written there" in failures()[0]
    assert cluster.rest.find_job("words").id == job_id
    assert flatmap(cluster) == 1


@pytest.mark.validate
def test_the_shipped_agent_drives_the_job_inside_its_guardrails(submit, config, tmp_path):
    submit(300.0)
    given = config(policy="planner", guardrails="deployed")
    with started(given, mode="active") as run:
        run.run(steps=6)
    entries = list(read(tmp_path / "journal" / "words"))
    assert not [e.body for e in entries if e.kind == "error" and e.body["stage"] == "policy"]
    assert sum(e.kind == "guard" for e in entries) == 6


@pytest.mark.validate
def test_metrics_over_rest_need_no_prometheus(cluster, submit, config):
    submit(600.0)
    where = {"rest_url": cluster.rest_url, "metrics": "rest", "savepoints": str(cluster.savepoints)}
    with started(config(where=where), mode="active") as run:
        until(run, lambda: flatmap(cluster) >= 2)


def test_what_is_wrong_is_said_before_the_first_decision(cluster, submit, config):
    with pytest.raises(FlinkError, match=r"'words'.*dsp-gym flink submit"):
        start_and_stop(config())
    submit(10.0)
    submit(10.0)
    with pytest.raises(FlinkError, match="2 jobs are named 'words'"):
        start_and_stop(config())
    with pytest.raises(FlinkError, match="404"):
        start_and_stop(config(where={"rest_url": cluster.prometheus_url, "metrics": "rest"}))
    with pytest.raises(FlinkError, match=r"http://127\.0\.0\.1:9"):
        start_and_stop(config(where={"rest_url": "http://127.0.0.1:9", "metrics": "rest"}))


def test_another_flink_is_refused_by_its_version(config):
    class Old(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"flink-version": "1.17.2", "slots-available": 4}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Old) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        try:
            with pytest.raises(FlinkError, match=r"Flink 1\.17\.2.*Flink 1\.18 to 2\.3"):
                start_and_stop(config(where={"rest_url": url, "metrics": "rest"}))
        finally:
            server.shutdown()
            thread.join()


def test_a_wrong_configuration_ends_with_a_message(cluster, job_file, tmp_path):
    wrong = document(cluster, job_file, tmp_path, policy="ds22")
    done = command("shadow", wrong, tmp_path, "--steps", "1")
    assert done.returncode == USER_ERROR
    assert "there is no policy 'ds22'" in done.stderr
    assert "Traceback" not in done.stderr


def start_and_stop(config: RunConfig) -> None:
    with started(config):
        pass
