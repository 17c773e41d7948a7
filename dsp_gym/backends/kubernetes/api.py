"""One Kubernetes API server: the calls this project makes, each with its time limit.

Only the transport of the official client is used: bodies stay plain documents, so nothing fails
that the server would take. Its own ways of waiting are switched off: without a time limit a call
to a server that hangs never returns, and a GET is repeated three times behind the caller's back
(observed with client 37.0.2 against kube-apiserver 1.36).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from types import ModuleType
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from dsp_gym.backends.kubernetes.answers import reading, refused, unanswered, unreadable
from dsp_gym.backends.kubernetes.config import KubernetesPlace
from dsp_gym.backends.kubernetes.token_file import TokenFile
from dsp_gym.backends.upstream.answers import PART_BYTES, whole
from dsp_gym.backends.upstream.deadlines import within
from dsp_gym.backends.upstream.timed_calls import deadline
from dsp_gym.config.files import read_yaml
from dsp_gym.config.strict_json import MISFITS, Document, parse_json
from dsp_gym.config.text import in_words
from dsp_gym.errors import ConfigError, KubernetesError, MissingExtraError

if TYPE_CHECKING:
    from kubernetes.client import ApiClient, Configuration
    from urllib3 import HTTPResponse

FIELD_MANAGER = "dsp-gym"
"""Whom the server notes as the author of a change; the client would say `OpenAPI-Generator`."""

RESOURCE_KINDS = {
    "FlinkDeployment": ("flink.apache.org/v1beta1", "flinkdeployments"),
    "FlinkSessionJob": ("flink.apache.org/v1beta1", "flinksessionjobs"),
    "Lease": ("coordination.k8s.io/v1", "leases"),
    "Event": ("events.k8s.io/v1", "events"),
    "ConfigMap": ("v1", "configmaps"),
}
"""Group and version, and the plural, of every kind that is read or written."""

_LIST_CALLS = 10
"""All pages of a list may take as long as so many calls."""

Listed = tuple[list[Document], str]
"""Objects, and the version of the list."""

MERGE_PATCH = "application/merge-patch+json"

PAGE_ITEMS = 500
"""Objects asked of the server in one page of a list."""

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Folder in which a pod finds the token, the namespace and the certificate of its account."""


class Watch(Iterator[tuple[str, Document]]):
    """Changes as the server sends them: ADDED, MODIFIED, DELETED, or BOOKMARK (a version alone).

    It ends when its time is up, or another thread calls `stop`.

    Args:
        response: the stream.
        url: of the server, for errors.
        most_s: the server should have ended the stream by then, s; it is late after that, however
            often it sends a byte.
    """

    def __init__(self, response: HTTPResponse, url: str, most_s: float) -> None:
        self._response, self._url, self._most_s = response, url, most_s
        self._stopped = self._is_late = False
        self._events = self._read()

    def __next__(self) -> tuple[str, Document]:
        return next(self._events)

    def stop(self) -> None:
        """End the stream; the thread that reads it wakes up."""
        self._stopped = True
        try:
            self._response.shutdown()
        except (OSError, RuntimeError, ValueError):
            return  # it has ended already

    def _end(self) -> None:
        self._is_late = True
        self.stop()

    def _read(self) -> Iterator[tuple[str, Document]]:
        rest = b""
        alarm = Timer(self._most_s, self._end)
        alarm.daemon = True
        alarm.start()
        try:
            for chunk in self._chunks():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line.strip():
                        yield self._event(line)
            if self._is_late:
                raise unanswered("GET", self._url, TimeoutError())
        finally:
            alarm.cancel()
            self._response.close()

    def _chunks(self) -> Iterator[bytes]:
        try:
            yield from self._response.stream(decode_content=False)
        except Exception as error:
            if not self._stopped:
                raise unanswered("GET", self._url, error) from error

    def _event(self, line: bytes) -> tuple[str, Document]:
        try:
            event = parse_json(line)
            kind, body = str(event["type"]), dict(event["object"])
        except (ValueError, KeyError, TypeError) as error:
            raise unreadable("GET", self._url, line) from error
        if kind == "ERROR":  # such as a version that is too old, with HTTP status 200
            code = body.get("code")
            said = json.dumps(body).encode()
            raise refused("GET", self._url, code if isinstance(code, int) else 500, said)
        return kind, body


@dataclass(frozen=True, slots=True)
class Review:
    """What a server says about one right of an account."""

    allowed: bool
    error: str  # of an authorizer that could not tell; empty: none failed


class KubernetesApi:
    """An API server, as one account sees it. Whatever goes wrong is a `KubernetesError`.

    Args:
        client: the official client, with the account.
        connect_timeout_s: longest wait for a connection.
        timeout_s: longest wait for an answer, or for more of one.
        token_file: where the token is read from; None: from nowhere but `signs`.
        signs: signs in again, after the account was refused; None: it does not change.
    """

    def __init__(
        self,
        client: ApiClient,
        *,
        connect_timeout_s: float = 3.0,
        timeout_s: float = 10.0,
        token_file: TokenFile | None = None,
        signs: Callable[[], ApiClient] | None = None,
    ) -> None:
        from dsp_gym.backends.upstream.connections import end_at_deadline

        self._client, self._token_file, self._signs = client, token_file, signs
        end_at_deadline(client.rest_client.pool_manager)
        self._connect_s, self._read_s = connect_timeout_s, timeout_s
        self.url = str(client.configuration.host).rstrip("/")

    @classmethod
    def connect(cls, place: KubernetesPlace) -> KubernetesApi:
        """The server and the account of a place; nothing is asked of it yet.

        Returns:
            The client, with the token file or certificate of the context.

        Raises:
            KubernetesError: The file or the context does not exist.
            MissingExtraError: The client is not installed.
        """
        try:
            from kubernetes import client
        except ImportError as error:
            raise MissingExtraError("kubernetes", "talking to Kubernetes") from error

        def signed() -> tuple[ApiClient, TokenFile | None]:
            settings: Configuration = client.Configuration()
            settings.retries = False
            token_file = _signed_in(settings, place)
            host = str(settings.host)
            if host.startswith(("http://127.", "http://localhost", "https://127.")):
                settings.proxy = None  # a proxy set for the web knows nothing of this machine
            token = None if token_file is None else TokenFile(token_file)
            if token is not None:
                settings.refresh_api_key_hook = token  # type: ignore[assignment]  # a client without types
            return client.ApiClient(settings), token

        made, token = signed()
        return cls(
            made,
            connect_timeout_s=place.connect_timeout_s,
            timeout_s=place.timeout_s,
            token_file=token,
            signs=lambda: signed()[0],
        )

    @property
    def timeout_s(self) -> float:
        """How long one call takes at most, s."""
        return self._connect_s + self._read_s

    def list(
        self, kind: str, *, namespace: str, selector: str | None = None, name: str | None = None
    ) -> tuple[list[Document], str]:
        """List every object of a kind in a namespace.

        Args:
            kind: one of `RESOURCE_KINDS`.
            namespace: where.
            selector: labels they have; none: any.
            name: of the only one wanted.

        Returns:
            The objects, and the version of the list, to watch from.
        """
        return self._pages(_path(kind, namespace), _selected(selector, name))

    def namespaces(self) -> tuple[str, ...]:
        """List the names of every namespace.

        Returns:
            The names, sorted.

        Raises:
            KubernetesError: As `request`; Forbidden: the account may not list them.
        """
        listed, _ = self._pages("/api/v1/namespaces", ())
        with reading(self.url):
            return tuple(sorted(str(one["metadata"]["name"]) for one in listed))

    def _pages(self, path: str, selected: Sequence[tuple[str, str]]) -> Listed:
        with deadline(_LIST_CALLS * self.timeout_s):  # a server may have another page for ever
            return self._every_page(path, selected)

    def _every_page(self, path: str, selected: Sequence[tuple[str, str]]) -> Listed:
        query = [("limit", str(PAGE_ITEMS)), *selected]
        items: list[Document] = []
        more: list[tuple[str, str]] = []
        while True:
            page = self.request("GET", path, [*query, *more])
            with reading(self.url):
                items += [dict(item) for item in page.get("items") or ()]
                head = page.get("metadata") or {}
                if not head.get("continue"):
                    return items, str(head.get("resourceVersion", ""))
                more = [("continue", str(head["continue"]))]

    def get(self, kind: str, namespace: str, name: str) -> Document:
        """Get one object.

        Returns:
            The object.
        """
        return self.request("GET", _path(kind, namespace, name))

    def watch(
        self,
        kind: str,
        *,
        namespace: str,
        selector: str | None = None,
        since: str,
        timeout_s: int = 30,
        name: str | None = None,
    ) -> Watch:
        """Watch for changes after a version, for a number of seconds.

        Returns:
            The changes, as they come.

        Raises:
            KubernetesError: As `request`, here or from the iterator; Gone: the server has
                forgotten what changed since then, so list again.
        """
        query = [
            ("watch", "true"),
            ("resourceVersion", since),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", str(timeout_s)),
            *_selected(selector, name),
        ]
        path = _path(kind, namespace)
        answer, content = self._send("GET", path, query, None, "", stream_s=timeout_s)
        if answer.status != 200:
            raise refused("GET", self.url + path, answer.status, content)
        return Watch(answer, self.url + path, timeout_s + self.timeout_s)

    def create(self, kind: str, namespace: str, body: Document) -> Document:
        """Create an object.

        Returns:
            The object as it stands there.
        """
        query = [("fieldManager", FIELD_MANAGER)]
        return self.request("POST", _path(kind, namespace), query, body)

    def replace(self, kind: str, namespace: str, name: str, body: Document) -> Document:
        """Replace an object; with its resourceVersion, only if it has not changed since.

        Returns:
            The object as it stands there.
        """
        query = [("fieldManager", FIELD_MANAGER)]
        return self.request("PUT", _path(kind, namespace, name), query, body)

    def merge_patch(
        self,
        kind: str,
        namespace: str,
        name: str,
        body: Document,
        *,
        resource_version: str,
        dry_run: bool = False,
    ) -> Document:
        """Merge a patch into an object, if it still has that version.

        Args:
            kind: one of `RESOURCE_KINDS`.
            namespace: where.
            name: of the object.
            body: what changes; null removes a key.
            resource_version: of the object the patch was made for; another one is a Conflict.
            dry_run: check it, and change nothing.

        Returns:
            The object as it stands there.
        """
        meta = dict(body.get("metadata") or {}) | {"resourceVersion": resource_version}
        query = [("fieldManager", FIELD_MANAGER)] + ([("dryRun", "All")] if dry_run else [])
        path = _path(kind, namespace, name)
        return self.request("PATCH", path, query, {**body, "metadata": meta}, MERGE_PATCH)

    def may(
        self,
        verb: str,
        kind: str,
        namespace: str,
        *,
        name: str | None = None,
        subresource: str | None = None,
    ) -> bool:
        """Whether this account may do something, by the server's own answer.

        Args:
            verb: such as patch.
            kind: one of `RESOURCE_KINDS`.
            namespace: where.
            name: of the object; None: with every one.
            subresource: of the kind, such as status; None: the object itself.

        Returns:
            True where the server's access review allows it.
        """
        version, plural = RESOURCE_KINDS[kind]
        resource = plural if subresource is None else f"{plural}/{subresource}"
        return self.review(verb, version.partition("/")[0], resource, namespace, name).allowed

    def review(
        self, verb: str, group: str, resource: str, namespace: str, name: str | None = None
    ) -> Review:
        """Ask the server whether this account may do something.

        Args:
            verb: such as patch.
            group: of the API; "" is the core.
            resource: its plural, with a subresource such as pods/exec.
            namespace: where; "": nowhere, as objects of the cluster stand.
            name: of the object; None: with every one.

        Returns:
            Its access review, in which all its authorizers take part.
        """
        plural, _, subresource = resource.partition("/")
        asked = {"namespace": namespace, "verb": verb, "group": group, "resource": plural}
        asked |= {"name": name} if name is not None else {}
        asked |= {"subresource": subresource} if subresource else {}
        review = self.request(
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            body={
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": asked},
            },
        )
        with reading(self.url):
            status: Document = review.get("status") or {}
            return Review(
                bool(status.get("allowed", False)), str(status.get("evaluationError") or "")
            )

    def request(
        self,
        method: str,
        path: str,
        query: Iterable[tuple[str, str]] = (),
        body: Document | None = None,
        content_type: str = "application/json",
    ) -> Document:
        """Make a call of any kind.

        Returns:
            The document in the answer.

        Raises:
            KubernetesError: The server is out of reach, late, or refuses.
        """
        answer, content = self._send(method, path, query, body, content_type)
        if not 200 <= answer.status < 300:
            raise refused(method, self.url + path, answer.status, content)
        try:
            document = parse_json(content)
        except ValueError as error:
            raise unreadable(method, self.url + path, content) from error
        if not isinstance(document, dict):
            raise unreadable(method, self.url + path, content)
        return document

    def signature(
        self, method: str = "GET", path: str = "/", body: Document | None = None
    ) -> dict[str, str]:
        """Sign a request with what the account's token says now.

        Returns:
            The HTTP headers that name the account; none for a server that asks for no token.

        Raises:
            KubernetesError: The request writes, and the file of the token cannot be read: whose
                token it was may no longer be known there.
        """
        headers: dict[str, str] = {}
        self._client.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        token = self._token_file
        if method != "GET" and token is not None and token.trouble is not None:
            raise KubernetesError(
                f"{method} {self.url}{path} was not sent: the token cannot be read: "
                f"{token.trouble}",
                file=token.file,
                reason="Unauthorized",
                remedy="Is the volume of the service account's token mounted?",
            )
        return headers

    def close(self) -> None:
        """Close its connections."""
        self._client.close()  # type: ignore[no-untyped-call]  # the client's, without a type

    def _send(
        self,
        method: str,
        path: str,
        query: Iterable[tuple[str, str]],
        body: Document | None,
        content_type: str,
        *,
        stream_s: float = 0.0,
    ) -> tuple[HTTPResponse, bytes]:
        """Send a request.

        Returns:
            The answer and what it holds, unless that is a stream of `stream_s`, to be read later.
        """
        headers = {"Accept": "application/json", "User-Agent": FIELD_MANAGER}
        if body is not None:
            headers["Content-Type"] = content_type
        asked = urlencode(list(query))
        url = f"{self.url}{path}{'?' if asked else ''}{asked}"
        limits = (self._connect_s, self._read_s + stream_s)

        def answered() -> tuple[HTTPResponse, bytes]:
            signed = headers | self.signature(method, path, body)
            answer = self._client.call_api(method, url, signed, body, _request_timeout=limits)
            response: HTTPResponse = answer.response
            is_later = stream_s > 0 and response.status == 200
            return response, b"" if is_later else whole(response.stream(PART_BYTES))

        try:
            with deadline(self.timeout_s):
                found = within(self.url, self.timeout_s, answered)
                if found[0].status == 401 and within(self.url, self.timeout_s, self._renew):
                    found = within(self.url, self.timeout_s, answered)
                return found
        except KubernetesError:
            raise
        except Exception as error:  # urllib3's, the client's, or the socket's
            raise unanswered(method, self.url + path, error) from error

    def _renew(self) -> bool:
        """Read the account again; returns whether it is another one."""
        from dsp_gym.backends.upstream.connections import end_at_deadline

        if self._token_file is not None:
            return self._token_file.renew(self._client.configuration)
        if self._signs is None:
            return False
        before, now = self._client, self._signs()
        is_other = _account_of(now.configuration) != _account_of(before.configuration)
        if is_other:
            end_at_deadline(now.rest_client.pool_manager)
            self._client = now
        (before if is_other else now).close()  # type: ignore[no-untyped-call]  # the client's
        return is_other


def _account_of(settings: Configuration) -> tuple[object, ...]:
    """What tells one account from another; a certificate inside the kubeconfig has its own file."""
    files = (settings.cert_file, settings.key_file, settings.ssl_ca_cert)
    return (dict(settings.api_key), settings.username, settings.password, *files)


def _signed_in(settings: Configuration, place: KubernetesPlace) -> Path | None:
    """Fill in server and account; returns the file of a token that may be rotated."""
    if place.kubeconfig is None and _in_cluster():
        return _from_pod(settings)
    file = None if place.kubeconfig is None else place.kubeconfig.expanduser()
    if file is not None and not file.is_file():
        raise KubernetesError(
            "is a folder" if file.is_dir() else "there is no such file",
            file=file,
            reason="Invalid",
            remedy="Name a kubeconfig.",
        )

    def load(config: ModuleType) -> Path | None:
        documents = _kubeconfigs(config, file)
        config.load_kube_config(
            str(file) if file else None, place.context, settings, persist_config=False
        )
        return _token_file_of(documents, place.context)

    return _load(load, file)


def _load(how: Callable[[ModuleType], Path | None], file: Path | None) -> Path | None:
    import yaml
    from kubernetes import config

    try:
        return how(config)
    except (config.ConfigException, yaml.YAMLError, ConfigError, OSError, *MISFITS) as error:
        said = in_words(error).strip() or type(error).__name__
        raise KubernetesError(
            f"no API server is known from it: {said.splitlines()[0]}"
            if file
            else f"no API server is known: {said}",
            file=file,
            reason="Invalid",
            remedy="Name a kubeconfig and one of its contexts (kubectl config get-contexts).",
        ) from error


def _in_cluster() -> bool:
    told = {"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"} <= os.environ.keys()
    return told and (SERVICE_ACCOUNT / "token").is_file()


def _from_pod(settings: Configuration) -> Path:
    """The API server of the pod's environment, and the token of its service account."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    settings.host = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    settings.ssl_ca_cert = str(SERVICE_ACCOUNT / "ca.crt")
    settings.api_key["BearerToken"] = ""
    return SERVICE_ACCOUNT / "token"


def _kubeconfigs(config: ModuleType, file: Path | None) -> list[tuple[Path, Document]]:
    """The files that the client will read; it knows no bounds, so they are checked before."""
    named = [file] if file else config.KUBE_CONFIG_DEFAULT_LOCATION.split(os.pathsep)
    found: list[tuple[Path, Document]] = []
    for path in (Path(one).expanduser() for one in named):
        if path.is_file():
            document = read_yaml(path)
            if not isinstance(document, dict):
                raise ValueError("it is no mapping of keys")
            found.append((path, document))
    return found


def _token_file_of(documents: list[tuple[Path, Document]], context: str | None) -> Path | None:
    """The `tokenFile` of the account in use; the client reads it once and never again."""
    if not documents:
        return None
    path, document = documents[0]
    current = context or document.get("current-context")
    of_context: Document = next(
        (c["context"] for c in document.get("contexts") or () if c["name"] == current), {}
    )
    users = document.get("users") or ()
    user: Document = next(
        (u.get("user") or {} for u in users if u["name"] == of_context.get("user")), {}
    )
    return path.parent / user["tokenFile"] if "tokenFile" in user else None


def _path(kind: str, namespace: str, name: str | None = None) -> str:
    version, plural = RESOURCE_KINDS[kind]
    root = "apis" if "/" in version else "api"  # of the core group
    path = f"/{root}/{version}/namespaces/{quote(namespace, safe='')}/{plural}"
    return path if name is None else f"{path}/{quote(name, safe='')}"


def _selected(selector: str | None, name: str | None) -> list[tuple[str, str]]:
    labels = [] if selector is None else [("labelSelector", selector)]
    return labels + ([] if name is None else [("fieldSelector", f"metadata.name={name}")])
