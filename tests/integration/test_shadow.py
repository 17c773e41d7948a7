"""`dsp-gym shadow` beside a job on a real Flink with a real Prometheus: policies, modes, faults."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from dsp_gym.cli.errors import USER_ERROR
from dsp_gym.config.files import parse
from dsp_gym.flink.cluster import LocalCluster
from dsp_gym.flink.rest import ENDED
from dsp_gym.flink.settings import ClusterSettings
from dsp_gym.flink.submission import Configuration, Submission, load_arguments
from dsp_gym.job.catalog import load_job
from dsp_gym.live.config import RunConfig
from dsp_gym.loop.journal import read
from dsp_gym.shadow.session import Session, session
from tests.fakes.breakable import BreakableLink
from tests.real_flink import REAL_FLINK, WORD_COUNT, running
from tests.unit.shadow.conftest import ask

pytestmark = REAL_FLINK

COMMAND = (sys.executable, "-c", "from dsp_gym.cli import main; main()")
DS2 = {"policy": "ds2", "params": {"warm_up_s": 0}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    settings = ClusterSettings(
        slots=8, managed_mib=128, task_heap_mib=256, network_mib=64, rest_port=0,
        prometheus_port=0, scrape_interval_s=2, checkpoint_interval_s=2, restart_delay_s=1,
    )  # fmt: skip
    made = LocalCluster.up(settings, tmp_path_factory.mktemp("shadow"))
    yield made
    made.down()


@pytest.fixture(scope="module")
def job_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("jobs") / "words.yaml"
    path.write_text(yaml.safe_dump(WORD_COUNT))
    return path


@pytest.fixture
def submit(cluster, job_file, tmp_path) -> Iterator[Callable[..., str]]:
    """Submits the job under a list of rates; every job is cancelled in the end."""
    spec = load_job(str(job_file))

    def submitted(*rates: float) -> str:
        load = load_arguments(rates, tmp_path / "loads", round(time.time() * 1000))
        return Submission.of_spec(spec, load, "words").submit(
            cluster.rest, Configuration.of_spec(spec)
        )

    yield submitted
    cancel_all(cluster)


def cancel_all(cluster) -> None:
    for job in cluster.rest.jobs():
        if job.state not in ENDED:
            cluster.rest.cancel(job.id)
            cluster.rest.wait_for(job.id, ENDED, 30)


@pytest.fixture
def document(cluster, job_file, tmp_path) -> dict[str, Any]:
    return {
        "job": str(job_file),
        "where": {"home": str(cluster.home.folder)},
        "policies": ["learned", {"name": "ds2", "policy": DS2}, "flink-autoscaler", "incumbent"],
        "acting": "ds2",
        "guardrails": None,
        "interval_s": 5,
        "window": {"window_s": 10, "stabilization_s": 0},
        "journal": str(tmp_path / "journal"),
        "serve": {"port": 0},
    }


def config(document, **given) -> RunConfig:
    return parse(RunConfig, {**document, **given}, "shadow.yaml")


def until(shown: Session, done: Callable[[], bool], turns: int = 20) -> None:
    """Decide until something holds."""
    for _ in range(turns):
        shown.run.turn()
        if done():
            return
    raise AssertionError(f"did not come about in {turns} decisions")


def condition(shown: Session, name: str) -> dict[str, Any]:
    found = ask(f"{shown.server.url}/v1/status").json["conditions"]
    return next(c for c in found if c["type"] == name)


def tasks(cluster, job_file) -> int:
    return running(cluster, load_job(str(job_file)))["flatmap"]


def test_three_policies_watch_and_touch_nothing_then_one_acts(
    cluster, submit, document, job_file, tmp_path
):
    job_id = submit(600.0)  # two and a half tasks of flatmap
    with session(config(document), serve=True, mode="shadow") as shown:
        until(shown, lambda: condition(shown, "DataFresh")["status"] == "True")
        until(shown, lambda: target(shown) >= 3)
        status = ask(f"{shown.server.url}/v1/status").json
        assert set(status["policies"]) == {"learned", "ds2", "flink-autoscaler", "incumbent"}
        assert status["vertices"][1]["current"]["parallelism"] == 1
        assert not any(decision["asked"] for decision in status["decisions"])
        families = {
            family.name: family.samples
            for family in text_string_to_metric_families(ask(f"{shown.server.url}/metrics").text)
        }
        (age,) = families["dsp_gym_data_age_seconds"]
        assert 0 <= age.value < 20
        recommended = {s.labels["policy"] for s in families["dsp_gym_recommended_parallelism"]}
        assert recommended == {"learned", "ds2", "flink-autoscaler"}
    assert cluster.rest.find_job("words").id == job_id
    entries = list(read(tmp_path / "journal" / "words"))
    assert not [e for e in entries if e.kind == "actuation" and e.body.get("asked")]
    per_policy = {
        name: sum(e.kind == "guard" and e.policy == name for e in entries)
        for name in ("learned", "ds2", "flink-autoscaler", "incumbent")
    }
    assert set(per_policy.values()) == {shown.run.turns}
    with session(config(document, mode="active"), serve=True, mode="active") as shown:
        until(shown, lambda: tasks(cluster, job_file) >= 3)
    assert cluster.rest.find_job("words").state == "RUNNING"


def target(shown: Session) -> int:
    vertex = shown.board.document()["vertices"]
    return vertex[1]["policies"]["ds2"]["target"] if vertex else 0


def test_prometheus_gone_flink_in_trouble_and_another_job_id_are_told_and_outlived(
    cluster, submit, document
):
    first = submit(100.0)
    link = BreakableLink(cluster.rest_url)
    where = {"rest_url": link.url, "prometheus_url": cluster.prometheus_url}
    try:
        with session(config(document, where=where), serve=True, mode="shadow") as shown:
            url = shown.server.url
            until(shown, lambda: condition(shown, "DataFresh")["status"] == "True")
            cluster.stop_prometheus()
            try:
                shown.run.turn()
                assert condition(shown, "Ready")["status"] == "False"
                assert "Prometheus" in condition(shown, "DataFresh")["message"]
                assert ask(f"{url}/readyz").status == 503
                assert ask(f"{url}/healthz").status == 200
                assert "dsp_gym_recommended" not in ask(f"{url}/metrics").text
            finally:
                cluster.start_prometheus()
            until(shown, lambda: condition(shown, "DataFresh")["status"] == "True")
            link.fail()
            shown.run.turn()
            assert "500" in condition(shown, "Ready")["message"]
            link.mend()
            cluster.rest.cancel(first)
            cluster.rest.wait_for(first, ENDED, 30)
            shown.run.turn()
            assert "gone" in condition(shown, "Ready")["message"]
            second = submit(100.0)
            until(shown, lambda: condition(shown, "DataFresh")["status"] == "True")
            assert second != first
            errors = ask(f"{url}/metrics").text
            assert 'dsp_gym_api_errors_total{api="prometheus"' in errors
            assert 'dsp_gym_api_errors_total{api="flink"' in errors
    finally:
        link.close()


def test_a_signal_ends_it_whole_and_the_same_folder_goes_on(submit, document, tmp_path):
    submit(100.0)
    file = tmp_path / "shadow.yaml"
    file.write_text(yaml.safe_dump(document))
    line = [*COMMAND, "shadow", str(file)]
    for name in ("SIGTERM", "SIGINT"):
        process = subprocess.Popen(
            line, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
        )
        assert process.stdout is not None
        with process, process.stdout:
            for said in process.stdout:
                if "incumbent" in said and "keeps" in said:
                    process.send_signal(signal.Signals[name])
                    break
            process.stdout.read()
            assert process.wait(30) == 130
    entries = list(read(tmp_path / "journal" / "words"))
    assert [e.seq for e in entries] == list(range(len(entries)))
    assert sum(e.body.get("event") == "started" for e in entries) == 2
    # Whatever was begun is whole: each snapshot has every policy's decision and guard.
    snapshots = sum(e.kind == "snapshot" for e in entries)
    assert sum(e.kind == "guard" for e in entries) == 4 * snapshots


def test_once_is_for_ci_and_bad_input_ends_with_code_2(submit, document, cluster, tmp_path):
    submit(100.0)
    deadline = time.monotonic() + 60
    while (done := command(document, tmp_path, "--once", "--json")).returncode == 3:
        assert time.monotonic() < deadline
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert set(answer["policies"]) == {"learned", "ds2", "flink-autoscaler", "incumbent"}
    other = {**document, "job": "nexmark-q1", "job_name": "words"}
    for wrong, says in (
        (other, "has no vertex"),
        ({**document, "job_name": "sentences"}, "'sentences'"),
        ({**document, "mode": "active"}, "--apply is missing"),
        ({**document, "where": {"rest_url": cluster.rest_url,
                                "prometheus_url": "http://127.0.0.1:9"}}, "127.0.0.1:9"),
    ):  # fmt: skip
        refused = command(wrong, tmp_path, "--once")
        assert refused.returncode == USER_ERROR, refused.stderr
        assert says in refused.stderr
        assert "Traceback" not in refused.stderr


def command(document, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    file = folder / "shadow.yaml"
    file.write_text(yaml.safe_dump(document))
    line = [*COMMAND, "shadow", str(file), *options]
    return subprocess.run(line, capture_output=True, text=True, timeout=120)
