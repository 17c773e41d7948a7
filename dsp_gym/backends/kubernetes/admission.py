"""What one write may change: the rule of the admission policy, asked before the write is sent.

The server holds the account to it (`deploy/overlays/active/fence.yaml`), whatever this process
does; here it gives the reason in words, and holds without a policy on the server, too. A test
compares both on random writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dsp_gym.backends.kubernetes.overrides import KEY
from dsp_gym.backends.kubernetes.resources import (
    EPOCH,
    HOLDER,
    KILL_SWITCH,
    KILL_SWITCH_OFF,
    LEAP,
    OWN_ANNOTATIONS,
    VERTICES,
)
from dsp_gym.config.strict_json import Document

FACTOR = 4
"""One write may multiply or divide the tasks of a vertex by so much, or"""

STEP = 32
"""add or take away so many."""

MAP, _, INNER = KEY.partition(".")
_DERIVED = frozenset(("annotations", "generation", "managedFields", "resourceVersion"))
_LONGEST = 253
_EPOCH = re.compile(r"[0-9]{1,18}")
_PAIR = re.compile(r"([A-Za-z0-9_-]{1,64}):([1-9][0-9]{0,4})")
_LISTED = re.compile(r"([A-Za-z0-9_-]{1,64}):([1-9][0-9]{0,4})-([1-9][0-9]{0,4})")
_ORNAMENT = str.maketrans("", "", " \t\r\n{}\"'")

_Rule = Callable[["_Write"], bool]


@dataclass(frozen=True, slots=True)
class ListedVertex:
    """One entry of the annotation `dsp-gym.io/vertices`, which the owner of the job writes."""

    vertex: str
    least: int
    most: int

    def allows(self, vertex: str, tasks: int) -> bool:
        """Whether it lets a vertex have so many tasks."""
        return self.vertex == vertex and self.least <= tasks <= self.most


def listed_vertices(annotations: Mapping[str, object]) -> tuple[ListedVertex, ...]:
    """Read which vertices of a resource may be rescaled.

    Returns:
        One entry per vertex; none where the annotation is missing or cannot be read.

    >>> listed_vertices({"dsp-gym.io/vertices": "a:1-64,b:2-8"})[1]
    ListedVertex(vertex='b', least=2, most=8)
    """
    text = annotations.get(VERTICES)
    found = [_LISTED.fullmatch(part) for part in text.split(",")] if isinstance(text, str) else []
    if any(one is None for one in found):
        return ()
    return tuple(ListedVertex(m[1], int(m[2]), int(m[3])) for m in found if m is not None)


def list_text(bounds: Mapping[str, tuple[int, int]]) -> str:
    """Write the value of the annotation.

    >>> list_text({"a": (1, 64), "b": (2, 8)})
    'a:1-64,b:2-8'
    """
    return ",".join(f"{vertex}:{least}-{most}" for vertex, (least, most) in bounds.items())


def merged(target: object, patch: object) -> Any:
    """Apply a JSON merge patch (RFC 7386).

    >>> merged({"a": 1, "b": {"c": 2}}, {"b": {"d": 3}, "a": None})
    {'b': {'c': 2, 'd': 3}}
    """
    if not isinstance(patch, Mapping):
        return patch
    old: dict[str, object] = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            old.pop(key, None)
        else:
            old[key] = merged(old.get(key), value)
    return old


def refusal(before: Mapping[str, object], after: Mapping[str, object]) -> str | None:
    """Say why a write may not be made.

    Args:
        before: the resource as it stands there.
        after: the resource as it would stand there.

    Returns:
        The first rule that the write breaks, as a sentence; None where it may be made.
    """
    write = _Write.of(before, after)
    for message, holds in _RULES.items():
        if not holds(write):
            return message
    return None


@dataclass(frozen=True, slots=True)
class _Override:
    """The override of one configuration, read as strictly as the server reads it."""

    places: tuple[str, ...]  # where it stands
    pairs: tuple[tuple[str, int], ...] | None  # vertex and tasks; None where it cannot be read
    rest: Mapping[str, object] | None  # all other options; None where `pipeline` is no map

    @classmethod
    def of(cls, options: object, *, as_written: bool) -> _Override:
        """Read it; a text that this process writes has no blanks, quotes and braces."""
        nested = options.get(MAP, {}) if isinstance(options, Mapping) else None
        if not isinstance(options, Mapping) or not isinstance(nested, Mapping):
            return cls(("unknown",), None, None)
        places, pairs = [], []
        for above, tree, key in (("", options, KEY), ("nested ", nested, INNER)):
            if key in tree:
                value = tree[key]
                if isinstance(value, str):
                    places.append(f"{above}text")
                    pairs += _texts(value, as_written=as_written)
                elif not isinstance(value, dict):
                    places.append("unknown")
                else:
                    places.append(f"{above}map")
                    pairs += [_pair(vertex, tasks) for vertex, tasks in value.items()]
            entries = {k: v for k, v in tree.items() if k.startswith(f"{key}.")}
            if entries:
                places.append(f"{above}entries")
                pairs += [_pair(k.removeprefix(f"{key}."), v) for k, v in entries.items()]
        known = [pair for pair in pairs if pair is not None]
        rest = {k: v for k, v in options.items() if not _is_override(k, KEY)}
        if MAP in options:
            rest[MAP] = {k: v for k, v in nested.items() if not _is_override(k, INNER)}
        return cls(tuple(places), tuple(known) if len(known) == len(pairs) else None, rest)


@dataclass(frozen=True, slots=True)
class _Write:
    """One write, taken apart."""

    metas: tuple[Document, Document]  # before and after, without what the server derives
    notes: tuple[Document, Document]  # annotations
    specs: tuple[Document, Document]  # without flinkConfiguration
    changes_override: bool
    overrides: tuple[_Override, _Override]

    @classmethod
    def of(cls, before: Mapping[str, object], after: Mapping[str, object]) -> _Write:
        metas = _map(before.get("metadata")), _map(after.get("metadata"))
        specs = _map(before.get("spec")), _map(after.get("spec"))
        options = [spec.get("flinkConfiguration", {}) for spec in specs]
        return cls(
            metas=(_without(metas[0], _DERIVED), _without(metas[1], _DERIVED)),
            notes=(_map(metas[0].get("annotations")), _map(metas[1].get("annotations"))),
            specs=(
                _without(specs[0], {"flinkConfiguration"}),
                _without(specs[1], {"flinkConfiguration"}),
            ),
            changes_override=not _same(*options),
            overrides=(
                _Override.of(options[0], as_written=False),
                _Override.of(options[1], as_written=True),
            ),
        )

    @property
    def epochs(self) -> tuple[int, int] | None:
        texts = [str(notes.get(EPOCH, "0")) for notes in self.notes]
        if not all(_EPOCH.fullmatch(text) for text in texts):
            return None
        return int(texts[0]), int(texts[1])

    @property
    def asked(self) -> Iterator[tuple[str, int, list[int]]]:
        """Vertex, its tasks, and those before, for every one that changes."""
        before, after = (override.pairs or () for override in self.overrides)
        for vertex, tasks in after:
            if (vertex, tasks) not in before:
                yield vertex, tasks, [old for other, old in before if other == vertex]


def _may_be_written(write: _Write) -> bool:
    notes = write.notes[0]
    return KILL_SWITCH not in notes or notes[KILL_SWITCH] in KILL_SWITCH_OFF


def _keeps_annotations(write: _Write) -> bool:
    before, after = (_without(notes, OWN_ANNOTATIONS) for notes in write.notes)
    return _same(before, after) and write.notes[0].keys() <= write.notes[1].keys()


def _is_short(write: _Write) -> bool:
    after = write.notes[1]
    return all(len(str(after.get(name, ""))) <= _LONGEST for name in OWN_ANNOTATIONS)


def _is_next_epoch(write: _Write) -> bool:
    return write.epochs is not None and 0 <= write.epochs[1] - write.epochs[0] <= LEAP


def _keeps_holder(write: _Write) -> bool:
    if write.epochs is None or write.epochs[0] != write.epochs[1]:
        return write.epochs is not None
    before, after = write.notes
    return HOLDER not in before or before[HOLDER] == after.get(HOLDER)


def _keeps_options(write: _Write) -> bool:
    before, after = (override.rest for override in write.overrides)
    return before is not None and _same(before, after)


def _keeps_spelling(write: _Write) -> bool:
    before, after = (override.places for override in write.overrides)
    if before == () and after == ("text",):
        return True
    return len(after) == 1 and after == before and after != ("unknown",)


def _names_each_once(write: _Write) -> bool:
    before, after = ([vertex for vertex, _ in o.pairs or ()] for o in write.overrides)
    unique = len(set(before)) == len(before) and len(set(after)) == len(after)
    return bool(after) and unique and set(before) <= set(after)


def _is_listed(write: _Write) -> bool:
    listed = listed_vertices(write.notes[0])
    return all(any(one.allows(v, n) for one in listed) for v, n, _ in write.asked)


def _is_moderate(write: _Write) -> bool:
    return all(
        (n <= FACTOR * old or n - old <= STEP) and (old <= FACTOR * n or old - n <= STEP)
        for _, n, before in write.asked
        for old in before
    )


def _if_changed(rule: _Rule) -> _Rule:
    return lambda write: not write.changes_override or rule(write)


_RULES: dict[str, _Rule] = {
    f"the annotation {KILL_SWITCH} says stop": _may_be_written,
    "it changes metadata other than its own annotations": (lambda write: _same(*write.metas)),
    "it changes an annotation that is not its own, or removes one": _keeps_annotations,
    f"its annotation is longer than {_LONGEST} characters": _is_short,
    f"its epoch is earlier than the last one, or more than {LEAP} beyond it": _is_next_epoch,
    "it bears the epoch of another holder": _keeps_holder,
    "it changes an override without an epoch": _if_changed(lambda write: EPOCH in write.notes[1]),
    "it changes more of the spec than flinkConfiguration": (lambda write: _same(*write.specs)),
    f"it changes another option than {KEY}": _if_changed(_keeps_options),
    "it spells the override in another way than it stands there, or in two": (
        _if_changed(_keeps_spelling)
    ),
    "the override, there or as written, does not read as 'vertex:tasks'": _if_changed(
        lambda write: all(override.pairs is not None for override in write.overrides)
    ),
    "it removes a vertex from the override, or names one twice": _if_changed(_names_each_once),
    f"the annotation {VERTICES} lacks a vertex that it rescales, or does not allow its tasks": (
        _if_changed(_is_listed)
    ),
    f"it changes the tasks of a vertex more than {FACTOR}-fold and by more than {STEP}": (
        _if_changed(_is_moderate)
    ),
}  # as in the admission policy, and in its order


def _is_override(key: str, name: str) -> bool:
    return key == name or key.startswith(f"{name}.")


def _texts(text: str, *, as_written: bool) -> list[tuple[str, int] | None]:
    if as_written:
        parts = text.split(",") if text else []
    else:
        parts = [part for part in text.translate(_ORNAMENT).split(",") if part]
    return [_parsed(part) for part in parts]


def _pair(vertex: str, tasks: object) -> tuple[str, int] | None:
    """Numbers and texts pass; `True` is neither, though Python counts it among the numbers."""
    return _parsed(f"{vertex}:{tasks}") if type(tasks) in (int, str) else None


def _parsed(text: str) -> tuple[str, int] | None:
    found = _PAIR.fullmatch(text)
    return None if found is None else (found[1], int(found[2]))


def _same(one: object, other: object) -> bool:
    """Equality as JSON has it: to Python True is 1."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _without(document: Document, keys: Iterable[str]) -> Document:
    return {key: value for key, value in document.items() if key not in set(keys)}


def _map(value: object) -> Document:
    return dict(value) if isinstance(value, Mapping) else {}
