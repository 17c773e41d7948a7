"""`dsp-gym shadow` beside a job on a real Flink with a real Prometheus: policies, modes, faults."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dsp_gym.backends.flink.local.cluster import LocalCluster
from dsp_gym.backends.flink.rest import ENDED
from dsp_gym.cli.errors import USER_ERROR
from dsp_gym.config.files import parse
from dsp_gym.control.config import RunConfig
from dsp_gym.control.serve.session import Session, session
from dsp_gym.job.catalog import load_job
from dsp_gym.records.journal import read
from tests.fakes.breakable import BreakableLink
from tests.real_flink import (
    PATIENCE_S,
    QUICK_DS2,
    QUICK_TO_RESTART,
    REAL_FLINK,
    at_once,
    command,
    running,
    signalled,
    small_cluster,
    submitting,
    until,
    write_job,
)
from tests.unit.control.serve.conftest import ask, condition, has

pytestmark = REAL_FLINK


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    with small_cluster(tmp_path_factory.mktemp("shadow"), **QUICK_TO_RESTART) as made:
        yield made


@pytest.fixture(scope="module")
def job_file(tmp_path_factory) -> Path:
    return write_job(tmp_path_factory.mktemp("jobs"))


@pytest.fixture
def submit(cluster, job_file, tmp_path) -> Iterator[Callable[..., str]]:
    with submitting(cluster, load_job(str(job_file)), tmp_path) as submit:
        yield submit


@pytest.fixture
def document(cluster, job_file, tmp_path) -> dict[str, Any]:
    return {
        "job": str(job_file),
        "where": {"home": str(cluster.home.folder)},
        "policies": [
            "planner",
            {"name": "ds2", "policy": QUICK_DS2},
            "flink-autoscaler",
            "incumbent",
        ],
        "acting": "ds2",
        "guardrails": None,
        "interval_s": 5,
        "window": {"window_s": 10, "stabilization_s": 0},
        "journal": str(tmp_path / "journal"),
        "serve": {"port": 0, "public": True},
    }


def config(document, **given) -> RunConfig:
    return at_once(parse(RunConfig, {**document, **given}, "shadow.yaml"))


def tasks(cluster, job_file) -> int:
    return running(cluster, load_job(str(job_file)))["flatmap"]


def test_three_policies_watch_and_touch_nothing_then_one_acts(
    cluster, submit, document, job_file, tmp_path
):
    job_id = submit(600.0)  # two and a half tasks of flatmap
    with session(config(document), serve=True, mode="shadow") as shown:
        until(shown.run, has(shown, "DataFresh", "True"))
        until(shown.run, lambda: target(shown) >= 3)
        status = ask(f"{shown.server.url}/v1/status").json
        assert set(status["policies"]) == {"planner", "ds2", "flink-autoscaler", "incumbent"}
        assert status["vertices"][1]["current"]["parallelism"] == 1
        assert not any(decision["asked"] for decision in status["decisions"])
        families = {
            family.name: family.samples
            for family in text_string_to_metric_families(ask(f"{shown.server.url}/metrics").text)
        }
        (age,) = families["dsp_gym_data_age_seconds"]
        assert 0 <= age.value < 20
        recommended = {s.labels["policy"] for s in families["dsp_gym_recommended_parallelism"]}
        assert recommended == {"planner", "ds2", "flink-autoscaler"}
    assert cluster.rest.find_job("words").id == job_id
    entries = list(read(tmp_path / "journal" / "words"))
    assert not [e for e in entries if e.kind == "actuation" and e.body.get("asked")]
    per_policy = {
        name: sum(e.kind == "guard" and e.policy == name for e in entries)
        for name in ("planner", "ds2", "flink-autoscaler", "incumbent")
    }
    assert set(per_policy.values()) == {shown.run.turns}
    with session(config(document, mode="active"), serve=True, mode="active") as shown:
        until(shown.run, lambda: tasks(cluster, job_file) >= 3)
    assert cluster.rest.find_job("words").state == "RUNNING"


def target(shown: Session) -> int:
    vertex = shown.board.document()["vertices"]
    return vertex[1]["policies"]["ds2"]["target"] if vertex else 0


@pytest.mark.validate
def test_prometheus_gone_flink_in_trouble_and_another_job_id_are_told_and_outlived(
    cluster, submit, document
):
    first = submit(100.0)
    link = BreakableLink(cluster.rest_url)
    where = {"rest_url": link.url, "prometheus_url": cluster.prometheus_url}
    try:
        with session(config(document, where=where), serve=True, mode="shadow") as shown:
            url = shown.server.url
            until(shown.run, has(shown, "DataFresh", "True"))
            cluster.stop("prometheus")
            try:
                until(shown.run, has(shown, "Ready", "False"), turns=2)  # one look may still stand
                assert "Prometheus" in condition(shown, "DataFresh")["message"]
                assert ask(f"{shown.server.probe_url}/readyz").status == 503
                assert ask(f"{shown.server.probe_url}/healthz").status == 200
                assert "dsp_gym_recommended" not in ask(f"{url}/metrics").text
            finally:
                cluster.start("prometheus")
            until(shown.run, has(shown, "DataFresh", "True"))
            link.fail()
            until(shown.run, lambda: "500" in condition(shown, "Ready")["message"], turns=2)
            link.mend()
            cluster.rest.cancel(first)
            cluster.rest.wait_for(first, ENDED, PATIENCE_S)
            until(shown.run, lambda: "gone" in condition(shown, "Ready")["message"], turns=2)
            second = submit(100.0)
            until(shown.run, has(shown, "DataFresh", "True"))
            assert second != first
            errors = ask(f"{url}/metrics").text
            assert 'dsp_gym_api_errors_total{api="prometheus"' in errors
            assert 'dsp_gym_api_errors_total{api="flink"' in errors
    finally:
        link.close()


def test_a_signal_ends_it_whole_and_the_same_folder_goes_on(submit, document, tmp_path, capfd):
    submit(100.0)
    for name in ("SIGTERM", "SIGINT"):
        code, _ = signalled("shadow", document, tmp_path, name=name, at="incumbent.*keeps")
        assert code == 130
    # Shadow mode rescales nothing, and does not say that it finishes a rescale.
    assert capfd.readouterr().err.count("\nInterrupted.\n") == 2
    entries = list(read(tmp_path / "journal" / "words"))
    assert [e.seq for e in entries] == list(range(len(entries)))
    assert sum(e.body.get("event") == "started" for e in entries) == 2
    # Whatever was begun is whole: each snapshot has every policy's decision and guard.
    snapshots = sum(e.kind == "snapshot" for e in entries)
    assert sum(e.kind == "guard" for e in entries) == 4 * snapshots


@pytest.mark.validate
def test_one_step_is_for_ci_and_bad_input_ends_with_code_2(submit, document, cluster, tmp_path):
    submit(100.0)
    deadline = time.monotonic() + PATIENCE_S
    while (done := command("shadow", document, tmp_path, "--steps", "1", "--json")).returncode == 3:
        assert time.monotonic() < deadline
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert set(answer["policies"]) == {"planner", "ds2", "flink-autoscaler", "incumbent"}
    other = {**document, "job": "nexmark-q1", "job_name": "words"}
    for wrong, says in (
        (other, "has no vertex"),
        ({**document, "job_name": "sentences"}, "'sentences'"),
        ({**document, "where": {"rest_url": cluster.rest_url,
                                "prometheus_url": "http://127.0.0.1:9"}}, "127.0.0.1:9"),
    ):  # fmt: skip
        refused = command("shadow", wrong, tmp_path, "--steps", "1")
        assert refused.returncode == USER_ERROR, refused.stderr
        assert says in refused.stderr
        assert "Traceback" not in refused.stderr
