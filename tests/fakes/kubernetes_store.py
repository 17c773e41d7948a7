"""Objects of a fake API server: versions, generations, history, and the effects of writes."""

from __future__ import annotations

import copy
import json
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.fakes.kubernetes_schema import Resource, problems, pruned
from tests.fakes.kubernetes_selectors import matcher

__all__ = ["Change", "Refused", "Store"]

Document = dict[str, Any]


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, code: int, reason: str, message: str, name: str = "") -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.name = code, reason, message, name


@dataclass(frozen=True)
class Change:
    """One entry of the history."""

    version: int
    resource: Resource
    namespace: str
    before: Document | None
    after: Document | None


class Store:
    """Every object by resource, namespace and name; `clock` gives Unix seconds."""

    def __init__(self, now: Callable[[], str]) -> None:
        self.changed = threading.Condition(threading.RLock())
        self._now = now
        self._objects: dict[tuple[str, str, str], Document] = {}
        self._history: list[Change] = []
        self.version = 1000
        self.oldest = 1000  # changes up to here are forgotten

    def forget(self) -> None:
        """As after a restart or a compaction: nobody can go on from an older version."""
        with self.changed:
            self.version += 1
            self.oldest, self._history = self.version, []
            self.changed.notify_all()

    def get(self, resource: Resource, namespace: str, name: str) -> Document:
        with self.changed:
            try:
                return copy.deepcopy(self._objects[resource.plural, namespace, name])
            except KeyError:
                raise Refused(
                    404, "NotFound", f'{resource.full_name} "{name}" not found', name
                ) from None

    def listed(
        self, resource: Resource, namespace: str, query: Mapping[str, str]
    ) -> tuple[list[Document], Document]:
        """Objects by name, and the metadata of their list."""
        selects = matcher(query)
        with self.changed:
            found = [
                copy.deepcopy(body)
                for (plural, space, _), body in sorted(self._objects.items())
                if plural == resource.plural and space == namespace and selects(body)
            ]
            version, start = str(self.version), 0
        if query.get("continue"):
            version, start = json.loads(query["continue"])
            if int(version) < self.oldest:
                raise Refused(410, "Expired", "The provided continue parameter is too old")
        limit = int(query.get("limit", 0)) or len(found)
        meta: Document = {"resourceVersion": version}
        if start + limit < len(found):
            meta["continue"] = json.dumps([version, start + limit])
            meta["remainingItemCount"] = len(found) - start - limit
        return found[start : start + limit], meta

    def create(
        self, resource: Resource, namespace: str, body: Document, manager: str, dry_run: bool
    ) -> Document:
        body = copy.deepcopy(body)
        meta = body.setdefault("metadata", {})
        name = str(meta.get("name") or "")
        if not name and meta.get("generateName"):
            name = meta["generateName"] + uuid.uuid4().hex[:5]
        if not name:
            raise Refused(422, "Invalid", "metadata.name: Required value: name is required")
        meta |= {"name": name, "namespace": namespace}
        if resource.has_status:
            body.pop("status", None)
        self._check(resource, body)
        with self.changed:
            if (resource.plural, namespace, name) in self._objects:
                message = f'{resource.full_name} "{name}" already exists'
                raise Refused(409, "AlreadyExists", message, name)
            meta |= {"uid": str(uuid.uuid4()), "creationTimestamp": self._now()}
            if resource.has_status:
                meta["generation"] = 1
            body |= {"apiVersion": resource.version, "kind": resource.kind}
            return self._keep(resource, namespace, None, body, manager, dry_run)

    def change(
        self, resource: Resource, namespace: str, name: str, change: Callable[[Document], Document],
        manager: str, *, of_status: bool, dry_run: bool = False,
    ) -> Document:  # fmt: skip
        """Write what a function makes of an object.

        What carries a version must carry the one that stands there. Only the status is taken from
        a write to it, and it alone is left out of any other; what changes nothing is no write.
        """
        with self.changed:
            old = self.get(resource, namespace, name)
            new = change(copy.deepcopy(old))
            meta, old_meta = new.setdefault("metadata", {}), old["metadata"]
            given = meta.get("resourceVersion")
            if given and given != old_meta["resourceVersion"]:
                message = (
                    f'Operation cannot be fulfilled on {resource.full_name} "{name}": the object '
                    "has been modified; please apply your changes to the latest version and try "
                    "again"
                )
                raise Refused(409, "Conflict", message, name)
            if of_status:
                new = {**old, "status": new.get("status")}
            elif resource.has_status:
                new.pop("status", None)
                new |= {"status": old["status"]} if "status" in old else {}
            self._check(resource, new)
            kept = ("name", "namespace", "uid", "creationTimestamp", "generation",
                    "resourceVersion", "managedFields")  # fmt: skip
            new["metadata"] = {**new["metadata"], **{k: old_meta[k] for k in kept if k in old_meta}}
            if new == old:
                return old
            if "generation" in old_meta and _spec(new) != _spec(old):
                new["metadata"]["generation"] += 1
            return self._keep(resource, namespace, old, new, manager, dry_run)

    def delete(self, resource: Resource, namespace: str, name: str) -> Document:
        with self.changed:
            old = self.get(resource, namespace, name)
            del self._objects[resource.plural, namespace, name]
            self._note(resource, namespace, old, None)
            return old

    def after(
        self, resource: Resource, namespace: str, version: int, query: Mapping[str, str]
    ) -> Iterator[tuple[int, str, Document]]:
        """Changes after a version, as a watch tells them: version, type, object."""
        selects = matcher(query)
        with self.changed:
            entries = [c for c in self._history if c.version > version]
        for entry in entries:
            if (entry.resource.plural, entry.namespace) != (resource.plural, namespace):
                continue
            was = entry.before is not None and selects(entry.before)
            is_now = entry.after is not None and selects(entry.after)
            if is_now:
                assert entry.after is not None
                yield entry.version, "MODIFIED" if was else "ADDED", entry.after
            elif was:
                assert entry.before is not None
                meta = entry.before["metadata"] | {"resourceVersion": str(entry.version)}
                yield entry.version, "DELETED", {**entry.before, "metadata": meta}

    def _check(self, resource: Resource, body: Document) -> None:
        wrong = problems(resource, body)
        if wrong:
            name = body["metadata"].get("name", "")
            message = f'{resource.kind} "{name}" is invalid: [{", ".join(wrong)}]'
            raise Refused(422, "Invalid", message, name)
        pruned(resource, body)

    def _keep(
        self, resource: Resource, namespace: str, old: Document | None, new: Document,
        manager: str, dry_run: bool,
    ) -> Document:  # fmt: skip
        meta = new["metadata"]
        others = [e for e in meta.get("managedFields", []) if e["manager"] != manager]
        entry = {
            "manager": manager, "operation": "Update", "apiVersion": resource.version,
            "time": self._now(), "fieldsType": "FieldsV1",
        }  # fmt: skip
        meta["managedFields"] = [*others, entry]
        if dry_run:
            return new
        self._objects[resource.plural, namespace, meta["name"]] = new
        self._note(resource, namespace, old, new)
        return copy.deepcopy(new)

    def _note(
        self, resource: Resource, namespace: str, before: Document | None, after: Document | None
    ) -> None:
        self.version += 1
        if after is not None:
            after["metadata"]["resourceVersion"] = str(self.version)
        self._history.append(
            Change(self.version, resource, namespace, before, copy.deepcopy(after))
        )
        self.changed.notify_all()


def _spec(body: Document) -> Document:
    return {key: value for key, value in body.items() if key not in ("metadata", "status")}
