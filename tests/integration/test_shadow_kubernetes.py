"""Shadow beside a job of the operator: a fake API server over a real Flink and Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dsp_gym.config.files import parse
from dsp_gym.errors import KubernetesError
from dsp_gym.flink.cluster import LocalCluster
from dsp_gym.job.catalog import load_job
from dsp_gym.live.config import RunConfig
from dsp_gym.shadow.session import session
from tests.fakes.kubernetes_api import FakeKubernetes, only_override
from tests.real_flink import (
    REAL_FLINK,
    operated,
    running,
    small_cluster,
    submitting,
    until,
    wait_until_it_runs,
    write_job,
)
from tests.unit.shadow.conftest import ask, condition, has

pytestmark = REAL_FLINK

ACTS = {"flinkdeployments": ("get", "list", "watch", "patch"),
        "leases": ("get", "create", "update"), "events": ("create",)}  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    with small_cluster(tmp_path_factory.mktemp("shadow"), scheduler="adaptive") as made:
        yield made


@pytest.fixture(scope="module")
def job_file(tmp_path_factory) -> Path:
    return write_job(tmp_path_factory.mktemp("jobs"))


@pytest.fixture
def fake(cluster, job_file, tmp_path) -> Iterator[FakeKubernetes]:
    """An API server, an operator, and the deployment of a job that needs three tasks of flatmap."""
    spec = load_job(str(job_file))
    with submitting(cluster, spec, tmp_path) as submit:
        submit(600.0)
        with operated(cluster, spec) as server:
            yield server


@pytest.fixture
def config(cluster, fake, job_file, tmp_path) -> Callable[..., RunConfig]:
    def made(account: Any = None, **given: Any) -> RunConfig:
        token = fake.account("shadow") if account is None else fake.account("acts", account)
        place = {
            "kubeconfig": str(fake.kubeconfig(tmp_path / "config", token)), "namespace": "jobs",
            "name": "words", "prometheus_url": cluster.prometheus_url,
            "rest_url": cluster.rest_url, "timeout_s": 2, "connect_timeout_s": 1, "watch_s": 3,
        }  # fmt: skip
        document = {
            "job": str(job_file),
            "where": {"kubernetes": place},
            "policies": [{"name": "ds2", "policy": {"policy": "ds2", "params": {"warm_up_s": 0}}},
                         "flink-autoscaler", "incumbent"],
            "guardrails": None,
            "max_slots": 8,
            "interval_s": 5,
            "window": {"window_s": 10, "stabilization_s": 0},
            "journal": str(tmp_path / "journal"),
            "serve": {"port": 0},
            **given,
        }  # fmt: skip
        return parse(RunConfig, document, "shadow.yaml")

    return made


def test_in_shadow_nothing_is_written_whatever_the_server_does(config, fake):
    with session(config(), serve=True, mode="shadow") as shown:
        until(shown.run, has(shown, "DataFresh", "True"))
        fake.freeze()
        until(shown.run, has(shown, "Ready", "False"))
        assert "API server" in condition(shown, "Ready")["message"]
        assert ask(f"{shown.server.url}/healthz").status == 200
        fake.thaw()
        until(shown.run, has(shown, "Ready", "True"))
        fake.kill()
        until(shown.run, has(shown, "Ready", "False"))
        fake.restart()
        until(shown.run, has(shown, "Ready", "True"))
        rights = dict(fake.accounts["shadow"])
        fake.accounts["shadow"] = {}
        until(shown.run, has(shown, "Ready", "False"))
        fake.accounts["shadow"] = rights
        until(shown.run, has(shown, "Ready", "True"))
        metrics = ask(f"{shown.server.url}/metrics").text
        assert 'api="kubernetes"' in metrics
        assert 'namespace="jobs"' in metrics
        assert 'reason="Forbidden"' in metrics
    mine = [request for request in fake.requests if request.account == "shadow"]
    assert mine
    assert not [request for request in mine if request.is_write]


def test_an_account_that_could_write_is_refused_in_shadow(config):
    with (
        pytest.raises(KubernetesError, match="must only read"),
        session(config(ACTS), serve=False, mode="shadow"),
    ):
        pass


def test_advice_is_an_event_a_stopped_job_is_left_alone_and_then_one_key_is_written(
    config, fake, cluster, job_file
):
    fake.admission.append(only_override("acts"))
    advising = config(ACTS, mode="advise")
    with session(advising, serve=True, mode="advise") as shown:
        until(shown.run, lambda: bool(fake.objects("Event")))
    note = fake.objects("Event")[0]["note"]
    assert "Scaling execution disabled by config dsp-gym.mode:advise" in note
    assert "Parallelism 1 -> 3" in note
    assert {request.path.rsplit("/", 1)[-1] for request in written(fake)} == {"events"}
    annotate(fake, {"dsp-gym.io/stop": "true"})
    acting = config(ACTS, mode="active")
    with session(acting, serve=True, mode="active") as shown:
        until(shown.run, has(shown, "Paused", "True"))
        assert "dsp-gym.io/stop" in condition(shown, "Paused")["message"]
        until(shown.run, lambda: shown.board.turn.changes)
        assert not shown.board.turn.asked
        assert not patches(fake)
        annotate(fake, {})
        until(shown.run, lambda: bool(patches(fake)))
        until(shown.run, lambda: tasks(cluster, job_file) >= 3)
    wait_until_it_runs(cluster)


def written(fake: FakeKubernetes) -> list[Any]:
    return [request for request in fake.writes() if request.account == "acts"]


def patches(fake: FakeKubernetes) -> list[Any]:
    return [request for request in written(fake) if request.method == "PATCH"]


def annotate(fake: FakeKubernetes, annotations: dict[str, str]) -> None:
    resource = next(one for one in fake.resources.values() if one.kind == "FlinkDeployment")

    def change(old: dict[str, Any]) -> dict[str, Any]:
        return {**old, "metadata": old["metadata"] | {"annotations": annotations}}

    fake.store.change(resource, "jobs", "words", change, "admin", of_status=False)


def tasks(cluster: LocalCluster, job_file: Path) -> int:
    return running(cluster, load_job(str(job_file)))["flatmap"]
