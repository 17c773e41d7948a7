"""Shadow beside a job of the operator: a fake API server over a real Flink and Prometheus."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dsp_gym.backends.base import Clock
from dsp_gym.backends.flink.local.cluster import LocalCluster
from dsp_gym.backends.flink.local.processes import wait_until
from dsp_gym.backends.kubernetes.overrides import Override
from dsp_gym.backends.kubernetes.resources import VERTICES
from dsp_gym.config.files import parse
from dsp_gym.control.config import RunConfig
from dsp_gym.control.serve.fleet import fleet
from dsp_gym.control.serve.session import Session, session
from dsp_gym.errors import KubernetesError
from dsp_gym.job.catalog import load_job
from dsp_gym.records.journal import read
from tests.fakes.flink_operator import FlinkOperator, RealJob
from tests.fakes.kubernetes_api import FakeKubernetes, only_override
from tests.fakes.prometheus_link import FAULTS, PrometheusLink, linked_to
from tests.flink_resources import deployment
from tests.real_flink import (
    PATIENCE_S,
    QUICK_DS2,
    QUICK_TO_RESCALE,
    REAL_FLINK,
    at_once,
    operated,
    running,
    signalled,
    small_cluster,
    submitting,
    until,
    wait_until_it_runs,
    write_job,
)
from tests.unit.control.serve.conftest import ask, condition, has

pytestmark = REAL_FLINK

ACTS = {"flinkdeployments": ("get", "list", "watch", "patch"),
        "leases": ("get", "create", "update"), "events": ("create",)}  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    with small_cluster(tmp_path_factory.mktemp("shadow"), **QUICK_TO_RESCALE) as made:
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
    def made(account: Any = None, at: Any = None, **given: Any) -> RunConfig:
        token = fake.account("shadow") if account is None else fake.account("acts", account)
        place = {
            "kubeconfig": str(fake.kubeconfig(tmp_path / "config", token)), "namespace": "jobs",
            "name": "words", "prometheus_url": cluster.prometheus_url,
            "rest_url": cluster.rest_url, "timeout_s": 2, "connect_timeout_s": 1, "watch_s": 1,
            **(at or {}),
        }  # fmt: skip
        document = {
            "job": str(job_file),
            "where": {"kubernetes": place},
            "policies": [{"name": "ds2", "policy": QUICK_DS2}, "flink-autoscaler", "incumbent"],
            "guardrails": None,
            "max_slots": 8,
            "interval_s": 5,
            "window": {"window_s": 10, "stabilization_s": 0},
            "journal": str(tmp_path / "journal"),
            "serve": {"port": 0, "public": True},
            **given,
        }  # fmt: skip
        return at_once(parse(RunConfig, document, "shadow.yaml"))

    return made


def test_in_shadow_nothing_is_written_whatever_the_server_does(config, fake):
    with session(config(), serve=True, mode="shadow") as shown:
        until(shown.run, has(shown, "DataFresh", "True"))
        fake.freeze()
        until(shown.run, has(shown, "Ready", "False"))
        assert "API server" in condition(shown, "Ready")["message"]
        assert ask(f"{shown.server.probe_url}/healthz").status == 200
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


@pytest.mark.validate
def test_whatever_goes_wrong_it_is_told_nothing_wrong_is_written_and_it_goes_on(
    config, fake, cluster, job_file, tmp_path, limited_files
):
    static = {"policy": "static", "params": {"parallelism": {"flatmap": 3}}}
    offset_s = [0.0]
    files = {name: tmp_path / name for name in ("shadow", "acts")}
    tokens = {"shadow": fake.account("shadow"), "acts": fake.account("acts", ACTS)}
    for name, file in files.items():
        file.write_text(tokens[name])

    def started(name: str, mode: str, journal: str, link: PrometheusLink) -> Any:
        kubeconfig = fake.kubeconfig(tmp_path / journal, "", token_file=files[name])
        return session(
            config(
                policies=[{"name": "three", "policy": static}, "incumbent"],
                at={"kubeconfig": str(kubeconfig), "prometheus_url": link.url, "watch_s": 1,
                    "lease_s": 6},
                mode=mode, journal=str(tmp_path / "journals" / journal),
            ),
            serve=True, mode=mode, clock=Clock(lambda: time.time() + offset_s[0]),
        )  # fmt: skip

    with (
        linked_to(cluster.prometheus_url, late_s=3.0, vertex="flatmap") as link,
        started("shadow", "shadow", "watching", link) as shadow,
        ExitStack() as later,
        ExitStack() as first,
    ):

        def sees_fresh_data() -> bool:
            shadow.run.decide()
            return condition(shadow, "DataFresh")["status"] == "True"

        soon(lambda: shadow.run.decide().held is None)
        soon(sees_fresh_data)
        link.fault = "stale"  # silence of a job that has only just begun is nothing to be told
        soon(lambda: shadow.run.decide().held is not None)
        active = first.enter_context(started("acts", "active", "first", link))

        def nothing_is_asked() -> None:
            """Of one who would change the job at once, and of one who only watches."""
            for shown in (active, shadow):
                turn = shown.run.decide()
                assert turn.held is not None, link.fault
                assert not turn.asked

        for link.fault in FAULTS:
            nothing_is_asked()
            assert condition(shadow, "DataFresh")["status"] == "False"
        link.fault = None
        for offset_s[0] in (-100.0, 100.0, 0.0):  # the last one is a step back, too
            nothing_is_asked()
        shadow.run.decide()
        assert condition(shadow, "DataFresh")["status"] == "True"
        for code in ("collector", "clock"):
            assert f'dsp_gym_held_total{{job="words",namespace="jobs",reason="{code}"}}' in told(
                shadow
            )
        for reason in ("Timeout", "NoMetrics", "Other"):
            assert f'api="prometheus",job="words",namespace="jobs",reason="{reason}"' in told(
                shadow
            )

        new = {name: fake.rotate(token) for name, token in tokens.items()}
        soon(lambda: 'reason="Unauthorized"' in told(shadow))
        turn = active.run.decide()  # asks, and the write is refused
        for name, token in new.items():
            files[name].write_text(token)
        soon(lambda: shadow.run.backend.platform.watcher.trouble is None)
        shadow.run.decide()
        assert condition(shadow, "Ready")["status"] == "True"

        limited_files(1000)
        shadow.run.decide()
        assert condition(shadow, "Journaling")["status"] == "False"
        stopped = 'dsp_gym_condition{condition="Journaling",job="words",namespace="jobs"} 0.0'
        assert stopped in told(shadow)
        limited_files(None)
        shadow.run.decide()
        assert condition(shadow, "Journaling")["status"] == "True"

        assert not patches(fake), turn
        second = later.enter_context(started("acts", "active", "second", link))
        assert second.run.decide().held_code == "standby"
        assert not patches(fake)
        soon(lambda: acted(active, fake))
        soon(lambda: tasks(cluster, job_file) >= 3)
        assert len(patches(fake)) == 1
        holder = lease_holder(fake)
        first.close()  # gives the lease up, and the other takes it
        soon(lambda: lease_holder(fake) not in ("", holder))
        second.run.decide()
        assert len(patches(fake)) == 1  # what runs is what it wants
    mine = [request for request in fake.requests if request.account == "shadow"]
    assert mine
    assert not [request for request in mine if request.is_write]
    wait_until_it_runs(cluster)


def acted(shown: Session, fake: FakeKubernetes) -> bool:
    shown.run.decide()
    return bool(patches(fake))


def told(shown: Session) -> str:
    return ask(f"{shown.server.url}/metrics").text


def soon(holds: Callable[[], bool]) -> None:
    assert wait_until(holds, PATIENCE_S, 0.2)


def lease_holder(fake: FakeKubernetes) -> str:
    (lease,) = fake.objects("Lease")
    return str(lease["spec"]["holderIdentity"])


def test_a_signal_in_the_middle_of_a_write_leaves_it_whole(
    config, fake, cluster, job_file, tmp_path
):
    static = {"policy": "static", "params": {"parallelism": {"flatmap": 3}}}
    given = config(ACTS, policies=[{"name": "three", "policy": static}], mode="active")
    document = given.model_dump(mode="json", by_alias=True, exclude_unset=True)
    document["interval_s"] = 10  # an older decision is not written

    def slow_from_now_on() -> None:
        while not any(r.path.endswith("/leases/dsp-gym-words") for r in fake.requests):
            time.sleep(0.01)
        fake.delay_s = 0.3  # every call: two for the lease, a look, another, and the write

    thread = threading.Thread(target=slow_from_now_on)
    thread.start()
    code, _ = signalled("shadow", document, tmp_path, "--apply", name="SIGTERM", at="changes")
    thread.join()
    fake.delay_s = 0.0
    assert code == 130
    (patch,) = patches(fake)
    assert patch.code == 200
    assert lease_holder(fake) == ""
    configuration = fake.object("FlinkDeployment", "words")["spec"]["flinkConfiguration"]
    override = Override.of(configuration)
    assert sorted(override.values.values()) == [1, 1, 3]
    entries = list(read(tmp_path / "journal" / "words"))
    assert [e.seq for e in entries] == list(range(len(entries)))
    assert any(e.body.get("event") == "submitted" for e in entries)
    soon(lambda: tasks(cluster, job_file) >= 3)
    wait_until_it_runs(cluster)


def test_two_jobs_with_the_same_labels_are_watched_by_one_process(
    config, fake, cluster, job_file, tmp_path
):
    spec = load_job(str(job_file))
    stop = threading.Event()
    with submitting(cluster, spec, tmp_path) as submit:
        submit(100.0, name="more")
        job = RealJob(cluster.rest, "more", spec)
        for name in ("words", "more"):
            fake.put(deployment(name, labels={"team": "ads"}))
        given = config(at={"name": None, "selector": "team=ads", "watch_s": 1})
        with FlinkOperator(fake, "more", job), \
                fleet(given, serve=True, mode="shadow", stop=stop) as shown:  # fmt: skip
            thread = threading.Thread(target=shown.run)
            thread.start()
            url = shown.server.url
            soon(lambda: {"words", "more"} == {
                job["job"] for job in ask(f"{url}/v1/jobs").json["jobs"]
                if job.get("conditions", {}).get("DataFresh") == "True"
            })  # fmt: skip
            wanted = {
                name: ask(f"{url}/v1/status?job={name}").json["vertices"][1]["policies"]["ds2"]
                for name in ("words", "more")
            }
            assert wanted["words"]["target"] >= 3
            assert wanted["more"]["target"] == 1
            fake.put(deployment("more", labels={"team": "shop"}))
            soon(lambda: [j["job"] for j in ask(f"{url}/v1/jobs").json["jobs"]] == ["words"])
            stop.set()
            thread.join()
        job.close()
    for name in ("words", "more"):
        assert {entry.job for entry in read(tmp_path / "journal" / name)} == {name}
    assert not [request for request in fake.requests
                if request.account == "shadow" and request.is_write]  # fmt: skip


def written(fake: FakeKubernetes) -> list[Any]:
    return [request for request in fake.writes() if request.account == "acts"]


def patches(fake: FakeKubernetes) -> list[Any]:
    """Those that were to change a spec: what is rehearsed at a start does not, nor does a stamp."""
    return [
        request
        for request in written(fake)
        if request.method == "PATCH"
        and request.query.get("dryRun") != "All"
        and "spec" in request.parts
    ]


def annotate(fake: FakeKubernetes, annotations: dict[str, str]) -> None:
    resource = next(one for one in fake.resources.values() if one.kind == "FlinkDeployment")

    def change(old: dict[str, Any]) -> dict[str, Any]:
        listed = {VERTICES: old["metadata"]["annotations"][VERTICES]}
        return {**old, "metadata": old["metadata"] | {"annotations": listed | annotations}}

    fake.store.change(resource, "jobs", "words", change, "admin", of_status=False)


def tasks(cluster: LocalCluster, job_file: Path) -> int:
    return running(cluster, load_job(str(job_file)))["flatmap"]
