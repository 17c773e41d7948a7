"""Turning pydantic's findings into one readable error."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Annotated, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from dsp_gym.errors import ConfigError, did_you_mean

_SHOWN = 5
"""Findings shown at once: what fits on a screen together with their remedies."""

_LENGTHS = ("min_length", "max_length", "actual_length")
_EXPECTED = {
    "model_type": "a mapping of keys",
    "model_attributes_type": "a mapping of keys",
    "dict_type": "a mapping of keys",
    "mapping_type": "a mapping of keys",
    "list_type": "a list",
    "tuple_type": "a list",
    "string_type": "text",
    "float_parsing": "a valid number",
    "float_type": "a valid number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
}
"""Pydantic's kinds of findings in the words of who writes YAML."""

_LISTED = 500
"""Findings up to which all are listed; to list the 300,000 of a megabyte takes seconds."""

_FIRST = 20
"""Keys and items of each part of a document in which the first findings of many are looked for."""

Location = tuple[int | str, ...]


class _Finding(NamedTuple):
    key: str | None
    value: object
    message: str
    remedy: str | None


def explain(error: ValidationError, model: type[BaseModel], data: object, file: str) -> ConfigError:
    """One `ConfigError` that says file, key, value and remedy for what pydantic found.

    Returns:
        The error to raise; of several findings it lists the first ones.
    """
    count = error.error_count()
    listed = error.errors(include_url=False) if count <= _LISTED else _first_of(model, data)
    findings = [_finding(detail, model, data) for detail in listed]
    if count == 1:
        key, value, message, remedy = findings[0]
        return ConfigError(message, file=file, key=key, value=value, remedy=remedy)
    lines = [
        f"  {ConfigError(message, key=key, value=value, remedy=remedy)}"
        for key, value, message, remedy in findings[:_SHOWN]
    ]
    if count > len(lines):
        lines.append(f"  and {count - len(lines)} more" if lines else "  is it of another kind?")
    return ConfigError("\n".join([f"{count} things are wrong:", *lines]), file=file)


def _first_of(model: type[BaseModel], data: object) -> list[ErrorDetails]:
    """Findings in the begin of each part of a document; what was left out is not missed."""
    try:
        model.model_validate(_begin(data, [_LISTED]))
    except ValidationError as error:
        return [one for one in error.errors(include_url=False) if one["type"] != "missing"]
    return []


def _begin(data: object, left: list[int]) -> object:
    """The document with the first items of each part, `left[0]` in all."""
    left[0] -= 1
    if isinstance(data, dict):
        pairs = islice(data.items(), _FIRST)
        return {key: _begin(value, left) for key, value in pairs if left[0] > 0}
    if isinstance(data, list):
        return [_begin(value, left) for value in islice(data, _FIRST) if left[0] > 0]
    return data


def _finding(detail: ErrorDetails, model: type[BaseModel], data: object) -> _Finding:
    location, kind = detail["loc"], detail["type"]
    key = _dotted(location, data, missing=kind == "missing") or None
    if kind == "extra_forbidden":
        known = _fields_at(model, location[:-1])
        return _Finding(None, None, f"unknown key '{key}'", did_you_mean(str(location[-1]), known))
    if kind == "missing":
        parent, _, name = (key or "").rpartition(".")
        remedy = _description(model, location)
        return _Finding(parent or None, None, f"the key '{name}' is missing", remedy)
    message = detail["msg"]
    if kind in {"value_error", "assertion_error"}:
        # The message of our own validator; pydantic puts its kind before it.
        message = message.partition(", ")[2] or message
        whole = isinstance(detail["input"], dict | list | BaseModel)
        return _Finding(key, None if whole else detail["input"], message, None)
    expected = message.removeprefix("Input should be ")
    text = f"expected {expected}" if expected != message else message[:1].lower() + message[1:]
    remedy = _description(model, location)
    if kind in {"too_short", "too_long"}:
        least, most, length = (detail["ctx"].get(name) for name in _LENGTHS)
        bound = f"{least} or more" if kind == "too_short" else f"{most} or fewer"
        text = f"expected {bound} entries, found {length}"
    elif kind in _EXPECTED:
        text = f"expected {_EXPECTED[kind]}"
    elif kind == "finite_number" and type(None) in _walk(model, location):
        remedy = f"Write null for unknown. {remedy or ''}".strip()
    return _Finding(key, _shown(detail["input"]), text, remedy)


def _shown(value: object) -> object:
    return "null" if value is None else value


def _dotted(location: Location, data: object, *, missing: bool) -> str:
    """The location as a reader of the file would write it.

    Pydantic puts the tag of a union's member into a location; the data does not have it.
    """
    text, here = "", data
    for position, step in enumerate(location):
        if isinstance(step, int) and isinstance(here, list) and step < len(here):
            text, here = f"{text}[{step}]", here[step]
        elif isinstance(here, dict) and step in here:
            text, here = f"{text}.{step}", here[step]
        elif missing and position == len(location) - 1:
            text = f"{text}.{step}"
    return text.removeprefix(".")


def _fields_at(model: type[BaseModel], location: Location) -> set[str]:
    return {
        name
        for found in _models(_walk(model, location))
        for name, field in found.model_fields.items()
        for name in (name, field.alias or name)
    }


def _description(model: type[BaseModel], location: Location) -> str | None:
    """What the model says about the field, as a hint."""
    for found in _models(_walk(model, location[:-1])):
        for name, field in found.model_fields.items():
            if location[-1] in (name, field.alias) and field.description:
                return f"It is: {field.description.rstrip('.')}."
    return None


def _walk(annotation: object, location: Location) -> list[object]:
    """The types found at a location, starting from a type."""
    here = list(_members(annotation))
    for step in location:
        here = [member for found in _step(here, step) for member in _members(found)]
    return here


def _step(here: Sequence[object], step: int | str) -> Sequence[object]:
    fields = [
        field
        for model in _models(here)
        for name, field in model.model_fields.items()
        if step in (name, field.alias)
    ]
    if fields:
        return [field.annotation for field in fields]
    items: list[object] = []
    for found in here:
        origin, args = get_origin(found), get_args(found)
        if isinstance(origin, type) and issubclass(origin, dict) and len(args) == 2:
            items.append(args[1])
        elif isinstance(step, int) and args and args[0] is not Ellipsis and origin is not Literal:
            items.append(args[0])
    if items:
        return items
    # A union's tag: the class name, or the value of the field that tells the members apart.
    return [m for m in _models(here) if m.__name__ == step or _has_tag(m, step)] or here


def _has_tag(model: type[BaseModel], tag: int | str) -> bool:
    return any(
        get_origin(field.annotation) is Literal and tag in get_args(field.annotation)
        for field in model.model_fields.values()
    )


def _members(annotation: object) -> Iterator[object]:
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _members(get_args(annotation)[0])
    elif origin is Union or origin is types.UnionType:
        for member in get_args(annotation):
            yield from _members(member)
    else:
        yield annotation


def _models(found: Iterable[object]) -> list[type[BaseModel]]:
    return [m for m in found if isinstance(m, type) and issubclass(m, BaseModel)]
