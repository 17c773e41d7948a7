"""Invalid input: valid documents with random damage, and plain noise.

A case is made from a number, the same from the same: `content(reader, 7)` can be looked at again.
"""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["Tree", "as_json", "as_yaml", "content", "large", "nested"]

Tree = Any
"""A document: dictionaries, lists, texts, numbers, truth values and None."""

ODD: tuple[Tree, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    7,
    2**31,
    2**63,
    -(2**64),
    10**30,
    10**400,
    0.5,
    -0.0,
    1e308,
    math.nan,
    math.inf,
    -math.inf,
    "",
    " ",
    "x",
    "1",
    "-1",
    "nan",
    "1e999",
    "9" * 5000,
    "\x00",
    "\ud800",
    "\u202e\U0001f600",
    "a" * 10_000,
    "../../../etc/passwd",
    "/etc/passwd",
    "2026-02-30T25:61:00Z",
    "{}",
    "[",
    [],
    {},
    [[]],
    [None],
    ["x"],
    [1, "x", None],
    [1e400, -1],
    {"x": 1},
    {"": None},
    {"schema": "dsp-gym/snapshot/1"},
    {"$array": "nowhere"},
)
NOISE = (
    b"\x00",
    b"\xff",
    b"\xfe\xff",
    b"\xef\xbb\xbf",
    b"\xed\xa0\x80",
    b"\r",
    b"\n\n",
    b"\t",
    b'"',
    b"'",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"-",
    b"&a ",
    b"*a",
    b"<<: ",
    b"!!timestamp x",
    b"!!binary x",
    b"NaN",
    b"1e999",
    b"9" * 400,
    b"\xc3\x28",
    b"%",
    b"@",
    b"\x1f\x8b",
    b"PK\x03\x04",
    b"../",
    b"#",
    b"|",
    b"? ",
    b"---\n",
    b"...\n",
)
_DEPTHS = (40, 99, 101, 900, 3000, 50_000)
_MARK = "here stands something deep"


def nested(depth: int, kind: str = "list") -> str:
    """A document that is nothing but levels."""
    if kind == "list":
        return "[" * depth + "]" * depth
    return '{"a": ' * depth + "1" + "}" * depth


def content(
    seeds: Sequence[bytes], dump: Callable[[Tree], bytes], trees: Sequence[Tree], number: int
) -> bytes:
    """One case.

    Args:
        seeds: valid documents.
        dump: writes a changed document; may put its sums right again.
        trees: the same documents, parsed; empty where they are no trees.
        number: which case.
    """
    rng = random.Random(number)
    pick = rng.random()
    if pick < 0.05:
        return rng.randbytes(rng.choice((0, 1, 3, 20, 300)))
    if pick < 0.3 or not trees:
        return _bytes_changed(rng.choice(seeds), rng)
    tree = copy.deepcopy(rng.choice(trees))
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        tree = _changed(tree, rng)
    if rng.random() < 0.05:
        tree = _put(tree, _MARK, rng)
    made = dump(tree)
    if _MARK.encode() in made:
        deep = nested(rng.choice(_DEPTHS), rng.choice(("list", "map"))).encode()
        for quoted in (b'"%b"', b"'%b'", b"%b"):
            made = made.replace(quoted % _MARK.encode(), deep)
    return _bytes_changed(made, rng) if rng.random() < 0.05 else made


def large(tree: Tree, dump: Callable[[Tree], bytes], size: int = 10**6) -> dict[str, bytes]:
    """Documents of about a size, of several shapes."""
    made = {
        "levels": nested(size // 2).encode(),
        "levels of objects": nested(size // 7, "map").encode(),
        "open levels": b"[" * size,
        "empty lists": b"[" + b"[]," * (size // 3) + b"1]",
        "objects": b"[" + b'{"a":1},' * (size // 8) + b"1]",
        "numbers": b"[" + b"1," * (size // 2) + b"1]",
        "digits": b"[" + b"9" * size + b"]",
        "one text": json.dumps("x" * size).encode(),
    }
    if isinstance(tree, dict):
        more = {f"key{i}": i for i in range(size // 16)}
        made["unknown keys"] = dump(tree | more)
        longest = max(tree, key=lambda key: len(json.dumps(tree[key])))
        for name, value in (
            ("items", [{"a": i} for i in range(size // 10)]),
            ("text", "x" * size),
            ("levels inside", _MARK),
        ):
            deep = nested(size // 2).encode()
            changed = dump(tree | {longest: value})
            made[f"{name} in {longest}"] = changed.replace(f'"{_MARK}"'.encode(), deep)
        for key, value in tree.items():
            if isinstance(value, list) and value:
                times = size // max(1, len(json.dumps(value)))
                made[f"{key} repeated"] = dump(tree | {key: value * times})
    return made


def _bytes_changed(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        at = rng.randrange(len(changed) + 1)
        upto = min(len(changed), at + rng.choice((1, 1, 2, 8, 100)))
        what = rng.randrange(8)
        if what == 0 and at < len(changed):
            changed[at] ^= 1 << rng.randrange(8)
        elif what == 1:
            del changed[at:]
        elif what == 2:
            del changed[at:upto]
        elif what == 3:
            changed[at:at] = changed[at:upto] * rng.choice((1, 2, 50))
        elif what == 4:
            changed[at:upto] = rng.choice(NOISE)
        elif what == 5:
            changed[at:at] = rng.choice(NOISE) * rng.choice((1, 1, 3, 200))
        elif what == 6 and at < len(changed):
            changed[at] = rng.randrange(256)
        else:
            source = rng.randrange(len(changed) + 1)
            changed[at:at] = changed[source : source + rng.choice((4, 40))]
    return bytes(changed)


def _places(tree: Tree) -> list[tuple[Any, Any]]:
    """Every container with each of its keys."""
    found: list[tuple[Any, Any]] = []
    rest = [tree]
    while rest:
        here = rest.pop()
        keys = here.keys() if isinstance(here, dict) else range(len(here))
        for key in keys:
            found.append((here, key))
            if isinstance(here[key], dict | list):
                rest.append(here[key])
    return found


def _changed(tree: Tree, rng: random.Random) -> Tree:
    places = _places(tree) if isinstance(tree, dict | list) else []
    if not places or rng.random() < 0.01:
        return copy.deepcopy(rng.choice(ODD))
    here, key = rng.choice(places)
    what = rng.randrange(8)
    if what <= 2:
        here[key] = copy.deepcopy(rng.choice(ODD))
    elif what == 3:
        del here[key]
    elif what == 4:
        there, other = rng.choice(places)
        value = copy.deepcopy(there[other]) if _has(there, other) else None
        here[key] = value
    elif what == 5 and isinstance(here, dict):
        name = rng.choice(("new", "", f"{key}x", str(key).upper(), "\ud800", "a" * 5000))
        here[name] = here.pop(key) if rng.random() < 0.5 else copy.deepcopy(rng.choice(ODD))
    elif what == 5:
        here[key:key] = copy.deepcopy(here[key : key + 2]) * rng.choice((1, 3, 40))
    elif what == 6:
        here[key] = rng.choice(([here[key]], {"value": here[key]}, str(here[key])))
    elif isinstance(here[key], int | float):
        scale = rng.choice((-1, 0, 1000, 1e-9, 1e300))
        try:
            here[key] = here[key] * scale
        except OverflowError:
            here[key] = math.inf
    elif isinstance(here[key], str):
        text = here[key]
        here[key] = rng.choice((text[:-1], text + "x", text.upper(), text * 3, text[::-1]))
    else:
        here[key] = copy.deepcopy(rng.choice(ODD))
    return tree


def _has(here: Any, key: Any) -> bool:
    return key in here if isinstance(here, dict) else key < len(here)


def _put(tree: Tree, value: Tree, rng: random.Random) -> Tree:
    places = _places(tree) if isinstance(tree, dict | list) else []
    if not places:
        return value
    here, key = rng.choice(places)
    here[key] = value
    return tree


def as_json(tree: Tree) -> bytes:
    """A document as JSON, halves of characters and numbers that are none included."""
    return json.dumps(tree).encode()


def as_yaml(tree: Tree) -> bytes:
    """A document as YAML, which JSON is but for two numbers."""
    text = json.dumps(tree)
    return text.replace(" NaN", " .nan").replace("Infinity", ".inf").encode()
