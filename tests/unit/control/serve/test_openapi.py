"""Served answers match the OpenAPI document for any request."""

from __future__ import annotations

import copy
import json
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsp_gym.control.serve.session import Session
from tests.properties.test_snapshot_reader import document as snapshot
from tests.schema_examples import ANYTHING, examples, resolved
from tests.unit.control.serve.conftest import TOKEN, Answer, ask, session_of

SHOWN = {"Authorization": f"Bearer {TOKEN}"}


class Served:
    """A session and its description of itself; Hypothesis prints it with every failure."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.document: dict[str, Any] = ask(f"{session.server.url}/v1/openapi.json").json

    def __repr__(self) -> str:
        return "served"


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[Served]:
    with session_of(tmp_path_factory.mktemp("served")) as made:
        made.run.turn()
        yield Served(made)


def operations(document: dict[str, Any]) -> list[tuple[str, str]]:
    return [(path, method) for path, of in document["paths"].items() for method in of]


def described(served: Served, path: str, method: str, answer: Answer) -> None:
    """Hold an answer to the document: its status, its kind, and its content."""
    responses = served.document["paths"][path][method]["responses"]
    assert str(answer.status) in responses, f"{method} {path}: {answer.status} {answer.text[:200]}"
    kinds = responses[str(answer.status)]["content"]
    kind = answer.headers["Content-Type"].partition(";")[0]
    assert kind in kinds
    if kind == "application/json":
        schema = {**kinds[kind]["schema"], "components": served.document["components"]}
        jsonschema.validate(answer.json, schema, jsonschema.Draft202012Validator)


@contextmanager
def undecided(tmp_path) -> Iterator[Session]:
    """A session that has not looked at its job yet."""
    with session_of(tmp_path) as made:
        yield made


def test_every_schema_is_one_and_every_reference_leads_somewhere(served):
    found: list[str] = []

    def walk(value: object) -> None:
        if isinstance(value, dict):
            found.extend([value["$ref"]] if isinstance(value.get("$ref"), str) else [])
            for item in value.values():
                walk(item)
        elif isinstance(value, list):
            for item in value:
                walk(item)

    walk(served.document)
    assert len(found) > 10
    for reference in found:
        assert resolved({"$ref": reference}, served.document)
    for schema in served.document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("turns", [0, 1, 3])
def test_what_is_read_is_as_described_before_and_after_decisions(tmp_path, turns):
    with undecided(tmp_path) as made:
        for _ in range(turns):
            made.run.turn()
        found = Served(made)
        for path, method in operations(found.document):
            if method == "get":
                answer = ask(f"{made.server.url}{path}")
                assert answer.status == 200
                described(found, path, method, answer)


def test_a_decision_is_as_described(served):
    url = f"{served.session.server.url}/v1/decide"
    body = json.dumps({**snapshot(), "job": "as-described", "t_s": 1e9}).encode()
    answer = ask(f"{url}?policy=ds2&enacts=false", body, SHOWN)
    assert answer.status == 200
    described(served, "/v1/decide", "post", answer)
    assert ask(f"{url}?enacts=perhaps", body, SHOWN).status == 400


def test_every_path_that_is_served_is_described(served):
    url = served.session.server.url
    for path, of in served.document["paths"].items():
        allowed = ask(f"{url}{path}", method="DELETE").headers["Allow"].lower().split(", ")
        assert set(of) == set(allowed) - {"head"}
    for path in ("/v1", "/v1/", "/v1/decide/x", "/v1/policies"):
        assert ask(f"{url}{path}", headers=SHOWN).status == 404


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where a document has values, from the top down."""
    if not isinstance(value, dict | list):
        return [at]
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    return [at, *(place for key, item in inner for place in places(item, (*at, key)))]


@st.composite
def bodies(draw: st.DrawFn, served: Served) -> bytes:
    """Snapshots: good ones, ones the schema allows, ones with something else in a place."""
    kind = draw(st.sampled_from(["good", "good", "allowed", "edited", "json", "bytes"]))
    if kind == "bytes":
        return draw(st.binary(max_size=64))
    if kind == "json":
        return json.dumps(draw(ANYTHING)).encode()
    if kind == "allowed":
        schema = served.document["components"]["schemas"]["Snapshot"]
        return json.dumps(draw(examples(schema, served.document))).encode()
    found = copy.deepcopy(snapshot())
    found["job"] = draw(st.sampled_from("abc"))
    found["t_s"] = draw(st.floats(0, 1e9))
    if kind == "edited":
        *before, last = draw(st.sampled_from(places(found)[1:]))
        inside = found
        for key in before:
            inside = inside[key]
        inside[last] = draw(ANYTHING)
    return json.dumps(found).encode()


@st.composite
def requests(draw: st.DrawFn, served: Served) -> tuple[str, str, str, Any, Any]:
    """A path and method of the document, and a query, headers and a body."""
    document = served.document
    path, method = draw(st.sampled_from(operations(document)))
    query = {}
    for parameter in document["paths"][path][method].get("parameters", ()):
        given = draw(st.sampled_from(["left out", "allowed", "any"]))
        if given != "left out":
            allowed = examples(parameter["schema"], document)
            value = draw(allowed if given == "allowed" else st.text(max_size=8))
            query[parameter["name"]] = str(value).lower() if value in (True, False) else value
    encoded = urllib.parse.urlencode(query)
    headers = draw(st.sampled_from([SHOWN, SHOWN, SHOWN, {}, {"Authorization": "Bearer x"}]))
    body = draw(bodies(served)) if method == "post" else draw(st.sampled_from([None, None, b"x"]))
    return path, method, f"?{encoded}" if query else "", headers, body


@pytest.mark.parametrize(
    "times", [100, pytest.param(2000, marks=pytest.mark.validate)], ids="{} requests".format
)
def test_whatever_is_asked_is_answered_as_described_and_never_by_a_fault(served, times):
    seen: set[tuple[str, int]] = set()

    @settings(
        max_examples=times,
        deadline=None,
        suppress_health_check=[*HealthCheck],
        database=None,
    )
    @given(st.data())
    def ask_anything(data: st.DataObject) -> None:
        path, method, query, headers, body = data.draw(requests(served))
        url = f"{served.session.server.url}{path}{query}"
        answer = ask(url, body, headers, method.upper())
        seen.add((path, answer.status))
        assert answer.status < 500 or answer.status == 503
        described(served, path, method, answer)

    ask_anything()
    if times >= 1000:  # fewer draws may miss one
        assert {("/v1/decide", 200), ("/v1/decide", 400), ("/v1/status", 200)} <= seen
