"""Accounts, certificates and proxies: read from files, again when they change, each named."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from dsp_gym.backends.flink.prometheus import PrometheusSamples
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.backends.kubernetes.api import KubernetesApi
from dsp_gym.backends.kubernetes.config import KubernetesPlace
from dsp_gym.backends.upstream.access import AccessConfig, access_of
from dsp_gym.config.files import parse
from dsp_gym.errors import ConfigError, FlinkError, KubernetesError
from tests.hanging import hanging
from tests.secured import Authority, front
from tests.simulating import line

EMPTY = b'{"status": "success", "data": {"resultType": "matrix", "result": []}, "jobs": []}'
KEYS = {"flink": "rest_account", "prometheus": "prometheus_account"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(authority):
    return authority.issue("server")


@pytest.fixture(scope="module")
def behind():
    with hanging("fine", EMPTY) as url:
        yield url


@pytest.fixture(params=["flink", "prometheus"])
def kind(request):
    return request.param


def client(kind, url, access=None):
    """What asks a server of a kind once."""
    if kind == "flink":
        return FlinkRest(url, 5.0, access).jobs
    job = SimpleNamespace(names=("a",), ids=("a1",), job_id="a1")
    source = PrometheusSamples(url, job, line(), 5.0, access)
    return lambda: list(source.samples(0.0, 100.0).rows())


def written(file, text):
    file.write_text(text)
    file.chmod(0o600)
    return file


def test_an_authority_of_ones_own_an_account_and_a_client_certificate(
    kind, authority, server, behind, tmp_path
):
    account = written(tmp_path / "account", "t0ken-of-the-account\n")
    cert, key = authority.issue("client")
    with front(behind, server, clients_of=authority.file) as told:
        told.token = "t0ken-of-the-account"
        access = AccessConfig(file=account, ca_file=authority.file, cert_file=cert, key_file=key)
        ask = client(kind, told.url, access)
        assert list(ask()) == list(ask()) == []
        with pytest.raises(FlinkError, match=r"no authority that is known.*ca_file") as stranger:
            client(kind, told.url)()
        assert told.url in str(stranger.value)
        assert KEYS[kind] in str(stranger.value)
        with pytest.raises(FlinkError, match=r"certificate|broke|reset|close|EOF"):
            client(kind, told.url, AccessConfig(file=account, ca_file=authority.file))()


def test_a_token_that_is_replaced_is_read_at_once_and_a_refused_one_is_named(
    kind, authority, server, behind, tmp_path
):
    account = written(tmp_path / "account", "first-token")
    with front(behind, server) as told:
        told.token = "first-token"
        ask = client(kind, told.url, AccessConfig(file=account, ca_file=authority.file))
        ask()
        told.token = "second-token"
        written(account, "second-token")
        ask()
        assert told.refused == 0  # it was not even asked with the old one
        told.token = "third--token"
        stat = account.stat()
        account.write_text("third--token")  # of the same length, within the same tick of the clock
        os.utime(account, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        ask()
        assert told.refused == 1
        told.token = "fourth-token"
        with pytest.raises(FlinkError, match=r"401.*token has expired") as refused:
            ask()
        assert refused.value.reason == "Unauthorized"
        assert f"Write a new token into the file that {KEYS[kind]}" in str(refused.value)
        account.unlink()
        with pytest.raises(FlinkError, match="is not there"):
            ask()
        written(account, "fourth-token")
        ask()


def test_certificates_that_are_replaced_are_read_again(kind, tmp_path, behind):
    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    ca_file = tmp_path / "ca.pem"
    ca_file.write_bytes(old.file.read_bytes())
    with front(behind, old.issue("server")) as first:
        client(kind, first.url, AccessConfig(ca_file=ca_file))()
    with front(behind, new.issue("server")) as told:
        ask = client(kind, told.url, AccessConfig(ca_file=ca_file))
        with pytest.raises(FlinkError, match="no authority"):
            ask()
        ca_file.write_bytes(new.file.read_bytes())
        ask()


@pytest.mark.parametrize(
    ("begins", "ends", "said"), [(-3, -1, "has expired"), (1, 3, "is not valid yet")]
)
def test_a_certificate_of_another_time_is_told_with_the_clock(
    kind, authority, behind, begins, ends, said
):
    with front(behind, authority.issue(f"server{begins}", begins, ends)) as told:
        ask = client(kind, told.url, AccessConfig(ca_file=authority.file))
        with pytest.raises(
            FlinkError, match=f"{said}, by the clock of this machine .*UTC"
        ) as found:
            ask()
        assert told.url in str(found.value)


@pytest.mark.parametrize(
    ("told_of", "said"),
    [
        ({"token": "x", "status": 401}, "an account is asked for.*none is configured"),
        ({"token": "x", "status": 403}, "may not read there.*Grant it the right"),
        ({"token": "x", "status": 407}, "the proxy asks for an account"),
        ({"page": b"<!DOCTYPE html><form>Sign in</form>"}, "HTML page: a proxy.*sign in"),
        ({"token": "x", "ahead_s": 300.0}, "clock of this machine is (300|299|301) s behind"),
        ({"token": "x", "ahead_s": -90.0}, "clock of this machine is (90|89|91) s ahead of"),
    ],
)
def test_each_refusal_says_what_it_is(kind, behind, told_of, said):
    with front(behind) as told:
        for name, value in told_of.items():
            setattr(told, name, value)
        with pytest.raises(FlinkError, match=said) as found:
            client(kind, told.url)()
        assert told.url in str(found.value)
        assert found.value.remedy


def test_a_prometheus_whose_clock_differs_is_told_where_there_are_no_samples(behind):
    with front(behind) as told:
        ask = client("prometheus", told.url)
        assert ask() == []
        told.ahead_s = 120.0
        with pytest.raises(FlinkError, match=r"no samples.*1(20|19|21) s behind") as found:
            ask()
        assert "Set both clocks" in str(found.value)


def test_a_server_is_asked_through_a_proxy(kind, behind, tmp_path, monkeypatch):
    account = written(tmp_path / "account", "t0ken-of-the-account")
    with front(None) as proxy:
        client(kind, behind, AccessConfig(file=account, proxy=proxy.url))()
        assert proxy.asked[0].startswith(behind)
        asked = len(proxy.asked)
        client(kind, behind)()
        assert len(proxy.asked) == asked
    name = behind.replace("127.0.0.1", "flink.example.invalid")
    with front(behind) as proxy:  # of the environment, also beside an account of a file
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "")
        client(kind, name, AccessConfig(file=account))()
        assert proxy.asked[0].startswith(name)


def test_an_account_of_netrc_is_read_again_when_it_was_refused(kind, behind, tmp_path, monkeypatch):
    netrc = written(tmp_path / "netrc", "machine 127.0.0.1 login me password first\n")
    monkeypatch.setenv("NETRC", str(netrc))
    with front(behind) as told:
        told.basic = "me:first"
        ask = client(kind, told.url)
        ask()
        told.basic = "me:second"
        with pytest.raises(FlinkError, match="401"):
            ask()
        written(netrc, "machine 127.0.0.1 login me password second\n")
        ask()
        address = told.url.replace("://", "://me:second@")
        monkeypatch.delenv("NETRC")
        client(kind, address)()


def test_a_server_of_another_name_or_without_tls_says_so(kind, authority, server, behind):
    with front(behind, server) as told:
        other = told.url.replace("127.0.0.1", "localhost")
        with pytest.raises(FlinkError, match="certificate is for another name"):
            client(kind, other, AccessConfig(ca_file=authority.file))()
    plain = behind.replace("http://", "https://")
    with pytest.raises(FlinkError, match=r"does not speak TLS.*http://"):
        client(kind, plain)()
    with pytest.raises(FlinkError, match="its name cannot be looked up"):
        client(kind, "http://flink.example.invalid:8081")()


def test_an_access_is_a_file_a_mapping_or_a_file_of_keys(tmp_path):
    account = written(tmp_path / "account", "me:secret")
    assert AccessConfig.model_validate(str(account)) == AccessConfig(file=account)
    assert AccessConfig(file=account).model_dump(mode="json") == str(account)
    keys = written(tmp_path / "access.yaml", f"file: {account}\nca_file: ca.pem\n")
    assert access_of(keys).ca_file.name == "ca.pem"
    assert access_of(account) == AccessConfig(file=account)
    assert access_of(None) is None
    with pytest.raises(ConfigError, match=r"ca_fil.*ca_file"):
        access_of(written(tmp_path / "wrong.yaml", "ca_fil: x\n"))
    with pytest.raises(ConfigError, match="give its cert_file"):
        parse(AccessConfig, {"key_file": "x"}, "test")
    for missing in ("ca_file", "cert_file", "file"):
        with pytest.raises(ConfigError, match="no such file"):
            client("prometheus", "http://127.0.0.1:1", AccessConfig(**{missing: "nowhere"}))


def kubeconfig(tmp_path, authority, url, user):
    return written(
        tmp_path / "kubeconfig",
        "apiVersion: v1\nkind: Config\ncurrent-context: a\n"
        f"clusters: [{{name: a, cluster: {{server: '{url}', "
        f"certificate-authority: {authority.file}}}}}]\n"
        "contexts: [{name: a, context: {cluster: a, user: a}}]\n"
        f"users: [{{name: a, user: {{{user}}}}}]\n",
    )


@pytest.mark.parametrize("is_file", [True, False])
def test_a_token_of_kubernetes_is_read_again_when_it_was_refused(
    authority, server, behind, tmp_path, is_file
):
    with front(behind, server) as told:
        told.token = "first-token"
        token = written(tmp_path / "token", "first-token")

        def write(text):
            written(token, text)
            user = f"tokenFile: {token}" if is_file else f"token: {text}"
            return kubeconfig(tmp_path, authority, told.url, user)

        api = KubernetesApi.connect(KubernetesPlace(kubeconfig=write("first-token"), name="words"))
        api.get("FlinkDeployment", "jobs", "words")
        told.token = "second-token"
        write("second-token")
        api.get("FlinkDeployment", "jobs", "words")
        told.token = "third-token"
        with pytest.raises(KubernetesError, match="401") as refused:
            api.get("FlinkDeployment", "jobs", "words")
        assert refused.value.reason == "Unauthorized"
        told.page = b"<html>Sign in"
        with pytest.raises(KubernetesError, match="HTML page"):
            api.get("FlinkDeployment", "jobs", "words")
        api.close()


def test_an_api_server_of_an_unknown_authority_says_so(server, behind, tmp_path):
    with front(behind, server) as told:
        other = Authority(tmp_path / "other", "other")
        file = kubeconfig(tmp_path, other, told.url, "token: abc")
        api = KubernetesApi.connect(KubernetesPlace(kubeconfig=file, name="words"))
        with pytest.raises(KubernetesError, match="no authority that is known"):
            api.get("FlinkDeployment", "jobs", "words")
        api.close()
