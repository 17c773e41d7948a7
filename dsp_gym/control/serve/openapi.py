"""The HTTP interface as an OpenAPI document; the schemas are those of the wire format."""

from __future__ import annotations

from dsp_gym.control.serve.schemas import schemas
from dsp_gym.loop.wire import DECISION_SCHEMA, SNAPSHOT_SCHEMA, Document, json_schema

_TEXT = {"text/plain": {"schema": {"type": "string"}}}
_ERROR = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}


def openapi(
    max_body_kib: int, timeout_s: float, policies: list[str], *, public: bool = False
) -> Document:
    """Describe the HTTP interface by OpenAPI 3.1.

    Args:
        max_body_kib: largest body that is read, KiB.
        timeout_s: longest wait for a request to arrive, and for a decision, s.
        policies: names that may be asked for a decision.
        public: whether everybody may read.

    Returns:
        The document, JSON-able.
    """
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "dsp-gym shadow",
            "version": "1",
            "description": "Status of a shadowed Flink job, and scaling decisions for any "
            "controller. The path holds the version; a released version does not change. Probes "
            "(/healthz, /readyz) have a port of their own.",
        },
        "security": [] if public else [{"token": []}],
        "paths": {**_pages(), "/v1/decide": {"post": _decide(max_body_kib, timeout_s, policies)}},
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Snapshot": _component(SNAPSHOT_SCHEMA, "Snapshot"),
                "Decision": _component(DECISION_SCHEMA, "Decision"),
                **schemas(),
                "Error": {
                    "type": "object",
                    "properties": {"error": {"type": "string"}},
                    "required": ["error"],
                },
            },
        },
    }


def _pages() -> Document:
    """Describe all that is read."""
    return {
        "/metrics": _get("Prometheus metrics", _TEXT),
        "/v1/jobs": _get("dsp-gym/jobs/1: every job that is watched, or should be", _json("Jobs")),
        "/v1/status": _of_job(
            "Status",
            "dsp-gym/status/1: per vertex the running configuration and every policy's target, "
            "with its reason",
        ),
        "/v1/history": _of_job(
            "History",
            "dsp-gym/history/1: the last decisions as curves, and what today has cost",
            policy="whose recommendations are shown; left out: those of the acting policy",
        ),
        "/v1/twins": _of_job(
            "Twins",
            "dsp-gym/twins/1: what every policy has cost on a twin of the job, since the start "
            "and today; without periods where no twins are driven",
        ),
        "/v1/openapi.json": _get(
            "This document", {"application/json": {"schema": {"type": "object"}}}
        ),
    }


def _of_job(schema: str, about: str, **others: str) -> Document:
    """Describe what is read of one job; others: further parameters of the query."""
    found = _get(about, _json(schema))
    found["get"]["responses"] |= {
        "400": {
            "description": "Several jobs are watched and none is named, or the request has a body",
            "content": _ERROR,
        },
        "404": {"description": "No job of that name is watched", "content": _ERROR},
    }
    found["get"]["parameters"] = [
        {
            "name": name,
            "in": "query",
            "required": False,
            "schema": {"type": "string"},
            "description": said,
        }
        for name, said in {"job": "which of several jobs", **others}.items()
    ]
    return found


def _json(schema: str) -> Document:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}


def _get(about: str, content: Document) -> Document:
    return {
        "get": {
            "summary": about,
            "responses": {
                "200": {"description": about, "content": content},
                "400": {"description": "The request has a body", "content": _ERROR},
                "401": {"description": "The token is missing or wrong", "content": _ERROR},
                "403": {"description": "No token is configured, nor public", "content": _ERROR},
                "421": {
                    "description": "The server has another name: serve.hosts",
                    "content": _ERROR,
                },
            },
        }
    }


def _decide(max_body_kib: int, timeout_s: float, policies: list[str]) -> Document:
    errors = {
        "400": "The body is no snapshot or does not follow the one before, or a parameter is wrong",
        "401": "The token is missing or wrong",
        "403": "No token is configured, so no decisions are given",
        "404": "There is no such policy",
        "408": f"The request did not arrive within {timeout_s:g} s",
        "411": "The length of the body is not given",
        "413": f"The body is larger than {max_body_kib} KiB",
        "421": "The server has another name: serve.hosts",
        "429": "Too many decisions are asked for at once, or on one job",
        "503": "There is no room for the history of another job: serve.history_mib; or no thread",
    }
    return {
        "summary": "The guarded decision on one snapshot",
        "description": "Snapshots of one `job` are its history, in order of `t_s`; a copy of the "
        "policy is kept for each. A policy that fails or takes longer than its limit is replaced "
        "by its fallback, and `reason` says so.",
        "security": [{"token": []}],
        "parameters": [
            {
                "name": "policy",
                "in": "query",
                "description": "Whose decision; left out: that of the acting policy",
                "schema": {"type": "string", "enum": policies},
            },
            {
                "name": "enacts",
                "in": "query",
                "description": "Whether the client enacts the answer; false: it only shows it, and "
                "guardrails count no rescale of this policy",
                "schema": {"type": "boolean", "default": True},
            },
        ],
        "requestBody": {
            "required": True,
            "content": _json("Snapshot"),
        },
        "responses": {
            "200": {
                "description": "dsp-gym/decision/1",
                "content": _json("Decision"),
            },
            **{code: {"description": text, "content": _ERROR} for code, text in errors.items()},
        },
    }


def _component(schema: str, name: str) -> Document:
    """Move a JSON Schema below `components`, with its references."""
    document = json_schema(schema)
    kept = {key: value for key, value in document.items() if key not in ("$schema", "$id")}
    return {
        key: _moved(value, f"#/components/schemas/{name}/$defs/") for key, value in kept.items()
    }


def _moved(value: object, base: str) -> object:
    if isinstance(value, dict):
        return {
            key: base + str(item).removeprefix("#/$defs/") if key == "$ref" else _moved(item, base)
            for key, item in value.items()
        }
    return [_moved(item, base) for item in value] if isinstance(value, list) else value
