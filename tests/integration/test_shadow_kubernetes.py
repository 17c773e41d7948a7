"""Shadow beside a job of the operator: a fake API server over a real Flink and Prometheus."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from dsp_gym.config.files import parse
from dsp_gym.errors import KubernetesError
from dsp_gym.flink.cluster import LocalCluster
from dsp_gym.flink.rest import ENDED
from dsp_gym.flink.settings import ClusterSettings
from dsp_gym.flink.submission import Configuration, Submission
from dsp_gym.job.catalog import load_job
from dsp_gym.live.config import RunConfig
from dsp_gym.shadow.session import Session, session
from tests.fakes.flink_operator import FlinkOperator, RealJob
from tests.fakes.kubernetes_api import FakeKubernetes, only_override, served_kubernetes
from tests.flink_resources import deployment
from tests.real_flink import REAL_FLINK, WORD_COUNT, running
from tests.unit.shadow.conftest import ask

pytestmark = REAL_FLINK

ACTS = {"flinkdeployments": ("get", "list", "watch", "patch"),
        "leases": ("get", "create", "update"), "events": ("create",)}  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    settings = ClusterSettings(
        slots=8, managed_mib=128, task_heap_mib=256, network_mib=64, rest_port=0,
        prometheus_port=0, scrape_interval_s=2, scheduler="adaptive",
    )  # fmt: skip
    made = LocalCluster.up(settings, tmp_path_factory.mktemp("shadow"))
    yield made
    made.down()


@pytest.fixture(scope="module")
def job_file(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("jobs") / "words.yaml"
    path.write_text(yaml.safe_dump(WORD_COUNT))
    return str(path)


@pytest.fixture
def fake(cluster, job_file) -> Iterator[FakeKubernetes]:
    """An API server, an operator, and the deployment of a job that needs three tasks of flatmap."""
    spec = load_job(job_file)
    job_id = Submission.of_spec(spec, {"rate": "600"}, "words").submit(
        cluster.rest, Configuration.of_spec(spec)
    )
    job = RealJob(cluster.rest, "words", spec)
    with served_kubernetes() as server:
        server.put(deployment("words"))
        with FlinkOperator(server, "words", job):
            yield server
        job.close()
    cluster.rest.cancel(job_id)
    cluster.rest.wait_for(job_id, ENDED, 30)


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
            "job": job_file,
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


def until(shown: Session, done: Callable[[], bool], turns: int = 20) -> None:
    for _ in range(turns):
        shown.run.turn()
        if done():
            return
    raise AssertionError(f"did not come about in {turns} decisions: {shown.board.document()}")


def condition(shown: Session, name: str) -> dict[str, Any]:
    found = ask(f"{shown.server.url}/v1/status").json["conditions"]
    return next(c for c in found if c["type"] == name)


def is_(shown: Session, name: str, status: str) -> Callable[[], bool]:
    return lambda: condition(shown, name)["status"] == status


def test_in_shadow_nothing_is_written_whatever_the_server_does(config, fake):
    with session(config(), serve=True, mode="shadow") as shown:
        until(shown, is_(shown, "DataFresh", "True"))
        fake.freeze()
        until(shown, is_(shown, "Ready", "False"))
        assert "API server" in condition(shown, "Ready")["message"]
        assert ask(f"{shown.server.url}/healthz").status == 200
        fake.thaw()
        until(shown, is_(shown, "Ready", "True"))
        fake.kill()
        until(shown, is_(shown, "Ready", "False"))
        fake.restart()
        until(shown, is_(shown, "Ready", "True"))
        rights = dict(fake.accounts["shadow"])
        fake.accounts["shadow"] = {}
        until(shown, is_(shown, "Ready", "False"))
        fake.accounts["shadow"] = rights
        until(shown, is_(shown, "Ready", "True"))
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
        until(shown, lambda: bool(fake.objects("Event")))
    note = fake.objects("Event")[0]["note"]
    assert "Scaling execution disabled by config dsp-gym.mode:advise" in note
    assert "Parallelism 1 -> 3" in note
    assert {request.path.rsplit("/", 1)[-1] for request in written(fake)} == {"events"}
    annotate(fake, {"dsp-gym.io/stop": "true"})
    acting = config(ACTS, mode="active")
    with session(acting, serve=True, mode="active") as shown:
        until(shown, is_(shown, "Paused", "True"))
        assert "dsp-gym.io/stop" in condition(shown, "Paused")["message"]
        until(shown, lambda: shown.board.turn.changes)
        assert not shown.board.turn.asked
        assert not patches(fake)
        annotate(fake, {})
        until(shown, lambda: bool(patches(fake)))
        until(shown, lambda: tasks(cluster, job_file) >= 3)
    assert cluster.rest.find_job("words").state == "RUNNING"


def written(fake: FakeKubernetes) -> list[Any]:
    return [request for request in fake.writes() if request.account == "acts"]


def patches(fake: FakeKubernetes) -> list[Any]:
    return [request for request in written(fake) if request.method == "PATCH"]


def annotate(fake: FakeKubernetes, annotations: dict[str, str]) -> None:
    resource = next(one for one in fake.resources.values() if one.kind == "FlinkDeployment")

    def change(old: dict[str, Any]) -> dict[str, Any]:
        return {**old, "metadata": old["metadata"] | {"annotations": annotations}}

    fake.store.change(resource, "jobs", "words", change, "admin", of_status=False)
    time.sleep(0.5)


def tasks(cluster: LocalCluster, job_file: str) -> int:
    return running(cluster, load_job(job_file))["flatmap"]
