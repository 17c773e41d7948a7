"""The admission policy of `deploy/`: its CEL evaluated for changes by the acting account."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import yaml

from dsp_gym.backends.kubernetes import admission
from dsp_gym.backends.kubernetes.admission import INNER, merged, refusal
from dsp_gym.backends.kubernetes.overrides import KEY
from dsp_gym.backends.kubernetes.resources import (
    DECISION,
    EPOCH,
    HOLDER,
    KILL_SWITCH,
    LEAP,
    OWN_ANNOTATIONS,
    VERTICES,
    FlinkResource,
)
from tests.admission import ACTOR, SPELLINGS, draw_write, policy_says, shipped

pytest.importorskip("cel_expr_python", reason="has wheels for Linux on x86_64 alone")


def fence_says(before: dict[str, Any], after: dict[str, Any], user: str = ACTOR) -> list[str]:
    """Messages of the policy; the process's own rule has to say the same."""
    said = policy_says(before, after, user)
    assert user != ACTOR or (refusal(before, after) is None) == (said == [])
    return said


def both_say(verdicts: int) -> tuple[int, set[str]]:
    """Compare both rules on random writes; how many were let through, and what refused the rest."""
    random, passed, reasons = Random(7), 0, set()
    for _ in range(verdicts):
        before, after = draw_write(random)
        mine, said = refusal(before, after), policy_says(before, after)
        assert (mine is None) == (said == []), (mine, said, before, after)
        passed += mine is None
        reasons |= set(said)
    return passed, reasons


def test_the_process_and_the_server_give_random_writes_the_same_verdict() -> None:
    passed, reasons = both_say(600)
    assert passed >= 120
    assert reasons == {rule["message"] for rule in shipped()["spec"]["validations"]}


@pytest.mark.validate
def test_the_process_and_the_server_give_100_000_writes_the_same_verdict() -> None:
    passed, _ = both_say(100_000)
    assert passed >= 20_000


LISTED = {VERTICES: "a:1-600,ab:1-600,b:1-64"}
STAMPED = {"name": "q11", "annotations": {
    EPOCH: "3", HOLDER: "a", KILL_SWITCH: "false", **LISTED,
}}  # fmt: skip


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
        (flink(pipeline={"jars": "x"}), flink(pipeline={"jars": "x"}, **{KEY: "a:2"}), None),
        (
            flink(pipeline={"jars": "x"}),
            flink(pipeline={"jars": "x", INNER: "a:2"}),
            "another way",
        ),
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
            "in two",
        ),
        (flink(**{KEY: "a:1"}), flink(pipeline={INNER: "a:1"}, **{KEY: "a:1"}), "in two"),
        (flink(**{KEY: "a:1"}), flink(**{KEY: {"a": 1}}), "another way"),
        # what vanishes, and what reads badly
        (flink(**{KEY: "a:1,b:1"}), flink(**{KEY: ""}), "may not remove an override"),
        (flink(**{KEY: "a:1,b:1"}), flink(**{KEY: "a:1"}), "may not remove an override"),
        (flink(**{KEY: {"a": 1, "b": 1}}), flink(**{KEY: {"a": 2}}), "may not remove an override"),
        (flink(**{KEY: {"a": 1}}), flink(**{KEY: {}}), "may not remove an override"),
        (flink(), flink(**{KEY: ""}), "may not remove an override"),
        (flink(**{KEY: "a:1"}), flink(**{KEY: "a:1:9"}), "'vertex:tasks' only"),
        (flink(**{KEY: "a:1"}), flink(**{KEY: "a:1,a:9"}), "twice"),
        (flink(**{KEY: "a:1"}), flink(**{KEY: "a:1,"}), "'vertex:tasks' only"),
        (flink(**{KEY: "a:1"}), flink(**{KEY: "{a: '2'}"}), "'vertex:tasks' only"),
        (flink(**{KEY: "a:1"}), flink(**{KEY: "a:02"}), "'vertex:tasks' only"),
        (flink(**{KEY: {"a": 1}}), flink(**{KEY: {"a": 2.0}}), "'vertex:tasks' only"),
        (flink(**{KEY: {"a": 1}}), flink(**{KEY: {"a": True}}), "'vertex:tasks' only"),
        (flink(**{KEY: "a:one"}), flink(**{KEY: "a:2"}), "'vertex:tasks' only"),
        # vertices and numbers that the owner has not listed
        (flink(**{KEY: "a:1"}), flink(**{KEY: "a:1,x:1"}), "dsp-gym.io/vertices lists"),
        (flink(**{KEY: "b:33"}), flink(**{KEY: "b:65"}), "dsp-gym.io/vertices lists"),
    ],
)
def test_the_fence_lets_the_actor_change_one_key(before, after, refused) -> None:
    said = fence_says(before, after)
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
    assert fence_says(before, after) == []


def test_the_fence_lets_nobody_reach_a_spec_without_configuration_by_another_way() -> None:
    bare = {"metadata": STAMPED, "spec": {"image": "flink:2.1"}}
    other = {"metadata": STAMPED, "spec": {"image": "flink:2.1", "mode": "x"}}
    assert fence_says(bare, other) == ["dsp-gym may change flinkConfiguration only"]
    spec = {"image": "flink:2.1", "flinkConfiguration": {KEY: "a:2"}}
    added = {"metadata": STAMPED, "spec": spec}
    assert fence_says(bare, added) == []


def marked(**metadata: Any) -> dict[str, Any]:
    return {**flink(), "metadata": {**STAMPED, **metadata}}


def annotated(**annotations: str) -> dict[str, Any]:
    """With annotations in place of those of `STAMPED`; by the last part of their names."""
    given = {f"dsp-gym.io/{name}": text for name, text in annotations.items()}
    return marked(annotations={**LISTED, **given})


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
        (annotated(epoch=str(3 + LEAP), holder="b", stop="false"), None),
        (annotated(epoch=str(4 + LEAP), holder="b", stop="false"), "leap far beyond"),
        (annotated(epoch=str(2**63 - 1), holder="b", stop="false"), "leap far beyond"),
        (annotated(epoch="3", holder="b", stop="false"), "epoch of another holder"),
        (annotated(epoch="4", holder="b" * 254, stop="false"), "more than 253"),
        (annotated(epoch="4", holder="b", stop="false", vertices="a:1-9"), "own annotations only"),
    ],
)
def test_of_the_metadata_the_fence_passes_its_own_annotations_only(after, refused) -> None:
    said = fence_says(marked(), after)
    assert (said == []) if refused is None else any(refused in message for message in said)
    assert fence_says(marked(), after, "system:serviceaccount:flink:operator") == []


def test_the_fence_lets_nobody_take_away_labels_or_write_without_an_epoch() -> None:
    labelled = marked(labels={"team": "x"})
    assert fence_says(labelled, marked()) == [
        "dsp-gym may not change metadata but its own annotations"
    ]
    before, after = flink(**{KEY: "a:1"}), flink(**{KEY: "a:2"})
    bare = {"metadata": {"name": "q11", "annotations": LISTED}}
    assert fence_says({**before, **bare}, {**after, **bare}) == [
        "dsp-gym may not change an override without an epoch"
    ]
    assert fence_says({**before, **bare}, {**after, "metadata": {
        "name": "q11", "annotations": {EPOCH: "1", HOLDER: "a", DECISION: "7f", **LISTED},
    }}) == []  # fmt: skip


def test_the_fence_knows_the_annotations_that_are_written() -> None:
    (own,) = [v["expression"] for v in shipped()["spec"]["variables"] if v["name"] == "own"]
    assert yaml.safe_load(own) == list(OWN_ANNOTATIONS)


@pytest.mark.parametrize("value", ["true", "True", "yes", "1", "", "fAlse", "false"])
def test_while_the_kill_switch_is_there_the_fence_lets_nothing_be_written(value) -> None:
    notes = {**STAMPED["annotations"], KILL_SWITCH: value}
    before, after = flink(**{KEY: "a:1"}), flink(**{KEY: "a:2"})
    for changed in (before, after):
        said = fence_says(
            {**before, "metadata": {"name": "q11", "annotations": notes}},
            {**changed, "metadata": {"name": "q11", "annotations": {**notes, EPOCH: "4"}}},
        )
        stopped = ["dsp-gym may write nothing while the annotation dsp-gym.io/stop says stop"]
        assert said == ([] if value == "false" else stopped)
    stopped = FlinkResource.parse({**before, "metadata": {"annotations": notes}})
    assert stopped.kill_switch == (value != "false")


@pytest.mark.parametrize(
    "listed", [None, "", "b:1-64", "a:1-64,", "a:64", "a:0-64", "a:64-1", "a: 1-64", "a:1-1"]
)
def test_without_a_readable_list_of_its_owner_no_vertex_is_rescaled(listed) -> None:
    notes = {k: v for k, v in STAMPED["annotations"].items() if k != VERTICES}
    notes |= {} if listed is None else {VERTICES: listed}
    metadata = {"metadata": {"name": "q11", "annotations": notes}}
    before, after = flink(**{KEY: "a:1"}), flink(**{KEY: "a:2"})
    (said,) = fence_says({**before, **metadata}, {**after, **metadata})
    assert "dsp-gym.io/vertices lists" in said


def test_the_fence_and_the_process_have_the_same_bounds() -> None:
    given = {v["name"]: v["expression"] for v in shipped()["spec"]["variables"]}
    assert int(given["factor"]) == admission.FACTOR
    assert int(given["step"]) == admission.STEP
    assert int(given["leap"]) == LEAP


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        ({"a": 4, "b": 1}, {"a": 16, "b": 33}, None),
        ({"a": 100, "b": 33}, {"a": 400, "b": 1}, None),
        ({"a": 4, "ab": 100}, {"a": 5, "ab": 100}, None),  # one id begins as the other
        ({"a": 601}, {"a": 601, "b": 2}, None),  # what stands there may stay
        ({"a": 600}, {"a": 601}, "within their bounds"),
        ({"a": 4}, {"a": 4, "b": 65}, "within their bounds"),
        ({"a": 4}, {"a": 4, "b": 512}, "within their bounds"),
        ({"a": 4}, {"a": 0}, "'vertex:tasks' only"),
        ({"a": 4}, {"a": 37}, "`factor` and `step`"),
        ({"a": 100, "b": 4}, {"a": 401, "b": 4}, "`factor` and `step`"),
        ({"a": 401}, {"a": 100}, "`factor` and `step`"),
    ],
)
def test_the_fence_bounds_what_one_write_may_ask_for(spelling, before, after, refused) -> None:
    there, written = SPELLINGS[spelling], SPELLINGS["text" if spelling == "yaml" else spelling]
    said = fence_says(flink(**there(before)), flink(**written(after)))
    assert (said == []) if refused is None else any(refused in message for message in said)
