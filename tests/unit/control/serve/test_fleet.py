"""Loops beside every job whose resource has certain labels: selection and reports."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import ValidationError

from dsp_gym.backends.kubernetes.config import KubernetesPlace
from dsp_gym.config.files import parse
from dsp_gym.control.config import RunConfig
from dsp_gym.control.serve.fleet import Fleet, fleet
from dsp_gym.control.turn import Hooks
from dsp_gym.errors import ConfigError, DspGymError, KubernetesError
from dsp_gym.records.journal import read
from tests.answering import TASKS, answering, tell
from tests.fakes.kubernetes_api import FakeKubernetes, served_kubernetes
from tests.flink_resources import deployment, stable
from tests.simulating import line
from tests.unit.control.serve.conftest import ask

ADS = {"team": "ads"}


@pytest.fixture
def fake() -> Iterator[FakeKubernetes]:
    with served_kubernetes() as server:
        yield server


@pytest.fixture
def flinks():
    """A Flink for each job, under its name, and a Prometheus that knows nothing yet."""
    with answering() as told:
        told.answers["/api/v1/query"] = lambda asked: {
            "status": "success", "data": {"resultType": "matrix", "result": []}
        }  # fmt: skip
        yield told


@pytest.fixture
def put(fake, flinks) -> Callable[..., None]:
    """A deployment with a job of its own, which has only just begun."""

    def made(name: str, labels: dict[str, str] = ADS, **spec: Any) -> None:
        with answering() as own:
            tell(own, name, since_ms=round(time.time() * 1000) - 5_000)
            flinks.answers |= {f"/{name}{path}": told for path, told in own.answers.items()}
        body = deployment(name, labels=labels, **spec)
        body["spec"] = {key: value for key, value in body["spec"].items() if value is not None}
        fake.put(body | {"status": stable(body, job_id=name)})

    return made


@pytest.fixture
def config(fake, flinks, tmp_path) -> Callable[..., RunConfig]:
    def made(**given: Any) -> RunConfig:
        where = {
            "kubeconfig": str(fake.kubeconfig(tmp_path / "config", fake.account("shadow"))),
            "namespace": "jobs", "selector": "team=ads", "prometheus_url": flinks.url,
            "rest_url": f"{flinks.url}/{{name}}", "timeout_s": 2, "watch_s": 1,
        }  # fmt: skip
        document = {
            "job": str(tmp_path / "{name}.yaml"), "where": {"kubernetes": where},
            "policies": ["ds2", "incumbent"], "guardrails": None, "interval_s": 5,
            "journal": str(tmp_path / "journal"), "serve": {"port": 0, "public": True}, **given,
        }  # fmt: skip
        return parse(RunConfig, document, "shadow.yaml")

    return made


@pytest.fixture
def job_file(tmp_path) -> Callable[[str], None]:
    text = line().model_dump_json(by_alias=True, exclude_defaults=True)
    return lambda name: (tmp_path / f"{name}.yaml").write_text(text)


@pytest.fixture
def running(config) -> Iterator[Callable[..., Fleet]]:
    """Starts fleets in threads; all are ended."""
    with ExitStack() as stack:

        def start(**given: Any) -> Fleet:
            stop = threading.Event()
            made = stack.enter_context(fleet(config(**given), serve=True, mode="shadow", stop=stop))
            thread = threading.Thread(target=made.run)
            thread.start()
            stack.callback(thread.join)
            stack.callback(stop.set)
            return made

        yield start


def jobs(shown: Fleet) -> dict[str, dict[str, Any]]:
    return {job["job"]: job for job in ask(f"{shown.server.url}/v1/jobs").json["jobs"]}


def until(holds: Callable[[], Any]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def decided(shown: Fleet, *names: str) -> Callable[[], bool]:
    return lambda: [n for n, job in jobs(shown).items() if job.get("decisions_made")] == list(names)


@pytest.mark.slow
def test_every_job_with_the_labels_is_watched_and_so_are_those_that_come_and_go(
    put, job_file, running, fake, tmp_path
):
    for name in ("orders", "views", "clicks"):
        job_file(name)
    put("orders")
    put("views")
    put("sales", {"team": "shop"})
    put("cluster", job=None)  # a session cluster: its jobs are other resources
    shown = running()
    until(decided(shown, "orders", "views"))
    url = shown.server.url
    assert ask(f"{shown.server.probe_url}/healthz").status == 200
    assert ask(f"{shown.server.probe_url}/readyz").status == 200
    assert ask(f"{url}/v1/status?job=views").json["job"] == "views"
    current = ask(f"{url}/v1/status?job=orders").json["vertices"][1]["current"]
    assert current["parallelism"] == TASKS["map"]
    unnamed = ask(f"{url}/v1/status")
    assert unnamed.status == 400
    assert "orders, views" in unnamed.json["error"]
    assert ask(f"{url}/v1/status?job=order").status == 404
    families = list(text_string_to_metric_families(ask(f"{url}/metrics").text))
    assert len({family.name for family in families}) == len(families)
    mode = next(f for f in families if f.name == "dsp_gym_mode").samples
    assert {(s.labels["namespace"], s.labels["job"]) for s in mode} == {
        ("jobs", "orders"), ("jobs", "views"),
    }  # fmt: skip
    put("clicks")
    until(decided(shown, "clicks", "orders", "views"))
    fake.delete("FlinkDeployment", "orders")
    put("views", {"team": "shop"})
    until(decided(shown, "clicks"))
    shown.stop.set()
    until(lambda: not shown.boards.all())
    for name in ("orders", "views", "clicks"):
        entries = list(read(tmp_path / "journal" / name))
        assert {entry.job for entry in entries} == {name}
        assert [entry.seq for entry in entries] == list(range(len(entries)))
    assert not fake.writes()


def test_an_account_that_may_write_meanwhile_ends_all_loops(
    put, job_file, config, fake, monkeypatch
):
    monkeypatch.setattr("dsp_gym.backends.kubernetes.access.EVERY_S", 0.1)
    job_file("orders")
    put("orders")
    with fleet(config(), serve=False, mode="shadow") as shown:
        granting = threading.Timer(0.3, fake.accounts["shadow"].update, [{
            "flinkdeployments@orders": ("patch",),
        }])  # fmt: skip
        granting.start()
        with pytest.raises(KubernetesError, match="patch FlinkDeployment 'orders'"):
            shown.run()
        granting.join()
    assert not fake.writes()


@pytest.mark.slow
def test_a_job_that_cannot_be_watched_is_told_and_tried_again_while_others_go_on(
    put, job_file, running
):
    job_file("orders")
    put("orders")
    put("views")  # nobody has written its job file yet
    shown = running()
    until(decided(shown, "orders"))
    until(lambda: "views" in jobs(shown))
    assert not jobs(shown)["views"]["watched"]
    assert "views.yaml" in jobs(shown)["views"]["held"]
    assert ask(f"{shown.server.probe_url}/readyz").text.startswith("1 of 2 jobs are seen")
    metrics = ask(f"{shown.server.url}/metrics").text
    assert 'dsp_gym_condition{condition="Ready",job="views",namespace="jobs"} 0.0' in metrics
    assert 'dsp_gym_held_total{job="views",namespace="jobs",reason="start"} 1.0' in metrics
    missing = ask(f"{shown.server.url}/v1/status?job=views")
    assert missing.status == 404
    assert "views.yaml" in missing.json["error"]
    job_file("views")
    until(decided(shown, "orders", "views"))


def test_where_none_can_be_watched_the_start_is_refused(put, config, fake):
    put("orders")
    with fleet(config(), serve=False, mode="shadow") as made, pytest.raises(ConfigError) as caught:
        made.run()
    assert "orders.yaml" in str(caught.value)
    nobody = config()
    fake.delete("FlinkDeployment", "orders")
    with pytest.raises(KubernetesError, match="the labels team=ads"), \
            fleet(nobody, serve=False, mode="shadow"):  # fmt: skip
        pass


def test_an_account_that_could_write_is_refused_for_all(put, config, fake, tmp_path):
    put("orders")
    file = tmp_path / "writes"
    token = fake.account("writes", ("get", "list", "watch", "patch"))
    where = {"kubernetes": {**config().where.kubernetes.model_dump(mode="json"),
                            "kubeconfig": str(fake.kubeconfig(file, token))}}  # fmt: skip
    with pytest.raises(DspGymError, match="must only read"), \
            fleet(config(where=where), serve=False, mode="shadow"):  # fmt: skip
        pass


def test_each_loop_may_end_after_its_decisions(put, job_file, config):
    told: list[tuple[str, int]] = []
    for name in ("orders", "views"):
        job_file(name)
        put(name)
    with fleet(
        config(), serve=False, mode="shadow",
        hooks_of=lambda job: Hooks(lambda turn: told.append((job, turn.number))),
    ) as made:  # fmt: skip
        made.run(steps=1)
    assert sorted(told) == [("orders", 1), ("views", 1)]


def test_a_listener_that_fails_ends_no_loop(put, job_file, config, caplog):
    def full(*what):
        raise OSError(28, "No space left on device")

    job_file("orders")
    put("orders")
    hooks = Hooks(on_decision=full, on_turn=full, on_event=full)
    with fleet(config(), serve=False, mode="shadow", hooks_of=lambda job: hooks) as made:
        made.run(steps=2)
        assert made.boards.troubles() == {}
    assert "could not be passed on" in caplog.text


def test_one_lease_cannot_serve_several_resources():
    with pytest.raises(ValidationError, match="its own lease"):
        KubernetesPlace(selector="team=ads", lease="one")


@pytest.mark.slow
def test_the_document_of_jobs_is_json(put, job_file, running):
    job_file("orders")
    put("orders")
    shown = running()
    until(decided(shown, "orders"))
    assert json.loads(json.dumps(shown.boards.document()))["schema"] == "dsp-gym/jobs/1"
    assert ask(f"{shown.server.url}/v1/status").json["job"] == "orders"  # the only one
