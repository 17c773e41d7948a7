"""A place on Kubernetes: mistakes are reported before the first decision."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dsp_gym.backends.base import Clock
from dsp_gym.backends.kubernetes.config import KubernetesPlace
from dsp_gym.backends.kubernetes.connection import KubernetesBackend, connect
from dsp_gym.config.files import parse
from dsp_gym.control.backend_of import connected
from dsp_gym.control.config import RunConfig
from dsp_gym.errors import DspGymError, FlinkError, KubernetesError
from dsp_gym.loop.protocols import ActuatorStatus
from dsp_gym.metrics.window import WindowConfig
from tests.answering import TASKS, answering, tell
from tests.fakes.kubernetes_api import FakeKubernetes, only_override, only_spec, served_kubernetes
from tests.flink_resources import deployment, stable
from tests.simulating import line, wanted

RIGHTS = {"flinkdeployments": ("get", "list", "watch", "patch"),
          "leases": ("get", "create", "update")}  # fmt: skip


@pytest.fixture
def fake() -> Iterator[FakeKubernetes]:
    with served_kubernetes() as server:
        body = deployment(labels={"team": "ads"})
        server.put(body | {"status": stable(body, job_id="a1")})
        yield server


@pytest.fixture
def flink():
    with answering() as told:
        tell(told, since_ms=round(time.time() * 1000) - 20_000)
        told.answers["/api/v1/query"] = lambda asked: {
            "status": "success", "data": {"resultType": "matrix", "result": []}
        }  # fmt: skip
        yield told


@pytest.fixture
def watch(fake, flink, tmp_path) -> Iterator[Callable[..., KubernetesBackend]]:
    made = []

    def start(verbs: Any = ("get", "list", "watch"), apply: bool = False, **given: Any):
        file = fake.kubeconfig(tmp_path / "config", fake.account("me", verbs))
        where = {"kubeconfig": file, "namespace": "jobs", "prometheus_url": flink.url,
                 "rest_url": flink.url, "timeout_s": 1.0, "watch_s": 1}  # fmt: skip
        if "selector" not in given:
            where["name"] = "words"
        where |= given
        window = WindowConfig(window_s=60, stabilization_s=0)
        place = KubernetesPlace(**where)
        made.append(connect(place, line(), window, apply=apply))
        return made[-1]

    yield start
    for jobs in made:
        jobs.close()


def test_a_job_is_watched_and_nothing_is_asked_of_it(watch, fake):
    jobs = watch()
    seen = jobs.collector.snapshot()
    assert seen.parallelism[0].tolist() == list(TASKS.values())
    assert jobs.actuator is None
    assert jobs.platform.unsettled() is None
    assert [r for r in fake.requests if r.is_write] == []


def test_an_account_that_could_write_is_refused_in_shadow(watch):
    with pytest.raises(KubernetesError, match="must only read") as caught:
        watch(RIGHTS)
    assert "patch FlinkDeployment" in str(caught.value)


def test_rights_that_appear_while_it_watches_end_the_run(watch, fake, monkeypatch):
    monkeypatch.setattr("dsp_gym.backends.kubernetes.access.EVERY_S", 0.05)
    jobs = watch()
    assert jobs.platform.must_end() is None
    fake.accounts["me"]["flinkdeployments/status"] = ("patch",)
    end = time.monotonic() + 10
    while (error := jobs.platform.must_end()) is None:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert "patch FlinkDeployment/status" in str(error)
    assert [r for r in fake.requests if r.is_write] == []


def test_one_that_is_to_act_needs_its_rights(watch):
    with pytest.raises(KubernetesError, match="may not patch, get Lease, create Lease"):
        watch(apply=True)
    assert watch(RIGHTS, apply=True).platform.unsettled() is None


def test_rights_on_the_one_resource_are_enough_and_a_wildcard_for_its_name_is_none(watch):
    named = {"flinkdeployments@words": ("get", "list", "watch", "patch"),
             "leases": ("create",), "leases@dsp-gym-words": ("get", "update")}  # fmt: skip
    assert watch(named, apply=True).platform.unsettled() is None
    wild = {**RIGHTS, "flinkdeployments": ("get", "list", "watch"),
            "flinkdeployments@*": ("patch",)}  # fmt: skip
    with pytest.raises(KubernetesError, match="may not patch FlinkDeployment") as caught:
        watch(wild, apply=True)
    assert "'*' stands for no other name" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": "word"}, "no FlinkDeployment 'word'. Did you mean 'words'"),
        ({"namespace": "other"}, "namespace 'other' has no FlinkDeployment 'words'"),
        ({"selector": "team=shop"}, "the labels team=shop. There are: words"),
        ({"verbs": ()}, "may not get, list, watch FlinkDeployment"),
        ({"prometheus_url": None}, "no Prometheus"),
        ({"prometheus_url": "http://127.0.0.1:9"}, "Prometheus did not answer"),
        ({"context": "production"}, "production"),
    ],
)
def test_what_is_wrong_is_said_at_the_start(watch, given, said):
    with pytest.raises(DspGymError) as caught:
        watch(**given)
    assert re.search(re.escape(said), str(caught.value)), str(caught.value)


def test_resource_definitions_that_are_missing_are_named(fake, watch):
    del fake.resources["flinkdeployments"]
    with pytest.raises(KubernetesError, match="Is the Flink Kubernetes Operator installed there"):
        watch()


def test_a_file_of_another_job_is_refused(fake, flink, watch):
    flink.answers["/jobs/a1"]["vertices"][0]["name"] = "else"
    with pytest.raises(FlinkError, match="no vertex 'source'"):
        watch()


def test_a_job_that_nobody_scrapes_is_refused_once_it_has_run_for_long(flink, watch):
    tell(flink, since_ms=round(time.time() * 1000) - 80_000)
    watch()  # a minute's window is not full yet, and a scrape or two may be missing
    tell(flink, since_ms=round(time.time() * 1000) - 100_000)
    with pytest.raises(FlinkError, match=r"no metrics of job 'words', which has run for 1\d\d s"):
        watch()


def test_acting_is_rehearsed_so_that_what_a_fence_forbids_is_said_at_the_start(fake, watch):
    before = fake.object("FlinkDeployment", "words")
    fake.admission.append(only_override("me"))
    watch(RIGHTS, apply=True)
    assert {r.query.get("dryRun") for r in fake.requests if r.method == "PATCH"} == {"All"}
    assert fake.object("FlinkDeployment", "words")["spec"] == before["spec"]
    arguments = ["--program", "words", "--managed-mib", "map=128"]
    fake.put(deployment(job={**before["spec"]["job"], "args": arguments}))
    watch(RIGHTS, apply=True)
    with pytest.raises(KubernetesError, match="refuses the write of a decision") as caught:
        watch(RIGHTS, apply=True, memory_route="job-arguments")
    assert "memory_route: none" in str(caught.value)


def test_a_job_whose_owner_has_listed_no_vertices_is_told_with_the_command(fake, watch):
    where = fake.resources["flinkdeployments"], "jobs", "words"
    bare = {**fake.object("FlinkDeployment", "words")["metadata"], "annotations": {}}
    fake.store.change(*where, lambda old: {**old, "metadata": bare}, "owner", of_status=False)
    with pytest.raises(KubernetesError, match="does not list source, map, sink") as caught:
        watch(RIGHTS, apply=True)
    listed = "dsp-gym.io/vertices=v-source:1-24,v-map:1-24,v-sink:1-24"
    assert f"kubectl annotate --overwrite --namespace jobs flinkdeployment words {listed}" in str(
        caught.value
    )
    assert [r for r in fake.requests if r.method == "PATCH"] == []
    watch()  # to watch it needs none


def test_a_job_that_an_upgrade_would_empty_is_refused_at_the_start(fake, watch):
    job = fake.object("FlinkDeployment", "words")["spec"]["job"]
    fake.put(deployment(job={**job, "upgradeMode": "stateless"}))
    watch()
    with pytest.raises(KubernetesError, match="an upgrade would lose its state") as caught:
        watch(RIGHTS, apply=True)
    assert "upgradeMode: last-state" in str(caught.value)


def test_an_admission_policy_of_an_earlier_release_is_named_and_nothing_is_written(fake, watch):
    before = fake.object("FlinkDeployment", "words")
    fake.admission.append(only_spec("me"))
    with pytest.raises(KubernetesError, match="older than this release") as caught:
        watch(RIGHTS, apply=True)
    for passed in (
        "a label",
        "dsp-gym.io/stop",
        "1,000,000 tasks",
        "nobody listed",
        "deploy/overlays/active",
    ):
        assert passed in str(caught.value)
    assert fake.object("FlinkDeployment", "words") == before
    fake.admission[:] = [only_override("me")]
    assert watch(RIGHTS, apply=True).actuator is not None


@pytest.mark.slow
def test_a_decision_may_be_as_old_as_the_interval_of_the_run(fake, flink, tmp_path):
    file = fake.kubeconfig(tmp_path / "config", fake.account("me", RIGHTS))
    (tmp_path / "words.yaml").write_text(line().model_dump_json(by_alias=True))
    where = {"kubeconfig": str(file), "namespace": "jobs", "name": "words",
             "prometheus_url": flink.url, "rest_url": flink.url, "watch_s": 1}  # fmt: skip
    document = {"job": str(tmp_path / "words.yaml"), "where": {"kubernetes": where},
                "policies": ["ds2"], "interval_s": 5}  # fmt: skip
    config, told = parse(RunConfig, document, "run.yaml"), []
    backend = connected(
        config, line(), "active", Clock(), lambda kind, body: told.append((kind, body))
    )
    actuator = backend.actuator._actuator  # which the backend counts the requests of
    first, now_s = actuator.lease.try_acquire, [0.0]
    actuator.writer.clock = lambda: now_s[0]

    def then_freeze() -> bool:
        held = first()
        now_s[0] = 5.0
        return held

    actuator.lease.try_acquire = then_freeze
    seen = backend.collector.snapshot()
    actuator.apply(wanted(seen.parallelism + 1, seen.memory_level))
    assert actuator.wait(10)
    backend.close()
    assert actuator.status()[0] == ActuatorStatus.FAILED
    assert "older than its interval" in dict(told)["failed"]["reason"]


def test_a_server_that_is_down_is_said(fake, watch):
    fake.kill()
    with pytest.raises(KubernetesError, match="Does the API server run"):
        watch()


def test_of_several_resources_one_has_to_be_named(fake, watch):
    body = deployment("more", labels={"team": "ads"})
    fake.put(body | {"status": stable(body)})
    with pytest.raises(KubernetesError, match="2 resources: more, words"):
        watch(selector="team=ads")


def test_a_built_in_autoscaler_is_a_reason_not_to_act(fake, watch):
    jobs = watch()
    fake.put(deployment(configuration={"job.autoscaler.enabled": "true"}))
    end = time.monotonic() + 5
    while (reason := jobs.platform.unsettled()) is None or "built-in" not in reason:
        assert time.monotonic() < end, reason
        time.sleep(0.01)
    assert jobs.platform.resource.builtin_autoscaler == "on"
    assert jobs.platform.advice() is None  # its metrics are not scraped
