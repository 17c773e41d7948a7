"""A real Kubernetes API server: that of a kubeconfig, or one started here, as envtest does.

`KUBEBUILDER_ASSETS` names a folder with `kube-apiserver` and `etcd`, as `setup-envtest use -p path`
prints it; `DSP_GYM_TEST_KUBECONFIG` names the kubeconfig of an administrator.
"""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml

from dsp_gym.backends.flink.local.processes import free_ports
from dsp_gym.backends.kubernetes.access import READS
from dsp_gym.backends.kubernetes.api import KubernetesApi
from dsp_gym.backends.kubernetes.config import KubernetesPlace
from dsp_gym.errors import KubernetesError
from tests.fakes.kubernetes_api import group_of
from tests.fakes.kubernetes_schema import RESOURCES, definition

__all__ = ["REAL", "OwnServer", "RealKubernetes", "connect", "real_kubernetes"]

ASSETS, KUBECONFIG = "KUBEBUILDER_ASSETS", "DSP_GYM_TEST_KUBECONFIG"
REAL = ASSETS in os.environ or KUBECONFIG in os.environ
RBAC = "/apis/rbac.authorization.k8s.io/v1"
START_S = 90.0

Document = dict[str, Any]


class OwnServer:
    """A kube-apiserver and its etcd, with a folder that is thrown away."""

    def __init__(self, assets: Path, folder: Path) -> None:
        self._assets, self._folder = assets, folder
        self._port, self._etcd_port, peer_port = free_ports(3)
        self._server: subprocess.Popen[bytes] | None = None
        self.admin_file = folder / "admin.yaml"
        token = uuid.uuid4().hex
        (folder / "tokens.csv").write_text(f'{token},admin,1,"system:masters"\n')
        for command in (["genrsa", "-out", "sa.key", "2048"],
                        ["rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub"]):  # fmt: skip
            subprocess.run(["openssl", *command], cwd=folder, check=True, capture_output=True)
        peers = f"http://127.0.0.1:{peer_port}"
        self._etcd = self._run(
            "etcd", "--data-dir=etcd", f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}", f"--initial-cluster=default={peers}",
            f"--listen-client-urls=http://127.0.0.1:{self._etcd_port}",
            f"--advertise-client-urls=http://127.0.0.1:{self._etcd_port}",
        )  # fmt: skip
        self._start()
        cluster = {
            "server": f"https://127.0.0.1:{self._port}",
            "certificate-authority": str(folder / "certs/apiserver.crt"),
        }
        _write_kubeconfig(self.admin_file, cluster, {"token": token})
        try:
            self._await_ready()
        except BaseException:
            self.end()
            raise

    def kill(self) -> None:
        """As a node that loses power."""
        assert self._server is not None
        self._server.kill()
        self._server.wait()

    def restart(self) -> None:
        """Come back, with what etcd holds."""
        self._start()
        self._await_ready()

    def freeze(self) -> None:
        """Stop it in the middle of whatever it does."""
        assert self._server is not None
        self._server.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._server.pid, os.WSTOPPED)  # until then it could still answer

    def thaw(self) -> None:
        """Let it go on."""
        assert self._server is not None
        self._server.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Kill both."""
        self.kill()
        self._etcd.kill()
        self._etcd.wait()

    def _start(self) -> None:
        self._server = self._run(
            "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--cert-dir=certs", "--bind-address=127.0.0.1", f"--secure-port={self._port}",
            "--authorization-mode=RBAC", "--token-auth-file=tokens.csv",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-account-signing-key-file=sa.key", "--service-account-key-file=sa.pub",
        )  # fmt: skip

    def _run(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [self._assets / name, *arguments], cwd=self._folder, stdout=log, stderr=log
            )

    def _await_ready(self) -> None:
        deadline = time.monotonic() + START_S
        while True:
            assert self._server is not None
            try:
                trusted = ssl.create_default_context(cafile=self._folder / "certs/apiserver.crt")
                with urlopen(f"https://127.0.0.1:{self._port}/readyz", context=trusted, timeout=5):
                    return
            except OSError as error:
                if self._server.poll() is not None or time.monotonic() > deadline:
                    log = (self._folder / "kube-apiserver.log").read_text()[-2000:]
                    raise AssertionError(f"the API server did not start: {error}\n{log}") from error
            time.sleep(0.2)


class RealKubernetes:
    """A namespace of a real server, and accounts in it."""

    def __init__(self, admin_file: Path, own: OwnServer | None) -> None:
        self.admin_file, self._own = admin_file, own
        self.api = connect(admin_file)
        self.namespace = f"dsp-gym-{uuid.uuid4().hex[:8]}"
        self._accounts: dict[str, str] = {}
        self._create("/api/v1/namespaces", "v1", "Namespace", self.namespace)
        self._made = [f"/api/v1/namespaces/{self.namespace}"]

    @property
    def own(self) -> OwnServer:
        """The server, for cases that kill it."""
        if self._own is None:
            pytest.skip(f"would kill the server that {KUBECONFIG} names; {ASSETS} starts one")
        return self._own

    def account(self, name: str, verbs: Mapping[str, Sequence[str]] | Sequence[str] = READS) -> str:
        """A service account with verbs, on resources of Flink unless others are named; its token.

        A resource may name its group, a subresource and one object, as for the fake.
        """
        if not isinstance(verbs, Mapping):
            verbs = dict.fromkeys(("flinkdeployments", "flinksessionjobs"), verbs)
        self._create(f"{self._path}/serviceaccounts", "v1", "ServiceAccount", name)
        of_cluster = {what: listed for what, listed in verbs.items() if what == "namespaces"}
        if of_cluster:
            self._bind(name, of_cluster, None)
        here = {what: listed for what, listed in verbs.items() if what not in of_cluster}
        self._bind(name, here, self.namespace)
        return self._token(name)

    def other_namespace(self) -> str:
        """Another namespace, without jobs."""
        other = f"{self.namespace}-other"
        self._create("/api/v1/namespaces", "v1", "Namespace", other)
        self._made.append(f"/api/v1/namespaces/{other}")
        return other

    def grant(self, namespace: str, name: str, verbs: Mapping[str, Sequence[str]]) -> None:
        """Bind a role to an account in another namespace."""
        self._bind(name, verbs, namespace)

    def _bind(self, name: str, verbs: Mapping[str, Sequence[str]], namespace: str | None) -> None:
        """Give an account of this namespace verbs in a namespace; None: in the whole cluster."""
        rules = []
        for granted, listed in verbs.items():
            named, _, only = granted.partition("@")
            group, resource = group_of(named)
            rule = {"apiGroups": [group], "resources": [resource], "verbs": [*listed]}
            rules.append({**rule, "resourceNames": [only]} if only else rule)
        where, kind, version = f"{RBAC}/namespaces/{namespace}", "Role", RBAC.removeprefix("/apis/")
        role = name
        if namespace is None:
            where, kind, role = RBAC, "ClusterRole", f"{self.namespace}-{name}"
            self._made += [f"{RBAC}/clusterroles/{role}", f"{RBAC}/clusterrolebindings/{role}"]
        self._create(f"{where}/{kind.lower()}s", version, kind, role, rules=rules)
        self._create(
            f"{where}/{kind.lower()}bindings", version, f"{kind}Binding", role,
            roleRef={"apiGroup": version.partition("/")[0], "kind": kind, "name": role},
            subjects=[{"kind": "ServiceAccount", "name": name, "namespace": self.namespace}],
        )  # fmt: skip

    def rotate(self, token: str) -> str:
        """Another token for the same account; the old one is no longer taken, a little later."""
        name = self._accounts.pop(token)
        where = f"{self._path}/serviceaccounts"
        self.api.request("DELETE", f"{where}/{name}")
        self._create(where, "v1", "ServiceAccount", name)
        return self._token(name)

    def kubeconfig(self, file: Path, token: str, *, token_file: Path | None = None) -> Path:
        """Write a kubeconfig for a token, or a file with one."""
        document = yaml.safe_load(self.admin_file.read_text())
        user = {"token": token} if token_file is None else {"tokenFile": str(token_file)}
        (cluster,) = [one["cluster"] for one in document["clusters"]]
        return _write_kubeconfig(file, cluster, user)

    def end(self) -> None:
        """Remove the namespaces, and the roles of the whole cluster."""
        for made in self._made:
            self.api.request("DELETE", made)
        self.api.close()

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}"

    def _create(self, path: str, version: str, kind: str, name: str, **more: Any) -> Document:
        body = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **more}
        return self.api.request("POST", path, (), body)

    def _token(self, name: str) -> str:
        path = f"{self._path}/serviceaccounts/{name}/token"
        made = self._create(path, "authentication.k8s.io/v1", "TokenRequest", name, spec={})
        token = str(made["status"]["token"])
        self._accounts[token] = name
        return token


@contextmanager
def real_kubernetes(folder: Path) -> Iterator[tuple[Path, OwnServer | None]]:
    """The kubeconfig of an administrator, with Flink's kinds defined, and the server if it is ours.

    A server that somebody names has the operator's definitions; ours gets those of the fake.
    """
    if KUBECONFIG in os.environ:
        yield Path(os.environ[KUBECONFIG]), None
        return
    own = OwnServer(Path(os.environ[ASSETS]).absolute(), folder)
    try:
        with closing(connect(own.admin_file)) as api:
            _define(api)
        yield own.admin_file, own
    finally:
        own.end()


def connect(file: Path, timeout_s: float = 30.0) -> KubernetesApi:
    """A server as the account of a kubeconfig sees it."""
    place = KubernetesPlace(kubeconfig=file, name="words", timeout_s=timeout_s)
    return KubernetesApi.connect(place)


def _define(api: KubernetesApi) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for resource in RESOURCES.values():
        if resource.spec:
            api.request("POST", path, (), definition(resource))
    deadline = time.monotonic() + START_S
    while True:
        try:
            for kind in ("FlinkDeployment", "FlinkSessionJob"):
                api.list(kind, namespace="default")
            return
        except KubernetesError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _write_kubeconfig(file: Path, cluster: Document, user: Document) -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "real",
        "clusters": [{"name": "real", "cluster": cluster}],
        "users": [{"name": "someone", "user": user}],
        "contexts": [{"name": "real", "context": {"cluster": "real", "user": "someone"}}],
    }
    file.write_text(yaml.safe_dump(document))
    return file
