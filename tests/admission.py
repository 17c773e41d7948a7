"""The admission policy of `deploy/`, evaluated by Google's CEL (C++), and writes to try it with.

Kubernetes has CEL in Go, with functions of its own; those that the policy uses are the same here.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from dsp_gym.backends.kubernetes.admission import INNER, MAP, merged
from dsp_gym.backends.kubernetes.overrides import KEY
from dsp_gym.backends.kubernetes.resources import (
    DECISION,
    EPOCH,
    HOLDER,
    KILL_SWITCH,
    VERTICES,
    FlinkResource,
)
from tests.kustomizing import render

__all__ = ["ACTOR", "SPELLINGS", "draw_write", "policy_says", "shipped"]

Document = dict[str, Any]

ACTIVE = Path(__file__).parents[1] / "deploy" / "overlays" / "active"
ACTOR = "system:serviceaccount:dsp-gym:dsp-gym-actor"


@functools.cache
def shipped() -> Document:
    """The policy of the kustomization."""
    (policy,) = (r for r in render(ACTIVE) if r["kind"] == "ValidatingAdmissionPolicy")
    return policy


@functools.cache
def _environment() -> Any:
    from cel_expr_python import cel
    from cel_expr_python.ext import ext_strings

    names = ("object", "oldObject", "request", "variables")
    return cel.NewEnv(
        variables=dict.fromkeys(names, cel.Type.DYN), extensions=[ext_strings.ExtStrings()]
    )


@functools.cache
def _compiled(expression: str) -> Any:
    return _environment().compile(expression)


def policy_says(before: Document, after: Document, user: str = ACTOR) -> list[str]:
    """Messages of the policy's rules that refuse a change.

    A rule is refused, too, where it cannot be evaluated (`failurePolicy: Fail`), as where a
    variable that it asks for cannot.
    """
    known = {"oldObject": before, "object": after, "request": {"userInfo": {"username": user}}}
    spec = shipped()["spec"]
    assert spec["failurePolicy"] == "Fail"
    variables: Document = {}
    known["variables"] = variables

    def value(rule: Document) -> Any:
        return _compiled(rule["expression"]).eval(data=known)

    if not all(value(condition).plain_value() for condition in spec["matchConditions"]):
        return []
    for variable in spec["variables"]:
        found = value(variable)
        if found.type().name() != "ERROR":  # else it is an error only for a rule that asks for it
            variables[variable["name"]] = found.plain_value()
    return [
        rule["message"] for rule in spec["validations"] if value(rule).plain_value() is not True
    ]


def _pairs(tasks: Document) -> str:
    return ",".join(f"{vertex}:{n}" for vertex, n in tasks.items())


SPELLINGS: dict[str, Callable[[Document], Document]] = {
    "text": lambda tasks: {KEY: _pairs(tasks)},
    "yaml": lambda tasks: {KEY: str({v: str(n) for v, n in tasks.items()})},
    "map": lambda tasks: {KEY: dict(tasks)},
    "texts": lambda tasks: {KEY: {v: str(n) for v, n in tasks.items()}},
    "prefix": lambda tasks: {f"{KEY}.{v}": n for v, n in tasks.items()},
    "nested": lambda tasks: {MAP: {INNER: _pairs(tasks)}},
    "nested map": lambda tasks: {MAP: {INNER: dict(tasks)}},
    "nested prefix": lambda tasks: {MAP: {f"{INNER}.{v}": n for v, n in tasks.items()}},
}
"""Options by the way in which an override is spelled."""

VERTEX_IDS = ("a", "b", "ab", "c-1")
_ODD = (
    "", "a:1:9", "a:1,a:9", "a:0", "a:1,", ",a:1", "a:1,,b:2", "a", "a:-1", "a:1.5", "a:01", " a:1",
    "a:1\n", "{a: '2'}", "a:99999", "a:100000", "a:9223372036854775808", "a b:1", "x:1", "a:1;b:2",
    "a:1\x01", "a:\u0661", "'a:2'",
)  # fmt: skip
_VALUES = (0, -1, 1, 2, 512, 2**63 - 1, 2**63, 1.0, 2.5, True, None, [], {}, "1", "x", ["a:1"])
_NOTES = (
    "", "0", "1", "3", "4", "03", "-1", "1.0", "x", "true", "false", "False", "FALSE", "no",
    "999", "1004", str(10**17), str(2**63 - 1), str(2**63), "9" * 18, "9" * 253, "9" * 254,
    "a:1-4", "a:1-64,b:1-64", "a:1-64,", "a:64-1", "a:1-64,a:100-200", "a: 1-64", "a:1",
)  # fmt: skip


def draw_write(random: Random) -> tuple[Document, Document]:
    """A resource before and after a write: one as dsp-gym makes it, with up to two changes."""
    before = _resource(random)
    for _ in range(random.choice((0, 0, 0, 1))):
        _spoil(before, random)
    after = _written(before, random)
    for _ in range(random.choice((0, 0, 1, 1, 1, 2))):
        _spoil(after, random)
    return before, after


def _tasks(random: Random, fewest: int = 1) -> Document:
    some = random.sample(VERTEX_IDS, random.randint(fewest, 3))
    return {vertex: random.choice((1, 2, 4, 16, 33, 100, 511)) for vertex in some}


def _resource(random: Random) -> Document:
    options: Document = {"state": "rocksdb"} if random.random() < 0.5 else {}
    if random.random() < 0.3:
        options[MAP] = {"jars": "x"}
    if random.random() < 0.9:
        spelled = SPELLINGS[random.choice(tuple(SPELLINGS))](_tasks(random))
        options = merged(options, spelled)
    listed = {
        v: f"{v}:{random.choice((1, 1, 1, 2))}-{random.choice((64, 600, 600))}" for v in VERTEX_IDS
    }
    if random.random() < 0.1:
        del listed[random.choice(VERTEX_IDS)]
    notes = {VERTICES: ",".join(listed.values()), "team": "x"}
    if random.random() < 0.8:
        notes |= {EPOCH: random.choice(("0", "1", "3", "1000")), HOLDER: random.choice("pq")}
    if random.random() < 0.1:
        notes[KILL_SWITCH] = random.choice(("false", "true", ""))
    return {
        "metadata": {"name": "q11", "generation": 1, "annotations": notes},
        "spec": {"image": "flink:2.1", "job": {"args": ["a"]}, "flinkConfiguration": options},
    }


def _written(before: Document, random: Random) -> Document:
    """As the process writes: tasks near the old ones, under the same epoch or the next."""
    now = FlinkResource.parse(before)
    stamp = now.stamp
    holder = random.choice((stamp.holder, stamp.holder, "p", "q")) or "p"
    epoch = stamp.epoch + random.choice((0, 1, 1, 2, 999, 1000, 1001))
    notes = {EPOCH: str(epoch), HOLDER: holder, DECISION: "7f"}
    patch: Document = {"metadata": {"annotations": notes, "generation": 2}}
    if now.override_trouble is None and random.random() < 0.9:
        near = {
            vertex: max(
                1, random.choice((n, n + 1, n - 1, 2 * n, 4 * n, n // 4, n + 32, 4 * n + 1))
            )
            for vertex, n in now.overrides.items()
        }
        patch |= now.patch_for(near or _tasks(random))
    return merged(before, patch)


def _spoil(body: Document, random: Random) -> None:
    """Change one thing of a resource, inside the parts that matter or anywhere."""
    meta, spec = body["metadata"], body["spec"]
    notes, options = meta.get("annotations"), spec.get("flinkConfiguration")
    names = (EPOCH, HOLDER, DECISION, KILL_SWITCH, VERTICES, "team", "dsp-gym.io/else")
    kind = random.choice((0, 1, 2, 3, 4, 5, 5, 6, 6, 7, 8, 8))
    if kind <= 1 and isinstance(notes, dict):
        name = random.choice(names)
        if random.random() < 0.3:
            notes.pop(name, None)
        else:
            notes[name] = random.choice(_NOTES)
    elif kind == 2:
        meta[random.choice(("labels", "finalizers", "generation"))] = random.choice((7, ["a/b"]))
    elif kind == 3:
        spec[random.choice(("image", "job", "mode"))] = random.choice(("y", {"args": []}))
    elif isinstance(options, dict):
        _spoil_options(options, spec, kind, random)


def _spoil_options(options: Document, spec: Document, kind: int, random: Random) -> None:
    keys = (KEY, f"{KEY}.a", f"{KEY}.x", f"{KEY}.", f"{KEY}.a.b", f"{KEY}-not", "state", MAP)
    inner = (INNER, f"{INNER}.a", f"{INNER}.x", "jars", f"{INNER}-not")
    tree, known = options, keys
    if isinstance(options.get(MAP), dict) and random.random() < 0.5:
        options[MAP] = tree = copy.deepcopy(options[MAP])
        known = inner
    key = random.choice(known)
    if kind == 4:
        tree.pop(random.choice((key, *tree)), None)
    elif kind == 5:
        tree[key] = random.choice(_VALUES)
    elif kind == 6:
        tree[key] = random.choice(_ODD)
    elif kind == 7:
        spelled = random.choice(tuple(SPELLINGS.values()))(_tasks(random, fewest=0))
        spec["flinkConfiguration"] = merged(options, spelled)
    else:
        for name, value in tree.items():
            if isinstance(value, dict) and value and name != MAP:
                tree[name] = {**value, random.choice((*value, "x")): random.choice(_VALUES)}
