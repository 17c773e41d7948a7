"""The parallelism override of a Flink configuration, in every form the operator takes it.

Up to its release 1.12 a configuration is a map of strings; later it may be nested. The override
is then found as one text (under a dotted or a nested key), as a map by vertex, or as one key per
vertex.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from dsp_gym.backends.flink.submission import levels_named
from dsp_gym.config.strict_json import Document, Json
from dsp_gym.job.deployment import slot_levels
from dsp_gym.job.memory import NO_MEMORY, level_mib
from dsp_gym.job.spec import JobSpec

KEY = "pipeline.jobvertex-parallelism-overrides"
"""Flink's option: vertex id to parallelism."""

OverrideForm = Literal["none", "flat", "nested", "prefix", "mixed"]

_Path = tuple[str, ...]


def flattened(configuration: Mapping[str, object]) -> dict[str, str]:
    """A configuration by dotted keys, as Flink reads it.

    Returns:
        Texts by dotted key.

    >>> flattened({"state": {"backend": {"type": "rocksdb"}}, "taskmanager.numberOfTaskSlots": 2})
    {'state.backend.type': 'rocksdb', 'taskmanager.numberOfTaskSlots': '2'}
    """
    flat: dict[str, str] = {}
    for key, value in configuration.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{inner}": text for inner, text in flattened(value).items()}
        else:
            flat[str(key)] = _text(value)
    return flat


def text_of(overrides: Mapping[str, int]) -> str:
    """An override as one text.

    Returns:
        Pairs `id:parallelism`, separated by commas; empty for none.

    >>> text_of({"bc764cd8": 2, "90bea66d": 3})
    'bc764cd8:2,90bea66d:3'
    """
    return ",".join(f"{vertex}:{parallelism}" for vertex, parallelism in overrides.items())


class _Place(NamedTuple):
    """Where the override stands, or one vertex of it."""

    shape: Literal["text", "map", "entry"]
    path: _Path  # of the text, of the map, or of what the entries have in common
    values: Mapping[str, object]  # by vertex, as written


_NOWHERE = _Place("text", (KEY,), {})


@dataclass(frozen=True, slots=True)
class Override:
    """The override of one configuration, and how it is written there."""

    form: OverrideForm
    values: Mapping[str, int]
    trouble: str | None = None  # why it cannot be read
    place: _Place = _NOWHERE

    @classmethod
    def of(cls, configuration: Mapping[str, object]) -> Override:
        """Read an override leniently: `trouble` says what cannot be read.

        Returns:
            The numbers by vertex id, with the form they are written in; `none` where the
            configuration has no override.
        """
        places = list(_places(configuration))
        if not places:
            return cls("none", {})
        first = places[0]
        if any((place.shape, place.path) != (first.shape, first.path) for place in places):
            return cls("mixed", {}, f"'{KEY}' stands there in several forms")
        place = first._replace(values={v: n for one in places for v, n in one.values.items()})
        form: OverrideForm = "prefix" if place.shape == "entry" else "nested"
        if place.shape == "text" and place.path == (KEY,):
            form = "flat"
        values = {vertex: _parallelism(number) for vertex, number in place.values.items()}
        for vertex, number in values.items():
            if number is None:
                said = f"{place.values[vertex]!r} is no parallelism of vertex {vertex!r}"
                return cls(form, {}, f"'{KEY}' cannot be read: {said}", place)
        return cls(form, {vertex: n for vertex, n in values.items() if n is not None}, None, place)

    def patch(self, overrides: Mapping[str, int]) -> Document:
        """The part of a configuration that sets the override, in the form it stands there.

        A vertex that is overridden stays so: without it the operator redeploys the whole job.

        Returns:
            A merge patch of the configuration, with the vertices overridden before and the new
            ones.
        """
        wanted, (shape, path, _) = {**self.values, **overrides}, self.place
        if shape == "text":
            return _nested(path, text_of(wanted))
        if shape == "map":
            return _nested(path, {v: self._written(v, n) for v, n in wanted.items()})
        *above, last = path
        return _nested(
            tuple(above), {f"{last}.{v}": self._written(v, n) for v, n in wanted.items()}
        )

    def _written(self, vertex: str, parallelism: int) -> int | str:
        """A number where one stood, else a text: operators up to 1.12 take nothing else."""
        return parallelism if type(self.place.values.get(vertex)) is int else str(parallelism)


def _places(tree: Mapping[str, object], above: _Path = ()) -> Iterator[_Place]:
    for key, value in tree.items():
        path = (*above, str(key))
        dotted = ".".join(path)
        if dotted == KEY:
            if isinstance(value, Mapping):
                yield _Place("map", path, dict(value))
            else:
                yield _Place("text", path, _parts(_text(value)))
        elif dotted.startswith(f"{KEY}."):
            common, _, vertex = path[-1].rpartition(".")
            yield _Place("entry", (*above, common), {vertex: value})
        elif isinstance(value, Mapping) and KEY.startswith(f"{dotted}."):
            yield from _places(value, path)


def _parts(text: str) -> dict[str, str]:
    """`id:2,id:3`, and the form of YAML that Flink 2 writes, `{id: '2', id: '3'}`."""
    pairs = [part.partition(":") for part in text.strip().strip("{}").split(",") if part.strip()]
    return {_unquoted(vertex): _unquoted(number) for vertex, _, number in pairs}


def _parallelism(number: object) -> int | None:
    if isinstance(number, bool | float):
        return None
    text = str(number)
    return int(text) if text.isdecimal() and int(text) >= 1 else None


def _nested(path: _Path, value: Json) -> Document:
    for key in reversed(path):
        value = {key: value}
    return dict(value)


def _unquoted(text: str) -> str:
    return text.strip().strip("'\"")


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


_OPTION = "--managed-mib"


def levels_in(arguments: Sequence[str], spec: JobSpec) -> dict[str, int] | None:
    """Read the memory levels in a job's arguments.

    Returns:
        Level by vertex; None if these are not the arguments of a job of this project, or name no
        memory.
    """
    if "--program" not in arguments:
        return None
    given = dict(itertools.pairwise(arguments))  # an option's value stands behind it
    try:
        return levels_named(given.get(_OPTION, ""), spec)
    except (ValueError, OverflowError):
        return None


def levels_shown(arguments: Sequence[str], spec: JobSpec) -> dict[str, int] | None:
    """Memory levels of a job as its slots have them, whatever its arguments ask for.

    Returns:
        Level by vertex; None where slots differ, and nothing says how.
    """
    return slot_levels(spec) if spec.memory.uniform else levels_in(arguments, spec)


def with_levels(
    arguments: Sequence[str], levels: Mapping[str, int], spec: JobSpec
) -> tuple[str, ...]:
    """Set other memory levels in a job's arguments.

    Returns:
        The arguments; all else is as it was.
    """
    listed = ",".join(
        f"{name}={round(level_mib(spec.memory.base_mib, level))}"
        for name, level in levels.items()
        if level != NO_MEMORY
    )
    kept = list(arguments)
    if _OPTION in kept:
        at = kept.index(_OPTION)
        del kept[at : at + 2]
    return (*kept, _OPTION, listed) if listed else tuple(kept)
