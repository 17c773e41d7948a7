"""A fake Kubernetes API server over plain HTTP, with the features this project depends on.

What it does is pinned by `tests/contracts/test_kubernetes_contract.py`, which also runs against a
real server. Beyond that it counts requests and can be killed, frozen, slowed and made to fail.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from dsp_gym.backends.kubernetes.admission import refusal
from dsp_gym.backends.kubernetes.overrides import KEY
from tests.fakes.kubernetes_handler import Handler
from tests.fakes.kubernetes_schema import RESOURCES, STRINGS, Resource
from tests.fakes.kubernetes_store import Store

__all__ = [
    "ALL",
    "Admission",
    "FakeKubernetes",
    "Request",
    "only_override",
    "only_spec",
    "served_kubernetes",
]

Document = dict[str, Any]

_DENIED = "ValidatingAdmissionPolicy 'dsp-gym-overrides-only' denied request"

ALL = ("get", "list", "watch", "create", "update", "patch", "delete")
READ_ONLY = ("get", "list", "watch")

_OF_EVERYBODY: tuple[Document, ...] = tuple(
    {"verbs": ["create"], "apiGroups": [group], "resources": resources}
    for group, resources in {
        "authorization.k8s.io": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
        "authentication.k8s.io": ["selfsubjectreviews"],
    }.items()
)
"""The role system:basic-user, which every account that is known has."""

Admission = Callable[[str, str, Document | None, Document], str | None]
"""Account, resource, object before and after; gives what is wrong with a write."""


@dataclass(frozen=True)
class Request:
    """One request that was answered."""

    method: str
    path: str
    account: str
    code: int
    query: Mapping[str, str]
    parts: frozenset[str] = frozenset()  # of the body of a write, such as spec

    @property
    def is_write(self) -> bool:
        """Whether it could change something; an access review cannot."""
        return self.method != "GET" and "/selfsubject" not in self.path


class FakeKubernetes:
    """The server; `start` it, and `kill` it in the end."""

    def __init__(self, *, strings_only: bool = False) -> None:
        self.resources = dict(RESOURCES)
        if strings_only:  # as the definitions of operators up to 1.12
            for plural, one in RESOURCES.items():
                if one.spec:
                    spec = {**one.spec, "flinkConfiguration": STRINGS}
                    self.resources[plural] = replace(one, spec=spec)
        self.store = Store(_now)
        self.accounts: dict[str, dict[str, tuple[str, ...]]] = {}  # verbs by resource
        self.elsewhere: dict[str, dict[str, dict[str, tuple[str, ...]]]] = {}  # by namespace
        self.tokens: dict[str, str] = {}
        self.admission: list[Admission] = []
        self.requests: list[Request] = []
        self.bookmark_s = 60.0
        self.watch_second_s = 1.0  # a second of a watch lasts so long, as watches take whole ones
        self.delay_s = 0.0
        self.status_writes = 0  # before so many patches somebody else writes the status
        self.lost_answers = 0  # so many writes are made and not answered
        self.lost_requests = 0  # so many writes are neither made nor answered
        self.incomplete = False  # whether rules are not told, as a webhook tells none
        self.thawed = threading.Event()
        self.thawed.set()
        self.stopping = threading.Event()
        self._server: _Server | None = None
        self._port = 0
        rights = dict.fromkeys(self.resources, ALL) | {"namespaces": ("list",)}
        self.admin = self.account("admin", rights)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def namespaces(self) -> list[str]:
        """Every namespace that anything was granted in."""
        return sorted({"jobs", *self.elsewhere})

    def grant(self, namespace: str, name: str, verbs: Mapping[str, Sequence[str]]) -> None:
        """Bind a role to an account in another namespace."""
        granted = {resource: tuple(listed) for resource, listed in verbs.items()}
        self.elsewhere.setdefault(namespace, {})[name] = granted

    def _roles(self, who: str, namespace: str) -> list[tuple[str, tuple[str, ...]]]:
        """Verbs by resource: those of every namespace, and those of this one."""
        here = self.elsewhere.get(namespace, {}).get(who, {})
        return [*self.accounts.get(who, {}).items(), *here.items()]

    def account(
        self, name: str, verbs: Mapping[str, Sequence[str]] | Sequence[str] = READ_ONLY
    ) -> str:
        """An account with verbs, on resources of Flink unless others are named; its token.

        A resource may name its group, a subresource and one object: `deployments.apps/scale@words`.
        """
        if not isinstance(verbs, Mapping):
            verbs = {"flinkdeployments": tuple(verbs), "flinksessionjobs": tuple(verbs)}
        self.accounts[name] = {resource: tuple(listed) for resource, listed in verbs.items()}
        token = f"{name}-{secrets.token_hex(8)}"
        self.tokens[token] = name
        return token

    def may(
        self,
        who: str,
        verb: str,
        plural: str,
        sub: str | None,
        name: str,
        group: str,
        namespace: str = "jobs",
    ) -> bool:
        """Whether an account has a right, as RBAC matches its rules."""
        wanted = {"*", f"{plural}/{sub}" if sub else plural, f"*/{sub}"}
        for granted, verbs in self._roles(who, namespace):
            of, resource, only = self._granted(granted)
            is_meant = resource in wanted or (who == "admin" and resource == plural)
            if is_meant and of in (group, "*") and only in ("", name) and {verb, "*"} & {*verbs}:
                return True
        return False

    def rules(self, who: str, namespace: str = "jobs") -> list[Document]:
        """What an account may do, as the server tells it: what every account may included."""
        told = []
        for granted, verbs in self._roles(who, namespace):
            group, resource, name = self._granted(granted)
            rule = {"verbs": [*verbs], "apiGroups": [group], "resources": [resource]}
            told.append({**rule, "resourceNames": [name]} if name else rule)
        return [*told, *_OF_EVERYBODY]

    def _granted(self, granted: str) -> tuple[str, str, str]:
        """Group, resource and name of what an account was given."""
        resource, _, name = granted.partition("@")
        known = self.resources.get(resource.partition("/")[0])
        return (*group_of(resource, known.group if known else ""), name)

    def rotate(self, token: str) -> str:
        """Another token for the same account; the old one is no longer taken."""
        name = self.tokens.pop(token)
        new = f"{name}-{secrets.token_hex(8)}"
        self.tokens[new] = name
        return new

    def kubeconfig(
        self, file: Path, token: str, *, namespace: str = "jobs", token_file: Path | None = None
    ) -> Path:
        """Write a kubeconfig for a token, or a file with one."""
        user = {"token": token} if token_file is None else {"tokenFile": str(token_file)}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "fake",
            "clusters": [{"name": "fake", "cluster": {"server": self.url}}],
            "users": [{"name": "someone", "user": user}],
            "contexts": [
                {
                    "name": "fake",
                    "context": {"cluster": "fake", "user": "someone", "namespace": namespace},
                }
            ],
        }
        file.write_text(yaml.safe_dump(document))
        return file

    def writes(self) -> list[Request]:
        """Requests that could change something."""
        return [request for request in self.requests if request.is_write]

    def start(self) -> None:
        """Listen; on the same port as before."""
        self.stopping.clear()
        self._server = _Server(("127.0.0.1", self._port), self)
        self._port = self._server.server_address[1]
        self._server.run()

    def kill(self) -> None:
        """Break every connection and stop listening."""
        self.thawed.set()
        self.stopping.set()
        with self.store.changed:
            self.store.changed.notify_all()
        server, self._server = self._server, None
        if server is not None:
            server.end()

    def restart(self) -> None:
        """Come back; what changed before cannot be watched any more."""
        self.kill()
        self.store.forget()
        self.start()

    def freeze(self) -> None:
        """Take connections and requests, and answer nothing, as if stopped by SIGSTOP."""
        self.thawed.clear()

    def thaw(self) -> None:
        """Go on; what was asked meanwhile is answered now."""
        self.thawed.set()

    def put(self, body: Document, namespace: str = "jobs") -> Document:
        """Create an object, or write its spec, and its status if it has one, as an admin would."""
        resource = next(one for one in self.resources.values() if one.kind == body["kind"])
        name = body["metadata"]["name"]
        with self.store.changed:
            if any(i["metadata"]["name"] == name for i in self._all(resource, namespace)):
                labels = body["metadata"].get("labels")

                def change(old: Document) -> Document:
                    meta = old["metadata"] | ({"labels": labels} if labels else {})
                    return {**old, "spec": body["spec"], "metadata": meta}

                self.store.change(resource, namespace, name, change, "admin", of_status=False)
            else:
                self.store.create(resource, namespace, body, "admin", False)
            if "status" in body:
                self.set_status(body["kind"], name, body["status"], namespace)
            return self.store.get(resource, namespace, name)

    def set_status(
        self, kind: str, name: str, status: Document, namespace: str = "jobs"
    ) -> Document:
        """Write parts of a status, as the operator does."""
        resource = next(one for one in self.resources.values() if one.kind == kind)
        return self.store.change(
            resource, namespace, name,
            lambda old: {**old, "status": (old.get("status") or {}) | status},
            "operator", of_status=True,
        )  # fmt: skip

    def object(self, kind: str, name: str, namespace: str = "jobs") -> Document:
        """An object as it stands."""
        resource = next(one for one in self.resources.values() if one.kind == kind)
        return self.store.get(resource, namespace, name)

    def delete(self, kind: str, name: str, namespace: str = "jobs") -> None:
        """Remove an object."""
        resource = next(one for one in self.resources.values() if one.kind == kind)
        self.store.delete(resource, namespace, name)

    def objects(self, kind: str, namespace: str = "jobs") -> list[Document]:
        """Every object of a kind."""
        resource = next(one for one in self.resources.values() if one.kind == kind)
        return self._all(resource, namespace)

    def _all(self, resource: Resource, namespace: str) -> list[Document]:
        return self.store.listed(resource, namespace, {})[0]


def only_override(account: str) -> Admission:
    """The policy that fences an account to the parallelism override and its own annotations."""

    def admit(who: str, plural: str, before: Document | None, after: Document) -> str | None:
        if who != account or before is None or not plural.startswith("flink"):
            return None
        reason = refusal(before, after)
        return None if reason is None else f"{_DENIED}: {reason}"

    return admit


def only_spec(account: str) -> Admission:
    """The same as an earlier release had it: it knows nothing of metadata, nor of numbers."""

    def admit(who: str, plural: str, before: Document | None, after: Document) -> str | None:
        if who != account or before is None or not plural.startswith("flink"):
            return None
        specs = [dict(body.get("spec") or {}) for body in (before, after)]
        others = [dict(spec.pop("flinkConfiguration", None) or {}) for spec in specs]
        for configuration in others:
            configuration.pop(KEY, None)
        if specs[0] != specs[1] or others[0] != others[1]:
            return f"{_DENIED}: only {KEY} may change"
        return None

    return admit


def group_of(resource: str, default: str = "") -> tuple[str, str]:
    """Group and resource of `deployments.apps/scale`; Flink's need none, nor has the core one."""
    plural, slash, sub = resource.partition("/")
    plural, _, group = plural.partition(".")
    if not group:
        group = "flink.apache.org" if plural.startswith("flink") else default
    return "*" if plural == "*" and not group else group, plural + slash + sub


class _Server(ThreadingHTTPServer):
    """One life of the server."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], fake: FakeKubernetes) -> None:
        self.fake = fake
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(address, Handler)

    def run(self) -> None:
        self._thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self._thread.start()

    def end(self) -> None:
        self.shutdown()
        self.server_close()
        with self._lock:
            still = list(self._open)
        for one in still:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke is no news here; anything else is."""
        import sys

        if not isinstance(sys.exc_info()[1], OSError | ValueError):
            super().handle_error(request, client_address)


@contextmanager
def served_kubernetes(**given: Any) -> Iterator[FakeKubernetes]:
    """A server that runs while the block does."""
    fake = FakeKubernetes(**given)
    fake.start()
    try:
        yield fake
    finally:
        fake.kill()


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
