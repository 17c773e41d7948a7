"""Requests to the fake API server: authorization, routing and answers."""

from __future__ import annotations

import json
import re
import time
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.fakes.kubernetes_schema import Resource, unknown_fields
from tests.fakes.kubernetes_selectors import BadSelector, matcher, merged
from tests.fakes.kubernetes_store import Refused

if TYPE_CHECKING:
    from tests.fakes.kubernetes_api import FakeKubernetes

__all__ = ["Handler"]

Document = dict[str, Any]
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_RULES = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class _Lost(Exception):
    """The connection breaks before an answer."""


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # head and body leave together
    disable_nagle_algorithm = True

    @property
    def fake(self) -> FakeKubernetes:
        return self.server.fake  # type: ignore[attr-defined,no-any-return]

    def _serve(self) -> None:
        fake = self.fake
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length) if length else b""
        parts = urlsplit(self.path)
        self.query = dict(parse_qsl(parts.query, keep_blank_values=True))
        self.where = parts.path
        self.who, self.parts = "", frozenset[str]()
        fake.thawed.wait()
        if fake.stopping.is_set():
            self.close_connection = True
            return
        if fake.delay_s:
            time.sleep(fake.delay_s)
        try:
            self._authenticate()
            self._answer(raw)
        except Refused as refusal:
            self._send(refusal.code, _status(refusal))
        except BadSelector as error:
            self._send(400, _status(Refused(400, "BadRequest", str(error))))
        except _Lost:
            self._count(0)
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    def _authenticate(self) -> None:
        given = self.headers.get("Authorization", "")
        if not given:
            self.who = "system:anonymous"
            return
        token = given.partition(" ")[2].strip()
        if token not in self.fake.tokens:
            raise Refused(401, "Unauthorized", "Unauthorized")
        self.who = self.fake.tokens[token]

    def _answer(self, raw: bytes) -> None:
        if self.where in (_REVIEWS, _RULES) and self.command == "POST":
            self._review(json.loads(raw))
            return
        if self.where == "/api/v1/namespaces" and self.command == "GET":
            self._list_namespaces()
            return
        found = re.fullmatch(
            r"/(?:apis/(?=[^/]+/v)|api/(?=v))((?:[^/]+/)?v[^/]+)/namespaces/([^/]+)/([^/]+)"
            r"(?:/([^/]+))?(?:/(status))?",
            self.where,
        )
        resource = self.fake.resources.get(found[3]) if found else None
        if found is None or resource is None or resource.version != found[1]:
            self._send_text(404, "404 page not found\n")
            return
        namespace, name = unquote(found[2]), unquote(found[4] or "")
        self._authorize(resource, namespace, name, found[5])
        if self.command == "GET":
            self._read(resource, namespace, name)
        else:
            self._write(resource, namespace, name, bool(found[5]), raw)

    def _review(self, review: Document) -> None:
        if self.who == "system:anonymous":
            raise Refused(403, "Forbidden", "selfsubjectaccessreviews is forbidden")
        if self.where == _RULES:
            rules = self.fake.rules(self.who, review["spec"]["namespace"])
            rules = [] if self.fake.incomplete else rules
            told = {"resourceRules": rules, "nonResourceRules": [],
                    "incomplete": self.fake.incomplete}  # fmt: skip
            if self.fake.incomplete:
                told["evaluationError"] = "webhook authorizer does not support user rule resolution"
            self._send(201, {**review, "status": told})
            return
        asked = review["spec"]["resourceAttributes"]
        allowed = self.fake.may(  # whether such a resource is defined is not asked
            self.who, asked["verb"], asked["resource"], asked.get("subresource"),
            asked.get("name", ""), asked.get("group", ""), asked.get("namespace", ""),
        )  # fmt: skip
        self._send(201, {**review, "status": {"allowed": allowed}})

    def _list_namespaces(self) -> None:
        if not self.fake.may(self.who, "list", "namespaces", None, "", ""):
            raise Refused(403, "Forbidden", "namespaces is forbidden at the cluster scope")
        items = [{"metadata": {"name": name}} for name in self.fake.namespaces]
        self._send(200, {"kind": "NamespaceList", "metadata": {}, "items": items})

    def _authorize(
        self, resource: Resource, namespace: str, name: str, subresource: str | None
    ) -> None:
        verb = _VERBS[self.command]
        if verb == "get" and not name:
            verb = "watch" if self._is_true("watch") else "list"
        asked = resource.plural + (f"/{subresource}" if subresource else "")
        only = self.query.get("fieldSelector", "").partition("metadata.name=")[2]
        if not self.fake.may(
            self.who, verb, resource.plural, subresource, name or only, resource.group, namespace
        ):
            user = self.who if ":" in self.who else f"system:serviceaccount:{namespace}:{self.who}"
            which = f' "{name}"' if name else ""
            raise Refused(
                403,
                "Forbidden",
                f'{resource.full_name}{which} is forbidden: User "{user}" cannot {verb} resource '
                f'"{asked}" in API group "{resource.group}" in the namespace "{namespace}"',
                name,
            )

    def _is_true(self, key: str) -> bool:
        return self.query.get(key, "").lower() in ("true", "1")

    def _read(self, resource: Resource, namespace: str, name: str) -> None:
        if name:
            self._send(200, self.fake.store.get(resource, namespace, name))
        elif self._is_true("watch"):
            self._watch(resource, namespace)
        else:
            items, meta = self.fake.store.listed(resource, namespace, self.query)
            head = {"apiVersion": resource.version, "kind": f"{resource.kind}List"}
            self._send(200, {**head, "metadata": meta, "items": items})

    def _write(
        self, resource: Resource, namespace: str, name: str, of_status: bool, raw: bytes
    ) -> None:
        fake, store = self.fake, self.fake.store
        body = self._body(resource, raw)
        self.parts = frozenset(body)
        if fake.lost_requests:
            fake.lost_requests -= 1
            raise _Lost
        manager = self.query.get("fieldManager") or "OpenAPI-Generator"
        dry = self.query.get("dryRun") == "All"
        warnings: list[str] = []

        def admitted(before: Document | None, after: Document) -> Document:
            unknown = unknown_fields(resource, after)
            if unknown and self.query.get("fieldValidation") == "Strict":
                raise Refused(
                    422, "Invalid", f'strict decoding error: unknown field "{unknown[0]}"'
                )
            warnings.extend(f'unknown field "{path}"' for path in unknown)
            version = after.get("metadata", {}).get("resourceVersion")
            if before is not None and version not in (None, before["metadata"]["resourceVersion"]):
                return after  # a server finds the conflict before it asks a policy
            for policy in fake.admission:
                said = policy(self.who, resource.plural, before, after)
                if said is not None:
                    message = f'{resource.full_name} "{name}" is forbidden: {said}'
                    raise Refused(422, "Invalid", message, name)
            return after

        if self.command == "PATCH" and fake.status_writes and resource.has_status:
            fake.status_writes -= 1
            beat = {"reconciliationStatus": {"reconciliationTimestamp": time.time_ns()}}
            fake.set_status(resource.kind, name, _with(fake.object(resource.kind, name, namespace),
                                                       beat), namespace)  # fmt: skip
        code = 200
        if self.command == "POST":
            answer = store.create(resource, namespace, admitted(None, body), manager, dry)
            code = 201
        elif self.command == "DELETE":
            answer = store.delete(resource, namespace, name)
        else:
            is_patch = self.command == "PATCH"
            answer = store.change(
                resource, namespace, name,
                lambda old: admitted(old, merged(old, body) if is_patch else body),
                manager, of_status=of_status, dry_run=dry,
            )  # fmt: skip
        if fake.lost_answers:
            fake.lost_answers -= 1
            raise _Lost
        self._send(code, answer, warnings)

    def _body(self, resource: Resource, raw: bytes) -> Document:
        kind = self.headers.get("Content-Type", "").partition(";")[0]
        if self.command == "PATCH":
            if kind in ("application/json-patch+json", "application/apply-patch+yaml"):
                raise Refused(501, "NotImplemented", f"the fake does not speak {kind}")
            if kind != "application/merge-patch+json":
                raise Refused(
                    415,
                    "UnsupportedMediaType",
                    "the body of the request was in an unknown format - accepted media types "
                    "include: application/json-patch+json, application/merge-patch+json, "
                    "application/apply-patch+yaml",
                )
        try:
            body = json.loads(raw or b"{}")
        except ValueError as error:
            raise Refused(400, "BadRequest", f"error decoding: {error}") from error
        if not isinstance(body, dict):
            raise Refused(400, "BadRequest", "error decoding patch: cannot unmarshal array")
        return body

    def _watch(self, resource: Resource, namespace: str) -> None:
        store, given = self.fake.store, self.query.get("resourceVersion", "")
        if given and not given.isdecimal():
            message = f'Invalid value: "{given}": strconv.ParseUint: invalid syntax'
            raise Refused(500, "InternalError", message)
        lasts_s = float(self.query.get("timeoutSeconds") or 1800) * self.fake.watch_second_s
        end = time.monotonic() + lasts_s
        selects = matcher(self.query)
        self._begin_stream()
        if given in ("", "0"):
            with store.changed:
                version, items = store.version, store.listed(resource, namespace, {})[0]
            for item in items:
                if selects(item):
                    self._event("ADDED", item)
        elif int(given) < store.oldest:
            gone = Refused(410, "Expired", f"too old resource version: {given} ({store.oldest})")
            self._event("ERROR", _status(gone))
            self._end_stream()
            return
        else:
            version = int(given)
        self._follow(resource, namespace, version, end)

    def _follow(self, resource: Resource, namespace: str, version: int, end: float) -> None:
        fake, store = self.fake, self.fake.store
        spoke = time.monotonic()
        while not fake.stopping.is_set():
            fake.thawed.wait()
            with store.changed:
                events = list(store.after(resource, namespace, version, self.query))
                newest = max(version, store.version)
                if not events and time.monotonic() < end:
                    store.changed.wait(min(0.2, fake.bookmark_s, max(0.0, end - time.monotonic())))
                    if newest == store.version and time.monotonic() - spoke < fake.bookmark_s:
                        continue
            if fake.stopping.is_set() or not fake.thawed.is_set():
                continue
            for _, kind, body in events:
                self._event(kind, body)
                spoke = time.monotonic()
            over = time.monotonic() >= end
            version = newest
            if over or time.monotonic() - spoke >= fake.bookmark_s:
                if self._is_true("allowWatchBookmarks") and version <= store.version:
                    self._bookmark(resource, version)
                spoke = time.monotonic()
            if over:
                self._end_stream()
                return
        self.close_connection = True

    def _bookmark(self, resource: Resource, version: int) -> None:
        meta = {"resourceVersion": str(version), "creationTimestamp": None}
        head = {"apiVersion": resource.version, "kind": resource.kind}
        self._event("BOOKMARK", {**head, "metadata": meta})

    def _begin_stream(self) -> None:
        self._count(200)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()

    def _event(self, kind: str, body: Document) -> None:
        line = json.dumps({"type": kind, "object": body}).encode() + b"\n"
        self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
        self.wfile.flush()

    def _end_stream(self) -> None:
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _send(self, code: int, document: Document, warnings: list[str] = []) -> None:  # noqa: B006
        self._send_bytes(code, json.dumps(document).encode(), "application/json", warnings)

    def _send_text(self, code: int, text: str) -> None:
        self._send_bytes(code, text.encode(), "text/plain; charset=utf-8", [])

    def _send_bytes(self, code: int, content: bytes, kind: str, warnings: list[str]) -> None:
        self._count(code)
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        for warning in warnings:
            quoted = warning.replace('"', '\\"')
            self.send_header("Warning", f'299 - "{quoted}"')
        self.end_headers()
        self.wfile.write(content)

    def _count(self, code: int) -> None:
        from tests.fakes.kubernetes_api import Request

        self.fake.requests.append(
            Request(self.command, self.where, self.who, code, self.query, self.parts)
        )

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _with(body: Document, status: Document) -> Document:
    """Parts of a status beside those that stand there already."""
    old = body.get("status") or {}
    return {key: {**(old.get(key) or {}), **value} for key, value in status.items()}


def _status(refusal: Refused) -> Document:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": refusal.message,
        "reason": refusal.reason,
        "details": {"name": refusal.name},
        "code": refusal.code,
    }
