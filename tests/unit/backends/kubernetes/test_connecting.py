"""Places that name no server, and impossible settings."""

from __future__ import annotations

import socket
import threading

import pytest
import yaml

from dsp_gym.backends.kubernetes.api import KubernetesApi
from dsp_gym.backends.kubernetes.config import KubernetesPlace
from dsp_gym.config.files import parse
from dsp_gym.errors import ConfigError, KubernetesError, MissingExtraError
from tests.fakes.kubernetes_api import FakeKubernetes


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "give the name of one resource, or a selector"),
        ({"name": "a", "selector": "team=ads"}, "give the name of one resource, or a selector"),
        ({"selector": "team=ads=shop"}, "'team=ads=shop' is no requirement"),
        ({"selector": "team in ads"}, "no requirement"),
        ({"selector": "a,,b"}, "no requirement"),
        ({"name": "Words_1"}, "name"),
        ({"name": "a", "namespace": "My Jobs"}, "namespace"),
        ({"name": "a", "prometheus_url": "prometheus:9090"}, "http"),
        ({"name": "a", "timeout_s": 0}, "timeout_s"),
        ({"name": "a", "kind": "Deployment"}, "kind"),
    ],
)
def test_a_place_that_cannot_be_is_told(given, said):
    with pytest.raises(ConfigError, match=said):
        parse(KubernetesPlace, given, "run.yaml")


@pytest.mark.parametrize(
    "selector",
    ["team=ads", "team==ads,tier!=test", "a in (b, c),!d", "example.com/team", "a notin (b)", "a="],
)
def test_selectors_of_kubernetes_are_taken(selector):
    assert KubernetesPlace(selector=selector).selector == selector


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path):
    place = KubernetesPlace(kubeconfig=tmp_path / "none", name="words")
    with pytest.raises(KubernetesError, match="no such file") as caught:
        KubernetesApi.connect(place)
    assert str(tmp_path / "none") in str(caught.value)


@pytest.mark.parametrize("text", ["", "not: [yaml", "[]", "kind: Config"])
def test_a_kubeconfig_that_is_none_is_named(tmp_path, text):
    (tmp_path / "config").write_text(text)
    with pytest.raises(KubernetesError) as caught:
        KubernetesApi.connect(KubernetesPlace(kubeconfig=tmp_path / "config", name="words"))
    assert caught.value.reason == "Invalid"
    assert str(tmp_path / "config") in str(caught.value)


def test_a_context_that_is_not_there_is_named(tmp_path):
    fake = FakeKubernetes()
    file = fake.kubeconfig(tmp_path / "config", "token")
    place = KubernetesPlace(kubeconfig=file, context="production", name="words")
    with pytest.raises(KubernetesError, match="production"):
        KubernetesApi.connect(place)


def test_another_program_at_the_address_is_told(tmp_path):
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        near, _ = listener.accept()
        with near:
            near.recv(65536)
            near.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")

    thread = threading.Thread(target=answer)
    thread.start()
    fake = FakeKubernetes()
    file = fake.kubeconfig(tmp_path / "config", "token")
    document = yaml.safe_load(file.read_text())
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    document["clusters"][0]["cluster"]["server"] = url
    file.write_text(yaml.safe_dump(document))
    api = KubernetesApi.connect(KubernetesPlace(kubeconfig=file, name="words"))
    with pytest.raises(KubernetesError, match="Another program listens there"):
        api.get("FlinkDeployment", "jobs", "words")
    thread.join()
    listener.close()


def test_in_a_pod_its_service_account_is_taken(tmp_path, monkeypatch):
    (tmp_path / "token").write_text("one\n")
    (tmp_path / "ca.crt").write_text("")
    monkeypatch.setattr("dsp_gym.backends.kubernetes.api.SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    api = KubernetesApi.connect(KubernetesPlace(name="words"))
    assert api.url == "https://[fd00::1]:443"
    assert api.signature() == {"authorization": "Bearer one"}
    (tmp_path / "token").write_text("another")
    assert api.signature() == {"authorization": "Bearer another"}


def test_the_client_that_is_missing_is_named(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(MissingExtraError, match=r"dsp-gym\[kubernetes\]"):
        KubernetesApi.connect(KubernetesPlace(name="words"))
