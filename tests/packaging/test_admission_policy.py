"""The admission policy of `deploy/`: its CEL evaluated for changes by the acting account."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import yaml

from dsp_gym.backends.kubernetes.overrides import KEY
from dsp_gym.backends.kubernetes.resources import (
    DECISION,
    EPOCH,
    HOLDER,
    KILL_SWITCH,
    OWN_ANNOTATIONS,
    FlinkResource,
)
from tests.kustomizing import render

ACTIVE = Path(__file__).parents[2] / "deploy" / "overlays" / "active"
ACTOR = "system:serviceaccount:dsp-gym:dsp-gym-actor"
INNER = "jobvertex-parallelism-overrides"


@functools.cache
def shipped() -> dict[str, Any]:
    (policy,) = (r for r in render(ACTIVE) if r["kind"] == "ValidatingAdmissionPolicy")
    return policy


@functools.cache
def compiled(expression: str) -> Any:
    """A CEL expression, parsed; it keeps nothing of what it is evaluated with."""
    import celpy

    text, items = celpy.celtypes.StringType, celpy.celtypes.ListType
    strings = {  # of Kubernetes' own library
        "split": lambda of, at: items([text(part) for part in str.split(of, at)]),
        "replace": lambda of, old, new: text(str.replace(of, old, new)),
    }
    environment = celpy.Environment()
    return environment.program(environment.compile(expression), functions=strings)


def fence_says(before: dict[str, Any], after: dict[str, Any], user: str) -> list[str]:
    """Messages of the fence's rules that refuse a change, by evaluating its CEL."""
    import celpy

    policy = shipped()
    known = {
        name: celpy.json_to_cel(value)
        for name, value in (
            ("oldObject", before), ("object", after), ("request", {"userInfo": {"username": user}}),
        )
    }  # fmt: skip

    def value(expression: str) -> Any:
        return compiled(expression).evaluate(known)

    def holds(expression: str) -> bool:
        try:
            return bool(value(expression))
        except celpy.CELEvalError:
            return False  # failurePolicy: Fail

    spec = policy["spec"]
    assert spec["failurePolicy"] == "Fail"
    if not all(holds(condition["expression"]) for condition in spec["matchConditions"]):
        return []
    known["variables"] = celpy.celtypes.MapType()
    for variable in spec["variables"]:
        named = celpy.celtypes.StringType(variable["name"])
        known["variables"][named] = value(variable["expression"])
    return [rule["message"] for rule in spec["validations"] if not holds(rule["expression"])]


STAMPED = {"name": "q11", "annotations": {EPOCH: "3", HOLDER: "a", KILL_SWITCH: "false"}}


def flink(image: str = "flink:2.1", **configuration: Any) -> dict[str, Any]:
    spec = {"image": image, "job": {"parallelism": 4}, "flinkConfiguration": configuration}
    return {"metadata": STAMPED, "spec": spec}


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        (flink(**{KEY: "a:1"}), flink(**{KEY: "a:2"}), None),
        (flink(), flink(**{KEY: "a:2"}), None),
        (flink(state="rocksdb", **{KEY: "a:1"}), flink(state="rocksdb", **{KEY: "a:2"}), None),
        (flink(**{KEY: "a:1"}), flink("flink:2.2", **{KEY: "a:2"}), "flinkConfiguration only"),
        (flink(state="rocksdb"), flink(state="heap"), "overrides only"),
        (flink(state="rocksdb"), flink(), "overrides only"),
        (flink(), flink(state="heap"), "overrides only"),
        (flink(**{KEY: "a:1"}), flink(), "may not remove an override"),
        # one text, or a map by vertex, inside a map
        (flink(pipeline={INNER: "a:1"}), flink(pipeline={INNER: "a:2"}), None),
        (flink(pipeline={INNER: {"a": 1}}), flink(pipeline={INNER: {"a": 2}}), None),
        (
            flink(pipeline={"jars": "x", INNER: "a:1"}),
            flink(pipeline={"jars": "x", INNER: "a:2"}),
            None,
        ),
        (flink(pipeline={"jars": "x"}), flink(pipeline={"jars": "x", INNER: "a:2"}), None),
        (
            flink(pipeline={"jars": "x", INNER: "a:1"}),
            flink(pipeline={"jars": "y", INNER: "a:2"}),
            "overrides only",
        ),
        (
            flink(pipeline={INNER: "a:1"}),
            flink(pipeline={"jars": "x", INNER: "a:2"}),
            "overrides only",
        ),
        (
            flink(pipeline={"jars": "x", INNER: "a:1"}),
            flink(pipeline={INNER: "a:2"}),
            "overrides only",
        ),
        (flink(), flink(pipeline={"jars": "x"}), "overrides only"),
        (flink(pipeline={"jars": "x"}), flink(), "overrides only"),
        (flink(pipeline={INNER: "a:1"}), flink(pipeline={}), "may not remove an override"),
        (flink(pipeline={INNER: "a:1"}), flink(), "may not remove an override"),
        (flink(pipeline={INNER: "a:1"}), flink(pipeline="x"), "overrides only"),
        # one key per vertex
        (flink(**{f"{KEY}.a": "1"}), flink(**{f"{KEY}.a": "2", f"{KEY}.b": "3"}), None),
        (
            flink(**{f"{KEY}.a": "1", f"{KEY}.b": "3"}),
            flink(**{f"{KEY}.a": "1"}),
            "may not remove an override",
        ),
        (flink(pipeline={f"{INNER}.a": 1}), flink(pipeline={f"{INNER}.a": 2}), None),
        (flink(), flink(**{f"{KEY}-not": "1"}), "overrides only"),
        # two spellings
        (
            flink(pipeline={INNER: "a:1"}),
            flink(pipeline={INNER: "a:1"}, **{KEY: "a:2"}),
            "in two ways",
        ),
        (flink(**{KEY: "a:1"}), flink(pipeline={INNER: "a:1"}, **{KEY: "a:1"}), "in two ways"),
    ],
)
def test_the_fence_lets_the_actor_change_one_key(before, after, refused) -> None:
    said = fence_says(before, after, ACTOR)
    assert (said == []) if refused is None else any(refused in message for message in said)
    assert fence_says(before, after, "system:serviceaccount:flink:operator") == []


@pytest.mark.parametrize(
    "configuration",
    [
        {KEY: "a:1"}, {KEY: {"a": 1}}, {f"{KEY}.a": "1"}, {}, {"state": "rocksdb"},
        {"pipeline": {INNER: "a:1", "jars": "x"}}, {"pipeline": {INNER: {"a": 1}}},
        {"pipeline": {f"{INNER}.a": 1}},
    ],
)  # fmt: skip
def test_the_fence_lets_pass_what_the_process_writes_in_every_spelling(configuration) -> None:
    before = flink(**configuration)
    patch = FlinkResource.parse({"kind": "FlinkDeployment", **before}).patch_for({"a": 3})
    after = merged(before, patch)
    assert FlinkResource.parse({"kind": "FlinkDeployment", **after}).overrides == {"a": 3}
    assert fence_says(before, after, ACTOR) == []


def merged(old: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    old = old if isinstance(old, dict) else {}
    return {**old, **{key: merged(old.get(key), value) for key, value in patch.items()}}


def test_the_fence_lets_nobody_reach_a_spec_without_configuration_by_another_way() -> None:
    bare = {"metadata": STAMPED, "spec": {"image": "flink:2.1"}}
    other = {"metadata": STAMPED, "spec": {"image": "flink:2.1", "mode": "x"}}
    assert fence_says(bare, other, ACTOR) == ["dsp-gym may change flinkConfiguration only"]
    spec = {"image": "flink:2.1", "flinkConfiguration": {KEY: "a:2"}}
    added = {"metadata": STAMPED, "spec": spec}
    assert fence_says(bare, added, ACTOR) == []


def marked(**metadata: Any) -> dict[str, Any]:
    return {**flink(), "metadata": {**STAMPED, **metadata}}


def annotated(**annotations: str) -> dict[str, Any]:
    """With annotations in place of those of `STAMPED`; by the last part of their names."""
    return marked(annotations={f"dsp-gym.io/{name}": text for name, text in annotations.items()})


@pytest.mark.parametrize(
    ("after", "refused"),
    [
        (annotated(epoch="4", holder="b", stop="false"), None),
        (annotated(epoch="3", holder="a", stop="false", decision="7f"), None),
        (marked(generation=2, resourceVersion="8", managedFields=[{"manager": "dsp-gym"}]), None),
        (marked(labels={"team": "x"}), "may not change metadata"),
        (marked(ownerReferences=[{"kind": "Pod", "name": "a"}]), "may not change metadata"),
        (marked(finalizers=["a/b"]), "may not change metadata"),
        (marked(deletionTimestamp="2026-01-01T00:00:00Z"), "may not change metadata"),
        (annotated(epoch="3", holder="a"), "its own annotations only, and remove none"),
        (annotated(epoch="3", holder="a", stop="true"), "its own annotations only"),
        (annotated(epoch="3", holder="a", stop="false", else_="x"), "its own annotations only"),
        (annotated(holder="a", stop="false"), "earlier epoch"),
        (annotated(epoch="2", holder="a", stop="false"), "earlier epoch"),
        (annotated(epoch="seven", holder="a", stop="false"), "earlier epoch"),
    ],
)
def test_of_the_metadata_the_fence_passes_its_own_annotations_only(after, refused) -> None:
    said = fence_says(marked(), after, ACTOR)
    assert (said == []) if refused is None else any(refused in message for message in said)
    assert fence_says(marked(), after, "system:serviceaccount:flink:operator") == []


def test_the_fence_lets_nobody_take_away_labels_or_write_without_an_epoch() -> None:
    labelled = marked(labels={"team": "x"})
    assert fence_says(labelled, marked(), ACTOR) == [
        "dsp-gym may not change metadata but its own annotations"
    ]
    before, after = flink(**{KEY: "a:1"}), flink(**{KEY: "a:2"})
    bare = {"metadata": {"name": "q11"}}
    assert fence_says({**before, **bare}, {**after, **bare}, ACTOR) == [
        "dsp-gym may not change an override without an epoch"
    ]
    assert fence_says({**before, **bare}, {**after, "metadata": {
        "name": "q11", "annotations": {EPOCH: "1", HOLDER: "a", DECISION: "7f"},
    }}, ACTOR) == []  # fmt: skip


def test_the_fence_knows_the_annotations_that_are_written() -> None:
    (own,) = [v["expression"] for v in shipped()["spec"]["variables"] if v["name"] == "own"]
    assert yaml.safe_load(own) == list(OWN_ANNOTATIONS)


SPELLINGS = {
    "text": lambda tasks: {KEY: ",".join(f"{v}:{n}" for v, n in tasks.items())},
    "yaml": lambda tasks: {KEY: str({v: str(n) for v, n in tasks.items()})},
    "map": lambda tasks: {KEY: dict(tasks)},
    "texts": lambda tasks: {KEY: {v: str(n) for v, n in tasks.items()}},
    "prefix": lambda tasks: {f"{KEY}.{v}": n for v, n in tasks.items()},
    "nested": lambda tasks: {"pipeline": {INNER: ",".join(f"{v}:{n}" for v, n in tasks.items())}},
    "nested map": lambda tasks: {"pipeline": {INNER: dict(tasks)}},
    "nested prefix": lambda tasks: {"pipeline": {f"{INNER}.{v}": n for v, n in tasks.items()}},
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        ({"a": 4, "b": 1}, {"a": 16, "b": 33}, None),
        ({"a": 100, "b": 33}, {"a": 400, "b": 1}, None),
        ({"a": 4, "ab": 100}, {"a": 5, "ab": 100}, None),  # one id begins as the other
        ({"a": 600}, {"a": 600, "b": 2}, None),  # what stands there may stay
        ({"a": 4}, {"a": 513}, "`most`"),
        ({"a": 4}, {"a": 4, "b": 513}, "`most`"),
        ({"a": 4}, {"a": 0}, "one task of a vertex at least"),
        ({"a": 4}, {"a": 37}, "`factor` and `step`"),
        ({"a": 100, "b": 4}, {"a": 401, "b": 4}, "`factor` and `step`"),
        ({"a": 401}, {"a": 100}, "`factor` and `step`"),
    ],
)
def test_the_fence_bounds_what_one_write_may_ask_for(spelling, before, after, refused) -> None:
    written = SPELLINGS[spelling]
    said = fence_says(flink(**written(before)), flink(**written(after)), ACTOR)
    assert (said == []) if refused is None else len(said) >= 1
    assert refused is None or any(refused in message for message in said)
