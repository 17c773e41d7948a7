"""Kinds that the fake API server knows, with the parts of their schemas the product uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["RESOURCES", "Resource", "definition", "problems", "pruned", "unknown_fields"]

Document = dict[str, Any]

STRINGS = "map of strings"
ANYTHING = "anything"

_JOB = {
    "jarURI": str, "parallelism": int, "entryClass": str, "args": list, "state": ("running",
    "suspended"), "upgradeMode": ("stateless", "savepoint", "last-state"),
    "allowNonRestoredState": bool, "initialSavepointPath": str, "autoscalerResetNonce": int,
}  # fmt: skip
_STATUS = {
    "jobStatus": ANYTHING, "error": str, "observedGeneration": int, "lifecycleState": ANYTHING,
    "clusterInfo": ANYTHING, "jobManagerDeploymentStatus": ANYTHING,
    "reconciliationStatus": ANYTHING, "taskManager": ANYTHING, "conditions": list,
}  # fmt: skip
_DEPLOYMENT = {
    "job": _JOB, "restartNonce": int, "flinkConfiguration": ANYTHING, "image": str,
    "imagePullPolicy": str, "serviceAccount": str, "flinkVersion": ANYTHING, "ingress": ANYTHING,
    "podTemplate": ANYTHING, "jobManager": ANYTHING, "taskManager": {
        "resource": ANYTHING, "replicas": int, "podTemplate": ANYTHING},
    "logConfiguration": ANYTHING, "mode": ("native", "standalone"),
}  # fmt: skip
_SESSION_JOB = {
    "job": _JOB, "restartNonce": int, "flinkConfiguration": ANYTHING, "deploymentName": str,
}  # fmt: skip


@dataclass(frozen=True)
class Resource:
    """One kind; without a schema everything is taken as it is."""

    version: str  # group and version
    plural: str
    kind: str
    has_status: bool = False
    spec: Mapping[str, Any] = field(default_factory=dict)

    @property
    def group(self) -> str:
        return self.version.rpartition("/")[0]  # empty: the core group

    @property
    def full_name(self) -> str:
        return f"{self.plural}.{self.group}"


RESOURCES = {
    resource.plural: resource
    for resource in (
        Resource("flink.apache.org/v1beta1", "flinkdeployments", "FlinkDeployment", True,
                 _DEPLOYMENT),
        Resource("flink.apache.org/v1beta1", "flinksessionjobs", "FlinkSessionJob", True,
                 _SESSION_JOB),
        Resource("coordination.k8s.io/v1", "leases", "Lease"),
        Resource("events.k8s.io/v1", "events", "Event"),
        Resource("v1", "configmaps", "ConfigMap"),
    )
}  # fmt: skip
"""By plural; the configuration is schemaless, as since operator 1.13."""


def definition(resource: Resource) -> Document:
    """The same as a CustomResourceDefinition, for a real server."""
    group, _, version = resource.version.partition("/")
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {
        "name": version, "served": True, "storage": True, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": _openapi(resource.spec), "status": status},
        }},
    }  # fmt: skip
    names = {"kind": resource.kind, "plural": resource.plural, "singular": resource.kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.full_name},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [served]},
    }


def problems(resource: Resource, body: Document) -> list[str]:
    """What is wrong with an object, each as the server says it."""
    if not resource.spec:
        return []
    return list(_wrong(body.get("spec") or {}, resource.spec, "spec"))


def unknown_fields(resource: Resource, body: Document) -> list[str]:
    """Fields nobody defined."""
    if not resource.spec:
        return []
    return list(_unknown(body.get("spec") or {}, resource.spec, "spec"))


def pruned(resource: Resource, body: Document) -> Document:
    """The object without the fields nobody defined; changed in place."""
    for path in unknown_fields(resource, body):
        at = body
        *above, last = path.split(".")
        for key in above:
            at = at[key]
        del at[last]
    return body


def _openapi(schema: Any) -> Document:
    anything = {"x-kubernetes-preserve-unknown-fields": True}
    if isinstance(schema, Mapping):
        inner = {key: _openapi(value) for key, value in schema.items()}
        return {"type": "object", "properties": inner}
    if isinstance(schema, tuple):
        return {"type": "string", "enum": list(schema)}
    if schema == STRINGS:
        return {"type": "object", "additionalProperties": {"type": "string"}}
    if schema == ANYTHING:
        return anything
    kind = {int: "integer", str: "string", bool: "boolean", list: "array"}[schema]
    return {"type": kind} | ({"items": anything} if schema is list else {})


def _wrong(value: Any, schema: Any, path: str) -> Iterator[str]:
    if schema == ANYTHING:
        return
    if isinstance(schema, Mapping):
        if not isinstance(value, dict):
            yield f'{path}: Invalid value: "{_type(value)}": {path} must be of type object'
            return
        for key, inner in schema.items():
            if key in value:
                yield from _wrong(value[key], inner, f"{path}.{key}")
    elif schema == STRINGS:
        for key, text in value.items():
            if not isinstance(text, str):
                said = f"{path}.{key} must be of type string"
                yield f'{path}.{key}: Invalid value: "{_type(text)}": {said}'
    elif isinstance(schema, tuple):
        if value not in schema:
            known = ", ".join(f'"{word}"' for word in schema)
            yield f'{path}: Unsupported value: "{value}": supported values: {known}'
    elif type(value) is not schema:
        wanted = {int: "integer", str: "string", bool: "boolean", list: "array"}[schema]
        yield f'{path}: Invalid value: "{_type(value)}": {path} must be of type {wanted}'


def _unknown(value: Any, schema: Any, path: str) -> Iterator[str]:
    if not isinstance(schema, Mapping) or not isinstance(value, dict):
        return
    for key, inner in list(value.items()):
        if key in schema:
            yield from _unknown(inner, schema[key], f"{path}.{key}")
        else:
            yield f"{path}.{key}"


def _type(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    return names.get(type(value), "object" if isinstance(value, dict) else "null")
